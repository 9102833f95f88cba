# SPDX-License-Identifier: BSD-3-Clause
# What the programs of this repository share: flags, and the way a test runs under MPI.

set(CMAKE_CXX_EXTENSIONS OFF)
set(LOCKSTEP_ROOT "${PROJECT_SOURCE_DIR}")
file(GLOB_RECURSE LOCKSTEP_HEADERS CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/include/lockstep/*.hpp")
foreach(name IN ITEMS png jpeg)
  if(NOT TARGET lockstep::${name})
    list(REMOVE_ITEM LOCKSTEP_HEADERS lockstep/files/${name}.hpp)
  endif()
endforeach()
# What some headers need beside the library, where it is found.
set(lockstep_optional_targets ${lockstep_image_targets})
if(TARGET lockstep::onnx)
  list(APPEND lockstep_optional_targets lockstep::onnx)
else()
  list(FILTER LOCKSTEP_HEADERS EXCLUDE REGEX "^lockstep/infer/onnx")
endif()
if(TARGET lockstep::atomo)
  list(APPEND lockstep_optional_targets lockstep::atomo)
else()
  list(REMOVE_ITEM LOCKSTEP_HEADERS lockstep/compress/atomo.hpp)
endif()

# Warnings only; for checks that run no code.
add_library(lockstep_warnings INTERFACE)
target_link_libraries(lockstep_warnings INTERFACE lockstep_native)
target_compile_options(lockstep_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wpedantic
                                                   $<$<BOOL:${LOCKSTEP_WARNINGS_AS_ERRORS}>:-Werror>)
# GCC collects its garbage only from 2 GiB on, which few of these programs take: a tenth of the time to compile them.
if(LOCKSTEP_QUICK_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(lockstep_warnings INTERFACE --param=ggc-min-heapsize=2097152)
endif()

# gold takes less time than ld.
if(LOCKSTEP_QUICK_BUILD AND NOT LOCKSTEP_SANITIZE)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=gold LOCKSTEP_LINKS_WITH_GOLD)
  if(LOCKSTEP_LINKS_WITH_GOLD)
    target_link_options(lockstep_warnings INTERFACE -fuse-ld=gold)
  endif()
endif()

# Warnings and sanitizers: every program of this repository links it.
add_library(lockstep_program INTERFACE)
target_link_libraries(lockstep_program INTERFACE lockstep_warnings)
# A program that was not started by mpirun starts a daemon of Open MPI, for processes that it could spawn, and all of
# them look for fabrics where there are none: 0.2 s for either, in several hundred jobs. harness/default_start has both.
set(lockstep_test_environment OMP_WAIT_POLICY=passive OMPI_MCA_ess_singleton_isolated=1)
file(GLOB fabrics /dev/infiniband/* /dev/hfi1* /dev/ipath* /dev/kgni* /dev/cxi*)
if(NOT fabrics)
  list(APPEND lockstep_test_environment OMPI_MCA_pml=ob1)
endif()
set(lockstep_case_seconds 120)
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_program INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # Points-to analysis takes 40 % of the time there. Not by the preset: other compilers do not know the option.
  target_compile_options(lockstep_program INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-tree-pta>)
  if(LOCKSTEP_SANITIZE MATCHES "address")
    # Unrolled kernels with a check written out for each access take twice as long to compile as with a call for each.
    target_compile_options(lockstep_program INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=asan-instrumentation-with-call-threshold=0>)
  endif()
  target_link_options(lockstep_program INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
  target_sources(lockstep_program INTERFACE "${LOCKSTEP_ROOT}/cmake/keep-loaded.cpp")
  target_link_options(lockstep_program INTERFACE -rdynamic)
  set(lockstep_case_seconds 400)
  list(APPEND lockstep_test_environment
       "LSAN_OPTIONS=suppressions='${LOCKSTEP_ROOT}/cmake/leak-suppressions.txt':print_suppressions=0"
       "UBSAN_OPTIONS=print_stacktrace=1"
       "TSAN_OPTIONS=suppressions='${LOCKSTEP_ROOT}/cmake/thread-suppressions.txt':ignore_noninstrumented_modules=1")
endif()

# Programs of many layers link the compiled form, which is built once; the others read all of the headers.
target_link_libraries(lockstep_compiled PRIVATE lockstep_program)
add_library(lockstep_compiled_program INTERFACE)
target_link_libraries(lockstep_compiled_program INTERFACE lockstep_program lockstep_compiled)

# GCC reads lockstep.hpp once for the sources that include it or the trainer; the others do not see it. Builds that are
# not quick do so for examples of one file alone: GCC 12 forgets in a precompiled header which warnings about inlined
# code it leaves out.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/everything.cpp" CONTENT "")
add_library(lockstep_once OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/everything.cpp")
target_link_libraries(lockstep_once PRIVATE lockstep_compiled_program)
target_precompile_headers(lockstep_once PRIVATE <lockstep/lockstep.hpp>)
if(LOCKSTEP_QUICK_BUILD)
  target_compile_options(lockstep_once PRIVATE -O0)
endif()
# lockstep_read_once(target header sources...): sources that include the trainer, or the header, a regular expression.
function(lockstep_read_once target header)
  if(NOT LOCKSTEP_QUICK_BUILD OR LOCKSTEP_SANITIZE)
    return()
  endif()
  set(found OFF)
  set(wanted "^#include \"(lockstep/lockstep[.]hpp|lockstep/train/trainer[.]hpp|${header})\"")
  foreach(source IN LISTS ARGN)
    file(STRINGS "${source}" line LIMIT_COUNT 1 REGEX "${wanted}")
    if(line)
      set(found ON)
    else()
      set_source_files_properties("${source}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
  if(found)
    target_precompile_headers(${target} REUSE_FROM lockstep_once)
  endif()
endfunction()

# lockstep_add_test(name command...): a test of one process.
function(lockstep_add_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${lockstep_test_environment}" TIMEOUT 600)
endfunction()

# lockstep_add_mpi_test(name ranks command...): the same program on `ranks` ranks. One rank runs without mpirun, because
# that has to work too. scripts/mpirun knows the flags that this machine needs.
function(lockstep_add_mpi_test name ranks)
  set(launcher)
  if(ranks GREATER 1)
    set(launcher "${LOCKSTEP_ROOT}/scripts/mpirun" -n ${ranks})
  endif()
  add_test(NAME ${name} COMMAND ${launcher} ${ARGN})
  # No binding: several jobs may share the machine, and each would bind its ranks to the first cores. Nor do they keep a core that others could use.
  set(environment ${lockstep_test_environment} OMP_NUM_THREADS=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
                  LOCKSTEP_TEST_SECONDS=${lockstep_case_seconds} "LOCKSTEP_MPIEXEC=${MPIEXEC_EXECUTABLE}")
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${environment}" PROCESSORS ${ranks} TIMEOUT 900)
endfunction()

# lockstep_read_comment(variable file key default): what follows `// key:` in the first lines of a file, and a space unless nothing does.
function(lockstep_read_comment variable file key default)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(STRINGS "${file}" lines LIMIT_INPUT 2000 REGEX "^// ${key}:( |$)")
  set(${variable} "${default}" PARENT_SCOPE)
  if(lines)
    list(GET lines 0 line)
    string(REGEX REPLACE "^// ${key}:" "" value "${line}")
    string(STRIP "${value}" value)
    set(${variable} "${value}" PARENT_SCOPE)
  endif()
endfunction()
