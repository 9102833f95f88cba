// SPDX-License-Identifier: BSD-3-Clause
// ranks: 3
// Samples of files train the same bits as those in memory, on any number of ranks; so do the parts of a split.
#include <boost/serialization/string.hpp>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/data/csv.hpp"
#include "lockstep/data/mapped_npy.hpp"
#include "lockstep/data/split.hpp"
#include "unit/data/files.hpp"

namespace {

using namespace support;
namespace data = ls::data;

constexpr std::size_t count = 150;
const samples<> training{count};

template <class Ranks, class Set>
std::uint64_t hash_after(const Ranks& ranks, const Set& set) {
    ls::trainer trainer{ranks, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .schedule = ls::optim::constant{.rate = 0.02},
                                        .batch = 40,
                                        .seed = 42}};
    trainer.fit(set, ls::steps{7});
    (void)trainer.evaluate(set);
    return trainer.weights_hash();
}

/// Files in a folder of the first rank, which all ranks of this host read.
class shared_files {
public:
    shared_files() {
        std::string path = here_ / "";
        if (world_.rank() == 0) {
            ls::files::write_npy<float>(here_ / "x.npy", std::vector<std::size_t>{count, 12, 12}, training.x);
            ls::files::write_npy<std::int32_t>(here_ / "y.npy", std::vector<std::size_t>{count}, training.y);
            std::string text;
            for (std::size_t i = 0; i < count; ++i) {
                text += ls::core::text(training.y[i]);
                for (std::size_t p = 0; p < sample::size; ++p)
                    text += ls::core::text(",", training.x[i * sample::size + p]);
                text += "\n";
            }
            here_.write("x.csv", text);
        }
        boost::mpi::broadcast(world_, path, 0);
        path_ = path;
    }
    ~shared_files() { world_.barrier(); }
    [[nodiscard]] auto mapped() const { return data::mapped_npy<sample, label>{path_ + "/x.npy", path_ + "/y.npy"}; }
    [[nodiscard]] auto csv() const {
        return data::csv<sample, label>{path_ + "/x.csv", {.header = false, .labels = {0}}};
    }

private:
    mpi::communicator world_;
    ls::test::directory here_;
    std::string path_;
};

}  // namespace

TEST_CASE("equivalence/data_files: .npy and CSV files train as memory does", "[equivalence]") {
    const shared_files files;
    const std::uint64_t serial = hash_after(ls::comm::group{}, training.set());
    const auto on_group = [&](const mpi::communicator& group) {
        INFO(group.size() << " ranks");
        CHECK(hash_after(group, files.mapped()) == serial);
        CHECK(hash_after(group, files.csv()) == serial);
    };
    on_groups({1, 2}, on_group);
    on_groups({3}, on_group);
}

TEST_CASE("equivalence/data_files: the parts of a split are the same on any number of ranks", "[equivalence]") {
    const shared_files files;
    const data::split_options options{.held_out = 0.3, .seed = 11};
    const std::uint64_t serial = hash_after(ls::comm::group{}, data::split(training.set(), options).training);
    CHECK(serial != hash_after(ls::comm::group{}, training.set()));
    const auto on_group = [&](const mpi::communicator& group) {
        INFO(group.size() << " ranks");
        CHECK(hash_after(group, data::split(files.mapped(), options).training) == serial);
    };
    on_groups({1, 2}, on_group);
    on_groups({3}, on_group);
}

TEST_CASE("equivalence/data_files: ranks that split by another seed are told so", "[equivalence]") {
    const mpi::communicator world;
    const auto held_out = [](std::uint64_t seed) {
        return data::split_choice{count, {.held_out = 0.3, .seed = seed}}.held_out();
    };
    std::uint64_t other = 12;  // as many samples, but not the same ones
    while (held_out(other) != held_out(11)) ++other;
    const auto parts = data::split(training.set(), {.held_out = 0.3, .seed = world.rank() == 2 ? other : 11});
    std::string found;
    try {
        (void)hash_after(world, parts.training);
    } catch (const ls::comm::remote_failure& failure) {
        found = failure.text();
    } catch (const ls::core::error& error) {
        found = error.what();
    }
    INFO(found);
    CHECK(found.find("training part(held_out=0.3 seed=11) on rank 0 and training part(held_out=0.3 seed=" +
                     std::to_string(other) + ") on rank 2") != std::string::npos);
}
