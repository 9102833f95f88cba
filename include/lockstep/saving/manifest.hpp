// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// manifest.json of a checkpoint: what it is of, and sums by which damage is found. It is written last: a folder without
// one is no checkpoint.
// Tested by tests/unit/saving/manifest.cpp.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/files/json.hpp"
#include "lockstep/saving/network_text.hpp"
#include "lockstep/saving/progress.hpp"

namespace lockstep::saving {

/// A line of a recipe: name and value (train/recipe.hpp).
using recipe_lines = std::vector<std::pair<std::string, std::string>>;

/// Of errors in a checkpoint that was changed, cut off or lost in part.
inline constexpr std::string_view damage_remedy = "delete its folder, and resume takes an earlier one";

struct manifest {
    static constexpr std::uint64_t newest_version = 1;
    /// Bytes of a block of the file that has a sum of its own.
    static constexpr std::uint64_t usual_block = std::uint64_t{16} << 20U;

    std::uint64_t version = newest_version;
    progress at;
    recipe_lines recipe;
    std::uint64_t file_bytes = 0;
    std::uint64_t block_bytes = usual_block;
    std::vector<std::uint32_t> sums;

    /// Of the recipe.
    [[nodiscard, gnu::cold]] std::uint64_t recipe_hash() const;
    [[nodiscard, gnu::cold]] std::string text() const;
    /// Throws core::error where the text is not that of a manifest that this version reads. `path` is for errors.
    [[nodiscard, gnu::cold]] static manifest read(std::string_view text, const std::string& path);
};

/// Throws core::error that names every line in which two recipes differ. A name in `may_change` is left out.
[[gnu::cold]] void require_same_recipe(const recipe_lines& stored, const recipe_lines& now,
                                       const std::vector<std::string>& may_change, const std::string& path);

#if LOCKSTEP_BODIES

namespace detail {

/// The last member of a manifest: a hash of all text before it.
inline constexpr std::string_view sum_begin = ",\"sum\":\"";

[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION std::uint64_t sum_of(std::string_view text) {
    return core::hash(std::as_bytes(std::span{text.data(), text.size()}));
}

}  // namespace detail

LOCKSTEP_FUNCTION std::uint64_t manifest::recipe_hash() const {
    std::string all;
    for (const auto& [name, value] : recipe) all += core::text(name, "=", value, "\n");
    return core::hash(std::as_bytes(std::span{all}));
}

LOCKSTEP_FUNCTION std::string manifest::text() const {
    files::json_writer out;
    out.begin_object().key("format").value("lockstep checkpoint").key("version").value(version);
    out.key("step").value(at.steps).key("epoch").value(at.epoch).key("position").value(at.position);
    out.key("samples").value(at.samples).key("samples_of_data_set").value(at.set);
    // These came later, and may be absent.
    if (at.position > 0 && at.epoch_loss) out.key("loss_of_epoch").value(*at.epoch_loss);
    if (at.position > 0 && at.loss_samples) out.key("samples_of_loss").value(*at.loss_samples);
    if (at.best_epoch > 0) out.key("best_epoch").value(at.best_epoch).key("best_loss").value(at.best_loss);
    if (at.best_step > 0) out.key("best_step").value(at.best_step);
    out.key("recipe_hash").value(core::hexadecimal(recipe_hash())).key("recipe").begin_object();
    for (const auto& [name, value] : recipe) out.key(name).value(value);
    out.end_object().key("file").begin_object().key("name").value("state.safetensors").key("bytes").value(file_bytes);
    out.key("block_bytes").value(block_bytes).key("crc32").begin_array();
    for (const std::uint32_t one : sums) out.value(one);
    out.end_array().end_object().end_object();
    std::string text = out.text();
    text.pop_back();  // its last bracket
    return core::text(text, detail::sum_begin, core::hexadecimal(detail::sum_of(text)), "\"}\n");
}

LOCKSTEP_FUNCTION manifest manifest::read(std::string_view text, const std::string& path) {
    manifest out;
    out.version = 0;
    std::string format, hash;
    files::json_reader in{text, path, 0, damage_remedy};
    const auto natural = [&](std::uint64_t& to) { to = in.natural(); };
    in.object([&](const std::string& key) {
        if (key == "format") return void(format = in.string());
        if (key == "version") return natural(out.version);
        if (key == "step") return natural(out.at.steps);
        if (key == "epoch") return natural(out.at.epoch);
        if (key == "position") return natural(out.at.position);
        if (key == "samples") return natural(out.at.samples);
        if (key == "samples_of_data_set") return natural(out.at.set);
        if (key == "loss_of_epoch") return void(out.at.epoch_loss = in.real());
        if (key == "samples_of_loss") return natural(out.at.loss_samples.emplace());
        if (key == "best_epoch") return natural(out.at.best_epoch);
        if (key == "best_loss") return void(out.at.best_loss = in.real());
        if (key == "best_step") return natural(out.at.best_step);
        if (key == "recipe_hash") return void(hash = in.string());
        if (key == "recipe")
            return in.object([&](const std::string& name) { out.recipe.push_back({name, in.string()}); });
        if (key != "file") return in.skip();
        in.object([&](const std::string& of) {
            if (of == "bytes") return natural(out.file_bytes);
            if (of == "block_bytes") return natural(out.block_bytes);
            if (of != "crc32") return in.skip();
            in.array([&] { out.sums.push_back(static_cast<std::uint32_t>(in.natural())); });
        });
    });
    in.end();
    if (format != "lockstep checkpoint")
        core::fail(core::text(path, " is no manifest of a checkpoint"), "name the folder that a run wrote");
    if (out.version == 0 || out.version > newest_version)
        core::fail(core::text(path, " has version ", out.version, ", this library reads up to ", newest_version),
                   "use the version of lockstep that wrote it, or a newer one");
    const std::size_t end = text.rfind(detail::sum_begin);
    const std::string_view before = text.substr(0, end);
    if (end == text.npos ||
        !text.substr(end + detail::sum_begin.size()).starts_with(core::hexadecimal(detail::sum_of(before))) ||
        out.block_bytes == 0 || (out.at.position > 0 && out.at.position >= out.at.set) ||
        out.sums.size() != out.file_bytes / out.block_bytes + (out.file_bytes % out.block_bytes != 0) ||
        hash != core::hexadecimal(out.recipe_hash()))
        core::fail(core::text(path, " contradicts itself: it was changed"), damage_remedy);
    return out;
}

LOCKSTEP_FUNCTION void require_same_recipe(const recipe_lines& stored, const recipe_lines& now,
                                           const std::vector<std::string>& may_change, const std::string& path) {
    const auto value_in = [](const recipe_lines& lines, const std::string& name) {
        for (const auto& [key, value] : lines)
            if (key == name) return value;
        return std::string{"nothing"};
    };
    const auto may = [&](const std::string& name) {
        for (const std::string& one : may_change)
            if (one == name) return true;
        return false;
    };
    for (const std::string& name : may_change)
        if (value_in(stored, name) == "nothing" && value_in(now, name) == "nothing") {
            std::string known;
            for (const auto& [key, value] : now) known += core::text(known.empty() ? "" : ", ", key);
            core::fail(core::text("a resume was allowed to change \"", core::excerpt(name), "\", which no recipe has"),
                       core::text("name lines of the recipe: ", known));
        }
    std::string differ, remedy, names;  // also of what may change: who allows more names gives all of them
    bool others_differ = false;
    const auto is_number = [](const std::string& text) { return text.find_first_not_of("0123456789") == text.npos; };
    const auto add = [&](const std::string& name) {
        // Arrays of workers do not fit another number of them, whatever is allowed.
        const bool are_workers =
            name == "workers" && is_number(value_in(stored, name)) && is_number(value_in(now, name));
        if (!are_workers || may(name)) names += core::text(names.empty() ? "" : ", ", name);
        if (may(name)) return;
        differ += core::text(differ.empty() ? "" : "; ", name, " is ", value_in(stored, name), " there and ",
                             value_in(now, name), " here");
        others_differ = others_differ || !are_workers;
        if (are_workers)
            remedy = core::text("set .workers = ", value_in(stored, name),
                                " in the plan: without it there is a worker for each rank");
    };
    for (const auto& [name, value] : stored)
        if (value_in(now, name) != value && !(name == "network" && is_of_network(value, value_in(now, name))))
            add(name);
    for (const auto& [name, value] : now)
        if (value_in(stored, name) == "nothing") add(name);
    if (others_differ)
        remedy += core::text(remedy.empty() ? "" : "; then ",
                             "resume with the plan that wrote it, or allow the change by name: ", names);
    if (!differ.empty()) core::fail(core::text(path, " is of another recipe: ", differ), remedy);
}

#endif

}  // namespace lockstep::saving
