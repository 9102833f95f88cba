// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/resnet.hpp"

#include "unit/models/facts.hpp"

using namespace models_test;

namespace {
template <std::size_t Depth>
using cifar = ls::model::network<std::remove_const_t<decltype(ls::models::resnet<Depth>)>, 1>;
}

TEST_CASE("models/resnet: parameters and operations of the networks for CIFAR", "[models]") {
    static_assert(cifar<20>::parameters == 269'722);
    static_assert(cifar<32>::parameters == 464'154);
    static_assert(cifar<44>::parameters == 658'586);
    static_assert(cifar<56>::parameters == 853'018);
    static_assert(cifar<110>::parameters == 1'727'962);
    // A mean and a variance for each channel.
    static_assert(cifar<20>::statistics == 2 * (16 + 6 * 16 + 6 * 32 + 6 * 64));
    constexpr double first = 1024.0 * 27 * 16, inside = 1024.0 * 9 * 16 * 16, halved = 256.0 * 9 * 16 * 32;
    static_assert(weight_flops<cifar<20>>() == 2 * (first + 6 * inside + 2 * (halved + 5 * inside) + 640));
    CHECK(count<cifar<20>>("conv") == 19);
    CHECK(count<cifar<110>>("conv") == 109);
    CHECK(count<cifar<110>>("add") == 54);
    CHECK(count<cifar<110>>("shortcut") == 2);
    static_assert(std::is_same_v<cifar<110>::output, ls::tensor::shape<10>>);
}
