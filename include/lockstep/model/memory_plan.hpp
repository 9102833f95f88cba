// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which memory a step of a network needs from when to when, and where it lies: buffers that are dead are used again.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/layers/traits.hpp"
#include "lockstep/model/combine.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::model {

inline constexpr std::size_t no_piece = static_cast<std::size_t>(-1);

/// Memory that holds something from one event of a step to another, both included.
struct piece {
    std::size_t bytes = 0;
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t offset = 0;
    bool is_scratch = false;

    [[nodiscard]] constexpr bool overlaps(const piece& other) const noexcept {
        return first <= other.last && other.first <= last;
    }
};

/// Gives every piece an offset, on a cache line; two that are live at once never overlap. The largest first, each at
/// the lowest offset that is free for as long as it lives (greedy by size: Pisarchyk, Lee 2020). Returns the bytes of
/// all. Cost: pieces squared, at start-up. For the networks of models/ that is within a percent of most_live(), and the
/// memory of a process within a tenth (tests/training/memory.cpp).
[[gnu::cold]] std::size_t assign_offsets(std::span<piece> all);

/// The most bytes that are live at one event: no choice of offsets needs less.
[[nodiscard, gnu::cold]] inline std::size_t most_live(std::span<const piece> all) {
    std::size_t events = 0, most = 0;
    for (const piece& one : all) events = std::max(events, one.last + 1);
    std::vector<std::ptrdiff_t> change(events + 1);
    for (const piece& one : all) {
        change[one.first] += static_cast<std::ptrdiff_t>(one.bytes);
        change[one.last + 1] -= static_cast<std::ptrdiff_t>(one.bytes);
    }
    std::ptrdiff_t live = 0;
    for (const std::ptrdiff_t by : change) most = std::max(most, static_cast<std::size_t>(live += by));
    return most;
}

/// What the plan has to know of a node of the flat list. Bytes are those of the most rows that a rank has.
struct memory_node {
    std::span<const std::size_t> reads;  ///< nodes, or `the_samples`
    layer_api::traits traits{};          ///< of the layer: what it needs, and what may be the same memory
    bool learns = false;
    bool redistributes_before = false;
    bool redistributes_after = false;
    bool runs_again = false;  ///< forward, in backward
    std::size_t block =
        0;  ///< number of the recompute that it stands in: nodes with one number are neighbours; 0: none
    std::size_t input =
        0;  ///< of what the layer reads, after the redistribution before it; a join reads each value as it is
    std::size_t output = 0;  ///< of what the layer writes
    std::size_t value = 0;   ///< of what its readers find, after the redistribution after the layer
    std::size_t saved = 0;
    std::size_t scratch = 0;
    std::size_t observed = 0;        ///< partial sums of statistics, forward
    std::size_t observed_again = 0;  ///< those and the sums, which are not needed a second time
    std::size_t partials = 0;        ///< partial sums of gradients, backward
    std::size_t redistribution = 0;  ///< scratch of the redistributions around it
};

/// The pieces of a node, by number; no_piece where it has none.
struct node_memory {
    std::size_t input = no_piece;  ///< after the redistribution before the layer
    std::size_t output = no_piece;
    std::size_t value = no_piece;  ///< `output`, or after the redistribution after the layer
    std::size_t saved = no_piece;
    std::size_t scratch_forward = no_piece;
    std::size_t scratch_backward = no_piece;
    std::size_t observed = no_piece;
    std::size_t partials = no_piece;
    std::size_t redistribution_forward = no_piece;
    std::size_t redistribution_backward = no_piece;
    std::size_t dvalue = no_piece;   ///< the gradient of its value, complete when backward comes to it
    std::size_t doutput = no_piece;  ///< `dvalue`, or after the redistribution after the layer
    std::size_t more =
        no_piece;  ///< what is still to be added to `dvalue`: the layer does, or the one whose value this view is

    /// What backward does for one value that the node reads. The gradient of one from which nothing was learned is not
    /// asked for.
    struct input_gradient {
        std::size_t written = no_piece;  ///< by the layer
        std::size_t given =
            no_piece;  ///< `written`, or before the redistribution before the layer; the gradient of this reader
        std::size_t others = no_piece;  ///< the sum over the readers after it
        std::size_t sum = no_piece;     ///< of both; none where they stay apart
    };
    std::vector<input_gradient> inputs;
};

/// The memory of a step. Event i is the forward run of node i, event n the loss, event 2n - i the backward run of node
/// i. The nodes of a block have a second forward run each before the backward run of the last of them; all that follows
/// moves back.
struct memory_plan {
    std::vector<piece> pieces;
    std::vector<node_memory> nodes;
    std::vector<node_memory> again;  ///< of the second forward run: from `input` to `redistribution_forward`
    std::size_t bytes = 0;
    std::size_t network_gradient = no_piece;  ///< where the loss writes

    [[nodiscard]] std::size_t bytes_without_reuse() const noexcept {
        std::size_t sum = 0;
        for (const piece& one : pieces) sum += one.bytes;
        return sum;
    }
    [[nodiscard]] std::size_t largest_scratch() const noexcept {
        std::size_t most = 0;
        for (const piece& one : pieces) most = std::max(most, one.is_scratch ? one.bytes : 0);
        return most;
    }
};

/// When the nodes run: forward as their numbers say, a second time before the backward run of their block, and
/// backward.
struct step_events {
    std::vector<std::size_t> again, backward;
    [[gnu::cold]] explicit step_events(std::span<const memory_node> nodes);
};

/// Forward keeps of a value what backward or a later reader needs. A layer that may work in place does so where nothing
/// else needs its input any more. The gradient of a value is the sum over its readers, from the last to the first.
/// Throws core::error where all pieces together exceed core::largest_size; for start-up.
[[nodiscard, gnu::cold]] memory_plan plan_memory(std::span<const memory_node> nodes);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::size_t assign_offsets(std::span<piece> all) {
    const auto rounded = [](std::size_t bytes) {
        return (bytes + simd::alignment - 1) / simd::alignment * simd::alignment;
    };
    std::vector<std::size_t> order(all.size()), assigned;
    std::iota(order.begin(), order.end(), std::size_t{0});
    core::sort(order, [&](std::size_t a, std::size_t b) {
        return all[a].bytes != all[b].bytes ? all[a].bytes > all[b].bytes : a < b;
    });
    std::size_t end = 0;
    for (const std::size_t index : order) {
        piece& here = all[index];
        here.offset = 0;
        if (here.bytes == 0) continue;
        for (const std::size_t other : assigned) {  // from the lowest offset on
            if (!here.overlaps(all[other])) continue;
            if (here.offset + here.bytes <= all[other].offset) break;
            here.offset = std::max(here.offset, all[other].offset + rounded(all[other].bytes));
        }
        const auto at = std::find_if(assigned.begin(), assigned.end(),
                                     [&](std::size_t other) { return all[other].offset > here.offset; });
        assigned.insert(at, index);
        end = std::max(end, core::checked_sum("bytes of a step", here.offset, rounded(here.bytes)));
    }
    return end;
}

LOCKSTEP_FUNCTION step_events::step_events(std::span<const memory_node> nodes)
    : again(nodes.size()), backward(nodes.size()) {
    std::size_t event = nodes.size(), from = nodes.size();
    for (std::size_t i = nodes.size(); i-- > 0;) {
        if (i < from && nodes[i].block != 0) {
            for (from = i; from > 0 && nodes[from - 1].block == nodes[i].block;) --from;
            for (std::size_t j = from; j <= i; ++j) again[j] = ++event;
        }
        backward[i] = ++event;
    }
}

LOCKSTEP_FUNCTION memory_plan plan_memory(std::span<const memory_node> nodes) {
    const std::size_t n = nodes.size(), loss = n;
    const step_events events{nodes};
    memory_plan plan;
    plan.nodes = std::vector<node_memory>(n);
    plan.again = std::vector<node_memory>(n);
    const auto make = [&](std::size_t bytes, std::size_t event, bool is_scratch = false) {
        plan.pieces.push_back({.bytes = bytes, .first = event, .last = event, .is_scratch = is_scratch});
        return plan.pieces.size() - 1;
    };
    const auto use = [&](std::size_t which, std::size_t event) {
        if (which != no_piece) plan.pieces[which].last = std::max(plan.pieces[which].last, event);
    };
    // Value n + i is what the second run of node i gives. There it reads the second values of its own block.
    const auto source = [&](std::size_t i, std::size_t value, bool again) {
        return again && value != the_samples && nodes[value].block == nodes[i].block ? n + value : value;
    };
    const auto piece_of = [&](std::size_t value) {
        return value < n ? plan.nodes[value].value : plan.again[value - n].value;
    };

    // Until when each value is needed. A view is the value that it reads.
    std::vector<std::size_t> root(2 * n, the_samples), needed(2 * n, 0);
    const auto is_alias = [&](std::size_t i) {
        return nodes[i].traits.is_view && !nodes[i].redistributes_before && !nodes[i].redistributes_after;
    };
    const auto find_root = [&](std::size_t i, bool again) {
        const std::size_t from = source(i, nodes[i].reads[0], again), own = again ? n + i : i;
        root[own] = !is_alias(i) ? own : from == the_samples ? the_samples : root[from];
    };
    for (std::size_t i = 0; i < n; ++i) find_root(i, false);
    for (std::size_t i = 0; i < n; ++i)
        if (nodes[i].block != 0) find_root(i, true);
    // Of a block, some nodes run again, and of others the redistribution before them: where backward asks for what came
    // out of it.
    const auto reads_again = [&](std::size_t i) {
        const bool gathers =
            nodes[i].redistributes_before && nodes[i].learns && nodes[i].traits.needs_x && !nodes[i].traits.is_view;
        return nodes[i].runs_again || (nodes[i].block != 0 && gathers);
    };
    const auto need = [&](std::size_t value, std::size_t event) {
        if (value != the_samples && root[value] != the_samples)
            needed[root[value]] = std::max(needed[root[value]], event);
    };
    for (std::size_t i = 0; i < n; ++i) {
        if (is_alias(i)) continue;
        const bool in_block = nodes[i].block != 0;
        const bool keeps_x =
            nodes[i].learns && nodes[i].traits.needs_x && !nodes[i].traits.is_view && !nodes[i].redistributes_before;
        for (std::size_t k = 0; k < nodes[i].reads.size(); ++k) {
            const std::size_t value = nodes[i].reads[k];
            need(value, i);
            if (reads_again(i)) need(source(i, value, true), events.again[i]);
            if (keeps_x && !(nodes[i].traits.has_addend && k == 1))
                need(source(i, value, in_block), events.backward[i]);
        }
        if (nodes[i].learns && nodes[i].traits.needs_y && !nodes[i].traits.is_view && !nodes[i].redistributes_after)
            need(in_block ? n + i : i, events.backward[i]);
    }
    need(n - 1, loss);

    const auto run_forward = [&](std::size_t i, bool again) {
        const memory_node& node = nodes[i];
        node_memory& here = again ? plan.again[i] : plan.nodes[i];
        const std::size_t now = again ? events.again[i] : i;
        const bool learns = node.learns && (again || node.block == 0);  // backward looks at this run
        if (node.redistributes_before) {
            here.input = make(node.input, now);
            if (learns && node.traits.needs_x && !node.traits.is_view) use(here.input, events.backward[i]);
        }
        here.redistribution_forward = make(node.redistribution, now, true);
        if (again && !node.runs_again) return;
        if (node.traits.is_view) {
            const std::size_t from = source(i, node.reads[0], again);
            here.output = node.redistributes_before ? here.input : from == the_samples ? no_piece : piece_of(from);
        }
        // The piece of a value whose last use is this one can take the output.
        if (node.traits.in_place && !node.traits.is_view && !node.redistributes_before && !node.redistributes_after)
            for (std::size_t k = node.reads.size(); k-- > 0 && here.output == no_piece;) {
                const std::size_t value = source(i, node.reads[k], again);
                if (value == the_samples || root[value] == the_samples || nodes[value % n].value != node.output)
                    continue;
                if (plan.pieces[piece_of(value)].last == now) here.output = piece_of(value);
            }
        if (here.output == no_piece && !node.traits.is_view) here.output = make(node.output, now);
        here.value = here.output;
        if (node.redistributes_after) {
            if (learns && node.traits.needs_y && !node.traits.is_view) use(here.output, events.backward[i]);
            here.value = make(node.value, now);
        }
        use(here.value, needed[again ? n + i : i]);
        if (node.traits.is_view) return;
        here.saved = make(node.saved, now);
        if (learns) use(here.saved, events.backward[i]);
        here.scratch_forward = make(node.scratch, now, true);
        here.observed = make(again ? node.observed_again : node.observed, now, true);
    };
    for (std::size_t i = 0; i < n; ++i) run_forward(i, false);
    // Blocks from the last to the first, each from its first node to its last: as they run.
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < n; ++i)
        if (reads_again(i)) order.push_back(i);
    core::sort(order, [&](std::size_t a, std::size_t b) { return events.again[a] < events.again[b]; });
    for (const std::size_t i : order) run_forward(i, true);

    // gradient[v]: the piece with the sum of what the readers of v have given so far; more[v]: what the layer that
    // wrote v adds to it.
    std::vector<std::size_t> gradient(n, no_piece), more(n, no_piece), readers(n, 0);
    for (const memory_node& node : nodes)
        for (const std::size_t value : node.reads)
            if (value != the_samples) ++readers[value];
    auto left = readers;
    const auto adds_up = [&](std::size_t value) {
        while (is_alias(value) && nodes[value].reads[0] != the_samples && readers[nodes[value].reads[0]] == 1)
            value = nodes[value].reads[0];
        return nodes[value].traits.sums_gradient && !nodes[value].redistributes_after;
    };
    const auto is_read_by_others = [&](std::size_t which) {
        return std::find(gradient.begin(), gradient.end(), which) != gradient.end() ||
               std::find(more.begin(), more.end(), which) != more.end();
    };
    gradient[n - 1] = plan.network_gradient = make(nodes[n - 1].value, loss);
    for (std::size_t i = n; i-- > 0;) {
        const memory_node& node = nodes[i];
        node_memory& here = plan.nodes[i];
        const std::size_t now = events.backward[i];
        here.inputs.resize(node.reads.size());
        here.dvalue = here.doutput = gradient[i];
        here.more = more[i];
        gradient[i] = more[i] = no_piece;
        if (!node.learns) continue;
        use(here.dvalue, now);
        use(here.more, now);
        if (node.redistributes_after) here.doutput = make(node.output, now);
        here.redistribution_backward = make(node.redistribution, now, true);
        if (!node.traits.is_view) {
            here.scratch_backward = make(node.scratch, now, true);
            here.partials = make(node.partials, now, true);
        }
        for (std::size_t k = 0; k < node.reads.size(); ++k) {
            const std::size_t value = node.reads[k];
            auto& to = here.inputs[k];
            const bool is_addend = node.traits.has_addend && k == 1;
            const bool is_asked_for = value != the_samples && nodes[value].learns;
            if (!is_asked_for && !is_addend) continue;
            const bool passes = node.traits.is_view || node.traits.passes_gradient;
            // Each value has a size of its own: the paths of a concatenation are of different widths.
            const std::size_t bytes = is_addend                   ? node.output
                                      : node.redistributes_before ? node.input
                                                                  : nodes[value].value;
            // Others may still have to read the gradient of this value: paths that end in the same sum. So may this
            // node, after the layer has run: it adds what came from others to the gradient of an input before this one.
            const bool is_added = std::any_of(here.inputs.begin(), here.inputs.begin() + static_cast<std::ptrdiff_t>(k),
                                              [&](const auto& before) { return before.others == here.dvalue; });
            const bool in_place = node.traits.in_place && here.dvalue != here.more && !is_read_by_others(here.dvalue) &&
                                  !is_added && !node.redistributes_before && !node.redistributes_after &&
                                  bytes == node.output && (node.traits.has_addend ? is_addend : k == 0);
            to.written = passes || in_place ? here.doutput : make(bytes, now);
            if (!is_asked_for) continue;
            to.given = node.redistributes_before ? make(nodes[value].value, now) : to.written;
            to.others = gradient[value];
            use(to.others, now);
            if (node.traits.is_view) more[value] = here.more;
            if (--left[value] == 0 && to.others != no_piece && adds_up(value)) {
                more[value] = to.given;
                continue;
            }
            to.sum = passes && to.others != no_piece ? make(nodes[value].value, now) : to.given;
            gradient[value] = to.sum;
        }
    }
    plan.bytes = assign_offsets(plan.pieces);
    return plan;
}

#endif

}  // namespace lockstep::model
