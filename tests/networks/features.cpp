// SPDX-License-Identifier: BSD-3-Clause
#include "networks/features.hpp"

#include <algorithm>
#include <cstddef>

#include "networks/naive.hpp"

namespace networks {

namespace {

bool is_branch(const std::string& name) {
    return name == "residual" || name == "add" || name == "concatenate" || name == "recompute";
}

struct collector {
    std::set<std::string> found;
    std::vector<std::string> around;  ///< the combinators that an item stands in

    /// Returns the shape after the items.
    extents list(const std::vector<item>& items, extents shape) {
        for (std::size_t i = 0; i < items.size(); ++i) {
            look(items[i], shape);
            const std::string next = i + 1 < items.size() ? items[i + 1].name : "";
            if (items[i].name == "batch_norm" && next == "relu") found.insert("batch_norm before relu");
            if (items[i].name == "residual" && items[i].inside.back().name == "batch_norm" && next == "relu")
                found.insert("batch_norm ends a residual before relu");
            shape = output_of(items[i], shape);
        }
        return shape;
    }
    void look(const item& one, const extents& shape) {
        if (one.name != "path") found.insert(one.name);
        for (const std::string& outer : around) found.insert(one.name + " inside " + outer);
        if (one.name == "flatten" && shape.size() == 1) found.insert("view of a row of features");
        if (one.name.find("conv") != std::string::npos) options_of(one);
        if (!is_branch(one.name) && one.name != "path") return;
        if (is_branch(one.name)) around.push_back(one.name);
        if (one.name == "add" || one.name == "concatenate") {
            std::vector<std::size_t> widths;
            for (const item& path : one.inside) {
                if (path.name == "path" && path.inside.empty()) found.insert("empty path of " + one.name);
                widths.push_back(output_of(path, shape).back());
                list({path}, shape);
            }
            if (widths.size() > 2) found.insert("three paths of " + one.name);
            const std::string what = shape.size() == 1 ? "concatenate of features: " : "concatenate of images: ";
            if (one.name == "concatenate" && *std::max_element(widths.begin(), widths.end()) > widths[0])
                found.insert(what + "a later path is wider");
            if (one.name == "concatenate" && widths.back() < widths[0]) found.insert(what + "the first path is wider");
        } else {
            list(one.inside, shape);
        }
        if (is_branch(one.name)) around.pop_back();
    }
    void options_of(const item& one) {
        for (const std::string_view rule :
             {"always_direct", "always_winograd2", "always_winograd4", "always_im2col", "tuned"})
            if (one.mentions(rule)) found.insert("convolution " + std::string{rule});
        if (one.mentions("rows_and_columns")) found.insert(one.name + " of a rectangle");
        const item* const named = one.named_options();
        if (named == nullptr) return;
        for (const item& option : named->inside)
            if (!option.inside.empty() || option.name == "none" || option.number > std::string{"1"})
                found.insert(one.name + " with " + option.field);
    }
};

}  // namespace

std::set<std::string> features_of(const item& net, const item& loss, const item& optimizer, std::string_view settings,
                                  std::size_t shards) {
    collector all;
    extents shape;
    for (const item& extent : net.inside.at(0).options) shape.push_back(extent.count());
    all.found.insert(shape.size() == 1 ? "input of features" : "input of images");
    all.list({net.inside.begin() + 1, net.inside.end()}, shape);
    all.found.insert(loss.name);
    for (const item* one : {&loss, &optimizer, optimizer.find("inner")}) {
        if (one == nullptr) continue;
        all.found.insert(one->name);
        for (const item& named : one->inside) all.found.insert(one->name + " " + named.field);
    }
    for (const std::string_view setting :
         {".threads = 2", ".bucket = 3000", ".bucket = 1,", ".overlap = false", ".progress_thread = true",
          ".prefetch = true", "transport::messages", "transport::shared_memory", "\"tree:", "\"doubling:"})
        if (settings.find(setting) != std::string_view::npos) all.found.insert(std::string{setting});
    all.found.insert("shards " + std::to_string(shards));
    return all.found;
}

std::vector<std::string> required_features() {
    std::vector<std::string> out{
        "input of features", "input of images", "view of a row of features",
        // layers
        "conv", "depthwise_conv", "conv_max_pool", "max_pool", "mean_pool", "global_mean_pool", "shortcut", "dense",
        "flatten", "dropout", "batch_norm", "layer_norm", "local_response_norm", "relu", "tanh", "sigmoid", "gelu",
        // their options
        "convolution always_direct", "convolution always_winograd2", "convolution always_winograd4",
        "convolution always_im2col", "convolution tuned", "conv of a rectangle", "conv with stride",
        "conv with padding", "conv with dilation", "conv with groups", "conv with bias", "depthwise_conv with stride",
        // what is computed together
        "batch_norm before relu", "batch_norm ends a residual before relu",
        // branches
        "three paths of add", "three paths of concatenate", "empty path of add", "empty path of concatenate",
        "concatenate of images: a later path is wider", "concatenate of images: the first path is wider",
        "concatenate of features: a later path is wider", "concatenate of features: the first path is wider",
        // recipes
        "softmax_cross_entropy", "softmax_cross_entropy smoothing", "mean_squared_error", "sgd", "momentum",
        "momentum nesterov", "adam", "weight_decay", "weight_decay decoupled", "shards 1", "shards 2", "shards 3",
        "shards 4", ".threads = 2", ".bucket = 3000", ".bucket = 1,", ".overlap = false", ".progress_thread = true",
        ".prefetch = true", "transport::messages", "transport::shared_memory", "\"tree:", "\"doubling:"};
    for (const std::string outer : {"residual", "add", "concatenate", "recompute"}) {
        for (const std::string inner :
             {"residual", "add", "concatenate", "recompute", "dropout", "batch_norm", "dense", "conv"})
            if (inner != "recompute" || outer != "recompute") out.push_back(inner + " inside " + outer);
    }
    return out;
}

}  // namespace networks
