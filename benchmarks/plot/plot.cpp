// SPDX-License-Identifier: BSD-3-Clause
// Draws JSON lines of the benchmarks as horizontal bars: one for each case, as a fraction of the peak, with the figures beside it.

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

constexpr const char* usage =
    R"(Draws JSON lines of the benchmarks as an SVG picture: a bar for each case, as long as its fraction of the FMA peak.

usage: bench_plot [--title TEXT] [--field NAME] FILE.jsonl > picture.svg
  --title TEXT   heading [fraction of the FMA peak]
  --field NAME   number to draw [fraction_of_peak]
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

std::vector<bar> read(std::istream& file, const std::string& field) {
    std::vector<bar> out;
    std::string line;
    for (std::size_t number = 1; std::getline(file, line); ++number) {
        if (line.empty()) continue;
        const auto one = nlohmann::json::parse(line, nullptr, false);
        if (one.is_discarded() || !one.contains("case") || !one.contains(field)) {
            std::cerr << "lockstep: line " << number << " is no JSON object with \"case\" and \"" << field << "\"; it is left out\n";
            continue;
        }
        bar next{one["case"].get<std::string>(), {}, one[field].get<double>()};
        if (one.contains("gflops")) next.note = std::to_string(static_cast<int>(one["gflops"].get<double>() + 0.5)) + " GFLOP/s";
        out.push_back(next);
    }
    return out;
}

void draw(std::ostream& out, const std::vector<bar>& bars, const std::string& title) {
    constexpr int row = 18, left = 300, width = 480, right = 160, top = 56;
    double most = 1;
    for (const auto& one : bars) most = std::max(most, one.value);
    const auto x = [&](double value) { return left + static_cast<int>(value / most * width); };
    const int height = top + row * static_cast<int>(bars.size());
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << left + width + right << "\" height=\"" << height + 16
        << "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        << "<text x=\"12\" y=\"22\" font-size=\"15\">" << escaped(title) << "</text>\n";
    for (int tenth = 0; tenth <= static_cast<int>(most * 4); ++tenth) {
        const double at = tenth / 4.0;
        out << "<line x1=\"" << x(at) << "\" y1=\"" << top - 6 << "\" x2=\"" << x(at) << "\" y2=\"" << height << "\" stroke=\""
            << (tenth == 4 ? "#333" : "#ccc") << "\"/><text x=\"" << x(at) << "\" y=\"" << top - 10
            << "\" text-anchor=\"middle\" fill=\"#555\">" << tenth * 25 << " %</text>\n";
    }
    for (std::size_t i = 0; i < bars.size(); ++i) {
        const auto& one = bars[i];
        const int y = top + row * static_cast<int>(i);
        const char* colour = one.value >= 0.9 ? "#2a7f62" : one.value >= 0.7 ? "#6c9bd2" : "#d08c4a";
        out << "<text x=\"" << left - 8 << "\" y=\"" << y + 13 << "\" text-anchor=\"end\">" << escaped(one.name) << "</text><rect x=\""
            << left << "\" y=\"" << y + 2 << "\" width=\"" << x(one.value) - left << "\" height=\"" << row - 4 << "\" fill=\"" << colour
            << "\"/><text x=\"" << x(one.value) + 6 << "\" y=\"" << y + 13 << "\">" << static_cast<int>(one.value * 100 + 0.5) << " % "
            << escaped(one.note) << "</text>\n";
    }
    out << "</svg>\n";
}

}  // namespace

int main(int argc, char** argv) {
    std::string title = "fraction of the FMA peak", field = "fraction_of_peak", path;
    for (int i = 1; i < argc; ++i) {
        const std::string key = argv[i];
        if (key == "--help") {
            std::cout << usage;
            return 0;
        }
        if ((key == "--title" || key == "--field") && i + 1 < argc)
            (key == "--title" ? title : field) = argv[++i];
        else if (path.empty() && key.rfind("--", 0) != 0)
            path = key;
        else {
            std::cerr << "lockstep: cannot use '" << key << "'; see bench_plot --help\n";
            return 2;
        }
    }
    std::ifstream file{path};
    if (!file) {
        std::cerr << "lockstep: cannot open '" << path << "'; pass a file of JSON lines, as the benchmarks print them\n";
        return 1;
    }
    const auto bars = read(file, field);
    if (bars.empty()) {
        std::cerr << "lockstep: '" << path << "' has no line to draw; pass a file of JSON lines, as the benchmarks print them\n";
        return 1;
    }
    draw(std::cout, bars, title);
    return 0;
}
