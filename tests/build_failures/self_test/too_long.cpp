// SPDX-License-Identifier: BSD-3-Clause
// build error: sizes differ
static_assert(3 == 4, "sizes differ");
static_assert(3 == 5, "sizes differ");
static_assert(3 == 6, "sizes differ");
static_assert(3 == 7, "sizes differ");
static_assert(3 == 8, "sizes differ");
static_assert(3 == 9, "sizes differ");
int main() {}
