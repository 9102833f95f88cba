// SPDX-License-Identifier: BSD-3-Clause
// That it links is the test.
int main() {}
