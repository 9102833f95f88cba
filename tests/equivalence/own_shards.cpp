// SPDX-License-Identifier: BSD-3-Clause
// ranks: 4
// A user's layer with a number that is cut over ranks: predictions are those of one rank, and so is training up to
// rounding.
#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <string_view>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/tensor/xtensor.hpp"

namespace {

using namespace support;

/// y = gain x W, in the plainest loops.
template <std::size_t In, std::size_t Out, std::size_t Whole = Out>
struct scaled_layer {
    using input = ls::tensor::shape<In>;
    using output = ls::tensor::shape<Out>;
    static constexpr std::string_view name = "scaled";
    static constexpr std::array parameters{
        ls::tensor::parameter{.name = "weight", .rows = In, .columns = Out, .fan_in = In, .fan_out = Whole}};
    static constexpr double flops = 2.0 * In * Out;

    double gain = 1;

    template <std::size_t Shards>
    [[nodiscard]] constexpr auto shard() const noexcept {
        return scaled_layer<In, Whole / Shards, Whole>{.gain = gain};
    }
    void forward(const auto& pass) const noexcept {
        for (std::size_t row = 0; row < pass.x.rows; ++row)
            for (std::size_t j = 0; j < Out; ++j) {
                double sum = 0;
                for (std::size_t i = 0; i < In; ++i)
                    sum += static_cast<double>(pass.x.sample(row)[i]) * static_cast<double>(pass.w[0][i * Out + j]);
                pass.y.sample(row)[j] = static_cast<float>(gain * sum);
            }
    }
    void backward(const auto& pass) const noexcept {
        const auto scale = static_cast<float>(gain);
        pass.each_lane([&](ls::parallel::block rows, const auto& gradient) {
            for (std::size_t k = 0; k < In * Out; ++k) {
                gradient[0][k] = 0;
                for (std::size_t row = rows.first; row < rows.last; ++row)
                    gradient[0][k] += scale * pass.x.sample(row)[k / Out] * pass.dy.sample(row)[k % Out];
            }
        });
        if (!pass.wants_dx()) return;
        for (std::size_t row = 0; row < pass.x.rows; ++row)
            for (std::size_t i = 0; i < In; ++i) {
                pass.dx.sample(row)[i] = 0;
                for (std::size_t j = 0; j < Out; ++j)
                    pass.dx.sample(row)[i] += scale * pass.dy.sample(row)[j] * pass.w[0][i * Out + j];
            }
    }
};
template <std::size_t Out>
struct scaled {
    double gain = 1;
    template <ls::tensor::Shape Input>
    constexpr auto on(Input) const {
        return scaled_layer<Input::size, Out>{.gain = gain};
    }
};

/// A dense layer with other outputs, which inherits what cuts it.
template <std::size_t In, std::size_t Out>
struct doubled_layer : ls::layer_api::dense_layer<In, Out> {
    void forward(const auto& pass) const noexcept {
        ls::layer_api::dense_layer<In, Out>::forward(pass);
        for (std::size_t row = 0; row < pass.y.rows; ++row)
            for (auto& one : pass.y.sample(row)) one *= 2;
    }
};
template <std::size_t Out>
struct doubled {
    template <ls::tensor::Shape Input>
    constexpr auto on(Input) const {
        return doubled_layer<Input::size, Out>{};
    }
};

struct outcome {
    std::vector<float> first, last;
    std::size_t cut = 0;  // layers
};

template <class Ranks, class Partition>
outcome run(const Ranks& ranks, const Partition& partition, double gain) {
    const samples<> all{64};
    ls::trainer trainer{
        ranks, ls::plan{.model = ls::sequential{ls::input<12, 12, 1>, ls::layers::flatten{}, scaled<16>{.gain = gain},
                                                ls::layers::relu{}, scaled<10>{.gain = 2 * gain}},
                        .loss = ls::loss::softmax_cross_entropy{},
                        .schedule = ls::optim::constant{.rate = 0.01},
                        .partition = partition,
                        .batch = 32}};
    outcome out;
    const auto predict = [&] {
        const auto y = trainer.predict(all.x);
        return std::vector<float>(y.begin(), y.end());
    };
    out.first = predict();
    trainer.fit(all.set(), ls::steps{6});
    out.last = predict();
    for (const auto& fact : decltype(trainer)::network::facts) out.cut += fact.segment == ls::model::segment::sharded;
    return out;
}

}  // namespace

TEST_CASE("equivalence/own_shards: a user's sharded layer keeps the numbers of its spec", "[equivalence]") {
    const outcome serial = run(ls::comm::group{}, ls::partition::data{}, 0.5);
    const outcome other = run(ls::comm::group{}, ls::partition::data{}, 1);
    CHECK(serial.cut == 0);
    CHECK(other.first != serial.first);
    const auto check = [&](const outcome& got) {
        CHECK(got.cut == 2);
        CHECK(got.first == serial.first);
        // The parts of the data gradient are added in another order, as with any model partition.
        CHECK(relative_error(got.last, serial.last) < 1e-4);
    };
    on_groups({2}, [&](const mpi::communicator& group) { check(run(group, ls::partition::model<2>{}, 0.5)); });
    on_groups({4}, [&](const mpi::communicator& group) {
        check(run(group, ls::partition::hybrid{ls::partition::data{}, ls::partition::model<2>{}}, 0.5));
    });
}

TEST_CASE("equivalence/own_shards: a layer that derives from one that can be cut is whole on every rank",
          "[equivalence]") {
    const samples<> all{16};
    const auto predict = [&](const auto& ranks, const auto& partition) {
        ls::trainer trainer{ranks,
                            ls::plan{.model = ls::sequential{ls::input<12, 12, 1>, ls::layers::flatten{}, doubled<16>{},
                                                             ls::layers::relu{}, ls::layers::dense<10>{}},
                                     .loss = ls::loss::softmax_cross_entropy{},
                                     .partition = partition,
                                     .batch = 32}};
        const auto y = trainer.predict(all.x);
        return std::vector<float>(y.begin(), y.end());
    };
    const auto serial = predict(ls::comm::group{}, ls::partition::data{});
    on_groups({2}, [&](const mpi::communicator& group) {
        CHECK(relative_error(predict(group, ls::partition::model<2>{}), serial) < 1e-5);
    });
}

TEST_CASE("equivalence/own_shards: bytes between layers are those of the passes that run", "[equivalence]") {
    const auto bytes = [&](const mpi::communicator& group, const auto& model) {
        ls::trainer trainer{group, ls::plan{.model = model,
                                            .loss = ls::loss::softmax_cross_entropy{},
                                            .partition = ls::partition::model<2>{},
                                            .batch = 16}};
        return trainer.redistribution_bytes();
    };
    using namespace ls::layers;
    on_groups({2}, [&](const mpi::communicator& group) {
        // 8 rows of 60 numbers go forward, their gradients nowhere; 12 outputs of 8 rows go there and back.
        CHECK(bytes(group, ls::sequential{ls::input<60>, dense<24>{}}) == sizeof(float) * 8 * (60 + 2 * 12));
        // Between two layers that are cut 12 numbers of all 16 rows go there and back, and 5 outputs of 8 rows.
        CHECK(bytes(group, ls::sequential{ls::input<60>, dense<24>{}, dense<10>{}}) ==
              sizeof(float) * (8 * 60 + 2 * 16 * 12 + 2 * 8 * 5));
    });
}
