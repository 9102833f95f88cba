// SPDX-License-Identifier: BSD-3-Clause
// Comments at the top are left out.

int whole = 1;
