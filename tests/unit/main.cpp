// SPDX-License-Identifier: BSD-3-Clause
// The main program of tests that need no MPI.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
