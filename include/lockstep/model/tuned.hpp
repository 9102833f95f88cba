// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// tuned(net): the same network, whose convolutions take their algorithms from a file that the plan names.

#include <cstddef>
#include <utility>

#include "lockstep/core/member.hpp"
#include "lockstep/layers/tuned_conv.hpp"
#include "lockstep/model/combine.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep::model {

namespace detail {

/// A layer that takes a rule, by the rule layers::tuned; any other as it is.
template <class Spec>
struct with_tuned_rule {
    static constexpr auto of(const Spec& spec) {
        // Of a spec that derives from conv the rule would be that of another layer.
        if constexpr (requires { spec.template with_rule<layers::tuned>(); }) {
            if constexpr (core::is_inherited<Spec, decltype(&Spec::template with_rule<layers::tuned>)>)
                return spec;
            else
                return spec.template with_rule<layers::tuned>();
        } else {
            return spec;
        }
    }
};
template <class Spec>
using tuned_type = decltype(with_tuned_rule<Spec>::of(std::declval<const Spec&>()));

/// make(the specs one by one).
template <class... Specs, class Make>
constexpr auto rebuild(const items<Specs...>& from, Make&& make) {
    return [&]<std::size_t... Index>(std::index_sequence<Index...>) {
        return make(with_tuned_rule<Specs>::of(core::get<Index>(from.specs))...);
    }
    (std::index_sequence_for<Specs...>{});
}

/// Branches hold their items one after the other, all in the same way.
template <template <class...> class Branch, class... Specs>
struct with_tuned_items {
    static constexpr auto of(const Branch<Specs...>& branch) {
        return rebuild(branch, [](const auto&... specs) { return Branch<tuned_type<Specs>...>{specs...}; });
    }
};
template <class First, class... Specs>
struct with_tuned_rule<path<First, Specs...>> : with_tuned_items<path, First, Specs...> {};
template <class... Specs>
struct with_tuned_rule<residual<Specs...>> : with_tuned_items<residual, Specs...> {};
template <class... Specs>
struct with_tuned_rule<add<Specs...>> : with_tuned_items<add, Specs...> {};
template <class... Specs>
struct with_tuned_rule<concatenate<Specs...>> : with_tuned_items<concatenate, Specs...> {};
template <class... Specs>
struct with_tuned_rule<recompute<Specs...>> : with_tuned_items<recompute, Specs...> {};
template <class Join, class... Paths>
struct with_tuned_rule<join<Join, Paths...>> {
    static constexpr auto of(const join<Join, Paths...>& branch) {
        return rebuild(branch, [&](const auto&... paths) {
            return join<Join, tuned_type<Paths>...>{branch.last, paths...};
        });
    }
};

}  // namespace detail

/// The network with the rule layers::tuned for every `conv` without dilation and groups, in branches too; other layers,
/// and specs that derive from one, keep their algorithms.
template <class Input, class... Specs>
[[nodiscard]] constexpr auto tuned(const sequential<Input, Specs...>& net) {
    return detail::rebuild(net, [](const auto&... specs) {
        return sequential<Input, detail::tuned_type<Specs>...>{Input{}, specs...};
    });
}

}  // namespace lockstep::model

namespace lockstep {
using model::tuned;
}  // namespace lockstep
