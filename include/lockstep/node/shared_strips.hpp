// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Averaging between ranks that share memory: each rank adds its strip of all arrays, makes another one out of it, and
// writes that into all.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/node/one_pass_sum.hpp"
#include "lockstep/node/shared_parts.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::node {

/// Who takes part: ranks that have parts of shared memory, which of them are the group, and one signal of each.
struct shared_members {
    shared_parts* memory = nullptr;
    std::vector<std::size_t> parts;       ///< the part of each rank of the group
    std::size_t rank = 0;                 ///< this one in the group
    tensor::slice<shared_signal> signal;  ///< one in every part
    comm::short_name what{};              ///< what it is for

    [[nodiscard, gnu::cold]] shared_signals signals() const;
};

/// When a strip is added. with_update: in the walk that updates it. ahead: as soon as all ranks have come, for those
/// who have time before that.
enum class shared_adding : std::uint8_t { with_update, ahead };

///                  strip 0    strip 1    strip 2
///     gradients 0  ..........|==========|..........  -+
///     gradients 1  ..........|==========|..........  -+- rank 1 adds these along the lane tree, updates its weights,
///     gradients 2  ..........|==========|..........  -+
///     weights 0-2  ..........|==========|..........    and writes the new ones into the weights of every rank
/// The sum never reaches memory: with momentum and two ranks 7 numbers move for each weight of a strip, not 11. Each
/// rank keeps weights of its own. One copy for all would save the writes, but ranks of another socket would read it
/// from there three times in a step.
/// A sum of which every rank has its strip, and what owners make of their strips and hand out, in turns: start_sum,
/// finish, update, start_share, finish. Arrays lie at the same offset of every rank's part. One wait for each half:
/// arrays that are summed may be changed again when what was shared after the sum has arrived - others read them while
/// they update() -, and an array that is shared is written by others from the time at which this rank has started a
/// sum. So strips of weights go out when no rank computes with the old ones any more. update() is one walk over memory:
/// a piece is added, updated and handed out while it lies in the first-level cache; where parts are larger than the
/// caches, others' arrays are written past them. Cost of all p ranks together, v = vectors of all ranks, beside the
/// update's own numbers: reads v n and writes (p-1) n elements; `ahead` writes n more and reads them again. No message.
template <class T>
class shared_strips {
public:
    /// `runs`: the lanes of each rank of the group. `strips`: a partition of 0 .. n-1, one for each. Throws
    /// core::error.
    [[gnu::cold]] shared_strips(const shared_members& members, std::span<const parallel::block> runs,
                                std::span<const parallel::block> strips, std::size_t n, parallel::team team,
                                shared_adding adding = shared_adding::with_update)
        : n_{n}, team_{team}, sum_{runs}, signals_{members.signals()} {
        if (runs.size() != signals_.size() || strips.size() != signals_.size())
            core::fail(core::text(signals_.size(), " ranks with ", runs.size(), " runs of lanes and ", strips.size(),
                                  " strips"),
                       "pass one run of lanes and one strip for each rank");
        check_strips(strips, n);
        signals_.name({.elements = n,
                       .unit = comm::unit_of<T>,
                       .kind = comm::short_name{"shared averaging"},
                       .what = members.what});
        strip_ = strips[members.rank];
        own_ = members.memory->of(members.parts[members.rank], whole(members)).data();
        for (const auto& leaf : sum_.leaves())
            leaves_.push_back(members.memory->of(members.parts[leaf.rank], whole(members)).data());
        for (std::size_t distance = 1; distance < signals_.size(); ++distance)
            others_.push_back(
                members.memory->of(members.parts[(members.rank + distance) % signals_.size()], whole(members)).data());
        bytes_ = members.memory->bytes();
        streamed_ = bytes_ >= simd::beyond_caches;
        in_place_ = adding == shared_adding::ahead || leaves_.size() == 1;  // one vector is its own sum
        from_.resize(leaves_.size());
        scratch_.resize(sum_.scratch_size() * static_cast<std::size_t>(std::max(1, team_.threads)));
    }

    /// `vectors`: this rank's array in its part, with room for one vector for each node of the lanes of the rank that
    /// has the most. Throws core::error if it does not lie there, or something is running.
    void start_sum(std::span<T> vectors) {
        refuse_while_running();
        const std::size_t at = offset_of(vectors, sum_.most_vectors());
        for (std::size_t i = 0; i < leaves_.size(); ++i)
            from_[i] = reinterpret_cast<const T*>(leaves_[i] + at) + sum_.leaves()[i].slot * n_;
        sums_ = vectors.data();
        start(stage::summing);
    }
    /// After a sum: calls change(part, sums) for all pieces of the strip, on all threads. It makes array[part] out of
    /// `sums`, those of `part`, and must not throw. `array`: n elements in the part of this rank, of which its strip is
    /// handed out. Throws core::error if it does not lie there.
    template <class F>
    void update(std::span<T> array, const F& change) {
        if (stage_ != stage::summed)
            core::fail("a strip of shared memory is to be updated without a sum",
                       "call start_sum() and finish() first");
        const std::size_t at = offset_of(array, 1);
        const std::size_t threads =
            strip_.size() <= 2 * piece ? 1 : static_cast<std::size_t>(std::max(1, team_.threads));
        parallel::on_each_thread({static_cast<int>(threads)}, [&](std::size_t thread) {
            const auto mine = parallel::split(strip_.size(), threads, thread, piece);
            walk({strip_.first + mine.first, strip_.first + mine.last}, array, at, thread, change);
        });
        stage_ = stage::updated;
    }
    /// Tells the others that the strip has been handed out, by the walk of update().
    void start_share(std::span<T> = {}) {
        if (stage_ != stage::updated)
            core::fail("a strip of shared memory is to be shared before it was updated", "call update() first");
        start(stage::sharing);
    }

    /// Does what can be done without waiting; true when it is over. Now and then looks for a failure: throws
    /// remote_failure.
    bool poll() {
        if (progress()) return true;
        signals_.polled();
        return false;
    }
    /// The same without a look for failures: what was started can still end when others have failed.
    bool progress() noexcept { return !running() || advance(); }
    /// Of messages.
    [[nodiscard]] static constexpr std::size_t bytes_per_step() noexcept { return 0; }
    /// For a wait of one's own that polls it.
    [[nodiscard]] comm::pending_operation pending() const noexcept { return signals_.pending(); }
    /// Waits until what was started is over. Throws remote_failure if a rank has announced one.
    void finish() {
        if (running()) signals_.wait([](void* self) { return static_cast<shared_strips*>(self)->advance(); }, this);
    }

private:
    enum class stage : std::uint8_t { idle, summing, summed, updated, sharing };
    static constexpr std::size_t piece = 8192 / sizeof(T);

    static tensor::slice<std::byte> whole(const shared_members& members) noexcept {
        return {0, members.memory->bytes()};
    }

    [[nodiscard]] bool running() const noexcept { return stage_ == stage::summing || stage_ == stage::sharing; }

    /// Where the array lies, in bytes from the start of the part.
    [[nodiscard, gnu::noinline]] std::size_t offset_of(std::span<T> array, std::size_t vectors) const {
        const auto offset = reinterpret_cast<std::uintptr_t>(array.data()) - reinterpret_cast<std::uintptr_t>(own_);
        if (array.size() < vectors * n_ || offset > bytes_ || array.size() * sizeof(T) > bytes_ - offset)
            core::fail(core::text("an array of ", array.size(), " numbers for ", vectors, " x ", n_,
                                  " in shared memory of ", bytes_, " bytes"),
                       "reserve it there, one vector for each node of the lanes of the rank that has the most");
        return offset;
    }

    void refuse_while_running() const {
        if (running())
            core::fail("an operation on shared memory was started while it is running", "call finish() first");
    }
    [[gnu::noinline]] void start(stage what) {
        refuse_while_running();
        stage_ = what;
        signals_.begins(std::source_location::current());
        signals_.raise(++turn_);
        (void)advance();
    }

    [[gnu::noinline]] bool advance() noexcept {
        if (!signals_.all_reached(turn_)) return false;
        if (stage_ == stage::summing && in_place_) sum_(team_, from_, {&sums_, 1}, strip_, scratch_);
        stage_ = stage_ == stage::summing ? stage::summed : stage::idle;
        return true;
    }

    /// What one thread does.
    template <class F>
    void walk(parallel::block part, std::span<T> array, std::size_t at, std::size_t thread, const F& change) noexcept {
        alignas(simd::alignment) T sums[piece];
        T* const to = sums;
        for (parallel::block now{part.first, part.first}; now.first < part.last; now.first = now.last) {
            now.last = std::min(now.first + piece, part.last);
            if (!in_place_)
                sum_(from_, {&to, 1}, now,
                     std::span{scratch_}.subspan(thread * sum_.scratch_size(), sum_.scratch_size()), now.first);
            change(now, std::span<const T>{in_place_ ? sums_ + now.first : sums, now.size()});
            for (std::byte* const other : others_)
                simd::copy(array.data() + now.first, now.size(), streamed_,
                           reinterpret_cast<T*>(other + at) + now.first);
        }
        if (streamed_) simd::stream_end();
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
    bool streamed_ = false;       // what others read is written past the caches
    bool in_place_ = false;       // sums lie where this rank's vector was
    std::vector<const T*> from_;  // what is added,
    T* sums_ = nullptr;           // and this rank's first
    std::vector<T> scratch_;
    std::uint64_t turn_ = 0;
    stage stage_ = stage::idle;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION shared_signals shared_members::signals() const {
    std::vector<shared_signal*> all;
    for (const std::size_t part : parts) all.push_back(memory->of(part, signal).data());
    return {all, all[rank], parts, memory->aborts(), memory->group(), memory->crowded()};
}

#endif

}  // namespace lockstep::node
