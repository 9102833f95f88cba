// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// CIFAR-10 (Krizhevsky 2009): 50,000 + 10,000 photographs of 32x32 pixels in ten classes; a model of Dataset.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/data/gzip.hpp"
#include "lockstep/data/normalised.hpp"

namespace lockstep::data {

/// The published split of a data set.
enum class part { training, test };

/// The binary version, unpacked: `cifar10{"cifar-10-batches-bin", part::training}` reads data_batch_1.bin to
/// data_batch_5.bin there, `part::test` test_batch.bin; files may be packed by gzip (`.bin.gz`), and the folder may be
/// the one that holds cifar-10-batches-bin. A picture is 1 byte of label and 1,024 bytes each of red, green and blue;
/// samples are rows x columns x channels. Pixels are (byte / 255 - mean) / deviation of their channel: those of the
/// training set, members to change. `count` reads the first pictures only. Copies share the bytes, 3,073 for each
/// picture. Throws core::error at construction for whatever is wrong with the files.
class cifar10 {
public:
    using sample = tensor::shape<32, 32, 3>;
    using label = tensor::classes<10>;
    static constexpr std::size_t everything = std::numeric_limits<std::size_t>::max();
    /// Of one file, which has no header that tells: as many as the whole data set has.
    static constexpr std::size_t most_pictures = 60'000;

    std::array<float, 3> mean{0.4914F, 0.4822F, 0.4465F};
    std::array<float, 3> deviation{0.2470F, 0.2435F, 0.2616F};

    explicit cifar10(const std::string& folder, part which, std::size_t count = everything);

    [[nodiscard]] std::size_t size() const noexcept { return contents_->labels.size(); }
    [[nodiscard]] std::string name() const { return name_; }
    [[nodiscard]] std::string settings() const {
        return core::text(channel_statistics<3>{mean, deviation}.settings(),
                          " bytes=", core::hexadecimal(contents_->hash));
    }
    void check() const { channel_statistics<3>{mean, deviation}.check(); }

    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y) const {
        require_readable(*this, rows, x, y);
        const channel_scaling to_numbers{channel_statistics<3>{mean, deviation}, T{255}};
        for (std::size_t i = 0; i < rows.size(); ++i) {
            to_numbers(contents_->pixels.data() + rows[i] * sample::size, x.data + i * sample::size, pixels);
            y[i] = contents_->labels[rows[i]];
        }
    }

private:
    static constexpr std::size_t pixels = 32 * 32, record = 1 + sample::size;
    static constexpr const char* published = "/cifar-10-batches-bin";

    struct contents {
        std::vector<std::uint8_t> pixels;  // in the order of a sample
        std::vector<std::uint8_t> labels;
        std::uint64_t hash = 0;  // of both
    };

    [[nodiscard]] static bool exists(const std::string& folder, part which);

    /// The pictures of one file after those that are there, until there are `count`.
    static void append(const std::string& prefix, std::size_t count, contents& to);

    std::string name_;
    std::shared_ptr<const contents> contents_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION cifar10::cifar10(const std::string& folder, part which, std::size_t count)
    : name_{core::text("CIFAR-10 ", which == part::training ? "training" : "test", " set in \"", folder, "\"")} {
    contents read;
    const std::string inside = core::text(folder, "/", which == part::training ? "data_batch_1" : "test_batch", ".bin");
    const std::string root = exists(folder, which) || !exists(folder + published, which) ? folder : folder + published;
    if (which == part::test)
        append(root + "/test_batch", count, read);
    else
        for (int batch = 1; batch <= 5 && read.labels.size() < count; ++batch)
            append(core::text(root, "/data_batch_", batch), count, read);
    if (count != everything && read.labels.size() != count)
        core::fail(core::text(name_, ": ", count, " pictures were asked for, the files hold ", read.labels.size()),
                   "ask for fewer, or leave the count away to have them all");
    read.hash = core::hash(std::as_bytes(std::span{read.labels}), core::hash(std::as_bytes(std::span{read.pixels})));
    contents_ = std::make_shared<const contents>(std::move(read));
}

LOCKSTEP_FUNCTION bool cifar10::exists(const std::string& folder, part which) {
    const std::string first = folder + (which == part::training ? "/data_batch_1.bin" : "/test_batch.bin");
    return why_unreadable(first).empty() || why_unreadable(first + ".gz").empty();
}

LOCKSTEP_FUNCTION void cifar10::append(const std::string& prefix, std::size_t count, contents& to) {
    const std::string path = find_packed(prefix, ".bin",
                                         "unpack the binary version of CIFAR-10 (cifar-10-binary.tar.gz from "
                                         "www.cs.toronto.edu/~kriz/cifar.html) with tar -xzf, and "
                                         "pass the folder cifar-10-batches-bin");
    packed_file file{path};
    const std::vector<std::byte> bytes = file.read_up_to(most_pictures * record);
    if (std::byte further[1]; file.read(further) > 0)
        core::fail(core::text("\"", path, "\" has ", file.length(), " bytes, too many: the most are ",
                              most_pictures * record, ", ", most_pictures, " pictures"),
                   "fetch or copy the file again: the published ones have 30730000 bytes once unpacked");
    if (bytes.empty() || bytes.size() % record != 0)
        core::fail(core::text("\"", path, "\" has ", bytes.size(), " bytes, ",
                              bytes.empty() ? "no picture" : "no whole number of pictures", " of ", record, " bytes"),
                   "fetch or copy the file again: the published ones have 30730000 bytes once unpacked");
    const std::size_t pictures = std::min(bytes.size() / record, count - to.labels.size());
    const std::size_t all = (to.labels.size() + pictures) * record;
    core::with_memory("the pictures of CIFAR-10", all, "use a machine with more memory, or ask for fewer pictures",
                      [&] {
                          to.labels.reserve(to.labels.size() + pictures);
                          to.pixels.reserve(to.pixels.size() + pictures * sample::size);
                      });
    for (std::size_t at = 0; at < pictures * record; at += record) {
        const auto label = std::to_integer<std::uint8_t>(bytes[at]);
        if (label >= label::count)
            core::fail(core::text("picture ", at / record, " of \"", path, "\" has the label ", +label,
                                  ", allowed are 0 to 9"),
                       "pass the binary version of CIFAR-10 (other data sets have other layouts), or correct the file");
        to.labels.push_back(label);
        const std::byte* red = bytes.data() + at + 1;
        const std::size_t begin = to.pixels.size();
        to.pixels.resize(begin + sample::size);
        for (std::size_t pixel = 0; pixel < pixels; ++pixel)
            for (std::size_t channel = 0; channel < 3; ++channel)
                to.pixels[begin + 3 * pixel + channel] = std::to_integer<std::uint8_t>(red[channel * pixels + pixel]);
    }
}

#endif

}  // namespace lockstep::data
