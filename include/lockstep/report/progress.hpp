// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Progress for people: one line that is written over on a terminal, one line per interval elsewhere. An observer.

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <typeinfo>
#include <utility>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/report/events.hpp"

namespace lockstep::report {

/// 1:02:03 or 2:03.
[[nodiscard, gnu::cold]] std::string clock_text(double seconds);

/// Whether standard output is a terminal with a reader. mpirun gives its first rank one of its own, which has no width.
[[nodiscard]] inline bool is_watched_terminal() noexcept {
    winsize size{};
    return isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
}

/// Writes and flushes. Throws core::error where the stream did not take it: a full disk, a pipe without a reader.
[[gnu::cold]] void print(std::ostream& out, std::string_view text);

/// progress{std::cout}. Rank 0 writes: step, loss, learning rate, samples/s and the time left; a line for each epoch;
/// the report at the end.
class progress {
public:
    /// `interval`: seconds between lines where `out` is no terminal. `end_report`: whether fit() ends with the report.
    explicit progress(std::ostream& out, double interval = 5, bool end_report = true)
        : out_{out},
          interval_{interval},
          end_report_{end_report},
          terminal_{typeid(out) == typeid(std::ostream) && is_watched_terminal()} {}

    /// Writes a line, if it is time.
    [[gnu::cold]] void on_step(const step_event& event);
    /// Writes a line.
    [[gnu::cold]] void on_epoch(const epoch_event& event);
    /// Writes the report, if asked to.
    [[gnu::cold]] void on_end(const totals& run);

private:
    [[nodiscard]] std::string_view close() noexcept { return std::exchange(open_, false) ? "\n" : ""; }

    std::ostream& out_;
    double interval_;
    bool end_report_;
    bool terminal_;
    bool open_ = false;
    double last_ = 0;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string clock_text(double seconds) {
    const auto whole = static_cast<std::uint64_t>(seconds < 0 ? 0 : seconds + 0.5);
    const auto two = [](std::uint64_t number) { return core::text(number < 10 ? "0" : "", number); };
    return whole >= 3600 ? core::text(whole / 3600, ":", two(whole / 60 % 60), ":", two(whole % 60))
                         : core::text(whole / 60, ":", two(whole % 60));
}

LOCKSTEP_FUNCTION void print(std::ostream& out, std::string_view text) {
    errno = 0;
    const bool well = static_cast<bool>(out << text << std::flush);
    if (!well)
        core::fail(core::text("the output cannot be written: ",
                              errno != 0 ? std::generic_category().message(errno) : "the stream has failed"),
                   "check where it goes: a file needs room, a pipe needs a reader");
}

LOCKSTEP_FUNCTION void progress::on_step(const step_event& event) {
    if (event.steps_left > 0 && event.steps_done > 1 && event.seconds - last_ < (terminal_ ? 0.2 : interval_)) return;
    last_ = event.seconds;
    const double per_step = event.seconds / static_cast<double>(event.steps_done);
    open_ = terminal_;
    print(out_,
          core::text(terminal_ ? "\r" : "", "epoch ", event.epoch, "  step ", event.step, "/",
                     event.step + event.steps_left, "  loss ", core::fixed(event.loss, 4), "  rate ",
                     core::fixed(event.rate, 5), "  ", core::fixed(event.samples_per_second, 0), " samples/s  left ",
                     clock_text(per_step * static_cast<double>(event.steps_left)), terminal_ ? "   " : "\n"));
}

LOCKSTEP_FUNCTION void progress::on_epoch(const epoch_event& event) {
    std::string out = core::text(close(), "epoch ", event.epoch, ": loss ", core::fixed(event.loss, 4), ", ",
                                 core::fixed(event.seconds, 1), " s");
    if (event.test) {
        out += core::text(", test loss ", core::fixed(event.test->loss, 4));
        if (event.test->accuracy)
            out += core::text(", test accuracy ", core::fixed(100 * *event.test->accuracy, 2), " %");
        for (const auto& metric : event.test->metrics)
            out += core::text(", test ", metric.name, " ", core::fixed(metric.value, 4));
    }
    print(out_, out + "\n");
}

LOCKSTEP_FUNCTION void progress::on_end(const totals& run) {
    print(out_, core::text(close(), end_report_ ? to_text(run) : ""));
}

#endif

}  // namespace lockstep::report

namespace lockstep {
using report::progress;
}  // namespace lockstep
