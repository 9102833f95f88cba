// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The page of one run: from what is known of it to the text of an HTML file.
// Tested by tests/unit/report/pages.cpp.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/compress/measured.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/report/events.hpp"
#include "lockstep/report/launch.hpp"
#include "lockstep/report/page_parts.hpp"
#include "lockstep/report/run_record.hpp"

namespace lockstep::report {

/// What a compressor did to a tensor, or to all: sums over the messages that rank 0 encoded.
struct message_row {
    std::string tensor;
    compress::tensor_statistics of{};
};

/// What a page shows beside the curves. What is not known is left out.
struct page_facts {
    std::string written;                    ///< when, for people
    std::uint64_t steps = 0, samples = 0;   ///< of the trainer, also of earlier calls
    std::vector<seconds_spent> seconds{};   ///< of each rank, since the trainer was made
    std::uint64_t timed_steps = 0;          ///< steps in these seconds
    std::vector<process_memory> process{};  ///< of each rank
    std::vector<std::string> hosts{};       ///< of each rank
    memory_by_kind memory{};                ///< rank 0
    std::size_t memory_bytes = 0;           ///< its arena, in all
    std::size_t bytes_per_step = 0;         ///< that rank 0 sends
    std::uint64_t synchronous_steps = 0;    ///< at the beginning, where later ones are local
    std::size_t synchronous_bytes = 0;      ///< that rank 0 sends in each of these
    std::string transport{};
    std::vector<message_row> messages{};  ///< of each tensor, the last one of all; empty without a compressor
    std::size_t element_bytes = 4;        ///< of the numbers that were encoded
    std::string about{};                  ///< a text of the caller, such as ls::summary(trainer)
    std::string picture{};                ///< an SVG of a step, such as that of timeline
    std::string missing_picture{};        ///< why there is none
};

/// Reads the picture, if it is there. One that is too long, or cannot be read, is left out, and the page says why: it
/// is worth less than the page, and the run.
[[gnu::cold]] void add_picture(page_facts& to, const std::string& path);

/// The page as HTML.
[[nodiscard, gnu::cold]] std::string run_page(const run_record& run, const page_facts& facts);

/// Curves of a metric: those of training faint, epochs over them.
[[nodiscard, gnu::cold]] std::vector<html::chart> charts_of(const run_record& run);

#if LOCKSTEP_BODIES

namespace detail {

/// Communication is the last one.
constexpr std::array<std::pair<std::string_view, double seconds_spent::*>, 5> kinds_of_time{
    {{"data", &seconds_spent::data},
     {"forward", &seconds_spent::forward},
     {"backward", &seconds_spent::backward},
     {"update", &seconds_spent::update},
     {"exposed", &seconds_spent::communication_exposed}}};

[[nodiscard]] LOCKSTEP_FUNCTION std::string name_of_kind(std::string_view kind) {
    return kind == "exposed" ? "communication, exposed" : std::string{kind};
}

/// One rank sends nothing: what it does between its kernels is no communication.
[[nodiscard]] LOCKSTEP_FUNCTION bool is_alone(const page_facts& facts) noexcept { return facts.seconds.size() == 1; }

/// Those that a page shows.
[[nodiscard]] LOCKSTEP_FUNCTION auto kinds_in(const page_facts& facts) {
    return std::span{kinds_of_time}.first(kinds_of_time.size() - (is_alone(facts) ? 1 : 0));
}

[[nodiscard]] LOCKSTEP_FUNCTION std::vector<html::bar_part> parts_of(const page_facts& facts, const seconds_spent& of) {
    std::vector<html::bar_part> out;
    for (const auto& [kind, member] : kinds_in(facts))
        out.push_back({name_of_kind(kind), std::string{kind}, of.*member});
    return out;
}

[[nodiscard]] LOCKSTEP_FUNCTION std::string percent(double part, double whole) {
    return whole > 0 ? core::text(core::fixed(100 * part / whole, 1), " %") : "";
}

/// For an attribute (RFC 4648).
[[nodiscard]] LOCKSTEP_FUNCTION std::string base64(std::string_view bytes) {
    constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        std::uint32_t three = 0;
        for (std::size_t i = 0; i < 3; ++i)
            three = three << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
        for (std::size_t i = 0; i < 4; ++i) out += at + i > bytes.size() ? '=' : letters[three >> (18 - 6 * i) & 63];
    }
    return out;
}

/// The ranks that a page shows: all of a few, else the fastest, the median and the slowest by their work.
[[nodiscard]] LOCKSTEP_FUNCTION std::vector<std::size_t> shown_ranks(const std::vector<seconds_spent>& of) {
    std::vector<std::size_t> out(of.size());
    for (std::size_t rank = 0; rank < out.size(); ++rank) out[rank] = rank;
    if (out.size() <= 16) return out;
    const auto work = [&](std::size_t rank) { return of[rank].total() - of[rank].communication_exposed; };
    std::stable_sort(out.begin(), out.end(), [&](std::size_t a, std::size_t b) { return work(a) < work(b); });
    return {out.front(), out[out.size() / 2], out.back()};
}

[[nodiscard]] LOCKSTEP_FUNCTION std::string tiles_of(const run_record& run, const page_facts& facts) {
    std::string out;
    const auto last_loss = [&]() -> double {
        if (!run.epochs.empty()) return run.epochs.back().loss;
        return run.steps.empty() ? std::numeric_limits<double>::quiet_NaN() : run.steps.back().loss;
    };
    if (!run.steps.empty() || !run.epochs.empty())
        out += html::tile("Training loss", html::number(last_loss()),
                          run.epochs.empty() ? "last steps" : core::text("epoch ", run.epochs.back().epoch));
    for (const auto& metric : run.metrics()) {
        const epoch_point& last = *run.last_with(metric);
        const bool is_share = metric == "accuracy";
        double best = is_share ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
        std::uint64_t at = 0;
        for (const auto& epoch : run.epochs) {
            const double value = epoch.metric(metric);
            if (is_share ? value > best : value < best) {
                best = value;
                at = epoch.epoch;
            }
        }
        const auto show = [&](double value) {
            return is_share && std::isfinite(value) ? core::text(core::fixed(100 * value, 2), " %")
                                                    : html::number(value);
        };
        const bool has_best = (is_share || metric == "loss") && at > 0, is_old = &last != &run.epochs.back();
        out += html::tile("Test " + metric, show(last.metric(metric)),
                          core::text(is_old ? core::text("epoch ", last.epoch) : "", is_old && has_best ? ", " : "",
                                     has_best ? core::text("best ", show(best), " in epoch ", at) : std::string{}));
    }
    const double seconds = run.steps.empty() ? 0 : run.steps.back().seconds;
    if (seconds > 0) {
        double samples = 0;
        for (const auto& step : run.steps) samples += static_cast<double>(step.samples);
        out += html::tile("Rate", html::number(samples / seconds), "samples/s, without validation");
        out += html::tile("Time", html::duration(seconds), "of training, without validation");
    }
    if (run.ranks > 0)
        out += html::tile("Machine", core::text(run.ranks, run.ranks == 1 ? " rank" : " ranks"),
                          core::text(run.threads, run.threads == 1 ? " thread each" : " threads each"));
    double peak = 0;
    for (const auto& process : facts.process) peak = std::max(peak, static_cast<double>(process.peak));
    if (peak > 0) out += html::tile("Memory", html::bytes(peak), "most of one process");
    if (!run.weights_hash.empty()) out += html::tile("Weights", run.weights_hash, "hash; the recipe decides it");
    return out.empty() ? out : core::text("<dl class=\"tiles\">\n", out, "</dl>\n");
}

[[nodiscard]] LOCKSTEP_FUNCTION std::string time_of(const page_facts& facts) {
    double most = 0;
    for (const auto& rank : facts.seconds) most = std::max(most, rank.total());
    if (!(most > 0)) return {};
    std::string out = html::legend(parts_of(facts, {}));
    for (const std::size_t rank : shown_ranks(facts.seconds))
        out += html::bar(core::text("rank ", rank), parts_of(facts, facts.seconds[rank]), most,
                         html::duration(facts.seconds[rank].total()), &html::duration);
    if (facts.seconds.size() > 16)
        out += "<p class=\"note\">The ranks with the least, the median and the most work.</p>";
    const auto& first = facts.seconds[0];
    std::vector<std::vector<std::string>> rows;
    for (const auto& [kind, member] : kinds_in(facts))
        rows.push_back({name_of_kind(kind), core::fixed(first.*member, 3), percent(first.*member, first.total()),
                        facts.timed_steps > 0
                            ? core::fixed(1e3 * first.*member / static_cast<double>(facts.timed_steps), 3)
                            : ""});
    out += html::table("Time of rank 0 by kind", {"kind", "s", "share", "ms a step"}, rows);
    return html::section("Time by kind", out);
}

/// Work in a row, and below it what is under way beside it.
[[nodiscard]] LOCKSTEP_FUNCTION std::string step_of(const page_facts& facts) {
    std::string out;
    if (facts.timed_steps > 0 && !facts.seconds.empty() && facts.seconds[0].total() > 0) {
        const auto& rank = facts.seconds[0];
        const double each = 1 / static_cast<double>(facts.timed_steps), length = each * rank.total();
        std::vector<html::bar_part> kinds{
            {"data", "data", 0}, {"forward", "forward", 0}, {"backward", "backward", 0}, {"update", "update", 0}};
        if (!is_alone(facts)) {
            kinds.push_back({"communication, hidden", "hidden", 0});
            kinds.push_back({"communication, exposed", "exposed", 0});
        }
        out += html::legend(kinds);
        // What is exposed follows backward, what is hidden lies before it.
        const double work = each * (rank.data + rank.forward + rank.backward);
        const double hidden = std::min(work, each * rank.communication_hidden), begin = work - hidden;
        std::vector<html::bar_part> row{{"data", "data", each * rank.data},
                                        {"forward", "forward", each * rank.forward},
                                        {"backward", "backward", each * rank.backward}};
        if (!is_alone(facts)) row.push_back({"communication, exposed", "exposed", each * rank.communication_exposed});
        row.push_back({"update", "update", each * rank.update});
        out += html::bar("work", row, length, html::duration(length), &html::duration);
        if (rank.communication() > 0 && !is_alone(facts))
            out += html::bar("messages",
                             {{"before", "none", begin},
                              {"communication, hidden", "hidden", hidden},
                              {"communication, exposed", "exposed", each * rank.communication_exposed}},
                             length, html::duration(each * rank.communication()), &html::duration);
        out += core::text("<p class=\"note\">Means over ", core::grouped(facts.timed_steps),
                          " steps of rank 0. Lengths are measured; the order inside of the step is schematic.</p>\n");
    }
    if (!facts.picture.empty())
        out += core::text(
            "<h3>A recorded step</h3><div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"A "
            "recorded step\"><img alt=\"Timeline of one step on all ranks: work, and buckets under way\" "
            "src=\"data:image/svg+xml;base64,",
            base64(facts.picture), "\"></div>\n");
    if (!facts.missing_picture.empty())
        out += core::text("<p class=\"note\">", html::escape(facts.missing_picture), "</p>\n");
    return out.empty() ? out : html::section("A typical step", out);
}

[[nodiscard]] LOCKSTEP_FUNCTION std::string communication_of(const page_facts& facts) {
    if (facts.seconds.empty() || is_alone(facts) || !(facts.seconds[0].communication() > 0)) return {};
    double most = 0;
    for (const auto& rank : facts.seconds) most = std::max(most, rank.communication());
    std::string out = html::legend({{"hidden behind work", "hidden", 0}, {"exposed", "exposed", 0}});
    for (const std::size_t rank : shown_ranks(facts.seconds)) {
        const auto& spent = facts.seconds[rank];
        out += html::bar(
            core::text("rank ", rank),
            {{"hidden", "hidden", spent.communication_hidden}, {"exposed", "exposed", spent.communication_exposed}},
            most, core::text(percent(spent.communication_hidden, spent.communication()), " hidden"), &html::duration);
    }
    const auto& spent = facts.seconds[0];
    const auto& why = spent.because;
    std::vector<std::vector<std::string>> rows;
    const auto row = [&](const char* name, double seconds) {
        rows.push_back({name, core::fixed(seconds, 3), percent(seconds, spent.communication_exposed)});
    };
    row("last bucket: nothing left to compute beside it", why.last_bucket);
    row("no progress: it was not polled in time", why.no_progress);
    row("large bucket: too much to hide", why.large_bucket);
    row("slow rank: another one had not finished its work", why.slow_rank);
    row("other", why.other);
    out += html::table("Why rank 0 waited (estimates)", {"exposed because", "s", "share"}, rows);
    if (facts.bytes_per_step > 0)
        out += core::text("<p class=\"note\">Rank 0 sends ", core::grouped(facts.bytes_per_step), " bytes a step",
                          facts.synchronous_steps == 0
                              ? ""
                              : core::text(", ", core::grouped(facts.synchronous_bytes), " in each of the first ",
                                           core::grouped(facts.synchronous_steps)),
                          ". Transport: ", html::escape(facts.transport), ".</p>\n");
    return html::section("Communication", out);
}

[[nodiscard]] LOCKSTEP_FUNCTION std::string compression_of(const page_facts& facts) {
    if (facts.messages.empty()) return {};
    std::vector<std::vector<std::string>> rows;
    for (const auto& [tensor, of] : facts.messages) {
        const double each = 1e9 / std::max(1.0, static_cast<double>(of.numbers));
        const double saved = of.saved_bytes(facts.element_bytes);
        rows.push_back({tensor, core::grouped(of.messages), html::bytes(static_cast<double>(of.bytes)),
                        saved < 0 ? "-" + html::bytes(-saved) : html::bytes(saved),
                        core::fixed(of.ratio(facts.element_bytes), 1), core::fixed(of.relative_error(), 4),
                        core::fixed(of.encode_seconds * each, 2), core::fixed(of.decode_seconds * each, 2)});
    }
    return html::section(
        "Compression",
        html::table("Messages that rank 0 encoded. Ratio: bytes of the numbers over bytes of the "
                    "messages. Error: |p - decoded| / |p|, where p is what was to be sent. Times: "
                    "nanoseconds for each number",
                    {"tensor", "messages", "sent", "saved", "ratio", "error", "encode", "decode"}, rows));
}

[[nodiscard]] LOCKSTEP_FUNCTION std::string memory_of(const page_facts& facts) {
    std::string out;
    if (facts.memory_bytes > 0) {
        const auto& of = facts.memory;
        const auto part = [](const char* name, const char* kind, std::size_t count) {
            return html::bar_part{name, kind, static_cast<double>(count)};
        };
        const std::vector<html::bar_part> parts{
            part("weights", "m0", of.weights),     part("gradients", "m1", of.gradients),
            part("optimizer", "m2", of.optimizer), part("activations", "m3", of.activations),
            part("messages", "m4", of.messages),   part("data", "m5", of.data)};
        const auto whole = static_cast<double>(facts.memory_bytes);
        out += html::legend(parts) + html::bar("plan, rank 0", parts, whole, html::bytes(whole), &html::bytes);
        std::vector<std::vector<std::string>> rows;
        for (const auto& kind : parts) rows.push_back({kind.name, html::bytes(kind.value), percent(kind.value, whole)});
        out +=
            html::table("Memory of the plan on rank 0, there before the first step", {"kind", "bytes", "share"}, rows);
    }
    if (!facts.process.empty() && facts.process[0].peak > 0) {
        const auto less = [](const process_memory& a, const process_memory& b) { return a.peak < b.peak; };
        const auto [least, most] = std::minmax_element(facts.process.begin(), facts.process.end(), less);
        out += core::text("<p class=\"note\">Whole process: ",
                          least == most || least->peak == most->peak
                              ? ""
                              : core::text("from ", html::bytes(static_cast<double>(least->peak)), " to "),
                          html::bytes(static_cast<double>(most->peak)), " at most",
                          facts.process.size() > 1 ? " on each rank" : "", "; rank 0 holds ",
                          html::bytes(static_cast<double>(facts.process[0].resident)),
                          " now. Program, MPI and data sets are part of it.</p>\n");
    }
    return out.empty() ? out : html::section("Memory", out);
}

[[nodiscard]] LOCKSTEP_FUNCTION std::string repeat_of(const run_record& run, const page_facts& facts) {
    std::string out;
    if (!run.command.empty())
        out += core::text(
            "<p class=\"note\">A command that starts this run:</p><pre tabindex=\"0\" "
            "aria-label=\"command\">",
            html::escape(run.command), "</pre>\n");
    if (!run.recipe.empty()) {
        std::vector<std::vector<std::string>> rows;
        for (const auto& [name, value] : run.recipe) rows.push_back({name, value});
        out += "<p></p>" + html::table("The recipe: equal recipes give equal bits on any number of ranks",
                                       {"name", "value"}, rows, true);
    }
    std::vector<std::vector<std::string>> rows;
    std::vector<std::pair<std::string, std::size_t>> hosts;
    for (const auto& host : facts.hosts) {
        const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const auto& of) { return of.first == host; });
        if (known == hosts.end())
            hosts.emplace_back(host, 1);
        else
            ++known->second;
    }
    if (run.ranks > 0) rows.push_back({"ranks", core::text(run.ranks)});
    if (run.threads > 0) rows.push_back({"threads of each rank", core::text(run.threads)});
    std::string names;
    for (std::size_t i = 0; i < std::min<std::size_t>(hosts.size(), 32); ++i)
        names += core::text(i == 0 ? "" : ", ", hosts[i].first, " (", hosts[i].second, ")");
    if (hosts.size() > 32) names += core::text(" and ", hosts.size() - 32, " more");
    if (!names.empty()) rows.push_back({hosts.size() == 1 ? "host (ranks)" : "hosts (ranks)", names});
    if (!facts.transport.empty()) rows.push_back({"transport", facts.transport});
    if (!rows.empty()) out += "<p></p>" + html::table("The machine: it decides only the speed", {}, rows, true);
    if (!facts.about.empty())
        out += core::text("<details><summary>The plan</summary><pre tabindex=\"0\" aria-label=\"plan\">",
                          html::escape(facts.about), "</pre></details>\n");
    return out.empty() ? out : html::section("How to repeat it", out);
}

[[nodiscard]] LOCKSTEP_FUNCTION std::string epochs_of(const run_record& run) {
    if (run.epochs.empty()) return {};
    std::vector<std::string> head{"epoch", "step", "training loss"};
    const auto metrics = run.metrics();
    for (const auto& metric : metrics) head.push_back("test " + metric);
    head.push_back("s");
    std::vector<std::vector<std::string>> rows;
    for (const auto& epoch : run.epochs) {
        std::vector<std::string> row{core::text(epoch.epoch), core::grouped(epoch.step), html::number(epoch.loss)};
        for (const auto& metric : metrics) {
            row.push_back(epoch.has(metric) ? html::number(epoch.metric(metric)) : "");
        }
        row.push_back(html::number(epoch.seconds));
        rows.push_back(std::move(row));
    }
    return html::section("Epochs", html::table("Seconds are without validation", head, rows));
}

}  // namespace detail

LOCKSTEP_FUNCTION std::vector<html::chart> charts_of(const run_record& run) {
    html::series steps{.name = "training, steps", .color = 0, .is_faint = true},
        epochs{.name = "training", .color = 0, .has_dots = true};
    html::series speed{.name = "samples/s", .color = 2}, rate{.name = "learning rate", .color = 3};
    double before = 0;
    for (const auto& step : run.steps) {
        const auto x = static_cast<double>(step.step);
        steps.points.push_back({x, step.loss});
        rate.points.push_back({x, step.rate});
        if (step.seconds > before)
            speed.points.push_back({x, static_cast<double>(step.samples) / (step.seconds - before)});
        before = step.seconds;
    }
    std::vector<html::series> tests;
    const auto metrics = run.metrics();
    tests.assign(metrics.size(), {.name = "test", .color = 1, .has_dots = true});
    for (const auto& epoch : run.epochs) {
        const auto x = static_cast<double>(epoch.step);
        epochs.points.push_back({x, epoch.loss});
        for (std::size_t i = 0; i < metrics.size(); ++i)
            if (epoch.has(metrics[i])) tests[i].points.push_back({x, epoch.metric(metrics[i])});
    }
    html::chart loss{.title = "Loss", .is_logarithmic = true};
    loss.curves.push_back(steps);
    if (!epochs.points.empty()) loss.curves.push_back(epochs);
    std::vector<html::chart> out;
    for (std::size_t i = 0; i < metrics.size(); ++i)
        if (metrics[i] == "loss")
            loss.curves.push_back(tests[i]);
        else
            out.push_back({.title = "Test " + metrics[i], .curves = {tests[i]}});
    out.insert(out.begin(), loss);
    out.push_back({.title = "Rate", .unit = "samples/s", .curves = {speed}, .from_zero = true});
    out.push_back({.title = "Learning rate", .curves = {rate}, .from_zero = true});
    return out;
}

LOCKSTEP_FUNCTION std::string run_page(const run_record& run, const page_facts& facts) {
    const std::uint64_t steps = run.steps.empty() ? facts.steps : run.steps.back().step;
    const std::string_view state = !run.has_ended         ? "Under way"
                                   : run.stop_signal != 0 ? "Stopped by a signal"
                                                          : "Ended";
    std::string body = core::text("<h1>", html::escape(run.name), "</h1>\n<p class=\"lead\">", state, " after ",
                                  core::grouped(steps), steps == 1 ? " step" : " steps",
                                  run.epochs.empty() ? "" : core::text(", epoch ", run.epochs.back().epoch),
                                  facts.written.empty() ? "" : core::text(". Written ", html::escape(facts.written)),
                                  run.has_ended ? "" : "; load it again for later steps", ".</p>\n");
    body += detail::tiles_of(run, facts);
    body += "<h2>Curves</h2>\n<div class=\"charts\">\n";
    for (const auto& chart : charts_of(run)) body += html::to_html(chart);
    body += "</div>\n";
    body += detail::time_of(facts) + detail::step_of(facts) + detail::communication_of(facts) +
            detail::compression_of(facts) + detail::memory_of(facts) + detail::repeat_of(run, facts) +
            detail::epochs_of(run);
    body += core::text(events_begin, to_lines(run), events_end, "\n");
    return html::page(core::text(run.name, " - lockstep"), body);
}

LOCKSTEP_FUNCTION void add_picture(page_facts& to, const std::string& path) {
    constexpr std::size_t most = 8'000'000;
    if (path.empty() || !core::why_unreadable(path).empty()) return;
    to.picture.clear();
    to.missing_picture.clear();
    try {
        to.picture = core::read_text(path, "the picture of a step", most, "");
    } catch (const core::error& problem) {
        to.missing_picture = core::text("The recorded step is left out: ", problem.what());
    }
}

#endif

}  // namespace lockstep::report
