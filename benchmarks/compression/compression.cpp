// SPDX-License-Identifier: BSD-3-Clause
// Speed of compressors on one core: gigabytes of float gradient encoded, and decoded and added, in a second.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/compress/half.hpp"
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/qsgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/scaled_sign.hpp"
#include "lockstep/compress/sign_vote.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/simd/random_words.hpp"
#include "measure.hpp"

namespace {

using namespace lockstep;

constexpr const char* usage =
    R"(Compressors on one core, one JSON line for each: GB/s of float gradient, the best and the median of all repeats,
and the best as a fraction of reading the gradient alone ("read", which is measured before each repeat).

usage: compression [--case TEXT] [--numbers N] [--columns N] [--repeats N]
  --case TEXT    only cases whose name contains TEXT
  --numbers N    of the gradient [1048576]
  --columns N    of its matrix [1024]
  --repeats N    measurements of each case [31]
)";

struct options {
    std::string only;
    std::size_t numbers = 1U << 20U, columns = 1024;
    std::size_t repeats = 31;
};

double bytes_of(std::size_t numbers) { return static_cast<double>(numbers) * sizeof(float); }

/// GB/s of reading the gradient alone: a sum that is not used.
double read(std::span<const float> values) {
    simd::batch<float> sum(0.0F);
    const double begin = benchmark::seconds(false);
    simd::map(
        values.size(), [&](const simd::batch<float>& value) { sum = max(sum, value); }, values.data());
    const double time = benchmark::seconds(false) - begin;
    std::array<float, simd::width<float>> kept;
    simd::store(kept.data(), sum);
    return bytes_of(values.size()) / time * 1e-9 + (kept[0] > 1e30F ? 1 : 0);
}

template <class F>
void measure(const options& given, std::span<const float> values, const std::string& name, const F& run) {
    if (name.find(given.only) == std::string::npos) return;
    run();
    std::vector<double> rates, reads;
    for (std::size_t repeat = 0; repeat < given.repeats; ++repeat) {
        reads.push_back(read(values));
        const double begin = benchmark::seconds(false);
        run();
        rates.push_back(bytes_of(values.size()) / (benchmark::seconds(false) - begin) * 1e-9);
    }
    const double best = *std::max_element(rates.begin(), rates.end()), median = benchmark::median(rates);
    std::printf("{\"case\": \"%s\", \"gb_per_s\": %.2f, \"best\": %.2f, \"of_read\": %.2f}\n", name.c_str(), median,
                best, median / benchmark::median(reads));
    std::fflush(stdout);
}

template <class C>
void compressor(const options& given, std::span<const float> values, const std::string& name, const C& which) {
    const std::size_t n = values.size();
    const compress::origin from{.rows = n / given.columns, .columns = given.columns};
    std::vector<std::uint64_t> message(compress::max_bytes_at<float>(which, n, 0, from) / 8 + 1);
    std::vector<float> sum(n), scratch(compress::scratch_size<float>(which, n));
    std::size_t bytes = 0;
    measure(given, values, name + " encode", [&] {
        bytes = which.encode(compress::encoding<float>{.values = values,
                                                       .message = std::as_writable_bytes(std::span{message}),
                                                       .state = {},
                                                       .scratch = scratch,
                                                       .from = from});
    });
    measure(given, values, name + " decode-add",
            [&] { which.decode_add(std::as_bytes(std::span{message}).first(bytes), 1.0F, std::span{sum}); });
}

template <class R>
void reduction(const options& given, std::span<const float> values, const std::string& name, const R& which) {
    using element = compress::element_of<R, float, 0>;
    const compress::matrix shape{values.size() / given.columns, given.columns};
    std::vector<element> elements(which.sizes(shape, 8).elements[0]);
    std::vector<float> mean(values.size());
    compress::worker_pass<float> worker{};
    worker.shape = shape;
    worker.workers = 8;
    worker.values = values;
    compress::shared_pass<float> all{};
    all.shape = shape;
    all.workers = 8;
    measure(given, values, name + " encode",
            [&] { which.encode(compress::round_number<0>{}, worker, std::span{elements}); });
    measure(given, values, name + " finish",
            [&] { which.finish(all, std::span<const element>{elements}, std::span{mean}); });
}

}  // namespace

int main(int argc, char** argv) {
    options given;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
        if (word == "--help" || value == nullptr) {
            std::fputs(usage, word == "--help" ? stdout : stderr);
            return word == "--help" ? 0 : 2;
        }
        ++i;
        if (word == "--case")
            given.only = value;
        else if (word == "--numbers")
            given.numbers = std::strtoull(value, nullptr, 10);
        else if (word == "--columns")
            given.columns = std::strtoull(value, nullptr, 10);
        else if (word == "--repeats")
            given.repeats = std::strtoull(value, nullptr, 10);
        else {
            std::fputs(usage, stderr);
            return 2;
        }
    }
    const benchmark::buffer<float> gradient{given.numbers, 7};
    const std::span<const float> values{gradient.data(), given.numbers};

    std::vector<std::uint32_t> words(given.numbers);
    measure(given, values, "random words", [&] {
        simd::random_words({1, core::purpose::rounding}, 0, std::span{words});
    });
    for (const std::size_t bits : {8, 4, 2}) {
        const std::string name = "quantize " + std::to_string(bits) + " bits";
        compressor(given, values, name, compress::quantize{.bits = bits});
        compressor(given, values, name + ", to nearest", compress::quantize{.bits = bits, .stochastic = false});
    }
    compressor(given, values, "qsgd 4 bits, l2", compress::qsgd{});
    compressor(given, values, "qsgd 4 bits, l2, elias", compress::qsgd{.coding = compress::level_coding::elias});
    compressor(given, values, "one_bit", compress::one_bit{});
    compressor(given, values, "one_bit, one column", compress::one_bit{.by_column = false});
    compressor(given, values, "scaled_sign", compress::scaled_sign{});
    reduction(given, values, "half", compress::half{});
    reduction(given, values, "half, stochastic", compress::half{.stochastic = true});
    reduction(given, values, "bfloat16", compress::bfloat16{});
    reduction(given, values, "bfloat16, stochastic", compress::bfloat16{.stochastic = true});
    reduction(given, values, "sign_vote", compress::sign_vote{});
    return 0;
}
