// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One step as a picture: an SVG file that stands alone. For each rank its work above and the buckets that were under way below.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/text.hpp"
#include "lockstep/train/recorder.hpp"

namespace lockstep::train {

/// What all ranks recorded, on one clock.
struct recorded_run {
    std::vector<std::vector<recorded_event>> ranks;
    std::vector<recorded_bucket> buckets;
    std::vector<std::string> layers;  ///< names
};

/// forward of layer 3, a conv: "conv 3".
[[nodiscard, gnu::cold]] inline std::string name_of(const recorded_event& of, const recorded_run& in) {
    constexpr std::string_view names[] = {"data", "forward", "loss", "backward", "update", "poll", "wait", "other", "sum", "share"};
    const std::string what{names[static_cast<std::size_t>(of.what)]};
    const auto layer = [&](std::size_t number) { return core::text(number < in.layers.size() ? in.layers[number] : "layer", " ", number); };
    switch (of.what) {
        case activity::forward:
        case activity::backward:
            return core::text(what, " ", layer(of.number));
        case activity::update:
        case activity::waiting:
        case activity::sum:
        case activity::share: {
            if (of.number >= in.buckets.size()) return what;
            const auto& bucket = in.buckets[of.number];
            if (bucket.lowest_layer == bucket.highest_layer) return core::text(what, " ", layer(bucket.lowest_layer));
            return core::text(what, " layers ", bucket.lowest_layer, "-", bucket.highest_layer);
        }
        default:
            return what;
    }
}
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
        for (const auto& one : rank) {
            if (one.step != step || is_flight(one.what)) continue;
            out = any ? interval{std::min(out.begin, one.begin), std::max(out.end, one.end)} : interval{one.begin, one.end};
            any = true;
        }
    return out;
}

[[nodiscard, gnu::cold]] inline std::string_view color(activity what) {
    switch (what) {
        case activity::forward:
            return "#6b9bd1";
        case activity::backward:
            return "#2f5f98";
        case activity::loss:
            return "#17a2a2";
        case activity::update:
            return "#9467bd";
        case activity::data:
            return "#c9a86a";
        default:
            return "#bdbdbd";
    }
}

}  // namespace detail

/// The recorded step whose length is the median; the first one, which makes connections, only if it is alone.
[[nodiscard, gnu::cold]] inline std::uint64_t typical_step(const recorded_run& run) {
    std::vector<std::uint64_t> steps;
    for (const auto& one : run.ranks.empty() ? std::vector<recorded_event>{} : run.ranks[0])
        if (steps.empty() || steps.back() != one.step) steps.push_back(one.step);
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

/// The picture of a step as SVG text.
[[nodiscard, gnu::cold]] inline std::string picture(const recorded_run& run, std::uint64_t step) {
    using detail::interval;
    constexpr double width = 1280, left = 76, right = 20, work_height = 26, flight_height = 16, letter = 6.6;
    const interval window = detail::extent(run, step);
    const double length = std::max<double>(1, static_cast<double>(window.end - window.begin));
    const double scale = (width - left - right) / length;
    const auto place = [&](std::int64_t at) {
        return left + scale * static_cast<double>(std::clamp(at, window.begin, window.end) - window.begin);
    };
    const auto number = [](double value) { return core::fixed(value, 1); };
    const auto words = [&](double x, double y, std::string_view text, std::string_view more = {}) {
        return core::text("<text x=\"", number(x), "\" y=\"", number(y), "\"", more, ">", text, "</text>\n");
    };
    const auto bar = [&](double x, double y, double w, double h, std::string_view fill, std::string_view title,
                         std::string_view more = {}) {
        return core::text("<rect x=\"", core::fixed(x, 2), "\" y=\"", number(y), "\" width=\"", core::fixed(std::max(w, 0.3), 2),
                          "\" height=\"", number(h), "\" fill=\"", fill, "\"", more, "><title>", title, "</title></rect>\n");
    };
    std::string body;
    double y = 84, hidden = 0, exposed = 0;
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        std::vector<recorded_event> flights;
        std::vector<interval> waits;
        body += words(8, y + 17, core::text("rank ", rank), " font-weight=\"bold\"");
        for (const auto& one : run.ranks[rank]) {
            if (one.end <= window.begin || one.begin >= window.end) continue;
            if (is_flight(one.what)) {
                flights.push_back(one);
                continue;
            }
            const double x = place(one.begin), w = place(one.end) - x;
            const std::string name = name_of(one, run);
            const std::string title = core::text(name, ", ", core::fixed(1e-6 * static_cast<double>(one.end - one.begin), 3), " ms");
            if (one.what == activity::waiting) {
                waits.push_back({one.begin, one.end});
                if (w >= 0.5) body += bar(x, y, w, work_height, "#fff", title, " stroke=\"#d62728\" stroke-width=\"1\"");
            } else {
                body += bar(x, y, w, work_height, detail::color(one.what), title, " stroke=\"#fff\" stroke-width=\"0.4\"");
            }
            const std::string label =
                one.what == activity::forward || one.what == activity::backward ? name.substr(name.find(' ') + 1) : name;
            if (one.what != activity::polling && w > letter * static_cast<double>(label.size()) + 4)
                body += words(
                    x + w / 2, y + 17, label,
                    one.what == activity::waiting ? " text-anchor=\"middle\" fill=\"#d62728\"" : " text-anchor=\"middle\" fill=\"#fff\"");
        }
        y += work_height + 4;
        // Buckets that were under way together stand below each other.
        std::sort(flights.begin(), flights.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
        std::vector<std::int64_t> rows;
        for (const auto& one : flights) {
            std::size_t row = 0;
            while (row < rows.size() && rows[row] > one.begin) ++row;
            if (row == rows.size()) rows.push_back(0);
            rows[row] = one.end;
            const double at = y + static_cast<double>(row) * (flight_height + 2);
            const std::string name = name_of(one, run);
            const double bytes = one.number < run.buckets.size() ? static_cast<double>(run.buckets[one.number].bytes) / 2 : 0;
            const std::string title = core::text(name, ", ", core::fixed(1e-6 * static_cast<double>(one.end - one.begin), 3), " ms, ",
                                                 core::grouped(static_cast<std::uint64_t>(bytes)), " bytes sent");
            const double x = place(one.begin), w = place(one.end) - x;
            body += bar(x, at, w, flight_height, "#3a9a4b", title);
            for (const auto& wait : waits) {
                const std::int64_t from = std::max(wait.begin, one.begin), to = std::min(wait.end, one.end);
                if (from < to) body += bar(place(from), at, place(to) - place(from), flight_height, "#d62728", title);
            }
            if (w > letter * static_cast<double>(name.size()) + 4)
                body += words(x + w / 2, at + 12, name, " text-anchor=\"middle\" fill=\"#fff\"");
        }
        if (rank == 0) {
            std::int64_t end = window.begin;
            for (const auto& one : flights) {
                const std::int64_t from = std::max(one.begin, end), to = std::min(one.end, window.end);
                if (from >= to) continue;
                double waited = 0;
                for (const auto& wait : waits)
                    waited += static_cast<double>(std::max<std::int64_t>(0, std::min(wait.end, to) - std::max(wait.begin, from)));
                hidden += static_cast<double>(to - from) - waited;
                exposed += waited;
                end = to;
            }
        }
        y += std::max<double>(1, static_cast<double>(rows.size())) * (flight_height + 2) + 12;
    }
    // Ticks of 1, 2 or 5 times a power of ten, about eight of them.
    const double milliseconds = 1e-6 * length;
    const double power = std::pow(10.0, std::floor(std::log10(milliseconds / 8)));
    const double ratio = milliseconds / 8 / power;
    const double tick = power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
    const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(tick))));
    std::string axis;
    for (double at = 0; at <= milliseconds * 1.0001; at += tick) {
        const double x = left + scale * 1e6 * at;
        axis += core::text("<line x1=\"", number(x), "\" y1=\"78\" x2=\"", number(x), "\" y2=\"", number(y), "\" stroke=\"#ddd\"/>\n");
        axis += words(x, y + 15, core::fixed(at, digits), " text-anchor=\"middle\"");
    }
    axis += words(8, y + 15, "ms");
    std::string head =
        core::text("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", number(width), "\" height=\"", number(y + 26), "\" viewBox=\"0 0 ",
                   number(width), " ", number(y + 26),
                   "\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
    const double under_way = hidden + exposed;
    head += words(8, 20,
                  core::text("Step ", step, ": ", core::fixed(milliseconds, 2), " ms. Rank 0: buckets under way for ",
                             core::fixed(1e-6 * under_way, 2), " ms, ",
                             under_way > 0 ? core::text(core::fixed(100 * hidden / under_way, 0), " % of it hidden behind work") : "none"),
                  " font-size=\"15\"");
    double x = left;
    const auto legend = [&](std::string_view fill, std::string_view text, std::string_view more = {}) {
        head += bar(x, 36, 14, 14, fill, text, more) + words(x + 19, 47, text);
        x += 19 + letter * static_cast<double>(text.size()) + 22;
    };
    legend(detail::color(activity::data), "data");
    legend(detail::color(activity::forward), "forward");
    legend(detail::color(activity::loss), "loss");
    legend(detail::color(activity::backward), "backward");
    legend(detail::color(activity::update), "update");
    legend(detail::color(activity::polling), "polling");
    legend("#fff", "waiting", " stroke=\"#d62728\"");
    legend("#3a9a4b", "bucket under way, hidden");
    legend("#d62728", "bucket under way, exposed");
    head +=
        words(left, 68, "sum: gradients to their owners; share: new weights to all ranks, those at the left were sent by the step before",
              " fill=\"#666\"");
    return head + axis + body + "</svg>\n";
}

}  // namespace lockstep::train
