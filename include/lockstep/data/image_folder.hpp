// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Pictures in a folder for each class, read from their files whenever they are asked for; a model of Dataset.

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/data/normalised.hpp"
#include "lockstep/files/image.hpp"

namespace lockstep::data {

struct image_folder_options {
    std::vector<files::image_decoder> decoders{files::netpbm()};
    bool check_sizes = true;  ///< of all pictures at construction, about 10 us each; otherwise when they are read
    /// The names of the classes 0, 1, ..; empty: those of the folders, in the order of their names as bytes. Each
    /// folder has to be one of them, and a class may have none. For a test set: `training.class_names()`.
    std::vector<std::string> classes{};
};

/// The pictures below a folder, by class and path.
class image_list {
public:
    /// Folders inside of each other.
    static constexpr int most_levels = 16;

    image_list(std::string folder, std::size_t classes, files::image_size size, image_folder_options options);

    [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
    [[nodiscard]] const std::vector<std::string>& classes() const noexcept { return classes_; }
    [[nodiscard]] std::size_t size() const noexcept { return pictures_.size(); }
    /// Of all names and their order.
    [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
    [[nodiscard]] std::string path(std::size_t number) const {
        return core::text(folder_, "/", classes_[pictures_[number].of_class], "/", pictures_[number].path);
    }
    [[nodiscard]] std::int32_t class_of(std::size_t number) const noexcept {
        return static_cast<std::int32_t>(pictures_[number].of_class);
    }
    /// The pixels of a picture; `file` is room that is used again.
    void read(std::size_t number, std::vector<std::byte>& file, std::span<std::uint8_t> pixels) const;

private:
    struct picture_file {
        std::uint32_t of_class;
        std::uint32_t decoder;
        std::string path;  // in the folder of the class
    };

    /// The names of the classes, from the folders and the options. Returns which of them have a folder.
    [[nodiscard]] std::vector<bool> name_classes(std::size_t classes);
    /// The pictures in a folder of a class, `inside` of it.
    void add(std::uint32_t of_class, const std::string& inside, int levels);
    /// From the first 4 KiB of each file, or from more where these do not tell it, up to 1 MiB: a JPEG file may begin
    /// with a profile or a preview.
    void check_sizes() const;

    std::string folder_;
    files::image_size expected_;
    image_folder_options options_;
    std::vector<std::string> classes_;
    std::vector<picture_file> pictures_;
    std::uint64_t hash_ = 0;
};

/// `image_folder<tensor::shape<32, 32, 3>, tensor::classes<10>>{"photographs"}`: photographs/cat/1.ppm and so on. Each
/// folder inside is a class, numbered in the order of their names as bytes, or as in `.classes`; each file below it,
/// also in further folders, is a picture of the class, in the order of paths as bytes: the same list on every rank,
/// which ranks compare. A test set with `{.classes = training.class_names()}` has the numbers of the training set, also
/// where it lacks a class; without, other folders have other numbers. Names that begin with a dot, and files beside the
/// folders of classes, are left out; any other file that no decoder reads is an error. Pixels are (byte / 255 - mean) /
/// deviation, members for each channel. Nothing is kept in memory but the names. Cost of a picture: a file that is
/// opened and read, about 10 us from the page cache, and decoded. Throws core::error at construction and in read().
template <tensor::Shape Sample, tensor::Label Label>
class image_folder {
    static_assert(tensor::ImageShape<Sample> && tensor::is_classes<Label>,
                  "lockstep: a folder of images has samples of rows x columns x channels, and classes");

public:
    using sample = Sample;
    using label = Label;
    static constexpr files::image_size picture_size = [] {
        if constexpr (tensor::ImageShape<Sample>)
            return files::image_size{Sample::extents[0], Sample::extents[1], Sample::extents[2]};
        return files::image_size{1, 1, 1};  // refused above
    }();

    std::array<float, picture_size.channels> mean{};
    std::array<float, picture_size.channels> deviation = statistics::ones();

    explicit image_folder(const std::string& folder, const image_folder_options& options = {})
        : all_{std::make_shared<const image_list>(folder, class_count(), picture_size, options)} {}

    [[nodiscard]] std::size_t size() const noexcept { return all_->size(); }
    [[nodiscard]] std::string name() const { return core::text("images in \"", all_->folder(), "\""); }
    [[nodiscard]] std::string settings() const {
        return core::text(statistics{mean, deviation}.settings(), " files=", core::hexadecimal(all_->hash()));
    }
    void check() const { statistics{mean, deviation}.check(); }
    /// The names of the classes 0, 1, ..
    [[nodiscard]] const std::vector<std::string>& class_names() const noexcept { return all_->classes(); }
    /// The file of a sample.
    [[nodiscard]] std::string path(std::size_t number) const { return all_->path(number); }

    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y) const {
        require_readable(*this, rows, x, y);
        const channel_scaling to_numbers{statistics{mean, deviation}, T{255}};
        std::vector<std::byte> file;
        std::vector<std::uint8_t> pixels(sample::size);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            all_->read(rows[i], file, pixels);
            to_numbers(pixels.data(), x.data + i * sample::size, picture_size.rows * picture_size.columns);
            y[i] = all_->class_of(rows[i]);
        }
    }

private:
    static constexpr std::size_t class_count() noexcept {
        if constexpr (tensor::is_classes<label>) return label::count;
        return 1;  // refused above
    }
    using statistics = channel_statistics<picture_size.channels>;

    std::shared_ptr<const image_list> all_;
};

#if LOCKSTEP_BODIES

namespace detail {

/// Names in a folder as bytes, without those that begin with a dot.
[[nodiscard]] LOCKSTEP_FUNCTION std::vector<std::string> names_in(const std::string& folder) {
    const std::unique_ptr<DIR, int (*)(DIR*)> open{::opendir(folder.c_str()), ::closedir};
    const auto fail = [&] {
        core::fail(core::text("cannot read the folder \"", folder, "\": ", std::generic_category().message(errno)),
                   "pass a folder that has a folder of pictures for each class");
    };
    if (!open) fail();
    std::vector<std::string> out;
    for (;;) {
        errno = 0;
        const dirent* const entry = ::readdir(open.get());
        if (entry == nullptr && errno != 0) fail();
        if (entry == nullptr) break;
        if (entry->d_name[0] != '.') out.emplace_back(entry->d_name);
    }
    core::sort(out, [](const std::string& a, const std::string& b) { return a < b; });
    return out;
}

/// Links are followed.
[[nodiscard]] LOCKSTEP_FUNCTION bool is_folder(const std::string& path) noexcept {
    struct stat about {};
    return ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

/// In small or capital letters of ASCII.
[[nodiscard]] LOCKSTEP_FUNCTION bool has_ending(std::string_view name, std::string_view ending) noexcept {
    if (name.size() < ending.size()) return false;
    name.remove_prefix(name.size() - ending.size());
    return std::equal(name.begin(), name.end(), ending.begin(), [](char a, char b) {
        return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
    });
}

}  // namespace detail

LOCKSTEP_FUNCTION image_list::image_list(std::string folder, std::size_t classes, files::image_size size,
                                         image_folder_options options)
    : folder_{std::move(folder)}, expected_{size}, options_{std::move(options)} {
    const std::vector<bool> has_folder = name_classes(classes);
    for (std::uint32_t c = 0; c < classes_.size(); ++c) {
        if (!has_folder[c]) continue;
        const std::size_t before = pictures_.size();
        add(c, "", 0);
        if (pictures_.size() == before)
            core::fail(core::text("\"", folder_, "/", classes_[c], "\" has no pictures"),
                       "add some, or remove the folder");
    }
    // Whole paths as bytes: neither the locale nor the order in which the system names files matters.
    core::sort(pictures_, [](const picture_file& a, const picture_file& b) {
        return a.of_class != b.of_class ? a.of_class < b.of_class : a.path < b.path;
    });
    for (const std::string& name : classes_) hash_ = core::hash(name, hash_);
    for (const picture_file& one : pictures_) hash_ = core::hash(one.path, hash_ + one.of_class);
    if (options_.check_sizes) check_sizes();
}

LOCKSTEP_FUNCTION std::vector<bool> image_list::name_classes(std::size_t classes) {
    std::vector<std::string> folders;
    for (std::string& name : detail::names_in(folder_))
        if (detail::is_folder(core::text(folder_, "/", name))) folders.push_back(std::move(name));
    const auto list = [](const std::vector<std::string>& names) {
        std::string out;
        for (std::size_t i = 0; i < names.size() && out.size() < 1000; ++i)
            out += core::text(i == 0 ? ": " : ", ", names[i]);
        return out;
    };
    if (options_.classes.empty()) {
        if (folders.size() != classes)
            core::fail(core::text("\"", folder_, "\" has ", folders.size(),
                                  " folders of classes, the data set is declared with ", classes, list(folders)),
                       "declare as many classes as there are folders; for a test set that lacks some, set .classes to "
                       "the class_names() of the training set");
        classes_ = std::move(folders);
        return std::vector<bool>(classes, true);
    }
    classes_ = options_.classes;
    if (classes_.size() != classes)
        core::fail(core::text("\"", folder_, "\" was to be read with ", classes_.size(),
                              " names of classes, its label has ", classes, " classes"),
                   "name each class of tensor::classes once");
    using numbered = std::pair<std::string_view, std::size_t>;
    std::vector<numbered> sorted;
    for (std::size_t i = 0; i < classes; ++i) sorted.emplace_back(classes_[i], i);
    core::sort(sorted, [](const numbered& a, const numbered& b) { return a < b; });
    for (std::size_t i = 1; i < classes; ++i)
        if (sorted[i].first == sorted[i - 1].first)
            core::fail(core::text("\"", folder_, "\" was to be read with classes ", sorted[i - 1].second, " and ",
                                  sorted[i].second, " of one name, \"", sorted[i].first, "\""),
                       "name each class of tensor::classes once");
    std::vector<bool> out(classes);
    for (const std::string& name : folders) {
        const auto found = std::lower_bound(sorted.begin(), sorted.end(), numbered{name, 0});
        if (found == sorted.end() || found->first != name)
            core::fail(core::text("\"", folder_, "/", name, "\" is none of the ", classes, " classes in .classes",
                                  list(classes_)),
                       "name it there, or remove the folder");
        out[found->second] = true;
    }
    if (folders.empty())
        core::fail(core::text("\"", folder_, "\" has none of the ", classes, " classes in .classes", list(classes_)),
                   "pass a folder that has a folder of pictures for each class");
    return out;
}

LOCKSTEP_FUNCTION void image_list::add(std::uint32_t of_class, const std::string& inside, int levels) {
    const std::string root = core::text(folder_, "/", classes_[of_class], "/");
    if (levels == most_levels)
        core::fail(core::text("\"", root, inside, "\" lies ", levels, " folders deep, the most"),
                   "look for a link that leads back");
    for (const std::string& name : detail::names_in(root + inside)) {
        const std::string path = inside + name;
        if (detail::is_folder(root + path)) {
            add(of_class, path + "/", levels + 1);
            continue;
        }
        // The first decoder that claims the ending has the file.
        std::uint32_t which = 0;
        for (; which < options_.decoders.size(); ++which)
            if (std::ranges::any_of(options_.decoders[which].endings,
                                    [&](std::string_view ending) { return detail::has_ending(name, ending); }))
                break;
        if (which == options_.decoders.size()) {
            std::string known;
            for (const auto& one : options_.decoders)
                for (const std::string_view ending : one.endings)
                    known += core::text(known.empty() ? "" : ", ", ending);
            core::fail(core::text("\"", root, path, "\" is no picture that this data set reads (", known, ")"),
                       "remove it, or name a decoder of its format in .decoders");
        }
        pictures_.push_back({of_class, which, path});
    }
}

LOCKSTEP_FUNCTION void image_list::check_sizes() const {
    constexpr std::size_t usual = 4096, most = 1U << 20;
    std::vector<std::byte> begin;
    for (std::size_t i = 0; i < pictures_.size(); ++i) {
        const std::string where = path(i);
        core::input_file file{where};
        files::image_size found;
        for (std::size_t had = 0, room = usual;; room *= 4) {
            if (begin.size() < room) begin.resize(room);
            had += file.read(std::span{begin}.first(room).subspan(had));
            found = options_.decoders[pictures_[i].decoder].size(std::span{begin}.first(had), where);
            if (found.rows > 0 || had < room || room == most) break;
        }
        if (found.rows > 0) files::require_size(where, found, expected_);
    }
}

LOCKSTEP_FUNCTION void image_list::read(std::size_t number, std::vector<std::byte>& file,
                                        std::span<std::uint8_t> pixels) const {
    const std::string where = path(number);
    core::input_file from{where};
    // Beside pixels a file may hold a profile or a preview.
    constexpr std::uint64_t beside = 32'000'000;
    if (from.size() > 2 * pixels.size() + beside)
        core::fail(
            core::text("\"", where, "\" has ", from.size(), " bytes, too many for a picture of ", expected_.text()),
            "store it anew");
    core::with_memory(core::text("the picture \"", where, "\""), from.size(), "store it in fewer bytes",
                      [&] { file.resize(static_cast<std::size_t>(from.size())); });
    file.resize(from.read(file));  // it may have become shorter
    options_.decoders[pictures_[number].decoder].decode(file, where, expected_, pixels);
}

#endif

}  // namespace lockstep::data
