// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A user's reduction that needs the values of all workers: the median of each number (Yin, Chen, Ramchandran, Bartlett,
// ICML 2018).

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/error.hpp"

namespace reference {

struct median_of_workers {
    static constexpr std::string_view name = "median_of_workers";
    static constexpr std::size_t slot_count = 0, most_workers = 16;
    static constexpr std::array rounds{lockstep::compress::algebra::ordered_sum};

    [[nodiscard]] std::string settings() const { return {}; }
    void check_feedback() const {
        lockstep::core::fail("a median of workers is no sum of what they keep", "leave error_feedback out");
    }
    [[nodiscard]] auto sizes(const lockstep::compress::matrix& shape, std::size_t workers) const {
        return lockstep::compress::reduction_sizes<1>{.elements = {workers * shape.size()}};
    }
    template <class T>
    void encode(lockstep::compress::round_number<0>, const lockstep::compress::worker_pass<T>& in,
                std::span<T> out) const noexcept {
        std::ranges::fill(out, T{0});
        std::ranges::copy(in.values, out.subspan(in.worker * in.values.size()).begin());
    }
    /// Values of workers add up to the mean, so it is `workers` times their median.
    template <class T>
    void finish(const lockstep::compress::shared_pass<T>& all, std::span<const T> result,
                std::span<T> mean) const noexcept {
        std::array<T, most_workers> of{};
        const std::size_t half = all.workers / 2;
        for (std::size_t i = 0; i < mean.size(); ++i) {
            for (std::size_t worker = 0; worker < all.workers; ++worker) of[worker] = result[worker * mean.size() + i];
            std::sort(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(all.workers));
            const T middle = all.workers % 2 == 1 ? of[half] : (of[half - 1] + of[half]) / 2;
            mean[i] = static_cast<T>(all.workers) * middle;
        }
    }
    template <class T>
    void decode_own(const lockstep::compress::worker_pass<T>& in, std::span<const T>, T scale,
                    std::span<T> sum) const noexcept {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += scale * in.values[i];
    }
};

static_assert(lockstep::compress::Reduction<median_of_workers>);

}  // namespace reference
