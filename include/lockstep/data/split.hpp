// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One data set as two: samples to train on, and samples that are held out for validation; models of Dataset.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"

namespace lockstep::data {

struct split_options {
    double held_out = 0.1;  ///< chance of a sample to be held out
    std::uint64_t seed = 1;
};

/// Which of `size` samples are held out: sample i where word i of (seed, purpose split) is below held_out 2^32. So the
/// choice for a sample depends on its number and the seed alone: samples that are added later move no other. Memory: a
/// quarter of a byte for each sample. Cost: about 1 ns for each sample.
class split_choice {
public:
    split_choice(std::size_t size, const split_options& options);

    [[nodiscard]] std::size_t held_out() const noexcept { return before_.back(); }
    [[nodiscard]] std::size_t training() const noexcept { return size_ - held_out(); }
    /// The number in the whole set of the sample `row` of a part. About 0.1 us in a set of 10^7.
    [[nodiscard]] std::uint64_t number(bool of_held_out, std::uint64_t row) const noexcept;

private:
    std::size_t size_;
    std::vector<std::uint64_t> chosen_;  // a bit for each sample
    std::vector<std::size_t> before_;    // held-out samples before each word of bits, and all of them
};

/// The samples of one part, in the order of the whole set. Keeps a copy of it, which for the data sets of this folder
/// shares the samples. Augmentations draw by the number in the whole set.
template <AnyDataset Set>
class part_of {
    static_assert(keeps_some_reading<Set>,
                  "lockstep: read(rows, x, y, reading) of a data set is const and takes a const data::reading&, with x "
                  "and y of the types that read(rows, x, y) takes");

public:
    using sample = typename Set::sample;
    using label = typename Set::label;

    part_of(const Set& set, std::shared_ptr<const split_choice> choice, bool of_held_out, const split_options& options)
        : set_{set}, choice_{std::move(choice)}, of_held_out_{of_held_out}, options_{options} {}

    [[nodiscard]] std::size_t size() const noexcept { return of_held_out_ ? choice_->held_out() : choice_->training(); }
    [[nodiscard]] std::string name() const { return core::text(part_name(), " of ", name_of(set_)); }
    void check() const { check_set(set_); }
    [[nodiscard]] std::string settings() const {
        std::string out;
        if constexpr (requires { std::string{set_.settings()}; }) out = core::text(std::string{set_.settings()}, " ");
        return out + core::text(part_name(), "(held_out=", options_.held_out, " seed=", options_.seed, ")");
    }

    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y) const requires Dataset<Set, T> {
        in_whole_set<T>(rows, x, y, [&](auto numbers, auto to_x, auto to_y) { set_.read(numbers, to_x, to_y); });
    }
    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y, const reading& key) const requires VaryingDataset<Set, T> {
        in_whole_set<T>(rows, x, y, [&](auto numbers, auto to_x, auto to_y) { set_.read(numbers, to_x, to_y, key); });
    }

private:
    [[nodiscard]] std::string_view part_name() const noexcept {
        return of_held_out_ ? "held-out part" : "training part";
    }
    template <class T, class F>
    void in_whole_set(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
                      std::span<tensor::label_element<label, T>> y, F&& f) const {
        require_readable(*this, rows, x, y);
        constexpr std::size_t labels = tensor::label_size<label>, block = 64;  // no memory is taken for numbers
        std::array<std::uint64_t, block> numbers;
        for (std::size_t at = 0; at < rows.size(); at += block) {
            const std::size_t here = std::min(block, rows.size() - at);
            for (std::size_t i = 0; i < here; ++i) numbers[i] = choice_->number(of_held_out_, rows[at + i]);
            f(std::span<const std::uint64_t>{numbers.data(), here}, x.part(at, here),
              y.subspan(at * labels, here * labels));
        }
    }

    Set set_;
    std::shared_ptr<const split_choice> choice_;
    bool of_held_out_;
    split_options options_;
};

/// Both parts: disjoint, and together the whole set.
template <AnyDataset Set>
struct split_sets {
    part_of<Set> training, held_out;
};

/// `const auto [training, held_out] = split(set, {.held_out = 0.1, .seed = 1});`: each sample is in one of the two,
/// the same on any rank. Held out are about 0.1 n samples, with a deviation of sqrt(0.09 n). Throws core::error where
/// held_out is not between 0 and 1, and where one part gets no sample.
template <AnyDataset Set>
[[nodiscard]] split_sets<Set> split(const Set& set, const split_options& options = {}) {
    const auto choice = std::make_shared<const split_choice>(set.size(), options);
    if (choice->held_out() == 0 || choice->training() == 0)
        core::fail(core::text("of the ", set.size(), " samples of ", name_of(set), " ", choice->held_out(),
                              " are held out with held_out = ", options.held_out, " and seed = ", options.seed),
                   "use another share or seed, or a data set with more samples");
    return {{set, choice, false, options}, {set, choice, true, options}};
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION split_choice::split_choice(std::size_t size, const split_options& options) : size_{size} {
    if (!(options.held_out > 0 && options.held_out < 1))
        core::fail(core::text("a data set was to be split with held_out = ", options.held_out),
                   "hold out a share between 0 and 1, such as 0.1");
    const auto below = static_cast<std::uint64_t>(options.held_out * 0x1p32);
    const core::random_stream stream{options.seed, core::purpose::split};
    const std::size_t words = size / 64 + (size % 64 != 0 ? 1 : 0);
    core::with_memory("the choice of held-out samples", 16 * words, "use a smaller data set", [&] {
        chosen_.resize(words);
        before_.resize(words + 1);
    });
    std::array<std::uint32_t, 64> draws;
    for (std::size_t w = 0; w < words; ++w) {
        const std::size_t here = std::min<std::size_t>(64, size - 64 * w);
        stream.words(64 * w, draws);
        for (std::size_t i = 0; i < here; ++i) chosen_[w] |= std::uint64_t{draws[i] < below} << i;
        before_[w + 1] = before_[w] + static_cast<std::size_t>(std::popcount(chosen_[w]));
    }
}

LOCKSTEP_FUNCTION std::uint64_t split_choice::number(bool of_held_out, std::uint64_t row) const noexcept {
    const auto before = [&](std::size_t w) { return of_held_out ? before_[w] : 64 * w - before_[w]; };
    std::size_t first = 0;
    for (std::size_t last = chosen_.size(); last - first > 1;) {
        const std::size_t middle = first + (last - first) / 2;
        (before(middle) <= row ? first : last) = middle;
    }
    std::uint64_t bits = of_held_out ? chosen_[first] : ~chosen_[first];
    for (std::uint64_t further = row - before(first); further > 0; --further) bits &= bits - 1;
    return 64 * first + static_cast<std::uint64_t>(std::countr_zero(bits));
}

#endif

}  // namespace lockstep::data
