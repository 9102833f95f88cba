// SPDX-License-Identifier: BSD-3-Clause
// Its size would be 0.
// build error: lockstep: a shape has more numbers than memory can have
#include "lockstep/tensor/shape.hpp"

int main() { return lockstep::tensor::shape<1UL << 32U, 1UL << 32U, 1>::size == 0 ? 0 : 1; }
