// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/channel_copy.hpp"

#include <catch2/catch.hpp>

#include "unit/kernels/common.hpp"

using namespace kernel_test;
using kernels::detail::channel_copy;
using kernels::detail::sliding;
using parallel::block;

namespace {

sliding window(std::size_t rows, std::size_t taps, std::size_t stride, std::size_t padding, std::size_t dilation) {
    sliding s;
    s.rows = rows;
    s.columns = 5;
    s.pixel = 1024;
    s.taps_rows = s.taps_columns = taps;
    s.stride_rows = stride;
    s.dilation_rows = dilation;
    s.origin_rows = -static_cast<std::ptrdiff_t>(padding);
    s.out_rows = kernels::window_count(rows, 2 * padding, kernels::reach(taps, dilation), stride);
    return s;
}

}  // namespace

TEST_CASE("kernels/channel_copy: a copy has all rows of the image that its outputs see", "[kernels]") {
    std::size_t nothing = 0;
    for (const std::size_t rows : {1, 4, 7, 13})
        for (const std::size_t taps : {1, 2, 3, 5})
            for (const std::size_t stride : {1, 2, 3})
                for (const std::size_t padding : {0, 1, 4})
                    for (const std::size_t dilation : {1, 2}) {
                        const sliding s = window(rows, taps, stride, padding, dilation);
                        for (std::size_t first = 0; first < s.out_rows; ++first)
                            for (std::size_t last = first + 1; last <= s.out_rows; ++last) {
                                block naive{rows, 0};
                                for (std::size_t out = first; out < last; ++out)
                                    for (std::size_t tap = 0; tap < taps; ++tap) {
                                        const auto at =
                                            static_cast<std::ptrdiff_t>(out * stride + tap * dilation) + s.origin_rows;
                                        if (at < 0 || at >= static_cast<std::ptrdiff_t>(rows)) continue;
                                        naive = {std::min(naive.first, static_cast<std::size_t>(at)),
                                                 std::max(naive.last, static_cast<std::size_t>(at) + 1)};
                                    }
                                const block seen = kernels::detail::seen_by(s, {first, last});
                                INFO(rows << ' ' << taps << ' ' << stride << ' ' << padding << ' ' << dilation << ' '
                                          << first << ' ' << last);
                                if (naive.first >= naive.last) {
                                    ++nothing;
                                    CHECK(seen.last <= rows);
                                    continue;
                                }
                                CHECK(seen.first <= naive.first);
                                CHECK(seen.last >= naive.last);
                                if (dilation == 1 && taps >= stride) CHECK(seen == naive);  // no gaps
                                const sliding over = kernels::detail::over_copy(s, seen, 32);
                                CHECK(over.rows == seen.size());
                                CHECK(over.pixel == 32);
                                CHECK(over.origin_rows + static_cast<std::ptrdiff_t>(seen.first) == s.origin_rows);
                            }
                    }
    CHECK(nothing > 0);
}

TEMPLATE_TEST_CASE("kernels/channel_copy: the channels of each pixel lie side by side", "[kernels]", float, double) {
    constexpr std::size_t channels = 4 * simd::width<TestType>, pixel = 7 * channels + 3, pixels = 5;
    const auto from = uniform<TestType>(pixels * pixel, 1);
    auto to = unwritten<TestType>(pixels * channels);
    channel_copy<TestType>::copy(from.data() + 2, pixels, pixel, channels, to.data());
    for (std::size_t p = 0; p < pixels; ++p)
        for (std::size_t c = 0; c < channels; ++c) REQUIRE(to[p * channels + c] == from[p * pixel + 2 + c]);
}

TEMPLATE_TEST_CASE(
    "kernels/channel_copy: made for pixels a multiple of 4 KB apart that are seen often, where there is room",
    "[kernels]", float, double) {
    using copies = channel_copy<TestType>;
    sliding s = window(14, 3, 1, 1, 1);
    s.pixel = 4096 / sizeof(TestType);
    const auto size = [&](std::size_t channels, std::size_t high) {
        return channels * (9 + s.seen_rows(high) * s.columns);
    };
    const std::size_t channels = copies::channels(s, 14, size);
    REQUIRE(channels > 0);
    CHECK(s.pixel % channels == 0);
    const std::size_t high = copies::rows(14, channels, size);
    CHECK(size(channels, high) <= copies::room);
    CHECK((high == 14 || size(channels, high + 1) > copies::room));
    CHECK(copies::channels(s, 0, size) == 0);
    CHECK(copies::channels(s, 14, [](std::size_t, std::size_t) { return copies::room + 1; }) == 0);
    s.stride_rows = s.stride_columns = 2;
    CHECK(copies::channels(s, 7, size) == 0);
    s.stride_rows = s.stride_columns = 1;
    s.pixel += simd::alignment / sizeof(TestType);
    CHECK(copies::channels(s, 14, size) == 0);
}

TEST_CASE("kernels/channel_copy: a block of the rows of all samples is cut where a sample ends", "[kernels]") {
    for (const std::size_t rows : {1, 3, 7})
        for (std::size_t first = 0; first <= 3 * rows; ++first)
            for (std::size_t last = first; last <= 3 * rows; ++last) {
                std::size_t next = first;
                kernels::detail::for_sample_rows({first, last}, rows, [&](std::size_t sample, block mine) {
                    REQUIRE(mine.first < mine.last);
                    REQUIRE(mine.last <= rows);
                    REQUIRE(sample * rows + mine.first == next);
                    next = sample * rows + mine.last;
                });
                REQUIRE(next == last);
            }
}
