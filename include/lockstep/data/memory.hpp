// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Samples that already lie in the program's memory, read in place; a model of Dataset.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/tensor/container.hpp"

namespace lockstep::data {

/// What becomes a number of the network where it is read: also a std::byte.
template <class T>
inline constexpr bool is_sample_number = requires(const T& number) {
    static_cast<float>(number);
}
|| requires(const T& number) { static_cast<double>(number); };
/// A regression is labelled with any number.
template <class L, class Label>
inline constexpr bool can_label = tensor::is_classes<Label> ? tensor::is_class_number<L> : is_sample_number<L>;

/// Whether a data set in memory has such elements; with a message where not.
template <class Label, class T, class L>
[[nodiscard]] consteval bool check_elements() {
    static_assert(is_sample_number<T>,
                  "lockstep: samples in memory are numbers, one after the other: copy a vector of vectors into one "
                  "vector");
    static_assert(can_label<L, Label> || !tensor::is_classes<Label>,
                  "lockstep: class labels are whole numbers: pass std::vector<std::int32_t>, say, as y");
    static_assert(can_label<L, Label> || tensor::is_classes<Label>,
                  "lockstep: labels in memory are numbers, one after the other: copy a vector of vectors into one "
                  "vector");
    return is_sample_number<T> && can_label<L, Label>;
}

/// A temporary would be gone before the first read.
template <class Container>
inline constexpr bool outlives_the_call = std::is_lvalue_reference_v<Container>;
template <class T, std::size_t Extent>
inline constexpr bool outlives_the_call<std::span<T, Extent>> = true;

/// Views of contiguous samples (x: size() * Sample::size numbers) and their labels (y: size() * label_size numbers, of
/// any number type). Owns and copies nothing: the memory must outlive the data set, and what the program writes there
/// later is what is read. Throws core::error at construction for sizes that do not fit together and for class numbers
/// out of range, and in read() for a class number that is beyond std::int32_t by then.
template <tensor::Shape Sample, tensor::Label Label, class T = float, class L = tensor::label_element<Label, T>>
class memory {
    static constexpr bool is_sound = check_elements<Label, T, L>();

public:
    using sample = Sample;
    using label = Label;

    /// Refuses temporary containers, which a span would take.
    template <class X, class Y>
        requires(!outlives_the_call<X> || !outlives_the_call<Y>)
    memory(X&&, Y&&) {
        static_assert(
            outlives_the_call<X> && outlives_the_call<Y>,
            "lockstep: a data set in memory views its containers: give the temporary a name that lives as long");
    }
    memory(std::span<const T> x, std::span<const L> y) : x_{x}, y_{y} {
        if (x.size() % Sample::size != 0)
            core::fail(core::text("x has ", x.size(), " numbers, which is no multiple of the ", Sample::size,
                                  " of one ", tensor::to_text<Sample>(), " sample"),
                       "pass whole samples, one after the other");
        if (y.size() != size() * per_label)
            core::fail(core::text("x has ", size(), " samples of ", tensor::to_text<Sample>(), ", y has ", y.size(),
                                  " label elements, expected ", size() * per_label),
                       core::text("pass ", per_label, per_label == 1 ? " label element" : " label elements",
                                  " for each sample"));
        if constexpr (tensor::is_classes<Label> && is_sound)
            for (std::size_t i = 0; i < y.size(); ++i)
                if (std::cmp_less(y[i], 0) || std::cmp_greater_equal(y[i], Label::count)) fail_label(i);
    }

    [[nodiscard]] std::size_t size() const noexcept { return x_.size() / Sample::size; }
    [[nodiscard]] std::string name() const {
        return core::text("data in memory (", size(), " samples of ", tensor::to_text<Sample>(), ")");
    }

    template <class U>
    void read(std::span<const std::uint64_t> rows, tensor::batch<U, sample> x,
              std::span<tensor::label_element<label, U>> y) const {
        require_readable(*this, rows, x, y);
        const auto copy = []<class To>(const auto* from, To* to, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
        };
        for (std::size_t i = 0; i < rows.size(); ++i) {
            copy(x_.data() + rows[i] * Sample::size, x.data + i * Sample::size, Sample::size);
            if constexpr (tensor::is_classes<Label> && is_sound)
                y[i] = class_of(rows[i]);
            else
                copy(y_.data() + rows[i] * per_label, y.data() + i * per_label, per_label);
        }
    }

private:
    /// The program may have written another number there. One that no class has is refused by who reads it; here one
    /// that would wrap.
    [[nodiscard]] std::int32_t class_of(std::size_t i) const {
        if (!std::in_range<std::int32_t>(y_[i])) [[unlikely]]
            fail_label(i);
        return static_cast<std::int32_t>(y_[i]);
    }
    [[noreturn, gnu::cold]] void fail_label(std::size_t i) const {
        core::fail(core::text("label ", i, " in memory is ", +y_[i], ", allowed are 0 to ", Label::count - 1),
                   tensor::label_remedy(y_[i], Label::count, "declare more classes, or correct the labels"));
    }

    static constexpr std::size_t per_label = tensor::label_size<Label>;
    std::span<const T> x_;
    std::span<const L> y_;
};

/// A data set over any two containers with data() and size(): std::vector, std::span, xt::xtensor, xt::xarray,
/// boost::multi_array, matrices of Eigen, Kokkos::View. One that tells its extents is checked: x must be n x Sample and
/// y must be n (classes) or n x Label, extents of 1 aside, both in row-major order (tensor::view_samples).
template <tensor::Shape Sample, tensor::Label Label, class X, class Y>
[[nodiscard]] auto in_memory(X&& x, Y&& y) {
    static_assert(outlives_the_call<X> && outlives_the_call<Y>,
                  "lockstep: a data set in memory views its containers: give the temporary a name that lives as long");
    if constexpr (tensor::check_containers<std::remove_cvref_t<X>, std::remove_cvref_t<Y>>()) {
        std::span<const std::size_t> label_extents;
        if constexpr (tensor::Shape<Label>) label_extents = Label::extents;
        const auto xs = tensor::view_samples(x, "x", Sample::extents);
        const auto ys = tensor::view_samples(y, "y", label_extents);
        using T = typename decltype(xs)::value_type;
        using L = typename decltype(ys)::value_type;
        if constexpr (check_elements<Label, T, L>())
            return memory<Sample, Label, T, L>{xs, ys};
        else
            return memory<Sample, Label>{{}, {}};
    } else {
        return memory<Sample, Label>{{}, {}};
    }
}

}  // namespace lockstep::data
