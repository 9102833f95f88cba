// SPDX-License-Identifier: BSD-3-Clause
// Eigen then stops at an allocation where a test forbids it.
#define EIGEN_RUNTIME_NO_MALLOC
#include "lockstep/compress/atomo.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "atomo_reference.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
namespace reference = atomo_reference;

namespace {

/// As in atomo_reference.py.
template <class T>
std::vector<T> numbers(const matrix& shape, std::uint64_t seed) {
    constexpr std::uint64_t modulus = std::uint64_t{1} << 31U;
    std::vector<T> out(shape.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
        std::uint64_t x = (7919 * (seed + 1) + 104729 * i) % modulus;
        for (int turn = 0; turn < 3; ++turn) x = (1103515245 * x + 12345) % modulus;
        const double value = static_cast<double>(x) / (1U << 30U) - 1;
        out[i] = static_cast<T>(std::ldexp(value, -static_cast<int>(i / shape.columns % 5)));
    }
    return out;
}

template <class T>
struct message {
    std::vector<std::byte> bytes;
    std::vector<T> decoded;
    std::uint32_t atoms = 0;
};

template <class T>
message<T> send(const atomo& compressor, std::span<const T> values, const matrix& shape, std::uint32_t step = 0,
                std::uint32_t worker = 0) {
    const compress::origin from{.rows = shape.rows, .columns = shape.columns};
    const std::size_t most = compress::max_bytes_at<T>(compressor, shape.size(), step, from);
    std::vector<std::uint64_t> words(most / 8 + 3, 0xA5A5A5A5A5A5A5A5ULL);
    const auto room = std::as_writable_bytes(std::span{words});
    Eigen::internal::set_is_malloc_allowed(false);
    const std::size_t length =
        compressor.encode(encoding<T>{.values = values,
                                      .message = room.first(most),
                                      .state = {},
                                      .scratch = {},
                                      .random = core::random_stream{11, core::purpose::rounding, worker, step},
                                      .step = step,
                                      .from = from});
    Eigen::internal::set_is_malloc_allowed(true);
    REQUIRE(length <= most);
    CHECK(std::ranges::all_of(room.subspan(most), [](std::byte one) { return one == std::byte{0xA5}; }));
    message<T> out;
    out.bytes.assign(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(length));
    std::memcpy(&out.atoms, out.bytes.data(), sizeof(out.atoms));
    // From an odd address, and added twice with half of the weight to what is there.
    std::vector<std::byte> moved{std::byte{0}};
    moved.insert(moved.end(), out.bytes.begin(), out.bytes.end());
    out.decoded.assign(values.size(), T{0});
    for (int half = 0; half < 2; ++half)
        compressor.decode_add(std::span<const std::byte>{moved}.subspan(1), T{0.5}, std::span<T>{out.decoded});
    return out;
}

double squared_distance(const auto& a, const auto& b) {
    REQUIRE(a.size() == b.size());
    double out = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        out += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    return out;
}

template <std::size_t Count>
void check_singular(const matrix& shape, std::uint64_t seed, const double (&expected)[Count]) {
    // Each of two programs is right up to a few epsilons for each column.
    const double bound = 4 * static_cast<double>(Count) * std::numeric_limits<double>::epsilon() * expected[0];
    const auto found = atomo{}.singular_values(std::span<const double>{numbers<double>(shape, seed)}, shape);
    for (std::size_t i = 0; i < found.size(); ++i) {
        INFO("singular value " << i);
        CHECK(std::abs(found[i] - (i < Count ? expected[i] : 0)) <= bound);
    }
}

template <std::size_t Count>
void check_chances(const double (&singular)[Count], std::size_t atoms, const double (&expected)[Count]) {
    double found[Count], sum = 0;
    atomo::chances_of(singular, atoms, found);
    for (std::size_t i = 0; i < Count; ++i) {
        CHECK(std::abs(found[i] - expected[i]) <= 1e-14);
        sum += found[i];
    }
    CHECK(std::abs(sum - static_cast<double>(atoms)) <= 1e-13);
}

/// The mean over draws is the matrix, and one draw is as far from it as the formula says.
template <class T>
void check_draws(const atomo& compressor, const matrix& shape, std::uint64_t seed, double variance, bool is_equal) {
    constexpr std::uint32_t draws = 3000;
    const auto values = numbers<T>(shape, seed);
    std::vector<double> mean(values.size()), distances;
    for (std::uint32_t step = 0; step < draws; ++step) {
        const auto sent = send<T>(compressor, values, shape, step);
        REQUIRE(sent.atoms == compressor.atoms);
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(sent.decoded[i]) / draws;
        distances.push_back(squared_distance(sent.decoded, values));
    }
    // How often an atom is drawn is binomial: five standard deviations for each of them.
    CHECK(squared_distance(mean, values) <= 25 * variance / draws);
    if (!is_equal) return;
    double sum = 0, squares = 0;
    for (const double one : distances) sum += one, squares += one * one;
    const double average = sum / draws, deviation = std::sqrt(squares / draws - average * average);
    CHECK(std::abs(average - variance) <= 5 * deviation / std::sqrt(static_cast<double>(draws)));
}

}  // namespace

TEST_CASE("compress/atomo: singular values are those of NumPy", "[compress]") {
    check_singular({150, 9}, 1, reference::tall_singular);
    check_singular({6, 200}, 2, reference::wide_singular);
    check_singular({64, 64}, 3, reference::square_singular);
    check_singular({70, 100}, 4, reference::cut_singular);
}

TEST_CASE("compress/atomo: chances add up to the number of atoms, also where some are sure", "[compress]") {
    check_chances(reference::tall_singular, 1, reference::tall_chances_1);
    check_chances(reference::tall_singular, 3, reference::tall_chances_3);
    check_chances(reference::tall_singular, 5, reference::tall_chances_5);
    check_chances(reference::wide_singular, 1, reference::wide_chances_1);
    check_chances(reference::wide_singular, 3, reference::wide_chances_3);
    check_chances(reference::wide_singular, 5, reference::wide_chances_5);
    check_chances(reference::square_singular, 1, reference::square_chances_1);
    check_chances(reference::square_singular, 5, reference::square_chances_5);
    // More atoms than there are singular values, and none.
    const double two[] = {3, 1, 0, 0}, none[] = {0, 0, 0, 0};
    double found[4];
    atomo::chances_of(two, 3, found);
    for (std::size_t i = 0; i < 4; ++i) CHECK(found[i] == (i < 2 ? 1 : 0));
    atomo::chances_of(none, 3, found);
    for (const double one : found) CHECK(one == 0);
}

TEST_CASE("compress/atomo: unbiased, with the least variance", "[compress]") {
    check_draws<float>({.atoms = 3}, {150, 9}, 1, reference::tall_variance_3, true);
    check_draws<float>({.atoms = 5}, {150, 9}, 1, reference::tall_variance_5, true);
    check_draws<double>({.atoms = 1}, {150, 9}, 1, reference::tall_variance_1, true);
    check_draws<float>({.atoms = 3}, {6, 200}, 2, reference::wide_variance_3, true);
    check_draws<double>({.atoms = 1}, {6, 200}, 2, reference::wide_variance_1, true);
}

TEST_CASE("compress/atomo: unbiased in a matrix that is wider than what is decomposed", "[compress]") {
    const atomo compressor{.atoms = 2, .columns = 8};
    const matrix shape{20, 13};
    const auto values = numbers<double>(shape, 5);
    const auto singular = compressor.singular_values(std::span<const double>{values}, shape);
    double chances[8], variance = 0;
    atomo::chances_of(std::span{singular}.first(8), 2, chances);
    for (std::size_t i = 0; i < 8; ++i) variance += singular[i] * singular[i] * (1 / chances[i] - 1);
    // What is decoded beyond the end of the values is left out, so a draw may be nearer.
    check_draws<double>(compressor, shape, 5, variance, false);
}

TEST_CASE("compress/atomo: messages are as long as the formula says", "[compress]") {
    const auto bytes = [](std::size_t atoms, const matrix& shape) {
        const atomo compressor{.atoms = atoms};
        const auto values = numbers<float>(shape, 6);
        const auto sent = send<float>(compressor, values, shape);
        CHECK(sent.bytes.size() == compress::max_bytes_at<float>(compressor, shape.size(), 0,
                                                                 {.rows = shape.rows, .columns = shape.columns}));
        return sent.bytes.size();
    };
    CHECK(bytes(3, {150, 9}) == 8 + 4 * 3 * (150 + 9));
    CHECK(bytes(3, {6, 200}) == 8 + 4 * 3 * (6 + 200));
    CHECK(bytes(2, {500, 800}) == 8 + 4 * 2 * (6250 + 64));
    // Nothing is gained: all numbers as they are.
    CHECK(bytes(5, {9, 9}) == 8 + 4 * 81);
    CHECK(bytes(3, {1, 1}) == 8 + 4);
    CHECK(bytes(3, {0, 0}) == 8);
    const auto few = numbers<float>({9, 9}, 6);
    CHECK(send<float>({.atoms = 5}, few, {9, 9}).decoded == few);
}

TEST_CASE("compress/atomo: a matrix of few directions is sent as it is", "[compress]") {
    for (const matrix shape : {matrix{300, 20}, matrix{20, 300}, matrix{128, 128}}) {
        const std::size_t columns = shape.columns <= 64 || shape.rows <= 64 ? shape.columns : 64;
        std::vector<double> values(shape.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto row = static_cast<double>(i / columns), column = static_cast<double>(i % columns);
            values[i] = std::sin(row) * std::cos(column) + 0.25 * std::cos(2 * row) * std::sin(3 * column);
        }
        const auto sent = send<double>({.atoms = 3}, values, shape, 1);
        CHECK(squared_distance(sent.decoded, values) <= 1e-26 * static_cast<double>(values.size()));
    }
}

TEST_CASE("compress/atomo: zeros, and numbers that are not finite or very large", "[compress]") {
    const matrix shape{80, 12};
    const std::vector<float> zeros(shape.size());
    const auto nothing = send<float>({}, zeros, shape);
    CHECK(nothing.bytes.size() == 8);
    CHECK(nothing.decoded == zeros);
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        auto values = numbers<float>(shape, 7);
        values[77] = bad;
        CHECK(
            std::ranges::any_of(send<float>({}, values, shape).decoded, [](float one) { return !std::isfinite(one); }));
    }
    // Squares of these are no floats, and those of the others no doubles.
    auto large = numbers<float>(shape, 8);
    for (float& one : large) one *= 1e36F;
    CHECK(std::ranges::all_of(send<float>({}, large, shape).decoded, [](float one) { return std::isfinite(one); }));
    auto larger = numbers<double>(shape, 8);
    for (double& one : larger) one *= 1e300;
    CHECK(std::ranges::any_of(send<double>({}, larger, shape).decoded, [](double one) { return !std::isfinite(one); }));
}

TEST_CASE("compress/atomo: the draw belongs to worker and step", "[compress]") {
    const matrix shape{150, 9};
    const auto values = numbers<float>(shape, 9);
    const auto first = send<float>({}, values, shape, 3, 1);
    CHECK(send<float>({}, values, shape, 3, 1).bytes == first.bytes);
    // Of 64 other draws some are others.
    std::map<std::vector<std::byte>, int> of_steps, of_workers;
    for (std::uint32_t one = 0; one < 64; ++one) {
        ++of_steps[send<float>({}, values, shape, one, 1).bytes];
        ++of_workers[send<float>({}, values, shape, 3, one).bytes];
    }
    CHECK(of_steps.size() > 1);
    CHECK(of_workers.size() > 1);
}

TEST_CASE("compress/atomo: settings that make no sense", "[compress]") {
    const auto throws = [](const auto& compressor, const char* text) {
        CHECK_THROWS_WITH(compressor.check(), Catch::Contains(text));
    };
    throws(atomo{.atoms = 0}, "atomo has atoms = 0, so it would send nothing");
    throws(atomo{.columns = 1}, "atomo has columns = 1, outside 2 to 64");
    throws(atomo{.columns = 65}, "atomo has columns = 65, outside 2 to 64");
    throws(error_feedback{atomo{}}, "error_feedback around atomo leaves residuals");
    CHECK_NOTHROW(atomo{}.check());
    CHECK(atomo{}.settings() == "atoms=3 columns=64");
}
