// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The file of chosen algorithms: one line for each pass of each convolution, written by a tuner and named by a plan.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/convolution/algorithm_choice.hpp"

namespace lockstep::planner {

/// A convolution of a network, as far as a choice of algorithms has to know it.
struct convolution_layer {
    std::size_t number = 0;  ///< in the flat list of layers, as the summary of a plan counts
    kernels::convolution geometry{};
    bool input_learns = true;  ///< else the data gradient is not asked for

    [[nodiscard]] bool has(kernels::convolution_pass pass) const noexcept {
        return input_learns || pass != kernels::convolution_pass::backward_data;
    }
};

inline constexpr std::string_view algorithm_file_header = "# lockstep algorithms 1";
inline constexpr std::size_t longest_line = 1000;  ///< of such a file, in bytes

/// The file of these choices, one for each layer:
///     # lockstep algorithms 1
///     layer 3 conv 32x32x16-3x3x16+1,1,1,1 forward winograd4 micro 8
[[nodiscard]] inline std::string write_algorithms(std::span<const convolution_layer> layers,
                                                  std::span<const kernels::convolution_choice> choices) {
    std::string out = core::text(algorithm_file_header, "\n");
    for (std::size_t i = 0; i < layers.size(); ++i)
        for (const auto pass : kernels::convolution_passes)
            if (layers[i].has(pass))
                out += core::text("layer ", layers[i].number, " conv ", to_text(layers[i].geometry), " ", name(pass),
                                  " ", to_text(choices[i][pass]), "\n");
    return out;
}

namespace detail {

/// Reads the lines of a file of algorithms. Each mistake is one error with the number of the line and what to do.
class algorithm_reader {
public:
    algorithm_reader(std::string_view text, std::string_view file) : text_{text}, file_{file} {}

    std::vector<kernels::convolution_choice> read(std::span<const convolution_layer> layers) {
        std::vector<kernels::convolution_choice> out(layers.size());
        std::vector<std::array<bool, kernels::convolution_passes.size()>> seen(layers.size());
        if (!next_line() || line_ != algorithm_file_header)
            core::fail(
                core::text("the file of algorithms ", file_, " does not begin with '", algorithm_file_header, "'"),
                "name a file that a tuner has written");
        while (next_line()) {
            if (line_.find_first_not_of(" \t") == std::string_view::npos || line_.front() == '#') continue;
            words_ = line_;
            read_line(layers, out, seen);
        }
        for (std::size_t i = 0; i < layers.size(); ++i)
            for (const auto pass : kernels::convolution_passes)
                if (layers[i].has(pass) && !seen[i][static_cast<std::size_t>(pass)])
                    core::fail(core::text(file_, " has no line for layer ", layers[i].number, " conv ",
                                          to_text(layers[i].geometry), " ", name(pass)),
                               "add it, or tune this network again");
        return out;
    }

private:
    [[noreturn]] void fail(const std::string& problem, const std::string& remedy) const {
        throw core::error{core::text(file_, " line ", number_, ": ", problem), remedy};
    }

    bool next_line() {
        if (text_.empty()) return false;
        const std::size_t end = std::min(text_.find('\n'), text_.size());
        line_ = text_.substr(0, end);
        if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
        text_.remove_prefix(std::min(end + 1, text_.size()));
        ++number_;
        if (line_.size() > longest_line)
            fail(core::text("it has ", line_.size(), " bytes, a line has at most ", longest_line),
                 "name a file that a tuner has written");
        return true;
    }
    /// The next word of the line; empty at its end.
    std::string_view word() {
        words_.remove_prefix(std::min(words_.find_first_not_of(" \t"), words_.size()));
        const std::string_view out = words_.substr(0, words_.find_first_of(" \t"));
        words_.remove_prefix(out.size());
        return out;
    }
    void expect(std::string_view wanted) {
        const std::string_view found = word();
        if (found != wanted)
            fail(found.empty() ? core::text("the line ends where '", wanted, "' should stand")
                               : core::text("'", core::excerpt(found), "' stands where '", wanted, "' should"),
                 "write lines as: layer 3 conv 32x32x16-3x3x16+1,1,1,1 forward winograd4 micro 8");
    }
    std::size_t whole_number(std::string_view what) {
        const std::string_view found = word();
        std::size_t out = 0;
        const auto [end, problem] = std::from_chars(found.data(), found.data() + found.size(), out);
        if (found.empty() || problem != std::errc{} || end != found.data() + found.size() || out > UINT32_MAX)
            fail(core::text("'", core::excerpt(found), "' is no ", what), "write a whole number");
        return out;
    }
    /// One of the values whose name is the next word.
    template <class Values>
    auto one_of(const Values& values, std::string_view what) {
        const std::string_view found = word();
        std::string known;
        for (const auto value : values) {
            if (name(value) == found) return value;
            known += core::text(known.empty() ? "" : ", ", name(value));
        }
        fail(core::text("'", core::excerpt(found), "' is no ", what), "use one of: " + known);
    }

    void read_line(std::span<const convolution_layer> layers, std::vector<kernels::convolution_choice>& out,
                   std::vector<std::array<bool, kernels::convolution_passes.size()>>& seen) {
        expect("layer");
        const std::size_t number = whole_number("number of a layer");
        expect("conv");
        const auto found =
            std::find_if(layers.begin(), layers.end(), [&](const auto& one) { return one.number == number; });
        if (found == layers.end())
            fail(
                core::text("layer ", number, " of the network is no convolution that takes its algorithms from a file"),
                "remove the line, or tune this network again");
        const std::string_view shape = word();
        if (shape != to_text(found->geometry))
            fail(core::text("layer ", number, " is ", to_text(found->geometry), ", not '", core::excerpt(shape), "'"),
                 "tune this network again");
        const auto pass = one_of(kernels::convolution_passes, "pass");
        if (!found->has(pass))
            fail(core::text("layer ", number, " computes no data gradient: nothing before it learns"),
                 "remove the line");
        const auto at = static_cast<std::size_t>(found - layers.begin());
        if (std::exchange(seen[at][static_cast<std::size_t>(pass)], true))
            fail(core::text("layer ", number, " ", name(pass), " stands here for the second time"),
                 "remove one of the two lines");
        auto& choice = out[at][pass];
        choice.which = one_of(kernels::algorithms, "algorithm");
        if (!applies(choice.which, found->geometry))
            fail(core::text(name(choice.which), " does not apply to ", shape),
                 "use direct or im2col; Winograd's algorithms are for kernels of 3 x 3 with stride 1");
        read_micro_batches(pass, choice.micro);
    }

    void read_micro_batches(kernels::convolution_pass pass, kernels::micro_batches& out) {
        if (rest_is_empty()) return;
        expect("micro");
        if (pass == kernels::convolution_pass::backward_weights)
            fail("weight gradients are taken lane by lane, without micro-batches", "remove 'micro' and what follows");
        do {
            if (out.count == out.capacity)
                fail(core::text("more than ", out.capacity, " micro-batches"), "name fewer: the last one is repeated");
            const std::size_t samples = whole_number("number of samples");
            if (samples == 0)
                fail("a micro-batch of 0 samples", "use at least 1, or remove 'micro' for the whole minibatch");
            out.runs[out.count++] = static_cast<std::uint32_t>(samples);
        } while (!rest_is_empty());
    }
    [[nodiscard]] bool rest_is_empty() const noexcept {
        return words_.find_first_not_of(" \t") == std::string_view::npos;
    }

    std::string_view text_, file_, line_{}, words_{};
    std::size_t number_ = 0;
};

}  // namespace detail

/// The choice for each of these layers. Throws core::error with the line and what to do. `file` names it in messages.
[[nodiscard, gnu::cold]] inline std::vector<kernels::convolution_choice> read_algorithms(
    std::string_view text, std::string_view file, std::span<const convolution_layer> layers) {
    return detail::algorithm_reader{text, file}.read(layers);
}

/// The text of a file. Throws core::error if there is none, or if it is too long for one.
[[nodiscard, gnu::cold]] inline std::string load_algorithms(const std::string& path) {
    constexpr std::size_t most = std::size_t{1} << 20;  // thousands of layers
    return core::read_text(path, "the file of algorithms", most,
                           "check its name on every rank, or leave plan.algorithms empty for the default rule");
}

}  // namespace lockstep::planner
