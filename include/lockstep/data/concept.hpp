// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The concepts Dataset (numbered, labelled samples), Sampler (the order in which an epoch visits them) and Augmentation
// (a random change of a picture).

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/core/error.hpp"
#include "lockstep/core/member.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::data {

/// Samples 0 .. size() - 1 of one compile-time shape. `read(rows, x, y)` fills x (rows.size() samples) and y
/// (rows.size() * label_size<label> elements) for these sample numbers, at least one, in any order and with repeats.
/// What is read for a number depends on that number alone, so any rank may read any sample. An optional `name() ->
/// std::string` appears in messages; the text of an optional `settings() -> std::string` must be equal on all ranks of
/// a fit(); an optional `check()` throws on numbers that make no sense.
template <class D, class T = float>
concept Dataset = tensor::Shape<typename D::sample> && tensor::Label<typename D::label> &&
    requires(const D& set, std::span<const std::uint64_t> rows, tensor::batch<T, typename D::sample> x,
             std::span<tensor::label_element<typename D::label, T>> y) {
    { set.size() } -> std::convertible_to<std::size_t>;
    set.read(rows, x, y);
};

/// The order of an epoch: out (n entries) becomes a list of sample numbers below n. A pure function of its arguments.
/// Optional: `name` and `settings()`, which must be equal on all ranks, and `check()`. Ranks compare the orders of all
/// epochs. Where `static constexpr bool is_pure(std::type_identity<S>)` says that the order depends on nothing else
/// (the argument names the sampler itself: one that derives from it has an order of its own), they do so once for a
/// set.
template <class S>
concept Sampler = requires(const S& sampler, std::uint64_t n, std::uint64_t epoch, std::uint64_t seed,
                           std::span<std::uint64_t> out) {
    sampler.order(n, epoch, seed, out);
};

/// Whether a sampler says that its order depends on nothing but its arguments.
template <class S>
inline constexpr bool is_pure = false;
template <class S>
    requires requires { S::is_pure(std::type_identity<S>{}); }
inline constexpr bool is_pure<S> = S::is_pure(std::type_identity<S>{});

/// What a training sample may depend on besides its number: never a rank, a thread or what was read before.
struct reading {
    std::uint64_t seed = 1;   ///< of the plan
    std::uint64_t epoch = 0;  ///< from 0
    std::uint32_t place = 0;  ///< how many augmentations of outer data sets follow: two of a kind draw apart
};

/// A Dataset whose samples differ from epoch to epoch in training: `read(rows, x, y, reading)` is what fit() calls, and
/// a pure function of (number, seed, epoch). `read(rows, x, y)` gives them unchanged, for evaluation.
template <class D, class T = float>
concept VaryingDataset = Dataset<D, T> &&
    requires(const D& set, std::span<const std::uint64_t> rows, tensor::batch<T, typename D::sample> x,
             std::span<tensor::label_element<typename D::label, T>> y, const reading& key) {
    set.read(rows, x, y, key);
};

/// A data set for networks that compute in float, in double or in either.
template <class D>
concept AnyDataset = Dataset<D, float> || Dataset<D, double>;

/// Whether there is a read() of four arguments, be it one that training cannot call.
template <class D, class T>
inline constexpr bool has_reading = requires(D& set, std::span<const std::uint64_t> rows,
                                             tensor::batch<T, typename D::sample> x,
                                             std::span<tensor::label_element<typename D::label, T>> y, reading& key) {
    set.read(rows, x, y, key);
};
template <class D>
inline constexpr bool has_any_reading = has_reading<D, float> || has_reading<D, double>;

/// Whether a read() of four arguments is the one that is called: one that is not const, or of another precision, would
/// be passed over in silence.
template <class D, class T>
inline constexpr bool keeps_reading = VaryingDataset<D, T> || !has_any_reading<D>;

/// For data sets around a data set: whether a read() of four arguments can be called at all. Theirs is of the same
/// precisions, so keeps_reading says of them what it says of the set inside.
template <class D>
inline constexpr bool keeps_some_reading = VaryingDataset<D, float> || VaryingDataset<D, double> || !has_any_reading<D>;

/// The samples to train on in this epoch.
template <class D, class T>
void read_for_training(const D& set, std::span<const std::uint64_t> rows, tensor::batch<T, typename D::sample> x,
                       std::span<tensor::label_element<typename D::label, T>> y, [[maybe_unused]] const reading& key) {
    if constexpr (VaryingDataset<D, T>)
        set.read(rows, x, y, key);
    else
        set.read(rows, x, y);
}

/// One picture in the memory order of a sample. Extents are values: an augmentation is compiled once for each T.
template <class T>
struct picture {
    T* data = nullptr;         ///< rows x columns x channels numbers
    std::size_t rows = 0;      ///< pixels
    std::size_t columns = 0;   ///< pixels
    std::size_t channels = 0;  ///< numbers of a pixel, which lie side by side

    /// Numbers of a row.
    [[nodiscard]] constexpr std::size_t row_size() const noexcept { return columns * channels; }
    /// Its first number.
    [[nodiscard]] constexpr T* row(std::size_t number) const noexcept { return data + number * row_size(); }
};

/// The random words of one augmentation for one sample in one epoch. The first four cost one call of Philox, about 10
/// ns. Each augmentation of a chain has a series of its own, and the number of the sample is the index.
class draws {
public:
    /// For the sample of that number.
    draws(const reading& key, std::uint64_t sample) noexcept
        : stream_{key.seed, core::purpose::augmentation,
                  (key.place & 0xffU) | ((static_cast<std::uint32_t>(key.epoch >> 32) & 0xffffU) << 8),
                  static_cast<std::uint32_t>(key.epoch)},
          sample_{sample},
          first_{stream_.block(sample)} {}

    /// Any number of words, for up to 2^40 samples.
    [[nodiscard]] std::uint32_t word(std::uint64_t index) const noexcept {
        return index < 4 ? first_[index] : stream_.block(sample_ + (index / 4 << 40))[index % 4];
    }
    /// In 0 .. bound - 1, bias below bound / 2^32.
    [[nodiscard]] std::size_t below(std::uint32_t bound, std::uint64_t index) const noexcept {
        return static_cast<std::size_t>((std::uint64_t{word(index)} * bound) >> 32);
    }
    /// In [0, 1), a multiple of 2^-24.
    [[nodiscard]] float uniform(std::uint64_t index) const noexcept {
        return core::random_stream::to_uniform(word(index));
    }

private:
    core::random_stream stream_;
    std::uint64_t sample_;
    std::array<std::uint32_t, 4> first_;
};

/// Changes a picture in place: a pure function of the picture and its draws. Optional `check(rows, columns)` throws on
/// numbers that make no sense for pictures of this size.
template <class A, class T = float>
concept Augmentation = requires(const A& change, picture<T> of, const draws& random) {
    {std::string_view{A::name}};
    { change.settings() } -> std::convertible_to<std::string>;
    { change.apply(of, random) }
    noexcept;
};

/// What a data set calls itself in messages; "data set" where it does not say.
template <class D>
[[nodiscard]] std::string name_of(const D& set) {
    if constexpr (requires {
                      { set.name() } -> std::convertible_to<std::string>;
                  })
        return set.name();
    else
        return "data set";
}

/// What a data set has to say against its own numbers.
template <class D>
void check_set(const D& set) {
    core::check_inner_part(set);
}
/// A pixel is read as (pixel - mean) / deviation.
template <class D>
void check_scaling(const D& set, float mean, float deviation) {
    if (!(std::isfinite(mean) && std::isfinite(deviation) && deviation > 0))
        core::fail(core::text(name_of(set), " has the mean ", mean, " and the deviation ", deviation),
                   "give it a finite mean, and a finite deviation above 0: 0 and 1 change nothing");
}

/// The check at the start of a read(): buffers as long as the list of rows, and rows that exist. Throws core::error.
/// Cost: one comparison per row.
template <class D, class T>
void require_readable(const D& set, std::span<const std::uint64_t> rows, tensor::batch<T, typename D::sample> x,
                      std::span<tensor::label_element<typename D::label, T>> y) {
    constexpr std::size_t per_label = tensor::label_size<typename D::label>;
    if (x.rows != rows.size() || y.size() != rows.size() * per_label)
        core::fail(core::text(name_of(set), ": ", rows.size(), " samples were asked for, with room for ", x.rows,
                              " samples and ", y.size(), " label elements"),
                   core::text("pass x with ", rows.size(), " rows and y with ", rows.size() * per_label, " elements"));
    for (const std::uint64_t row : rows)
        if (row >= set.size())
            core::fail(core::text(name_of(set), ": sample ", row, " of ", set.size(), " was asked for"),
                       "number samples from 0 to size() - 1");
}

}  // namespace lockstep::data
