// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Weights and running statistics of a network in a safetensors file: by name, for any number of ranks and other
// programs.
// Tested by tests/equivalence/weight_files.cpp.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// Throws core::error where the file is of another network, or holds arrays that this one does not have. What a
/// checkpoint holds beside weights is left out; a file of another program needs no text.
[[gnu::cold]] void require_network(const files::safetensors_layout& file, const weight_names& names,
                                   const std::string& path);

/// Throws core::error for a checkpoint in which each worker has weights of its own.
[[gnu::cold]] void require_one_set(const files::safetensors_layout& file, const weight_names& names,
                                   const std::string& path);

/// Fills all of both. Throws core::error with the array and both shapes.
template <class T>
[[gnu::cold]] void read_weights(const std::string& path, const weight_names& names, std::span<T> all,
                                std::span<T> statistics) {
    const files::safetensors_file from{path};
    require_network(from.layout(), names, path);
    require_one_set(from.layout(), names, path);
    const auto read = [&](const std::vector<named_array>& of, std::span<T> numbers) {
        for (const named_array& one : of) {
            const auto shape = shape_of(one);
            from.read<T>(one.name, shape, numbers.first(one.size() * one.shards));
            numbers = numbers.subspan(one.size() * one.shards);
        }
    };
    read(names.arrays.parameters, all);
    read(names.arrays.statistics, statistics);
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void require_network(const files::safetensors_layout& file, const weight_names& names,
                                       const std::string& path) {
    const auto text_of = [&](std::string_view key) {
        for (const auto& [name, text] : file.metadata)
            if (name == key) return std::string_view{text};
        return std::string_view{};
    };
    if (const std::string_view network = text_of("network");
        !network.empty() && !is_of_network(network, names.network, true))
        core::fail(core::text("\"", path, "\" has weights of the network ", network, ", this one is ", names.network),
                   "load the file that this network wrote");
    if (text_of("format") == "lockstep checkpoint") return;
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
                                       const std::string& path) {
    for (const auto& tensor : file.tensors)
        for (const named_array& one : names.arrays.parameters)
            if (const auto shape = shape_of(one); tensor.name == one.name && tensor.shape.size() == shape.size() + 1 &&
                                                  std::equal(shape.begin(), shape.end(), tensor.shape.begin() + 1))
                core::fail(core::text("\"", path, "\" has weights of ", tensor.shape.front(),
                                      " workers, as local SGD keeps them, and not one set"),
                           "resume a trainer from the checkpoint, and load the file of its save_weights(): their mean");
}

#endif

}  // namespace lockstep::saving
