// SPDX-License-Identifier: BSD-3-Clause
// Steps of random networks on the memory that is planned for them. The simulation knows what layers, redistributions
// and sums read and write, and nothing of how the plan comes about: every read finds what was written for it, of at
// least its size, within the life of its piece.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/core/text.hpp"
#include "lockstep/model/memory_plan.hpp"
#include "unit/model/random_nodes.hpp"

namespace {

namespace ls = lockstep;
using ls::model::no_piece;
using ls::model::piece;
using ls::model::the_samples;

/// What there was to see, over all networks.
struct counters {
    std::size_t reused = 0, in_place = 0, in_two_parts = 0, added = 0, again = 0, gathered = 0, wider_paths = 0;
};

class simulation {
public:
    simulation(const support::random_network& net, const ls::model::memory_plan& plan, counters& seen)
        : net_{net},
          plan_{plan},
          seen_{seen},
          n_{net.nodes.size()},
          lines_(plan.bytes / line),
          x_(n_),
          y_(n_),
          value_(n_),
          saved_(n_),
          dvalue_(n_) {}

    void run() {
        for (event_ = 0; event_ < n_; ++event_) forward(event_, plan_.nodes[event_]);
        // The loss.
        const std::size_t bytes = net_.nodes[n_ - 1].value;
        read(value_[n_ - 1], bytes, "the output");
        const array dy = write(plan_.network_gradient, bytes, "the gradient of the loss");
        read(value_[n_ - 1], bytes, "the output, beside its gradient");
        dvalue_[n_ - 1] = {{dy}, 1};
        for (std::size_t i = n_; i-- > 0;) {
            const std::size_t block = net_.nodes[i].block;
            if (block != 0 && (i + 1 == n_ || net_.nodes[i + 1].block != block)) run_again(block);
            ++event_;
            if (net_.nodes[i].learns) backward(i);
        }
    }

private:
    static constexpr std::size_t line = ls::simd::alignment;

    /// Content and where it lies. Samples, and what has no piece, lie nowhere.
    struct array {
        std::size_t where = no_piece;
        int token = 0;
    };
    /// The gradient of a value: the sum of one or two arrays, and from how many readers it has come.
    struct gradient {
        std::vector<array> parts;
        std::size_t readers = 0;
    };

    [[noreturn]] void fail(const std::string& what) const {
        throw std::runtime_error(ls::core::text("event ", event_, ": ", what));
    }
    void require(bool holds, const char* what) const {
        if (!holds) fail(what);
    }
    const piece& access(std::size_t which, std::size_t bytes, const char* what) const {
        const piece& at = plan_.pieces[which];
        if (at.bytes < bytes) fail(ls::core::text(what, " takes ", bytes, " bytes and has ", at.bytes));
        if (event_ < at.first || event_ > at.last)
            fail(ls::core::text(what, " lives from ", at.first, " to ", at.last));
        return at;
    }
    array write(std::size_t which, std::size_t bytes, const char* what) {
        if (bytes == 0) return {};
        if (which == no_piece) fail(ls::core::text(what, " has no memory"));
        const piece& at = access(which, bytes, what);
        ++token_;
        for (std::size_t i = at.offset / line; i * line < at.offset + bytes; ++i) lines_[i] = token_;
        return {which, token_};
    }
    void read(const array& from, std::size_t bytes, const char* what) const {
        if (from.where == no_piece || bytes == 0) return;
        const piece& at = access(from.where, bytes, what);
        for (std::size_t i = at.offset / line; i * line < at.offset + bytes; ++i)
            if (lines_[i] != from.token) fail(ls::core::text(what, " was overwritten"));
    }
    [[nodiscard]] array value(std::size_t of) const { return of == the_samples ? array{} : value_[of]; }
    [[nodiscard]] std::size_t size_of(std::size_t of) const { return of == the_samples ? 0 : net_.nodes[of].value; }

    /// The redistribution before a layer: `from` stays as it is.
    array redistribute_input(std::size_t i, const ls::model::node_memory& memory, const array& from) {
        const array buffer =
            write(memory.redistribution_forward, net_.nodes[i].redistribution, "the buffer of a redistribution");
        const array to = write(memory.input, net_.nodes[i].input, "the redistributed input");
        read(from, size_of(net_.reads[i][0]), "what is redistributed");
        read(buffer, net_.nodes[i].redistribution, "the buffer of a redistribution");
        return to;
    }

    void forward(std::size_t i, const ls::model::node_memory& memory) {
        const auto& node = net_.nodes[i];
        const auto& reads = net_.reads[i];
        const auto read_all = [&](const char* what, std::size_t but = no_piece) {
            if (node.redistributes_before) return read(x_[i], node.input, what);
            for (const std::size_t from : reads)
                if (but == no_piece || value(from).where != but) read(value(from), size_of(from), what);
        };
        for (const std::size_t from : reads) read(value(from), size_of(from), "an input");
        x_[i] = value(reads[0]);
        if (node.redistributes_before) x_[i] = redistribute_input(i, memory, x_[i]);
        y_[i] = x_[i];
        if (!node.traits.is_view) {
            const std::size_t sums = &memory == &plan_.nodes[i] ? node.observed : node.observed_again;
            const array scratch = write(memory.scratch_forward, node.scratch, "scratch");
            const array observed = write(memory.observed, sums, "statistics");
            saved_[i] = write(memory.saved, node.saved, "what forward saves");
            read_all("an input, beside scratch");
            y_[i] = write(memory.output, node.output, "the output");
            // The output may lie in one of the inputs of a layer that works in place.
            std::size_t taken = no_piece;
            for (const std::size_t from : reads)
                if (node.traits.in_place && value(from).where == y_[i].where && size_of(from) == node.output)
                    taken = y_[i].where;
            seen_.in_place += taken != no_piece;
            read_all("an input, beside the output", taken);
            read(scratch, node.scratch, "scratch");
            read(observed, sums, "statistics");
            read(saved_[i], node.saved, "what forward saves");
        }
        value_[i] = y_[i];
        if (!node.redistributes_after) return;
        const array buffer =
            write(memory.redistribution_forward, node.redistribution, "the buffer of a redistribution");
        read(y_[i], node.output, "the output, before its redistribution");
        value_[i] = write(memory.value, node.value, "the redistributed output");
        read(y_[i], node.output, "the output, beside the redistributed one");
        read(buffer, node.redistribution, "the buffer of a redistribution");
    }

    void run_again(std::size_t block) {
        for (std::size_t i = 0; i < n_; ++i) {
            if (net_.nodes[i].block != block) continue;
            ++event_;
            if (net_.nodes[i].runs_again) {
                forward(i, plan_.again[i]);
                ++seen_.again;
                continue;
            }
            x_[i] = value(net_.reads[i][0]);
            if (!net_.nodes[i].redistributes_before || plan_.again[i].input == no_piece) continue;
            read(x_[i], size_of(net_.reads[i][0]), "the input of a redistribution");
            x_[i] = redistribute_input(i, plan_.again[i], x_[i]);
            ++seen_.gathered;
        }
    }

    void backward(std::size_t i) {
        const auto& node = net_.nodes[i];
        const auto& memory = plan_.nodes[i];
        std::size_t readers = i + 1 == n_ ? 1 : 0;
        for (const auto& from : net_.reads)
            readers += static_cast<std::size_t>(std::count(from.begin(), from.end(), i));
        // Every reader has given its part, and two arrays are left to those who add them.
        const gradient whole = dvalue_[i];
        require(whole.readers == readers && !whole.parts.empty(), "a gradient is not complete");
        const bool in_two = whole.parts.size() == 2;
        require(whole.parts.size() < 3 && memory.dvalue == whole.parts[0].where, "a gradient lies elsewhere");
        require(memory.more == (in_two ? whole.parts[1].where : no_piece),
                "the second part of a gradient lies elsewhere");
        require(!in_two || !node.redistributes_after, "a gradient in two parts is redistributed");
        require(!in_two || node.traits.sums_gradient || (node.traits.is_view && !node.redistributes_before),
                "the parts of a gradient are never added");
        seen_.in_two_parts += in_two;
        const array more = in_two ? whole.parts[1] : array{};
        array dy = whole.parts[0];
        read(dy, node.value, "a gradient");
        read(more, node.value, "the second part of a gradient");
        if (node.redistributes_after) {
            const array buffer =
                write(memory.redistribution_backward, node.redistribution, "the buffer of a redistribution");
            read(dy, node.value, "a gradient, before its redistribution");
            dy = write(memory.doutput, node.output, "the redistributed gradient");
            read(buffer, node.redistribution, "the buffer of a redistribution");
        }
        require(memory.doutput == dy.where, "a layer finds its gradient elsewhere");
        const bool passes = node.traits.is_view || node.traits.passes_gradient;
        const std::size_t inputs = net_.reads[i].size();
        std::vector<array> dx(inputs);
        for (std::size_t k = 0; k < inputs && passes; ++k)
            if (is_asked_for(i, k)) dx[k] = {memory.inputs[k].written, dy.token};
        if (!passes) dx = run_backward(i, dy, more);
        for (std::size_t k = 0; k < inputs; ++k) {
            if (!is_asked_for(i, k)) continue;
            const auto& to = memory.inputs[k];
            const std::size_t from = net_.reads[i][k];
            array given = dx[k];
            if (node.redistributes_before) {
                const array buffer =
                    write(memory.redistribution_backward, node.redistribution, "the buffer of a redistribution");
                read(given, node.input, "a gradient, before its redistribution");
                given = write(to.given, node_size(from), "the gradient before a redistribution");
                read(buffer, node.redistribution, "the buffer of a redistribution");
                // Sums are made in the memory of what is redistributed.
                if (!node.traits.is_view) (void)write(to.written, node.input, "a gradient that is used up");
            }
            require(to.given == given.where, "the gradient of an input lies elsewhere");
            read(given, node_size(from), "the gradient of an input");
            add(from, given, to);
            if (node.traits.is_view && in_two) dvalue_[from].parts.push_back(more);
        }
    }

    [[nodiscard]] std::size_t node_size(std::size_t of) const { return net_.nodes[of].value; }
    [[nodiscard]] bool is_asked_for(std::size_t i, std::size_t k) const {
        const std::size_t from = net_.reads[i][k];
        return from != the_samples && net_.nodes[from].learns;
    }

    /// A layer that computes: what it is asked for, from all that backward may read.
    std::vector<array> run_backward(std::size_t i, const array& dy, const array& more) {
        const auto& node = net_.nodes[i];
        const auto& memory = plan_.nodes[i];
        const std::size_t inputs = net_.reads[i].size();
        const bool is_join = inputs > 1 && !node.traits.has_addend;
        const array scratch = write(memory.scratch_backward, node.scratch, "scratch of backward");
        const array partials = write(memory.partials, node.partials, "partial sums");
        const auto read_operands = [&](const char* when) {
            if (node.traits.needs_x && !is_join)
                read(x_[i], node.redistributes_before ? node.input : size_of(net_.reads[i][0]), "x in backward");
            for (std::size_t k = 0; node.traits.needs_x && is_join && k < inputs; ++k)
                read(value(net_.reads[i][k]), size_of(net_.reads[i][k]), "an x of a join in backward");
            if (node.traits.needs_y) read(y_[i], node.output, "y in backward");
            read(saved_[i], node.saved, when);
            read(scratch, node.scratch, "scratch of backward");
            read(partials, node.partials, "partial sums");
            read(more, node.value, "the second part of a gradient");
        };
        read(dy, node.output, "dy");
        read_operands("what forward saved");
        std::vector<array> dx(inputs);
        std::vector<std::size_t> bytes(inputs);
        bool in_place = false;
        for (std::size_t k = 0; k < inputs; ++k) {
            const bool is_addend = node.traits.has_addend && k == 1;
            if (!is_asked_for(i, k) && !is_addend) continue;
            bytes[k] = is_addend ? node.output : node.redistributes_before ? node.input : node_size(net_.reads[i][k]);
            seen_.wider_paths += is_join && bytes[k] > size_of(net_.reads[i][0]);
            const bool takes_dy = memory.inputs[k].written == dy.where;
            require(!takes_dy || (node.traits.in_place && !in_place && node.traits.has_addend == is_addend &&
                                  bytes[k] == node.output),
                    "a gradient is written over that of the output");
            in_place = in_place || takes_dy;
            dx[k] = write(memory.inputs[k].written, bytes[k], "the gradient of an input");
        }
        for (std::size_t k = 0; k < inputs; ++k) read(dx[k], bytes[k], "the gradient of an input, beside others");
        if (!in_place) read(dy, node.output, "dy, beside what is written");
        read_operands("what forward saved, beside gradients");
        return dx;
    }

    /// One more reader of a value has given its gradient.
    void add(std::size_t from, const array& given, const ls::model::node_memory::input_gradient& to) {
        gradient& so_far = dvalue_[from];
        ++so_far.readers;
        if (so_far.parts.empty()) {
            require(to.others == no_piece, "a gradient is added to one that is not there");
            so_far.parts = {given};
            return;
        }
        require(so_far.parts.size() == 1 && to.others == so_far.parts[0].where, "a gradient is added to another one");
        read(so_far.parts[0], node_size(from), "the gradients of other readers");
        if (to.sum == no_piece) {
            so_far.parts.push_back(given);
            return;
        }
        so_far.parts = {write(to.sum, node_size(from), "the sum of gradients")};
        ++seen_.added;
    }

    const support::random_network& net_;
    const ls::model::memory_plan& plan_;
    counters& seen_;
    std::size_t n_;
    std::vector<int> lines_;                    ///< what each cache line holds
    std::vector<array> x_, y_, value_, saved_;  ///< of each node: what it read, wrote, gives its readers, and keeps
    std::vector<gradient> dvalue_;              ///< the gradient of each value so far
    std::size_t event_ = 0;
    int token_ = 0;
};

/// The most bytes of pieces that live at one event.
std::size_t most_at_once(const std::vector<piece>& all) {
    std::size_t most = 0;
    for (const piece& at : all) {
        std::size_t live = 0;
        for (const piece& other : all) live += other.first <= at.first && at.first <= other.last ? other.bytes : 0;
        most = std::max(most, live);
    }
    return most;
}

/// The first thing that is wrong with a placement, or nothing.
std::string fault_of(const ls::model::memory_plan& plan) {
    const auto& all = plan.pieces;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].offset % ls::simd::alignment != 0) return "a piece begins in the middle of a line";
        if (all[i].offset + all[i].bytes > plan.bytes) return "a piece ends beyond the memory";
        for (std::size_t j = 0; j < i; ++j) {
            const bool at_once =
                all[i].first <= all[j].last && all[j].first <= all[i].last && all[i].bytes > 0 && all[j].bytes > 0;
            if (at_once && all[i].offset < all[j].offset + all[j].bytes && all[j].offset < all[i].offset + all[i].bytes)
                return "two pieces that live at once overlap";
        }
    }
    if (plan.bytes < most_at_once(all)) return "the memory is smaller than what lives at once";
    return "";
}

/// Runs so many networks; the text says what is wrong with the first that fails.
std::string first_failure(std::uint32_t networks, bool with_blocks, counters& seen) {
    for (std::uint32_t series = 0; series < networks; ++series) {
        const support::random_network net{series, with_blocks};
        const auto plan = ls::model::plan_memory(net.nodes);
        seen.reused += plan.bytes < plan.bytes_without_reuse();
        if (const std::string fault = fault_of(plan); !fault.empty())
            return ls::core::text("network ", series, ": ", fault);
        try {
            simulation{net, plan, seen}.run();
        } catch (const std::runtime_error& failure) {
            return ls::core::text("network ", series, ", ", failure.what());
        }
    }
    return "";
}

}  // namespace

TEST_CASE("model/memory_simulation: every read of a step finds what was written for it, in 50000 random networks",
          "[model]") {
    counters seen;
    CHECK(first_failure(50000, false, seen) == "");
    CHECK(seen.reused > 25000);
    CHECK(seen.in_place > 10000);
    CHECK(seen.in_two_parts > 2000);
    CHECK(seen.added > 10000);
    CHECK(seen.wider_paths > 2000);
}

TEST_CASE("model/memory_simulation: the same in 50000 random networks of which parts run again", "[model]") {
    counters seen;
    CHECK(first_failure(50000, true, seen) == "");
    CHECK(seen.again > 10000);
    CHECK(seen.gathered > 200);
    CHECK(seen.in_place > 10000);
    CHECK(seen.added > 10000);
    CHECK(seen.wider_paths > 2000);
}
