// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Weights and running statistics of a network in a safetensors file: by name, for any number of ranks and other
// programs.
// Tested by tests/equivalence/weight_files.cpp.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/replacement.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/files/safetensors.hpp"
#include "lockstep/saving/names.hpp"
#include "lockstep/saving/network_text.hpp"

namespace lockstep::saving {

/// The arrays of a weight file: parameters, then statistics, as they lie one after the other in all_weights() and
/// running_statistics() of a trainer. `network`: its text, which the file keeps.
struct weight_names {
    named_arrays arrays;
    std::string network;
};

/// A file that takes the place of an older one when all of it is on the disk. Throws core::error.
template <class T>
[[gnu::cold]] void write_weights(const std::string& path, const weight_names& names, std::span<const T> all,
                                 std::span<const T> statistics) {
    std::vector<files::tensor_bytes> tensors;
    const auto add = [&](const std::vector<named_array>& of, std::span<const T> numbers) {
        for (const named_array& one : of) {
            tensors.push_back(files::tensor_of<T>(one.name, shape_of(one), numbers.first(one.size() * one.shards)));
            numbers = numbers.subspan(one.size() * one.shards);
        }
    };
    add(names.arrays.parameters, all);
    add(names.arrays.statistics, statistics);
    core::replacement to{path};
    files::write_safetensors(to.writing(), tensors, {{"format", "lockstep weights"}, {"network", names.network}});
    to.commit_on_disk();
}

/// What a file says under a name; empty where it says nothing.
[[nodiscard, gnu::cold]] inline std::string_view metadata_of(const files::safetensors_layout& file,
                                                             std::string_view key) {
    for (const auto& [name, text] : file.metadata)
        if (name == key) return text;
    return {};
}

[[nodiscard, gnu::cold]] inline bool is_checkpoint(const files::safetensors_layout& file) {
    return metadata_of(file, "format") == "lockstep checkpoint";
}

/// Throws core::error where the file is of another network, or holds arrays that this one does not have. What a
/// checkpoint holds beside weights is left out; a file of another program needs no text.
[[gnu::cold]] void require_network(const files::safetensors_layout& file, const weight_names& names,
                                   const std::string& path);

/// Throws core::error for a checkpoint in which each worker has weights of its own. Looks at layers before number
/// `end`: others may be those of another network.
[[gnu::cold]] void require_one_set(const files::safetensors_layout& file, const weight_names& names,
                                   const std::string& path, std::size_t end = core::largest_size);

/// Throws core::error for numbers that are not finite, and for variances below 0.
template <class T>
[[gnu::cold]] void require_sound(const std::string& path, const named_array& of, std::span<const T> numbers) {
    const auto bad =
        std::ranges::find_if(numbers, [&](T one) { return !std::isfinite(one) || (of.is_square && one < 0); });
    if (bad != numbers.end())
        core::fail(
            core::text("\"", path, "\" has the number ", *bad, " at position ", bad - numbers.begin(), " of ", of.name),
            of.is_square ? "load variances that are finite and not below 0" : "load numbers that are finite");
}

/// Fills all of both, or those of layers before number `end`, whatever the file has of others. An array of one row may
/// have one extent or two; a statistic of a checkpoint has one, whatever its rows. Throws core::error with the array
/// and both shapes, and with what is no weight.
template <class T>
[[gnu::cold]] void read_weights(const std::string& path, const weight_names& names, std::span<T> all,
                                std::span<T> statistics, std::size_t end = core::largest_size) {
    const files::safetensors_file from{path};
    if (end == core::largest_size) require_network(from.layout(), names, path);
    require_one_set(from.layout(), names, path, end);
    const auto read = [&](const std::vector<named_array>& of, std::span<T> numbers, bool are_flat) {
        for (const named_array& one : of) {
            const auto to = numbers.first(one.size() * one.shards);
            numbers = numbers.subspan(to.size());
            if (one.layer >= end) continue;
            const std::size_t extents = from.at(one.name).shape.size();  // flat statistics do not tell their rows
            auto shape = are_flat && extents == 1 ? std::vector{to.size()} : shape_of(one);
            if (shape.size() == 1 && extents == 2) shape.insert(shape.begin(), 1);
            from.read<T>(one.name, shape, to);
            require_sound<T>(path, one, to);
        }
    };
    read(names.arrays.parameters, all, false);
    read(names.arrays.statistics, statistics, is_checkpoint(from.layout()));
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void require_network(const files::safetensors_layout& file, const weight_names& names,
                                       const std::string& path) {
    if (const std::string_view network = metadata_of(file, "network");
        !network.empty() && !is_of_network(network, names.network, true))
        core::fail(core::text("\"", path, "\" has weights of the network ",
                              network.substr(0, 2 * names.network.size() + 100), ", this one is ", names.network),
                   "load the file that this network wrote; a trainer also takes the first n layers alone, with "
                   "ls::layers_before{n}");
    if (is_checkpoint(file)) return;
    for (const auto& tensor : file.tensors) {
        bool is_known = false;
        for (const auto* all : {&names.arrays.parameters, &names.arrays.statistics})
            for (const named_array& one : *all) is_known = is_known || one.name == tensor.name;
        if (!is_known)
            core::fail(core::text("\"", path, "\" has an array \"", core::excerpt(tensor.name),
                                  "\", which this network does not have"),
                       "load the weights of this network, or take the array out of the file");
    }
}

LOCKSTEP_FUNCTION void require_one_set(const files::safetensors_layout& file, const weight_names& names,
                                       const std::string& path, std::size_t end) {
    if (!is_checkpoint(file)) return;
    for (const auto& tensor : file.tensors)
        for (const named_array& one : names.arrays.parameters) {
            if (one.layer >= end) continue;
            if (const auto shape = shape_of(one); tensor.name == one.name && tensor.shape.size() == shape.size() + 1 &&
                                                  std::equal(shape.begin(), shape.end(), tensor.shape.begin() + 1))
                core::fail(core::text("\"", path, "\" has weights of ", tensor.shape.front(),
                                      " workers, as local SGD keeps them, and not one set"),
                           "resume a trainer from the checkpoint, and load the file of its save_weights()");
        }
}

#endif

}  // namespace lockstep::saving
