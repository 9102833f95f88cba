# SPDX-License-Identifier: BSD-3-Clause
# Finds what the headers include. Used by the build and by the installed package alike, so both find the same things.
# Defines lockstep::xtensor and lockstep::xsimd, whatever those packages call themselves. Reads LOCKSTEP_OPENMP, and
# lockstep_is_package: where it is on, the sentence on what was not found is left in lockstep_missing.

set(MPI_CXX_SKIP_MPICXX ON)  # the C++ bindings that MPI has withdrawn
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(Boost 1.70 REQUIRED CONFIG COMPONENTS mpi serialization)
find_package(ZLIB REQUIRED)
find_package(Threads REQUIRED)
if(LOCKSTEP_OPENMP)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()

foreach(lockstep_name IN ITEMS xsimd xtensor)
  if(TARGET lockstep::${lockstep_name})
    continue()
  endif()
  find_package(${lockstep_name} CONFIG QUIET)
  if(NOT TARGET ${lockstep_name}::${lockstep_name} AND NOT TARGET ${lockstep_name})
    find_path(LOCKSTEP_${lockstep_name}_INCLUDE
              NAMES ${lockstep_name}/${lockstep_name}.hpp ${lockstep_name}/containers/${lockstep_name}.hpp)
    if(NOT LOCKSTEP_${lockstep_name}_INCLUDE)
      set(lockstep_missing "lockstep: ${lockstep_name} was not found")
      string(APPEND lockstep_missing "; install lib${lockstep_name}-dev, or set ${lockstep_name}_DIR")
      if(lockstep_is_package)
        return()
      endif()
      message(FATAL_ERROR "${lockstep_missing}")
    endif()
  endif()
  add_library(lockstep::${lockstep_name} INTERFACE IMPORTED)
  if(TARGET ${lockstep_name}::${lockstep_name})
    target_link_libraries(lockstep::${lockstep_name} INTERFACE ${lockstep_name}::${lockstep_name})
  elseif(TARGET ${lockstep_name})
    target_link_libraries(lockstep::${lockstep_name} INTERFACE ${lockstep_name})
  else()
    target_include_directories(lockstep::${lockstep_name} INTERFACE "${LOCKSTEP_${lockstep_name}_INCLUDE}")
  endif()
endforeach()
unset(lockstep_name)
