// SPDX-License-Identifier: BSD-3-Clause
// test on 2 ranks:
// A layer and a compressor of the user's own: structs with the members that the library asks for. No base class, no
// registration, no macro.
#include <array>
#include <cmath>
#include <cstring>
#include <iostream>

#include "lockstep/lockstep.hpp"

namespace ls = lockstep;
using namespace ls::layers;

/// The layer, bound to the shape before it: y = x for x > 0, else slope x, with a learned slope for each feature (He et
/// al. 2015).
template <class Shape>
struct prelu_layer {
    using input = Shape;
    using output = Shape;
    static constexpr std::string_view name = "prelu";
    static constexpr std::array parameters{ls::tensor::parameter{
        .name = "slope", .columns = Shape::size, .initial = ls::tensor::start::zeros, .decays = false}};
    static constexpr double flops = Shape::size;

    void forward(const auto& pass) const {
        for (std::size_t row = 0; row < pass.x.rows; ++row)
            for (std::size_t i = 0; i < Shape::size; ++i) {
                const auto x = pass.x.sample(row)[i];
                pass.y.sample(row)[i] = x > 0 ? x : pass.w[0][i] * x;
            }
    }

    void backward(const auto& pass) const {
        // The gradient of the slopes, for the rows of one lane at a time: the library adds lanes in an order that no
        // rank can change.
        pass.each_lane([&](ls::parallel::block rows, const auto& gradient) {
            std::fill(gradient[0].begin(), gradient[0].end(), 0);
            for (std::size_t row = rows.first; row < rows.last; ++row)
                for (std::size_t i = 0; i < Shape::size; ++i)
                    if (pass.x.sample(row)[i] <= 0) gradient[0][i] += pass.x.sample(row)[i] * pass.dy.sample(row)[i];
        });
        if (!pass.wants_dx()) return;
        for (std::size_t row = 0; row < pass.x.rows; ++row)
            for (std::size_t i = 0; i < Shape::size; ++i)
                pass.dx.sample(row)[i] = pass.dy.sample(row)[i] * (pass.x.sample(row)[i] > 0 ? 1 : pass.w[0][i]);
    }
};

/// What stands in the network.
struct prelu {
    template <class Shape>
    constexpr auto on(Shape) const {
        return prelu_layer<Shape>{};
    }
};

/// Signs and one magnitude, their mean: 1 bit for each number (EF-signSGD, Karimireddy et al. 2019).
struct scaled_sign {
    static constexpr std::string_view name = "scaled_sign";
    static constexpr std::size_t slot_count = 0;
    std::string settings() const { return {}; }

    template <class T>
    std::size_t max_bytes(std::size_t n) const {
        return sizeof(T) + (n + 7) / 8;
    }
    template <class T>
    std::size_t encode(const ls::compress::encoding<T>& in) const noexcept {
        T sum = 0;
        for (const T value : in.values) sum += std::abs(value);
        const T mean = in.values.empty() ? T{0} : sum / static_cast<T>(in.values.size());
        const std::size_t bytes = max_bytes<T>(in.values.size());
        std::memset(in.message.data(), 0, bytes);
        std::memcpy(in.message.data(), &mean, sizeof(T));
        for (std::size_t i = 0; i < in.values.size(); ++i)
            if (in.values[i] < 0) in.message[sizeof(T) + i / 8] |= std::byte{1} << (i % 8);
        return bytes;
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        T mean = 0;
        std::memcpy(&mean, message.data(), sizeof(T));
        for (std::size_t i = 0; i < sum.size(); ++i) {
            const bool negative = (message[sizeof(T) + i / 8] & (std::byte{1} << (i % 8))) != std::byte{0};
            sum[i] += negative ? -scale * mean : scale * mean;
        }
    }
};

int main(int argc, char** argv) {
    return ls::program(argc, argv, [](const boost::mpi::communicator& world) {
        ls::trainer trainer{world, ls::plan{
            .model = ls::sequential{ls::input<28, 28, 1>, conv<8, 5>{}, prelu{}, max_pool<4>{}, flatten{}, dense<10>{}},
            .loss = ls::softmax_cross_entropy{},
            .optimizer = ls::optim::sgd{},
            .schedule = ls::optim::warmup_cosine{.peak = 0.1, .warmup = 50, .total = 500},
            .compressor = ls::compress::error_feedback{scaled_sign{}},
            .batch = 64,
            .segment = 0,  // a magnitude for each parameter tensor
        }};
        trainer.fit(ls::data::digits{.count = 16'000}, ls::epochs{2}, ls::progress{std::cout});
        const auto result = trainer.evaluate(ls::data::digits{.count = 2'000, .first = 1'000'000});
        if (world.rank() == 0)
            ls::report::print(std::cout,
                              ls::core::text("test accuracy ", ls::core::fixed(100 * *result.accuracy, 2), " %\n"));
        return result.accuracy > 0.9 ? 0 : 1;
    });
}
