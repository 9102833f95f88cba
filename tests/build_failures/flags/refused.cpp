// SPDX-License-Identifier: BSD-3-Clause
// Any header refuses flags that change arithmetic: a test for each of them.
// build error: lockstep: -ffast-math, -Ofast and their parts remove the checks for NaN and change the bits of weights; compile without them
#include "lockstep/core/error.hpp"

int main() {}
