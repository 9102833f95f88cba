// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/compress/two_sided.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "by_hand.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/top_k.hpp"
#include "reference_quantisers.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEST_CASE("compress/two_sided: 1-bit SGD both ways is that of the formulas", "[compress]") {
    using compressor = two_sided<error_feedback<one_bit>>;
    STATIC_REQUIRE(Compressor<compressor> && has_seal<compressor, double> &&
                   !has_seal<error_feedback<one_bit>, double>);
    constexpr std::size_t n = reference::rows * reference::columns;
    const auto& expected = reference::one_bit_both_ways;
    const origin tensor{.rows = reference::rows, .columns = reference::columns};
    std::vector<channel<double, compressor>> workers(reference::voters, {{}, n, tensor});
    const compressor& one = workers[0].compressor;
    REQUIRE(shared_slots_of(one) == 1);
    std::vector<double> shared(n);
    for (std::size_t step = 0; step < expected.sums.size(); ++step) {
        std::vector<double> sum(n), values(n), sealed(max_bytes_at<double>(one, n, step, tensor) / 8 + 2, 88.0);
        for (std::size_t worker = 0; worker < workers.size(); ++worker) {
            for (std::size_t i = 0; i < n; ++i)
                values[i] = reference_number<double>((step * workers.size() + worker) * n + i);
            const auto message = workers[worker].encode(values);
            CHECK(message.size() == (n + 7) / 8 + 16 * reference::columns);
            one.decode_add(message, 1.0, std::span{sum});
        }
        const std::vector<double> before = sum, old = shared;
        one.seal(sealing<double>{.sum = sum,
                                 .state = {shared.data(), 1, n, n},
                                 .message = std::as_writable_bytes(std::span{sealed}.first(sealed.size() - 1)),
                                 .scratch = {},
                                 .step = step,
                                 .from = tensor});
        CHECK(sealed.back() == 88.0);
        for (std::size_t i = 0; i < n; ++i) {
            CHECK(sum[i] == Approx(expected.sums[step][i]).epsilon(1e-12).margin(1e-12));
            CHECK(shared[i] == before[i] + old[i] - sum[i]);
        }
    }
    for (std::size_t i = 0; i < n; ++i) {
        CHECK(workers[1].slots[i] == Approx(expected.residual[i]).epsilon(1e-12).margin(1e-12));
        CHECK(shared[i] == Approx(expected.back[i]).epsilon(1e-12).margin(1e-12));
    }
}

TEST_CASE("compress/two_sided: around a sparsifier the sum is sparse again", "[compress]") {
    const two_sided one{error_feedback{top_k{.ratio = 0.1}}};
    constexpr std::size_t n = 100;
    const auto values = normals<float>(n, 3);
    std::vector<float> sum = values, shared(n), scratch(scratch_size<float>(one, n)),
                       sealed(max_bytes_at<float>(one, n, 0, {}) / 4 + 1);
    one.seal(sealing<float>{.sum = sum,
                            .state = {shared.data(), 1, n, n},
                            .message = std::as_writable_bytes(std::span{sealed}),
                            .scratch = scratch});
    CHECK(sum == by_sorting(values, 10));
    for (std::size_t i = 0; i < n; ++i) CHECK(sum[i] + shared[i] == values[i]);
    CHECK(one.settings() == "inner=error_feedback(inner=top_k(ratio=0.1))");
    CHECK_THROWS_AS((two_sided{error_feedback{top_k{.ratio = 0}}}.check()), core::error);
    CHECK(is_dense(one, {1, 9}));
}
