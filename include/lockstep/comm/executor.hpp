// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs a schedule over MPI: started, polled between kernels, finished; the same object again in the next step, without an allocation.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/comm/schedule.hpp"
#include "lockstep/comm/transport.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::comm {

/// Element types that a schedule with additions may run over.
template <class T>
inline constexpr bool is_addable = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

/// to = to + from, element by element.
template <class T>
    requires is_addable<T>
inline void add(parallel::team team, T* to, const T* from, std::size_t n) noexcept {
    parallel::for_blocks(team, n, 4096, [=](parallel::block part) {
        if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
            simd::map(
                part.size(), [](auto& sum, const auto& other) { sum = sum + other; }, to + part.first, from + part.first);
        else
            for (std::size_t i = part.first; i < part.last; ++i) to[i] = static_cast<T>(to[i] + from[i]);
    });
}

/// One schedule, ready to run over one group. Made in the same order on all ranks: that gives the messages of each operation their own tag, so
/// any number of operations may be in flight, started and polled in any order. Several starts of one operation never overlap.
template <class T>
class operation {
    static_assert(std::is_trivially_copyable_v<T>, "messages are bytes: elements must be trivially copyable");

public:
    /// `team`: threads for the additions. `piece`: longer messages travel in parts of so many bytes.
    operation(group ranks, schedule program, parallel::team team = {}, std::size_t piece = requests::largest_piece)
        : ranks_{std::move(ranks)}, program_{std::move(program)}, team_{team}, tag_{ranks_.next_tag()}, under_way_{piece} {
        core::require(
            is_addable<T> || program_.added() == 0,
            [&] { return core::text("the schedule '", program_.name(), "' adds elements of a type that has no sum"); },
            [] { return std::string{"use a gathering schedule, or an arithmetic element type"}; });
        std::size_t most = 0;
        for (const auto& round : program_.rounds()) {
            std::size_t pieces = 0;
            for (std::size_t i = round.receives.first; i < round.receives.last; ++i) pieces += count_pieces(program_.receives()[i]);
            for (std::size_t i = round.sends.first; i < round.sends.last; ++i) pieces += count_pieces(program_.sends()[i]);
            most = std::max(most, pieces);
        }
        under_way_.reserve(most);
    }

    /// `data` and `work` hold at least what the schedule says and stay where they are until the end. Sends at once what can be sent.
    /// Throws core::error if they are too short or the operation is running.
    void start(std::span<T> data, std::span<T> work) {
        core::require(
            !running_, [&] { return core::text("the operation '", program_.name(), "' was started while it is running"); },
            [] { return std::string{"call finish() first"}; });
        core::require(
            data.size() >= program_.data_size() && work.size() >= program_.work_size(),
            [&] {
                return core::text("the operation '", program_.name(), "' needs ", program_.data_size(), " elements and ",
                                  program_.work_size(), " of scratch, and was given ", data.size(), " and ", work.size());
            },
            [] { return std::string{"provide at least data_size() and work_size() elements"}; });
        arrays_[0] = data.data();
        arrays_[1] = work.data();
        running_ = true;
        round_ = 0;
        post();
        (void)advance();
    }

    /// Makes what progress it can without waiting; true when the operation is over. Now and then looks for a failure: throws remote_failure.
    bool poll() {
        if (!running_ || advance()) return true;
        if (++polls_ % patience::notice_interval == 0) check();
        return false;
    }

    /// Waits until the operation is over. Throws remote_failure if a rank of the group has announced one.
    void finish() {
        for (patience waiting; running_ && !advance();) {
            try {
                waiting.wait(ranks_.notices());
            } catch (...) {
                stop();
                throw;
            }
        }
    }

    void run(std::span<T> data, std::span<T> work) {
        start(data, work);
        finish();
    }

    [[nodiscard]] bool running() const noexcept { return running_; }
    [[nodiscard]] const schedule& program() const noexcept { return program_; }
    /// Messages and bytes handed to MPI by this rank since construction.
    [[nodiscard]] std::size_t sent_messages() const noexcept { return under_way_.sent_messages(); }
    [[nodiscard]] std::size_t sent_bytes() const noexcept { return under_way_.sent_bytes(); }

private:
    [[nodiscard]] std::size_t count_pieces(const message& one) const noexcept { return under_way_.pieces(one.what.count * sizeof(T)); }
    [[nodiscard]] T* at(const range& what) const noexcept { return arrays_[static_cast<std::size_t>(what.in)] + what.first; }

    void post() {
        if (round_ == program_.rounds().size()) return;
        const auto& round = program_.rounds()[round_];
        for (std::size_t i = round.receives.first; i < round.receives.last; ++i) {
            const message& one = program_.receives()[i];
            under_way_.receive(ranks_.over(), one.peer, tag_, std::as_writable_bytes(std::span{at(one.what), one.what.count}));
        }
        for (std::size_t i = round.sends.first; i < round.sends.last; ++i) {
            const message& one = program_.sends()[i];
            under_way_.send(ranks_.over(), one.peer, tag_, std::as_bytes(std::span{at(one.what), one.what.count}));
        }
    }

    bool advance() {
        for (; round_ < program_.rounds().size(); ++round_, post()) {
            if (!under_way_.test()) return false;
            const auto& round = program_.rounds()[round_];
            for (std::size_t i = round.locals.first; i < round.locals.last; ++i) {
                const local_operation& local = program_.locals()[i];
                if (local.what == action::copy)
                    std::copy_n(at(local.from), local.from.count, at(local.to));
                else if constexpr (is_addable<T>)
                    add(team_, at(local.to), at(local.from), local.to.count);
            }
        }
        running_ = false;
        return true;
    }

    void check() {
        try {
            ranks_.check();
        } catch (...) {
            stop();
            throw;
        }
    }

    void stop() noexcept {
        under_way_.abandon();
        running_ = false;
    }

    group ranks_;
    schedule program_;
    parallel::team team_;
    int tag_;
    requests under_way_;
    T* arrays_[2] = {nullptr, nullptr};
    std::size_t round_ = 0;
    std::size_t polls_ = 0;
    bool running_ = false;
};

/// Runs a schedule to its end, with scratch of its own. For setup and tests: allocates.
template <class T>
void run(const group& ranks, schedule program, std::span<T> data) {
    std::vector<T> work(program.work_size());
    operation<T> once{ranks, std::move(program)};
    once.run(data, work);
}

}  // namespace lockstep::comm
