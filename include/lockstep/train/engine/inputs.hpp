// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The samples and labels of a step: read from a data set into the arena, or taken where the user's program has them.
// Checked before use.
// Tested by tests/equivalence/same_bits.cpp.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/tensor/container.hpp"

namespace lockstep::train {

/// The numbers that a program brings are those that the network computes in: they are used in place.
template <class Found, class T>
inline constexpr bool is_computed_in = std::is_same_v<Found, T>;

/// What may stand in y.
template <class Found, class Label>
inline constexpr bool is_label_number =
    tensor::is_classes<Label> ? tensor::is_class_number<Found> : std::is_arithmetic_v<Found>;

/// Room for `rows` samples. Every sample is checked to be finite and every class number to be in range: one look at
/// each number.
template <class T, tensor::Shape Input, tensor::Label Label>
class inputs {
    using label_element = tensor::label_element<Label, T>;
    static constexpr std::size_t per_label = tensor::label_size<Label>;

public:
    struct rows {
        const T* x = nullptr;
        const label_element* y = nullptr;
        std::size_t count = 0;
    };

    /// `spare`: room for a second minibatch, which is read ahead while the first one is in use. `targets`: the numbers
    /// that the loss takes, from and to. `brought`: the most rows that a program brings to a step.
    [[gnu::cold]] inputs(std::size_t capacity, bool spare, parallel::team team, tensor::arena& arena,
                         const std::array<double, 2>& targets, std::size_t brought)
        : capacity_{brought}, team_{team}, targets_{targets} {
        for (std::size_t i = 0; i < (spare ? 2 : 1); ++i)
            x_[i] = arena.reserve<T>(core::checked_product("numbers of samples", capacity, Input::size)),
            y_[i] = arena.reserve<label_element>(
                core::checked_product("numbers of labels", capacity, std::size_t{per_label}));
    }
    void bind(const tensor::arena& arena) noexcept { arena_ = &arena; }

    /// These samples of a data set, as they are.
    template <class Dataset>
    [[nodiscard]] rows read(const Dataset& set, std::span<const std::uint64_t> samples) {
        return read_with(set, samples, used_, [&](const auto& x, const auto& y) { set.read(samples, x, y); });
    }
    /// As they are in training. `ahead`: into the spare room, also by another thread than the one that calls the other
    /// members.
    template <class Dataset>
    [[nodiscard]] rows read(const Dataset& set, std::span<const std::uint64_t> samples, const data::reading& key,
                            bool ahead) {
        return read_with(set, samples, ahead ? 1 - used_ : used_, [&](const auto& x, const auto& y) {
            data::read_for_training<Dataset, T>(set, samples, x, y, key);
        });
    }
    /// From now on the spare room is the one in use, and the other way round. Not while another thread reads ahead.
    void swap() noexcept { used_ = 1 - used_; }

    /// Rows in containers of the user's program: in place where the elements have the right type, else converted.
    template <class X, class Y>
    [[nodiscard]] rows take(const X& x, const Y& y) {
        rows out = take_x(x);
        if (out.count > capacity_)
            core::fail(core::text("a rank brought ", out.count, " rows to a step that has room for ", capacity_),
                       "bring fewer, or raise the batch of the plan (it is the global one)");
        std::span<const std::size_t> label_extents;
        if constexpr (tensor::Shape<Label>) label_extents = Label::extents;
        const auto labels = tensor::view_samples(y, "y", label_extents);
        if (labels.size() != out.count * per_label)
            core::fail(core::text("x has ", out.count, " rows and y has ", labels.size(), " elements"),
                       core::text("pass ", per_label, " label elements for each row"));
        const auto who = [](std::size_t row) { return core::text("row ", row, " of this rank"); };
        static_assert(is_label_number<typename decltype(labels)::value_type, Label>,
                      "lockstep: class labels are whole numbers: pass std::vector<std::int32_t>, say, as y");
        if constexpr (is_label_number<typename decltype(labels)::value_type, Label>) {
            if constexpr (tensor::is_classes<Label>)
                for (std::size_t row = 0; row < labels.size(); ++row)
                    require_class(
                        std::in_range<std::int64_t>(labels[row]) ? static_cast<std::int64_t>(labels[row]) : -1, row,
                        who);
            out.y = in_place(labels, y_[used_]);
            check_y({out.y, labels.size()}, who);
        }
        return out;
    }
    template <class X>
    [[nodiscard]] rows take_x(const X& x) {
        const auto numbers = tensor::view_samples(x, "x", Input::extents);
        if (numbers.size() % Input::size != 0)
            core::fail(core::text("x has ", numbers.size(), " numbers, no multiple of the ", Input::size, " of one ",
                                  tensor::to_text<Input>(), " sample"),
                       "pass whole samples, one after the other");
        using found = typename decltype(numbers)::value_type;
        static_assert(is_computed_in<found, T>,
                      "lockstep: x has another element type than the network computes in; set .precision = "
                      "ls::real<double>{} or convert x");
        if constexpr (is_computed_in<found, T>) {
            check_x(numbers, [](std::size_t row) { return core::text("row ", row, " of this rank"); });
            return {numbers.data(), nullptr, numbers.size() / Input::size};
        } else {
            return {};
        }
    }

private:
    template <class Dataset, class Read>
    rows read_with(const Dataset& set, std::span<const std::uint64_t> samples, std::size_t room,
                   const Read& read) const {
        const std::span<T> x = (*arena_)[x_[room]].first(samples.size() * Input::size);
        const std::span<label_element> y = (*arena_)[y_[room]].first(samples.size() * per_label);
        // A rank may have no row of a short last minibatch: a set is not asked for nothing.
        if (!samples.empty()) read(tensor::batch<T, Input>{x.data(), samples.size()}, y);
        const auto who = [&](std::size_t row) {
            return core::text("sample ", samples[row], " of ", data::name_of(set));
        };
        check_x(x, who);
        check_y(y, who);
        return {x.data(), y.data(), samples.size()};
    }

    template <class From, class To>
    const To* in_place(std::span<const From> from, tensor::slice<To> copy) {
        if constexpr (std::is_same_v<From, To>) {
            return from.data();
        } else {
            const std::span<To> to = (*arena_)[copy].first(from.size());
            for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<To>(from[i]);
            return to.data();
        }
    }

    template <class Who>
    void check_x(std::span<const T> x, const Who& who) const {
        const std::size_t bad = kernels::first_non_finite(x, team_);
        if (bad != x.size())
            core::fail(
                core::text(who(bad / Input::size), " has the value ", x[bad], " at position ", bad % Input::size),
                "remove or repair the sample: one such number makes all weights useless");
    }
    template <class Who>
    void check_y(std::span<const label_element> y, const Who& who) const {
        if constexpr (tensor::is_classes<Label>) {
            for (std::size_t row = 0; row < y.size(); ++row) require_class(y[row], row, who);
        } else {
            const std::size_t bad = kernels::first_non_finite(y);
            if (bad != y.size())
                core::fail(core::text(who(bad / per_label), " is labelled with ", y[bad]),
                           "remove or repair the label");
            if (!std::isfinite(targets_[0]) && !std::isfinite(targets_[1])) return;
            for (std::size_t i = 0; i < y.size(); ++i)
                if (!(static_cast<double>(y[i]) >= targets_[0] && static_cast<double>(y[i]) <= targets_[1]))
                    core::fail(core::text(who(i / per_label), " has the target ", y[i], ", the loss takes ",
                                          targets_[0], " to ", targets_[1]),
                               "scale the targets, or choose another loss");
        }
    }
    template <class Who>
    static void require_class(std::int64_t found, std::size_t row, const Who& who) {
        if (found < 0 || static_cast<std::size_t>(found) >= Label::count)
            core::fail(
                core::text(who(row), " has the label ", found, ", allowed are 0 to ", Label::count - 1),
                tensor::label_remedy(found, Label::count, "correct the label, or give the network more outputs"));
    }

    std::size_t capacity_;
    parallel::team team_;
    std::array<double, 2> targets_;
    std::array<tensor::slice<T>, 2> x_;
    std::array<tensor::slice<label_element>, 2> y_;
    std::size_t used_ = 0;
    const tensor::arena* arena_ = nullptr;
};

}  // namespace lockstep::train
