// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/tensor/label.hpp"

#include <catch2/catch.hpp>

namespace tensor = lockstep::tensor;

TEST_CASE("tensor/label: a class is one number, a wanted output has the shape of the output", "[tensor]") {
    using tensor::classes, tensor::shape;
    STATIC_REQUIRE(tensor::Label<classes<10>> && tensor::Label<shape<3>> && !tensor::Label<int>);
    STATIC_REQUIRE(tensor::is_classes<classes<10>> && !tensor::is_classes<shape<10>>);
    STATIC_REQUIRE(tensor::label_size<classes<10>> == 1 && tensor::label_size<shape<3, 2>> == 6);
    STATIC_REQUIRE(std::is_same_v<tensor::label_element<classes<10>, float>, std::int32_t>);
    STATIC_REQUIRE(std::is_same_v<tensor::label_element<shape<3>, double>, double>);
    STATIC_REQUIRE(std::is_same_v<tensor::targets<classes<10>, float>, std::span<const std::int32_t>>);
    STATIC_REQUIRE(classes<10>::count == 10);
}

TEST_CASE("tensor/label: what to do about a label that no class has", "[tensor]") {
    CHECK(tensor::label_remedy(10, 10, "correct it").starts_with("labels count from 0: subtract 1"));
    CHECK(tensor::label_remedy(-1, 10, "correct it").starts_with("correct the label: classes count from 0"));
    CHECK(tensor::label_remedy(-0.5, 10, "correct it").starts_with("correct the label: classes count from 0"));
    CHECK(tensor::label_remedy(11U, 10, "correct it") == "correct it");
}
