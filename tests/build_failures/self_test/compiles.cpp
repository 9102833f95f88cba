// SPDX-License-Identifier: BSD-3-Clause
// build error: sizes differ
#include "lockstep/core/error.hpp"
static_assert(3 == 3, "sizes differ");
int main() {}
