// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/tensor/shape.hpp"

#include <catch2/catch.hpp>

namespace tensor = lockstep::tensor;
using tensor::shape;

TEST_CASE("tensor/shape: extents, rank and size", "[tensor]") {
    static_assert(shape<28, 20, 3>::rank == 3 && shape<28, 20, 3>::size == 1680);
    static_assert(shape<28, 20, 3>::extents == std::array<std::size_t, 3>{28, 20, 3});
    static_assert(shape<10>::rank == 1 && shape<10>::size == 10);
    // More elements than an int can count.
    static_assert(shape<65536, 65536>::size == 4294967296ULL);
    CHECK(tensor::to_text<shape<28, 20, 3>>() == "28x20x3");
    CHECK(tensor::to_text<shape<10>>() == "10");
}

TEST_CASE("tensor/shape: images have three extents, rows of features one", "[tensor]") {
    STATIC_REQUIRE(tensor::Shape<shape<1>> && tensor::Shape<shape<2, 3>> && !tensor::Shape<int>);
    STATIC_REQUIRE(tensor::ImageShape<shape<4, 4, 1>> && !tensor::ImageShape<shape<4, 4>> &&
                   !tensor::ImageShape<shape<16>>);
    STATIC_REQUIRE(tensor::FlatShape<shape<16>> && !tensor::FlatShape<shape<4, 4>> && !tensor::FlatShape<double>);
}
