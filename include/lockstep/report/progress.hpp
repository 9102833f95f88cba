// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Progress for people: a bar that is written over on a terminal, one line per interval elsewhere. An observer.

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <streambuf>
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

/// Columns of the terminal that standard output is (`file` 2: standard error), or that mpirun writes to for its first
/// rank, to which it gives one without a width; 0: it is none, or not one for lines that are written over (TERM=dumb,
/// NO_COLOR is set).
[[nodiscard, gnu::cold]] std::size_t watched_columns(int file = STDOUT_FILENO) noexcept;

/// Whether a stream writes to standard output or standard error itself, as std::cout, std::cerr and std::clog do until
/// they are given another buffer, which may write to a file.
[[nodiscard, gnu::cold]] bool is_of_program(const std::ostream& out) noexcept;

/// One line for a terminal, shorter than `columns`: percentage, a bar, and how far and how fast the run is.
[[nodiscard, gnu::cold]] std::string bar_text(const step_event& event, std::size_t columns);

/// Writes and flushes. Throws core::error where the stream did not take it: a full disk, a pipe without a reader.
[[gnu::cold]] void print(std::ostream& out, std::string_view text);

/// progress{std::cout}. Rank 0 writes: how much of the fit() is done, step, loss, samples/s and the time left; a line
/// for each epoch; the report at the end. On a terminal a bar in one line that is written over, elsewhere (a file, a
/// pipe, TERM=dumb, NO_COLOR) a line at times.
class progress {
public:
    /// `interval`: seconds between lines where `out` is no terminal. `end_report`: whether fit() ends with the report.
    explicit progress(std::ostream& out, double interval = 5, bool end_report = true)
        : out_{out},
          interval_{interval},
          end_report_{end_report},
          // Of the streams of a program std::cerr alone is tied to std::cout.
          file_{out.tie() != nullptr && out.tie() != &out ? STDERR_FILENO : STDOUT_FILENO},
          terminal_{is_of_program(out) && watched_columns(file_) > 0} {}
    /// What is written after a failure begins a line.
    ~progress() { leave_line(); }

    /// Writes a line, if it is time.
    [[gnu::cold]] void on_step(const step_event& event);
    /// Writes a line.
    [[gnu::cold]] void on_epoch(const epoch_event& event);
    /// Writes the report, if asked to.
    [[gnu::cold]] void on_end(const totals& run);

private:
    [[gnu::cold]] void leave_line() noexcept;

    std::ostream& out_;
    double interval_;
    bool end_report_;
    int file_;
    bool terminal_;
    bool open_ = false;
    double last_ = 0;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string clock_text(double seconds) {
    const auto whole = static_cast<std::uint64_t>(seconds > 0 ? std::min(seconds, 1e12) + 0.5 : 0);
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

LOCKSTEP_FUNCTION std::size_t watched_columns(int stream) noexcept {
    const auto* const kind = std::getenv("TERM");
    const auto* const no_color = std::getenv("NO_COLOR");
    if (kind == nullptr || std::string_view{kind} == "dumb") return 0;
    if (no_color != nullptr && *no_color != '\0') return 0;
    const auto columns = [](int file) -> std::size_t {
        winsize size{};
        return isatty(file) != 0 && ioctl(file, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
    };
    if (isatty(stream) == 0) return 0;
    if (const std::size_t own = columns(stream); own > 0) return own;
    char path[32];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", static_cast<int>(getppid()), stream);
    const int file = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return 0;
    const std::size_t of_launcher = columns(file);
    close(file);
    return of_launcher;
}

LOCKSTEP_FUNCTION bool is_of_program(const std::ostream& out) noexcept {
    const std::streambuf* const buffer = out.rdbuf();
    if (buffer == nullptr) return false;
    // Their buffers have types of the standard library's own: stdio_sync_filebuf, stdio_filebuf, or __stdoutbuf.
    const auto& held = *buffer;
    const std::string_view type = typeid(held).name();
    return type.find("stdio_") != type.npos || type.find("__stdoutbuf") != type.npos;
}

namespace detail {
/// Four significant digits, also of a rate of 4e-6.
[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION std::string digits(double rate) {
    char out[64];
    return {out, std::to_chars(out, out + sizeof out, rate, std::chars_format::general, 4).ptr};
}

/// As in step 3/100, where the number of steps is known.
[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION std::string of_all(const step_event& event) {
    const bool is_known = event.seconds_asked == 0 && event.steps_left <= core::largest_size;
    return is_known ? core::text("/", event.step + event.steps_left) : std::string{};
}
}  // namespace detail

LOCKSTEP_FUNCTION std::string bar_text(const step_event& event, std::size_t columns) {
    const bool is_timed = event.seconds_asked > 0, ends = event.steps_left == 0;
    const double done =
        ends       ? 1
        : is_timed ? event.seconds_used / event.seconds_asked
                   : static_cast<double>(event.steps_done) / static_cast<double>(event.steps_done + event.steps_left);
    const double share = done < 1 ? done : 1;
    const double left =
        ends       ? 0
        : is_timed ? event.seconds_asked - event.seconds_used
                   : event.seconds / static_cast<double>(event.steps_done) * static_cast<double>(event.steps_left);
    // 29 of 100 steps are 28.999.. % in binary numbers.
    constexpr double rounding = 1e-9;
    std::string percent = core::text(static_cast<int>(100 * share + rounding));
    percent.insert(0, 3 - percent.size(), ' ');
    const std::string facts = core::text("epoch ", event.epoch, "  step ", event.step, detail::of_all(event), "  loss ",
                                         core::fixed(event.loss, 4), "  ", core::fixed(event.samples_per_second, 0),
                                         " samples/s  left ", clock_text(left));
    // The last column stays free: some terminals begin a line after it.
    const std::size_t others = facts.size() + 10;
    const std::size_t width = columns < others + 8 ? 0 : columns - others < 40 ? columns - others : 40;
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(width) + rounding);
    std::string out = percent + " % ";
    if (width > 0) out += "[" + std::string(filled, '#') + std::string(width - filled, '.') + "] ";
    out += facts;
    if (out.size() >= columns) out.resize(columns > 0 ? columns - 1 : 0);
    return out;
}

LOCKSTEP_FUNCTION void progress::leave_line() noexcept {
    try {
        if (std::exchange(open_, false)) print(out_, "\n");
    } catch (...) {
        // Where the stream takes nothing any more there is no line to leave.
    }
}

LOCKSTEP_FUNCTION void progress::on_step(const step_event& event) {
    if (event.steps_left > 0 && event.steps_done > 1 && event.seconds - last_ < (terminal_ ? 0.2 : interval_)) return;
    last_ = event.seconds;
    if (const std::size_t columns = terminal_ ? watched_columns(file_) : 0; columns > 0) {
        open_ = true;
        return print(out_, core::text("\r", bar_text(event, columns), "\x1b[K"));
    }
    const bool is_timed = event.seconds_asked > 0;
    const double per_step = event.seconds / static_cast<double>(event.steps_done);
    const double left = event.steps_left == 0 ? 0
                        : is_timed            ? event.seconds_asked - event.seconds_used
                                              : per_step * static_cast<double>(event.steps_left);
    print(out_, core::text("epoch ", event.epoch, "  step ", event.step, detail::of_all(event), "  loss ",
                           core::fixed(event.loss, 4), "  rate ", detail::digits(event.rate), "  ",
                           core::fixed(event.samples_per_second, 0), " samples/s  left ", clock_text(left), "\n"));
}

LOCKSTEP_FUNCTION void progress::on_epoch(const epoch_event& event) {
    // In place of the bar, which comes again below.
    std::string out = core::text(std::exchange(open_, false) ? "\r\x1b[K" : "", "epoch ", event.epoch, ": loss ",
                                 core::fixed(event.loss, 4), ", ", core::fixed(event.seconds, 1), " s");
    if (event.test) {
        out += core::text(", test loss ", core::fixed(event.test->loss, 4));
        if (event.test->accuracy)
            out += core::text(", test accuracy ", core::fixed(100 * *event.test->accuracy, 2), " %");
        for (const auto& metric : event.test->metrics)
            out += core::text(", test ", core::printable(metric.name), " ", core::fixed(metric.value, 4));
    }
    print(out_, out + "\n");
}

LOCKSTEP_FUNCTION void progress::on_end(const totals& run) {
    std::string out = std::exchange(open_, false) ? "\n" : "";
    if (end_report_) out += to_text(run);
    print(out_, out);
}

#endif

}  // namespace lockstep::report

namespace lockstep {
using report::progress;
}  // namespace lockstep
