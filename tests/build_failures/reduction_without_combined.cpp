// SPDX-License-Identifier: BSD-3-Clause
// A user's reduction of two rounds that forgets what happens between them.
// build error: lockstep: a compressor has .*, or is a reduction with rounds: see lockstep/compress/reduction.hpp
#include <array>
#include <boost/mpi/environment.hpp>

#include "lockstep/compress/reduction.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;
using namespace ls::compress;

struct twice {
    static constexpr std::string_view name = "twice";
    static constexpr std::size_t slot_count = 0;
    static constexpr std::array rounds{algebra::ordered_sum, algebra::ordered_sum};

    std::string settings() const { return {}; }
    reduction_sizes<2> sizes(const matrix& shape, std::size_t) const { return {.elements = {shape.size(), shape.size()}}; }
    void encode(round_number<0>, const worker_pass<float>& in, std::span<float> out) const noexcept {
        std::ranges::copy(in.values, out.begin());
    }
    void encode(round_number<1>, const worker_pass<float>& in, std::span<float> out) const noexcept {
        std::ranges::copy(in.values, out.begin());
    }
    void finish(const shared_pass<float>&, std::span<const float> sum, std::span<float> mean) const noexcept {
        std::ranges::copy(sum, mean.begin());
    }
    void decode_own(const worker_pass<float>&, std::span<const float>, float, std::span<float>) const noexcept {}
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .compressor = twice{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
