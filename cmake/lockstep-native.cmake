# SPDX-License-Identifier: BSD-3-Clause
# lockstep::native: lockstep::lockstep and the instruction set LOCKSTEP_ARCH, of the build that uses it. The width of a vector follows it, so all
# translation units of a program need the same one.
if(NOT TARGET lockstep_native)
  add_library(lockstep_native INTERFACE)
  add_library(lockstep::native ALIAS lockstep_native)
  target_link_libraries(lockstep_native INTERFACE lockstep::lockstep)
  if(LOCKSTEP_ARCH)
    target_compile_options(lockstep_native INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:-march=${LOCKSTEP_ARCH}>)
  endif()
endif()
