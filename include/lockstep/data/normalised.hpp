// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A data set of pictures with every channel moved to mean 0 and deviation 1, in training and evaluation alike; a model
// of Dataset.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"

namespace lockstep::data {

/// Of each channel, over all pixels of all pictures.
template <std::size_t Channels>
struct channel_statistics {
    std::array<float, Channels> mean{};
    std::array<float, Channels> deviation = ones();

    static constexpr std::array<float, Channels> ones() noexcept {
        std::array<float, Channels> out{};
        out.fill(1);
        return out;
    }
    [[nodiscard]] std::string settings() const {
        std::string out = "mean=";
        for (const float& one : mean) out += core::text(&one == mean.data() ? "" : ",", one);
        out += " deviation=";
        for (const float& one : deviation) out += core::text(&one == deviation.data() ? "" : ",", one);
        return out;
    }
    void check() const {
        for (std::size_t c = 0; c < Channels; ++c)
            if (!(deviation[c] > 0 && std::isfinite(deviation[c]) && std::isfinite(mean[c])))
                core::fail(core::text("channel ", c, " has the mean ", mean[c], " and the deviation ", deviation[c]),
                           "give every channel a finite mean and deviation, which is above 0: 1 changes nothing");
    }
};

/// y = (x - mean) / (unit deviation) of the channel, as one product and one difference: for x in 0 .. unit.
template <std::size_t Channels, class T>
class channel_scaling {
public:
    channel_scaling(const channel_statistics<Channels>& of, T unit) noexcept {
        for (std::size_t i = 0; i < block; ++i) {
            const T deviation = static_cast<T>(of.deviation[i % Channels]);
            scale_[i] = T{1} / (unit * deviation);
            shift_[i] = static_cast<T>(of.mean[i % Channels]) / deviation;
        }
    }

    /// Bytes to numbers.
    void operator()(const std::uint8_t* x, T* __restrict y, std::size_t pixels) const noexcept {
        for (; pixels >= 32; pixels -= 32, x += block, y += block) part(x, y, block);
        part(x, y, pixels * Channels);
    }
    /// In place.
    void operator()(T* __restrict y, std::size_t pixels) const noexcept {
        for (; pixels >= 32; pixels -= 32, y += block) part(y, block);
        part(y, pixels * Channels);
    }

private:
    /// 32 pixels are a whole number of vectors, whatever the channels.
    static constexpr std::size_t block = 32 * Channels;

    void part(const std::uint8_t* x, T* __restrict y, std::size_t count) const noexcept {
        for (std::size_t i = 0; i < count; ++i) {
            const std::int32_t wide = x[i];  // compilers have vectors for bytes to words and words to numbers
            y[i] = static_cast<T>(wide) * scale_[i] - shift_[i];
        }
    }
    void part(T* __restrict y, std::size_t count) const noexcept {
        for (std::size_t i = 0; i < count; ++i) y[i] = y[i] * scale_[i] - shift_[i];
    }

    std::array<T, block> scale_, shift_;
};

/// `normalised{set, {.mean = {0.5F, 0.5F, 0.5F}, .deviation = {0.2F, 0.2F, 0.2F}}}`: pictures of `set`, each number
/// replaced by (x - mean) / deviation of its channel. Inside or around `augmented`; inside, what augmentations fill
/// with zeros has the mean colour.
template <AnyDataset Set>
class normalised {
    static_assert(tensor::ImageShape<typename Set::sample>,
                  "lockstep: pictures are normalised by channel: rows x columns x channels");
    static_assert(keeps_some_reading<Set>,
                  "lockstep: read(rows, x, y, reading) of a data set is const and takes a const data::reading&, with x "
                  "and y of the types that read(rows, x, y) takes");

public:
    using sample = typename Set::sample;
    using label = typename Set::label;
    using statistics = channel_statistics<sample::extents.back()>;

    /// Throws core::error for a deviation that is not above 0.
    normalised(const Set& set, const channel_statistics<Set::sample::extents.back()>& of) : set_{set}, of_{of} {
        of.check();
    }

    [[nodiscard]] std::size_t size() const noexcept { return set_.size(); }
    [[nodiscard]] std::string name() const { return name_of(set_); }
    void check() const { check_set(set_); }
    [[nodiscard]] std::string settings() const {
        std::string out;
        if constexpr (requires { std::string{set_.settings()}; }) out = core::text(std::string{set_.settings()}, " ");
        return out + "normalised " + of_.settings();
    }

    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y) const requires Dataset<Set, T> {
        set_.read(rows, x, y);
        channel_scaling{of_, T{1}}(x.data, x.rows * sample::size / sample::extents.back());
    }
    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y, const reading& key) const requires VaryingDataset<Set, T> {
        set_.read(rows, x, y, key);
        channel_scaling{of_, T{1}}(x.data, x.rows * sample::size / sample::extents.back());
    }

private:
    Set set_;
    statistics of_;
};

}  // namespace lockstep::data
