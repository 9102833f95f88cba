// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What pages of runs are made of: text that is safe in HTML, charts, bars, tables, and the frame with its style. A page
// is one file without any address; it can be read without JavaScript, which only adds the values under a pointer.
// Tested by tests/unit/report/pages.cpp.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/report/page_style.hpp"

namespace lockstep::report::html {

/// Any text, as text: also inside of quotation marks.
[[nodiscard, gnu::cold]] std::string escape(std::string_view text);

/// About four digits, as people write them: 12,345, 0.01234, 1.2e-05, and words for what is no number.
[[nodiscard, gnu::cold]] std::string number(double value);
/// 1.5 ms, 12.3 s, 1:02:03.
[[nodiscard, gnu::cold]] std::string duration(double seconds);
/// 12.3 MB, in powers of 1000.
[[nodiscard, gnu::cold]] std::string bytes(double count);

struct point {
    double x = 0, y = 0;
};
/// A curve: what is not finite leaves a gap.
struct series {
    std::string name;
    int color = 0;  ///< 0 .. 7
    std::vector<point> points{};
    bool is_faint = false;  ///< behind the others
    bool has_dots = false;
    double width = 0;  ///< pixels; 0: as the others
};
struct chart {
    std::string title;
    std::string unit{};  ///< of y, after the title
    std::string x_name = "step";
    std::vector<series> curves{};
    bool is_logarithmic = false;  ///< where all values are above 0
    bool from_zero = false;
    bool counts_x = true;  ///< x are whole numbers
};
/// A <figure> with its curves, axes and legend; one sentence where there is nothing to draw.
[[nodiscard, gnu::cold]] std::string to_html(const chart& of);

/// A part of a bar, with a CSS class of page_style.hpp.
struct bar_part {
    std::string name, css_class;
    double value = 0;
};
/// One row of parts side by side. `most`: the value of the whole width. `value`: of the row, for people.
[[nodiscard, gnu::cold]] std::string bar(std::string_view name, const std::vector<bar_part>& parts, double most,
                                         std::string_view value, std::string (*show)(double));
/// What the classes of bars mean.
[[nodiscard, gnu::cold]] std::string legend(const std::vector<bar_part>& parts);

/// Cells are escaped. The first column is a header of its row; the others are numbers, to the right, or words.
[[nodiscard, gnu::cold]] std::string table(std::string_view caption, const std::vector<std::string>& head,
                                           const std::vector<std::vector<std::string>>& rows, bool has_words = false);

/// A <section> with a heading.
[[nodiscard, gnu::cold]] std::string section(std::string_view title, std::string_view body);
/// A number that stands out.
[[nodiscard, gnu::cold]] std::string tile(std::string_view name, std::string_view value, std::string_view remark = {});
/// The whole page. `title` is escaped, `body` is not.
[[nodiscard, gnu::cold]] std::string page(std::string_view title, std::string_view body);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string escape(std::string_view text) {
    std::string out;
    for (const char c : core::printable(text, true)) switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                out += c;
        }
    return out;
}

LOCKSTEP_FUNCTION std::string number(double value) {
    if (std::isnan(value)) return "not a number";
    if (std::isinf(value)) return value > 0 ? "infinite" : "-infinite";
    const double size = std::abs(value);
    if (size >= 1000 && size < 1e12)
        return (value < 0 ? "-" : "") + core::grouped(static_cast<unsigned long long>(size + 0.5));
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, 4).ptr;
    return {buffer, end};
}

LOCKSTEP_FUNCTION std::string duration(double seconds) {
    if (!std::isfinite(seconds)) return number(seconds);
    if (seconds < 1e-3) return core::text(number(1e6 * seconds), " us");
    if (seconds < 1) return core::text(number(1e3 * seconds), " ms");
    if (seconds < 120 || seconds > 1e12) return core::text(number(seconds), " s");
    const auto whole = static_cast<std::uint64_t>(seconds + 0.5);
    const auto two = [](std::uint64_t part) { return core::text(part < 10 ? "0" : "", part); };
    if (whole < 3600) return core::text(whole / 60, ":", two(whole % 60), " min");
    return core::text(whole / 3600, ":", two(whole / 60 % 60), ":", two(whole % 60), " h");
}

LOCKSTEP_FUNCTION std::string bytes(double count) {
    constexpr std::string_view units[] = {" B", " kB", " MB", " GB", " TB"};
    std::size_t unit = 0;
    for (; count >= 1000 && unit + 1 < std::size(units); ++unit) count /= 1000;
    const int digits = unit == 0 || count >= 99.95 ? 0 : count >= 9.995 ? 1 : 2;
    return core::fixed(count, digits) + std::string{units[unit]};
}

namespace detail {

struct range {
    double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();

    /// An axis ends at 1e300: what is computed from its ends has to be finite.
    void take(double value) noexcept {
        if (!std::isfinite(value)) return;
        least = std::min(least, std::clamp(value, -1e300, 1e300));
        most = std::max(most, std::clamp(value, -1e300, 1e300));
    }
    [[nodiscard]] bool is_empty() const noexcept { return !(least <= most); }
};

/// 1, 2 or 5 times a power of ten: about `count` of them in `length`.
[[nodiscard]] LOCKSTEP_FUNCTION double tick_of(double length, int count) {
    const double wish = length / count, power = std::pow(10.0, std::floor(std::log10(wish))), ratio = wish / power;
    return power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
}

/// An axis: where values lie on it (0 to 1), and its labels.
struct axis {
    range shown;
    bool is_logarithmic = false;
    std::vector<double> ticks{};

    [[nodiscard]] double place(double value) const {
        const auto scale = [&](double of) { return is_logarithmic ? std::log10(of) : of; };
        const double length = scale(shown.most) - scale(shown.least);
        return length > 0 ? std::clamp((scale(value) - scale(shown.least)) / length, 0.0, 1.0) : 0.5;
    }
};

[[nodiscard]] LOCKSTEP_FUNCTION axis linear_axis(range values, int count, bool whole_numbers, bool to_ticks) {
    axis out{.shown = values};
    const double largest = std::max(std::abs(values.most), std::abs(values.least));
    if (!(values.most - values.least > std::max(1e-12 * largest, 1e-300))) {
        // One value: it lies in the middle.
        const double around = largest == 0 ? 1 : std::max(0.1 * largest, 1e-300);
        out.shown = {values.least - around, values.most + around};
        if (whole_numbers) {
            out.ticks = {values.most};
            return out;
        }
    }
    const double tick = std::max(tick_of(out.shown.most - out.shown.least, count), whole_numbers ? 1.0 : 0.0);
    if (to_ticks) out.shown = {tick * std::floor(out.shown.least / tick), tick * std::ceil(out.shown.most / tick)};
    for (double at = std::ceil(out.shown.least / tick - 1e-9); at * tick <= out.shown.most + 1e-9 * tick; ++at)
        out.ticks.push_back(at == 0 ? 0 : at * tick);
    return out;
}

[[nodiscard]] LOCKSTEP_FUNCTION axis logarithmic_axis(range values) {
    // From one of 1, 2, 5, 10, .. to another.
    const auto step_at = [](double value, bool is_above) {
        const double power = std::pow(10.0, std::floor(std::log10(value)));
        double out = is_above ? 10 * power : power;
        for (const double step : {1.0, 2.0, 5.0})
            out = is_above ? (step * power >= value ? std::min(out, step * power) : out)
                           : (step * power <= value ? std::max(out, step * power) : out);
        return out;
    };
    axis out{.shown = {step_at(std::max(values.least, 1e-300), false), step_at(std::max(values.most, 1e-300), true)},
             .is_logarithmic = true};
    // The ratio of the ends may be infinite.
    const double decades = std::log10(out.shown.most) - std::log10(out.shown.least);
    for (double power = std::floor(std::log10(out.shown.least)); power <= std::log10(out.shown.most); ++power)
        for (const double step : {1.0, 2.0, 5.0}) {
            const double tick = step * std::pow(10.0, power);
            if ((step > 1 && decades > 2.5) || tick < 0.999 * out.shown.least || tick > 1.001 * out.shown.most)
                continue;
            out.ticks.push_back(tick);
        }
    if (decades > 6) {  // every other decade, or fewer
        const auto each = static_cast<std::size_t>(std::ceil(decades / 5));
        std::vector<double> kept;
        for (std::size_t i = 0; i < out.ticks.size(); i += each) kept.push_back(out.ticks[i]);
        out.ticks = kept;
    }
    return out;
}

/// A path in the square of 1000 x 1000. Its letters are as many as its points.
[[nodiscard]] LOCKSTEP_FUNCTION std::string path_of(const series& curve, const axis& x, const axis& y,
                                                    std::size_t& count) {
    std::string out;
    bool is_open = false;
    for (std::size_t i = 0; i < curve.points.size(); ++i) {
        const auto& at = curve.points[i];
        if (!std::isfinite(at.x) || !std::isfinite(at.y)) {
            is_open = false;
            continue;
        }
        out += core::text(is_open ? 'L' : 'M', core::fixed(1000 * x.place(at.x), 1), " ",
                          core::fixed(1000 - 1000 * y.place(at.y), 1));
        ++count;
        const bool is_alone = !is_open && (i + 1 == curve.points.size() || !std::isfinite(curve.points[i + 1].y));
        if (is_alone) out += "h0";  // a dot: the ends of lines are round
        is_open = true;
    }
    return out;
}

[[nodiscard]] LOCKSTEP_FUNCTION std::string dots_of(const series& curve, const axis& x, const axis& y) {
    std::string out;
    for (const auto& at : curve.points)
        if (std::isfinite(at.x) && std::isfinite(at.y))
            out += core::text('M', core::fixed(1000 * x.place(at.x), 1), " ",
                              core::fixed(1000 - 1000 * y.place(at.y), 1), "h0");
    return out;
}

}  // namespace detail

LOCKSTEP_FUNCTION std::string to_html(const chart& of) {
    detail::range x_values, y_values;
    for (const auto& curve : of.curves)
        for (const auto& at : curve.points) x_values.take(at.x), y_values.take(at.y);
    const std::string title = escape(of.title), unit = of.unit.empty() ? "" : core::text(", ", escape(of.unit));
    if (x_values.is_empty() || y_values.is_empty())
        return core::text("<figure><figcaption>", title, unit,
                          "</figcaption><p class=\"note\">No value yet.</p></figure>\n");
    if (of.from_zero && !of.is_logarithmic) y_values.take(0);
    const bool is_logarithmic = of.is_logarithmic && y_values.least > 0 && y_values.most > 20 * y_values.least;
    const auto x = detail::linear_axis(x_values, 4, of.counts_x, false);
    const auto y = is_logarithmic ? detail::logarithmic_axis(y_values) : detail::linear_axis(y_values, 5, false, true);
    std::string grid, labels, curves, words, key;
    for (const double tick : y.ticks) {
        const std::string from_top = core::fixed(1000 - 1000 * y.place(tick), 1);
        grid += core::text("M0 ", from_top, "H1000");
        labels += core::text("<span class=\"y\" style=\"top:", core::fixed(100 - 100 * y.place(tick), 2), "%\">",
                             number(tick), "</span>");
    }
    for (const double tick : x.ticks) {
        grid += core::text("M", core::fixed(1000 * x.place(tick), 1), " 0V1000");
        labels += core::text("<span class=\"x\" style=\"left:", core::fixed(100 * x.place(tick), 2), "%\">",
                             number(tick), "</span>");
    }
    for (const auto& curve : of.curves) {
        std::size_t count = 0;
        const std::string path = detail::path_of(curve, x, y, count);
        const std::string last = curve.points.empty() ? "" : number(curve.points.back().y);
        const std::string name = escape(curve.name),
                          color = core::text("c", curve.color, of.curves.size() == 1 ? " alone" : "");
        curves += core::text("<path class=\"curve ", color, curve.is_faint ? " faint" : "", "\"",
                             curve.width > 0 ? core::text(" style=\"stroke-width:", curve.width, "px\"") : "",
                             " data-name=\"", name, "\" data-points=\"", count, "\" d=\"", path, "\"/>");
        if (curve.has_dots && count <= 60)
            curves += core::text("<path class=\"dots ", color, "\" d=\"", detail::dots_of(curve, x, y), "\"/>");
        key += core::text("<span class=\"key ", color, curve.is_faint ? " faint" : "", "\"><i></i>", name,
                          last.empty() ? "" : core::text(" <b>", last, "</b>"), "</span>");
        words += core::text(words.empty() ? "" : "; ", name, ": ", count, count == 1 ? " point" : " points",
                            last.empty() ? "" : core::text(", the last ", last));
    }
    const std::string scale = core::text(" data-x0=\"", x.shown.least, "\" data-x1=\"", x.shown.most, "\" data-y0=\"",
                                         y.shown.least, "\" data-y1=\"", y.shown.most, "\" data-log=\"",
                                         is_logarithmic ? 1 : 0, "\" data-x=\"", escape(of.x_name), "\"");
    return core::text("<figure><figcaption>", title, "<small>", unit, is_logarithmic ? ", logarithmic" : "",
                      "</small></figcaption><div class=\"keys\">", key, "</div><div class=\"plot\"", scale,
                      "><svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"", title,
                      " by ", escape(of.x_name), ". ", words, "\"><path class=\"grid\" d=\"", grid, "\"/>", curves,
                      "</svg>", labels, "</div><p class=\"axis\">", escape(of.x_name),
                      "</p><p class=\"values\" aria-hidden=\"true\"></p></figure>\n");
}

LOCKSTEP_FUNCTION std::string bar(std::string_view name, const std::vector<bar_part>& parts, double most,
                                  std::string_view value, std::string (*show)(double)) {
    std::string out, words;
    for (const auto& part : parts) {
        if (!(part.value > 0) || !(most > 0)) continue;
        const std::string says = core::text(escape(part.name), " ", show(part.value));
        out +=
            core::text("<span class=\"", part.css_class, "\" style=\"width:", core::fixed(100 * part.value / most, 3),
                       "%\" title=\"", says, "\"></span>");
        words += core::text(words.empty() ? "" : ", ", says);
    }
    return core::text("<div class=\"row\"><span class=\"name\">", escape(name),
                      "</span><span class=\"bar\" role=\"img\" aria-label=\"", escape(name), ": ", words, "\">", out,
                      "</span><span class=\"value\">", escape(value), "</span></div>\n");
}

LOCKSTEP_FUNCTION std::string legend(const std::vector<bar_part>& parts) {
    std::string out = "<p class=\"keys\">";
    for (const auto& part : parts)
        out += core::text("<span class=\"key\"><i class=\"", part.css_class, "\"></i>", escape(part.name), "</span>");
    return out + "</p>\n";
}

LOCKSTEP_FUNCTION std::string table(std::string_view caption, const std::vector<std::string>& head,
                                    const std::vector<std::vector<std::string>>& rows, bool has_words) {
    std::string out =
        core::text("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", escape(caption), "\"><table",
                   has_words ? " class=\"words\"" : "", "><caption>", escape(caption), "</caption>");
    if (!head.empty()) {
        out += "<thead><tr>";
        for (const auto& cell : head) out += core::text("<th scope=\"col\">", escape(cell), "</th>");
        out += "</tr></thead>";
    }
    out += "<tbody>\n";
    for (const auto& row : rows) {
        out += "<tr>";
        for (std::size_t i = 0; i < row.size(); ++i)
            out += i == 0 ? core::text("<th scope=\"row\">", escape(row[i]), "</th>")
                          : core::text("<td>", escape(row[i]), "</td>");
        out += "</tr>\n";
    }
    return out + "</tbody></table></div>\n";
}

LOCKSTEP_FUNCTION std::string section(std::string_view title, std::string_view body) {
    return core::text("<section><h2>", escape(title), "</h2>\n", body, "</section>\n");
}

LOCKSTEP_FUNCTION std::string tile(std::string_view name, std::string_view value, std::string_view remark) {
    return core::text("<div class=\"tile\"><dt>", escape(name), "</dt><dd", value.size() > 12 ? " class=\"long\"" : "",
                      ">", escape(value), "</dd>",
                      remark.empty() ? "" : core::text("<dd class=\"remark\">", escape(remark), "</dd>"), "</div>\n");
}

LOCKSTEP_FUNCTION std::string page(std::string_view title, std::string_view body) {
    return core::text("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n", page_head, "<title>",
                      escape(title), "</title>\n<style>", page_style, "</style></head>\n<body><main>\n", body,
                      "</main>\n<script>", page_script, "</script></body></html>\n");
}

#endif

}  // namespace lockstep::report::html
