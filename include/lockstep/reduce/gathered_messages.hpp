// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Averaging through compressed messages that cannot be added on the way: every rank gathers and decodes those of all
// workers. Models Reducer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/varying_operation.hpp"
#include "lockstep/compress/concept.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/reduce/piece_message.hpp"
#include "lockstep/reduce/whole_sum.hpp"
#include "lockstep/reduce/worker_sum.hpp"

namespace lockstep::reduce {

/// The sums of each worker's lanes are compressed piece by piece (see reduce::piece), with state and random words of
/// that worker and piece. All ranks decode the messages of all workers in ascending order: the same bits on any number
/// of ranks and for any buckets. Ranks that share a worker add its lanes first, over its own lane tree; then each of
/// them compresses the sum, and the first one sends it. Every rank owns the whole bucket (its weights are never sent)
/// and keeps the whole optimizer state. Cost for each rank, with W workers on p ranks: p-1 messages (log2(p) rounds on
/// a power of two) of W/p compressed bucket each, W decodings, W/p residuals; where a worker has q ranks, 2n(q-1)/q
/// numbers more. Messages of a compressor that varies() travel with no more bytes than they have.
template <class T, compress::Compressor<T> C>
class gathered_messages {
public:
    [[gnu::cold]] gathered_messages(const bucket& of, const C& compressor, tensor::arena& arena)
        : compressor_{compressor},
          n_{of.n},
          team_{of.team},
          deal_{of.deal},
          speaks_{of.deal.sends(of.ranks.rank())},
          is_first_{of.ranks.rank() == 0},
          varies_{compress::varies(compressor)},
          slots_{compress::slots_of(compressor)},
          shared_slots_{compress::shared_slots_of(compressor)},
          inside_{worker_sum<T>::make(of, arena)},
          state_{arena.reserve<T>(core::checked_product("numbers of a compressor", slots_, own(), of.n))},
          shared_{arena.reserve<T>(core::checked_product("numbers of a compressor", shared_slots_, of.n))} {
        std::size_t bytes = 0, work = 0, longest = 0, scratch = 0;
        auto changes = compress::changes_of(compressor);
        changes.insert(changes.begin(), 0);
        for (const std::uint64_t step : changes) {
            layout& made = layouts_.emplace_back(layout{step, offsets_at(step), 0, nullptr, nullptr});
            const auto& offsets = made.offsets;
            for (std::size_t which = 0; which < deal_.pieces.size(); ++which)
                longest = std::max(longest, offsets[which + 1] - offsets[which]);
            made.room = varies_ ? (offsets.back() + 15) / 16 * 16 : offsets.back();
            bytes = std::max(bytes, core::checked_product("bytes of all messages", deal_.workers, made.room));
            if (varies_) {
                made.varying = std::make_unique<comm::varying_operation>(of.ranks, gathering_of(of.ranks.rank(), 1),
                                                                         made.room, &never_added, nullptr, of.sum);
                work = std::max(work, made.varying->work_size() * made.room);
            } else {
                made.gather = std::make_unique<comm::operation<std::byte>>(
                    of.ranks, gathering_of(of.ranks.rank(), made.room), of.team, comm::flow::usual_piece, of.sum);
            }
        }
        places_.resize(varies_ ? deal_.workers * deal_.pieces.size() : 0);
        messages_ = arena.reserve<std::byte>(bytes);
        varying_work_ = arena.reserve<std::byte>(work);
        if constexpr (compress::has_seal<C, T>) sealed_ = arena.reserve<std::byte>(longest);
        for (const piece& one : deal_.pieces)
            scratch = std::max(scratch, std::size_t{compress::scratch_size<T>(compressor, one.count)});
        scratch_ = arena.reserve<T>(scratch);
        if (inside_) work_ = arena.reserve<T>(inside_->work_size());
    }

    void bind(const tensor::arena& arena) noexcept { arena_ = &arena; }
    [[nodiscard]] parallel::block owned() const noexcept { return {0, n_}; }

    void start(std::span<T> gradient, std::uint64_t step) { start(gradient, step, step); }
    /// With messages as long as those of step `room`.
    void start(std::span<T> gradient, std::uint64_t step, std::uint64_t room) {
        gradient_ = gradient;
        step_ = step;
        while (layout_ > 0 && layouts_[layout_].from > room) --layout_;
        while (layout_ + 1 < layouts_.size() && layouts_[layout_ + 1].from <= room) ++layout_;
        is_decoded_ = false;
        if (!inside_) return send_messages();
        stage_ = stage::adding;
        inside_->start(gradient, (*arena_)[work_]);
    }
    bool poll() {
        return advance([](auto& operation) { return operation.poll(); });
    }
    bool progress() {
        return advance([](auto& operation) { return operation.progress(); });
    }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        if (stage_ == stage::adding) return inside_->pending();
        return with_gather([](const auto& operation) { return operation.pending(); });
    }
    void finish() {
        (void)advance([](auto& operation) {
            operation.finish();
            return true;
        });
        if (std::exchange(is_decoded_, true)) return;
        if (varies_) find_places();
        const std::span<T> sum = gradient_.first(n_);
        std::fill(sum.begin(), sum.end(), T{0});
        for (std::size_t worker = 0; worker < deal_.workers; ++worker)
            for (std::size_t which = 0; which < deal_.pieces.size(); ++which)
                if (!decode(worker, which, sum))
                    return std::fill(sum.begin(), sum.end(), std::numeric_limits<T>::quiet_NaN());
        if constexpr (compress::has_seal<C, T>)
            for (const piece& one : deal_.pieces)
                if (!travels_dense(compressor_, one)) compressor_.seal(sealing_of(one, sum));
    }
    template <class F>
    void update(std::span<T>, const F& change) noexcept {
        change_blocks<T>(team_, owned(), gradient_.first(n_), change);
    }
    /// Every rank has made the same update: nothing is sent.
    void share(std::span<T>) noexcept {}

    /// In the step that was started last.
    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        const layout& of = layouts_[layout_];
        std::size_t sent = (varies_ ? of.varying->program() : of.gather->program()).sent().elements;
        // Before the first step the longest ones.
        if (varies_) sent = of.varying->sent_bytes() > 0 ? of.varying->sent_bytes() - sent_before_ : sent * of.room;
        return sent + (inside_ ? inside_->bytes() : 0);
    }
    [[nodiscard]] std::span<T> sums() const noexcept { return gradient_.first(n_); }
    [[nodiscard]] static bool replicates() noexcept { return true; }
    /// To be changed between two steps, on all ranks alike; its room is known from the start.
    [[nodiscard]] C& compressor() noexcept { return compressor_; }
    [[nodiscard]] const C& compressor() const noexcept { return compressor_; }
    /// The slots of all workers of this rank: slot by slot, n numbers each.
    [[nodiscard]] tensor::slice<T> state() const noexcept { return state_; }
    /// Between two steps: room for so many bytes of messages, at least those of all workers.
    [[nodiscard]] tensor::slice<std::byte> room() const noexcept { return messages_; }
    /// What gathers the messages of a step for which there is room of its own, by number.
    [[nodiscard]] const collectives::schedule& gathering(std::size_t room) const noexcept {
        return layouts_[room].gather->program();  // of messages of fixed lengths
    }
    /// Once its messages are written: adds what they decode to for a worker of this rank, n numbers.
    void decode_own(std::size_t worker, std::span<T> sum) const {
        for (std::size_t which = 0; which < deal_.pieces.size(); ++which)
            (void)decode(deal_.own.first + worker, which, sum);
    }
    template <class Visitor>
    void visit_state(Visitor&& visit, std::size_t set) const {
        for (const piece& one : deal_.pieces)
            if (!travels_dense(compressor_, one)) {
                visit_worker_state(visit, deal_, one, (*arena_)[state_], slots_, n_, set, speaks_);
                visit_shared_state(visit, one, set);
            }
    }

private:
    enum class stage : unsigned char { adding, gathering };

    [[nodiscard]] std::size_t own() const noexcept { return deal_.own.size(); }

    /// What a compressor changes of the sum, on every rank alike.
    [[nodiscard]] compress::sealing<T> sealing_of(const piece& one, std::span<T> sum) const noexcept {
        const auto series = static_cast<std::uint32_t>(one.tensor);
        const core::random_stream random{deal_.seed, core::purpose::reduction, series,
                                         static_cast<std::uint32_t>(step_)};
        return {.sum = sum.subspan(one.first, one.count),
                .state = tensor::slots<T>{(*arena_)[shared_].data(), shared_slots_, n_, n_}.part(one.first, one.count),
                .message = (*arena_)[sealed_],
                .scratch = (*arena_)[scratch_],
                .random = random.from(one.offset / 4),
                .step = step_,
                .from = one.from()};
    }
    template <class Visitor>
    void visit_shared_state(Visitor&& visit, const piece& one, std::size_t set) const {
        for (std::size_t slot = 0; slot < shared_slots_; ++slot)
            visit(tensor::state_part<T>{.role = "reduction",
                                        .slot = slot,
                                        .set = set,
                                        .tensor = one.tensor,
                                        .segment = one.offset,
                                        .numbers = (*arena_)[shared_].subspan(slot * n_ + one.first, one.count),
                                        .speaks = is_first_});
    }
    /// Messages from step `from` on.
    struct layout {
        std::uint64_t from = 0;
        std::vector<std::size_t> offsets{};
        std::size_t room = 0;                                  ///< bytes for the messages of a worker
        std::unique_ptr<comm::operation<std::byte>> gather{};  ///< one of the two
        std::unique_ptr<comm::varying_operation> varying{};
    };
    template <class F>
    decltype(auto) with_gather(const F& f) const {
        const layout& of = layouts_[layout_];
        return varies_ ? f(*of.varying) : f(*of.gather);
    }
    /// An all-gather adds nothing.
    static void never_added(const void*, std::byte*, const std::byte*, std::byte*) noexcept {}
    /// Where the message of each piece begins among those of a worker, and where the last one ends.
    [[nodiscard, gnu::cold]] std::vector<std::size_t> offsets_at(std::uint64_t step) const {
        // Messages that vary begin with the length of all of them.
        std::vector<std::size_t> out{varies_ ? sizeof(std::uint64_t) : 0};
        for (const piece& one : deal_.pieces)
            out.push_back(core::checked_sum("bytes of a message", out.back(), message_room<T>(compressor_, one, step)));
        return out;
    }
    /// `bytes`: of a worker.
    [[nodiscard, gnu::cold]] collectives::schedule gathering_of(std::size_t rank, std::size_t bytes) const {
        std::vector<parallel::block> strips;
        for (const auto& workers : deal_.messages) strips.push_back({workers.first * bytes, workers.last * bytes});
        return collectives::all_gather(rank, strips);
    }

    /// Goes on as far as step(operation) says that one is over; true when all are.
    template <class Step>
    bool advance(const Step& step) {
        if (stage_ == stage::adding) {
            if (!inside_->advance(step)) return false;
            send_messages();
        }
        return with_gather(step);
    }

    void send_messages() {
        const layout& of = layouts_[layout_];
        for (std::size_t worker = 0; worker < own(); ++worker) {
            std::uint64_t place = of.offsets.front();
            for (std::size_t which = 0; which < deal_.pieces.size(); ++which) {
                if (varies_) place_of(deal_.own.first + worker, which) = place;
                encode(worker, which);
                if (varies_) place = end_of(deal_.own.first + worker, which);
            }
            if (varies_) std::memcpy(messages_of(deal_.own.first + worker).data(), &place, sizeof(place));
        }
        stage_ = stage::gathering;
        if (!varies_) return of.gather->start((*arena_)[messages_], {});
        sent_before_ = of.varying->sent_bytes();
        of.varying->start((*arena_)[messages_].first(deal_.workers * of.room), (*arena_)[varying_work_]);
    }
    /// All messages of worker number `worker` of all.
    [[nodiscard]] std::span<std::byte> messages_of(std::size_t worker) const noexcept {
        const std::size_t room = layouts_[layout_].room;
        return (*arena_)[messages_].subspan(worker * room, room);
    }
    /// The message of a piece among them.
    [[nodiscard]] std::span<std::byte> message_of(std::size_t worker, std::size_t which) const noexcept {
        const auto& offsets = layouts_[layout_].offsets;
        const std::size_t place = varies_ ? places_[worker * deal_.pieces.size() + which] : offsets[which];
        return messages_of(worker).subspan(place, offsets[which + 1] - offsets[which]);
    }
    /// Where it begins, and where it ends, in messages that vary.
    [[nodiscard]] std::size_t& place_of(std::size_t worker, std::size_t which) noexcept {
        return places_[worker * deal_.pieces.size() + which];
    }
    [[nodiscard]] std::size_t end_of(std::size_t worker, std::size_t which) noexcept {
        message_header length = 0;
        const std::size_t place = place_of(worker, which);
        std::memcpy(&length, messages_of(worker).data() + place, sizeof(length));
        return place + sizeof(length) + (length == no_message ? 0 : (length + 7) / 8 * 8);
    }
    /// Of the messages of other ranks.
    void find_places() noexcept {
        for (std::size_t worker = 0; worker < deal_.workers; ++worker) {
            if (worker >= deal_.own.first && worker < deal_.own.last) continue;
            std::size_t place = layouts_[layout_].offsets.front();
            for (std::size_t which = 0; which < deal_.pieces.size(); ++which) {
                place_of(worker, which) = place;
                place = end_of(worker, which);
            }
        }
    }
    /// `worker`: of this rank.
    void encode(std::size_t worker, std::size_t which) {
        const piece& one = deal_.pieces[which];
        const std::size_t number = deal_.own.first + worker;
        const tensor::slots<T> state{(*arena_)[state_].data() + worker * slots_ * n_, slots_, n_, n_};
        write_message<T>(compressor_, one,
                         message_writer{.team = team_,
                                        .seed = deal_.seed,
                                        .step = step_,
                                        .worker = number,
                                        .workers = deal_.workers,
                                        .fixed_room = !varies_},
                         gradient_.subspan(worker * n_ + one.first, one.count), message_of(number, which),
                         state.part(one.first, one.count), (*arena_)[scratch_]);
    }
    /// False: numbers of that worker are not finite.
    [[nodiscard]] bool decode(std::size_t worker, std::size_t which, std::span<T> sum) const {
        const piece& one = deal_.pieces[which];
        return add_message<T>(compressor_, one, message_of(worker, which), sum.subspan(one.first, one.count));
    }

    C compressor_;
    std::size_t n_;
    parallel::team team_;
    worker_deal deal_;
    bool speaks_;    // of those that share a worker,
    bool is_first_;  // and of all
    bool varies_;    // messages have the lengths that they need
    std::size_t slots_;
    std::size_t shared_slots_;
    std::vector<layout> layouts_;           // from the first step on, and from each at which lengths change
    std::size_t layout_ = 0;                // that of the step
    std::vector<std::size_t> places_;       // of each message of each worker, where lengths vary
    std::size_t sent_before_ = 0;           // bytes, in all steps
    std::unique_ptr<worker_sum<T>> inside_;  // where ranks share a worker
    tensor::slice<T> state_;
    tensor::slice<T> shared_;
    tensor::slice<T> scratch_;
    tensor::slice<T> work_;
    tensor::slice<std::byte> messages_;
    tensor::slice<std::byte> varying_work_;
    tensor::slice<std::byte> sealed_;  // a message of the sum
    const tensor::arena* arena_ = nullptr;
    std::span<T> gradient_;
    std::uint64_t step_ = 0;
    stage stage_ = stage::gathering;
    bool is_decoded_ = true;
};

}  // namespace lockstep::reduce
