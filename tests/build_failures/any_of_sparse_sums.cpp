// SPDX-License-Identifier: BSD-3-Clause
// build error: lockstep: compress::any gathers messages, and those of sparse_sum and global_top_k are added on their way
#include "lockstep/compress/any.hpp"
#include "lockstep/compress/global_top_k.hpp"
#include "lockstep/lockstep.hpp"

int main() {
    const lockstep::compress::any one{lockstep::compress::global_top_k{}};
    (void)one;
}
