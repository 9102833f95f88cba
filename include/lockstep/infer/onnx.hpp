// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A network with its weights as an ONNX file, for other programs that predict.
// Tested by tests/unit/infer/onnx.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/member.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/core/replacement.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/infer/onnx_graph.hpp"
#include "lockstep/infer/onnx_layers.hpp"
#include "lockstep/infer/onnx_node.hpp"
#include "lockstep/infer/predictor.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/saving/names.hpp"

namespace lockstep::infer {

/// How images lie in the input and in the output of an ONNX file.
enum class image_order : std::uint8_t {
    rows_columns_channels,  ///< as in memory here: what a predictor takes and gives
    channels_rows_columns,  ///< as in ONNX: no transposition at the ends
};

/// How a file is written.
struct onnx_options {
    image_order images = image_order::rows_columns_channels;  ///< of input and output
    std::string input = "x";                                  ///< name of the value
    std::string output = "y";                                 ///< name of the value
};

namespace detail {

/// Writes a network from its first layer to its last.
template <class T, class Net>
class onnx_writer {
    using network = model::network<Net, 1>;
    template <std::size_t Index>
    using layer_at = typename model::bound<Net, 1, Index>::whole;

public:
    onnx_writer(const Net& net, std::span<const T> weights, std::span<const T> statistics, const onnx_options& how)
        : net_{net}, graph_{"lockstep", saving::text_of(net)}, how_{how} {
        read_samples();
        core::for_each_index<network::size>([&](auto index) {
            const auto& fact = network::facts[index];
            write<index>(core::text(index.value, ".", fact.name), weights.subspan(network::offset(index)),
                         statistics.subspan(fact.statistics_offset));
        });
        give_result();
    }

    [[nodiscard]] std::string serialised() const { return graph_.serialised(); }

private:
    [[nodiscard]] onnx_value& value(std::size_t node) { return node == model::the_samples ? samples_ : values_[node]; }
    [[nodiscard]] bool transposes(const std::vector<std::size_t>& extents) const noexcept {
        return extents.size() == 3 && how_.images == image_order::rows_columns_channels;
    }
    /// What a value with these extents is outside, after the batch.
    [[nodiscard]] std::vector<std::size_t> outside(const std::vector<std::size_t>& extents) const {
        if (extents.size() != 3 || transposes(extents)) return extents;
        return {extents[2], extents[0], extents[1]};
    }

    void read_samples() {
        samples_.extents.assign(Net::input::extents.begin(), Net::input::extents.end());
        samples_.name = graph_.input<T>(how_.input, outside(samples_.extents));
        if (transposes(samples_.extents))
            samples_.name = graph_.operation("Transpose", "samples", {samples_.name}, {{"perm", {0, 3, 1, 2}}});
    }
    void give_result() {
        onnx_value& last = in_order(value(network::size - 1), "result");
        if (transposes(last.extents))
            last.name = graph_.operation("Transpose", "result", {last.name}, {{"perm", {0, 2, 3, 1}}});
        graph_.output<T>(how_.output, last.name, outside(last.extents));
    }

    /// Whether values have their features in one order.
    [[nodiscard]] bool are_alike(std::span<const std::size_t> nodes) {
        const onnx_value& first = value(nodes.front());
        return std::ranges::all_of(nodes, [&](std::size_t node) {
            return value(node).channels == first.channels && value(node).extents == first.extents;
        });
    }
    /// Features of an image in the order of the network.
    onnx_value& in_order(onnx_value& of, const std::string& at) {
        if (of.channels == 1) return of;
        const auto extents = [&](std::string_view name, const std::vector<std::int64_t>& numbers) {
            const std::array<std::size_t, 1> count{numbers.size()};
            return graph_.constant<std::int64_t>(core::text(at, ".", of.name, ".", name, ".", reordered_), numbers,
                                                 count);
        };
        const auto channels = static_cast<std::int64_t>(of.channels);
        std::size_t all = 1;
        for (const std::size_t extent : of.extents) all *= extent;
        // Without -1, which readers cannot infer for 0 rows.
        const auto pixels = static_cast<std::int64_t>(all / of.channels);
        const auto image = graph_.operation("Reshape", at, {of.name, extents("image", {0, channels, pixels})});
        const auto turned = graph_.operation("Transpose", at, {image}, {{"perm", {0, 2, 1}}});
        of.name = graph_.operation("Flatten", at, {turned}, {{"axis", 1}});
        of.channels = 1;
        ++reordered_;
        return of;
    }

    template <std::size_t Index>
    void write(const std::string& at, std::span<const T> weights, std::span<const T> statistics) {
        using layer = layer_at<Index>;
        using node = onnx_node<T, layer>;
        onnx_value& to = values_[Index];
        to.extents.assign(layer::output::extents.begin(), layer::output::extents.end());
        if constexpr (std::is_same_v<layer, layer_api::flatten_layer<typename layer::input>>) {
            onnx_value& from = value(Net::graph.read(Index));
            // Where each pixel has one number, or there is one pixel, both orders are the same.
            to.channels = from.is_image() && from.extents[0] * from.extents[1] > 1 ? from.extents[2] : from.channels;
            to.name = graph_.operation("Flatten", at, {from.name}, {{"axis", 1}});
        } else {
            static_assert(has_onnx<layer, node>,
                          "lockstep: a layer cannot be written as ONNX; give it a member write_onnx(node) as in "
                          "docs/inference.md");
            if constexpr (has_onnx<layer, node>) {
                constexpr bool any_order = requires {
                    requires !WritesOnnx<layer, node> && onnx_layer<layer>::any_order;
                };
                constexpr bool ordering = requires { requires onnx_layer<layer>::ordering; };
                // Feature i of one value belongs to feature i of the others.
                const bool stays = any_order && (ordering || are_alike(Net::graph.of(Index)));
                std::vector<onnx_value> read;
                for (const std::size_t number : Net::graph.of(Index))
                    read.push_back(stays ? value(number) : in_order(value(number), at));
                node of{graph_, at, read, weights, statistics};
                const layer self = model::bound<Net, 1, Index>::make_whole(net_);
                if constexpr (WritesOnnx<layer, node>)
                    self.write_onnx(of);
                else
                    onnx_layer<layer>::write(self, of);
                if (of.given().empty())
                    core::fail(core::text("layer ", at, " wrote no ONNX value"),
                               "call node.gives(..) at the end of its write_onnx(node)");
                to.name = of.given();
                if constexpr (any_order && !ordering) to.channels = read[0].channels;
            }
        }
    }

    const Net& net_;
    onnx_graph graph_;
    onnx_options how_;
    onnx_value samples_;
    std::array<onnx_value, network::size> values_;
    std::size_t reordered_ = 0;  // values; two layers may read one under one name
};

template <class T, class Network>
[[gnu::cold]] void require_numbers(std::span<const T> weights, std::span<const T> statistics) {
    if (weights.size() != Network::parameters || statistics.size() != Network::statistics)
        core::fail(
            core::text("an ONNX file was given ", weights.size(), " weights and ", statistics.size(),
                       " running statistics for a network of ", Network::parameters, " and ", Network::statistics),
            "pass all_weights() and running_statistics() of a trainer with the same network");
    for (const auto& [what, numbers] : {std::pair{"weight", weights}, std::pair{"running statistic", statistics}})
        if (const std::size_t bad = kernels::first_non_finite(numbers); bad != numbers.size())
            core::fail(core::text(what, " ", bad, " is ", numbers[bad]), "write a network whose numbers are finite");
    saving::require_variances<Network>(statistics, "an ONNX file");
}

/// As ONNX wants names of values to be. Those that the writer makes have a point.
[[nodiscard]] constexpr bool is_identifier(std::string_view name) noexcept {
    constexpr std::string_view digits = "0123456789",
                               all = "0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return !name.empty() && digits.find(name.front()) == name.npos && name.find_first_not_of(all) == name.npos;
}

}  // namespace detail

/// The network as the bytes of an ONNX file, for inference: operator set 17, one input and one output, whose first
/// extent is the batch, of any size. Images are rows x columns x channels at both ends, as everywhere here, unless
/// `how.images` says otherwise. Constants have the names of a weight file. Throws core::error for other numbers of
/// weights, for such that are not finite, and for more than 2 GiB; a layer that cannot be written does not compile (see
/// onnx_node). Cost: a copy of the weights, twice.
template <class Net, class Weights, class Statistics>
    requires requires(const Weights& weights, const Statistics& statistics) { *weights.data() + *statistics.data(); }
[[nodiscard]] std::string onnx_bytes(const Net& net, const Weights& weights, const Statistics& statistics,
                                     const onnx_options& how = {}) {
    using T = std::remove_cvref_t<decltype(*weights.data())>;
    const std::span<const T> numbers{weights.data(), weights.size()}, others{statistics.data(), statistics.size()};
    core::for_each_index<model::network<Net, 1>::size>(
        [&](auto index) { core::check_inner_part(net.template node<index>()); });
    detail::require_numbers<T, model::network<Net, 1>>(numbers, others);
    if (!detail::is_identifier(how.input) || !detail::is_identifier(how.output) || how.input == how.output)
        core::fail(core::text("an ONNX file with the input '", core::excerpt(how.input), "' and the output '",
                              core::excerpt(how.output), "'"),
                   "give each a name of its own, of letters, digits and underscores, that does not begin with a digit");
    return detail::onnx_writer<T, Net>{net, numbers, others, how}.serialised();
}

/// The same as a file, whole or not at all: `write_onnx("net.onnx", net, trainer.all_weights(),
/// trainer.running_statistics())`, by one rank. Throws core::error with the path and the reason of the system as well.
template <class Net, class Weights, class Statistics>
    requires requires(const Weights& weights, const Statistics& statistics) { *weights.data() + *statistics.data(); }
void write_onnx(const std::string& path, const Net& net, const Weights& weights, const Statistics& statistics,
                const onnx_options& how = {}) {
    const std::string bytes = onnx_bytes(net, weights, statistics, how);
    core::replacement to{path};
    core::output_file file;
    file.open(to.writing());
    file.write(bytes);
    file.close();
    to.commit_on_disk();
}
/// What a predictor holds.
template <class Net, class T>
void write_onnx(const std::string& path, const predictor<Net, T>& of, const onnx_options& how = {}) {
    write_onnx(path, of.net(), of.weights(), of.running_statistics(), how);
}

}  // namespace lockstep::infer

namespace lockstep {
using infer::write_onnx;
}  // namespace lockstep
