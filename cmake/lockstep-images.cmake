# SPDX-License-Identifier: BSD-3-Clause
# Decoders of pictures that need a library, where it is found: lockstep::png for files/png.hpp, lockstep::jpeg for files/jpeg.hpp. A program links
# them beside lockstep::lockstep. lockstep_image_targets is the list of those that are there.
set(lockstep_image_targets)
foreach(lockstep_name IN ITEMS PNG JPEG)
  string(TOLOWER lockstep::${lockstep_name} lockstep_target)
  if(NOT TARGET ${lockstep_target})
    find_package(${lockstep_name} QUIET)
    if(NOT ${lockstep_name}_FOUND)
      continue()
    endif()
    # By paths: targets of find_package are known in one folder only.
    add_library(${lockstep_target} INTERFACE IMPORTED GLOBAL)
    target_include_directories(${lockstep_target} INTERFACE ${${lockstep_name}_INCLUDE_DIRS})
    target_link_libraries(${lockstep_target} INTERFACE ${${lockstep_name}_LIBRARIES})
  endif()
  list(APPEND lockstep_image_targets ${lockstep_target})
endforeach()
unset(lockstep_name)
unset(lockstep_target)
