// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A file that right.md and no_part.md quote.
struct quoted {
    int first = 1;

    int second = 2;
};
