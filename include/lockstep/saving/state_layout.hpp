// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where the state of a run lies in a file: one array for each parameter and role, in the shape of the whole network,
// whatever ranks, buckets and shards hold it.
// Tested by tests/unit/saving/state_layout.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/files/dtype.hpp"
#include "lockstep/files/safetensors.hpp"
#include "lockstep/saving/names.hpp"
#include "lockstep/tensor/state.hpp"

namespace lockstep::saving {

/// A run of numbers in memory that goes to, or comes from, so many bytes from the start of the data in a file.
struct file_run {
    std::uint64_t offset = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
};

/// Collects what visit_state() shows on this rank; the numbers stay where they are. Throws core::error for a role that
/// is no name.
class state_parts {
public:
    template <class T>
    void operator()(const tensor::state_part<T>& of) {
        require_role(of.role);
        parts_.push_back({{std::string{of.role}, of.slot, of.set, of.tensor, of.segment},
                          of.worker,
                          of.first,
                          of.numbers.size(),
                          files::dtype_of<T>,
                          reinterpret_cast<std::byte*>(of.numbers.data()),
                          of.speaks});
    }

    /// What tells the arrays of a state apart, but for workers. `tensor`: tensor x shards + shard.
    struct key {
        std::string role;
        std::uint64_t slot = 0, set = 0, tensor = 0, segment = 0;
        friend auto operator<=>(const key&, const key&) = default;
    };
    struct part {
        key of;
        std::uint64_t worker = tensor::shared_by_workers;
        std::uint64_t first = 0;
        std::uint64_t count = 0;
        files::dtype type = files::dtype::f32;
        std::byte* data = nullptr;
        bool speaks = true;
    };
    [[nodiscard]] const std::vector<part>& all() const noexcept { return parts_; }

private:
    [[gnu::cold]] static void require_role(std::string_view role);

    std::vector<part> parts_;
};

/// The arrays of all parts that speak on all ranks: the same on every rank, and for every number of ranks. An array
/// that has the size of its parameter also has its shape and name; of another one only the name. What workers have has
/// a first extent of W. Arrays of 8-byte numbers come first.
class state_layout {
public:
    /// Collective. Throws core::error, on all ranks alike, where a number is shown twice or not at all.
    [[gnu::cold]] state_layout(const comm::group& ranks, const state_parts& here, const named_arrays& names,
                               std::size_t shards, std::size_t workers);

    /// `begin` counts from the start of the data.
    [[nodiscard]] const std::vector<files::tensor_entry>& arrays() const noexcept { return arrays_; }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

    /// Where the parts of this rank lie in the file, in ascending order. `all`: also those of which another rank
    /// speaks. Throws core::error for a part that the layout does not have.
    [[nodiscard, gnu::cold]] std::vector<file_run> runs(const state_parts& here, bool all) const;

private:
    using part = state_parts::part;
    /// Of a key that has the shape of its parameter.
    static constexpr std::uint64_t any_segment = std::numeric_limits<std::uint64_t>::max();

    /// Where the numbers of a key begin. Those of a shard lie in rows of `row` numbers of which it has `columns`.
    struct place {
        state_parts::key of;
        std::uint64_t offset = 0;  ///< in bytes
        std::uint64_t worker = 0;  ///< bytes from one to the next
        std::uint64_t columns = 0, row = 0;
        std::uint64_t count = 0;  ///< numbers of one worker
    };

    /// The next array of the file; returns where it begins.
    [[gnu::cold]] std::uint64_t add(std::string name, std::vector<std::size_t> shape, files::dtype type);
    /// Parts of one role, slot, set and parameter, in ascending order of workers, shards, segments and begins.
    [[gnu::cold]] void add_parameter(std::span<const part> parts, const named_array& named, std::size_t shards,
                                     std::size_t workers);
    [[gnu::cold]] void add_segments(std::span<const part> parts, const std::string& name, std::size_t shards,
                                    std::size_t workers);
    [[gnu::cold]] void add_statistics(std::span<const part> parts, const named_arrays& names);
    [[nodiscard]] const place& place_of(const part& one) const;

    std::vector<files::tensor_entry> arrays_;
    std::vector<place> places_;  // in ascending order of keys
    std::uint64_t bytes_ = 0;
};

#if LOCKSTEP_BODIES

namespace detail {

/// The parts of this rank that speak, a line each, and back.
[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION std::string to_lines(const state_parts& here) {
    std::string out;
    for (const auto& one : here.all())
        if (one.speaks && one.count > 0)
            out += core::text(one.of.role, "\t", one.of.slot, " ", one.of.set, " ", one.of.tensor, " ", one.of.segment,
                              " ", one.worker, " ", one.first, " ", one.count, " ", files::name_of(one.type), "\n");
    return out;
}
[[gnu::cold]] LOCKSTEP_FUNCTION void from_lines(std::string_view lines, std::vector<state_parts::part>& out) {
    while (!lines.empty()) {
        const std::size_t end = lines.find('\n'), tab = lines.find('\t');
        std::string_view rest = lines.substr(tab + 1, end - tab - 1);
        state_parts::part one;
        one.of.role = lines.substr(0, tab);
        for (std::uint64_t* const number :
             {&one.of.slot, &one.of.set, &one.of.tensor, &one.of.segment, &one.worker, &one.first, &one.count}) {
            *number = 0;
            for (; rest.front() != ' '; rest.remove_prefix(1))
                *number = *number * 10 + static_cast<std::uint64_t>(rest.front() - '0');
            rest.remove_prefix(1);
        }
        one.type = rest == "F32" ? files::dtype::f32 : rest == "F64" ? files::dtype::f64 : files::dtype::u64;
        out.push_back(std::move(one));
        lines.remove_prefix(end + 1);
    }
}

[[nodiscard]] LOCKSTEP_FUNCTION bool is_shared(const state_parts::part& one) noexcept {
    return one.worker == tensor::shared_by_workers;
}

/// Calls f with each run of neighbours that `key` maps to equal values.
template <class Parts, class Key, class F>
[[gnu::cold]] void each_group(Parts parts, const Key& key, const F& f) {
    while (!parts.empty()) {
        std::size_t count = 1;
        while (count < parts.size() && key(parts[count]) == key(parts[0])) ++count;
        f(parts.first(count));
        parts = parts.subspan(count);
    }
}

/// Whether parts, in order, are the numbers 0 .. size - 1, each once; `begin` says where one begins.
template <class Begin>
[[nodiscard, gnu::cold]] bool tile(std::span<const state_parts::part> parts, std::uint64_t size, const Begin& begin) {
    std::uint64_t at = 0;
    for (const auto& one : parts) {
        if (begin(one) != at) return false;
        at += one.count;
    }
    return at == size;
}

/// Of layers, not of parameters: as they are, and those of the best epoch.
[[nodiscard]] LOCKSTEP_FUNCTION bool is_of_layer(std::string_view role) noexcept {
    return role == "statistics" || role == "best statistics";
}

/// How an array of this role is called: weights as their parameter.
[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION std::string suffix_of(const state_parts::key& of) {
    std::string role = of.role;
    for (char& one : role)
        if (one == ' ') one = '_';
    std::string out = role == "weights" || role == "statistics"             ? std::string{}
                      : role == "best_weights" || role == "best_statistics" ? ".best"
                                                                            : core::text(".", role, ".", of.slot);
    if (of.set > 0) out += core::text(".set", of.set);
    return out;
}

}  // namespace detail

LOCKSTEP_FUNCTION void state_parts::require_role(std::string_view role) {
    const auto is_of_name = [](char one) {
        return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') || one == ' ' ||
               one == '-';
    };
    if (role.empty() || !std::ranges::all_of(role, is_of_name))
        core::fail(core::text("visit_state() shows a state in the role \"", role, "\", which is no name"),
                   "call it by letters, digits, spaces and -");
}

LOCKSTEP_FUNCTION state_layout::state_layout(const comm::group& ranks, const state_parts& here,
                                             const named_arrays& names, std::size_t shards, std::size_t workers) {
    std::vector<part> all;
    for (const std::string& lines : ranks.gather_all(detail::to_lines(here))) detail::from_lines(lines, all);
    const auto parameter = [&](const part& one) {
        return detail::is_of_layer(one.of.role) ? one.of.tensor : one.of.tensor / shards;
    };
    const auto kind = [&](const part& one) {
        const int first = one.type == files::dtype::u64 ? 0
                          : one.of.role == "weights"    ? 1
                          : one.of.role == "statistics" ? 2
                                                        : 3;
        return std::tuple{first, one.of.role, parameter(one), one.of.slot, one.of.set};
    };
    const auto order = [](const part& one) { return std::tuple{one.worker, one.of.tensor, one.of.segment, one.first}; };
    core::sort(all, [&](const part& a, const part& b) {
        return std::pair{kind(a), order(a)} < std::pair{kind(b), order(b)};
    });
    detail::each_group(std::span<const part>{all}, kind, [&](std::span<const part> parts) {
        const part& one = parts[0];
        if (detail::is_of_layer(one.of.role)) return add_statistics(parts, names);
        if (one.type == files::dtype::u64) return add_segments(parts, one.of.role, shards, workers);
        const named_array& named = names.parameters.at(parameter(one));
        bool has_shape = true;
        std::uint64_t count = 0;
        detail::each_group(
            parts,
            [](const part& of) {
                return std::pair{of.worker, of.of.tensor};
            },
            [&](std::span<const part> block) {
                ++count;
                has_shape = has_shape &&
                            detail::tile(block, named.size(), [](const part& of) { return of.of.segment + of.first; });
            });
        has_shape = has_shape && count == named.shards * (detail::is_shared(one) ? 1 : workers);
        has_shape ? add_parameter(parts, named, shards, workers) : add_segments(parts, named.name, shards, workers);
    });
    core::sort(places_, [](const state_layout::place& a, const state_layout::place& b) { return a.of < b.of; });
}

LOCKSTEP_FUNCTION std::uint64_t state_layout::add(std::string name, std::vector<std::size_t> shape, files::dtype type) {
    std::uint64_t bytes = files::size_of(type);
    for (const std::size_t one : shape) bytes = core::checked_product("bytes of a checkpoint", bytes, one);
    arrays_.push_back({std::move(name), type, std::move(shape), bytes_, bytes});
    bytes_ = core::checked_sum("bytes of a checkpoint", bytes_, bytes);
    return bytes_ - bytes;
}

LOCKSTEP_FUNCTION void state_layout::add_parameter(std::span<const part> parts, const named_array& named,
                                                   std::size_t shards, std::size_t workers) {
    const part& one = parts[0];
    const std::uint64_t row = named.columns * named.shards, item = files::size_of(one.type);
    std::vector<std::size_t> shape;
    if (!detail::is_shared(one)) shape.push_back(workers);
    if (named.rows > 1) shape.push_back(named.rows);
    shape.push_back(row);
    const std::uint64_t offset = add(named.name + detail::suffix_of(one.of), std::move(shape), one.type);
    for (std::size_t shard = 0; shard < named.shards; ++shard) {
        auto of = one.of;
        of.tensor = one.of.tensor / shards * shards + shard;
        of.segment = any_segment;
        places_.push_back({std::move(of), offset + shard * named.columns * item, named.rows * row * item, named.columns,
                           row, named.size()});
    }
}

LOCKSTEP_FUNCTION void state_layout::add_segments(std::span<const part> parts, const std::string& name,
                                                  std::size_t shards, std::size_t workers) {
    // By shard and segment first: each of them is an array.
    std::vector<part> sorted(parts.begin(), parts.end());
    const auto array = [](const part& one) { return std::pair{one.of.tensor, one.of.segment}; };
    core::sort(sorted, [&](const part& a, const part& b) {
        return std::tuple{array(a), a.worker, a.first} < std::tuple{array(b), b.worker, b.first};
    });
    detail::each_group(std::span<const part>{sorted}, array, [&](std::span<const part> segment) {
        const part& one = segment[0];
        const bool is_shared = detail::is_shared(one);
        std::uint64_t size = 0, next = 0;
        for (const part& of : segment)
            if (of.worker == one.worker) size += of.count;
        std::string what = one.type == files::dtype::u64 ? name : name + detail::suffix_of(one.of);
        if (one.of.segment > 0 || array(sorted.back()).second > 0) what += core::text(".segment", one.of.segment);
        if (one.type != files::dtype::u64 && shards > 1) what += core::text(".shard", one.of.tensor % shards);
        detail::each_group(
            segment, [](const part& of) { return of.worker; },
            [&](std::span<const part> block) {
                const bool is_whole = detail::tile(block, size, [](const part& of) { return of.first; });
                if (!is_whole || (!is_shared && block[0].worker != next++))
                    core::fail(core::text("numbers of ", what, " are shown twice or not at all",
                                          is_shared ? "" : core::text(", those of worker ", block[0].worker)),
                               "let visit_state() show every number once over all ranks, with the parts that speak");
            });
        if (!is_shared && next != workers)
            core::fail(core::text(next, " of ", workers, " workers show ", what),
                       "let visit_state() show the numbers of every worker");
        std::vector<std::size_t> shape;
        if (!is_shared) shape.push_back(workers);
        shape.push_back(size);
        const std::uint64_t offset = add(std::move(what), std::move(shape), one.type);
        places_.push_back({one.of, offset, size * files::size_of(one.type), size, size, size});
    });
}

LOCKSTEP_FUNCTION void state_layout::add_statistics(std::span<const part> parts, const named_arrays& names) {
    const part& one = parts[0];
    std::uint64_t size = 0;
    const std::uint64_t offset = bytes_;
    for (const named_array& named : names.statistics) {
        if (named.tensor != one.of.tensor) continue;
        add(named.name + detail::suffix_of(one.of), {named.size()}, one.type);
        size += named.size();
    }
    if (!detail::tile(parts, size, [](const part& of) { return of.first; }))
        core::fail(core::text("statistics of layer ", one.of.tensor, " are shown twice or not at all"),
                   "let one rank speak of them");
    places_.push_back({one.of, offset, 0, size, size, size});
}

LOCKSTEP_FUNCTION const state_layout::place& state_layout::place_of(const part& one) const {
    for (const std::uint64_t segment : {any_segment, one.of.segment}) {
        auto wanted = one.of;
        wanted.segment = segment;
        const auto found = std::ranges::lower_bound(places_, wanted, {}, &place::of);
        if (found != places_.end() && found->of == wanted) return *found;
    }
    core::fail(core::text("a rank shows ", one.of.role, " ", one.of.slot, " of tensor ", one.of.tensor,
                          ", of which no rank speaks"),
               "let visit_state() show every number once over all ranks, with the parts that speak");
}

LOCKSTEP_FUNCTION std::vector<file_run> state_layout::runs(const state_parts& here, bool all) const {
    std::vector<file_run> out;
    for (const part& one : here.all()) {
        if (one.count == 0 || !(all || one.speaks)) continue;
        const place& in = place_of(one);
        const std::uint64_t item = files::size_of(one.type);
        const std::uint64_t base = in.offset + (detail::is_shared(one) ? 0 : one.worker * in.worker);
        std::uint64_t at = one.first + (in.of.segment == any_segment ? one.of.segment : 0);
        // Of a shard each row of the file has a part.
        for (std::uint64_t left = one.count; left > 0;) {
            const std::uint64_t column = at % in.columns;
            const std::uint64_t count = in.columns == in.row ? left : std::min(left, in.columns - column);
            out.push_back({base + (at / in.columns * in.row + column) * item, one.data + (one.count - left) * item,
                           count * item});
            at += count;
            left -= count;
        }
    }
    core::sort(out, [](const file_run& a, const file_run& b) { return a.offset < b.offset; });
    return out;
}

#endif

}  // namespace lockstep::saving
