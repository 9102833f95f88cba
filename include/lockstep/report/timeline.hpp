// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A timeline of the first steps of a run, for Perfetto and chrome://tracing, and a picture of one of them. An observer.

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/report/events.hpp"
#include "lockstep/report/recorder.hpp"
#include "lockstep/report/timeline_picture.hpp"

namespace lockstep::report {

/// trainer.fit(set, ls::epochs{1}, ls::timeline{"trace.json"}) writes trace events: a process for each rank, with a
/// track for its work (forward and backward of each layer, loss, update, data, waiting) and one for each bucket (sum of
/// gradients, share of weights, bytes). While the run lasts, each rank appends to a file of its own, trace.rank0.json
/// and so on, about twice a second, between steps: after a crash they are there, and readable (the format needs no
/// closing bracket). At the end of fit() rank 0 writes all of them into one and they are removed; a fit() without a
/// step leaves what an earlier run has written. Times of ranks on one kernel are exact to each other, others are
/// aligned to about the time of a message. Cost: a clock and 32 bytes for each event, about two for each layer of a
/// step; nothing after `steps` steps.
class timeline {
public:
    static constexpr bool on_every_rank = true;  ///< it gathers events
    static constexpr bool gathers_first = true;  ///< the times of ranks
    static constexpr bool sees_weights = false;  ///< they may arrive later

    /// `path`: empty writes nothing. `steps`: how many are recorded. `picture`: an SVG file with a typical one of them;
    /// empty: none.
    explicit timeline(std::string path, std::size_t steps = 50, std::string picture = {});
    /// Moves.
    timeline(timeline&&) noexcept = default;
    /// What is left of a run that ended with an exception.
    ~timeline();

    /// What fit() records into; null where the path is empty.
    [[nodiscard]] recorder* events_of_this_rank() noexcept { return path_.empty() ? nullptr : &recorder_; }

    /// What it writes.
    [[nodiscard]] std::array<std::string, 2> files() const { return {path_, path_.empty() ? "" : picture_}; }
    /// Opens the file of this rank. Collective.
    [[gnu::cold]] void on_begin(const comm::group& ranks);
    /// Writes what has been recorded, about twice a second.
    void on_step(const step_event&) {
        if (written_ == recorder_.events.size()) return;
        const auto now = recorder::clock::now();
        if (recorder_.events.size() - written_ < 4096 && now - last_write_ < std::chrono::milliseconds{500}) return;
        last_write_ = now;
        write();
    }
    /// Gathers the events of all ranks, on all of them.
    template <class Trainer>
    [[gnu::cold]] void on_end(Trainer& trainer, const totals&) {
        gather(trainer.ranks());
    }

private:
    [[gnu::cold]] void gather(const comm::group& ranks);
    [[nodiscard]] std::string part_name() const;
    [[nodiscard]] bool is_device() const noexcept {
        struct stat about {};
        return ::stat(path_.c_str(), &about) == 0 && !S_ISREG(about.st_mode);
    }

    /// Ranks on one kernel share its clock. Others take the median of what their clocks showed right after a gather.
    [[gnu::cold]] void align(const comm::group& ranks);
    [[nodiscard]] recorded_event on_common_clock(recorded_event event) const noexcept {
        event.begin -= ahead_ + origin_;
        event.end -= ahead_ + origin_;
        return event;
    }

    /// Numbers of processes and tracks are unique: Perfetto merges or hides some of those that are 0 or used twice. A
    /// rank's process has the number of the track of its work, which makes that its main one.
    [[nodiscard]] std::size_t process_of(std::size_t rank) const noexcept {
        return (rank + 1) * std::max<std::size_t>(1000, recorder_.buckets.size() + 1);
    }
    [[nodiscard, gnu::cold]] std::string metadata(std::size_t rank) const;
    /// `bytes`: that this rank sends for each bucket.
    [[nodiscard, gnu::cold]] std::string line(const recorded_event& event, std::size_t rank, const recorded_run& run,
                                              const std::vector<std::size_t>& bytes) const;

    /// Appends what is new to the file of this rank. Does not throw: the work goes on without it.
    [[gnu::cold]] void write();

    std::string path_;
    std::string picture_;
    recorder recorder_;
    std::vector<std::string> layers_;
    core::output_file part_;
    std::size_t written_ = 0;
    recorder::clock::time_point last_write_{};
    std::size_t rank_ = 0;
    std::uint64_t kernel_ = 0;
    bool aligned_ = false;
    std::int64_t ahead_ = 0;   // this rank's clock, of that of rank 0
    std::int64_t origin_ = 0;  // of rank 0's clock
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION timeline::timeline(std::string path, std::size_t steps, std::string picture)
    : path_{std::move(path)}, picture_{std::move(picture)} {
    recorder_.limit(steps);
    recorder_.events.reserve(4096);
}

LOCKSTEP_FUNCTION timeline::~timeline() {
    if (part_.is_open() && written_ < recorder_.events.size()) write();
}

LOCKSTEP_FUNCTION void timeline::on_begin(const comm::group& ranks) {
    if (path_.empty()) return;
    layers_.clear();
    for (std::size_t layer = 0; !recorder_.name_of_layer(layer).empty(); ++layer)
        layers_.emplace_back(recorder_.name_of_layer(layer));
    if (part_.is_open()) return;  // a further fit() goes on
    rank_ = ranks.rank();
    if (!aligned_) align(ranks);
    aligned_ = true;
    // Both are written at the end, by the first rank.
    if (rank_ == 0)
        for (const std::string& path : {path_, picture_}) core::require_output(path);
    // Beside a device there is no place for a file.
    part_.open(ranks.size() == 1 && is_device() ? path_ : part_name());
    part_.write("[\n" + metadata(rank_));
    last_write_ = recorder::clock::now();
    written_ = 0;  // of an earlier fit(), whose file this one takes
    if (!recorder_.events.empty()) write();
}

LOCKSTEP_FUNCTION std::string timeline::part_name() const {
    const std::size_t dot = path_.rfind('.'), slash = path_.rfind('/');
    const bool has_ending = dot != std::string::npos && (slash == std::string::npos || dot > slash);
    const std::size_t at = has_ending ? dot : path_.size();
    return core::text(path_.substr(0, at), ".rank", rank_, path_.substr(at));
}

LOCKSTEP_FUNCTION void timeline::align(const comm::group& ranks) {
    char id[64] = {};
    if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
        const std::size_t length = std::fread(id, 1, sizeof id, file);
        std::fclose(file);
        kernel_ = core::hash(std::as_bytes(std::span{id, length}));
    }
    const auto kernels = ranks.gather_all(kernel_);
    const auto leader =
        static_cast<std::size_t>(std::find(kernels.begin(), kernels.end(), kernels[rank_]) - kernels.begin());
    constexpr std::size_t samples = 9;
    std::vector<std::vector<std::int64_t>> shown;
    for (std::size_t i = 0; i < samples; ++i) {
        (void)ranks.gather_all(rank_);
        shown.push_back(ranks.gather_all(recorder::nanoseconds(recorder::clock::now())));
    }
    std::vector<std::int64_t> differences;
    for (const auto& clocks : shown) differences.push_back(clocks[leader] - clocks[0]);
    std::nth_element(differences.begin(), differences.begin() + samples / 2, differences.end());
    ahead_ = leader == 0 ? 0 : differences[samples / 2];
    origin_ = shown.front()[0];  // readers drop what lies before 0: not even an error of the alignment leads there
}

LOCKSTEP_FUNCTION std::string timeline::metadata(std::size_t rank) const {
    const std::size_t process = process_of(rank);
    const auto about = [&](std::string_view what, std::size_t track, std::string_view name, std::string_view value) {
        return core::text(R"({"name":")", what, R"(","ph":"M","pid":)", process, R"(,"tid":)", process + track,
                          R"(,"args":{")", name, R"(":)", value, "}},\n");
    };
    const auto track = [&](std::size_t number, std::string_view name) {
        return about("thread_name", number, "name", core::text('"', name, '"')) +
               about("thread_sort_index", number, "sort_index", core::text(number));
    };
    std::string out = about("process_name", 0, "name", core::text("\"rank ", rank, '"')) +
                      about("process_sort_index", 0, "sort_index", core::text(rank)) + track(0, "work");
    for (std::size_t bucket = 0; bucket < recorder_.buckets.size(); ++bucket) {
        const auto& range = recorder_.buckets[bucket];
        out += track(bucket + 1,
                     core::text("bucket ", bucket, ", layers ", range.lowest_layer, " to ", range.highest_layer));
    }
    return out;
}

LOCKSTEP_FUNCTION std::string timeline::line(const recorded_event& event, std::size_t rank, const recorded_run& run,
                                             const std::vector<std::size_t>& bytes) const {
    const auto microseconds = [](std::int64_t nanoseconds) {
        return core::fixed(1e-3 * static_cast<double>(nanoseconds), 3);
    };
    const bool travels = is_flight(event.what);
    const std::size_t process = process_of(rank);
    // A nanosecond less: rounded by a reader, the end may else lie after the next begin, which would then be drawn
    // inside.
    const std::int64_t took = std::max<std::int64_t>(0, event.end - event.begin - 1);
    std::string out = core::text(
        R"({"name":)", core::json_string(name_of(event, run)), R"(,"cat":")",
        travels                           ? "communication"
        : event.what == activity::waiting ? R"(waiting","cname":"thread_state_iowait)"  // orange in chrome://tracing
                                          : "work",
        R"(","ph":"X","pid":)", process, R"(,"tid":)", travels ? process + event.number + 1 : process, R"(,"ts":)",
        microseconds(event.begin), R"(,"dur":)", microseconds(took), R"(,"args":{"step":)", event.step);
    if (travels && event.number < bytes.size()) out += core::text(R"(,"bytes_of_sum_and_share":)", bytes[event.number]);
    return out + "}},\n";
}

LOCKSTEP_FUNCTION void timeline::write() {
    const recorded_run run{.ranks = {}, .buckets = recorder_.buckets, .layers = layers_, .bytes = {}};
    std::vector<std::size_t> bytes;
    for (const auto& bucket : recorder_.buckets) bytes.push_back(bucket.bytes);
    std::string out;
    for (; written_ < recorder_.events.size(); ++written_)
        out += line(on_common_clock(recorder_.events[written_]), rank_, run, bytes);
    try {
        if (part_.is_open()) part_.write(out);
    } catch (const core::error&) {
        // What is lost here is in the memory of this rank, and on_end() writes it again, or says why not.
    }
}

LOCKSTEP_FUNCTION void timeline::gather(const comm::group& ranks) {
    if (path_.empty()) return;
    write();
    const auto counts = ranks.gather_all(recorder_.events.size());
    std::vector<parallel::block> strips;
    std::size_t all = 0;
    for (const std::size_t count : counts) {
        strips.push_back({all, all + count});
        all += count;
    }
    std::vector<recorded_event> events(all);
    std::transform(recorder_.events.begin(), recorder_.events.end(),
                   events.begin() + static_cast<std::ptrdiff_t>(strips[rank_].first),
                   [&](const recorded_event& event) { return on_common_clock(event); });
    comm::run<recorded_event>(ranks, collectives::all_gather(rank_, strips), std::span{events});
    recorded_run run{.ranks = {}, .buckets = recorder_.buckets, .layers = layers_, .bytes = {}};
    run.bytes.resize(ranks.size());
    for (const auto& bucket : recorder_.buckets) {
        const auto bytes = ranks.gather_all(bucket.bytes);
        for (std::size_t rank = 0; rank < bytes.size(); ++rank) run.bytes[rank].push_back(bytes[rank]);
    }
    for (const auto& strip : strips)
        run.ranks.emplace_back(events.begin() + static_cast<std::ptrdiff_t>(strip.first),
                               events.begin() + static_cast<std::ptrdiff_t>(strip.last));
    if (rank_ == 0 && all > 0) {
        core::output_file file;
        file.open(path_);
        file.write("[\n");
        for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
            std::string out = metadata(rank);
            for (const auto& event : run.ranks[rank]) out += line(event, rank, run, run.bytes[rank]);
            file.write(out);
        }
        file.write(core::text("{\"name\":\"end\",\"ph\":\"M\",\"pid\":", process_of(0), "}\n]\n"));
        file.close();
        if (!picture_.empty()) {
            core::output_file drawing;
            drawing.open(picture_);
            drawing.write(picture(run, typical_step(run)));
            drawing.close();
        }
    }
    // Nothing is removed before the whole is there.
    (void)ranks.gather_all(rank_);
    part_.close();
    std::remove(part_name().c_str());
}

#endif

}  // namespace lockstep::report

namespace lockstep {
using report::timeline;
}  // namespace lockstep
