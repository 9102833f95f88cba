// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Progress for people: one line that is written over on a terminal, one line per interval elsewhere. An observer.

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>
#include <typeinfo>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/train/events.hpp"

namespace lockstep::train {

/// 1:02:03 or 2:03.
[[nodiscard, gnu::cold]] std::string clock_text(double seconds);

/// Whether standard output is a terminal that somebody looks at. mpirun gives its first rank one of its own, which has no width.
[[nodiscard]] inline bool is_watched_terminal() noexcept {
    winsize size{};
    return isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
}

/// progress{std::cout}. Rank 0 writes: step, loss, learning rate, samples/s and the time left; a line for each epoch; the report at the
/// end.
class progress {
public:
    /// `interval`: seconds between lines where `out` is no terminal. `end_report`: whether fit() ends with the report.
    explicit progress(std::ostream& out, double interval = 5, bool end_report = true)
        : out_{out},
          interval_{interval},
          end_report_{end_report},
          terminal_{typeid(out) == typeid(std::ostream) && is_watched_terminal()} {}

    [[gnu::cold]] void on_step(const step_event& event);
    [[gnu::cold]] void on_epoch(const epoch_event& event);
    [[gnu::cold]] void on_end(const report& of);

private:
    void close() {
        if (open_) out_ << '\n';
        open_ = false;
    }

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

LOCKSTEP_FUNCTION void progress::on_step(const step_event& event) {
    if (event.steps_left > 0 && event.steps_done > 1 && event.seconds - last_ < (terminal_ ? 0.2 : interval_)) return;
    last_ = event.seconds;
    const double per_step = event.seconds / static_cast<double>(event.steps_done);
    out_ << (terminal_ ? "\r" : "")
         << core::text("epoch ", event.epoch + 1, "  step ", event.step, "/", event.step + event.steps_left, "  loss ",
                       core::fixed(event.loss, 4), "  rate ", core::fixed(event.rate, 5), "  ", core::fixed(event.samples_per_second, 0),
                       " samples/s  left ", clock_text(per_step * static_cast<double>(event.steps_left)))
         << (terminal_ ? "   " : "\n") << std::flush;
    open_ = terminal_;
}

LOCKSTEP_FUNCTION void progress::on_epoch(const epoch_event& event) {
    close();
    out_ << core::text("epoch ", event.epoch + 1, ": loss ", core::fixed(event.loss, 4), ", ", core::fixed(event.seconds, 1), " s");
    if (event.test) {
        out_ << ", test loss " << core::fixed(event.test->loss, 4);
        if (event.test->accuracy) out_ << ", test accuracy " << core::fixed(100 * *event.test->accuracy, 2) << " %";
        for (const auto& one : event.test->metrics) out_ << core::text(", test ", one.name, " ", core::fixed(one.value, 4));
    }
    out_ << std::endl;
}

LOCKSTEP_FUNCTION void progress::on_end(const report& of) {
    close();
    if (end_report_) out_ << to_text(of) << std::flush;
}

#endif

}  // namespace lockstep::train

namespace lockstep {
using train::progress;
}  // namespace lockstep
