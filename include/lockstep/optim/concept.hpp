// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What an optimizer and a learning-rate schedule must offer. An optimizer works element by element and keeps no state
// of its own.
// Tested by tests/unit/optim/update.cpp.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/member.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/tensor/slots.hpp"

namespace lockstep::optim {

/// Euclidean norms of a whole parameter tensor, all shards of it.
struct tensor_norms {
    double weights = 0;   ///< before the update
    double gradient = 0;  ///< or of what the norm rule of the optimizer returns, see HasNormRule
};

/// Which weights a pass has: some neighbours in a parameter of a layer, a matrix in row-major order. In a model
/// partition the parameter is that of this rank's shard.
struct tensor_place {
    std::size_t layer = 0;    ///< number in the network, as the summary of a plan counts
    std::size_t number = 0;   ///< of the parameter in the layer
    std::size_t rows = 0;     ///< of the parameter
    std::size_t columns = 0;  ///< the same; 1 row of them for a bias
    std::size_t offset = 0;   ///< of the first weight of the pass

    /// That of the weight so many numbers farther on.
    [[nodiscard]] constexpr tensor_place from(std::size_t first) const noexcept {
        auto out = *this;
        out.offset += first;
        return out;
    }
};

/// One update of some weights: all the arrays have one size, and element i of each belongs to weight i.
template <class T>
struct update_pass {
    std::span<T> weights;         ///< to be changed in place
    std::span<const T> gradient;  ///< already the mean over the minibatch
    tensor::slots<T> slots;       ///< slot_count of them, zero before step 0
    double rate = 0;              ///< of this step
    std::uint64_t step = 0;       ///< 0 for the first update
    bool decays = true;           ///< weight decay applies to these weights
    tensor_norms norms{};         ///< of the tensor that they are of, where the optimizer needs_norms
    tensor_place tensor{};        ///< which weights they are, where the optimizer needs_tensors

    /// The same update of weights first .. first + count - 1.
    [[nodiscard]] constexpr update_pass part(std::size_t first, std::size_t count) const noexcept {
        auto out = *this;
        out.weights = weights.subspan(first, count);
        out.gradient = gradient.subspan(first, count);
        out.slots = slots.part(first, count);
        out.tensor = tensor.from(first);
        return out;
    }
};

/// `update` is element-wise: the update of a part is the part of the update, in every bit, so an owner or a thread can
/// do its strip alone. `settings` is what distinguishes two optimizers of one type: it enters the fingerprint of the
/// recipe. Optional: `check()` throws core::error on values that make no sense; `rule(pass)`, see HasRule.
template <class O, class T = float>
concept Optimizer = std::copy_constructible<O> && requires(const O& optimizer, const update_pass<T>& pass) {
    { O::slot_count } -> std::convertible_to<std::size_t>;
    { O::name } -> std::convertible_to<std::string_view>;
    requires !core::slot_count_is_of_objects<O> && !core::name_is_of_objects<O>;
    { optimizer.settings() } -> std::convertible_to<std::string>;
    { optimizer.update(pass) }
    noexcept;
};

/// The optimizer says `static constexpr bool needs_norms = true`: each pass then has weights of one tensor and its
/// norms, and the first update of a step waits for the sums of all gradients.
template <class O>
inline constexpr bool needs_norms = false;
template <class O>
    requires requires {
        { O::needs_norms } -> std::convertible_to<bool>;
    }
inline constexpr bool needs_norms<O> = O::needs_norms;

/// The optimizer says `static constexpr bool needs_tensors = true`: each pass then has weights of one tensor, and says
/// which. For rates by layer, layers that stay as they are, and rules that know rows and columns.
template <class O>
inline constexpr bool needs_tensors = false;
template <class O>
    requires requires {
        { O::needs_tensors } -> std::convertible_to<bool>;
    }
inline constexpr bool needs_tensors<O> = O::needs_tensors;

/// The optimizer says `trains(tensor_place)`: false for tensors whose weights stay as they are. Their gradients are no
/// part of the norm that clipping looks at. It needs_tensors.
template <class O>
inline constexpr bool has_frozen_tensors = requires(const O& optimizer, const tensor_place& of) {
    { optimizer.trains(of) } -> std::same_as<bool>;
};

/// Whether an optimizer derives from one of the library and has an update() of its own: the rule that it inherits does
/// something else. Optimizers with a rule say `using rule_of = ` themselves.
template <class O, class T>
inline constexpr bool replaces_rule = false;
template <class O, class T>
    requires(!std::is_same_v<typename O::rule_of, O>)
inline constexpr bool replaces_rule<O, T> = [] {
    const auto replaces = []<class Own>(std::type_identity<Own>) {
        using base = typename O::rule_of;
        if constexpr (requires { &base::template update<T>; })
            return !std::is_same_v<typename core::class_of_member<decltype(&base::template update<T>)>::type,
                                   typename core::class_of_member<Own>::type>;
        else if constexpr (requires { &base::update; })
            return !std::is_same_v<typename core::class_of_member<decltype(&base::update)>::type,
                                   typename core::class_of_member<Own>::type>;
        else
            return true;
    };
    if constexpr (requires { &O::template update<T>; })
        return replaces(std::type_identity<decltype(&O::template update<T>)>{});
    else if constexpr (requires { &O::update; })
        return replaces(std::type_identity<decltype(&O::update)>{});
    else
        return true;  // several of its own
}();

/// The optimizer can name what it does to one vector: `rule(pass)` returns a callable (w&, g, slots&...) on
/// simd::batch<T>. A trainer then calls the rule, not update(): both do the same. A decorator puts its own work before
/// that callable, and the whole stays one loop: each array is read once and written once. An optimizer that derives
/// from one of the library and has an update() of its own has none.
template <class O, class T = float>
concept HasRule = Optimizer<O, T> && !replaces_rule<O, T> && requires(const O& optimizer, const update_pass<T>& pass) {
    requires noexcept(optimizer.rule(pass));
};

/// An optimizer that needs norms may have them of something else than the gradient, such as its own step:
/// `norm_rule(pass)` returns a callable (w, g, slots...) on simd::batch<T>, element-wise, that changes none of them.
/// Its norm comes in pass.norms.gradient. The pass has `step`, `decays` and `tensor`, but no arrays, norms and rate
/// yet. A plan with clipping is refused: the norms would be those of steps along gradients that are not clipped.
template <class O, class T = float>
concept HasNormRule = Optimizer<O, T> && needs_norms<O> && !replaces_rule<O, T> &&
                      requires(const O& optimizer, const update_pass<T>& pass) {
    requires noexcept(optimizer.norm_rule(pass));
};

/// Whether what an optimizer has of both may be called in the middle of an update.
template <class O, class T>
inline constexpr bool rules_are_quiet =
    !Optimizer<O, T> ||
    ((
         !requires(const O& optimizer, const update_pass<T>& pass) { optimizer.rule(pass); } ||
         requires(const O& optimizer, const update_pass<T>& pass) { requires noexcept(optimizer.rule(pass)); }) &&
     (
         !requires(const O& optimizer, const update_pass<T>& pass) { optimizer.norm_rule(pass); } ||
         requires(const O& optimizer, const update_pass<T>& pass) { requires noexcept(optimizer.norm_rule(pass)); }));

/// Applies a rule to every element: reads the gradient and reads and writes the weights and `SlotCount` slots, once
/// each.
template <std::size_t SlotCount, class T, class Rule>
void apply(const update_pass<T>& pass, const Rule& rule) noexcept {
    [&]<std::size_t... Slot>(std::index_sequence<Slot...>) {
        simd::map(pass.weights.size(), rule, pass.weights.data(), pass.gradient.data(), pass.slots[Slot].data()...);
    }
    (std::make_index_sequence<SlotCount>{});
}

/// The optimizer says where to look for a gradient, weight or slot that is not finite: `non_finite_shows_in()` returns
/// an array of slots. Any of them that is not finite leaves the new weight or one of these slots not finite, whatever
/// the rate. Without it all arrays are looked at.
template <class O>
concept ShowsNonFinite = requires {
    { O::non_finite_shows_in()[0] } -> std::convertible_to<std::size_t>;
};

/// The same as apply(), and whether all gradients, new weights and new slots are finite: found in registers, without a
/// further pass.
template <class Optimizer, class T, class Rule>
[[nodiscard]] bool apply_checked(const update_pass<T>& pass, const Rule& rule) noexcept {
    using vector = simd::batch<T>;
    static constexpr auto shown = [] {
        if constexpr (ShowsNonFinite<Optimizer>) {
            return Optimizer::non_finite_shows_in();
        } else {
            std::array<std::size_t, Optimizer::slot_count> all{};
            for (std::size_t slot = 0; slot < all.size(); ++slot) all[slot] = slot;
            return all;
        }
    }();
    // Zero times a finite number has no bit but the sign; times others it is NaN. The bits of all products are
    // collected.
    const vector zero(T{0});
    const auto product = [&](const vector& w, const vector& g, const auto& slot) {
        vector out = w * zero;
        if constexpr (!ShowsNonFinite<Optimizer>) out = simd::fma(g, zero, out);
        for (const std::size_t one : shown) out = simd::fma(slot(one), zero, out);
        return out;
    };
    const std::size_t n = pass.weights.size(), rest = n % simd::width<T>, vectors = n - rest;
    return [&]<std::size_t... Slot>(std::index_sequence<Slot...>) {
        const auto update = rule;  // a copy in registers
        vector found(T{0});
        [&](T* weights, const T* gradient, auto*... slot) {
            for (std::size_t i = 0; i < vectors; i += simd::width<T>) {
                vector w = simd::load(weights + i);
                const vector g = simd::load(gradient + i);
                std::array<vector, sizeof...(Slot)> values{simd::load(slot + i)...};
                update(w, g, values[Slot]...);
                simd::store(weights + i, w);
                (simd::store(slot + i, values[Slot]), ...);
                found = found | product(w, g, [&](std::size_t one) { return values[one]; });
            }
        }(pass.weights.data(), pass.gradient.data(), pass.slots[Slot].data()...);
        if (rest > 0) {
            const auto part = pass.part(vectors, rest);
            apply<sizeof...(Slot)>(part, rule);
            const auto first = [&](const auto& values) { return simd::load_first(values.data(), rest); };
            found = found | product(first(part.weights), first(part.gradient),
                                    [&](std::size_t slot) { return first(part.slots[slot]); });
        }
        return all(found == zero);
    }
    (std::make_index_sequence<Optimizer::slot_count>{});
}

/// The update of an optimizer, and whether all gradients, new weights and new slots are finite. Those of an optimizer
/// without a rule are looked at while they lie in the second-level cache.
template <class Optimizer, class T>
[[nodiscard]] bool update_checked(const Optimizer& optimizer, const update_pass<T>& pass) noexcept {
    if constexpr (HasRule<Optimizer, T>) {
        return apply_checked<Optimizer>(pass, optimizer.rule(pass));
    } else {
        constexpr std::size_t block = 16384;
        bool finite = true;
        for (std::size_t at = 0; at < pass.weights.size(); at += block) {
            const auto part = pass.part(at, std::min(block, pass.weights.size() - at));
            optimizer.update(part);
            const auto look = [&](std::span<const T> some) {
                finite = finite && kernels::first_non_finite(some) == some.size();
            };
            look(part.gradient);
            look(part.weights);
            if constexpr (ShowsNonFinite<Optimizer>)
                for (const std::size_t slot : Optimizer::non_finite_shows_in()) look(part.slots[slot]);
            else
                for (std::size_t slot = 0; slot < Optimizer::slot_count; ++slot) look(part.slots[slot]);
        }
        return finite;
    }
}

/// What one worker proposes for one tensor of its own: a piece of the network that belongs to no rank and no bucket.
template <class T>
struct proposal_pass {
    std::span<T> values;   ///< the worker's part of the gradient (parts of all workers add up to the mean), to be
                           ///< replaced by what travels
    tensor::slots<T> own;  ///< worker_slot_count of them, of this worker, zero before step 0
    tensor::slots<const T> shared;  ///< slot_count of them, as the last update has left them: equal on all ranks
    std::size_t workers = 1;        ///< in all
    double share = 1;               ///< of this worker in the rows of the step: values are this times its local mean
    std::uint64_t step = 0;         ///< 0 for the first update
    bool is_dense = false;          ///< all of the values travel as they are
    parallel::team team{};          ///< the threads of this rank
};

/// An optimizer may split a step in two, around the exchange: propose and commit. `propose(pass)` replaces the gradient
/// of each worker by what travels in its place, before it is compressed; ranks that share a worker have added its lanes
/// exactly before that. `update` (and `rule`) then is the commit: its gradient is the sum of what the workers' messages
/// decode to. `worker_slot_count` slots belong to (worker, tensor), and are saved and resumed like residuals. A number
/// that is not finite must not vanish in a proposal. Optional: HasDenseSteps, SeesMessages. Only reducers that
/// replicate the slots of update() serve such an optimizer: a plan without a compressor is refused.
template <class O, class T = float>
concept Proposes = Optimizer<O, T> && requires(const O& optimizer, const proposal_pass<T>& pass) {
    { O::worker_slot_count } -> std::convertible_to<std::size_t>;
    requires noexcept(optimizer.propose(pass));
};

/// `is_dense_step(step)`: in such a step all proposals are added as they are, over the tree of workers, and the
/// compressor rests. For warm-ups that have to be exact.
template <class O, class T = float>
concept HasDenseSteps = Proposes<O, T> && requires(const O& optimizer, std::uint64_t step) {
    { optimizer.is_dense_step(step) } -> std::convertible_to<bool>;
};

/// `sent(pass)`, noexcept: the messages of a worker are written, and pass.values is what they decode to, zero
/// elsewhere. Not called for tensors that travel as they are, or of which a message has all numbers. Needs a compressor
/// whose messages are gathered, or added as streams that nothing cuts.
template <class O, class T = float>
concept SeesMessages = Proposes<O, T> && requires(const O& optimizer, const proposal_pass<T>& pass) {
    requires noexcept(optimizer.sent(pass));
};

/// Whether its members propose, sent and is_dense_step are those that are called: one that is not const, say, would be
/// passed over in silence.
template <class O, class T>
inline constexpr bool keeps_words = true;
template <class O, class T>
    requires requires(O& optimizer, const proposal_pass<T>& pass) { optimizer.propose(pass); }
inline constexpr bool keeps_words<O, T> = [] {
    constexpr bool has_sent = requires(O & optimizer, const proposal_pass<T>& pass) { optimizer.sent(pass); };
    constexpr bool has_dense_steps = requires(O & optimizer, std::uint64_t step) { optimizer.is_dense_step(step); };
    return Proposes<O, T> && (SeesMessages<O, T> || !has_sent) && (HasDenseSteps<O, T> || !has_dense_steps);
}();

/// The learning rate as a pure function of the step, counted from 0. A lambda is one; `name` and `settings` are
/// optional.
template <class S>
concept LrSchedule = std::copy_constructible<S> && requires(const S& schedule, std::uint64_t step) {
    { schedule(step) } -> std::convertible_to<double>;
};

}  // namespace lockstep::optim
