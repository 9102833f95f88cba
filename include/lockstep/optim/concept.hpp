// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What an optimizer and a learning-rate schedule must offer. An optimizer works element by element and keeps no state of its own.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/simd/map.hpp"
#include "lockstep/tensor/slots.hpp"

namespace lockstep::optim {

/// One update of some weights: all the arrays have one size, and element i of each belongs to weight i.
template <class T>
struct update_pass {
    std::span<T> weights;
    std::span<const T> gradient;  ///< already the mean over the minibatch
    tensor::slots<T> slots;       ///< slot_count of them, zero before step 0
    double rate = 0;              ///< of this step
    std::uint64_t step = 0;       ///< 0 for the first update
    bool decays = true;           ///< weight decay applies to these weights

    /// The same update of weights first .. first + count - 1.
    [[nodiscard]] constexpr update_pass part(std::size_t first, std::size_t count) const noexcept {
        auto out = *this;
        out.weights = weights.subspan(first, count);
        out.gradient = gradient.subspan(first, count);
        out.slots = slots.part(first, count);
        return out;
    }
};

/// `update` is element-wise: the update of a part is the part of the update, in every bit, so an owner or a thread can do its strip alone.
/// `settings` is what distinguishes two optimizers of one type: it enters the fingerprint of the recipe.
/// Optional: `check()` throws core::error on values that make no sense; `rule(pass)`, see HasRule.
template <class O, class T = float>
concept Optimizer = std::copy_constructible<O> && requires(const O& optimizer, const update_pass<T>& pass) {
    { O::slot_count } -> std::convertible_to<std::size_t>;
    { O::name } -> std::convertible_to<std::string_view>;
    { optimizer.settings() } -> std::convertible_to<std::string>;
    { optimizer.update(pass) }
    noexcept;
};

/// The optimizer can name what it does to one vector: `rule(pass)` returns a callable (w&, g, slots&...) on simd::batch<T>.
/// A decorator puts its own work in front of that callable, and the whole stays one loop: each array is read once and written once.
template <class O, class T = float>
concept HasRule = Optimizer<O, T> && requires(const O& optimizer, const update_pass<T>& pass) {
    optimizer.rule(pass);
};

/// Applies a rule to every element: reads the gradient and reads and writes the weights and `SlotCount` slots, once each.
template <std::size_t SlotCount, class T, class Rule>
void apply(const update_pass<T>& pass, const Rule& rule) noexcept {
    [&]<std::size_t... Slot>(std::index_sequence<Slot...>) {
        simd::map(pass.weights.size(), rule, pass.weights.data(), pass.gradient.data(), pass.slots[Slot].data()...);
    }
    (std::make_index_sequence<SlotCount>{});
}

/// The learning rate as a pure function of the step, counted from 0. A lambda is one; `name` and `settings` are optional.
template <class S>
concept LrSchedule = std::copy_constructible<S> && requires(const S& schedule, std::uint64_t step) {
    { schedule(step) } -> std::convertible_to<double>;
};

}  // namespace lockstep::optim
