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
#include "lockstep/compress/concept.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/reduce/whole_sum.hpp"

namespace lockstep::reduce {

/// The sums of each worker's lanes are compressed piece by piece (see reduce::piece), with state and random words of
/// that worker and piece. All ranks decode the messages of all workers in ascending order: the same bits on any number
/// of ranks and for any buckets. Ranks that share a worker add its lanes first, over its own lane tree; then each of
/// them compresses the sum, and the first one sends it. Every rank owns the whole bucket (its weights are never sent)
/// and keeps the whole optimizer state. Cost for each rank, with W workers on p ranks: p-1 messages (log2(p) rounds on
/// a power of two) of W/p compressed bucket each, W decodings, W/p residuals; where a worker has q ranks, 2n(q-1)/q
/// numbers more.
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
          slots_{compress::slots_of(compressor)},
          shared_slots_{compress::shared_slots_of(compressor)},
          inside_{make_sum_of_shared_worker<T>(of)},
          state_{arena.reserve<T>(core::checked_product("numbers of a compressor", slots_, own(), of.n))},
          shared_{arena.reserve<T>(core::checked_product("numbers of a compressor", shared_slots_, of.n))} {
        std::size_t bytes = 0, longest = 0, scratch = 0;
        auto changes = compress::changes_of(compressor);
        changes.insert(changes.begin(), 0);
        for (const std::uint64_t step : changes) {
            auto offsets = offsets_at(step);
            bytes = std::max(bytes, core::checked_product("bytes of all messages", deal_.workers, offsets.back()));
            for (std::size_t which = 0; which < deal_.pieces.size(); ++which)
                longest = std::max(longest, offsets[which + 1] - offsets[which]);
            auto gathering = gathering_of(of.ranks.rank(), offsets.back());
            layouts_.push_back({step, std::move(offsets),
                                std::make_unique<comm::operation<std::byte>>(of.ranks, std::move(gathering), of.team,
                                                                             comm::flow::usual_piece, of.sum)});
        }
        messages_ = arena.reserve<std::byte>(bytes);
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
        return stage_ == stage::adding ? inside_->pending() : gather().pending();
    }
    void finish() {
        (void)advance([](auto& operation) {
            operation.finish();
            return true;
        });
        if (std::exchange(is_decoded_, true)) return;
        const std::span<T> sum = gradient_.first(n_);
        std::fill(sum.begin(), sum.end(), T{0});
        for (std::size_t worker = 0; worker < deal_.workers; ++worker)
            for (std::size_t which = 0; which < deal_.pieces.size(); ++which)
                if (!decode(worker, which, sum))
                    return std::fill(sum.begin(), sum.end(), std::numeric_limits<T>::quiet_NaN());
        if constexpr (compress::has_seal<C, T>)
            for (const piece& one : deal_.pieces)
                if (!is_dense(one)) compressor_.seal(sealing_of(one, sum));
    }
    template <class F>
    void update(std::span<T>, const F& change) noexcept {
        change_blocks<T>(team_, owned(), gradient_.first(n_), change);
    }
    /// Every rank has made the same update: nothing is sent.
    void share(std::span<T>) noexcept {}

    /// In the step that was started last.
    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        return layouts_[layout_].gather->program().sent().elements + (inside_ ? inside_->bytes() : 0);
    }
    [[nodiscard]] std::span<T> sums() const noexcept { return gradient_.first(n_); }
    [[nodiscard]] static bool replicates() noexcept { return true; }
    /// To be changed between two steps, on all ranks alike; its room is known from the start.
    [[nodiscard]] C& compressor() noexcept { return compressor_; }
    [[nodiscard]] const C& compressor() const noexcept { return compressor_; }
    /// What gathers the messages of a step for which there is room of its own, by number.
    [[nodiscard]] const collectives::schedule& gathering(std::size_t room) const noexcept {
        return layouts_[room].gather->program();
    }
    /// Once its messages are written: adds what they decode to for a worker of this rank, n numbers.
    void decode_own(std::size_t worker, std::span<T> sum) const {
        for (std::size_t which = 0; which < deal_.pieces.size(); ++which)
            (void)decode(deal_.own.first + worker, which, sum);
    }
    template <class Visitor>
    void visit_state(Visitor&& visit, std::size_t set) const {
        for (const piece& one : deal_.pieces)
            if (!is_dense(one)) {
                visit_worker_state(visit, deal_, one, (*arena_)[state_], slots_, n_, set, speaks_);
                visit_shared_state(visit, one, set);
            }
    }

private:
    static constexpr std::size_t header = sizeof(std::uint64_t);  // the length of the message that follows,
    static constexpr std::uint64_t not_finite =
        std::numeric_limits<std::uint64_t>::max();  // or that there is none: all sums become NaN
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
        std::unique_ptr<comm::operation<std::byte>> gather{};
    };
    [[nodiscard]] comm::operation<std::byte>& gather() const noexcept { return *layouts_[layout_].gather; }
    [[nodiscard]] bool is_dense(const piece& of) const noexcept {
        return compress::is_dense(compressor_, compress::matrix{of.rows, of.columns});
    }
    /// Where the message of each piece begins among those of a worker, and where the last one ends.
    [[nodiscard, gnu::cold]] std::vector<std::size_t> offsets_at(std::uint64_t step) const {
        constexpr std::string_view what = "bytes of a message";
        std::vector<std::size_t> out{0};
        for (const piece& one : deal_.pieces) {
            const std::size_t most = is_dense(one)
                                         ? core::checked_product(what, one.count, sizeof(T))
                                         : compress::max_bytes_at<T>(compressor_, one.count, step, one.from());
            out.push_back(core::checked_sum(what, out.back(), core::checked_sum(what, most, header + 7) / 8 * 8));
        }
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
        return step(gather());
    }

    void send_messages() {
        for (std::size_t worker = 0; worker < own(); ++worker)
            for (std::size_t which = 0; which < deal_.pieces.size(); ++which) encode(worker, which);
        stage_ = stage::gathering;
        gather().start((*arena_)[messages_], {});
    }
    /// The message of a piece of worker number `worker` of all.
    [[nodiscard]] std::span<std::byte> message_of(std::size_t worker, std::size_t which) const noexcept {
        const auto& offsets = layouts_[layout_].offsets;
        return (*arena_)[messages_].subspan(worker * offsets.back() + offsets[which],
                                            offsets[which + 1] - offsets[which]);
    }
    /// `worker`: of this rank.
    void encode(std::size_t worker, std::size_t which) {
        const piece& one = deal_.pieces[which];
        const std::size_t number = deal_.own.first + worker;
        const std::span<const T> values = gradient_.subspan(worker * n_ + one.first, one.count);
        const std::span<std::byte> message = message_of(number, which);
        std::uint64_t length = not_finite;  // a compressor could hide such numbers
        if (kernels::first_non_finite(values, team_) == values.size()) {
            if (is_dense(one)) {
                length = values.size_bytes();
                std::memcpy(message.data() + header, values.data(), length);
            } else {
                const std::span<T> state = (*arena_)[state_];
                const auto series = static_cast<std::uint32_t>(one.tensor * deal_.workers + number);
                length = compressor_.encode(compress::encoding<T>{
                    .values = values,
                    .message = message.subspan(header),
                    .state = tensor::slots<T>{state.data() + worker * slots_ * n_, slots_, n_, n_}.part(one.first,
                                                                                                        one.count),
                    .scratch = (*arena_)[scratch_],
                    .random = core::random_stream{deal_.seed, core::purpose::rounding, series,
                                                  static_cast<std::uint32_t>(step_)}
                                  .from(one.offset / 4),
                    .step = step_,
                    .from = one.from(),
                });
            }
        }
        std::memcpy(message.data(), &length, header);
    }
    /// False: numbers of that worker are not finite.
    [[nodiscard]] bool decode(std::size_t worker, std::size_t which, std::span<T> sum) const {
        const piece& one = deal_.pieces[which];
        const std::span<const std::byte> message = message_of(worker, which);
        const std::span<T> part = sum.subspan(one.first, one.count);
        std::uint64_t length = 0;
        std::memcpy(&length, message.data(), header);
        if (length == not_finite) return false;
        if (is_dense(one))
            kernels::add(std::span<const T>{reinterpret_cast<const T*>(message.data() + header), one.count}, part);
        else
            compressor_.decode_add(message.subspan(header, length), T{1}, part);
        return true;
    }

    C compressor_;
    std::size_t n_;
    parallel::team team_;
    worker_deal deal_;
    bool speaks_;    // of those that share a worker,
    bool is_first_;  // and of all
    std::size_t slots_;
    std::size_t shared_slots_;
    std::vector<layout> layouts_;           // from the first step on, and from each at which lengths change
    std::size_t layout_ = 0;                // that of the step
    std::unique_ptr<whole_sum<T>> inside_;  // where ranks share a worker
    tensor::slice<T> state_;
    tensor::slice<T> shared_;
    tensor::slice<T> scratch_;
    tensor::slice<T> work_;
    tensor::slice<std::byte> messages_;
    tensor::slice<std::byte> sealed_;  // a message of the sum
    const tensor::arena* arena_ = nullptr;
    std::span<T> gradient_;
    std::uint64_t step_ = 0;
    stage stage_ = stage::gathering;
    bool is_decoded_ = true;
};

}  // namespace lockstep::reduce
