// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Checks of words on a command line: the parser would take -1 for 18446744073709551615, 010 for 8, and a variable of
// the shell that is not set for no option.

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>

namespace example {

/// A whole number from `least` to `most`.
inline CLI::Validator whole_number(std::uint64_t least, std::uint64_t most = 1'000'000'000'000) {
    const std::string range = std::to_string(least) + " to " + std::to_string(most);
    return {[=](std::string& word) {
                std::uint64_t number = 0;
                const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
                const bool good =
                    problem == std::errc{} && end == word.data() + word.size() && number >= least && number <= most;
                if (good) word = std::to_string(number);
                return good ? std::string{} : "'" + word + "' is not a whole number from " + range;
            },
            range};
}

/// A number that `is_good`; `what` says which those are.
inline CLI::Validator number(bool (*is_good)(double), const std::string& what, const std::string& name) {
    return {[=](std::string& word) {
                double one = 0;
                const bool good = !word.empty() && CLI::detail::lexical_cast(word, one) && is_good(one);
                return good ? std::string{} : "'" + word + "' is not " + what;
            },
            name};
}
inline CLI::Validator any_number() {
    return number([](double) { return true; }, "a number", "NUMBER");
}
inline CLI::Validator positive_number() {
    return number([](double one) { return one > 0 && std::isfinite(one); }, "a number above 0", "NUMBER > 0");
}

/// The name of a file or folder.
inline CLI::Validator a_name() {
    return {[](std::string& word) { return word.empty() ? std::string{"it has no name"} : std::string{}; }, ""};
}

}  // namespace example
