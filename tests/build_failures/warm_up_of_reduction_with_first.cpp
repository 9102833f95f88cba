// SPDX-License-Identifier: BSD-3-Clause
// A reduction begins with all numbers, and not with a compressor.
// build error: lockstep: a warm_up around a reduction begins with all numbers, and no reduction is .first
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/warm_up.hpp"

using namespace lockstep::compress;

int main() {
    const warm_up<power_sgd, quantize> one{};
    return one.start > 0 ? 0 : 1;
}
