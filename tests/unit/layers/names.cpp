// SPDX-License-Identifier: BSD-3-Clause
// `using namespace lockstep::layers` brings what stands in a network, and leaves all other names to the program.
#include <catch2/catch.hpp>
#include <type_traits>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/conv_max_pool.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/join.hpp"
#include "lockstep/layers/layer_norm.hpp"
#include "lockstep/layers/local_response_norm.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/layers/shortcut.hpp"
#include "lockstep/layers/tuned_conv.hpp"
#include "lockstep/model/network.hpp"

using namespace lockstep::layers;

// A program's own.
namespace detail {
constexpr int own = 1;
}
struct epilogue {};
struct features {};
struct block {};
struct parameters {};
struct statistics {};
struct Layer {};
struct Described {};
struct forward_pass {};
struct backward_pass {};
struct unbound {};
struct dense_layer {};
struct conv_layer {};
struct conv_settings {};
struct add_layer {};
enum class mode { fast, slow };
constexpr bool is_view = true, is_image = true, in_place = true, needs_x = true, saved_bytes = true, widens = true,
               takes_epilogue = true;
int add_lanes() { return 2; }

TEST_CASE("layers/names: a program may use the names of the library's own parts for itself", "[layers]") {
    constexpr auto net = lockstep::sequential{lockstep::input<8, 8, 4>,
                                              conv<4, 3, conv_options{.padding = 1, .bias = bias::none}>{},
                                              batch_norm{},
                                              relu{},
                                              flatten{},
                                              dropout{.rate = 0.5},
                                              dense<2>{}};
    CHECK(net.size == 6);
    STATIC_REQUIRE(std::is_empty_v<epilogue> && std::is_empty_v<features> && std::is_empty_v<block> &&
                   std::is_empty_v<parameters>);
    STATIC_REQUIRE(std::is_empty_v<statistics> && std::is_empty_v<Layer> && std::is_empty_v<Described> &&
                   std::is_empty_v<unbound>);
    STATIC_REQUIRE(std::is_empty_v<forward_pass> && std::is_empty_v<backward_pass> && std::is_empty_v<dense_layer>);
    STATIC_REQUIRE(std::is_empty_v<conv_layer> && std::is_empty_v<conv_settings> && std::is_empty_v<add_layer>);
    STATIC_REQUIRE(is_view && is_image && in_place && needs_x && saved_bytes && widens && takes_epilogue);
    CHECK(add_lanes() == 2);
    CHECK(mode::fast != mode::slow);
    CHECK(detail::own == 1);
}
