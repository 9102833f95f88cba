// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/parts/packing.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/core/random.hpp"

using namespace lockstep;
using namespace lockstep::compress;

TEST_CASE("compress/packing: number i lies at bit i b, and nothing lies between", "[compress]") {
    const core::random_stream random{9, core::purpose::user};
    for (std::size_t bits = 1; bits <= 8; ++bits)
        for (std::size_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 101, 256}) {
            std::vector<std::uint8_t> codes(n);
            for (std::size_t i = 0; i < n; ++i) codes[i] = static_cast<std::uint8_t>(random.word(i) >> (32 - bits));
            const std::size_t bytes = packed_bytes(n, bits);
            REQUIRE(bytes == (n * bits + 7) / 8);

            std::vector<std::byte> packed(bytes + 8, std::byte{0xA5});
            pack(codes, bits, packed.data());
            for (std::size_t i = 0; i < 8; ++i) REQUIRE(packed[bytes + i] == std::byte{0xA5});
            for (std::size_t bit = 0; bit < bytes * 8; ++bit) {
                const bool is = (static_cast<unsigned>(packed[bit / 8]) >> (bit % 8) & 1U) != 0;
                const bool should = bit < n * bits && (codes[bit / bits] >> (bit % bits) & 1) != 0;
                REQUIRE(is == should);
            }

            std::vector<std::uint8_t> back(n + 1, 99);
            unpack(packed.data(), bits, std::span{back}.first(n));
            REQUIRE(back[n] == 99);
            back.pop_back();
            REQUIRE(back == codes);
        }
}
