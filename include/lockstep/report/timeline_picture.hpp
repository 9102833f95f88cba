// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One step as a picture: an SVG file that stands alone. For each rank its work above and the buckets that were under
// way below.
// Tested by tests/unit/report/timeline.cpp.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/report/recorder.hpp"

namespace lockstep::report {

/// What all ranks recorded, on one clock.
struct recorded_run {
    std::vector<std::vector<recorded_event>> ranks;
    std::vector<recorded_bucket> buckets;  ///< those of rank 0: layers are the same on all
    std::vector<std::string> layers;       ///< names
    std::vector<std::vector<std::size_t>>
        bytes;  ///< that a rank sends for a bucket, sum and share together; empty: not known
};

/// forward of layer 3, a conv: "conv 3".
[[nodiscard, gnu::cold]] std::string name_of(const recorded_event& event, const recorded_run& in);
[[nodiscard]] inline bool is_flight(activity what) noexcept { return what == activity::sum || what == activity::share; }

namespace detail {

struct interval {
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

/// Begin and end of a step on all ranks; empty if it was not recorded.
[[nodiscard, gnu::cold]] inline interval extent(const recorded_run& run, std::uint64_t step) {
    interval out;
    bool any = false;
    for (const auto& rank : run.ranks)
        for (const auto& event : rank) {
            if (event.step != step || is_flight(event.what)) continue;
            out = any ? interval{std::min(out.begin, event.begin), std::max(out.end, event.end)}
                      : interval{event.begin, event.end};
            any = true;
        }
    return out;
}

/// What a rank had under way during a step, in ns, and what of it passed while the rank did not only wait.
struct overlap {
    double under_way = 0;
    double hidden = 0;
};
/// Flights in ascending order of their begin.
[[nodiscard, gnu::cold]] inline overlap overlap_of(const std::vector<recorded_event>& flights,
                                                   const std::vector<interval>& waits, interval window) {
    overlap out;
    std::int64_t end = window.begin;
    for (const auto& flight : flights) {
        const std::int64_t from = std::max(flight.begin, end), to = std::min(flight.end, window.end);
        if (from >= to) continue;
        std::int64_t waited = 0;
        for (const auto& wait : waits)
            waited += std::max<std::int64_t>(0, std::min(wait.end, to) - std::max(wait.begin, from));
        out.under_way += static_cast<double>(to - from);
        out.hidden += static_cast<double>(to - from - waited);
        end = to;
    }
    return out;
}
[[nodiscard, gnu::cold]] inline std::string percent_hidden(const overlap& shares) {
    return shares.under_way > 0 ? core::text(core::fixed(100 * shares.hidden / shares.under_way, 0), " % hidden")
                                : std::string{"none"};
}

/// Names of layers are the user's.
[[nodiscard, gnu::cold]] inline std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '&')
            out += "&amp;";
        else if (c == '<')
            out += "&lt;";
        else
            out += c;
    }
    return out;
}

/// Of the bars, by CSS class. All can be told apart without red and green, on paper by their hatching too, and on a
/// dark page.
constexpr std::string_view style = R"svg(<style>
text{font-family:Helvetica,Arial,sans-serif;font-size:11px;fill:#222}.t{font-size:15px}.n{fill:#5a5a5a}
.m{text-anchor:middle}
.i{text-anchor:middle;fill:#fff}.o{text-anchor:middle;fill:#a03c00}
.page{fill:#fff}.grid{stroke:#ddd}rect.k{stroke:#fff;stroke-width:.4}
.data{fill:#c9ab6c}.forward{fill:#9cc3e8}.loss{fill:#e6b800}.backward{fill:#2f5f98}.update{fill:#8a63b3}
.poll{fill:#b5b5b5}
.wait{fill:#fff;stroke:#d55e00}.hidden{fill:#00795a}.exposed{fill:#c84f00}
.hatch{stroke:#000;stroke-width:2;stroke-opacity:.22}
@media (prefers-color-scheme:dark){text{fill:#ddd}.n{fill:#a0a0a0}.i{fill:#fff}.o{fill:#ffa35c}.m.b{fill:#222}
.page,.wait{fill:#16191e}.grid{stroke:#363b43}rect.k{stroke:#16191e}}
</style>
<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<path class="hatch" d="M0 0V6"/></pattern>
)svg";
[[nodiscard, gnu::cold]] inline std::string_view css_class(activity what) {
    constexpr std::string_view names[] = {"data", "forward", "loss", "backward", "update",
                                          "poll", "wait",    "poll", "hidden",   "hidden"};
    return names[static_cast<std::size_t>(what)];
}

[[nodiscard, gnu::cold]] std::string words(double x, double y, std::string_view kind, std::string_view text);
/// A bar, with what a pointer on it shows.
[[nodiscard, gnu::cold]] std::string bar(double x, double y, double width, double height, std::string_view kind,
                                         std::string_view title);
/// The bar of a bucket while the rank only waits: hatched.
[[nodiscard, gnu::cold]] std::string exposed_bar(double x, double y, double width, double height,
                                                 std::string_view title);
/// Pixels of a text, at most.
[[nodiscard]] inline double pixels(std::string_view text) noexcept {
    return 6.4 * static_cast<double>(text.size()) + 4;
}
/// The longest of the names of an event that has room: "sum layers 3-5", "3-5"; else none.
[[nodiscard, gnu::cold]] std::string label(const recorded_event& event, const recorded_run& in, double room);

}  // namespace detail

/// The recorded step whose length is the median; the first one, which makes connections, only if it is alone.
[[nodiscard, gnu::cold]] std::uint64_t typical_step(const recorded_run& run);

/// The picture of a step as SVG text.
[[nodiscard, gnu::cold]] std::string picture(const recorded_run& run, std::uint64_t step);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string name_of(const recorded_event& event, const recorded_run& in) {
    constexpr std::string_view names[] = {"data", "forward", "loss",  "backward", "update",
                                          "poll", "wait",    "other", "sum",      "share"};
    const std::string what{names[static_cast<std::size_t>(event.what)]};
    const auto layer = [&](std::size_t number) {
        return core::text(number < in.layers.size() ? core::printable(in.layers[number]) : "layer", " ", number);
    };
    switch (event.what) {
        case activity::forward:
        case activity::backward:
            return core::text(what, " ", layer(event.number));
        case activity::update:
        case activity::waiting:
        case activity::sum:
        case activity::share: {
            if (event.number >= in.buckets.size()) return what;
            const auto& bucket = in.buckets[event.number];
            if (bucket.lowest_layer == bucket.highest_layer) return core::text(what, " ", layer(bucket.lowest_layer));
            return core::text(what, " layers ", bucket.lowest_layer, "-", bucket.highest_layer);
        }
        default:
            return what;
    }
}

namespace detail {

LOCKSTEP_FUNCTION std::string words(double x, double y, std::string_view kind, std::string_view text) {
    return core::text("<text x=\"", core::fixed(x, 1), "\" y=\"", core::fixed(y, 1), "\" class=\"", kind, "\">",
                      escaped(text), "</text>\n");
}

LOCKSTEP_FUNCTION std::string bar(double x, double y, double width, double height, std::string_view kind,
                                  std::string_view title) {
    return core::text("<rect x=\"", core::fixed(x, 2), "\" y=\"", core::fixed(y, 1), "\" width=\"",
                      core::fixed(std::max(width, 0.3), 2), "\" height=\"", core::fixed(height, 1), "\" class=\"", kind,
                      "\"><title>", escaped(title), "</title></rect>\n");
}

LOCKSTEP_FUNCTION std::string exposed_bar(double x, double y, double width, double height, std::string_view title) {
    const std::string solid = bar(x, y, width, height, "exposed", title);
    if (width < 1) return solid;
    return core::text(solid, "<rect x=\"", core::fixed(x, 2), "\" y=\"", core::fixed(y, 1), "\" width=\"",
                      core::fixed(width, 2), "\" height=\"", core::fixed(height, 1),
                      "\" fill=\"url(#hatch)\" pointer-events=\"none\"></rect>\n");
}

LOCKSTEP_FUNCTION std::string label(const recorded_event& event, const recorded_run& in, double room) {
    std::string name = name_of(event, in);
    const std::size_t first = name.find(' ');
    // Above, colours tell the kinds of work.
    if ((event.what == activity::forward || event.what == activity::backward) && first != std::string::npos)
        name = name.substr(first + 1);
    if (event.what == activity::polling) return {};
    if (pixels(name) <= room) return name;
    const std::size_t last = name.rfind(' ');
    if (last == std::string::npos) return {};
    const bool has_number = name.find_first_of("0123456789", last) != std::string::npos;
    name = event.what == activity::waiting ? name.substr(0, first) : has_number ? name.substr(last + 1) : std::string{};
    return pixels(name) <= room ? name : std::string{};
}

}  // namespace detail

LOCKSTEP_FUNCTION std::uint64_t typical_step(const recorded_run& run) {
    std::vector<std::uint64_t> steps;
    for (const auto& event : run.ranks.empty() ? std::vector<recorded_event>{} : run.ranks[0])
        if (steps.empty() || steps.back() != event.step) steps.push_back(event.step);
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    if (steps.size() > 1) steps.erase(steps.begin());
    std::vector<std::pair<std::int64_t, std::uint64_t>> lengths;
    for (const auto step : steps) {
        const auto when = detail::extent(run, step);
        lengths.emplace_back(when.end - when.begin, step);
    }
    std::sort(lengths.begin(), lengths.end());
    return lengths.empty() ? 0 : lengths[lengths.size() / 2].second;
}

LOCKSTEP_FUNCTION std::string picture(const recorded_run& run, std::uint64_t step) {
    using detail::bar, detail::interval, detail::words;
    constexpr double width = 1280, left = 96, right = 24, top = 92, work_height = 26, flight_height = 16;
    const interval window = detail::extent(run, step);
    const double length = std::max<double>(1, static_cast<double>(window.end - window.begin));
    const double scale = (width - left - right) / length;
    const auto x_of = [&](std::int64_t at) {
        return left + scale * static_cast<double>(std::clamp(at, window.begin, window.end) - window.begin);
    };
    const auto took = [](const recorded_event& event) {
        return core::text(", ", core::fixed(1e-6 * static_cast<double>(event.end - event.begin), 3), " ms");
    };
    // One rank sends nothing: what it does between its kernels is no communication.
    const bool is_alone = run.ranks.size() == 1;
    std::string body;
    detail::overlap all;
    double y = top;
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        std::vector<recorded_event> flights;
        std::vector<interval> waits;
        for (const auto& event : run.ranks[rank]) {
            if (event.end <= window.begin || event.begin >= window.end) continue;
            if (is_flight(event.what)) {
                if (!is_alone) flights.push_back(event);
                continue;
            }
            const double x = x_of(event.begin), w = x_of(event.end) - x;
            if (event.what == activity::waiting) waits.push_back({event.begin, event.end});
            // The frame of a wait lies inside it.
            const double inset = event.what == activity::waiting ? 0.5 : 0;
            if (inset == 0 || w >= 1.5)
                body += bar(x + inset, y + inset, w - 2 * inset, work_height - 2 * inset,
                            core::text(detail::css_class(event.what), inset == 0 ? " k" : ""),
                            name_of(event, run) + took(event));
            const std::string name = detail::label(event, run, w);
            const bool dark = event.what == activity::backward || event.what == activity::update;
            if (!name.empty()) body += words(x + w / 2, y + 17, inset > 0 ? "o" : dark ? "i" : "m b", name);
        }
        y += work_height + 4;
        std::sort(flights.begin(), flights.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
        const detail::overlap shares = detail::overlap_of(flights, waits, window);
        all.under_way += shares.under_way;
        all.hidden += shares.hidden;
        body += words(8, y - 13, "", core::text("rank ", rank));
        if (!is_alone) body += words(8, y + 12, "n", detail::percent_hidden(shares));
        // Buckets that were under way together stand below each other.
        std::vector<std::int64_t> rows;
        for (const auto& flight : flights) {
            std::size_t row = 0;
            while (row < rows.size() && rows[row] > flight.begin) ++row;
            if (row == rows.size()) rows.push_back(0);
            rows[row] = flight.end;
            const double at = y + static_cast<double>(row) * (flight_height + 2);
            std::string title = name_of(flight, run) + took(flight);
            if (rank < run.bytes.size() && flight.number < run.bytes[rank].size())
                title +=
                    core::text("; sum and share of it send ", core::grouped(run.bytes[rank][flight.number]), " bytes");
            const double x = x_of(flight.begin), w = x_of(flight.end) - x;
            body += bar(x, at, w, flight_height, "hidden k", title);
            for (const auto& wait : waits) {
                const std::int64_t from = std::max(wait.begin, flight.begin), to = std::min(wait.end, flight.end);
                if (from < to) body += detail::exposed_bar(x_of(from), at, x_of(to) - x_of(from), flight_height, title);
            }
            const std::string name = detail::label(flight, run, w);
            if (!name.empty()) body += words(x + w / 2, at + 12, "i", name);
        }
        if (!is_alone) y += std::max<double>(1, static_cast<double>(rows.size())) * (flight_height + 2);
        y += 12;
    }
    // Ticks of 1, 2 or 5 times a power of ten, about eight of them.
    const double milliseconds = 1e-6 * length;
    const double power = std::pow(10.0, std::floor(std::log10(milliseconds / 8)));
    const double ratio = milliseconds / 8 / power;
    const double tick = power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
    const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(tick) - 1e-9)));
    std::string axis;
    for (double at = 0; at <= milliseconds * 1.0001; at += tick) {
        const std::string x = core::fixed(left + scale * 1e6 * at, 1);
        axis +=
            core::text("<path class=\"grid\" d=\"M", x, " ", core::fixed(top - 6, 0), "V", core::fixed(y, 0), "\"/>\n");
        axis += words(left + scale * 1e6 * at, y + 15, "m", core::fixed(at, digits));
    }
    axis += words(8, y + 15, "", "time, ms");
    std::string head = core::text("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"",
                                  core::fixed(y + 26, 0), "\" viewBox=\"0 0 ", width, " ", core::fixed(y + 26, 0),
                                  "\">\n", detail::style, "<rect width=\"100%\" height=\"100%\" class=\"page\"/>\n");
    head += words(8, 22, "t",
                  core::text("Step ", step, " on ", run.ranks.size(),
                             is_alone ? " rank: " : " ranks: ", core::fixed(milliseconds, 2), " ms",
                             is_alone ? "" : ". Communication: ", is_alone ? "" : detail::percent_hidden(all),
                             all.under_way > 0 ? " behind work" : ""));
    double x = left;
    const auto legend = [&](std::string_view kind, std::string_view text) {
        head += kind == "exposed" ? detail::exposed_bar(x, 38, 14, 14, text) : bar(x, 38, 14, 14, kind, text);
        head += words(x + 19, 49, "", text);
        x += 19 + detail::pixels(text) + 8;
    };
    for (const auto what : {activity::data, activity::forward, activity::loss, activity::backward, activity::update})
        legend(detail::css_class(what), detail::css_class(what));
    legend("poll", "polling");
    legend("wait", "waiting");
    if (!is_alone) {
        legend("hidden", "bucket under way, hidden");
        legend("exposed", "bucket under way, exposed");
    }
    head += words(left, 72, "n",
                  core::text("Numbers are layers; a pointer on a bar shows its name and time.",
                             is_alone ? ""
                                      : " sum: gradients go to their owners; share: new weights go to all ranks, those "
                                        "at the left of the step before."));
    return head + axis + body + "</svg>\n";
}

#endif

}  // namespace lockstep::report
