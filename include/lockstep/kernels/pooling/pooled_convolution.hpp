// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A convolution and the largest of its outputs in each window, in one pass: between them lie a few samples in cache.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/kernels/convolution/convolution.hpp"
#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/pooling/pooled_few_filters.hpp"
#include "lockstep/kernels/pooling/pooling.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::kernels {

/// A convolution without dilation and groups whose outputs are cut into windows side by side; what fills no whole
/// window is left out. x and w are those of the convolution, y is batch x out_rows x out_columns x filters.
struct pooled_convolution {
    convolution conv;
    std::size_t window_rows = 1;
    std::size_t window_columns = 1;

    [[nodiscard]] constexpr std::size_t out_rows() const noexcept { return conv.out_rows() / window_rows; }
    [[nodiscard]] constexpr std::size_t out_columns() const noexcept { return conv.out_columns() / window_columns; }
    [[nodiscard]] constexpr std::size_t out_size() const noexcept { return out_rows() * out_columns() * conv.filters; }
    /// The maximum alone, of the outputs of the convolution.
    [[nodiscard]] constexpr pooling pool() const noexcept {
        return {.rows = conv.out_rows(),
                .columns = conv.out_columns(),
                .channels = conv.filters,
                .kernel_rows = window_rows,
                .kernel_columns = window_columns,
                .stride_rows = window_rows,
                .stride_columns = window_columns};
    }
    /// Few filters and windows of 2 x 2: see pooled_few_filters.hpp.
    template <class T>
    [[nodiscard]] constexpr bool by_few_filters() const noexcept {
        return window_rows == 2 && window_columns == 2 && detail::prefers_few_filters_forward<T>(conv);
    }
    /// Samples that one thread takes at once.
    [[nodiscard]] constexpr std::size_t samples(std::size_t batch) const noexcept {
        constexpr std::size_t target = 16384;  // numbers
        return std::clamp<std::size_t>(target / std::max<std::size_t>(conv.out_size(), 1), 1,
                                       std::max<std::size_t>(batch, 1));
    }
    friend constexpr bool operator==(const pooled_convolution&, const pooled_convolution&) = default;
};

namespace detail {

template <class T>
[[nodiscard]] constexpr std::size_t pooled_forward_share(const pooled_convolution& g, std::size_t batch) noexcept {
    return whole_lines<T>(g.samples(batch) * g.conv.out_size()) +
           whole_lines<T>(convolution_forward_scratch<T>(g.conv, g.samples(batch), {1}));
}

}  // namespace detail

/// Elements of scratch of pooled_forward for at most `batch` samples.
template <class T>
[[nodiscard]] constexpr std::size_t pooled_forward_scratch(const pooled_convolution& g, std::size_t batch,
                                                           parallel::team team) noexcept {
    if (g.by_few_filters<T>())
        return detail::pooled_few_filters<T>{{{g.conv}}}.scratch(static_cast<std::size_t>(team.threads));
    return static_cast<std::size_t>(team.threads) * detail::pooled_forward_share<T>(g, batch);
}

/// y = maximum of each window of x * w + bias: the bits of convolution_forward and of max_pool_forward. `which`
/// receives the winner's index in its window, or is null. Threads split the samples.
template <class T>
void pooled_forward(const pooled_convolution& g, std::size_t batch, const T* x, const T* w, const T* bias, T* y,
                    std::uint8_t* which, resources<T> use) noexcept {
    if (g.by_few_filters<T>()) return detail::pooled_few_filters_forward(g.conv, batch, x, w, bias, y, which, use);
    const std::size_t share = detail::pooled_forward_share<T>(g, batch);
    const std::size_t most = g.samples(batch);
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(batch, static_cast<std::size_t>(use.team.threads), thread);
        T* const between = use.scratch.data() + thread * share;
        const std::size_t begin = detail::whole_lines<T>(most * g.conv.out_size());
        for (std::size_t sample = mine.first; sample < mine.last; sample += most) {
            const std::size_t count = std::min(most, mine.last - sample);
            convolution_forward<T>(g.conv, count, x + sample * g.conv.in_size(), w, bias, between,
                                   {{1}, use.scratch.subspan(thread * share + begin, share - begin)});
            const std::size_t to = sample * g.out_size();
            max_pool_forward<T>(g.pool(), count, between, y + to, which ? which + to : nullptr, {1});
        }
    });
}

LOCKSTEP_TEMPLATE(pooled_forward<float>);

}  // namespace lockstep::kernels
