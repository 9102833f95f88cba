// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The checker of a step's memory: fences around every piece, and poison in it outside of its life. Nothing without
// LOCKSTEP_CHECK_MEMORY.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/model/memory_plan.hpp"
#include "lockstep/tensor/fence.hpp"

namespace lockstep::train {

#if defined(LOCKSTEP_CHECK_MEMORY)

/// Holds the pieces of a plan at offsets of its own, with a gap on both sides of each. All that is in no living piece
/// is poison: NaN, and under the address sanitizer memory that is closed. A write into it is found at the end of the
/// event where it is in a gap, else when a piece begins there; a read when the event ends, by the poison in what was
/// computed. Each is one core::error. Pieces that together take little (up to 16 MiB) share no memory, so that every
/// late access is seen; else dead memory is used again, as without checks. Cost: two passes over each piece in a step,
/// one over each result, and the gaps of what an event may write. Not seen: what lies in windows of shared memory, and
/// in memory of MPI or of a user.
class memory_check {
public:
    enum class pass : std::uint8_t { forward, forward_again, loss, backward };

    /// `facts`: of each node, with its name.
    template <class Facts>
    [[gnu::cold]] void prepare(const model::memory_plan& plan, std::span<const model::memory_node> nodes,
                               const Facts& facts) {
        for (const auto& fact : facts) names_.push_back(fact.name);
        place(plan, nodes);
    }

    /// Bytes that the gaps take beside those of the plan.
    [[nodiscard]] std::size_t spare(const model::memory_plan& plan) const noexcept { return bytes_ - plan.bytes; }
    [[nodiscard]] std::size_t offset(const model::memory_plan&, std::size_t which) const noexcept {
        return pieces_[which].offset;
    }

    /// A walk begins: no piece has a value.
    void begin(std::byte* memory);
    /// This node runs (or the loss: then `node` is of no account). Pieces that begin are opened.
    void enter(pass which, std::size_t node = 0);
    /// What it wrote: elements of its result.
    template <class T>
    void wrote(const T* first, std::size_t count, std::string_view what) const {
        if (first == nullptr) return;
        if (const std::size_t at = tensor::find_poison(first, count); at < count) fail_of_poison(what, at);
    }
    /// It has run: the gaps are checked, and pieces that end are closed.
    void leave();

private:
    struct owner {
        pass when = pass::forward;
        std::size_t node = 0;
        std::string_view what;
        std::size_t input = 0;  ///< counted from 1; 0: of none
    };

    static constexpr std::size_t little = std::size_t{1} << 24U;  ///< bytes

    [[gnu::cold]] void place(const model::memory_plan& plan, std::span<const model::memory_node> nodes);
    [[nodiscard]] std::size_t event_of(pass which, std::size_t node) const noexcept;
    [[nodiscard]] std::span<std::byte> fenced(std::size_t which) const noexcept;
    [[nodiscard]] std::span<std::byte> inner(std::size_t which) const noexcept;
    void close_before(std::size_t event);
    void check_gap(std::size_t which);
    [[nodiscard]] std::string layer(std::size_t node) const {
        return core::text("layer ", node, " (", names_[node], ")");
    }
    [[nodiscard]] std::string running() const;
    [[nodiscard]] std::string name_of(std::size_t which) const;
    [[noreturn, gnu::cold]] void fail_of_poison(std::string_view what, std::size_t at) const;
    [[noreturn, gnu::cold]] void fail_of_gap(std::size_t which, bool past_the_end);
    [[noreturn, gnu::cold]] void fail_of_dead(std::size_t which, std::size_t at);

    std::vector<std::string_view> names_;
    model::step_events events_{{}};
    std::vector<model::piece> pieces_;  ///< as in the plan, but for their offsets
    std::vector<owner> owners_;
    std::vector<std::vector<std::size_t>> used_;  ///< of each event: the pieces that may be written
    std::vector<std::size_t> order_;              ///< pieces as they begin
    std::vector<std::size_t> live_;
    std::size_t next_ = 0;  ///< in order_
    std::size_t bytes_ = 0;
    std::span<std::byte> memory_;
    bool is_filled_ = false;  ///< what is not live is poison
    pass pass_ = pass::forward;
    std::size_t node_ = 0;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void memory_check::place(const model::memory_plan& plan, std::span<const model::memory_node> nodes) {
    events_ = model::step_events{nodes};
    pieces_ = plan.pieces;
    owners_.resize(pieces_.size());
    auto wide = pieces_;
    for (auto& one : wide)
        if (one.bytes > 0)
            one.bytes = (one.bytes + simd::alignment - 1) / simd::alignment * simd::alignment + 2 * tensor::fence_bytes;
    if (plan.bytes_without_reuse() <= little)
        for (auto& one : wide) one.first = 0;
    bytes_ = std::max(plan.bytes, model::assign_offsets(wide));
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
        pieces_[i].offset = wide[i].offset + tensor::fence_bytes;
        if (pieces_[i].bytes > 0) order_.push_back(i);
    }
    core::sort(order_, [&](std::size_t a, std::size_t b) {
        return pieces_[a].first != pieces_[b].first ? pieces_[a].first < pieces_[b].first : a < b;
    });
    live_.reserve(pieces_.size());

    // The first who writes a piece names it. Those that work in place, or pass a gradient on, come later.
    used_.resize(2 * nodes.size() + 1 + static_cast<std::size_t>(std::ranges::count_if(nodes, [](const auto& one) {
                     return one.block != 0;
                 })));
    const auto call = [&](std::size_t which, const owner& by) {
        if (which == model::no_piece) return;
        if (owners_[which].what.empty()) owners_[which] = by;
        if (pieces_[which].bytes > 0) used_[event_of(by.when, by.node)].push_back(which);
    };
    for (const pass when : {pass::forward, pass::forward_again})
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            const model::node_memory& of = when == pass::forward ? plan.nodes[i] : plan.again[i];
            call(of.input, {when, i, "redistributed input"});
            call(of.output, {when, i, "output"});
            call(of.value, {when, i, "redistributed output"});
            call(of.saved, {when, i, "saved values"});
            call(of.scratch_forward, {when, i, "scratch"});
            call(of.observed, {when, i, "partial sums of statistics"});
            call(of.redistribution_forward, {when, i, "redistribution buffer"});
        }
    call(plan.network_gradient, {pass::loss, 0, "gradient"});
    for (std::size_t i = nodes.size(); i-- > 0;) {
        const model::node_memory& of = plan.nodes[i];
        call(of.doutput, {pass::backward, i, "redistributed gradient"});
        call(of.scratch_backward, {pass::backward, i, "scratch"});
        call(of.partials, {pass::backward, i, "partial sums of its parameters' gradient"});
        call(of.redistribution_backward, {pass::backward, i, "redistribution buffer"});
        for (std::size_t k = 0; k < of.inputs.size(); ++k) {
            call(of.inputs[k].written, {pass::backward, i, "gradient", k + 1});
            call(of.inputs[k].given, {pass::backward, i, "redistributed gradient", k + 1});
            call(of.inputs[k].sum, {pass::backward, i, "sum of gradients", k + 1});
        }
    }
}

LOCKSTEP_FUNCTION std::size_t memory_check::event_of(pass which, std::size_t node) const noexcept {
    switch (which) {
        case pass::forward:
            return node;
        case pass::forward_again:
            return events_.again[node];
        case pass::loss:
            return names_.size();
        case pass::backward:
            return events_.backward[node];
    }
    return 0;
}

LOCKSTEP_FUNCTION std::span<std::byte> memory_check::inner(std::size_t which) const noexcept {
    return memory_.subspan(pieces_[which].offset, pieces_[which].bytes);
}

LOCKSTEP_FUNCTION std::span<std::byte> memory_check::fenced(std::size_t which) const noexcept {
    const std::size_t lines = (pieces_[which].bytes + simd::alignment - 1) / simd::alignment * simd::alignment;
    return memory_.subspan(pieces_[which].offset - tensor::fence_bytes, lines + 2 * tensor::fence_bytes);
}

LOCKSTEP_FUNCTION void memory_check::begin(std::byte* memory) {
    memory_ = {memory, bytes_};
    // The first time, and after a failure in the middle of an event.
    if (!std::exchange(is_filled_, true)) {
        tensor::poison(memory_);
    } else {
        for (const std::size_t which : live_) check_gap(which);
        for (const std::size_t which : live_) tensor::poison(inner(which));
    }
    live_.clear();
    next_ = 0;
}

LOCKSTEP_FUNCTION void memory_check::close_before(std::size_t event) {
    const auto is_over = [&](std::size_t which) { return pieces_[which].last < event; };
    for (const std::size_t which : live_)
        if (is_over(which)) {
            check_gap(which);
            tensor::poison(inner(which));
        }
    std::erase_if(live_, is_over);
}

LOCKSTEP_FUNCTION void memory_check::enter(pass which, std::size_t node) {
    pass_ = which;
    node_ = node;
    const std::size_t event = event_of(which, node);
    close_before(event);
    for (; next_ < order_.size() && pieces_[order_[next_]].first <= event; ++next_) {
        const std::size_t piece = order_[next_];
        if (pieces_[piece].last < event) continue;  // of an event that needs nothing done
        const auto all = fenced(piece);
        if (const std::size_t at = tensor::find_damage(all); at < all.size()) fail_of_dead(piece, at);
        tensor::unpoison(inner(piece));
        live_.push_back(piece);
    }
}

LOCKSTEP_FUNCTION void memory_check::leave() {
    const std::size_t event = event_of(pass_, node_);
    for (const std::size_t which : used_[event]) check_gap(which);
    close_before(event + 1);
}

LOCKSTEP_FUNCTION void memory_check::check_gap(std::size_t which) {
    const auto all = fenced(which);
    const auto past = all.subspan(tensor::fence_bytes + pieces_[which].bytes);
    if (tensor::find_damage(past) < past.size()) fail_of_gap(which, true);
    if (tensor::find_damage(all.first(tensor::fence_bytes)) < tensor::fence_bytes) fail_of_gap(which, false);
}

LOCKSTEP_FUNCTION std::string memory_check::running() const {
    if (pass_ == pass::loss) return "the loss";
    return core::text(layer(node_), pass_ == pass::backward        ? ", backward,"
                                    : pass_ == pass::forward_again ? ", forward again,"
                                                                   : ", forward,");
}

LOCKSTEP_FUNCTION std::string memory_check::name_of(std::size_t which) const {
    const owner& of = owners_[which];
    const bool own = of.when != pass::loss && pass_ != pass::loss && of.node == node_;
    std::string out = core::text(own ? "its " : "the ", of.what);
    if (of.input > 0) out += core::text(" with respect to input ", of.input - 1);
    if (of.when == pass::loss) out += " of the loss";
    if (!own && of.when != pass::loss)
        out += core::text(" of ", layer(of.node), of.when == pass::backward ? ", backward" : "");
    return out + core::text(", ", pieces_[which].bytes, " bytes");
}

LOCKSTEP_FUNCTION void memory_check::fail_of_gap(std::size_t which, bool past_the_end) {
    is_filled_ = false;
    core::fail(
        core::text(running(), " wrote ", past_the_end ? "past the end" : "before the start", " of ", name_of(which)),
        "a layer writes the rows and the bytes that its pass has, no more");
}

LOCKSTEP_FUNCTION void memory_check::fail_of_dead(std::size_t which, std::size_t at) {
    is_filled_ = false;
    const auto from = static_cast<std::ptrdiff_t>(at) - static_cast<std::ptrdiff_t>(tensor::fence_bytes);
    core::fail(core::text("memory was written while it belonged to no value, byte ", from, " of what ", running(),
                          " takes for ", name_of(which)),
               "a layer before it kept a pointer beyond its pass, or wrote far past the end of an array");
}

LOCKSTEP_FUNCTION void memory_check::fail_of_poison(std::string_view what, std::size_t at) const {
    core::fail(core::text(running(), " gave element ", at, " of its ", what,
                          " no value, or computed it from memory that holds none"),
               "a layer writes all of its results, and reads nothing but what its pass has (see needs_x, needs_y)");
}

#endif

#else

/// Without checks: the offsets of the plan.
class memory_check {
public:
    enum class pass : std::uint8_t { forward, forward_again, loss, backward };
    template <class Names>
    static constexpr void prepare(const model::memory_plan&, std::span<const model::memory_node>,
                                  const Names&) noexcept {}
    static constexpr std::size_t spare(const model::memory_plan&) noexcept { return 0; }
    static constexpr std::size_t offset(const model::memory_plan& plan, std::size_t which) noexcept {
        return plan.pieces[which].offset;
    }
    static constexpr void begin(std::byte*) noexcept {}
    static constexpr void enter(pass, std::size_t = 0) noexcept {}
    template <class T>
    static constexpr void wrote(const T*, std::size_t, std::string_view) noexcept {}
    static constexpr void leave() noexcept {}
};

#endif

}  // namespace lockstep::train
