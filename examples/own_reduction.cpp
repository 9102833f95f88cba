// SPDX-License-Identifier: BSD-3-Clause
// test on 2 ranks:
// A reduction of one's own: blocks in turn. `mpirun -n 2 own_reduction`
#include <iostream>

#include "lockstep/lockstep.hpp"
namespace ls = lockstep;
using namespace ls::layers;

/// In step t block t mod parts of a segment is summed over workers, and nothing else is sent: n / parts numbers.
struct block_in_turn {
    std::size_t parts = 10;

    static constexpr std::string_view name = "block_in_turn";
    static constexpr std::size_t slot_count = 0;
    static constexpr std::array rounds{ls::compress::algebra::ordered_sum};

    std::string settings() const { return ls::core::text("parts=", parts); }
    std::size_t length(std::size_t n) const noexcept { return (n + parts - 1) / parts; }
    auto sizes(const ls::compress::matrix& shape, std::size_t) const {
        return ls::compress::reduction_sizes<1>{.elements = {length(shape.size())}};
    }
    /// Calls f(i, k) for number i of the segment and element k of the block.
    void each(std::uint64_t step, std::size_t n, const auto& f) const noexcept {
        const std::size_t first = step % parts * length(n);
        for (std::size_t i = first; i < std::min(n, first + length(n)); ++i) f(i, i - first);
    }
    template <class T>
    void encode(ls::compress::round_number<0>, const ls::compress::worker_pass<T>& in,
                std::span<T> out) const noexcept {
        std::ranges::fill(out, T{0});
        each(in.step, in.values.size(), [&](std::size_t i, std::size_t k) { out[k] = in.values[i]; });
    }
    template <class T>
    void finish(const ls::compress::shared_pass<T>& all, std::span<const T> result, std::span<T> mean) const noexcept {
        std::ranges::fill(mean, T{0});
        each(all.step, mean.size(), [&](std::size_t i, std::size_t k) { mean[i] = result[k]; });
    }
    template <class T>
    void decode_own(const ls::compress::worker_pass<T>& in, std::span<const T> sent, T scale,
                    std::span<T> sum) const noexcept {
        each(in.step, sum.size(), [&](std::size_t i, std::size_t k) { sum[i] += scale * sent[k]; });
    }
};

int main(int argc, char** argv) {
    return ls::program(argc, argv, [](const boost::mpi::communicator& world) {
        constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<64>{}, relu{}, dense<10>{}};
        ls::trainer trainer{world, ls::plan{.model = net,
                                            .loss = ls::softmax_cross_entropy{},
                                            .compressor = ls::compress::error_feedback{block_in_turn{}},
                                            .workers = 8}};
        trainer.fit(ls::data::digits{.count = 5'000}, ls::epochs{2}, ls::progress{std::cout});
        const std::uint64_t hash = trainer.state_hash();
        if (world.rank() == 0) std::cout << "state " << ls::core::hexadecimal(hash) << std::endl;
        return 0;
    });
}
