// SPDX-License-Identifier: BSD-3-Clause
// lockstep-compare: runs side by side, from the files of ls::json_log or the pages of ls::html_report. Needs no MPI.
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/report/comparison.hpp"
#include "lockstep/report/whole_file.hpp"

namespace {

namespace ls = lockstep;
using ls::core::error;

constexpr std::string_view usage = R"(lockstep-compare RUN RUN [RUN..] [options]

Compares runs by their logs: files of ls::json_log (train --log FILE), or pages of ls::html_report (train --html FILE).
Prints losses and metrics, the rate, the time to a target, lines of the recipe that differ, and whether the bits are the
same: equal losses in all steps, equal weights at the end; otherwise the first step that differs.

  --target METRIC=VALUE   time until the test set has reached it, such as accuracy=0.98 or loss=0.1, or "training
                          loss=0.05"; if not given, the best that all runs have reached
  --html FILE             the same as a page, with curves over each other
  --same                  exit code 1 unless all runs have the same bits
  --quiet                 print nothing
  --help                  print this text

Exit codes: 0; 1: --same was asked for and they are not; 2: a file cannot be read, or a wrong option.
)";

int compare(const std::vector<std::string>& arguments) {
    std::vector<std::string> paths;
    std::optional<ls::report::target> target;
    std::string page;
    bool same = false, quiet = false, only_paths = false;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& word = arguments[i];
        const auto value = [&] {
            if (i + 1 == arguments.size() || arguments[i + 1].empty() || arguments[i + 1].starts_with("--"))
                throw error{word + " has no value", "see lockstep-compare --help"};
            return arguments[++i];
        };
        if (only_paths || word.empty() || word[0] != '-')
            paths.push_back(word);
        else if (word == "--")
            only_paths = true;
        else if (word == "--help" || word == "-h") {
            std::fwrite(usage.data(), 1, usage.size(), stdout);
            ls::core::flush_standard_output();
            return 0;
        } else if (word == "--target" && !target)
            target = ls::report::target::parse(value());
        else if (word == "--html" && page.empty())
            page = value();
        else if (word == "--target" || word == "--html")
            throw error{word + " is there twice", "give each option once"};
        else if (word == "--same")
            same = true;
        else if (word == "--quiet")
            quiet = true;
        else
            throw error{"there is no option " + word, "see lockstep-compare --help"};
    }
    if (paths.size() < 2)
        throw error{ls::core::text("a comparison needs two runs, there ", paths.size() == 1 ? "is 1" : "are none"),
                    "name their logs: lockstep-compare a.jsonl b.jsonl"};
    std::vector<ls::report::run_record> runs;
    for (const auto& path : paths) runs.push_back(ls::report::read_run(path));
    if (target) {
        const auto measures = [&](const auto& run) {
            for (const auto& metric : run.metrics())
                if (metric == target->metric) return true;
            return target->metric == "training loss";
        };
        bool is_known = false;
        for (const auto& run : runs) is_known = is_known || measures(run);
        if (!is_known)
            throw error{"no run has measured '" + target->metric + "' on a test set",
                        "name a metric of validate{set}, or \"training loss\""};
    }
    if (!page.empty()) {
        for (const auto& path : paths) ls::core::require_different_outputs(std::vector<std::string>{path, page});
        ls::report::write_whole(page, ls::report::comparison_page(runs, target));
    }
    if (!quiet) {
        const std::string text = ls::report::compare(runs, target);
        std::fwrite(text.data(), 1, text.size(), stdout);
    }
    ls::core::flush_standard_output();
    bool are_same = true;
    // Each with each: two that differ are both like a third whose log has no hash.
    for (std::size_t i = 0; i < runs.size(); ++i)
        for (std::size_t k = i + 1; k < runs.size(); ++k)
            are_same = are_same && ls::report::have_same_bits(runs[i], runs[k]);
    return same && !are_same ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return compare({argv + 1, argv + argc});
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 2;
    }
}
