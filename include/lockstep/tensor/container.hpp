// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The user's containers of samples as spans: what shape and strides they must have is checked here and nowhere else.

#include <concepts>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::tensor {

namespace detail {

/// Extents of 1 carry no information: 100x28x28 holds samples of 28x28x1.
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
/// size(). One that has shape() must be n x `sample`, extents of 1 aside, and its strides() those of row-major order;
/// core::error otherwise. `which` names it in messages.
template <class Container>
[[nodiscard]] auto view_samples(const Container& all, std::string_view which, std::span<const std::size_t> sample) {
    std::string wanted = "n";
    for (const std::size_t extent : sample) wanted += core::text("x", extent);
    if constexpr (requires { all.shape().begin(); }) {
        std::string found;
        for (const auto extent : all.shape()) found += core::text(found.empty() ? "" : "x", extent);
        if (!detail::same_but_for_ones(all.shape(), sample))
            core::fail(core::text(which, " has the shape ", found, ", expected ", wanted),
                       "reshape it, or declare another shape of the samples");
        if constexpr (requires { all.strides().begin(); }) {
            bool contiguous = true;
            std::size_t step = 1;
            for (std::size_t d = all.shape().size(); d-- > 0; step *= static_cast<std::size_t>(all.shape()[d]))
                contiguous = contiguous && (all.shape()[d] <= 1 || std::cmp_equal(all.strides()[d], step));
            if (!contiguous)
                core::fail(core::text(which, " (shape ", found, ") is not contiguous in row-major order"),
                           "copy it into a row-major container first");
        }
    }
    std::size_t offset = 0;
    if constexpr (requires { all.data_offset(); }) offset = static_cast<std::size_t>(all.data_offset());
    using value = std::remove_cvref_t<decltype(*all.data())>;
    return std::span<const value>{all.data() + offset, static_cast<std::size_t>(all.size())};
}

}  // namespace lockstep::tensor
