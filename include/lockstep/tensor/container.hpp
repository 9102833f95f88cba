// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The user's containers of samples as spans: what shape and strides they must have is checked here and nowhere else.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::tensor {

namespace detail {

template <class Extents>
[[nodiscard]] bool same_but_for_ones(const Extents& found, std::span<const std::size_t> sample) {
    auto at = found.begin();
    if (at == found.end()) return false;
    ++at;
    std::size_t d = 0;
    for (; at != found.end(); ++at) {
        if (*at == 1) continue;
        while (d < sample.size() && sample[d] == 1) ++d;
        if (d == sample.size() || !std::cmp_equal(*at, sample[d])) return false;
        ++d;
    }
    while (d < sample.size() && sample[d] == 1) ++d;
    return d == sample.size();
}

template <class C>
concept counts_dimensions = requires(const C& all) {
    all.num_dimensions();
}
|| requires(const C& all) { all.shape().size(), all.strides().size(); };
template <class C>  // xtensor, Boost.MultiArray
concept has_strides = counts_dimensions<C> && requires(const C& all) {
    all.shape()[0], all.strides()[0];
};
template <class C>  // Kokkos
concept has_extents = requires(const C& all) {
    all.rank(), all.extent(0U), all.stride(0U);
};
template <class C>  // Eigen
concept is_matrix = requires(const C& all) {
    all.rows(), all.cols(), all.rowStride(), all.colStride();
};
template <class C>  // Eigen's tensors
concept is_dense_tensor = requires(const C& all) {
    all.rank(), all.dimensions()[0], C::Layout;
};

/// What a container says of its shape and of its order in memory.
struct layout {
    std::array<std::size_t, 16> extents{};
    std::size_t rank = 0;
    bool is_row_major = true;

    template <class Extent, class Stride>
    layout(std::size_t dimensions, const Extent& extent, const Stride& stride) : rank{dimensions} {
        if (rank > extents.size())
            core::fail(core::text("a container of samples has ", rank, " dimensions"),
                       core::text("reshape it to at most ", extents.size()));
        std::size_t step = 1;
        for (std::size_t d = rank; d-- > 0; step *= extents[d]) {
            extents[d] = static_cast<std::size_t>(extent(d));
            is_row_major = is_row_major && (extents[d] <= 1 || step == 0 || std::cmp_equal(stride(d), step));
        }
    }
    /// Without strides: dense, in this order.
    template <class Extent>
    layout(std::size_t dimensions, const Extent& extent, bool by_rows)
        : layout(dimensions, extent, [](std::size_t) { return 0; }) {
        std::size_t long_ones = 0;
        for (const std::size_t one : extents) long_ones += one > 1 ? 1 : 0;
        is_row_major = by_rows || long_ones <= 1 || std::ranges::count(std::span{extents}.first(rank), 0U) > 0;
    }

    [[nodiscard]] std::string text() const {
        std::string out;
        for (std::size_t d = 0; d < rank; ++d) out += core::text(d == 0 ? "" : "x", extents[d]);
        return out;
    }
};

template <class C>
[[nodiscard]] auto layout_of(const C& all) {
    if constexpr (is_matrix<C>) {
        return layout{2, [&](std::size_t d) { return d == 0 ? all.rows() : all.cols(); },
                      [&](std::size_t d) { return d == 0 ? all.rowStride() : all.colStride(); }};
    } else if constexpr (has_extents<C>) {
        return layout{static_cast<std::size_t>(all.rank()), [&](std::size_t d) { return all.extent(d); },
                      [&](std::size_t d) { return all.stride(d); }};
    } else if constexpr (has_strides<C>) {
        std::size_t rank = 0;
        if constexpr (requires { all.num_dimensions(); })
            rank = all.num_dimensions();
        else
            rank = all.shape().size();
        return layout{rank, [&](std::size_t d) { return all.shape()[d]; },
                      [&](std::size_t d) { return all.strides()[d]; }};
    } else if constexpr (is_dense_tensor<C>) {
        return layout{static_cast<std::size_t>(all.rank()), [&](std::size_t d) { return all.dimensions()[d]; },
                      static_cast<int>(C::Layout) == 1};
    } else if constexpr (requires { all.shape().begin(); }) {
        const auto& shape = all.shape();
        return layout{static_cast<std::size_t>(std::ranges::distance(shape)),
                      [&](std::size_t d) { return *std::ranges::next(shape.begin(), static_cast<std::ptrdiff_t>(d)); },
                      true};
    }
}

/// A vector of Eigen is a list of numbers; a matrix has the numbers of a sample in each row; of other containers,
/// extents of 1 carry no information: 100x28x28 holds samples of 28x28x1.
template <class C>
[[nodiscard]] bool fits(const layout& found, std::span<const std::size_t> sample) {
    if constexpr (is_matrix<C>) {
        if constexpr (requires { C::IsVectorAtCompileTime; })
            if (C::IsVectorAtCompileTime) return true;
        return found.extents[0] == 0 ||
               found.extents[1] == std::accumulate(sample.begin(), sample.end(), std::size_t{1}, std::multiplies{});
    } else {
        return same_but_for_ones(std::span{found.extents}.first(found.rank), sample);
    }
}

/// Boost.MultiArray counts its rows in size().
template <class C>
[[nodiscard]] std::size_t count_elements(const C& all) {
    if constexpr (requires { all.num_elements(); })
        return static_cast<std::size_t>(all.num_elements());
    else
        return static_cast<std::size_t>(all.size());
}

}  // namespace detail

/// What can be viewed: a std::vector<bool> and a lazy expression have no numbers in memory.
template <class Container>
inline constexpr bool is_container = requires(const Container& all) {
    requires std::contiguous_iterator<decltype(all.data())>;
    { all.size() } -> std::convertible_to<std::size_t>;
};

/// The same, with a message where not.
template <class... Containers>
[[nodiscard]] consteval bool check_containers() {
    static_assert((is_container<Containers> && ...),
                  "lockstep: a container has data(), a pointer to its numbers, and size(); copy a vector<bool> or an "
                  "xtensor expression first");
    return (is_container<Containers> && ...);
}

/// The numbers of a container as a span: std::vector, std::span, xt::xtensor, xt::xarray, or any with data() and
/// size(). One that tells its extents (xtensor, boost::multi_array, Kokkos::View) must be n x `sample`, extents of 1
/// aside, and in row-major order; a matrix of Eigen has n rows, each the numbers of a sample one after the other:
/// Eigen::Matrix<.., Eigen::RowMajor>. core::error otherwise. `which` names it in messages.
template <class Container>
[[nodiscard]] auto view_samples(const Container& all, std::string_view which, std::span<const std::size_t> sample) {
    if constexpr (!std::is_void_v<decltype(detail::layout_of(all))>) {
        const detail::layout found = detail::layout_of(all);
        constexpr bool is_matrix = detail::is_matrix<Container>;
        if (!detail::fits<Container>(found, sample)) {
            std::string wanted = "n";
            for (const std::size_t extent : sample) wanted += core::text("x", extent);
            core::fail(core::text(which, " has the shape ", found.text(), ", expected ", wanted),
                       is_matrix ? "pass a matrix with a row for each sample, in row-major order; the transpose() of a "
                                   "column-major one with a column for each is one"
                                 : "reshape it, or declare another shape of the samples");
        }
        if (!found.is_row_major)
            core::fail(core::text(which, " (shape ", found.text(), ") is not contiguous in row-major order"),
                       is_matrix ? "declare it with Eigen::RowMajor, or copy it into such a matrix first"
                                 : "copy it into a row-major container first");
    }
    std::size_t offset = 0;
    if constexpr (requires { all.data_offset(); }) offset = static_cast<std::size_t>(all.data_offset());
    using value = std::remove_cvref_t<decltype(*all.data())>;
    return std::span<const value>{all.data() + offset, detail::count_elements(all)};
}

}  // namespace lockstep::tensor
