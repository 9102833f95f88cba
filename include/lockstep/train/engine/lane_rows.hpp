// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The fewest rows that the layers of a network need in a lane, and who is told where there are fewer: the plan, fit()
// and step().

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/model/binding.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/tensor/shape.hpp"
#include "lockstep/train/engine/deal.hpp"

namespace lockstep::train {

/// The most that a layer needs (least_rows_per_lane), and the first layer that does.
struct lane_need {
    std::size_t rows = 1;
    std::size_t layer = 0;
};
template <class Net>
inline constexpr lane_need need_of = [] {
    lane_need out;
    core::for_each_index<Net::size>([&](auto index) {
        constexpr std::size_t rows =
            layer_api::traits_of<typename model::bound<Net, 1, index>::whole>.least_rows_per_lane;
        if (rows > out.rows) out = {rows, index};
    });
    return out;
}();
template <class Net>
inline constexpr std::size_t least_lane_rows = need_of<Net>.rows;

namespace detail {
/// "layer 1 (batch_norm on 64: 1 position for each channel of a sample) needs at least 2"
[[nodiscard]] std::string text_of(const lane_need& need, std::string_view name, const std::string& shape,
                                  std::size_t positions);
template <class Net>
[[nodiscard, gnu::cold]] std::string need_text() {
    using layer = typename model::bound<Net, 1, need_of<Net>.layer>::whole;
    using input = typename layer::input;
    return text_of(need_of<Net>, layer::name, tensor::to_text<input>(), input::size / input::extents.back());
}
[[noreturn]] void fail_on_lanes(std::size_t batch, std::size_t lanes, std::size_t least, const std::string& need);
/// `rest`: samples of the epoch that are left.
[[noreturn]] void fail_on_last_minibatch(std::size_t n, std::size_t rest, std::size_t batch, std::size_t least,
                                         const std::string& need);
/// Looks for a lane with rows, but fewer than `least`.
[[nodiscard]] bool has_short_lane(const deal& rows, std::size_t least) noexcept;
[[noreturn]] void fail_on_step(const deal& rows, const partition::grid& on, std::size_t least, const std::string& need);
}  // namespace detail

/// Throws core::error where a full minibatch leaves a lane fewer rows than a layer needs.
template <class Net>
void require_lane_rows(std::size_t batch, std::size_t lanes) {
    if constexpr (constexpr std::size_t least = least_lane_rows<Net>; least > 1)
        if (batch / lanes < least) detail::fail_on_lanes(batch, lanes, least, detail::need_text<Net>());
}

/// Throws core::error where a fit over `n` samples comes to a last minibatch that fills not even one lane. It begins at
/// this position of an epoch and makes `steps` steps.
template <class Net>
void require_last_minibatch(std::size_t n, std::size_t position, std::size_t batch, std::uint64_t steps) {
    if constexpr (constexpr std::size_t least = least_lane_rows<Net>; least > 1) {
        const std::size_t rest = n - position, whole = rest / batch, minibatches = whole + (rest % batch > 0 ? 1 : 0);
        const auto is_short = [](std::size_t last) { return last > 0 && last < least; };
        if (is_short(rest % batch) && steps > whole)
            detail::fail_on_last_minibatch(n, rest, batch, least, detail::need_text<Net>());
        if (is_short(n % batch) && steps > minibatches + n / batch)
            detail::fail_on_last_minibatch(n, n, batch, least, detail::need_text<Net>());
    }
}

/// Throws core::error, on all ranks alike, where the rows that ranks brought to a step leave a lane fewer than a layer
/// needs.
template <class Net>
void require_step_rows(const deal& rows, const partition::grid& on) {
    if constexpr (constexpr std::size_t least = least_lane_rows<Net>; least > 1)
        if (detail::has_short_lane(rows, least)) detail::fail_on_step(rows, on, least, detail::need_text<Net>());
}

#if LOCKSTEP_BODIES

namespace detail {

LOCKSTEP_FUNCTION std::string text_of(const lane_need& need, std::string_view name, const std::string& shape,
                                      std::size_t positions) {
    return core::text("layer ", need.layer, " (", name, " on ", shape, ": ", positions,
                      positions == 1 ? " position" : " positions", " for each channel of a sample) needs at least ",
                      need.rows);
}

LOCKSTEP_FUNCTION void fail_on_lanes(std::size_t batch, std::size_t lanes, std::size_t least, const std::string& need) {
    const std::size_t rows = batch / lanes;
    const std::string larger = core::text("a batch of at least ", lanes * least);
    core::fail(core::text("a batch of ", batch, " in ", lanes, lanes == 1 ? " lane" : " lanes", " leaves a lane ", rows,
                          rows == 1 ? " sample" : " samples", ", and ", need),
               batch < least ? core::text("use ", larger)
                             : core::text("use at most ", batch / least, batch / least == 1 ? " lane" : " lanes",
                                          " or ", larger));
}

LOCKSTEP_FUNCTION void fail_on_last_minibatch(std::size_t n, std::size_t rest, std::size_t batch, std::size_t least,
                                              const std::string& need) {
    const std::size_t last = rest % batch, whole = n - last;
    // Where the batch has changed in the middle of an epoch no other set is of use.
    const bool has_changed = last != n % batch;
    const std::string more = core::text("at least ", whole + least, " samples"),
                      sets = core::text("fit ", whole > 0 ? core::text(whole, " or ") : "", more, ", or ");
    core::fail(core::text("the last minibatch of ", has_changed ? core::text("the ", rest, " that are left of ") : "",
                          n, n == 1 ? " sample" : " samples", " with a batch of ", batch, " has ", last,
                          last == 1 ? " sample" : " samples", ", and ", need, " in a lane"),
               core::text(has_changed ? "" : sets, "use a batch that leaves none or at least ", least, " of them"));
}

LOCKSTEP_FUNCTION bool has_short_lane(const deal& rows, std::size_t least) noexcept {
    for (const std::size_t length : rows.lengths())
        if (length > 0 && length < least) return true;
    return false;
}

LOCKSTEP_FUNCTION void fail_on_step(const deal& rows, const partition::grid& on, std::size_t least,
                                    const std::string& need) {
    std::size_t rank = 0, brought = 0, shortest = 0;
    for (; rank < on.ranks && shortest == 0; ++rank) {
        brought = 0;
        for (std::size_t lane = on.lanes_of(rank).first; lane < on.lanes_of(rank).last; ++lane) {
            const std::size_t length = rows.lengths()[lane];
            brought += length;
            if (length > 0 && length < least && (shortest == 0 || length < shortest)) shortest = length;
        }
    }
    --rank;
    const auto run = on.lanes_of(rank);
    const std::size_t lanes = on.recipe_lane(run.last) - on.recipe_lane(run.first);
    core::fail(core::text("rank ", rank, " brought ", brought, brought == 1 ? " row" : " rows", " to a step for its ",
                          lanes, lanes == 1 ? " lane" : " lanes", ", which leaves one ", shortest,
                          shortest == 1 ? " row" : " rows", ", and ", need),
               core::text("bring at least ", lanes * least, " rows on that rank, or none, or use fewer lanes"));
}

}  // namespace detail

#endif

}  // namespace lockstep::train
