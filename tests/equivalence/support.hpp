// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the tests on several ranks share: one small network, and samples for it.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "equivalence/groups.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace support {

namespace ls = lockstep;

/// Every kind of layer once, 2,714 parameters.
inline constexpr auto net =
    ls::sequential{ls::input<12, 12, 1>,      ls::layers::conv<4, 3>{},  ls::layers::relu{},
                   ls::layers::max_pool<2>{}, ls::layers::flatten{},     ls::layers::dense<24>{},
                   ls::layers::relu{},        ls::layers::dropout{0.25}, ls::layers::dense<10>{}};
using sample = ls::tensor::shape<12, 12, 1>;
using label = ls::tensor::classes<10>;

/// Ten patterns under noise: sample i is a function of (seed, i).
template <class T = float>
struct samples {
    std::vector<T> x;
    std::vector<std::int32_t> y;

    explicit samples(std::size_t count, std::uint64_t seed = 7) : x(count * sample::size), y(count) {
        const ls::core::random_stream patterns{1, ls::core::purpose::user}, noise{seed, ls::core::purpose::user, 1};
        for (std::size_t i = 0; i < count; ++i) {
            y[i] = static_cast<std::int32_t>(noise.below(10, 1'000'000 + i));
            for (std::size_t p = 0; p < sample::size; ++p)
                x[i * sample::size + p] =
                    static_cast<T>(2 * patterns.uniform(static_cast<std::size_t>(y[i]) * sample::size + p) - 1) +
                    static_cast<T>(noise.uniform(i * sample::size + p)) - static_cast<T>(0.5);
        }
    }
    [[nodiscard]] auto set() const { return ls::data::in_memory<sample, label>(x, y); }

    /// Rows in the given order, for feeding by hand.
    struct part {
        std::vector<T> x;
        std::vector<std::int32_t> y;
    };
    [[nodiscard]] part rows(std::span<const std::uint64_t> which) const {
        part out;
        for (const auto row : which) {
            out.x.insert(out.x.end(), x.begin() + static_cast<std::ptrdiff_t>(row * sample::size),
                         x.begin() + static_cast<std::ptrdiff_t>((row + 1) * sample::size));
            out.y.push_back(y[row]);
        }
        return out;
    }
    [[nodiscard]] part rows(std::size_t first, std::size_t count) const {
        std::vector<std::uint64_t> which(count);
        for (std::size_t i = 0; i < count; ++i) which[i] = first + i;
        return rows(which);
    }
};

/// f on groups of 1, 2, 3, 4 and 8 ranks of a world of eight.
template <class F>
void on_1_2_3_4_8(F&& f) {
    on_groups({1, 3, 4}, f);
    on_groups({8}, f);
    on_groups({2}, f);
}

/// Keeps the loss of every step, on every rank.
struct losses {
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;  // they travel while this looks at the loss
    std::vector<double> values;
    void on_step(const ls::report::step_event& event) { values.push_back(event.loss); }
};

/// max |a - b| / max |b|.
template <class A, class B>
[[nodiscard]] double relative_error(const A& a, const B& b) {
    double error = 0, size = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        const double off = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        error = std::fmax(error, std::isnan(off) ? HUGE_VAL : off);
        size = std::fmax(size, std::fabs(static_cast<double>(b[i])));
    }
    return a.size() != b.size() ? HUGE_VAL : error == 0 ? 0 : error / size;
}

/// The largest relative_error of a parameter of the network: lists of all its weights, layer by layer.
template <class Network, class T>
[[nodiscard]] double largest_error(const std::vector<T>& a, const std::vector<T>& b) {
    double largest = a.size() == Network::parameters && b.size() == Network::parameters ? 0 : HUGE_VAL;
    std::size_t at = 0;
    if (largest == 0)
        ls::core::for_each_index<Network::size>([&](auto layer) {
            for (const auto& one : Network::template at<layer>::whole::parameters) {
                const std::size_t count = one.rows * one.columns;
                largest = std::fmax(largest,
                                    relative_error(std::span{a}.subspan(at, count), std::span{b}.subspan(at, count)));
                at += count;
            }
        });
    return largest;
}

}  // namespace support
