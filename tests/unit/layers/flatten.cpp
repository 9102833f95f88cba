// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/flatten.hpp"

#include "unit/layers/support.hpp"

using namespace layer_test;

TEST_CASE("layers/flatten: another shape of the same numbers, and no work", "[layers]") {
    using layer = layer_of<layers::flatten, shape<4, 4, 64>>;
    static_assert(std::is_same_v<layer::input, shape<4, 4, 64>> && std::is_same_v<layer::output, shape<1024>>);
    static_assert(layer::traits.is_view && layer_api::Layer<layer> && layer::flops == 0 &&
                  layer::parameters.size() == 0);
    static_assert(std::is_same_v<layer_of<layers::flatten, shape<7>>::output, shape<7>>);
    CHECK(layer::name == "flatten");
}
