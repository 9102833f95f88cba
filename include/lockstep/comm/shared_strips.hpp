// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The two halves of averaging between ranks that share memory: each rank adds its strip of all arrays, and writes its strip of another one into all.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/one_pass_sum.hpp"
#include "lockstep/comm/shared_parts.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::comm {

/// Who takes part: ranks that have parts of shared memory, which of them are the group, and one signal of each.
struct shared_members {
    shared_parts* memory = nullptr;
    std::vector<std::size_t> parts;       ///< the part of each rank of the group
    std::size_t rank = 0;                 ///< this one in the group
    tensor::slice<shared_signal> signal;  ///< one in every part
    short_name what{};                    ///< what it is for

    [[nodiscard, gnu::cold]] shared_signals signals() const;
};

/// A sum of which every rank keeps its strip, then strips that their owners hand out, in turns: start_sum, finish, start_share, finish. Arrays lie at
/// the same place of every rank's part. One wait for each half: arrays that are summed may be changed again when what was shared after the sum has
/// arrived, and an array that is shared is written by others from the time at which this rank has started a sum. So strips of weights go out when
/// no rank computes with the old ones any more.
/// Cost of all p ranks together, v = vectors of all ranks: reads v n and writes n elements; reads n and writes (p-1) n. No message.
template <class T>
class shared_strips {
public:
    /// `runs`: the lanes of each rank of the group. `strips`: a partition of 0 .. n-1, one for each. Throws core::error.
    [[gnu::cold]] shared_strips(const shared_members& members, std::span<const parallel::block> runs,
                                std::span<const parallel::block> strips, std::size_t n, parallel::team team)
        : n_{n}, team_{team}, sum_{runs}, signals_{members.signals()} {
        if (runs.size() != signals_.size() || strips.size() != signals_.size())
            core::fail(core::text(signals_.size(), " ranks with ", runs.size(), " runs of lanes and ", strips.size(), " strips"),
                       "pass one run of lanes and one strip for each rank");
        check_strips(strips, n);
        signals_.name({.elements = n, .unit = unit_of<T>, .kind = short_name{"shared averaging"}, .what = members.what});
        strip_ = strips[members.rank];
        own_ = members.memory->of(members.parts[members.rank], whole(members)).data();
        for (const auto& leaf : sum_.leaves()) leaves_.push_back(members.memory->of(members.parts[leaf.rank], whole(members)).data());
        for (std::size_t distance = 1; distance < signals_.size(); ++distance)
            others_.push_back(members.memory->of(members.parts[(members.rank + distance) % signals_.size()], whole(members)).data());
        bytes_ = members.memory->bytes();
        from_.resize(leaves_.size());
        scratch_.resize(sum_.scratch_size() * static_cast<std::size_t>(std::max(1, team_.threads)));
    }

    /// `vectors`: this rank's array in its part, with room for one vector for each node of the lanes of the rank that has the most.
    /// Throws core::error if it does not lie there, or something is running.
    void start_sum(std::span<T> vectors) {
        start(vectors, sum_.most_vectors());
        summing_ = true;
        signals_.raise(++turn_);
        (void)advance();
    }
    /// `array`: n elements in the part of this rank, of which its strip is to be handed out.
    void start_share(std::span<T> array) {
        start(array, 1);
        summing_ = false;
        const std::span<const T> mine = array.subspan(strip_.first, strip_.size());
        for (std::byte* const part : others_) {
            T* const to = reinterpret_cast<T*>(part + at_) + strip_.first;
            parallel::for_blocks(team_, mine.size(), 16384,
                                 [&](parallel::block block) { std::copy_n(mine.data() + block.first, block.size(), to + block.first); });
        }
        signals_.raise(++turn_);
        (void)advance();
    }

    /// Does what can be done without waiting; true when it is over. Now and then looks for a failure: throws remote_failure.
    bool poll() {
        if (progress()) return true;
        signals_.polled();
        return false;
    }
    /// The same without a look for failures: what was started can still end when others have failed.
    bool progress() noexcept { return !running_ || advance(); }
    /// For a wait of one's own that polls it.
    [[nodiscard]] comm::awaited awaited() const noexcept { return signals_.awaited(); }
    /// Waits until what was started is over. Throws remote_failure if a rank has announced one.
    void finish() {
        if (running_) signals_.wait([](void* self) { return static_cast<shared_strips*>(self)->advance(); }, this);
    }

private:
    static tensor::slice<std::byte> whole(const shared_members& members) noexcept { return {0, members.memory->bytes()}; }

    [[gnu::noinline]] void start(std::span<T> array, std::size_t vectors) {
        if (running_) core::fail("an operation on shared memory was started while it is running", "call finish() first");
        const auto place = reinterpret_cast<std::uintptr_t>(array.data()) - reinterpret_cast<std::uintptr_t>(own_);
        if (array.size() < vectors * n_ || place > bytes_ || array.size() * sizeof(T) > bytes_ - place)
            core::fail(
                core::text("an array of ", array.size(), " numbers for ", vectors, " x ", n_, " in shared memory of ", bytes_, " bytes"),
                "reserve it there, one vector for each node of the lanes of the rank that has the most");
        at_ = place;
        running_ = true;
        signals_.begins(std::source_location::current());
    }

    [[gnu::noinline]] bool advance() noexcept {
        if (!signals_.all_reached(turn_)) return false;
        if (summing_) {
            for (std::size_t i = 0; i < leaves_.size(); ++i)
                from_[i] = reinterpret_cast<const T*>(leaves_[i] + at_) + sum_.leaves()[i].slot * n_;
            T* const to = reinterpret_cast<T*>(own_ + at_);
            sum_(team_, from_, {&to, 1}, strip_, scratch_);
        }
        running_ = false;
        return true;
    }

    std::size_t n_;
    parallel::team team_;
    one_pass_sum<T> sum_;
    shared_signals signals_;
    parallel::block strip_;
    std::byte* own_ = nullptr;        // where parts begin: this rank's,
    std::vector<std::byte*> leaves_;  // that of each leaf of the tree,
    std::vector<std::byte*> others_;  // those of the other ranks, from the next one on
    std::size_t bytes_ = 0;
    std::size_t at_ = 0;  // the array, in bytes from there
    std::vector<const T*> from_;
    std::vector<T> scratch_;
    std::uint64_t turn_ = 0;
    bool running_ = false;
    bool summing_ = false;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION shared_signals shared_members::signals() const {
    std::vector<shared_signal*> all;
    for (const std::size_t part : parts) all.push_back(memory->of(part, signal).data());
    return {all, all[rank], parts, memory->notices(), memory->group(), memory->crowded()};
}

#endif

}  // namespace lockstep::comm
