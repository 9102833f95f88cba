// SPDX-License-Identifier: BSD-3-Clause
// Draws JSON lines of the benchmarks as horizontal bars: one for each case, as a fraction of the peak, with the figures
// beside it.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

constexpr const char* usage =
    R"(Draws JSON lines of the benchmarks as an SVG picture: a bar for each case, as long as its fraction of the FMA peak.

usage: bench_plot [--title TEXT] [--field NAME] [--without TEXT] FILE.jsonl > picture.svg
  --title TEXT     heading [fraction of the FMA peak]
  --field NAME     number to draw [fraction_of_peak]
  --without TEXT   leave out cases whose name contains TEXT
)";

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
    return out;
}

struct bar {
    std::string name;
    std::string note;
    double value = 0;
};

std::vector<bar> read(std::istream& file, const std::string& field, const std::string& without) {
    std::vector<bar> out;
    std::string line;
    for (std::size_t number = 1; std::getline(file, line); ++number) {
        if (line.empty()) continue;
        const auto one = nlohmann::json::parse(line, nullptr, false);
        if (one.is_discarded() || !one.contains("case") || !one.contains(field)) {
            std::cerr << "lockstep: line " << number << " is no JSON object with \"case\" and \"" << field
                      << "\"; it is left out\n";
            continue;
        }
        bar next{one["case"].get<std::string>(), {}, one[field].get<double>()};
        if (!without.empty() && next.name.find(without) != std::string::npos) continue;
        if (one.contains("gflops"))
            next.note = std::to_string(static_cast<int>(one["gflops"].get<double>() + 0.5)) + " GFLOP/s";
        out.push_back(next);
    }
    return out;
}

/// "vgg_conv2.forward" is the pass "forward" of "vgg_conv2".
struct layer {
    std::string name;
    std::vector<bar> passes;
};
std::vector<layer> by_layer(const std::vector<bar>& bars) {
    std::vector<layer> out;
    for (bar one : bars) {
        const std::size_t dot = one.name.rfind('.');
        const std::string name = one.name.substr(0, dot);
        one.name = dot == std::string::npos ? std::string{} : one.name.substr(dot + 1);
        std::replace(one.name.begin(), one.name.end(), '_', ' ');
        if (out.empty() || out.back().name != name) out.push_back({name, {}});
        out.back().passes.push_back(one);
    }
    return out;
}

// Colours that can be told apart without red and green; a page may be dark.
constexpr const char* style = R"svg(<style>
text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#222}.t{font-size:15px}.n{fill:#5a5a5a}.e{text-anchor:end}.m{text-anchor:middle}
.page{fill:#fff}.grid{stroke:#ddd}.peak{stroke:#222;stroke-width:1.5}
.forward{fill:#9cc3e8}.data{fill:#2f5f98}.weights{fill:#8a63b3}.other{fill:#6a8fb5}
@media (prefers-color-scheme:dark){text{fill:#ddd}.n{fill:#a0a0a0}.page{fill:#16191e}.grid{stroke:#363b43}.peak{stroke:#ddd}}
</style>
)svg";

/// 0 to 2 for the passes of a layer, in the order in which a step makes them; 3 for anything else.
int rank_of(const bar& pass) {
    constexpr const char* starts[] = {"forward", "backward data", "backward weights"};
    int rank = 0;
    while (rank < 3 && pass.name.rfind(starts[rank], 0) != 0) ++rank;
    return rank;
}

void draw(std::ostream& out, const std::vector<bar>& bars, const std::string& title) {
    constexpr int row = 16, gap = 8, left = 330, width = 440, percents = left + width + 54, figures = percents + 96,
                  top = 62;
    constexpr const char* kinds[] = {"forward", "data", "weights", "other"};
    double most = 1;
    for (const auto& one : bars) most = std::max(most, one.value);
    // Lines far enough apart for their numbers; the scale ends at one of them.
    const int percent = most <= 1.3 ? 25 : most <= 2.6 ? 50 : 100;
    const int end = percent * static_cast<int>(std::ceil(most * 100 / percent - 1e-9));
    const auto x = [&](double value) { return left + static_cast<int>(value * 100 / end * width); };
    auto layers = by_layer(bars);
    const int height = top + row * static_cast<int>(bars.size()) + gap * static_cast<int>(layers.size());
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << figures + 14 << "\" height=\"" << height + 12
        << "\" viewBox=\"0 0 " << figures + 14 << ' ' << height + 12 << "\">\n"
        << style << "<rect width=\"100%\" height=\"100%\" class=\"page\"/>\n<text x=\"12\" y=\"24\" class=\"t\">"
        << escaped(title) << "</text>\n";
    for (int at = 0; at <= end; at += percent)
        out << "<path class=\"" << (at == 100 ? "peak" : "grid") << "\" d=\"M" << x(at / 100.0) << ' ' << top - 6 << 'V'
            << height << "\"/><text x=\"" << x(at / 100.0) << "\" y=\"" << top - 11 << "\" class=\"m n\">" << at
            << " %</text>\n";
    int y = top;
    for (auto& of : layers) {
        out << "<text x=\"12\" y=\"" << y + 12 << "\">" << escaped(of.name) << "</text>\n";
        std::stable_sort(of.passes.begin(), of.passes.end(),
                         [](const bar& a, const bar& b) { return rank_of(a) < rank_of(b); });
        for (const auto& one : of.passes) {
            out << "<text x=\"" << left - 8 << "\" y=\"" << y + 12 << "\" class=\"e n\">" << escaped(one.name)
                << "</text><rect x=\"" << left << "\" y=\"" << y + 1 << "\" width=\"" << x(one.value) - left
                << "\" height=\"" << row - 2 << "\" class=\"" << kinds[rank_of(one)] << "\"/><text x=\"" << percents
                << "\" y=\"" << y + 12 << "\" class=\"e\">" << static_cast<int>(one.value * 100 + 0.5)
                << " %</text><text x=\"" << figures << "\" y=\"" << y + 12 << "\" class=\"e n\">" << escaped(one.note)
                << "</text>\n";
            y += row;
        }
        y += gap;
    }
    out << "</svg>\n";
}

}  // namespace

int main(int argc, char** argv) {
    std::string title = "fraction of the FMA peak", field = "fraction_of_peak", without, path;
    for (int i = 1; i < argc; ++i) {
        const std::string key = argv[i];
        if (key == "--help") {
            std::cout << usage;
            return 0;
        }
        if ((key == "--title" || key == "--field" || key == "--without") && i + 1 < argc)
            (key == "--title" ? title : key == "--field" ? field : without) = argv[++i];
        else if (path.empty() && key.rfind("--", 0) != 0)
            path = key;
        else {
            std::cerr << "lockstep: cannot use '" << key << "'; see bench_plot --help\n";
            return 2;
        }
    }
    std::ifstream file{path};
    if (!file) {
        std::cerr << "lockstep: cannot open '" << path
                  << "'; pass a file of JSON lines, as the benchmarks print them\n";
        return 1;
    }
    const auto bars = read(file, field, without);
    if (bars.empty()) {
        std::cerr << "lockstep: '" << path
                  << "' has no line to draw; pass a file of JSON lines, as the benchmarks print them\n";
        return 1;
    }
    draw(std::cout, bars, title);
    return 0;
}
