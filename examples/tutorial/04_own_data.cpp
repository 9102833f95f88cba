// SPDX-License-Identifier: BSD-3-Clause
// same weights on 1, 3 ranks
#include <cmath>
#include <iostream>
#include <vector>

#include "lockstep/lockstep.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    return ls::program(argc, argv, [](const boost::mpi::communicator& world) {
        // Two numbers for each sample; the class says whether the point lies inside of a circle.
        constexpr std::size_t samples = 2'000;
        std::vector<float> x(2 * samples);
        std::vector<int> y(samples);
        const ls::core::random_stream random{7, ls::core::purpose::user, 0};
        for (std::size_t i = 0; i < samples; ++i) {
            x[2 * i] = 2 * static_cast<float>(random.uniform(2 * i)) - 1;
            x[2 * i + 1] = 2 * static_cast<float>(random.uniform(2 * i + 1)) - 1;
            y[i] = std::hypot(x[2 * i], x[2 * i + 1]) < 0.75F ? 1 : 0;
        }
        const auto points = ls::data::in_memory<ls::tensor::shape<2>, ls::tensor::classes<2>>(x, y);
        const auto [training, held_out] = ls::data::split(points, {.held_out = 0.2, .seed = 1});

        ls::trainer trainer{world, ls::plan{
            .model = ls::sequential{ls::input<2>, dense<32>{}, relu{}, dense<2>{}},
            .loss = ls::softmax_cross_entropy{},
            .optimizer = ls::optim::adam{},
            .schedule = ls::optim::constant{.rate = 0.01},
            .batch = 48,
            .lanes = 12,
        }};
        trainer.fit(training, ls::epochs{10}, ls::validate{held_out}, ls::progress{std::cout, 5, false});
        const auto result = trainer.evaluate(held_out, ls::metrics::list{ls::metrics::confusion_matrix{}});
        const auto& table = result.get<ls::metrics::confusion_matrix>();
        const auto hash = trainer.weights_hash();
        if (world.rank() == 0)
            std::cout << "inside, taken for outside: " << table(1, 0) << "\nweights " << ls::core::hexadecimal(hash) << std::endl;
        return result.accuracy > 0.9 ? 0 : 1;
    });
}
