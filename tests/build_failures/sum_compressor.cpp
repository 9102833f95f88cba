// SPDX-License-Identifier: BSD-3-Clause
// A compressor whose messages could be added on the way, which no reducer does yet.
// build error: lockstep: compress::none is the only compressor whose messages the tree can add
#include <boost/mpi/environment.hpp>
#include <cstring>

#include "lockstep/compress/concept.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

// The numbers as they are.
struct plain {
    static constexpr std::string_view name = "plain";
    static constexpr auto kind = ls::compress::kind::sum;
    static constexpr std::size_t slot_count = 0;

    std::string settings() const { return {}; }
    template <class T>
    std::size_t max_bytes(std::size_t n) const {
        return sizeof(T) * n;
    }
    std::size_t encode(const ls::compress::encoding<float>& in) const noexcept {
        std::memcpy(in.message.data(), in.values.data(), in.values.size_bytes());
        return in.values.size_bytes();
    }
    void decode_add(std::span<const std::byte> message, float scale, std::span<float> sum) const noexcept {
        for (std::size_t i = 0; i < sum.size(); ++i) {
            float value = 0;
            std::memcpy(&value, message.data() + sizeof(float) * i, sizeof(float));
            sum[i] += scale * value;
        }
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .compressor = plain{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
