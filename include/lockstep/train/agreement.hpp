// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What ranks make sure of with each other: equal data sets before a run, and that all hear of a failure.

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"

namespace lockstep::train {

/// The exception that is being handled becomes known to all ranks, unless it came from one of them.
[[gnu::cold]] void tell_all(const comm::group& ranks);

/// A data set that can be read.
template <class Dataset>
[[gnu::cold]] void require_samples(const Dataset& set, std::string_view what) {
    if (set.size() == 0) core::fail(core::text(data::name_of(set), " has no samples to ", what), "check where it was read from");
    data::check_set(set);
}

/// Every rank deals the rows of the whole data set: it has to be the same one. Collective.
[[gnu::cold]] void require_equal(
    const comm::group& ranks, std::size_t mine, std::string_view what,
    std::string_view remedy = "give every rank the same data set (a rank reads only its rows), or call step() with the rows it has");

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void require_equal(const comm::group& ranks, std::size_t mine, std::string_view what, std::string_view remedy) {
    const auto all = ranks.gather_all(mine);
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        if (all[rank] != all[0]) core::fail(core::text("rank 0 has ", all[0], " ", what, ", rank ", rank, " has ", all[rank]), remedy);
}

LOCKSTEP_FUNCTION void tell_all(const comm::group& ranks) {
    try {
        throw;
    } catch (const comm::remote_failure&) {
    } catch (const std::exception& failure) {
        ranks.announce(failure.what());
    } catch (...) {
        ranks.announce("an exception that is no std::exception");
    }
}

#endif

}  // namespace lockstep::train
