// SPDX-License-Identifier: BSD-3-Clause
static_assert(3 == 4, "sizes differ");
int main() {}
