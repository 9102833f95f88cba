// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Division of one workspace among kernels: one variant of each, in the least time (the 0/1 programme of Oyama et al.
// 2018), solved exactly.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::planner {

/// One way to run a kernel.
struct variant {
    double seconds = 0;
    std::size_t scratch = 0;
};

/// One variant of each kernel.
struct workspace_division {
    std::vector<std::size_t> chosen;  ///< its number, for each kernel
    double seconds = 0;
    std::size_t scratch = 0;  ///< of all together
};

namespace detail {

/// The variant with the least seconds + price x scratch; of equal ones that with the least scratch.
[[nodiscard]] inline std::size_t cheapest(const std::vector<variant>& of, double price) {
    std::size_t best = 0;
    const auto cost = [&](const variant& one) {
        return std::pair{one.seconds + price * static_cast<double>(one.scratch), one.scratch};
    };
    for (std::size_t i = 1; i < of.size(); ++i)
        if (cost(of[i]) < cost(of[best])) best = i;
    return best;
}

[[nodiscard]] inline workspace_division at_price(std::span<const std::vector<variant>> kernels, double price) {
    workspace_division out;
    for (const auto& variants : kernels) {
        out.chosen.push_back(cheapest(variants, price));
        out.seconds += variants[out.chosen.back()].seconds;
        out.scratch += variants[out.chosen.back()].scratch;
    }
    return out;
}

/// A choice for the first kernels.
struct partial_division {
    double seconds = 0;
    std::size_t scratch = 0;
    std::size_t before = 0;  ///< its predecessor among those of one kernel less
    std::size_t chosen = 0;
};

}  // namespace detail

/// min sum of seconds, one variant for each kernel, sum of scratch at most `limit`. None where the least scratch is too
/// much. Kernel by kernel it keeps the partial sums for which no other has as little scratch and time, without those
/// that cannot get below the best division known even if scratch is bought at the price of the linear programme
/// (Lagrange's bound). Exact up to the rounding of the sums; seconds and scratch are not negative. Cost: partial sums x
/// variants; thousands for the layers of a network.
[[nodiscard]] inline std::optional<workspace_division> divide_workspace(std::span<const std::vector<variant>> kernels,
                                                                        std::size_t limit) {
    std::vector<double> prices{0};
    std::size_t least = 0;
    for (const auto& variants : kernels) {
        if (variants.empty()) return std::nullopt;
        std::size_t smallest = variants[0].scratch;
        for (const variant& a : variants) {
            smallest = std::min(smallest, a.scratch);
            for (const variant& b : variants)
                if (a.scratch < b.scratch && a.seconds > b.seconds)
                    prices.push_back((a.seconds - b.seconds) / static_cast<double>(b.scratch - a.scratch));
        }
        least += smallest;
    }
    if (least > limit) return std::nullopt;

    // The lowest price at which the cheapest variants fit. Above the highest one they are those with the least scratch.
    std::sort(prices.begin(), prices.end());
    prices.push_back(2 * prices.back() + 1);
    const double price = *std::partition_point(
        prices.begin(), prices.end() - 1, [&](double at) { return detail::at_price(kernels, at).scratch > limit; });
    workspace_division best = detail::at_price(kernels, price);
    if (best.scratch > limit) {  // rounding of the last price
        best = {};
        for (const auto& variants : kernels) {
            const auto smallest =
                std::min_element(variants.begin(), variants.end(), [](const variant& a, const variant& b) {
                    return std::pair{a.scratch, a.seconds} < std::pair{b.scratch, b.seconds};
                });
            best.chosen.push_back(static_cast<std::size_t>(smallest - variants.begin()));
            best.seconds += smallest->seconds;
            best.scratch += smallest->scratch;
        }
    }

    // What the kernels after the first k need at least: scratch, and seconds + price x scratch.
    std::vector<std::size_t> scratch_left(kernels.size() + 1);
    std::vector<double> cost_left(kernels.size() + 1);
    for (std::size_t k = kernels.size(); k-- > 0;) {
        std::size_t smallest = std::numeric_limits<std::size_t>::max();
        for (const variant& one : kernels[k]) smallest = std::min(smallest, one.scratch);
        const variant& cheap = kernels[k][detail::cheapest(kernels[k], price)];
        scratch_left[k] = scratch_left[k + 1] + smallest;
        cost_left[k] = cost_left[k + 1] + cheap.seconds + price * static_cast<double>(cheap.scratch);
    }

    std::vector<std::vector<detail::partial_division>> levels{{{}}};
    const double slack = 1e-9 * best.seconds;
    for (std::size_t k = 0; k < kernels.size(); ++k) {
        std::vector<detail::partial_division> next;
        for (std::size_t from = 0; from < levels[k].size(); ++from)
            for (std::size_t chosen = 0; chosen < kernels[k].size(); ++chosen) {
                const detail::partial_division sum{levels[k][from].seconds + kernels[k][chosen].seconds,
                                                   levels[k][from].scratch + kernels[k][chosen].scratch, from, chosen};
                if (sum.scratch + scratch_left[k + 1] > limit) continue;
                const double bound = sum.seconds + cost_left[k + 1] - price * static_cast<double>(limit - sum.scratch);
                if (bound <= best.seconds + slack) next.push_back(sum);
            }
        std::sort(next.begin(), next.end(), [](const auto& a, const auto& b) {
            return std::pair{a.scratch, a.seconds} < std::pair{b.scratch, b.seconds};
        });
        std::vector<detail::partial_division> kept;
        for (const auto& one : next)
            if (kept.empty() || one.seconds < kept.back().seconds) kept.push_back(one);
        levels.push_back(std::move(kept));
    }
    // More scratch is less time: the last one is the fastest.
    if (!levels.back().empty() && levels.back().back().seconds < best.seconds) {
        best = {std::vector<std::size_t>(kernels.size()), levels.back().back().seconds, levels.back().back().scratch};
        std::size_t at = levels.back().size() - 1;
        for (std::size_t k = kernels.size(); k-- > 0; at = levels[k + 1][at].before)
            best.chosen[k] = levels[k + 1][at].chosen;
    }
    return best;
}

}  // namespace lockstep::planner
