// SPDX-License-Identifier: BSD-3-Clause
// Writes random networks as source files for network.hpp: generate SEED [file]. The same seed gives the same text
// everywhere.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/random.hpp"
#include "networks/features.hpp"
#include "networks/naive.hpp"

namespace {

using networks::extents;
using networks::item;

item number_of(std::size_t value) { return {.number = std::to_string(value)}; }

std::string print(const item& of, const std::string& indent) {
    std::string out = of.field.empty() ? "" : "." + of.field + " = ";
    if (!of.number.empty()) return out + of.number;
    out += of.name;
    for (std::size_t i = 0; i < of.options.size(); ++i) out += (i == 0 ? "<" : ", ") + print(of.options[i], indent);
    if (!of.options.empty()) out += ">";
    if (of.name == "input" || (!of.name.empty() && of.name.find("::") != std::string::npos) ||
        of.name.starts_with("always_") || of.name == "tuned" || of.name == "true")
        return out;
    // What holds combinators has a line for each.
    const bool wide = of.name == "sequential" || std::any_of(of.inside.begin(), of.inside.end(), [](const item& one) {
                          return !one.inside.empty() && one.inside[0].field.empty() && one.field.empty();
                      });
    out += "{";
    for (std::size_t i = 0; i < of.inside.size(); ++i) {
        if (i > 0) out += ",";
        if (wide)
            out += " \\\n" + indent + "    ";
        else if (i > 0)
            out += " ";
        out += print(of.inside[i], indent + "    ");
    }
    return out + "}";
}

struct recipe {
    item net, loss, optimizer;
    std::string settings;
    std::size_t shards = 1;
};

/// Whether a model partition of so many shards can cut every dense layer.
bool divides(std::size_t shards, const item& of) {
    return (of.name != "dense" || of.option(0, 0) % shards == 0) &&
           std::all_of(of.inside.begin(), of.inside.end(), [&](const item& one) { return divides(shards, one); });
}

class generator {
public:
    explicit generator(std::uint64_t seed) : random_{seed, lockstep::core::purpose::user, 7} {}

    recipe draw(std::uint64_t seed) {
        recipe out;
        out.shards = shards_ = one_of({1, 1, 1, 2, 2, 3, 4});
        out.net = network();
        // A residual of a row of features may have made a dense layer that so many shards do not divide.
        while (!divides(out.shards, out.net)) --out.shards;
        out.loss = make_loss();
        out.optimizer = make_optimizer();
        out.settings = make_settings(seed, networks::network{out.net});
        return out;
    }

    std::string file(std::uint64_t seed) {
        const recipe of = draw(seed);
        std::string out = "// SPDX-License-Identifier: BSD-3-Clause\n// Random network " + std::to_string(seed) +
                          ", written by generate.cpp.\n";
        out += "#define SEED " + std::to_string(seed) + "\n";
        out += "#define NETWORK " + print(of.net, "    ") + "\n";
        out += "#define LOSS " + print(of.loss, "") + "\n";
        out += "#define OPTIMIZER " + print(of.optimizer, "") + "\n";
        out += "#define SETTINGS " + of.settings + "\n";
        out += "#define SHARDS " + std::to_string(of.shards) + "\n";
        return out + "#include \"networks/network.hpp\"\n";
    }

private:
    // Draws.
    std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_.below(bound, at_++)); }
    bool chance(std::size_t percent) { return below(100) < percent; }
    template <class T>
    T one_of(std::initializer_list<T> all) {
        return *(all.begin() + static_cast<std::ptrdiff_t>(below(all.size())));
    }
    std::size_t one_of(std::initializer_list<int> all) {
        return static_cast<std::size_t>(*(all.begin() + static_cast<std::ptrdiff_t>(below(all.size()))));
    }

    /// What a sequence of items may end with.
    struct goal {
        enum { anything, same_places, exactly } kind = anything;
        extents shape{};
        [[nodiscard]] bool met_by(const extents& found) const {
            if (found.empty()) return false;
            if (kind == exactly) return found == shape;
            if (kind == same_places)
                return found.size() == shape.size() && std::equal(found.begin(), found.end() - 1, shape.begin());
            return true;
        }
    };

    // Layers.
    static item layer(std::string name, std::initializer_list<std::size_t> options = {}) {
        item out{.name = std::move(name)};
        for (const std::size_t one : options) out.options.push_back(number_of(one));
        return out;
    }
    static item with(item of, const std::string& field, const std::string& value) {
        of.inside.push_back({.field = field, .number = value});
        return of;
    }
    item activation() {
        return layer(one_of({std::string{"relu"}, {"relu"}, {"relu"}, {"tanh"}, {"sigmoid"}, {"gelu"}}));
    }
    item make_dropout() { return with(layer("dropout"), "rate", one_of({std::string{"0.125"}, {"0.25"}, {"0.4"}})); }
    item normalisation() {
        const std::string epsilon =
            one_of({std::string{"0.01"}, {"0.1"}});  // numbers of a lane that are close by chance stay harmless
        switch (below(4)) {
            case 0:
                return with(layer("layer_norm"), "epsilon", epsilon);
            case 1:
                if (chance(50))
                    return with(with(layer("local_response_norm", {one_of({3, 5})}), "alpha", "0.3"), "offset", "1.5");
                [[fallthrough]];
            default:
                if (chance(30)) return with(with(layer("batch_norm"), "momentum", "0.25"), "epsilon", epsilon);
                return with(layer("batch_norm"), "epsilon", epsilon);
        }
    }
    /// Of a dense layer: a model partition cuts them.
    std::size_t features() { return shards_ * (1 + below(24 / shards_)); }
    std::size_t channels() { return chance(20) ? one_of({12, 16, 17, 24}) : 1 + below(8); }

    struct sizes {
        std::size_t filters, kernel, stride = 1, padding = 0;
    };
    /// What differs from the defaults, by its name.
    static std::vector<item> named(const sizes& of) {
        std::vector<item> out;
        if (of.stride != 1) out.push_back({.field = "stride", .number = std::to_string(of.stride)});
        if (of.padding != 0) out.push_back({.field = "padding", .number = std::to_string(of.padding)});
        return out;
    }
    static item no_bias() { return {.name = "bias::none", .field = "bias"}; }
    static item with_options(item of, const std::string& aggregate, const std::vector<item>& options) {
        if (!options.empty()) of.options.push_back({.name = aggregate, .inside = options});
        return of;
    }
    static item plain(const sizes& of) {
        return with_options(layer("conv", {of.filters, of.kernel}), "conv_options", named(of));
    }
    /// With the algorithm of a convolution, and whether it has a bias.
    item finished(const sizes& of) {
        const bool has_rule = chance(45);
        item out = layer("conv", {of.filters, of.kernel});
        auto options = named(of);
        if ((has_rule || chance(25)) && chance(35)) options.push_back(no_bias());
        if (!has_rule) return with_options(out, "conv_options", options);
        out.options.push_back({.name = "conv_options", .inside = options});
        out.options.push_back({.name = one_of({std::string{"always_direct"},
                                               {"always_winograd2"},
                                               {"always_winograd4"},
                                               {"always_im2col"},
                                               {"tuned"}})});
        return out;
    }
    static item pair_of(const std::string& field, std::size_t rows, std::size_t columns) {
        if (rows == columns) return {.field = field, .number = std::to_string(rows)};
        return {.inside = {number_of(rows), number_of(columns)}, .field = field};
    }
    /// Any rectangle, distance and number of groups.
    item any_convolution(const extents& in, std::size_t filters, std::size_t stride) {
        const std::size_t groups = [&] {
            std::vector<std::size_t> divisors;
            for (std::size_t n = 1; n <= in[2]; ++n)
                if (in[2] % n == 0 && filters % n == 0) divisors.push_back(n);
            return divisors[below(divisors.size())];
        }();
        const std::array<std::size_t, 2> kernel{one_of({1, 3, 3, 5}), one_of({1, 3, 3, 2})},
            dilation{one_of({1, 1, 2}), one_of({1, 1, 3})};
        const bool same = chance(80);  // as many outputs as inputs, but for the stride
        const auto padding = [&](std::size_t d) { return same ? (kernel[d] - 1) * dilation[d] / 2 : below(2); };
        item out = layer("conv", {filters});
        item window = pair_of("", kernel[0], kernel[1]);
        if (window.number.empty()) window.name = "rows_and_columns";
        out.options.push_back(window);
        std::vector<item> options{pair_of("stride", stride, stride),
                                  pair_of("padding", padding(0), padding(1)),
                                  pair_of("dilation", dilation[0], dilation[1]),
                                  {.field = "groups", .number = std::to_string(groups)}};
        if (chance(25)) options.push_back(no_bias());
        return with_options(out, "conv_options", options);
    }

    /// A layer of an image.
    item image_layer(const extents& in) {
        const std::size_t filters = chance(40) ? in[2] : channels();
        switch (below(22)) {
            case 0:
            case 1:
            case 2:
                return activation();
            case 3:
            case 4:
            case 5:
                return normalisation();
            case 6:
                return make_dropout();
            case 7:
            case 8:
            case 9:
            case 10:
                return finished({filters, 3, 1, 1});
            case 11:
                return finished({filters, one_of({1, 3, 5}), one_of({1, 2}), below(3)});
            case 12:
                return finished({filters, 1});
            case 13:
            case 14:
                return any_convolution(in, filters, 1);
            case 15:
                return any_convolution(in, filters, 2);
            case 16:
                return with_options(layer("depthwise_conv", {3}), "conv_options",
                                    named({in[2], 3, one_of({1, 1, 2}), 1}));
            case 17:
                return layer("max_pool", {3, one_of({1, 2}), 1});
            case 18:
                return one_of({layer("max_pool", {2}), layer("mean_pool", {2}), layer("mean_pool", {3, 1}),
                               layer("max_pool", {2, 1})});
            case 19: {
                sizes of{filters, 3, 1, 1};
                const bool any = chance(30);
                if (any) of = {filters, one_of({1, 3, 5}), 1, one_of({0, 1})};
                auto options = named(of);
                if (any && one_of({2, 3}) == 3) options.push_back({.field = "window", .number = "3"});
                if (chance(30) && any) options.push_back(no_bias());
                return with_options(layer("conv_max_pool", {filters, of.kernel}), "conv_max_pool_options", options);
            }
            default:
                return layer("shortcut", {in[2] + below(4), one_of({1, 1, 2})});
        }
    }
    item flat_layer() {
        switch (below(10)) {
            case 0:
            case 1:
            case 2:
                return activation();
            case 3:
            case 4:
                return normalisation();
            case 5:
                return make_dropout();
            case 6:
                return layer("flatten");
            default:
                return layer("dense", {features()});
        }
    }

    // Combinators.
    item combinator(const extents& in, std::size_t depth, bool in_block, const goal& to) {
        const bool again = !in_block && chance(35);
        switch (again ? 9 : below(6)) {
            case 0:
            case 1: {
                if (chance(30)) return normalised(in, depth, in_block);
                item out{.name = "residual"};
                out.inside = sequence(in, {goal::exactly, in}, 1 + below(3), depth + 1, in_block);
                return out;
            }
            case 2:
            case 3: {
                // All paths give what the first one does.
                item out{.name = "add"};
                const auto first = sequence(in, to, below(3), depth + 1, in_block);
                const extents shape = networks::output_of({.name = "path", .inside = first}, in);
                out.inside.push_back({.name = "path", .inside = first});
                for (std::size_t more = 1 + below(2); more > 0; --more)
                    out.inside.push_back(path_to(in, {goal::exactly, shape}, depth, in_block));
                return shuffled(out);
            }
            case 9: {
                item out{.name = "recompute"};
                out.inside = sequence(in, to, 1 + below(3), depth + 1, true);
                if (out.inside.empty()) out.inside.push_back(activation());
                return out;
            }
            default: {
                item out{.name = "concatenate"};
                const goal places{goal::same_places, in};
                for (std::size_t count = 2 + below(2); count > 0; --count)
                    out.inside.push_back(path_to(in, places, depth, in_block));
                return out;
            }
        }
    }
    /// As in networks of the literature: a normalisation ends the block, and relu comes after the sum.
    item normalised(const extents& in, std::size_t depth, bool in_block) {
        item block{.name = "residual"};
        block.inside = sequence(in, {goal::exactly, in}, 1 + below(3), depth + 1, in_block);
        block.inside.push_back(with(layer("batch_norm"), "epsilon", "0.01"));
        return {.name = "path", .inside = {block, layer("relu")}};
    }
    item path_to(const extents& in, const goal& to, std::size_t depth, bool in_block) {
        item out{.name = "path", .inside = sequence(in, to, below(3), depth + 1, in_block)};
        // A single layer needs no path around it; neither does a combinator.
        if (out.inside.size() == 1 && chance(50)) return out.inside[0];
        return out;
    }
    /// Its paths in another order.
    item shuffled(item of) {
        for (std::size_t left = of.inside.size(); left > 1; --left)
            std::swap(of.inside[left - 1], of.inside[below(left)]);
        return of;
    }

    /// About `length` items that end as asked for.
    std::vector<item> sequence(const extents& in, const goal& to, std::size_t length, std::size_t depth,
                               bool in_block) {
        for (int attempt = 0; attempt < 200; ++attempt) {
            std::vector<item> out;
            extents shape = in;
            const std::size_t kept = nodes_;
            for (std::size_t tries = 0; out.size() < length && tries < 20; ++tries) {
                const bool branch = depth < 3 && nodes_ < 9 && chance(30);
                item next = branch              ? combinator(shape, depth, in_block, {goal::same_places, shape})
                            : shape.size() == 3 ? image_layer(shape)
                                                : flat_layer();
                const extents given = networks::output_of(next, shape);
                if (given.empty() || networks::size_of(given) > 1500) continue;
                // Places that are gone do not come back.
                if (to.kind != goal::anything && shape.size() == 3 &&
                    (given[0] < to.shape[0] || given[1] < to.shape[1]))
                    continue;
                shape = given;
                out.push_back(std::move(next));
                ++nodes_;
            }
            if (!to.met_by(shape))
                if (const auto last = adapter(shape, to); !last.name.empty()) {
                    out.push_back(last);
                    shape = to.shape;
                    ++nodes_;
                }
            if (to.met_by(networks::output_of({.name = "path", .inside = out}, in))) return out;
            nodes_ = kept;
        }
        throw std::runtime_error("no sequence of layers ends as asked for");
    }
    /// One layer from here to there, or none.
    item adapter(const extents& from, const goal& to) {
        if (to.kind == goal::anything) return {};
        std::vector<item> all;
        if (from.size() == 1) {
            all = {layer("dense", {to.shape[0]})};
        } else {
            const std::size_t filters = to.kind == goal::exactly ? to.shape[2] : channels();
            for (const std::size_t stride : {1, 2}) {
                all.push_back(plain({filters, 1, stride}));
                all.push_back(finished({filters, 3, stride, 1}));
                all.push_back(any_convolution(from, filters, stride));
                all.push_back(layer("shortcut", {filters, stride}));
            }
            all.push_back(
                with_options(layer("conv_max_pool", {filters, 3}), "conv_max_pool_options", named({filters, 3, 1, 1})));
            all.push_back(plain({filters, from[0] - std::min(from[0] - 1, to.shape[0] - 1)}));
        }
        std::erase_if(all, [&](const item& one) { return !to.met_by(networks::output_of(one, from)); });
        return all.empty() ? item{} : all[below(all.size())];
    }

    // The whole.
    item network() {
        item out{.name = "sequential"};
        const bool image = chance(80);
        extents shape = image ? extents{4 + below(6), 4 + below(6), 1 + below(5)} : extents{3 + below(20)};
        if (image && chance(25)) shape[2] = one_of({8, 16});
        item input{.name = "input"};
        for (const std::size_t extent : shape) input.options.push_back(number_of(extent));
        out.inside.push_back(input);
        const auto append = [&](const std::vector<item>& more) {
            for (const item& one : more) {
                shape = networks::output_of(one, shape);
                out.inside.push_back(one);
            }
        };
        if (image) {
            for (std::size_t parts = 1 + below(2); parts > 0; --parts) {
                append(sequence(shape, {}, 1 + below(2), 0, false));
                if (nodes_ < 9) append({combinator(shape, 0, false, {goal::same_places, shape})});
            }
            append({chance(30) ? layer("global_mean_pool") : layer("flatten")});
        }
        if (!image || chance(60)) append(sequence(shape, {}, 1 + below(3), 0, false));
        if (!image || chance(60)) append({combinator(shape, 0, false, {goal::same_places, shape})});
        const std::size_t classes = shards_ * (1 + below(8 / shards_)) + (shards_ == 1 ? 1 : 0);
        item last = layer("dense", {classes});
        switch (below(6)) {
            case 0:
                append({{.name = "recompute", .inside = {activation(), last}}});
                break;
            case 1:
                append({last, {.name = "residual", .inside = {activation(), layer("dense", {classes})}}});
                break;
            case 2:
                append({{.name = "add", .inside = {last, {.name = "path", .inside = {activation(), last}}}}});
                break;
            default:
                append({last});
        }
        return out;
    }

    item make_loss() {
        if (chance(30)) return layer("mean_squared_error");
        return chance(40) ? with(layer("softmax_cross_entropy"), "smoothing", "0.1") : layer("softmax_cross_entropy");
    }
    item make_optimizer() {
        const auto plain = [&] {
            switch (below(3)) {
                case 0:
                    return layer("sgd");
                case 1: {
                    item out = with(layer("momentum"), "beta", "0.75");
                    if (chance(50)) out.inside.push_back({.name = "true", .field = "nesterov"});
                    return out;
                }
                default:
                    // Gradients that are 0 but for rounding stay small against this.
                    return with(with(layer("adam"), "beta2", "0.99"), "epsilon", "0.01");
            }
        };
        if (chance(60)) return plain();
        item inner = plain();
        item out = with(layer("weight_decay"), "rate", "0.03");
        if (chance(50)) out.inside.push_back({.name = "true", .field = "decoupled"});
        inner.field = "inner";
        out.inside.push_back(inner);
        return out;
    }
    std::string make_settings(std::uint64_t seed, const networks::network& of) {
        const std::size_t lanes = 4 + below(6);
        // A lane of a batch normalisation has at least two numbers of each channel, in the last minibatch as well.
        const bool many = of.least_per_channel == 1;
        const std::size_t least = of.least_per_channel == 0 ? 1 : lanes * (many ? 2 : 1);
        const std::size_t batch = std::max(lanes, least) + below(lanes + 3), last = least + below(batch - least + 1);
        const auto flag = [&](const char* name, bool on) {
            return on ? std::string{", ."} + name + " = true" : std::string{};
        };
        std::string out = ".batch = " + std::to_string(batch) + ", .lanes = " + std::to_string(lanes) +
                          ", .samples = " + std::to_string(batch * one_of({1, 2}) + last) +
                          ", .steps = 4, .seed = " + std::to_string(seed);
        out += one_of({std::string{""}, {", .rate = 0.02"}, {", .rate = 0.1"}});
        if (chance(50)) out += ", .threads = 2";
        out +=
            one_of({std::string{""}, {", .bucket = 1"}, {", .bucket = 3000"}, {", .bucket = 60"}, {", .bucket = 500"}});
        const bool overlaps = chance(75);
        if (!overlaps) out += ", .overlap = false";
        out += flag("progress_thread", overlaps && chance(20)) + flag("prefetch", chance(30));
        switch (below(5)) {
            case 0:
                return out + ", .transport = transport::messages";
            case 1:
                return out + ", .transport = transport::shared_memory";
            case 2:
                return out + ", .all_reduce = \"tree:0-max\"";
            case 3:
                // Doubling takes a power of two of ranks with as many lanes each, and the tree any.
                return out + (lanes == 4 || lanes == 8 ? ", .all_reduce = \"doubling:0-max\""
                                                       : ", .all_reduce = \"tree:0-max\"");
            default:
                return out;
        }
    }

    lockstep::core::random_stream random_;
    std::uint64_t at_ = 0;
    std::size_t shards_ = 1;
    std::size_t nodes_ = 0;
};

}  // namespace

namespace {

/// For choosing seeds: what a network has, a line for each.
int features(std::uint64_t seed) {
    const recipe of = generator{seed}.draw(seed);
    for (const std::string& one :
         networks::features_of(networks::parse(print(of.net, "")), of.loss, of.optimizer, of.settings, of.shards))
        std::cout << one << "\n";
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        if (count == 3 && std::string_view{arguments[1]} == "--features") return features(std::stoull(arguments[2]));
        if (count != 2 && count != 3)
            throw std::runtime_error("generate SEED [file] writes the source of a random network");
        const std::uint64_t seed = std::stoull(arguments[1]);
        const std::string text = generator{seed}.file(seed);
        if (count == 2) {
            std::cout << text << std::flush;
            return std::cout ? 0 : 1;
        }
        // What stays as it is is not compiled again.
        if (std::ostringstream old; old << std::ifstream{arguments[2]}.rdbuf() && old.str() == text) return 0;
        std::ofstream file{arguments[2]};
        file << text << std::flush;
        if (!file) throw std::runtime_error(std::string{"cannot write "} + arguments[2]);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "generate: %s\n", error.what());
        return 1;
    }
}
