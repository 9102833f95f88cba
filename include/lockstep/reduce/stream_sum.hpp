// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A sum of index-value streams over the workers of a bucket, and what of it owners send on quantised. Parts of
// reduce/sparse_sum.hpp.
// Tested by tests/unit/reduce/sparse_sum.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/sparse_sum.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/varying_operation.hpp"
#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/parts/index_list.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/kernels/elementwise/index_value_stream.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/reduce/worker_fold.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::reduce {

/// Pieces of a bucket that are summed as one vector: their numbers, one piece after the other, are the universe.
class stream_pieces {
public:
    struct entry {
        piece what;
        std::size_t at = 0;  ///< of its first number in the universe
        compress::list_room room;
    };

    [[gnu::cold]] void add(const piece& what, const compress::list_room& room) {
        pieces_.push_back({what, universe_, room});
        universe_ = core::checked_sum("numbers of a sparse sum", universe_, what.count);
        entries_ += room.most;
        usual_entries_ += room.usual;
    }
    [[nodiscard]] std::span<const entry> all() const noexcept { return pieces_; }
    [[nodiscard]] std::size_t universe() const noexcept { return universe_; }
    /// Of a worker, at most.
    [[nodiscard]] std::size_t entries() const noexcept { return entries_; }
    [[nodiscard]] std::size_t usual_entries() const noexcept { return usual_entries_; }

    /// f(place in the bucket, value) for each entry of a stream of the part of the universe that begins at `first`.
    template <class T, class F>
    void each(const kernels::index_value_stream<const T>& stream, std::size_t first, const F& f) const noexcept {
        auto piece = pieces_.begin();
        const auto locate = [&](std::size_t at) {
            while (at >= piece->at + piece->what.count) ++piece;
            return piece->what.first + (at - piece->at);
        };
        if (stream.header().is_dense != 0) {
            const auto values = stream.values();
            for (std::size_t i = 0; i < values.size(); ++i) f(locate(first + i), values[i]);
            return;
        }
        for (std::size_t i = 0, count = stream.count(); i < count; ++i) {
            const auto [index, value] = kernels::index_value_stream<T>::entry(stream.entries(), i);
            f(locate(first + index), value);
        }
    }

private:
    std::vector<entry> pieces_;
    std::size_t universe_ = 0;
    std::size_t entries_ = 0;
    std::size_t usual_entries_ = 0;
};

/// Who brings workers to a sum of streams, in a bucket: the ranks that send their messages. One rank, or one worker,
/// which every rank has: nothing is sent.
struct stream_ranks {
    std::vector<parallel::block> runs{};  ///< of workers
    std::size_t rank = 0;
    std::size_t senders = 1;

    [[gnu::cold]] explicit stream_ranks(const bucket& of)
        : runs{of.deal.workers > 1 ? of.deal.messages : std::vector<parallel::block>{{0, of.deal.workers}}},
          rank{of.deal.workers > 1 ? of.ranks.rank() : 0} {
        senders = static_cast<std::size_t>(std::ranges::count_if(runs, [](const auto& run) { return !run.empty(); }));
    }
};

/// The streams of the workers of this rank, one for each part of the universe; added first along the tree of workers as
/// far as it goes on this rank, then by the schedule.
/// Memory: for each worker of the rank, and for what the schedule needs, the parts with room for dense streams, or for
/// the entries of all workers.
template <class T>
class stream_sum {
public:
    /// `program`: of collectives/sparse_sum.hpp, over elements that are the parts. `entries`: of a worker, at most.
    /// `cuts`: each addition keeps the largest (kernels::merge_largest); none: it keeps all.
    [[gnu::cold]] stream_sum(const bucket& of, collectives::schedule program, std::vector<parallel::block> parts,
                             std::size_t entries, std::vector<kernels::stream_cut> cuts, tensor::arena& arena)
        : parts_{std::move(parts)},
          cuts_{std::move(cuts)},
          own_{of.deal.own.size()},
          room_{room_for(of.deal.workers, entries)},
          fold_{worker_fold::in_order(of.deal.own, of.deal.workers)},
          run_{of.ranks, std::move(program), room_, cuts_.empty() ? &merge : &merge_cut, this, of.sum} {
        constexpr std::string_view what = "bytes of the streams of a bucket";
        data_ = arena.reserve<std::byte>(
            core::checked_product(what, std::max(own_ * parts_.size(), run_.data_size()), room_));
        work_ = arena.reserve<std::byte>(core::checked_product(what, run_.work_size(), room_));
    }
    stream_sum(const stream_sum&) = delete;  // its operation knows where it is
    stream_sum& operator=(const stream_sum&) = delete;

    void bind(const tensor::arena& arena) noexcept {
        data_of_ = arena[data_];
        work_of_ = arena[work_];
    }

    /// Streams without an entry. `worker`: of this rank.
    void clear(std::size_t worker) const noexcept {
        for (std::size_t part = 0; part < parts_.size(); ++part)
            if (cuts_.empty())
                writable(worker, part).clear(parts_[part].size());
            else  // sparse, however many entries there are
                writable(worker, part).write({.universe = static_cast<std::uint32_t>(parts_[part].size())});
    }
    /// A number of that worker is not finite: the sum means nothing.
    void lose(std::size_t worker) const noexcept {
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            const auto stream = writable(worker, part);
            auto header = stream.header();
            header.is_lost = 1;
            // One with cuts keeps its length.
            std::size_t entries = 0, index = 0;
            for (const auto& cut : cuts_) {
                for (std::size_t i = 0; i < cut.most; ++i)
                    stream.set_entry(stream.entries(), entries++, {static_cast<std::uint32_t>(index + i), T{0}});
                index = cut.end;
            }
            header.bytes += entries * kernels::stream_entry_bytes<T>;
            stream.write(header);
        }
    }
    /// The entries list.index(i) + at of the universe, after all that this worker has.
    template <class List>
    void append(std::size_t worker, const List& list, std::size_t at) const noexcept {
        std::size_t from = 0;
        for (std::size_t part = 0; part < parts_.size() && from < list.size(); ++part) {
            std::size_t to = from;
            while (to < list.size() && at + list.index(to) < parts_[part].last) ++to;
            if (to == from) continue;
            const auto entry = [&](std::size_t i) {
                return kernels::stream_entry<T>{
                    static_cast<std::uint32_t>(at + list.index(from + i) - parts_[part].first), list.value(from + i)};
            };
            const auto stream = writable(worker, part);
            if (cuts_.empty()) {
                stream.append(to - from, entry, scratch());
            } else {
                const std::size_t before = stream.count();
                auto header = stream.header();
                for (std::size_t i = 0; i < to - from; ++i) stream.set_entry(stream.entries(), before + i, entry(i));
                header.bytes += (to - from) * kernels::stream_entry_bytes<T>;
                stream.write(header);
            }
            from = to;
        }
    }

    void start() {
        for (const auto& [adds, to, from] : fold_.actions)
            for (std::size_t part = 0; part < parts_.size(); ++part) {
                const std::byte* const other = memory(from, part);
                if (adds)
                    (cuts_.empty() ? &merge : &merge_cut)(this, memory(to, part), other, scratch());
                else
                    std::memcpy(memory(to, part), other, read(from, part).header().bytes);
            }
        is_over_ = false;
        run_.start(data_of_, work_of_);
    }
    template <class Step>
    bool advance(const Step& step) {
        if (!is_over_) is_over_ = step(run_);
        return is_over_;
    }
    [[nodiscard]] bool is_over() const noexcept { return is_over_; }
    [[nodiscard]] comm::pending_operation pending() const noexcept { return run_.pending(); }

    [[nodiscard]] std::span<const parallel::block> parts() const noexcept { return parts_; }
    /// Before start(): of a worker. After the end, of worker 0: the sum of a part that this rank has.
    [[nodiscard]] kernels::index_value_stream<const T> read(std::size_t worker, std::size_t part) const noexcept {
        return kernels::index_value_stream<const T>{memory(worker, part)};
    }
    /// Handed to MPI since construction.
    [[nodiscard]] std::size_t sent_bytes() const noexcept { return run_.sent_bytes(); }
    [[nodiscard]] std::size_t sent_messages() const noexcept { return run_.sent_messages(); }

private:
    /// Bytes that every stream fits in, and the scratch of an addition.
    [[nodiscard, gnu::cold]] std::size_t room_for(std::size_t workers, std::size_t entries) const {
        constexpr std::string_view what = "bytes of a stream";
        std::size_t most = sizeof(kernels::stream_header);
        if (cuts_.empty()) {
            for (const parallel::block& part : parts_)
                most = std::max(
                    most, kernels::stream_bytes<T>(std::min(core::checked_product(what, workers, entries), part.size()),
                                                   part.size()));
        } else {
            most += core::checked_product(what, entries, kernels::stream_entry_bytes<T>);
            most = std::max(most, kernels::merge_largest_scratch<T>(cuts_));
        }
        return core::checked_sum(what, most, std::size_t{63}) / 64 * 64;
    }
    [[nodiscard]] std::byte* memory(std::size_t worker, std::size_t part) const noexcept {
        return data_of_.data() + (worker * parts_.size() + part) * room_;
    }
    [[nodiscard]] kernels::index_value_stream<T> writable(std::size_t worker, std::size_t part) const noexcept {
        return kernels::index_value_stream<T>{memory(worker, part)};
    }
    /// While the operation does not run.
    [[nodiscard]] std::byte* scratch() const noexcept { return work_of_.data(); }

    static void merge(const void*, std::byte* to, const std::byte* from, std::byte* scratch) noexcept {
        kernels::merge_streams<T>(to, from, scratch);
    }
    static void merge_cut(const void* self, std::byte* to, const std::byte* from, std::byte* scratch) noexcept {
        kernels::merge_largest<T>(static_cast<const stream_sum*>(self)->cuts_, to, from, scratch);
    }

    std::vector<parallel::block> parts_;
    std::vector<kernels::stream_cut> cuts_;
    std::size_t own_;
    std::size_t room_;
    worker_fold fold_;
    comm::varying_operation run_;
    tensor::slice<std::byte> data_;
    tensor::slice<std::byte> work_;
    std::span<std::byte> data_of_;
    std::span<std::byte> work_of_;
    bool is_over_ = true;
};

/// DSAR_Split_allgather: pieces in chunks of 4,096 numbers, each of one owner, who gets their sum as a stream,
/// quantises it, and sends that to all. What is sent depends on the chunk, the seed and the step alone. Random words:
/// those of the tensor and its place, under the purpose of reductions. Cost for each rank: that of
/// collectives::sparse_split, then an all-gather of the quantised numbers.
template <class T, class Q>
class quantised_sum {
public:
    static constexpr std::size_t chunk_size = 4096;

    [[gnu::cold]] quantised_sum(const bucket& of, const stream_ranks& among, const stream_pieces& pieces, const Q& how,
                                tensor::arena& arena)
        : how_{how},
          seed_{of.deal.seed},
          rank_{among.rank},
          layout_{pieces, how, among.runs.size()},
          sum_{of,
               collectives::sparse_split(among.rank, among.runs, layout_.owned),
               layout_.parts,
               pieces.entries(),
               {},
               arena},
          gather_{of.ranks, collectives::all_gather(among.rank, layout_.strips), of.team, comm::flow::usual_piece,
                  of.sum} {
        messages_ = arena.reserve<std::byte>(layout_.bytes);
        values_ = arena.reserve<T>(chunk_size);
    }

    void bind(const tensor::arena& arena) noexcept {
        sum_.bind(arena);
        messages_of_ = arena[messages_];
        values_of_ = arena[values_];
    }
    [[nodiscard]] stream_sum<T>& streams() noexcept { return sum_; }

    void start(std::uint32_t step) {
        step_ = step;
        is_gathering_ = is_over_ = false;
        sum_.start();
    }
    template <class Step>
    bool advance(const Step& step) {
        if (is_over_) return true;
        if (!is_gathering_) {
            if (!sum_.advance(step)) return false;
            encode();
            is_gathering_ = true;
            gather_.start(messages_of_, {});
        }
        return is_over_ = step(gather_);
    }
    [[nodiscard]] bool is_over() const noexcept { return is_over_; }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        return is_gathering_ ? gather_.pending() : sum_.pending();
    }

    [[nodiscard]] bool is_lost() const noexcept {
        return std::ranges::any_of(layout_.strips, [&](const parallel::block& strip) {
            std::uint64_t lost = 0;
            if (!strip.empty()) std::memcpy(&lost, messages_of_.data() + strip.first, sizeof(lost));
            return lost != 0;
        });
    }
    /// Adds the decoded sums to the places of their pieces in the bucket.
    void decode_add(std::span<T> bucket) const noexcept {
        for (const chunk& one : layout_.chunks)
            how_.decode_add(std::span<const std::byte>{messages_of_}.subspan(one.message, one.bytes), T{1},
                            bucket.subspan(one.first, one.count));
    }
    /// Of the second half.
    [[nodiscard]] std::size_t bytes() const noexcept { return gather_.program().sent().elements; }

private:
    static constexpr std::size_t header = sizeof(std::uint64_t);  // of a strip: 1 if the sum is lost

    struct chunk {
        std::size_t at = 0;     // in the universe,
        std::size_t first = 0;  // in the bucket
        std::size_t count = 0;
        std::size_t tensor = 0;
        std::size_t offset = 0;  // in the tensor
        std::size_t message = 0;
        std::size_t bytes = 0;
    };
    /// Who owns which chunks, and where their messages lie. Ranks without a chunk have neither part nor strip.
    struct layout {
        std::vector<chunk> chunks;
        std::vector<parallel::block> of_rank;  // chunks
        std::vector<parallel::block> parts;    // of the universe,
        std::vector<parallel::block> owned;    // of each rank: numbers of parts,
        std::vector<parallel::block> strips;   // and bytes of messages
        std::size_t bytes = 0;

        [[gnu::cold]] layout(const stream_pieces& pieces, const Q& how, std::size_t ranks) {
            for (const auto& one : pieces.all())
                for (std::size_t first = 0; first < one.what.count; first += chunk_size) {
                    const std::size_t count = std::min(chunk_size, one.what.count - first);
                    chunks.push_back({.at = one.at + first,
                                      .first = one.what.first + first,
                                      .count = count,
                                      .tensor = one.what.tensor,
                                      .offset = one.what.offset + first,
                                      .bytes = how.template max_bytes<T>(count)});
                }
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                const parallel::block mine = parallel::split(chunks.size(), ranks, rank);
                const std::size_t begin = bytes;
                of_rank.push_back(mine);
                owned.push_back({parts.size(), parts.size() + (mine.empty() ? 0 : 1)});
                if (!mine.empty()) {
                    parts.push_back({chunks[mine.first].at, chunks[mine.last - 1].at + chunks[mine.last - 1].count});
                    bytes += header;
                }
                for (std::size_t i = mine.first; i < mine.last; ++i) {
                    chunks[i].message = bytes;
                    bytes = core::checked_sum("bytes of quantised sums", bytes, (chunks[i].bytes + 7) / 8 * 8);
                }
                strips.push_back({begin, bytes});
            }
        }
    };

    /// The sums of this rank's chunks.
    void encode() noexcept {
        const parallel::block mine = layout_.of_rank[rank_];
        if (mine.empty()) return;
        const std::size_t part = layout_.owned[rank_].first, begin = layout_.parts[part].first;
        const auto stream = sum_.read(0, part);
        const std::uint64_t lost = stream.header().is_lost;
        std::memcpy(messages_of_.data() + layout_.strips[rank_].first, &lost, sizeof(lost));
        const bool dense = stream.header().is_dense != 0;
        std::size_t next = 0;  // entry of a sparse one
        for (std::size_t i = mine.first; i < mine.last; ++i) {
            const chunk& one = layout_.chunks[i];
            const std::span<T> values = values_of_.first(one.count);
            std::ranges::fill(values, T{0});
            const std::size_t from = one.at - begin;
            if (dense) kernels::add(std::span<const T>{stream.values().subspan(from, one.count)}, values);
            for (; !dense && next < stream.count(); ++next) {
                const auto [index, value] = kernels::index_value_stream<T>::entry(stream.entries(), next);
                if (index >= from + one.count) break;
                values[index - from] += value;
            }
            const core::random_stream random{seed_, core::purpose::reduction, static_cast<std::uint32_t>(one.tensor),
                                             step_};
            how_.encode(compress::encoding<T>{.values = values,
                                              .message = messages_of_.subspan(one.message, one.bytes),
                                              .state = {},
                                              .scratch = {},
                                              .random = random.from(one.offset / 4)});
        }
    }

    Q how_;
    std::uint64_t seed_;
    std::size_t rank_;
    layout layout_;
    stream_sum<T> sum_;
    comm::operation<std::byte> gather_;
    tensor::slice<std::byte> messages_;
    tensor::slice<T> values_;
    std::span<std::byte> messages_of_;
    std::span<T> values_of_;
    std::uint32_t step_ = 0;
    bool is_gathering_ = false;
    bool is_over_ = true;
};

}  // namespace lockstep::reduce
