// SPDX-License-Identifier: BSD-3-Clause
#include "readers.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/collectives/algorithm_table.hpp"
#include "lockstep/data/cifar10.hpp"
#include "lockstep/data/gzip.hpp"
#include "lockstep/data/idx.hpp"
#include "lockstep/data/mnist.hpp"
#include "lockstep/planner/algorithm_file.hpp"
#include "oracle.hpp"
#include "trial.hpp"

namespace lockstep::fuzz {

namespace {

/// The first file is as long as the first four bytes say, modulo what there is.
std::pair<std::string_view, std::string_view> two_files(std::string_view bytes) {
    if (bytes.size() < 4) return {bytes, {}};
    const std::size_t first = big_endian(bytes, 0) % (bytes.size() - 3);
    return {bytes.substr(4, first), bytes.substr(4 + first)};
}

/// What a file holds, at most: of one that goes on beyond the limit only that deflate makes no more than 1032 bytes of
/// one.
std::size_t holds(const unpacked& file, std::string_view bytes) {
    return file.too_long ? 1032 * bytes.size() : file.content.size();
}
/// What a reader of this IDX file may take: what the header promises, if it is there.
std::size_t idx_holds(const unpacked& file, std::string_view bytes, std::size_t dimensions) {
    const auto extents = idx_extents(file.content, dimensions);
    if (!extents) return 0;
    double promised = 1;
    for (const std::uint64_t extent : *extents) promised *= static_cast<double>(extent);
    const std::size_t there = holds(file, bytes);
    return promised < static_cast<double>(there) ? static_cast<std::size_t>(promised) : there;
}
/// The oracle does not know whether the file ends where it should.
bool is_unknown(const unpacked& file, std::string_view bytes, std::size_t dimensions) {
    return file.too_long && idx_holds(file, bytes, dimensions) + 4 + 4 * dimensions >= oracle_limit;
}

template <class Set>
void compare(const trial& here, const Set& read, const samples& right, float mean, float deviation) {
    constexpr std::size_t size = Set::sample::size;
    if (read.size() != right.labels.size()) here.wrong("it has another number of samples");
    std::vector<std::uint64_t> rows(read.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<double> x(rows.size() * size);
    std::vector<std::int32_t> y(rows.size());
    if (!rows.empty()) read.template read<double>(rows, {x.data(), rows.size()}, y);
    for (std::size_t s = 0; s < rows.size(); ++s) {
        if (y[s] != right.labels[s]) here.wrong("it has another label");
        for (std::size_t p = 0; p < size; ++p) {
            const double byte = static_cast<unsigned char>(right.pixels[s][p]);
            const double should = (byte / 255 - static_cast<double>(mean)) / static_cast<double>(deviation);
            if (!(std::abs(x[s * size + p] - should) < 1e-12)) here.wrong("it has another pixel");
        }
    }
}

template <std::size_t Rows, std::size_t Columns, int Classes, class Make>
int images_and_labels(const trial& here, std::string_view first, std::string_view second, float mean, float deviation,
                      Make&& make) {
    const unpacked images = unpack(first, oracle_limit), labels = unpack(second, oracle_limit);
    const auto read = here.run(make, std::max(idx_holds(images, first, 3), idx_holds(labels, second, 1)));
    if (is_unknown(images, first, 3) || is_unknown(labels, second, 1)) return read ? 1 : 0;
    const auto right = idx_samples(images, labels, Rows, Columns, Classes);
    here.require(read.has_value(), right.has_value());
    if (read) compare(here, *read, *right, mean, deviation);
    return read ? 1 : 0;
}

/// Layers of a network that takes its algorithms from a file.
const std::vector<planner::convolution_layer>& layers() {
    static const std::vector<planner::convolution_layer> list{
        {.number = 0,
         .geometry = {.rows = 28, .columns = 30, .filters = 6, .kernel_rows = 5, .kernel_columns = 4},
         .input_learns = false},
        {.number = 4,
         .geometry = {.rows = 32,
                      .columns = 32,
                      .channels = 16,
                      .filters = 24,
                      .kernel_rows = 3,
                      .kernel_columns = 3,
                      .pad_top = 1,
                      .pad_left = 2,
                      .pad_right = 3},
         .input_learns = true}};
    return list;
}

/// The choices as text, by layer and pass; nothing if the file is not valid.
std::optional<std::map<std::string, std::string>> right_algorithms(std::string_view text) {
    if (text.size() > mebibyte) return {};
    std::map<std::string, std::string> out;
    // What stands after the last end of a line is a line if there is anything.
    auto lines = split(text, "\n", false);
    if (lines.back().empty()) lines.pop_back();
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::string& line = lines[i];
        if (!line.empty() && line.back() == '\r') line.pop_back();
        if (line.size() > 1000 || (i == 0 && line != "# lockstep algorithms 1")) return {};
        if (line.starts_with("#")) continue;
        const auto words = split(line, " \t", true);
        if (words.empty()) continue;
        if (words.size() < 6 || words[0] != "layer" || words[2] != "conv") return {};
        const auto number = decimal(words[1], UINT32_MAX);
        const bool first = number == 0;
        if (!first && number != 4) return {};
        if (words[3] != (first ? "28x30x1-5x4x6" : "32x32x16-3x3x24+1,2,0,3")) return {};
        const std::string &pass = words[4], &algorithm = words[5];
        if (pass != "forward" && pass != "backward_weights" && (first || pass != "backward_data")) return {};
        const bool winograd = algorithm == "winograd2" || algorithm == "winograd4" || algorithm == "winograd6";
        if (algorithm != "direct" && algorithm != "im2col" && (first || !winograd)) return {};
        std::string choice = algorithm;
        if (words.size() > 6) {
            if (words[6] != "micro" || pass == "backward_weights" || words.size() < 8 || words.size() > 15) return {};
            choice += " micro";
            for (std::size_t w = 7; w < words.size(); ++w) {
                const auto samples = decimal(words[w], UINT32_MAX);
                if (!samples || *samples == 0) return {};
                choice += " " + std::to_string(*samples);
            }
        }
        if (!out.emplace(std::to_string(*number) + " " + pass, choice).second) return {};
    }
    if (lines.empty() || out.size() != 5) return {};
    return out;
}

}  // namespace

int fuzz_gzip(std::span<const std::byte> bytes) {
    const trial here{"gzip", bytes};
    const std::string path = scratch::here().write("file", text_of(bytes));
    constexpr std::size_t most = 65'536;
    const unpacked right = unpack(text_of(bytes), most);
    const auto read = here.run([&] { return data::read_file(path, most); }, right.content.size());
    here.require(read.has_value(), right.valid);
    if (read && text_of(*read) != right.content) here.wrong("it has another content");
    return read ? 1 : 0;
}

int fuzz_idx(std::span<const std::byte> bytes) {
    const trial here{"idx", bytes};
    const auto [images, labels] = two_files(text_of(bytes));
    const std::string i = scratch::here().write("images", images), l = scratch::here().write("labels", labels);
    return images_and_labels<2, 3, 4>(here, images, labels, 0, 1, [&] { return data::idx<2, 3, 4>{i, l}; });
}

int fuzz_mnist(std::span<const std::byte> bytes) {
    const trial here{"mnist", bytes};
    const auto [images, labels] = two_files(text_of(bytes));
    (void)scratch::here().write("m-images-idx3-ubyte", images);
    (void)scratch::here().write("m-labels-idx1-ubyte", labels);
    return images_and_labels<28, 28, 10>(here, images, labels, 0.1307F, 0.3081F,
                                         [&] { return data::mnist{scratch::here().folder() + "/m"}; });
}

int fuzz_cifar10(std::span<const std::byte> bytes) {
    const trial here{"cifar10", bytes};
    if (bytes.empty()) return 0;
    const auto count = std::to_integer<std::size_t>(bytes[0]);
    const std::string_view file = text_of(bytes.subspan(1));
    (void)scratch::here().write("test_batch.bin", file);
    const unpacked held = unpack(file, oracle_limit);
    const auto read = here.run(
        [&] {
            return data::cifar10{scratch::here().folder(), data::part::test,
                                 count == 0 ? data::cifar10::everything : count};
        },
        std::min(holds(held, file), 60'000 * std::size_t{3073}));
    if (held.too_long) return read ? 1 : 0;
    const auto right = cifar_samples(held, count);
    here.require(read.has_value(), right.has_value());
    if (!read) return 0;
    if (read->size() != right->labels.size()) here.wrong("it has another number of pictures");
    std::vector<double> x(3072);
    for (std::uint64_t s = 0; s < read->size(); ++s) {
        std::int32_t y = -1;
        read->read<double>({&s, 1}, {x.data(), 1}, {&y, 1});
        if (y != right->labels[s]) here.wrong("it has another label");
        for (std::size_t pixel = 0; pixel < 1024; ++pixel)
            for (std::size_t colour = 0; colour < 3; ++colour) {
                const double byte = static_cast<unsigned char>(right->pixels[s][1024 * colour + pixel]);
                const double should = (byte / 255 - static_cast<double>(read->mean[colour])) /
                                      static_cast<double>(read->deviation[colour]);
                if (!(std::abs(x[3 * pixel + colour] - should) < 1e-12)) here.wrong("it has another pixel");
            }
    }
    return 1;
}

int fuzz_algorithms(std::span<const std::byte> bytes) {
    const trial here{"algorithms", bytes};
    const std::string path = scratch::here().write("algorithms", text_of(bytes));
    const auto read = here.run([&] { return planner::read_algorithms(planner::load_algorithms(path), path, layers()); },
                               bytes.size());
    const auto right = right_algorithms(text_of(bytes));
    here.require(read.has_value(), right.has_value());
    if (!read) return 0;
    for (std::size_t i = 0; i < layers().size(); ++i)
        for (const auto pass : kernels::convolution_passes)
            if (layers()[i].has(pass) &&
                to_text((*read)[i][pass]) != right->at(core::text(layers()[i].number, " ", name(pass))))
                here.wrong("it has another algorithm");
    return 1;
}

int fuzz_table(std::span<const std::byte> bytes) {
    const trial here{"table", bytes};
    const std::string_view text = text_of(bytes);
    const auto read = here.run([&] { return collectives::algorithm_table::parse(text); }, bytes.size());

    // Ranges from 0 to max without a gap, each with a known name.
    const std::set<std::string> known{"tree", "doubling", "hierarchical", "ring", "halving-doubling"};
    std::vector<std::pair<std::string, std::uint64_t>> right;
    bool valid = true;
    std::uint64_t next = 0;
    const auto parts = split(text, ";", false);
    for (std::size_t i = 0; i < parts.size() && valid; ++i) {
        const std::size_t colon = parts[i].find(':'),
                          dash = colon == std::string::npos ? colon : parts[i].find('-', colon);
        if (!(valid = dash != std::string::npos)) break;
        const auto first = decimal(parts[i].substr(colon + 1, dash - colon - 1), UINT64_MAX);
        const std::string end = parts[i].substr(dash + 1);
        const auto last = end == "max" ? std::optional{UINT64_MAX} : decimal(end, UINT64_MAX);
        valid = known.contains(parts[i].substr(0, colon)) && first == next && last && *last >= next &&
                (*last == UINT64_MAX) == (i + 1 == parts.size());
        if (valid) right.emplace_back(parts[i].substr(0, colon), *last), next = *last + 1;
    }
    here.require(read.has_value(), valid);
    if (!read) return 0;
    for (const auto& [name, last] : right)
        if (collectives::name_of(read->at(last)) != name) here.wrong("it has another algorithm");
    return 1;
}

int fuzz_self_test(std::string_view way) {
    const trial here{"self_test", {}};
    const auto read = here.run(
        [&] {
            if (way == "exception") throw std::runtime_error{"something else"};
            if (way == "message") throw core::error{"lockstep: without a remedy"};
            std::vector<char> taken(way == "memory" ? 20 * mebibyte : 0);
            return taken;
        },
        mebibyte);
    here.require(read.has_value(), false);
    return 0;
}

}  // namespace lockstep::fuzz

/// The first byte says which reader. Any fuzzer that calls this function can be linked: libFuzzer, AFL++, honggfuzz.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace lockstep::fuzz;
    if (size == 0 || size > mebibyte) return 0;
    const std::span bytes{reinterpret_cast<const std::byte*>(data), size};
    readers[data[0] % readers.size()].run(bytes.subspan(1));
    return 0;
}
