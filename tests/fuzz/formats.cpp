// SPDX-License-Identifier: BSD-3-Clause
// Readers of JSON, safetensors, .npy, CSV and PGM files, and of lists of arrivals and choices.
#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats_oracle.hpp"
#include "lockstep/compress/choice_list.hpp"
#include "lockstep/data/csv.hpp"
#include "lockstep/files/image.hpp"
#include "lockstep/files/json.hpp"
#include "lockstep/files/npy.hpp"
#include "lockstep/files/safetensors.hpp"
#include "lockstep/sync/arrivals.hpp"
#include "oracle.hpp"
#include "readers.hpp"
#include "trial.hpp"

namespace lockstep::fuzz {

namespace {

/// The text that node::canonical() makes, from what the reader says.
void transcribe(files::json_reader& in, std::string& out) {
    const auto named = [&](const std::string& name) {
        out += "," + std::to_string(name.size()) + ":" + name;
        transcribe(in, out);
    };
    switch (in.kind()) {
        case files::json_kind::null:
            in.null();
            out += 'n';
            break;
        case files::json_kind::boolean:
            out += in.boolean() ? 't' : 'f';
            break;
        case files::json_kind::number: {
            const double value = in.real();
            out += '0';
            out.append(reinterpret_cast<const char*>(&value), sizeof value);
            break;
        }
        case files::json_kind::string: {
            const std::string text = in.string();
            out += "\"" + std::to_string(text.size()) + ":" + text;
            break;
        }
        case files::json_kind::array:
            out += '[';
            in.array([&] { named({}); });
            break;
        case files::json_kind::object:
            out += '{';
            in.object(named);
            break;
    }
    out += ';';
}

}  // namespace

int fuzz_json(std::span<const std::byte> bytes) {
    const trial here{"json", bytes};
    const auto read = here.run(
        [&] {
            files::json_reader in{text_of(bytes), "text"};
            std::string out;
            transcribe(in, out);
            in.end();
            return out;
        },
        20 * bytes.size());
    const auto right = json_oracle{text_of(bytes)}.run();
    here.require(read.has_value(), right.has_value());
    if (read && *read != right->canonical()) here.wrong("it has another value");
    return read ? 1 : 0;
}

int fuzz_safetensors(std::span<const std::byte> bytes) {
    const trial here{"safetensors", bytes};
    const std::string path = scratch::here().write("net.safetensors", text_of(bytes));
    const auto read = here.run([&] { return files::safetensors_file{path}; }, bytes.size());
    // A sanitizer sees the end of a vector, not that of a file that is mapped.
    const std::vector<std::byte> copy(bytes.begin(), bytes.end());
    const auto parsed = here.run([&] { return files::parse_safetensors(copy, copy.size(), "copy"); }, bytes.size());
    const auto right = right_safetensors(text_of(bytes));
    here.require(read.has_value(), right.has_value());
    here.require(parsed.has_value(), right.has_value());
    if (!read) return 0;
    if (read->layout().tensors.size() != right->size()) here.wrong("it has another number of tensors");
    for (const auto& one : read->layout().tensors) {
        const auto found = right->find(one.name);
        if (found == right->end() || found->second.first != files::name_of(one.type))
            here.wrong("it has another tensor");
        if (text_of(read->bytes(one)) != found->second.second) here.wrong("it has other numbers");
    }
    return 1;
}

int fuzz_npy(std::span<const std::byte> bytes) {
    const trial here{"npy", bytes};
    const std::string path = scratch::here().write("x.npy", text_of(bytes));
    const auto read = here.run([&] { return files::npy_file{path}; }, bytes.size());
    const std::vector<std::byte> copy(bytes.begin(), bytes.end());
    const auto parsed = here.run([&] { return files::parse_npy(copy, copy.size(), "copy"); }, bytes.size());
    const auto right = right_npy(text_of(bytes));
    here.require(read.has_value(), right.has_value());
    here.require(parsed.has_value(), right.has_value());
    if (!read) return 0;
    if (files::about(read->type()).npy != right->type || text_of(read->bytes()) != right->bytes ||
        !std::ranges::equal(read->shape(), right->shape))
        here.wrong("it has another array");
    std::vector<float> numbers(read->count());
    read->read<float>(0, numbers);
    return 1;
}

int fuzz_csv(std::span<const std::byte> bytes) {
    const trial here{"csv", bytes};
    const std::string path = scratch::here().write("x.csv", text_of(bytes));
    const unpacked held = unpack(text_of(bytes), oracle_limit);
    const auto read =
        here.run([&] { return data::csv<tensor::shape<2>, tensor::classes<3>>{path}; }, held.content.size());
    if (held.too_long) return read ? 1 : 0;
    const auto right = held.valid ? right_csv(held.content) : std::nullopt;
    here.require(read.has_value(), right.has_value());
    if (!read) return 0;
    if (read->size() != right->size()) here.wrong("it has another number of samples");
    for (std::uint64_t s = 0; s < read->size(); ++s) {
        std::array<double, 2> x{};
        std::int32_t y = -1;
        read->read<double>({&s, 1}, {x.data(), 1}, {&y, 1});
        const auto& row = (*right)[s];
        if (x[0] != row[0] || x[1] != row[1] || y != static_cast<std::int32_t>(row[2]))
            here.wrong("it has another number");
    }
    return 1;
}

int fuzz_arrivals(std::span<const std::byte> bytes) {
    const trial here{"arrivals", bytes};
    const auto read = here.run([&] { return sync::arrival_list::parse(text_of(bytes)); }, 8 * bytes.size());
    auto right = right_triples(text_of(bytes), 4);  // and a minibatch
    std::vector<sync::arrival> entries;
    for (std::size_t i = 0; right && i < right->size(); ++i) {
        const auto& words = (*right)[i];
        const auto learner = decimal(words[0], UINT64_MAX), version = decimal(words[1], UINT64_MAX);
        const auto time = words[2].starts_with('+') ? std::nullopt : csv_value(words[2]);
        const auto minibatch = words.size() < 4 ? sync::arrival::own_minibatch : decimal(words[3], UINT64_MAX);
        if (!learner || !version || !time || !minibatch)
            right.reset();
        else
            entries.push_back({*learner, *version, *time, *minibatch == i ? sync::arrival::own_minibatch : *minibatch});
    }
    here.require(read.has_value(), right.has_value());
    if (!read) return 0;
    const auto same = [](const sync::arrival& a, const sync::arrival& b) {
        return a.learner == b.learner && a.version == b.version && a.time == b.time && a.minibatch == b.minibatch;
    };
    if (!std::ranges::equal(read->entries, entries, same)) here.wrong("it has another arrival");
    return 1;
}

int fuzz_choices(std::span<const std::byte> bytes) {
    const trial here{"choices", bytes};
    const auto read = here.run([&] { return compress::choice_list::parse(text_of(bytes)); }, 8 * bytes.size());
    auto right = right_triples(text_of(bytes));
    std::vector<compress::compressor_choice> entries;
    std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
    for (std::size_t i = 0; right && i < right->size(); ++i) {
        const auto& words = (*right)[i];
        const auto step = decimal(words[0], UINT64_MAX), layer = decimal(words[1], UINT64_MAX),
                   candidate = decimal(words[2], UINT64_MAX);
        if (!step || !layer || !candidate || (!entries.empty() && *step < entries.back().step) ||
            !seen.emplace(*step, *layer).second)
            right.reset();
        else
            entries.push_back({*step, *layer, *candidate});
    }
    here.require(read.has_value(), right.has_value());
    if (read && read->entries != entries) here.wrong("it has another choice");
    return read ? 1 : 0;
}

int fuzz_netpbm(std::span<const std::byte> bytes) {
    const trial here{"netpbm", bytes};
    const auto read = here.run(
        [&] {
            std::vector<std::uint8_t> out(6);
            files::netpbm().decode(bytes, "x.pgm", {3, 2, 1}, out);
            return std::string{out.begin(), out.end()};
        },
        bytes.size());
    const auto right = right_pgm(text_of(bytes));
    here.require(read.has_value(), right.has_value());
    if (read && *read != *right) here.wrong("it has another pixel");
    return read ? 1 : 0;
}

}  // namespace lockstep::fuzz
