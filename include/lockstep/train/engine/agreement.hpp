// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What ranks make sure of with each other: equal data sets before a run, and that all hear of a failure.
// Tested by tests/training/agreement.cpp.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/saving/agreed_error.hpp"

namespace lockstep::train {

/// The exception that is being handled becomes known to all ranks, unless it came from one of them.
[[gnu::cold]] void tell_all(const comm::group& ranks);

/// Throws the exception that is being handled again, as core::rethrow() does; a core::error then has this line as well.
[[noreturn, gnu::cold]] void rethrow_with(const std::string& line);

/// How many samples a data set has, which can be read. A call asks once: a set may grow meanwhile.
template <class Dataset>
[[nodiscard, gnu::cold]] std::size_t require_samples(const Dataset& set, std::string_view what) {
    const auto n = static_cast<std::size_t>(set.size());
    if (n == 0) core::fail(core::text(data::name_of(set), " has no samples to ", what), "check where it was read from");
    (void)core::checked_product("bytes for the order of the samples", n, sizeof(std::uint64_t));
    data::check_set(set);
    return n;
}

/// Whether the numbers of a sample are finite and its label is one.
template <class Label, class T, class L>
[[nodiscard, gnu::cold]] bool is_trainable(std::span<const T> x, std::span<L> y) noexcept {
    bool out = kernels::first_non_finite(x) == x.size();
    for (const L one : y) {
        if constexpr (tensor::is_classes<Label>)
            out = out && one >= 0 && static_cast<std::size_t>(one) < Label::count;
        else
            out = out && std::isfinite(one);
    }
    return out;
}

/// Every rank deals the rows of the whole data set, n: a few of them are read everywhere and compared. Ranks that hold
/// parts of equal size differ in them. What a rank cannot read is an error of all, alike. Collective; nothing on one
/// rank.
template <class T, class Dataset>
[[gnu::cold]] void require_same_samples(const comm::group& ranks, const Dataset& set, std::size_t n) {
    if (ranks.size() == 1) return;
    using sample = typename Dataset::sample;
    using label = typename Dataset::label;
    constexpr std::size_t most = 4;
    constexpr std::uint64_t unusable = 0;
    const std::size_t count = std::min(n, most);
    std::array<std::uint64_t, most> rows{}, hashes{};
    for (std::size_t i = 1; i < count; ++i) rows[i] = i * (n - 1) / (count - 1);
    std::vector<T> x(count * sample::size);
    std::vector<tensor::label_element<label, T>> y(count * tensor::label_size<label>);
    saving::together<core::error>(ranks, [&] {
        set.read(std::span<const std::uint64_t>{rows}.first(count), tensor::batch<T, sample>{x.data(), count},
                 std::span{y});
    });
    for (std::size_t i = 0; i < count; ++i) {
        const auto label_of_row = std::span{y}.subspan(i * tensor::label_size<label>, tensor::label_size<label>);
        // What cannot be trained on is refused where it is dealt, with words of its own.
        if (!is_trainable<label>(std::span<const T>{x}.subspan(i * sample::size, sample::size), label_of_row)) {
            hashes[i] = unusable;
            continue;
        }
        hashes[i] = core::hash(std::as_bytes(std::span{x}.subspan(i * sample::size, sample::size)),
                               core::hash(std::as_bytes(label_of_row)));
    }
    const auto all = ranks.gather_all(hashes);
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        for (std::size_t i = 0; i < count; ++i)
            if (all[rank][i] != all[0][i] && all[rank][i] != unusable && all[0][i] != unusable)
                core::fail(core::text("sample ", rows[i], " of ", data::name_of(set), " is another one on rank ", rank,
                                      " than on rank 0"),
                           "give every rank the same data set (fit() deals the rows), or call step() with the rows "
                           "that each rank has");
}

/// Every rank deals the rows of the whole data set: it has to be the same one. Collective.
[[gnu::cold]] void require_equal(
    const comm::group& ranks, std::size_t mine, std::string_view what,
    std::string_view remedy =
        "give every rank the same data set (a rank reads only its rows), or call step() with the rows it has");

/// How long a fit() is to run: a number of epochs, steps, .. (`unit`), for seconds that number.
struct fit_length {
    std::array<char, 24> unit{};
    std::uint64_t count = 0;
    double seconds = 0;
};
/// It is the same on all ranks, and seconds are at least 0. Collective.
[[gnu::cold]] void require_same_length(const comm::group& ranks, const fit_length& mine);

/// The hash of an order of all n samples. Throws core::error where it has a number that no sample has.
[[nodiscard, gnu::cold]] std::uint64_t hash_of_order(std::span<const std::uint64_t> order, std::uint64_t epoch);

/// A sampler that depends on more than its arguments would deal some samples twice and others never. `hash`: that of
/// the order of all n samples. Collective.
[[gnu::cold]] void require_same_order(const comm::group& ranks, std::uint64_t hash, std::size_t n, std::uint64_t epoch);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::uint64_t hash_of_order(std::span<const std::uint64_t> order, std::uint64_t epoch) {
    for (std::size_t i = 0; i < order.size(); ++i)
        if (order[i] >= order.size())
            core::fail(core::text("the sampler's order of epoch ", epoch, " has sample ", order[i], " at position ", i,
                                  ", and there are ", order.size()),
                       "fill out with numbers from 0 to n - 1");
    return core::hash(std::as_bytes(order));
}

LOCKSTEP_FUNCTION void require_same_order(const comm::group& ranks, std::uint64_t hash, std::size_t n,
                                          std::uint64_t epoch) {
    if (ranks.size() == 1) return;
    const auto all = ranks.gather_all(hash);
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        if (all[rank] != all[0])
            core::fail(core::text("the sampler orders ", n, " samples of epoch ", epoch, " otherwise on rank ", rank,
                                  " than on rank 0"),
                       "make order() a function of its arguments alone");
}

LOCKSTEP_FUNCTION void require_equal(const comm::group& ranks, std::size_t mine, std::string_view what,
                                     std::string_view remedy) {
    const auto all = ranks.gather_all(mine);
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        if (all[rank] != all[0])
            core::fail(core::text("rank 0 has ", all[0], " ", what, ", rank ", rank, " has ", all[rank]), remedy);
}

LOCKSTEP_FUNCTION void require_same_length(const comm::group& ranks, const fit_length& mine) {
    const auto all = ranks.gather_all(mine);
    const auto is_time = [](const fit_length& one) { return std::string_view{one.unit.data()} == "seconds"; };
    const auto in_words = [&](const fit_length& one) {
        return is_time(one) ? core::text(one.seconds, " seconds") : core::text(one.count, " ", one.unit.data());
    };
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const fit_length &first = all[0], &one = all[rank];
        if (is_time(one) && !(std::isfinite(one.seconds) && one.seconds >= 0))
            core::fail(core::text("fit() is to run for ", one.seconds, " seconds",
                                  rank == 0 ? std::string{} : core::text(" on rank ", rank)),
                       "pass a number of seconds of at least 0: seconds{600}");
        if (one.unit != first.unit || one.count != first.count || one.seconds != first.seconds)
            core::fail(core::text("rank 0 has ", in_words(first), " to fit, rank ", rank, " has ",
                                  one.unit != first.unit || is_time(one) ? in_words(one) : core::text(one.count)),
                       "call fit() with the same number on every rank");
    }
}

LOCKSTEP_FUNCTION void rethrow_with(const std::string& line) {
    try {
        core::rethrow();
    } catch (core::error& failure) {
        failure.add_line(line);
        throw;
    }
}

LOCKSTEP_FUNCTION void tell_all(const comm::group& ranks) {
    try {
        core::rethrow();
    } catch (const std::exception& failure) {  // what these ranks have told each other is not told twice
        const std::string text = core::printable(failure.what(), true);
        ranks.announce(text.empty() ? "an exception without a text" : text);
    } catch (...) {
        ranks.announce("an exception that is no std::exception");
    }
}

#endif

}  // namespace lockstep::train
