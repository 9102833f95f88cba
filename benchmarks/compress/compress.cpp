// SPDX-License-Identifier: BSD-3-Clause
// GB/s of float gradient that compressors encode and decode on one core, segment by segment as a trainer calls them,
// and the part of it that reading alone takes.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/gaussian_top_k.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/sampled_top_k.hpp"
#include "lockstep/compress/threshold.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "measure.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::compress;

constexpr std::size_t total = std::size_t{1} << 22, segment = 65536;

struct options {
    std::string only;
    int repeats = 21;
};

constexpr const char* usage =
    R"(GB/s of float gradient, one JSON line for each case: median and best of all repeats, time on the core.

usage: compress [--case TEXT] [--repeats N]
)";

/// GB/s of `total` floats.
struct rates {
    double median = 0, best = 0;
};
template <class F>
rates rates_of(int repeats, F&& run) {
    run();
    std::vector<double> all;
    for (int i = 0; i < repeats; ++i) {
        const double start = benchmark::seconds(false);
        run();
        all.push_back(1e-9 * total * sizeof(float) / (benchmark::seconds(false) - start));
    }
    return {benchmark::median(all), *std::max_element(all.begin(), all.end())};
}

void print(const std::string& name, const rates& of, const rates& reading) {
    std::printf("{\"case\": \"%s\", \"gb_s\": %.2f, \"best_gb_s\": %.2f, \"fraction_of_reading\": %.3f}\n",
                name.c_str(), of.median, of.best, of.median / reading.median);
    std::fflush(stdout);
}

template <class C>
void measure(const options& given, const C& compressor, std::span<const float> gradient, const rates& reading) {
    const std::string name = std::string{C::name} + " " + compressor.settings();
    if (name.find(given.only) == std::string::npos) return;
    const std::size_t room = (compressor.template max_bytes<float>(segment) + 7) / 8;
    std::vector<std::uint64_t> words(room * (total / segment));
    std::vector<std::size_t> lengths(total / segment);
    std::vector<float> scratch(compress::scratch_size<float>(compressor, segment));
    const auto message = [&](std::size_t which) {
        return std::as_writable_bytes(std::span{words}.subspan(which * room, room));
    };
    print(name + ", encode",
          rates_of(given.repeats,
                   [&] {
                       for (std::size_t i = 0; i < total / segment; ++i)
                           lengths[i] =
                               compressor.encode(encoding<float>{.values = gradient.subspan(i * segment, segment),
                                                                 .message = message(i),
                                                                 .state = {},
                                                                 .scratch = scratch});
                   }),
          reading);
    benchmark::buffer<float> sum{total};
    print(name + ", decode_add",
          rates_of(given.repeats,
                   [&] {
                       for (std::size_t i = 0; i < total / segment; ++i)
                           compressor.decode_add(std::span<const std::byte>{message(i).first(lengths[i])}, 1.0F,
                                                 sum.all().subspan(i * segment, segment));
                   }),
          reading);
}

}  // namespace

int main(int argc, char** argv) {
    options given;
    for (int i = 1; i < argc; ++i) {
        const std::string key = argv[i];
        if (key == "--case" && i + 1 < argc)
            given.only = argv[++i];
        else if (key == "--repeats" && i + 1 < argc)
            given.repeats = std::max(1, std::atoi(argv[++i]));
        else
            return std::fputs(usage, key == "--help" ? stdout : stderr), key == "--help" ? 0 : 1;
    }
    benchmark::buffer<float> gradient{total};
    const core::random_stream random{1, core::purpose::user};
    for (std::size_t i = 0; i < total; ++i) gradient.all()[i] = static_cast<float>(random.normal(i));
    const std::span<const float> values = gradient.all();

    std::size_t found = 0;
    const rates reading = rates_of(given.repeats, [&] { found += kernels::first_non_finite(values); });
    if (found % total != 0) return 1;
    print("reading", reading, reading);
    measure(given, top_k{.ratio = 0.01}, values, reading);
    measure(given, top_k{.ratio = 0.001}, values, reading);
    measure(given, sampled_top_k{.ratio = 0.01}, values, reading);
    measure(given, gaussian_top_k{.ratio = 0.01}, values, reading);
    measure(given, threshold{.value = 2.5758, .most_share = 0.02}, values, reading);
    measure(given, chain{top_k{.ratio = 0.01}, quantize{}}, values, reading);
    measure(given, quantize{}, values, reading);
    return 0;
}
