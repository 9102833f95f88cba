// SPDX-License-Identifier: BSD-3-Clause
// test on 2 ranks:
// Training inside a running simulation: the program owns MPI, the loop and the data; the trainer takes its memory as it
// is.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <span>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/tensor/xtensor.hpp"

namespace mpi = boost::mpi;
namespace ls = lockstep;
using namespace ls::layers;

/// The simulation: rods of 16 cells, insulated at both ends, whose conductivity grows with the temperature. It knows
/// nothing of the library.
class rods {
public:
    static constexpr std::size_t cells = 16;

    /// Rods first .. first + count - 1 of all.
    rods(std::size_t first, std::size_t count) : temperature{xt::zeros<float>({count, cells})}, first_{first} {}

    /// A spark somewhere on each rod; where, only the rod and the round decide.
    void heat(std::uint32_t round) {
        const ls::core::random_stream random{2026, ls::core::purpose::user, round};
        for (std::size_t rod = 0; rod < temperature.shape(0); ++rod) {
            temperature(rod, random.below(cells, 2 * (first_ + rod))) += 1 + random.uniform(2 * (first_ + rod) + 1);
            for (std::size_t cell = 0; cell < cells; ++cell) temperature(rod, cell) *= 0.9F;
        }
    }

    /// Ten explicit steps of heat conduction.
    void advance() {
        for (int step = 0; step < 10; ++step)
            for (std::size_t rod = 0; rod < temperature.shape(0); ++rod) {
                std::array<float, cells + 1> flow{};
                for (std::size_t cell = 1; cell < cells; ++cell) {
                    const float left = temperature(rod, cell - 1), right = temperature(rod, cell);
                    flow[cell] = 0.1F * (1 + 0.2F * (left + right)) * (left - right);
                }
                for (std::size_t cell = 0; cell < cells; ++cell) temperature(rod, cell) += flow[cell] - flow[cell + 1];
            }
    }

    xt::xtensor<float, 2> temperature;  // rods of this rank x cells

private:
    std::size_t first_;
};

/// The mean square of a - b, over all numbers.
template <class A, class B>
double mean_square(const A& a, const B& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        sum += static_cast<double>(a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
    return sum / static_cast<double>(a.size());
}

int main(int argc, char** argv) {
    mpi::environment env{argc, argv, mpi::threading::funneled};
    mpi::communicator world;

    ls::trainer trainer{world, ls::plan{
        .model = ls::sequential{ls::input<rods::cells>, dense<64>{}, ls::layers::tanh{}, dense<rods::cells>{}},
        .loss = ls::mean_squared_error{},
        .optimizer = ls::optim::adam{},
        .schedule = ls::optim::constant{.rate = 0.002},
        .batch = 64,  // rods on all ranks together
    }};
    // With the rods of its own lanes on each rank, the weights have the same bits on 1 to 8 ranks. Any other deal is as
    // good.
    const auto lanes = trainer.grid().own_lanes();
    rods simulation{8 * lanes.first, 8 * lanes.size()};
    std::vector<float> before;
    for (std::uint32_t round = 0; round < 4'000; ++round) {
        simulation.heat(round);
        before.assign(simulation.temperature.begin(), simulation.temperature.end());
        simulation.advance();
        const auto step =
            trainer.step(before, simulation.temperature);  // a std::vector and an xtensor, both used in place
        if (world.rank() == 0 && step.step % 1'000 == 0)
            ls::report::print(std::cout, ls::core::text("step ", step.step, ", loss ", step.loss, "\n"));
    }
    const auto predicted = trainer.predict(std::span{before});  // an xtensor, rods x cells
    const auto weights = trainer.weights(0, "weight");          // an xtensor, 16 x 64, over the trainer's memory

    const double error = mean_square(predicted.storage(), simulation.temperature.storage());
    const double change = mean_square(std::span{before}, simulation.temperature.storage());
    const auto hash = trainer.weights_hash();
    if (world.rank() == 0)
        ls::report::print(std::cout, ls::core::text("mean square error ", error, ", change ", change, ", first layer ",
                                                    weights.shape(0), " x ", weights.shape(1), "\nweights ",
                                                    ls::core::hexadecimal(hash), "\n"));
    return error < change / 100 ? 0 : 1;
}
