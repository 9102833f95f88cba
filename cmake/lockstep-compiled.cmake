# SPDX-License-Identifier: BSD-3-Clause
# lockstep::compiled: lockstep::native, and a static library of what does not depend on a program's types. It is made in the build that uses it,
# by its compiler and with its flags, if a program links it. `lockstep_sources` is the folder of its sources.
if(NOT TARGET lockstep_compiled)
  # Position independent: it may become part of a shared library, as the headers may.
  add_library(lockstep_compiled STATIC EXCLUDE_FROM_ALL "${lockstep_sources}/functions.cpp" "${lockstep_sources}/kernels.cpp")
  add_library(lockstep::compiled ALIAS lockstep_compiled)
  set_target_properties(lockstep_compiled PROPERTIES OUTPUT_NAME lockstep POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF)
  target_compile_definitions(lockstep_compiled PUBLIC LOCKSTEP_COMPILED)
  target_link_libraries(lockstep_compiled PUBLIC lockstep::native)
endif()
