// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Samples and labels in two .npy files that stay on the disk and may be larger than memory; a model of Dataset.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/files/npy.hpp"
#include "lockstep/tensor/container.hpp"

namespace lockstep::data {

/// An .npy file of n samples. Throws core::error unless its shape is n x `sample`, extents of 1 aside.
[[nodiscard, gnu::cold]] files::npy_file open_samples(const std::string& path, std::span<const std::size_t> sample,
                                                      std::string_view what);

/// Checks that each number of a file of class labels is below `classes`, and returns their hash. Throws core::error for
/// a file of fractions, and for the first label out of range.
[[nodiscard, gnu::cold]] std::uint64_t check_labels(const files::npy_file& labels, std::size_t classes);

/// `mapped_npy<tensor::shape<32, 32, 3>, tensor::classes<10>>{"x.npy", "y.npy"}`: x is n x 32 x 32 x 3, y has n whole
/// numbers (or n rows of a label that is a shape), of any type of number that .npy has; they are read as they are,
/// rounded to the type of the network. What is read stays in the page cache while there is room, once for all ranks of
/// a host. Class labels are read and checked at construction. Copies share the map. The files may not change
/// meanwhile (files/mapped_file.hpp), and are the same for all ranks: of samples only some are compared. Cost of a read
/// in the page cache: that of a copy; `plan::prefetch` hides the disk.
template <tensor::Shape Sample, tensor::Label Label>
class mapped_npy {
public:
    using sample = Sample;
    using label = Label;

    mapped_npy(const std::string& x, const std::string& y) : files_{std::make_shared<const pair>(x, y)} {
        const std::size_t samples = files_->x.shape()[0], labels = files_->y.shape()[0];
        if (samples != labels)
            core::fail(core::text("\"", x, "\" has ", samples, " samples, but \"", y, "\" has ", labels, " labels"),
                       "pass two files of the same part: both of the training set, or both of the test set");
    }

    [[nodiscard]] std::size_t size() const noexcept { return files_->x.shape()[0]; }
    [[nodiscard]] std::string name() const { return core::text("\"", files_->x.path(), "\""); }
    [[nodiscard]] std::string settings() const {
        return core::text(files::shape_text(files_->x.shape()), " ", files::name_of(files_->x.type()), ", labels ",
                          files::name_of(files_->y.type()), " ", core::hexadecimal(files_->labels_hash));
    }

    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y) const {
        require_readable(*this, rows, x, y);
        if (files_->is_larger_than_memory)  // the disk works on all of them at once
            for (const std::uint64_t row : rows) files_->x.read_ahead(row * Sample::size, Sample::size);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            files_->x.read(rows[i] * Sample::size, std::span<T>{x.sample(i)});
            files_->y.read(rows[i] * per_label, y.subspan(i * per_label, per_label));
        }
    }

private:
    static constexpr std::size_t per_label = tensor::label_size<label>;

    struct pair {
        files::npy_file x, y;
        std::uint64_t labels_hash = 0;
        bool is_larger_than_memory = false;

        pair(const std::string& of_x, const std::string& of_y)
            : x{open_samples(of_x, Sample::extents, "samples")}, y{open_samples(of_y, label_extents(), "labels")} {
            if constexpr (tensor::is_classes<label>) labels_hash = check_labels(y, label::count);
            // Below half of the memory the page cache keeps all of it, and the hints would only cost time.
            const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
            is_larger_than_memory = x.bytes().size() / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) > pages / 2;
            if (is_larger_than_memory) x.expect_random_reads();
        }
    };
    static constexpr std::span<const std::size_t> label_extents() noexcept {
        if constexpr (tensor::is_classes<label>)
            return {};
        else
            return label::extents;
    }

    std::shared_ptr<const pair> files_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION files::npy_file open_samples(const std::string& path, std::span<const std::size_t> sample,
                                               std::string_view what) {
    files::npy_file out{path};
    if (!tensor::detail::same_but_for_ones(out.shape(), sample)) {
        std::string wanted = "n";
        for (const std::size_t extent : sample) wanted += core::text("x", extent);
        core::fail(core::text("\"", path, "\" has the shape ", files::shape_text(out.shape()), ", expected ", wanted,
                              " (", what, ")"),
                   "reshape the array, or declare another shape of the data set");
    }
    return out;
}

LOCKSTEP_FUNCTION std::uint64_t check_labels(const files::npy_file& labels, std::size_t classes) {
    if (!files::about(labels.type()).is_whole)
        core::fail(core::text("\"", labels.path(), "\" holds ", files::name_of(labels.type()),
                              " numbers, class labels are whole numbers"),
                   "store them as numpy.save(path, y.astype('<i4')), or declare the label as a shape");
    // Labels are a small part of the data: all of them are read once, so that no step finds one that is wrong.
    std::array<std::int64_t, 1024> part;
    std::uint64_t hash = 0;
    for (std::size_t at = 0; at < labels.count(); at += part.size()) {
        const std::span numbers{part.data(), std::min(part.size(), labels.count() - at)};
        labels.read<std::int64_t>(at, numbers);
        for (std::size_t i = 0; i < numbers.size(); ++i)
            if (numbers[i] < 0 || std::cmp_greater_equal(numbers[i], classes)) {
                const auto fail = [&](auto found) {
                    core::fail(core::text("label ", at + i, " of \"", labels.path(), "\" is ", found,
                                          ", allowed are 0 to ", classes - 1),
                               tensor::label_remedy(found, classes,
                                                    "declare the data set with more classes, or correct the file"));
                };
                if (labels.type() == files::dtype::u64) fail(static_cast<std::uint64_t>(numbers[i]));
                fail(numbers[i]);
            }
        hash = core::hash(std::as_bytes(numbers), hash);
    }
    return hash;
}

#endif

}  // namespace lockstep::data
