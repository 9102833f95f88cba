// SPDX-License-Identifier: BSD-3-Clause
// build error: sizes differ: 3 and 4|static assertion failed: sizes differ
#include "lockstep/core/error.hpp"
static_assert(3 == 4, "sizes differ");
int main() {}
