// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Numbers from a text file of lines and columns (CSV, RFC 4180); a model of Dataset.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/data/gzip.hpp"

namespace lockstep::data {

/// A column by its name in the first line, or by its number from 0.
struct csv_column {
    csv_column(const char* its_name) : name{its_name} {}
    csv_column(std::string its_name) : name{std::move(its_name)} {}
    csv_column(int its_number) : number{its_number}, by_name{false} {}

    std::string name;
    int number = 0;
    bool by_name = true;

    [[nodiscard]] std::string text() const { return by_name ? core::text("\"", name, "\"") : core::text(number); }
};

/// What a file does not say of itself.
struct csv_format {
    char separator = ',';
    bool header = true;                  ///< the first line has the names of the columns
    std::vector<csv_column> labels{};    ///< in the order of the label; empty: the last columns
    std::vector<csv_column> ignored{};   ///< columns that are not read
    std::vector<std::string> classes{};  ///< names of the classes 0, 1, ..; empty: the file has their numbers
};

/// The numbers of a file, line by line: those of the sample in the order of the file, and those of the label.
struct csv_contents {
    std::string path;
    std::vector<double> x, y;
    std::uint64_t hash = 0;    ///< of both
    std::string beyond_float;  ///< line and column of the first number that would be infinite as float; empty: none
};

/// Reads a file of `features` + `labels` columns and those that are ignored; `classes` 0: labels are any numbers.
[[nodiscard, gnu::cold]] csv_contents read_csv(const std::string& path, const csv_format& format, std::size_t features,
                                               std::size_t labels, std::size_t classes);

/// `csv<tensor::shape<4>, tensor::classes<3>>{"iris.csv", {.labels = {"species"}}}`: a sample in each line, plain or
/// packed by gzip. Fields may be quoted, and lines end with LF or CR LF; blanks around numbers and empty lines at the
/// end of the file are left out. All columns are read but the ignored ones. Copies share the numbers, 8 bytes each in
/// memory. Throws core::error at construction, with line and column, for missing values, what is no finite number,
/// lines of another number of columns, and class numbers out of range; reading as float throws the same for numbers
/// that float cannot hold. Cost: about 50 ns for each number.
template <tensor::Shape Sample, tensor::Label Label>
class csv {
public:
    using sample = Sample;
    using label = Label;

    explicit csv(const std::string& path, const csv_format& format = {})
        : all_{std::make_shared<const csv_contents>(read_csv(path, format, sample::size, per_label, class_count()))} {}

    [[nodiscard]] std::size_t size() const noexcept { return all_->y.size() / per_label; }
    [[nodiscard]] std::string name() const { return core::text("\"", all_->path, "\""); }
    [[nodiscard]] std::string settings() const { return core::text("numbers=", core::hexadecimal(all_->hash)); }

    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y) const {
        require_readable(*this, rows, x, y);
        if constexpr (std::is_same_v<T, float>)
            if (!all_->beyond_float.empty())
                core::fail(all_->beyond_float,
                           "correct or remove the line, ignore the column, or read it as double: a plan with "
                           ".precision = real<double>{}");
        const auto copy = []<class To>(const double* from, To* to, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
        };
        for (std::size_t i = 0; i < rows.size(); ++i) {
            copy(all_->x.data() + rows[i] * sample::size, x.data + i * sample::size, sample::size);
            copy(all_->y.data() + rows[i] * per_label, y.data() + i * per_label, per_label);
        }
    }

private:
    static constexpr std::size_t per_label = tensor::label_size<label>;
    static constexpr std::size_t class_count() noexcept {
        if constexpr (tensor::is_classes<label>) return label::count;
        return 0;
    }

    std::shared_ptr<const csv_contents> all_;
};

#if LOCKSTEP_BODIES

namespace detail {

/// Lines of fields. Memory is taken for one line of at most `most` fields.
class csv_lines {
public:
    static constexpr std::size_t longest_field = 65'536;

    csv_lines(const std::string& path, char separator, std::size_t most)
        : file_{path}, separator_{separator}, most_{most}, buffer_(65'536) {
        if (std::string_view{"\"\n\r+-.eE0123456789"}.find(separator) != std::string_view::npos)
            core::fail("a CSV file was to be read with a separator that ends lines, quotes fields or stands in numbers",
                       "separate columns by a comma, a semicolon or a tab");
        constexpr std::array mark_of_utf8{std::byte{0xef}, std::byte{0xbb}, std::byte{0xbf}};
        const bool has_mark =
            peek() != none && filled_ >= 3 && std::equal(mark_of_utf8.begin(), mark_of_utf8.end(), buffer_.begin());
        if (has_mark) at_ = mark_of_utf8.size();
    }

    /// The next line; false at the end of the file.
    bool next() {
        text_.clear();
        ends_.clear();
        count_ = 0;
        line_ = next_line_;
        if (peek() == none) return false;
        while (read_field()) {
        }
        return true;
    }
    /// Where the line begins, from 1: a quoted field may hold ends of lines.
    [[nodiscard]] std::size_t line() const noexcept { return line_; }
    /// All fields, also those after the first `most`.
    [[nodiscard]] std::size_t count() const noexcept { return count_; }
    [[nodiscard]] bool is_blank() const noexcept { return count_ == 1 && field(0).empty(); }
    [[nodiscard]] std::string_view field(std::size_t i) const noexcept {
        const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
        std::string_view out = std::string_view{text_}.substr(begin, ends_[i] - begin);
        while (!out.empty() && (out.front() == ' ' || out.front() == '\t')) out.remove_prefix(1);
        while (!out.empty() && (out.back() == ' ' || out.back() == '\t')) out.remove_suffix(1);
        return out;
    }
    [[nodiscard]] std::string located(std::string_view problem) const {
        return core::text("\"", file_.path(), "\", line ", line_, ": ", problem);
    }
    [[noreturn]] void fail(std::string_view problem, std::string_view remedy) const {
        core::fail(located(problem), remedy);
    }

private:
    static constexpr int none = -1;

    /// The next byte, which is not taken, or none. Read in pieces of 64 KiB: only the numbers are kept.
    int peek() {
        if (at_ == filled_) {
            at_ = 0;
            filled_ = file_.read(buffer_);
            if (filled_ == 0) return none;
        }
        return std::to_integer<int>(buffer_[at_]);
    }
    /// The same, taken; lines are counted here, also inside of quoted fields.
    int take() {
        const int out = peek();
        at_ += out == none ? 0 : 1;
        if (out == '\n') ++next_line_;
        return out;
    }
    /// A character of the field. A quotation mark that is never closed would take the rest of the file.
    void append(int character) {
        if (text_.size() - (ends_.empty() ? 0 : ends_.back()) == longest_field)
            fail(core::text("column ", count_, " is longer than ", longest_field, " bytes"),
                 "look for a quotation mark that is never closed");
        if (count_ < most_) text_ += static_cast<char>(character);
    }
    /// Whether another field follows in the line.
    bool read_field() {
        int character = take();
        if (character == '"') {
            // Up to a quotation mark that is not one of two; separators and ends of lines are characters here.
            for (;;) {
                character = take();
                if (character == none)
                    fail(core::text("column ", count_, " has a quotation mark that is never closed"), "close it");
                if (character == '"' && peek() != '"') break;
                if (character == '"') (void)take();
                append(character);
            }
            character = take();
            if (!ends_field(character))
                fail(core::text("column ", count_, " goes on after its closing quotation mark"),
                     "write a quotation mark inside of a quoted field twice");
        } else {
            for (; !ends_field(character); character = take()) {
                if (character == '"')
                    fail(core::text("column ", count_, " has a quotation mark inside"),
                         "put the whole field into quotation marks");
                append(character);
            }
        }
        if (character == '\r' && (character = take()) != '\n')
            fail("a carriage return (CR) without a line feed (LF)", "end lines with LF or CR LF");
        if (count_++ < most_) ends_.push_back(text_.size());
        return character == separator();
    }
    [[nodiscard]] bool ends_field(int character) const noexcept {
        return character == separator() || character == '\n' || character == '\r' || character == none;
    }
    [[nodiscard]] int separator() const noexcept { return static_cast<unsigned char>(separator_); }

    packed_file file_;
    char separator_;
    std::size_t most_;
    std::vector<std::byte> buffer_;
    std::size_t at_ = 0, filled_ = 0, line_ = 1, next_line_ = 1, count_ = 0;
    std::string text_;
    std::vector<std::size_t> ends_;
};

/// A finite number that fills the whole field.
[[nodiscard]] LOCKSTEP_FUNCTION bool csv_number(std::string_view field, double& out) noexcept {
    if (field.starts_with('+') && !field.starts_with("+-")) field.remove_prefix(1);
    return core::read_number(field, out) && std::isfinite(out);
}

class csv_reader {
public:
    csv_reader(const std::string& path, const csv_format& format, std::size_t features, std::size_t labels,
               std::size_t classes)
        : path_{path},
          format_{format},
          classes_{classes},
          columns_{features + labels + format.ignored.size()},
          features_{features},
          labels_{labels},
          lines_{path, format.separator, columns_} {}

    csv_contents run() {
        if (!format_.classes.empty() && format_.classes.size() != classes_)
            core::fail(core::text("\"", path_, "\" was to be read with ", format_.classes.size(),
                                  " names of classes, its label has ", classes_, " classes"),
                       "name each class of tensor::classes once");
        for (std::size_t i = 0; i < format_.classes.size(); ++i)
            for (std::size_t j = 0; j < i; ++j)
                if (format_.classes[i] == format_.classes[j])
                    core::fail(core::text("\"", path_, "\" was to be read with classes ", j, " and ", i,
                                          " of one name, \"", core::excerpt(format_.classes[i]), "\""),
                               "name each class of tensor::classes once");
        bool more = lines_.next();
        if (format_.header) {
            if (!more) lines_.fail("the line with the names of the columns is missing", "check the file");
            read_names();
        }
        choose_columns();
        if (format_.header) {
            require_names();
            more = lines_.next();
        }
        csv_contents out;
        out.path = path_;
        std::size_t blank = 0;
        for (; more; more = lines_.next()) {
            if (lines_.is_blank()) {
                if (blank == 0) blank = lines_.line();
                continue;
            }
            if (blank != 0) fail_blank(blank);
            read_line(out);
        }
        out.hash = core::hash(std::as_bytes(std::span{out.y}), core::hash(std::as_bytes(std::span{out.x})));
        return out;
    }

private:
    /// At the end empty lines are left out; before it a line may be missing.
    [[noreturn]] void fail_blank(std::size_t line) const {
        core::fail(core::text("\"", path_, "\", line ", line, " is empty, and others follow"), "remove the empty line");
    }
    /// Each line has all columns, the names included.
    void require_columns() const {
        if (lines_.count() == columns_) return;
        lines_.fail(core::text(lines_.count(), lines_.count() == 1 ? " column" : " columns", " separated by '",
                               format_.separator, "', expected ", columns_, ": ", features_, " of the sample, ",
                               labels_, " of the label, ", format_.ignored.size(), " ignored"),
                    names_.empty()
                        ? "declare the data set with as many, name other columns to be ignored, or set another "
                          ".separator"
                    : lines_.count() < columns_ ? "fill in what is missing, or remove the line: it has fewer columns "
                                                  "than the line with the names"
                    : format_.separator == ','  ? "write numbers with a decimal point (1.5), and put a field with a "
                                                  "comma inside into quotation marks"
                                                : "put a field with the separator inside into quotation marks");
    }
    /// Names that are numbers alone would be a sample that is lost. Only where the format calls a column by its name
    /// are 0, 1, 2, .. names: those that pandas gives to columns without one.
    void read_names() {
        require_columns();
        bool all_numbers = true, all_counted = calls_by_name();
        for (std::size_t i = 0; i < columns_; ++i) {
            double number = 0;
            all_numbers = all_numbers && csv_number(lines_.field(i), number);
            names_.emplace_back(lines_.field(i));
            all_counted = all_counted && names_.back() == core::text(i);
        }
        if (all_numbers && !all_counted) fail_names();
    }
    /// The same for names that could be fields of a sample, where some may be words, missing or ignored; but not where
    /// the format calls one that no field of a sample would be.
    void require_names() const {
        if (calls_a_word()) return;
        bool some_number = false, all_counted = calls_by_name();
        std::size_t read = 0;
        for (std::size_t i = 0; i < columns_; ++i) {
            if (place_[i] == ignored) {
                all_counted = all_counted || (i == 0 && names_[i].empty());  // numbers of rows have no name in pandas
                continue;
            }
            const std::string& name = names_[i];
            if (place_[i] >= features_ && !format_.classes.empty()) {
                if (!is_missing(name) && std::ranges::find(format_.classes, name) == format_.classes.end()) return;
                continue;
            }
            double number = 0;
            const bool is_number = csv_number(name, number) || has_comma(name);
            if (!is_number && !is_missing(name)) return;
            some_number = some_number || is_number;
            all_counted = all_counted && (name == core::text(i) || name == core::text(read));
            ++read;
        }
        if (some_number && !all_counted) fail_names();
    }
    [[noreturn]] void fail_names() const {
        lines_.fail("numbers, where names of columns were expected",
                    calls_by_name() ? "set .header = false, or change this line: names that are numbers have to be "
                                      "0, 1, 2 and so on"
                                    : "set .header = false, add a line with names, or call columns by their names, as "
                                      "in .labels = {\"2\"}");
    }
    /// What tables write where they have no value, or one that is not finite: NA, n/a, #N/A, <NA>, -nan, Inf ..
    [[nodiscard]] static bool is_missing(std::string_view field) noexcept {
        double one = 0;
        if (core::read_number(field.substr(field.starts_with('+') ? 1 : 0), one) && !std::isfinite(one)) return true;
        constexpr std::array<std::string_view, 9> words{"", "na", "n/a", "#n/a", "<na>", "null", "none", "?", "-"};
        return std::ranges::any_of(words, [&](std::string_view word) {
            return std::ranges::equal(word, field, [](char a, char b) {
                return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
            });
        });
    }
    [[nodiscard]] bool calls_a_word() const {
        double number = 0;
        for (const auto* const some : {&format_.labels, &format_.ignored})
            for (const csv_column& one : *some)
                if (one.by_name && !is_missing(one.name) && !csv_number(one.name, number) &&
                    std::ranges::find(format_.classes, one.name) == format_.classes.end())
                    return true;
        return false;
    }
    [[nodiscard]] bool calls_by_name() const {
        for (const auto* const some : {&format_.labels, &format_.ignored})
            for (const csv_column& one : *some)
                if (one.by_name) return true;
        return false;
    }
    /// The number of a column.
    [[nodiscard]] std::size_t find(const csv_column& wanted) const {
        if (!wanted.by_name) {
            if (wanted.number < 0 || static_cast<std::size_t>(wanted.number) >= columns_)
                core::fail(core::text("\"", path_, "\" was to be read with column ", wanted.number,
                                      ", it has columns 0 to ", columns_ - 1),
                           "count columns from 0");
            return static_cast<std::size_t>(wanted.number);
        }
        const auto found = std::find(names_.begin(), names_.end(), wanted.name);
        if (found != names_.end() && std::find(found + 1, names_.end(), wanted.name) == names_.end())
            return static_cast<std::size_t>(found - names_.begin());
        std::string all;
        for (std::size_t i = 0; i < names_.size() && all.size() < 1000; ++i)
            all += core::text(i == 0 ? "" : ", ", names_[i]);
        core::fail(core::text("\"", path_, "\" has ", found == names_.end() ? "no" : "more than one", " column ",
                              wanted.text()),
                   names_.empty() ? "number columns from 0, or set .header = true" : "its columns are " + all);
    }
    /// Where the number of each column goes.
    void choose_columns() {
        constexpr std::size_t unused = static_cast<std::size_t>(-1);
        if (!format_.labels.empty() && format_.labels.size() != labels_)
            core::fail(core::text("\"", path_, "\" was to be read with ", format_.labels.size(),
                                  " columns of the label, which has ", labels_),
                       "name a column for each number of the label");
        place_.assign(columns_, unused);
        const auto claim = [&](const csv_column& wanted, std::size_t as) {
            std::size_t& place = place_[find(wanted)];
            if (place != unused)
                core::fail(core::text("column ", wanted.text(), " of \"", path_, "\" is named twice"),
                           "name each column once");
            place = as;
        };
        for (const csv_column& one : format_.ignored) claim(one, ignored);
        for (std::size_t i = 0; i < format_.labels.size(); ++i) claim(format_.labels[i], features_ + i);
        std::size_t next = 0;
        for (std::size_t& place : place_)
            if (place == unused) place = next++;  // without names, what comes after the sample is the label
    }
    /// In steps of twice the size; where memory ends, the error says what it was for.
    void grow(std::vector<double>& numbers, std::size_t by) const {
        if (numbers.capacity() - numbers.size() < by) {
            const std::size_t room = 2 * (numbers.size() + by);
            core::with_memory(core::text("the numbers of \"", path_, "\""), room * sizeof(double),
                              "use a machine with more memory, or data::mapped_npy, which leaves them in the file",
                              [&] { numbers.reserve(room); });
        }
        numbers.resize(numbers.size() + by);
    }
    /// One sample: the numbers of a line.
    void read_line(csv_contents& out) const {
        require_columns();
        const std::size_t x = out.x.size(), y = out.y.size();
        grow(out.x, features_);
        grow(out.y, labels_);
        for (std::size_t i = 0; i < columns_; ++i) {
            if (place_[i] == ignored) continue;
            const bool is_label = place_[i] >= features_;
            const double number = value(i, is_label && classes_ > 0);
            (is_label ? out.y[y + place_[i] - features_] : out.x[x + place_[i]]) = number;
            if (std::abs(number) >= infinite_as_float && out.beyond_float.empty())
                out.beyond_float = lines_.located(
                    core::text(described(i), " has \"", core::excerpt(lines_.field(i)), "\", more than float holds"));
        }
    }
    [[nodiscard]] std::string described(std::size_t column) const {
        return names_.empty() ? core::text("column ", column)
                              : core::text("column ", column, " (\"", core::excerpt(names_[column]), "\")");
    }
    /// "1,5", or "1,234.5": a number for people.
    [[nodiscard]] static bool has_comma(std::string_view field) noexcept {
        return field.find(',') != field.npos && field.find_first_of("0123456789") != field.npos &&
               field.find_first_not_of("0123456789+-.,eE") == field.npos;
    }
    /// A number, or the number of a class; each thing that is neither has a message with its column.
    [[nodiscard]] double value(std::size_t column, bool is_class) const {
        const std::string_view field = lines_.field(column);
        const auto where = [&] { return described(column); };
        if (is_class && !format_.classes.empty()) {
            const auto found = std::find(format_.classes.begin(), format_.classes.end(), field);
            if (found == format_.classes.end())
                lines_.fail(core::text(where(), " has \"", core::excerpt(field), "\", which is none of the ", classes_,
                                       " classes"),
                            "name it in .classes, or correct the line");
            return static_cast<double>(found - format_.classes.begin());
        }
        double out = 0;
        if (field.empty()) lines_.fail(core::text(where(), " is empty"), "fill in missing values, or remove the line");
        if (!csv_number(field, out))
            lines_.fail(core::text(where(), " has \"", core::excerpt(field), "\", expected a finite number"),
                        has_comma(field) ? "write numbers with a decimal point, and without a mark between thousands: "
                                           "1234.5"
                        : is_class
                            ? "correct the line, or name the classes in .classes"
                            : "correct or remove the line, ignore the column, or set .header where names stand above");
        if (is_class && !(out >= 0 && out < static_cast<double>(classes_) && std::trunc(out) == out))
            lines_.fail(
                core::text(where(), " has the label ", core::excerpt(field), ", allowed are 0 to ", classes_ - 1),
                std::trunc(out) == out
                    ? tensor::label_remedy(out, classes_, "declare more classes, or correct the line")
                    : "correct the line: a class is a whole number; or name the classes in .classes");
        return out;
    }

    static constexpr std::size_t ignored = static_cast<std::size_t>(-2);
    static constexpr double infinite_as_float = 0x1.ffffffp127;  // what is below rounds to the largest float or less

    const std::string& path_;
    const csv_format& format_;
    std::size_t classes_, columns_, features_, labels_;
    csv_lines lines_;
    std::vector<std::string> names_;
    std::vector<std::size_t> place_;  // of each column: in the sample, after it in the label, or ignored
};

}  // namespace detail

LOCKSTEP_FUNCTION csv_contents read_csv(const std::string& path, const csv_format& format, std::size_t features,
                                        std::size_t labels, std::size_t classes) {
    return detail::csv_reader{path, format, features, labels, classes}.run();
}

#endif

}  // namespace lockstep::data
