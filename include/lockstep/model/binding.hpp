// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Binds a network to its shapes and to a number of shards: the type of every layer on one rank, and what ranks exchange
// between layers.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "lockstep/core/pack.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/join.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep::model {

/// What a rank of a model group holds between two layers: all features of its own samples, or its own features of all
/// samples of the group.
enum class placement : std::uint8_t { samples, features };

/// What a model group does before a layer, so that each rank gets what its part of the layer needs. Backward does the
/// opposite.
enum class redistribution : std::uint8_t {
    none,
    gather_samples,   ///< own samples -> all samples; back: the gradients are added and each rank gets its samples'
                      ///< (reduce-scatter)
    gather_features,  ///< own features -> all features; back: the gradients are added and each rank gets its features'
    to_samples,       ///< own features of all samples -> all features of own samples; back: the opposite all-to-all
};

/// The parameters that all ranks hold, and those of which a rank of a model group holds its share.
enum class segment : std::uint8_t { replicated, sharded };

/// What stands in the network is a layer spec: it has on(shape), which returns a layer.
template <class Spec, class... Inputs>
inline constexpr bool is_layer = requires(const Spec& spec) {
    spec.on(Inputs{}...);
};
/// The layer says all of itself that binding needs.
template <class Layer>
inline constexpr bool is_described = layer_api::Described<Layer>;
/// A layer is cut by a function, which keeps its members.
template <class Layer>
inline constexpr bool is_cut_by_a_function = !layer_api::has_shard_type<Layer>;
/// The part of a layer is a layer with so many of its outputs.
template <class Part, std::size_t Outputs>
inline constexpr bool is_shard_of = false;
template <layer_api::Described Part, std::size_t Outputs>
inline constexpr bool is_shard_of<Part, Outputs> = Part::output::size == Outputs;
/// Parts of features that lie in a row are joined one after the other; those of an image do not.
template <class Output>
inline constexpr bool has_one_row = *std::max_element(Output::extents.begin(), Output::extents.end()) == Output::size;
/// Each parameter of a part has 1/Shards of the columns, so all of the whole are there once.
template <class Whole, class Part, std::size_t Shards>
[[nodiscard]] constexpr bool cuts_all_parameters() {
    if (Part::parameters.size() != Whole::parameters.size()) return false;
    for (std::size_t i = 0; i < Whole::parameters.size(); ++i)
        if (Part::parameters[i].rows != Whole::parameters[i].rows ||
            Part::parameters[i].columns * Shards != Whole::parameters[i].columns)
            return false;
    return true;
}
/// A join has as many inputs as there are values, any other layer one.
template <class Layer, std::size_t Values>
inline constexpr bool reads_as_many = layer_api::is_unbound<Layer> || layer_api::traits_of<Layer>.inputs == Values;
/// What it says of itself stands in its traits: as members of its own, as in former versions, nobody would ask for it.
template <class Layer>
inline constexpr bool says_traits = !(
    requires { Layer::is_view; } || requires { Layer::is_join; } || requires { Layer::passes_gradient; } ||
    requires { Layer::is_elementwise; } || requires { Layer::needs_x; } || requires { Layer::needs_y; } ||
    requires { Layer::in_place; } || requires { Layer::has_addend; } || requires { Layer::sums_gradient; } ||
    requires { Layer::adds_lanes; } || requires { Layer::deals_lanes; } || requires { Layer::has_factors; } ||
    requires { Layer::template saved_bytes<float>; } || requires { Layer::least_rows_per_lane; } ||
    requires { Layer::gradient_flops; } || requires { typename Layer::traits; });
/// What is never run backward, or is computed by the layer before it, has nothing to learn; a view reads one value.
template <class Layer>
inline constexpr bool learns_where_it_runs =
    !(layer_api::traits_of<Layer>.is_view || layer_api::traits_of<Layer>.passes_gradient ||
      layer_api::as_epilogue<Layer> != layer_api::epilogue_part::none) ||
    (Layer::parameters.size() == 0 && !layer_api::has_statistics<Layer> &&
     !(layer_api::traits_of<Layer>.is_view && layer_api::is_join<Layer>));
/// A view is what it reads, and a gradient that is passed on is that of each value: all are as large.
template <class Layer, class... Inputs>
inline constexpr bool passes_equal_sizes =
    layer_api::is_unbound<Layer> ||
    !(layer_api::traits_of<Layer>.is_view || layer_api::traits_of<Layer>.passes_gradient) ||
    ((Inputs::size == Layer::output::size) && ...);
/// The outputs of a layer can be cut into equal shards.
template <class Layer, std::size_t Outputs, std::size_t Shards>
inline constexpr bool shards_divide = Outputs % Shards == 0;

/// Layer `Index` of a network on `Shards` ranks. `whole` is the uncut layer, `type` this rank's part of it.
template <class Net, std::size_t Shards, std::size_t Index>
struct bound {
    static constexpr std::size_t inputs = Net::graph.inputs(Index);
    template <std::size_t Input>
    using source = bound<Net, Shards, Net::graph.read(Index, Input)>;
    using before = source<0>;
    using spec = typename Net::template spec<Index>;
    using whole_input = typename before::whole::output;

    template <std::size_t... Input>
    static constexpr auto bind_whole(std::index_sequence<Input...>) {
        if constexpr ((layer_api::is_unbound<typename source<Input>::whole> || ...)) {
            return std::type_identity<layer_api::unbound<whole_input>>{};
        } else {
            constexpr bool is_spec = is_layer<spec, typename source<Input>::whole::output...>;
            static_assert(
                is_spec,
                "lockstep: what stands in a network is a layer: it has on(shape) const, which returns a layer");
            if constexpr (is_spec)
                return bind_described<decltype(std::declval<const spec&>().on(
                                          typename source<Input>::whole::output{}...)),
                                      typename source<Input>::whole::output...>();
            else
                return std::type_identity<layer_api::unbound<whole_input>>{};
        }
    }
    template <class Layer, class... Inputs>
    static constexpr auto bind_described() {
        static_assert(
            is_described<Layer>,
            "lockstep: a layer lacks a member of the concept Layer: input, output, parameters, name or flops");
        static_assert(is_cut_by_a_function<Layer>,
                      "lockstep: a layer is cut by a member function, shard<Shards>() const, which makes its part from "
                      "its members; "
                      "a type named shard would lose them");
        static_assert(
            reads_as_many<Layer, inputs>,
            "lockstep: a layer reads another number of values than come to it; a join says traits{.inputs = n}, and "
            "n paths end in it");
        if constexpr (is_described<Layer> && is_cut_by_a_function<Layer> && reads_as_many<Layer, inputs>) {
            static_assert(says_traits<Layer>,
                          "lockstep: a layer has needs_x, needs_y, in_place, saved_bytes or their like as members, "
                          "where nobody reads them; put them into traits{..} (layers/traits.hpp)");
            static_assert(
                learns_where_it_runs<Layer>,
                "lockstep: a layer with is_view, passes_gradient or as_epilogue has parameters or statistics, "
                "which would never be trained, or is a view of several values; leave these out");
            static_assert(passes_equal_sizes<Layer, Inputs...>,
                          "lockstep: a layer with is_view or passes_gradient reads a value of another size than its "
                          "output; leave these out, and write forward and backward");
            return std::type_identity<Layer>{};
        } else {
            return std::type_identity<layer_api::unbound<whole_input>>{};
        }
    }
    using whole = typename decltype(bind_whole(std::make_index_sequence<inputs>{}))::type;

    static constexpr bool is_sharded =
        Shards > 1 && inputs == 1 && layer_api::is_shardable<whole> && !layer_api::has_statistics<whole>;
    static constexpr bool stays = before::gives == placement::features && layer_api::traits_of<whole>.is_elementwise &&
                                  whole::parameters.size() == 0 && !layer_api::has_statistics<whole>;
    /// What the layer itself makes.
    static constexpr placement after = is_sharded || stays ? placement::features : placement::samples;
    /// What those who read it find: only a single reader may get features, all others share whole samples.
    static constexpr placement gives =
        Net::graph.readers[Index] == 1 && !Net::graph.joined[Index] ? after : placement::samples;
    static constexpr redistribution redistribution_before =
        before::gives == placement::samples ? (is_sharded ? redistribution::gather_samples : redistribution::none)
        : stays                             ? redistribution::none
        : is_sharded                        ? redistribution::gather_features
                                            : redistribution::to_samples;
    static constexpr redistribution redistribution_after =
        after == gives ? redistribution::none : redistribution::to_samples;

    static constexpr auto bind() {
        if constexpr (is_sharded) {
            static_assert(shards_divide<spec, whole::output::size, Shards>,
                          "lockstep: the outputs of a layer are not divisible by the shards of the model partition; "
                          "use a divisor, or more outputs");
            if constexpr (shards_divide<spec, whole::output::size, Shards>) {
                using part = decltype(std::declval<const whole&>().template shard<Shards>());
                static_assert(!has_one_row<typename whole::output> || is_shard_of<part, whole::output::size / Shards>,
                              "lockstep: shard<Shards>() of a layer returns a layer with 1/Shards of its outputs");
                static_assert(has_one_row<typename whole::output>,
                              "lockstep: a layer with an image as its output has shard<Shards>(), and its parts could "
                              "not be joined; leave it out, or put flatten{} before the layer");
                if constexpr (has_one_row<typename whole::output> && is_shard_of<part, whole::output::size / Shards>) {
                    static_assert(cuts_all_parameters<whole, part, Shards>(),
                                  "lockstep: shard<Shards>() of a layer returns a layer whose parameters have the rows "
                                  "of the whole and 1/Shards of its columns");
                    return std::type_identity<part>{};
                } else {
                    return std::type_identity<whole>{};
                }
            } else {
                return std::type_identity<whole>{};
            }
        } else if constexpr (stays) {
            return std::type_identity<decltype(std::declval<const spec&>().on(typename before::type::output{}))>{};
        } else {
            return std::type_identity<whole>{};
        }
    }
    using type = typename decltype(bind())::type;
    static constexpr bool fits = !layer_api::is_unbound<whole> && (!is_sharded || !std::is_same_v<type, whole>);

    /// The layer as a value, with the numbers of its spec.
    static constexpr type make(const Net& net) {
        if constexpr (layer_api::is_unbound<whole>)
            return type{};
        else if constexpr (stays)
            return net.template node<Index>().on(typename before::type::output{});
        else if constexpr (is_sharded && fits)
            return make_whole(net).template shard<Shards>();
        else
            return make_whole(net);
    }
    static constexpr whole make_whole(const Net& net) {
        return [&]<std::size_t... Input>(std::index_sequence<Input...>) {
            return net.template node<Index>().on(typename source<Input>::whole::output{}...);
        }
        (std::make_index_sequence<inputs>{});
    }
};

/// Before the first layer: the samples themselves.
template <class Net, std::size_t Shards>
struct bound<Net, Shards, the_samples> {
    struct whole {
        using output = typename Net::input;
    };
    static constexpr placement gives = placement::samples;
};

}  // namespace lockstep::model
