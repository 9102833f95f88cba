// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/partition/redistribution.hpp"

#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

namespace ls = lockstep;
namespace partition = lockstep::partition;

TEST_CASE("partition/redistribution: joining and cutting features are inverse to one another", "[partition]") {
    for (const std::size_t rows : {0, 1, 3, 7})
        for (const std::size_t blocks : {1, 2, 3, 5})
            for (const std::size_t width : {1, 4, 6}) {
                std::vector<float> cut(rows * blocks * width);
                std::iota(cut.begin(), cut.end(), 1.0F);
                std::vector<float> whole(cut.size(), -1), again(cut.size(), -1);
                partition::join_features(rows, blocks, width, cut.data(), whole.data());
                for (std::size_t row = 0; row < rows; ++row)
                    for (std::size_t feature = 0; feature < blocks * width; ++feature)
                        REQUIRE(whole[row * blocks * width + feature] ==
                                cut[(feature / width * rows + row) * width + feature % width]);
                partition::cut_features(rows, blocks, width, whole.data(), again.data());
                REQUIRE(again == cut);
            }
}

TEST_CASE("partition/redistribution: a group of one rank keeps what it has, and sends nothing", "[partition]") {
    constexpr std::size_t rows = 5, features = 6;
    using kind = ls::model::redistribution;
    for (const auto what : {kind::gather_samples, kind::gather_features, kind::to_samples}) {
        partition::redistribution<double> between{what, ls::comm::group{}, features};
        between.prepare({{0, rows}});
        using memory = partition::redistribution_memory<double>;
        std::vector<double> staging(memory::staging_size(rows, features)), work(memory::work_size(rows, features));
        std::vector<double> from(rows * features), to(from.size()), gradient(from.size());
        std::iota(from.begin(), from.end(), 1.0);
        between.forward(from.data(), to.data(), {staging, work});
        CHECK(to == from);
        auto used = from;
        between.backward(used.data(), gradient.data(), {staging, work});
        CHECK(gradient == from);
        CHECK(between.forward_bytes() == 0);
        CHECK(between.backward_bytes() == 0);
    }
}
