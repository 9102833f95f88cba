// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// AlexNet: Krizhevsky, Sutskever, Hinton 2012, in a single column (every filter on all channels) and in the two columns
// of the paper.

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/local_response_norm.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep::models {

namespace detail {

/// The network around its second, fourth and fifth convolution.
template <class Second, class Fourth, class Fifth>
[[nodiscard]] constexpr auto make_alexnet(const Second& second, const Fourth& fourth, const Fifth& fifth) {
    using namespace layers;
    return model::sequential{
        input<227, 227, 3>,
        conv<96, 11, conv_options{.stride = 4}>{},
        relu{},
        local_response_norm<5>{},
        max_pool<3, 2>{},
        second,
        relu{},
        local_response_norm<5>{},
        max_pool<3, 2>{},
        conv<384, 3, conv_options{.padding = 1}>{},
        relu{},
        fourth,
        relu{},
        fifth,
        relu{},
        max_pool<3, 2>{},
        flatten{},
        dense<4096>{},
        relu{},
        dropout{.rate = 0.5},
        dense<4096>{},
        relu{},
        dropout{.rate = 0.5},
        dense<1000>{},
    };
}

}  // namespace detail

/// 227 x 227 images of 3 colours to 1000 classes: 62,378,344 parameters.
inline constexpr auto alexnet = detail::make_alexnet(layers::conv<256, 5, layers::conv_options{.padding = 2}>{},
                                                     layers::conv<384, 3, layers::conv_options{.padding = 1}>{},
                                                     layers::conv<256, 3, layers::conv_options{.padding = 1}>{});

/// The second, fourth and fifth convolution in two groups, once one for each of two processors: 60,965,224 parameters.
inline constexpr auto alexnet_two_columns =
    detail::make_alexnet(layers::conv<256, 5, layers::conv_options{.padding = 2, .groups = 2}>{},
                         layers::conv<384, 3, layers::conv_options{.padding = 1, .groups = 2}>{},
                         layers::conv<256, 3, layers::conv_options{.padding = 1, .groups = 2}>{});

}  // namespace lockstep::models
