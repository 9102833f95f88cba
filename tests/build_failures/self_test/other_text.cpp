// SPDX-License-Identifier: BSD-3-Clause
// build error: sizes differ
static_assert(3 == 4, "something else");
// The right text, but not in the first error.
static_assert(3 == 4, "sizes differ");
int main() {}
