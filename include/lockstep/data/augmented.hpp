// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A data set of pictures that are changed at random whenever fit() reads them; a model of VaryingDataset.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"

namespace lockstep::data {

/// Whether pictures of T are read from the set and changed by all of these.
template <class T, class Set, class... Augmentations>
inline constexpr bool can_augment_as = Dataset<Set, T>&& keeps_reading<Set, T> &&
                                       (Augmentation<Augmentations, T> && ...);
template <class Set, class... Augmentations>
inline constexpr bool can_augment =
    can_augment_as<float, Set, Augmentations...> || can_augment_as<double, Set, Augmentations...>;
template <class Set>
inline constexpr bool has_pictures = tensor::ImageShape<typename Set::sample>;

/// `augmented{set, pad_crop{}, flip{}, cutout{}}`: fit() reads the pictures of `set` with all changes, in this order;
/// evaluate() reads them as they are. A training picture is a pure function of (its number, seed of the plan, epoch).
/// Keeps a copy of `set`, which for the data sets of this folder shares the samples. Cost: the changes, each on a
/// picture that is still in the nearest cache.
template <AnyDataset Set, class... Augmentations>
class augmented {
    static_assert(keeps_some_reading<Set>,
                  "lockstep: read(rows, x, y, reading) of a data set is const and takes a const data::reading&, with x "
                  "and y of the types that read(rows, x, y) takes");
    static_assert(can_augment<Set, Augmentations...> || !keeps_some_reading<Set>,
                  "lockstep: an augmentation has name, settings() and a noexcept apply(picture, draws), for pictures "
                  "of the numbers that the data set reads");
    static_assert(has_pictures<Set>, "lockstep: pictures are augmented: samples of rows x columns x channels");

public:
    using sample = typename Set::sample;
    using label = typename Set::label;

    /// Throws core::error for numbers that make no sense for these pictures.
    explicit augmented(const Set& set, const Augmentations&... changes) : set_{set}, changes_{changes...} {
        const auto check = []<class Change>(const Change& change) {
            constexpr bool looks = requires { change.check(std::size_t{}, std::size_t{}); };
            static_assert(
                looks || !requires(Change & one) { one.check(std::size_t{}, std::size_t{}); },
                "lockstep: the check(rows, columns) of an augmentation is const");
            if constexpr (looks) change.check(rows_of_one(), columns_of_one());
        };
        (check(changes), ...);
    }

    [[nodiscard]] std::size_t size() const noexcept { return set_.size(); }
    [[nodiscard]] std::string name() const { return name_of(set_); }
    void check() const { check_set(set_); }
    [[nodiscard]] std::string settings() const {
        std::string out;
        if constexpr (requires { std::string{set_.settings()}; }) out = set_.settings();
        core::for_each_index<sizeof...(Augmentations)>([&](auto index) {
            const auto& change = core::get<index>(changes_);
            out += core::text(out.empty() ? "" : " ", std::string_view{change.name}, "(",
                              std::string{change.settings()}, ")");
        });
        return out;
    }

    /// The pictures as they are.
    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y) const requires Dataset<Set, T> {
        set_.read(rows, x, y);
    }

    /// The pictures of this epoch.
    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y,
              const reading& key) const requires can_augment_as<T, Set, Augmentations...> {
        require_readable(*this, rows, x, y);
        constexpr std::size_t labels = tensor::label_size<label>, count = sizeof...(Augmentations);
        const reading inner{key.seed, key.epoch, key.place + static_cast<std::uint32_t>(count)};
        for (std::size_t at = 0; at < rows.size();) {
            const std::size_t here = std::min(block<T>, rows.size() - at);
            read_for_training<Set, T>(set_, rows.subspan(at, here), x.part(at, here),
                                      y.subspan(at * labels, here * labels), inner);
            for (const std::size_t end = at + here; at < end; ++at) {
                const picture<T> one{x.sample(at).data(), rows_of_one(), columns_of_one(), sample::extents[2]};
                core::for_each_index<count>([&](auto index) {
                    const reading mine{key.seed, key.epoch, key.place + static_cast<std::uint32_t>(index)};
                    core::get<index>(changes_).apply(one, draws{mine, rows[at]});
                });
            }
        }
    }

private:
    /// Pictures that are read together: what a core's own cache holds.
    template <class T>
    static constexpr std::size_t block = std::max<std::size_t>(1, 65'536 / (sample::size * sizeof(T)));
    static constexpr std::size_t rows_of_one() noexcept { return sample::extents[0]; }
    static constexpr std::size_t columns_of_one() noexcept { return sample::extents[1]; }

    Set set_;
    core::pack<Augmentations...> changes_;
};

template <class Set, class... Augmentations>
augmented(const Set&, const Augmentations&...) -> augmented<Set, Augmentations...>;

}  // namespace lockstep::data
