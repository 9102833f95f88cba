# SPDX-License-Identifier: BSD-3-Clause
# lockstep::atomo for compress/atomo.hpp, where Eigen 3 is found (Debian: libeigen3-dev): its SVD. A program links it beside lockstep::lockstep.
if(NOT TARGET lockstep::atomo)
  find_package(Eigen3 3.3 QUIET NO_MODULE)
  if(TARGET Eigen3::Eigen)
    # By paths: targets of find_package are known in one folder only.
    get_target_property(lockstep_eigen_headers Eigen3::Eigen INTERFACE_INCLUDE_DIRECTORIES)
    add_library(lockstep::atomo INTERFACE IMPORTED GLOBAL)
    target_include_directories(lockstep::atomo INTERFACE ${lockstep_eigen_headers})
    unset(lockstep_eigen_headers)
  endif()
endif()
