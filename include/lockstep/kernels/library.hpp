// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Instances of kernels in the compiled form, and the name by which a program and a library of other flags fail to link.
// Tested by tests/headers.

#include <type_traits>

#include "lockstep/core/compiled.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/tensor/fence.hpp"

#if defined(LOCKSTEP_COMPILED)

namespace lockstep::compiled {

struct openmp;
struct no_openmp;
struct checked_memory;
struct unchecked_memory;

/// `flags` is defined in a library of this instruction set, with or without threads and checks of memory, and nowhere
/// else.
template <class InstructionSet, class Threads, class Memory>
struct library_for {
    static const char flags;
};
using library = library_for<xsimd::default_arch, std::conditional_t<parallel::has_threads, openmp, no_openmp>,
                            std::conditional_t<tensor::checks_memory, checked_memory, unchecked_memory>>;

#if defined(LOCKSTEP_COMPILES_TEMPLATES)
template <>
const char library::flags = 0;
#else
#if __has_cpp_attribute(gnu::retain)
[[gnu::retain]]  // also where the linker drops what is never read
#endif
[[maybe_unused, gnu::used]] static const char* const needed = &library::flags;
#endif

}  // namespace lockstep::compiled

#endif
