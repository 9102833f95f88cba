// SPDX-License-Identifier: BSD-3-Clause
// ranks: 4
// Weights go through a file from one trainer to another one: the same predictions on other numbers of ranks.
#include <boost/mpi/collectives/broadcast.hpp>
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

#include "equivalence/shared_folder.hpp"
#include "equivalence/support.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace {

using namespace support;
namespace part = ls::partition;

const samples<> training{96}, test{50, 8};

constexpr auto normalised =
    ls::sequential{ls::input<12, 12, 1>,      ls::layers::conv<4, 3>{}, ls::layers::batch_norm{}, ls::layers::relu{},
                   ls::layers::max_pool<2>{}, ls::layers::flatten{},    ls::layers::dense<10>{}};
/// As many weights in the same shapes.
constexpr auto of_equal_size =
    ls::sequential{ls::input<12, 12, 1>,      ls::layers::conv<4, 3>{}, ls::layers::batch_norm{}, ls::layers::tanh{},
                   ls::layers::max_pool<2>{}, ls::layers::flatten{},    ls::layers::dense<10>{}};

template <class Net, class Partition = part::data>
auto recipe(const Net& net, std::uint64_t seed, const Partition& partition = {}) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::sgd{},
                    .schedule = ls::optim::constant{.rate = 0.02},
                    .partition = partition,
                    .batch = 32,
                    .seed = seed};
}

/// What an independent reader finds: the length of the header, and whether a name is in it.
struct raw_file {
    std::string bytes;
    explicit raw_file(const std::string& path) {
        std::ifstream file{path, std::ios::binary};
        bytes.assign(std::istreambuf_iterator<char>{file}, {});
    }
    [[nodiscard]] std::string header() const {
        std::uint64_t length = 0;
        for (std::size_t i = 8; i-- > 0;) length = length * 256 + static_cast<unsigned char>(bytes[i]);
        return bytes.substr(8, length);
    }
};

TEST_CASE("weights go through a file", "[saving]") {
    const shared_folder shared;
    const std::string& folder = shared.path;
    const std::string path = folder + "/net.safetensors";
    std::uint64_t hash = 0;
    double loss = 0;
    on_groups({3}, [&](const mpi::communicator& group) {
        ls::trainer from{group, recipe(normalised, 1)};
        from.fit(training.set(), ls::steps{5});
        from.save_weights(path);
        (void)from.save(folder + "/run");
        hash = from.weights_hash();
        loss = from.evaluate(test.set()).loss;
        CHECK_THROWS_WITH(from.save_weights(folder + "/none/net"), Catch::Contains("/none/net"));
        CHECK(from.weights_hash() == hash);
    });
    mpi::broadcast(mpi::communicator{}, hash, 0);
    mpi::broadcast(mpi::communicator{}, loss, 0);
    for (const std::string& file : {path, folder + "/run/step-5/state.safetensors"})
        on_groups({1, 2}, [&](const mpi::communicator& group) {
            ls::trainer to{group, recipe(normalised, 2)};
            CHECK(to.weights_hash() != hash);
            to.load_weights(file);
            CHECK(to.weights_hash() == hash);
            CHECK(to.evaluate(test.set()).loss == loss);
        });
    on_groups({4}, [&](const mpi::communicator& group) {
        ls::trainer to{group, recipe(normalised, 2, part::hybrid<part::data, part::model<2>>{})};
        to.load_weights(path);
        CHECK(to.weights_hash() == hash);
        to.save_weights(folder + "/again.safetensors");
        group.barrier();
        CHECK(raw_file{folder + "/again.safetensors"}.bytes == raw_file{path}.bytes);
    });
    on_groups({2}, [&](const mpi::communicator& group) {
        ls::trainer other{group, recipe(of_equal_size, 2)};
        const auto before = other.weights_hash();
        for (const std::string& file : {path, folder + "/run/step-5/state.safetensors"})
            CHECK_THROWS_WITH(other.load_weights(file),
                              Catch::Contains("weights of the network") && Catch::Contains("tanh"));
        CHECK_THROWS_WITH(other.load_weights(folder + "/none"), Catch::Contains("No such file"));
        CHECK(other.weights_hash() == before);
        other.fit(training.set(), ls::steps{1});
    });
    // Of local SGD each worker has weights of its own: not in the file, which has their mean.
    on_groups({2}, [&](const mpi::communicator& group) {
        auto plan = ls::plan{.model = normalised,
                             .loss = ls::loss::softmax_cross_entropy{},
                             .optimizer = ls::optim::sgd{},
                             .schedule = ls::optim::constant{.rate = 0.02},
                             .sync = ls::sync::local_sgd{.period = 4},
                             .batch = 32,
                             .workers = 2};
        ls::trainer from{group, plan};
        from.fit(training.set(), ls::steps{6});
        const std::string run = from.save(folder + "/local") + "/state.safetensors";
        from.save_weights(folder + "/mean.safetensors");
        const auto mean = from.weights_hash();
        ls::trainer to{group, recipe(normalised, 2)};
        CHECK_THROWS_WITH(to.load_weights(run),
                          Catch::Contains("has weights of 2 workers, as local SGD keeps them") &&
                              Catch::Contains("load the file of its save_weights()"));
        to.load_weights(folder + "/mean.safetensors");
        CHECK(to.weights_hash() == mean);
    });
    const std::string header = raw_file{path}.header();
    for (const char* name : {"\"0.conv.weight\":{\"dtype\":\"F32\",\"shape\":[9,4]", "\"0.conv.bias\"",
                             "\"1.batch_norm.mean\"", "\"5.dense.weight\":{\"dtype\":\"F32\",\"shape\":[100,10]"})
        CHECK(header.find(name) != header.npos);
}

}  // namespace
