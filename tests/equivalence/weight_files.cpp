// SPDX-License-Identifier: BSD-3-Clause
// ranks: 4
// Weights go through a file from one trainer to another one: the same predictions on other numbers of ranks.
#include <algorithm>
#include <array>
#include <boost/mpi/collectives/broadcast.hpp>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "equivalence/shared_folder.hpp"
#include "equivalence/support.hpp"
#include "lockstep/files/safetensors.hpp"
#include "lockstep/infer/predictor.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/model/layout.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/saving/names.hpp"
#include "lockstep/saving/weight_file.hpp"
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

/// y = x - its running means, which are rows x columns numbers.
template <ls::tensor::Shape S>
struct centre_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "centre";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr std::array statistics{ls::tensor::parameter{.name = "mean",
                                                                 .rows = S::extents[0] * S::extents[1],
                                                                 .columns = S::extents[2],
                                                                 .initial = ls::tensor::start::zeros}};
    static constexpr double flops = S::size;

    template <class Pass>
    void forward(const Pass& pass) const {
        using T = typename Pass::value_type;
        for (std::size_t i = 0; i < pass.x.size(); ++i)
            pass.y.data[i] =
                pass.x.data[i] - (pass.mode == ls::layer_api::mode::inference ? pass.statistics[0][i % S::size] : T{0});
        if (pass.mode == ls::layer_api::mode::inference) return;
        pass.each_lane_observed([&](ls::parallel::block rows, const auto& s) {
            for (std::size_t i = 0; i < S::size; ++i) {
                s[0][i] = 0;
                for (std::size_t row = rows.first; row < rows.last; ++row) s[0][i] += pass.x.sample(row)[i];
            }
        });
    }
    void backward(const auto& pass) const {
        if (pass.wants_dx()) std::copy_n(pass.dy.data, pass.dy.size(), pass.dx.data);
    }
    template <class T>
    void absorb(std::span<T> running, std::span<const T> observed) const noexcept {
        std::ranges::copy(observed, running.begin());
    }
};
struct centre {
    template <ls::tensor::Shape S>
    constexpr auto on(S) const {
        return centre_layer<S>{};
    }
};

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

TEST_CASE("the first layers of another network go through a file", "[saving]") {
    const shared_folder shared;
    const std::string path = shared.path + "/net.safetensors";
    const auto check = [&](const mpi::communicator& group, auto to) {
        ls::trainer source{ls::comm::group{}, recipe(normalised, 1)};
        source.load_weights(path);
        const auto stored = source.all_weights(), before = to.all_weights();
        to.load_weights(path, ls::layers_before{5});
        const auto after = to.all_weights();
        for (const auto& one : ls::weight_layout<typename decltype(source)::network>)
            for (std::size_t i = one.offset; i < one.offset + one.size(); ++i)
                CHECK(after[i] == (one.layer < 5 ? stored[i] : before[i]));
        CHECK(stored != before);
        CHECK(std::ranges::equal(to.running_statistics(), source.running_statistics()));
        to.load_weights(path, ls::layers_before{0});
        CHECK(to.all_weights() == after);
        // The file has another network, of which all layers have these names and shapes.
        to.load_weights(path, ls::layers_before{6});
        CHECK(to.all_weights() == stored);
        CHECK_THROWS_WITH(to.load_weights(path, ls::layers_before{7}), Catch::Contains("load 7 layers"));
        CHECK_THROWS_WITH(to.load_weights(path), Catch::Contains("ls::layers_before{n}"));
        group.barrier();
    };
    on_groups({3}, [&](const mpi::communicator& group) {
        ls::trainer from{group, recipe(normalised, 1)};
        from.fit(training.set(), ls::steps{5});
        from.save_weights(path);
        check(group, ls::trainer{group, recipe(of_equal_size, 2)});
    });
    on_groups({4}, [&](const mpi::communicator& group) {
        check(group, ls::trainer{group, recipe(of_equal_size, 2, part::hybrid<part::data, part::model<2>>{})});
    });
}

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
    // After a file with numbers that are no weights, or others on one rank, the trainer goes on.
    on_groups({1, 3}, [&](const mpi::communicator& group) {
        ls::trainer to{group, recipe(normalised, 2)};
        const auto before = to.weights_hash();
        std::vector<float> all = to.all_weights();
        std::vector<float> statistics(to.running_statistics().begin(), to.running_statistics().end());
        const std::string mine = folder + ls::core::text("/of_", group.size(), "_", group.rank());
        const ls::saving::weight_names names{
            ls::saving::names_of<ls::model::network<decltype(recipe(normalised, 2).model), 1>>(), {}};
        const auto refused = [&](float& of, float number, const std::string& text) {
            const float was = std::exchange(of, number);
            ls::saving::write_weights<float>(mine, names, all, statistics);
            of = was;
            CHECK_THROWS_WITH(to.load_weights(mine), Catch::Contains(text));
            CHECK(to.weights_hash() == before);
        };
        constexpr float none = std::numeric_limits<float>::quiet_NaN(),
                        endless = std::numeric_limits<float>::infinity();
        refused(all[37], endless, "has the number inf at position 1 of 0.conv.bias; load numbers that are finite");
        refused(statistics[3], none, "at position 3 of 1.batch_norm.mean");
        refused(statistics[4], -1, "has the number -1 at position 0 of 1.batch_norm.variance; load variances that");
        if (group.size() > 1)
            refused(all[0], static_cast<float>(group.rank()), "other numbers on rank 1 than on rank 0");
        CHECK_THROWS_WITH(to.load_weights(std::span<const float>{all}.first(5), statistics),
                          Catch::Contains("5 weights"));
        all[41] = none;
        CHECK_THROWS_WITH(to.load_weights(all, statistics), Catch::Contains("nan at position 41 of the weights"));
        all[41] = 0;
        statistics[0] = endless;
        CHECK_THROWS_WITH(to.load_weights(all, statistics), Catch::Contains("inf at position 0 of the running"));
        statistics[0] = 2;
        to.load_weights(all, statistics);
        to.fit(training.set(), ls::steps{1});
    });
    // An array of one row may be written with one extent or with two, as other programs do.
    for (const bool has_rows : {false, true}) {
        constexpr auto thin = ls::sequential{ls::input<1>, ls::layers::dense<3>{}};
        const std::vector<float> weight{1, 2, 3}, bias{0.5F, 0, -1};
        const auto shape = has_rows ? std::vector<std::size_t>{1, 3} : std::vector<std::size_t>{3};
        const std::string other = folder + ls::core::text("/thin_", mpi::communicator{}.rank());
        ls::files::write_safetensors(other, {ls::files::tensor_of<float>("0.dense.weight", shape, std::span{weight}),
                                             ls::files::tensor_of<float>("0.dense.bias", shape, std::span{bias})});
        ls::predictor of{thin, other};
        const float x = 2;
        CHECK(of.predict(std::span{&x, 1}) == std::vector<float>{2.5F, 4, 5});
    }
    const std::string header = raw_file{path}.header();
    for (const char* name : {"\"0.conv.weight\":{\"dtype\":\"F32\",\"shape\":[9,4]", "\"0.conv.bias\"",
                             "\"1.batch_norm.mean\"", "\"5.dense.weight\":{\"dtype\":\"F32\",\"shape\":[100,10]"})
        CHECK(header.find(name) != header.npos);
}

/// In a weight file they have rows and columns, in a checkpoint they lie one after the other.
TEST_CASE("statistics with rows go through a file and a checkpoint", "[saving]") {
    constexpr auto centred = ls::sequential{ls::input<12, 12, 1>, ls::layers::conv<4, 3>{}, centre{},
                                            ls::layers::flatten{}, ls::layers::dense<10>{}};
    const shared_folder shared;
    const std::string path = shared.path + "/net.safetensors";
    on_groups({3}, [&](const mpi::communicator& group) {
        ls::trainer from{group, recipe(centred, 1)};
        from.fit(training.set(), ls::steps{5});
        from.save_weights(path);
        (void)from.save(shared.path + "/run");
    });
    const std::string run = shared.path + "/run/step-5/state.safetensors";
    on_groups({1, 2}, [&](const mpi::communicator& group) {
        ls::trainer saved{group, recipe(centred, 1)};
        saved.resume(run.substr(0, run.rfind('/')));
        const std::vector<float> all = saved.all_weights(),
                                 means(saved.running_statistics().begin(), saved.running_statistics().end());
        CHECK(means.size() == 400);
        CHECK(means != std::vector<float>(400));
        for (const std::string& file : {path, run}) {
            ls::trainer to{group, recipe(centred, 2)};
            to.load_weights(file);
            CHECK(to.all_weights() == all);
            CHECK(std::ranges::equal(to.running_statistics(), means));
            const ls::predictor read{centred, file};
            CHECK(std::ranges::equal(read.weights(), all));
            CHECK(std::ranges::equal(read.running_statistics(), means));
            ls::trainer first{group, recipe(centred, 2)};
            first.load_weights(file, ls::layers_before{2});
            CHECK(std::ranges::equal(first.running_statistics(), means));
        }
    });
    CHECK(raw_file{path}.header().find("\"1.centre.mean\":{\"dtype\":\"F32\",\"shape\":[100,4]") != std::string::npos);
    CHECK(raw_file{run}.header().find("\"1.centre.mean\":{\"dtype\":\"F32\",\"shape\":[400]") != std::string::npos);
}

/// The file's weights of a later layer look like those of 5 workers.
TEST_CASE("the first layers of a checkpoint are read whatever its other layers are", "[saving]") {
    using ls::layers::dense, ls::layers::flatten;
    constexpr auto wide = ls::sequential{ls::input<12, 12, 1>, flatten{}, dense<6>{}, dense<5>{}, dense<10>{}};
    constexpr auto thin = ls::sequential{ls::input<12, 12, 1>, flatten{}, dense<6>{}, dense<1>{}, dense<10>{}};
    const shared_folder shared;
    on_groups({2}, [&](const mpi::communicator& group) {
        ls::trainer from{group, recipe(wide, 1)};
        const std::string run = from.save(shared.path + "/run") + "/state.safetensors";
        const auto stored = from.all_weights();
        ls::trainer to{group, recipe(thin, 2)};
        const auto before = to.all_weights();
        to.load_weights(run, ls::layers_before{2});
        const auto after = to.all_weights();
        for (std::size_t i = 0; i < after.size(); ++i) CHECK(after[i] == (i < 144 * 6 + 6 ? stored[i] : before[i]));
    });
}

}  // namespace
