// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Singular triples by chance: the same bits on any number of ranks, and after a resume on another one.
#include "lockstep/compress/atomo.hpp"

#include <boost/mpi/collectives/broadcast.hpp>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>

#include "equivalence/shared_folder.hpp"
#include "equivalence/support.hpp"
#include "lockstep/compress/any.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace {

using namespace support;

constexpr std::size_t steps = 9;
const samples<> training{190};

auto recipe(const ls::compress::any& compressor, std::size_t workers, std::size_t lanes, bool overlap = true) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .schedule = ls::optim::constant{.rate = 0.01},
                    .compressor = compressor,
                    .batch = 61,
                    .lanes = lanes,
                    .workers = workers,
                    .seed = 5,
                    .bucket = overlap ? 1U : 1U << 20U,
                    .overlap = overlap};
}

}  // namespace

TEST_CASE("equivalence/atomo: the same bits on 1, 2, 3, 4, 6 and 8 ranks, also in parts", "[equivalence]") {
    using ls::compress::any;
    using ls::compress::atomo;
    for (const any& one : {any{atomo{.atoms = 3}}, any{atomo{.atoms = 2, .columns = 16}}}) {
        INFO(one.settings());
        const ls::comm::group alone;
        ls::trainer whole{alone, recipe(one, 4, 8)};
        whole.fit(training.set(), ls::steps{steps});
        const std::uint64_t expected = whole.state_hash();
        const auto compare = [&](const mpi::communicator& group) {
            ls::trainer trainer{group, recipe(one, 4, 8, group.size() % 2 == 0)};
            trainer.fit(training.set(), ls::steps{steps});
            CHECK(trainer.state_hash() == expected);
        };
        on_groups({1, 3, 4}, compare);
        on_groups({2, 6}, compare);
        on_groups({8}, compare);

        const shared_folder folder;
        const int worlds[] = {3, 8, 1};
        for (std::size_t stage = 0; stage < 3; ++stage)
            on_groups({worlds[stage]}, [&](const mpi::communicator& group) {
                ls::trainer trainer{group, recipe(one, 4, 8)};
                if (stage > 0) trainer.resume(folder.path);
                trainer.fit(training.set(), ls::until_step{3 * (stage + 1)}, ls::checkpoint{folder.path, 3, 1});
                if (stage == 2) CHECK(trainer.state_hash() == expected);
            });
    }
}
