// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Averaging through compressed messages that cannot be added on the way: every rank gathers and decodes all of them. Models Reducer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/comm/all_gather.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/compress/concept.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/kernels/elementwise.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::reduce {

/// Each rank compresses the sum of its lanes; messages are decoded in the order of ranks, so all ranks get equal bits, but another number
/// of ranks gives others. Every rank owns the whole bucket (its weights are never sent) and keeps the whole optimizer state. Cost per rank:
/// p-1 messages of the compressor's size (log2(p) rounds on a power of two), p decodings.
template <class T, compress::Compressor<T> C>
class gathered_messages {
public:
    [[gnu::cold]] gathered_messages(const bucket& of, const C& compressor, tensor::arena& arena)
        : compressor_{compressor},
          n_{of.n},
          team_{of.team},
          rank_{of.ranks.rank()},
          bytes_{(core::checked_sum("bytes of a message", std::size_t{compressor.template max_bytes<T>(of.n)}, header) + 7) / 8 * 8},
          gather_{of.ranks, comm::all_gather(rank_, comm::equal_strips(of.ranks.size(), bytes_)), of.team, comm::flow::usual_piece, of.sum},
          ranks_{of.ranks.size()},
          nodes_{tensor::cover(of.runs[rank_], of.lanes).size()},
          state_{arena.reserve<T>(core::checked_product("numbers of a compressor", std::size_t{C::slot_count}, of.n))},
          scratch_{arena.reserve<T>(compress::scratch_size<T>(compressor, of.n))},
          messages_{arena.reserve<std::byte>(core::checked_product("bytes of all messages", bytes_, ranks_))} {}

    void bind(const tensor::arena& arena) noexcept { arena_ = &arena; }
    [[nodiscard]] parallel::block owned() const noexcept { return {0, n_}; }

    void start(std::span<T> gradient, const core::random_stream& random) {
        const std::span<T> sum = gradient.first(n_);
        for (std::size_t node = 1; node < nodes_; ++node) kernels::add(std::span<const T>{gradient.subspan(node * n_, n_)}, sum);
        const std::span<std::byte> all = (*arena_)[messages_];
        const std::span<std::byte> own = all.subspan(rank_ * bytes_, bytes_);
        // A compressor could hide such numbers.
        const bool finite = kernels::first_non_finite(std::span<const T>{sum}, team_) == n_;
        const std::uint64_t length = !finite ? not_finite
                                             : compressor_.encode(compress::encoding<T>{
                                                   .values = sum,
                                                   .message = own.subspan(header),
                                                   .state = tensor::slots<T>{(*arena_)[state_].data(), C::slot_count, n_, n_},
                                                   .scratch = (*arena_)[scratch_],
                                                   .random = random,
                                               });
        std::memcpy(own.data(), &length, header);
        sum_ = sum;
        gather_.start(all, {});
        decoded_ = false;
    }
    bool poll() { return gather_.poll(); }
    bool progress() { return gather_.progress(); }
    [[nodiscard]] comm::awaited awaited() const noexcept { return gather_.awaited(); }
    void finish() {
        gather_.finish();
        if (decoded_) return;
        decoded_ = true;
        const std::span<const std::byte> all = (*arena_)[messages_];
        std::fill(sum_.begin(), sum_.end(), T{0});
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            const auto message = all.subspan(rank * bytes_, bytes_);
            std::uint64_t length = 0;
            std::memcpy(&length, message.data(), header);
            if (length == not_finite) return std::fill(sum_.begin(), sum_.end(), std::numeric_limits<T>::quiet_NaN());
            compressor_.decode_add(message.subspan(header, length), T{1}, sum_);
        }
    }
    template <class F>
    void update(std::span<T>, const F& change) noexcept {
        change_blocks<T>(team_, owned(), sum_, change);
    }
    /// Every rank has made the same update: nothing is sent.
    void share(std::span<T>) noexcept {}

    [[nodiscard]] std::size_t bytes_per_step() const noexcept { return gather_.program().sent().elements; }

private:
    static constexpr std::size_t header = sizeof(std::uint64_t);                            // the length of the message that follows,
    static constexpr std::uint64_t not_finite = std::numeric_limits<std::uint64_t>::max();  // or that there is none: all sums become NaN

    C compressor_;
    std::size_t n_;
    parallel::team team_;
    std::size_t rank_;
    std::size_t bytes_;
    comm::operation<std::byte> gather_;
    std::size_t ranks_;
    std::size_t nodes_;
    tensor::slice<T> state_;
    tensor::slice<T> scratch_;
    tensor::slice<std::byte> messages_;
    const tensor::arena* arena_ = nullptr;
    std::span<T> sum_;
    bool decoded_ = true;
};

}  // namespace lockstep::reduce
