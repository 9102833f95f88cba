// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The two-dimensional convolution layer. Models LayerSpec.

#include <cstddef>
#include <type_traits>

#include "lockstep/kernels/convolution/algorithm.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/conv_layer.hpp"
#include "lockstep/layers/conv_options.hpp"
#include "lockstep/layers/depthwise_layer.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layers {

/// conv<32, 5>{}: 32 filters of 5 x 5. conv<64, rows_and_columns{3, 5}, conv_options{.stride = 2, .padding = {1,
/// 2}}>{}: filters of 3 x 5, stride 2, one row and two columns of zeros on each side. conv<64, 3, conv_options{.bias =
/// bias::none}>{}: without a bias, for a normalisation after it. As many groups as channels and filters is depthwise
/// convolution and has kernels of its own. conv<64, 3, conv_options{}, kernels::always_direct>{}: without Winograd's
/// algorithm, which errs a little more.
template <std::size_t Filters, rows_and_columns Kernel, conv_options Options = conv_options{},
          kernels::algorithm_rule Rule = kernels::preferred_algorithm>
struct conv {
    static constexpr bool has_sizes =
        rows_and_columns{Filters}.at_least(1) && Kernel.at_least(1) && Options.are_sizes();
    /// Dilation and groups have the direct algorithm only.
    static constexpr bool has_choice = Options.dilation == rows_and_columns{1} && Options.groups == 1;
    static_assert(has_sizes,
                  "lockstep: filters, kernel, stride, dilation and groups of a convolution are at least 1, padding at "
                  "least 0, all of them below 2^30");
    static_assert(has_choice || std::is_empty_v<layer_api::conv_settings<Rule>>,
                  "lockstep: a conv with dilation or groups takes no algorithms from a file; use another rule than "
                  "layers::tuned");
    [[no_unique_address]] layer_api::conv_settings<Rule> chosen{};

    template <tensor::ImageShape Input>
    static constexpr kernels::convolution geometry = Options.on(Input::extents[0], Input::extents[1], Input::extents[2],
                                                                Filters, Kernel);

    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        static_assert(layer_api::is_image<conv, Input>,
                      "lockstep: conv takes an image, rows x columns x channels; put it before flatten{}");
        static_assert(layer_api::groups_divide<conv, Input>,
                      "lockstep: the groups of conv do not divide its channels and its filters; use a divisor of both");
        static_assert(layer_api::window_fits<conv, Input>,
                      "lockstep: the kernel of conv, with its dilation, is larger than its input; use a smaller one, "
                      "less dilation or more padding");
        if constexpr (has_sizes && layer_api::is_image<conv, Input> && layer_api::groups_divide<conv, Input> &&
                      layer_api::window_fits<conv, Input>) {
            if constexpr (geometry<Input>.is_depthwise())
                return layer_api::depthwise_layer<geometry<Input>, Options.bias>{};
            else
                return layer_api::conv_layer<geometry<Input>, Options.bias, Rule>{
                    layer_api::conv_algorithms<geometry<Input>, Rule>{chosen}};
        } else {
            return layer_api::unbound<Input>{};
        }
    }

    /// The same convolution by this rule: itself where it has the rule already, or no choice.
    template <kernels::algorithm_rule Other>
    [[nodiscard]] constexpr auto with_rule() const noexcept {
        using other = conv<Filters, Kernel, Options, Other>;
        // Types are compared, not functions: those are no constants where sanitizers look at their addresses.
        if constexpr (std::is_same_v<other, conv> || !has_choice)
            return *this;
        else
            return other{};
    }
};

}  // namespace lockstep::layers
