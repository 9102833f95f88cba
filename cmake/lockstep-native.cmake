# SPDX-License-Identifier: BSD-3-Clause
# lockstep::native: lockstep::lockstep and the instruction set LOCKSTEP_ARCH, of the build that uses it. The width of a vector follows it, so all
# translation units of a program need the same one. Imported from a package: what links it can be exported.
if(NOT TARGET lockstep::native)
  if(lockstep_is_package)
    add_library(lockstep::native INTERFACE IMPORTED)
    set(lockstep_name lockstep::native)
  else()
    add_library(lockstep_native INTERFACE)
    add_library(lockstep::native ALIAS lockstep_native)
    set(lockstep_name lockstep_native)
  endif()
  target_link_libraries(${lockstep_name} INTERFACE lockstep::lockstep)
  if(LOCKSTEP_ARCH)
    target_compile_options(${lockstep_name} INTERFACE
                           $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:-march=${LOCKSTEP_ARCH}>)
  endif()
  unset(lockstep_name)
endif()
