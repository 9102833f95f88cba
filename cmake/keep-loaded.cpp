// SPDX-License-Identifier: BSD-3-Clause
// Part of every program that is built with a sanitizer: Open MPI unloads its plugins before the process ends, and then
// no suppression matches what they left. Weak, because parts of one program bring it along.
extern "C" __attribute__((weak)) int dlclose(void* /*handle*/) { return 0; }
