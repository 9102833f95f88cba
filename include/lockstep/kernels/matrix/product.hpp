// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a matrix product is asked for: operands, how they lie, and what its chains start from.
// Tested by tests/unit/kernels/matrix/gemm.cpp.

#include <cstddef>

namespace lockstep::kernels {

enum class transpose { no, yes };

namespace detail {

/// C = op(A) op(B) as gemm() takes it.
template <class T>
struct product {
    transpose ta;
    transpose tb;
    std::size_t m;
    std::size_t n;
    std::size_t k;
    const T* a;
    std::size_t lda;
    const T* b;
    std::size_t ldb;
    T* c;
    std::size_t ldc;
    bool starts;
    const T* bias;
};

}  // namespace detail

}  // namespace lockstep::kernels
