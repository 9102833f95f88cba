// SPDX-License-Identifier: BSD-3-Clause
// A user's compressor that only encodes.
// build error: lockstep: a compressor has slot_count, name, settings\(\), max_bytes<T>\(n\)
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

// Half of each number: its upper two bytes.
struct upper_halves {
    static constexpr std::string_view name = "upper_halves";
    static constexpr std::size_t slot_count = 0;

    std::string settings() const { return {}; }
    template <class T>
    std::size_t max_bytes(std::size_t n) const {
        return 2 * n;
    }
    std::size_t encode(const ls::compress::encoding<float>& in) const noexcept {
        for (std::size_t i = 0; i < in.values.size(); ++i)
            std::memcpy(in.message.data() + 2 * i, reinterpret_cast<const char*>(&in.values[i]) + 2, 2);
        return 2 * in.values.size();
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .compressor = upper_halves{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
