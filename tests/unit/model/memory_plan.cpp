// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/memory_plan.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/core/random.hpp"

namespace ls = lockstep;
using ls::model::memory_node;
using ls::model::no_piece;
using ls::model::piece;
using ls::model::the_samples;

namespace {

/// Whole numbers below a bound, one after the other.
struct dice {
    ls::core::random_stream random;
    std::uint64_t at = 0;
    explicit dice(std::uint32_t series) : random{17, ls::core::purpose::user, series} {}
    std::size_t operator()(std::size_t below) { return random.word(at++) % below; }
};

void check_placement(const std::vector<piece>& all, std::size_t bytes) {
    for (std::size_t i = 0; i < all.size(); ++i) {
        REQUIRE(all[i].offset % ls::simd::alignment == 0);
        REQUIRE(all[i].offset + all[i].bytes <= bytes);
        for (std::size_t j = 0; j < i; ++j) {
            const bool apart = all[i].offset + all[i].bytes <= all[j].offset || all[j].offset + all[j].bytes <= all[i].offset;
            if (all[i].meets(all[j]) && all[i].bytes > 0 && all[j].bytes > 0) REQUIRE(apart);
        }
    }
}

/// A random network: plain stretches, values with several readers, views, sums, concatenations, and any flags.
struct random_network {
    std::vector<std::vector<std::size_t>> reads;
    std::vector<memory_node> nodes;

    explicit random_network(std::uint32_t series, bool with_blocks = false) {
        dice roll{series};
        const std::size_t n = 1 + roll(14);
        std::vector<bool> read(n);
        reads.resize(n);
        nodes.resize(n);
        for (std::size_t i = 0; i < n; ++i) {
            const auto any = [&] { return i == 0 || roll(8) == 0 ? the_samples : roll(2) == 0 ? i - 1 : roll(i); };
            auto& node = nodes[i];
            node.output = 64 * (1 + roll(6));
            reads[i] = {i == 0 ? the_samples : roll(3) == 0 ? any() : i - 1};
            const std::size_t kind = roll(6);
            const auto size_of = [&](std::size_t value) { return value == the_samples ? std::size_t{128} : nodes[value].value; };
            if (kind == 0) {
                node.is_view = true;
            } else if (kind < 3) {
                for (std::size_t more = 1 + roll(2); more > 0; --more) reads[i].push_back(any());
                node.passes_gradient = kind == 1;
                node.needs_x = node.needs_y = false;
                node.in_place = kind == 1;
                if (kind == 1)  // a sum is of values of one size
                    for (auto& value : reads[i])
                        if (size_of(value) != size_of(reads[i][0])) value = reads[i][0];
            } else {
                node.needs_x = roll(2) == 0;
                node.needs_y = roll(2) == 0;
                node.in_place = roll(2) == 0;
                node.stash = 64 * roll(2);
                node.scratch = 64 * roll(5);
                node.partials = 64 * roll(3);
                node.sums_gradient = roll(2) == 0;
                node.observed = 64 * roll(2);
                // A second value of the size of the output.
                const std::size_t addend = any();
                if (roll(4) == 0 && addend != reads[i][0]) {
                    reads[i].push_back(addend);
                    node.has_addend = true;
                    node.output = size_of(addend);
                }
            }
            const std::size_t from = size_of(reads[i][0]);
            if (node.is_view || node.passes_gradient || (node.in_place && !node.has_addend && roll(2) == 0)) node.output = from;
            if (node.has_addend && from != node.output) node.in_place = false;
            node.exchanges_in_front = reads[i].size() == 1 && roll(8) == 0;
            node.exchanges_behind = !node.has_addend && roll(8) == 0;
            node.exchange = node.exchanges_in_front || node.exchanges_behind ? 64 : 0;
            node.input = node.exchanges_in_front && !node.is_view ? 64 * (1 + roll(6)) : from;
            node.value = node.exchanges_behind ? 64 * (1 + roll(6)) : node.output;
            node.learns = kind > 3 && roll(3) == 0;
            for (const std::size_t value : reads[i]) {
                if (value == the_samples) continue;
                read[value] = true;
                node.learns = node.learns || nodes[value].learns;
            }
        }
        // Values that nobody reads are no values of a network: the last node reads all of them.
        auto& last = nodes[n - 1];
        if (std::count(read.begin(), read.end() - 1, false) > 0) {
            last = {.reads = {}, .needs_x = false, .needs_y = false, .output = 256, .value = 256};
            for (std::size_t i = 0; i + 1 < n; ++i)
                if (!read[i]) reads[n - 1].push_back(i);
            for (const std::size_t value : reads[n - 1]) last.learns = last.learns || (value != the_samples && nodes[value].learns);
        }
        for (std::size_t i = 0; i < n; ++i) nodes[i].reads = reads[i];
        std::size_t count = 0;
        for (std::size_t first = 0; with_blocks && first < n; ++first)
            for (std::size_t end = n; end > first; --end) {
                if (!is_block(first, end) || roll(3) == 0) continue;
                for (++count; first < end; ++first) nodes[first].block = count;
                run_again(end, roll);
                break;
            }
    }

private:
    /// Nodes first .. end - 1 read one value of others at most, and others read the value of the last one at most.
    [[nodiscard]] bool is_block(std::size_t first, std::size_t end) const {
        std::vector<std::size_t> outside;
        for (std::size_t i = 0; i < nodes.size(); ++i)
            for (const std::size_t value : reads[i]) {
                const bool reader = i >= first && i < end, inside = value != the_samples && value >= first && value < end;
                if (reader && !inside && std::count(outside.begin(), outside.end(), value) == 0) outside.push_back(value);
                if (!reader && inside && value + 1 != end) return false;
            }
        return outside.size() <= 1;
    }
    /// Those of the block in front of `end` that backward needs, and some more.
    void run_again(std::size_t end, dice& roll) {
        const auto block = nodes[end - 1].block;
        for (std::size_t i = end; i-- > 0 && nodes[i].block == block;) {
            auto& node = nodes[i];
            const bool keeps = node.learns && !node.is_view;
            node.runs_again = node.runs_again || (keeps && (node.needs_y || node.stash > 0)) || (!node.is_view && roll(8) == 0);
            if (node.runs_again || (keeps && node.needs_x))
                for (std::size_t k = 0; k < (node.runs_again ? reads[i].size() : 1); ++k)
                    if (const std::size_t value = reads[i][k]; value != the_samples && nodes[value].block == block)
                        nodes[value].runs_again = true;
        }
    }
};

/// Runs a plan on memory in which each byte remembers who wrote it last: every read has to find what its writer left there.
class machine {
public:
    /// Nodes of which nothing but the exchange in front ran again.
    [[nodiscard]] std::size_t gathered() const { return gathered_; }
    /// Layers that have added up two parts of a gradient.
    [[nodiscard]] std::size_t added_up() const { return added_up_; }

    machine(const random_network& net, const ls::model::memory_plan& plan) : net_{net}, plan_{plan}, memory_(plan.bytes) {}

    void run() {
        const std::size_t n = net_.nodes.size();
        value_.resize(n);
        where_.resize(n, no_piece);
        input_.resize(n);
        input_where_.resize(n, no_piece);
        output_.resize(n);
        stash_.resize(n);
        for (std::size_t i = 0; i < n; ++i) forward(i, plan_.nodes[i]);
        read(plan_.nodes[n - 1].value, value_[n - 1]);
        gradients_.resize(n);
        gradients_[n - 1] = {plan_.network_gradient, ++token_, 1};
        write(plan_.network_gradient, token_);
        for (std::size_t i = n; i-- > 0;) {
            const std::size_t block = net_.nodes[i].block;
            if (block != 0 && (i + 1 == n || net_.nodes[i + 1].block != block)) forward_again(block);
            if (net_.nodes[i].learns) backward(i);
        }
    }

private:
    void write(std::size_t which, int what) {
        if (which == no_piece) return;
        const piece& at = plan_.pieces[which];
        std::fill_n(memory_.begin() + static_cast<std::ptrdiff_t>(at.offset), at.bytes, what);
    }
    void read(std::size_t which, int what) {
        if (which == no_piece || what == 0) return;
        const piece& at = plan_.pieces[which];
        const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(at.offset);
        REQUIRE(std::count(begin, begin + static_cast<std::ptrdiff_t>(at.bytes), what) == static_cast<std::ptrdiff_t>(at.bytes));
    }
    [[nodiscard]] std::size_t place_of(std::size_t value) const { return value == the_samples ? no_piece : where_[value]; }

    void forward_again(std::size_t block) {
        for (std::size_t i = 0; i < net_.nodes.size(); ++i) {
            if (net_.nodes[i].block != block) continue;
            if (net_.nodes[i].runs_again) {
                forward(i, plan_.again[i]);
                continue;
            }
            const std::size_t value = net_.reads[i][0];
            input_[i] = value == the_samples ? 0 : value_[value];
            input_where_[i] = place_of(value);
            if (plan_.again[i].input == no_piece) continue;
            read(input_where_[i], input_[i]);
            write(plan_.again[i].exchange_forward, ++token_);
            write(plan_.again[i].input, input_[i] = ++token_);
            gathered_ += 1;
        }
    }

    void forward(std::size_t i, const ls::model::node_memory& memory) {
        const auto& node = net_.nodes[i];
        for (const std::size_t value : node.reads) read(place_of(value), value == the_samples ? 0 : value_[value]);
        input_[i] = node.reads[0] == the_samples ? 0 : value_[node.reads[0]];
        input_where_[i] = place_of(node.reads[0]);
        if (node.exchanges_in_front) {
            write(memory.exchange_forward, ++token_);
            write(memory.input, input_[i] = ++token_);
        }
        if (node.is_view) {
            output_[i] = input_[i];
        } else {
            write(memory.scratch_forward, ++token_);
            write(memory.observed, ++token_);
            // While a layer runs, its operands and all its scratch are there together.
            for (const std::size_t value : node.reads)
                if (!node.exchanges_in_front) read(place_of(value), value == the_samples ? 0 : value_[value]);
            if (node.exchanges_in_front) read(memory.input, input_[i]);
            read(memory.scratch_forward, token_ - 1);
            read(memory.observed, token_);
            const int scratch = token_ - 1;
            write(memory.stash, stash_[i] = ++token_);
            write(memory.output, output_[i] = ++token_);
            read(memory.scratch_forward, scratch);
            read(memory.stash, stash_[i]);
        }
        where_[i] = memory.value;
        value_[i] = output_[i];
        if (node.exchanges_behind) {
            write(memory.exchange_forward, ++token_);
            if (!(node.is_view && node.reads[0] == the_samples)) read(memory.output, output_[i]);
            write(memory.value, value_[i] = ++token_);
        }
    }

    void backward(std::size_t i) {
        const auto& node = net_.nodes[i];
        const auto& memory = plan_.nodes[i];
        // The gradient is complete: every reader has given its part.
        std::size_t parts = i + 1 == net_.nodes.size() ? 1 : 0;
        for (const auto& from : net_.reads) parts += static_cast<std::size_t>(std::count(from.begin(), from.end(), i));
        REQUIRE(gradients_[i].parts == parts);
        REQUIRE(gradients_[i].where == memory.dvalue);
        int dy = gradients_[i].token;
        read(memory.dvalue, dy);
        REQUIRE(gradients_[i].more == memory.more);
        read(memory.more, gradients_[i].more_token);
        if (memory.more != no_piece) REQUIRE((node.is_view || node.sums_gradient));
        if (memory.more != no_piece) REQUIRE_FALSE((node.exchanges_behind || (node.is_view && node.exchanges_in_front)));
        if (node.exchanges_behind) {
            write(memory.exchange_backward, ++token_);
            write(memory.doutput, dy = ++token_);
        }
        if (!node.is_view) {
            const int scratch = ++token_, partials = ++token_;
            write(memory.scratch_backward, scratch);
            write(memory.partials, partials);
            if (!node.passes_gradient && (node.reads.size() == 1 || node.has_addend)) {
                const auto& kept = node.block != 0 ? plan_.again[i] : memory;
                if (node.needs_x && node.exchanges_in_front) {
                    REQUIRE(kept.input != no_piece);
                    read(kept.input, input_[i]);
                } else if (node.needs_x) {
                    read(input_where_[i], input_[i]);
                }
                if (node.needs_y) REQUIRE(kept.output != no_piece);
                if (node.needs_y) read(kept.output, output_[i]);
                if (node.stash > 0) REQUIRE(kept.stash != no_piece);
                read(kept.stash, stash_[i]);
            }
            read(memory.doutput, dy);
            read(memory.more, gradients_[i].more_token);
            added_up_ += memory.more != no_piece;
            read(memory.scratch_backward, scratch);
            read(memory.partials, partials);
        }
        // A layer writes the gradients of all its inputs before anything is added.
        std::vector<int> given(node.reads.size());
        for (std::size_t k = 0; k < node.reads.size(); ++k) {
            const std::size_t value = node.reads[k];
            const auto& to = memory.inputs[k];
            REQUIRE((to.sum == no_piece && to.others == no_piece) == (value == the_samples || !net_.nodes[value].learns));
            if (node.has_addend && k == 1) REQUIRE(to.written != no_piece);
            if (to.written == no_piece) continue;
            given[k] = ++token_;
            if (node.is_view || node.passes_gradient) {
                read(to.written, dy);
                given[k] = dy;
            } else {
                if (to.written != memory.doutput) read(memory.doutput, dy);
                if (memory.more != no_piece) REQUIRE(to.written != memory.more);
                if (to.written != memory.doutput) read(memory.more, gradients_[i].more_token);
                write(to.written, given[k]);
            }
            if (node.exchanges_in_front) {
                write(memory.exchange_backward, ++token_);
                read(to.written, given[k]);
                write(to.given, given[k] = ++token_);
            }
        }
        for (std::size_t k = 0; k < node.reads.size(); ++k) {
            const auto& to = memory.inputs[k];
            if (to.sum == no_piece && to.others == no_piece) continue;
            auto& so_far = gradients_[node.reads[k]];
            REQUIRE(so_far.where == to.others);
            read(to.given, given[k]);
            read(to.others, so_far.token);
            ++so_far.parts;
            if (to.sum == no_piece) {
                so_far.more = to.given;
                so_far.more_token = given[k];
                continue;
            }
            if (to.others != no_piece) write(to.sum, given[k] = ++token_);
            so_far.where = to.sum;
            so_far.token = given[k];
            if (!node.is_view) continue;
            so_far.more = memory.more;
            so_far.more_token = gradients_[i].more_token;
        }
    }

    struct gradient {
        std::size_t where = no_piece;
        int token = 0;
        std::size_t parts = 0;
        std::size_t more = no_piece;
        int more_token = 0;
    };

    const random_network& net_;
    const ls::model::memory_plan& plan_;
    std::vector<int> memory_;
    std::vector<int> value_, input_, output_, stash_;
    std::vector<std::size_t> where_, input_where_;
    std::vector<gradient> gradients_;
    int token_ = 0;
    std::size_t gathered_ = 0;
    std::size_t added_up_ = 0;
};

}  // namespace

TEST_CASE("model/memory_plan: pieces that are live at once never overlap, and little is lost", "[model]") {
    std::size_t placed = 0, least = 0;
    for (std::uint32_t series = 0; series < 400; ++series) {
        dice roll{series};
        std::vector<piece> all(roll(30));
        for (auto& one : all) {
            one.bytes = roll(4) == 0 ? roll(3) : 1 + roll(5000);
            one.first = roll(20);
            one.last = one.first + roll(10);
        }
        const std::size_t bytes = ls::model::place_pieces(all);
        check_placement(all, bytes);
        // The least that any placement needs, with every piece on cache lines.
        auto rounded = all;
        for (auto& one : rounded) one.bytes = (one.bytes + ls::simd::alignment - 1) / ls::simd::alignment * ls::simd::alignment;
        std::size_t most = 0;
        for (std::size_t event = 0; event < 30; ++event) {
            std::size_t live = 0;
            for (const auto& one : rounded) live += one.first <= event && event <= one.last ? one.bytes : 0;
            most = std::max(most, live);
        }
        CHECK(ls::model::most_live(rounded) == most);
        CHECK(bytes >= most);
        placed += bytes;
        least += most;
    }
    CHECK(placed < least + least / 10);
}

TEST_CASE("model/memory_plan: every read of a step finds what was written for it, in random networks", "[model]") {
    std::size_t reused = 0, addends = 0, added_up = 0;
    for (std::uint32_t series = 0; series < 2000; ++series) {
        const random_network net{series};
        const auto plan = ls::model::plan_memory(net.nodes);
        INFO("network " << series);
        check_placement(plan.pieces, plan.bytes);
        REQUIRE(plan.bytes >= ls::model::most_live(plan.pieces));
        REQUIRE(plan.bytes <= plan.bytes_without_reuse());
        reused += plan.bytes < plan.bytes_without_reuse();
        for (const auto& node : net.nodes) addends += node.has_addend;
        machine run{net, plan};
        run.run();
        added_up += run.added_up();
    }
    CHECK(reused > 1000);
    CHECK(addends > 500);
    CHECK(added_up > 100);
}

TEST_CASE("model/memory_plan: every read finds what was written for it in random networks of which parts run again", "[model]") {
    std::size_t blocks = 0, again = 0, gathered = 0;
    for (std::uint32_t series = 0; series < 3000; ++series) {
        const random_network net{series, true};
        const auto plan = ls::model::plan_memory(net.nodes);
        INFO("network " << series);
        check_placement(plan.pieces, plan.bytes);
        machine run{net, plan};
        run.run();
        gathered += run.gathered();
        std::size_t last = 0;
        for (const auto& node : net.nodes) {
            last = std::max(last, node.block);
            again += node.runs_again;
        }
        blocks += last;
    }
    CHECK(blocks > 1000);
    CHECK(again > 1000);
    CHECK(gathered > 10);
}

namespace {

memory_node layer(std::span<const std::size_t> reads, bool needs_x, bool needs_y, bool in_place) {
    return {.reads = reads,
            .learns = true,
            .needs_x = needs_x,
            .needs_y = needs_y,
            .in_place = in_place,
            .input = 64,
            .output = 64,
            .value = 64};
}

}  // namespace

TEST_CASE("model/memory_plan: relu works in the memory of what it reads; a convolution's input stays until backward", "[model]") {
    const std::vector<std::vector<std::size_t>> reads{{the_samples}, {0}, {1}, {2}};
    const std::vector<memory_node> nodes{layer(reads[0], true, false, false), layer(reads[1], false, true, true),
                                         layer(reads[2], true, false, false), layer(reads[3], false, true, true)};
    const auto plan = ls::model::plan_memory(nodes);
    CHECK(plan.nodes[0].value == plan.nodes[1].value);
    CHECK(plan.nodes[1].value != plan.nodes[2].value);
    CHECK(plan.pieces[plan.nodes[1].value].last == 2 * 4 - 1);
    CHECK(plan.nodes[1].dvalue == plan.nodes[0].dvalue);
    CHECK(plan.nodes[3].dvalue == plan.network_gradient);
    // The loss reads a value and writes a gradient while the first value waits; later that waits while a convolution turns one gradient
    // into another.
    CHECK(plan.bytes == 3 * 64);
}

TEST_CASE("model/memory_plan: the gradient of a sum is that of its parts, and is not written over while another part needs it", "[model]") {
    // x is read by relu and by the sum: x + relu(x).
    const std::vector<std::vector<std::size_t>> reads{{the_samples}, {0}, {0, 1}};
    std::vector<memory_node> nodes{layer(reads[0], true, false, false), layer(reads[1], false, true, true),
                                   layer(reads[2], false, false, true)};
    nodes[2].passes_gradient = true;
    const auto plan = ls::model::plan_memory(nodes);
    CHECK(plan.nodes[1].value != plan.nodes[0].value);  // the sum still reads x
    CHECK(plan.nodes[2].value == plan.nodes[0].value);  // relu needs its output in backward, nobody needs x
    CHECK(plan.nodes[1].dvalue == plan.network_gradient);
    const auto& last = plan.nodes[1].inputs[0];
    CHECK(last.others == plan.network_gradient);
    CHECK(last.written != plan.network_gradient);
    CHECK(last.sum == last.written);
    CHECK(plan.nodes[0].dvalue == last.sum);
}

TEST_CASE("model/memory_plan: the gradient of a value with two readers stays in two parts where its layer adds them", "[model]") {
    // A layer, a view of its value, and two readers of that.
    const std::vector<std::vector<std::size_t>> reads{{the_samples}, {0}, {1}, {2, 1}};
    std::vector<memory_node> nodes{layer(reads[0], true, true, false), layer(reads[1], false, false, false),
                                   layer(reads[2], true, false, false), layer(reads[3], true, true, true)};
    nodes[1].is_view = true;
    nodes[3].has_addend = true;
    const auto sums = ls::model::plan_memory(nodes);
    CHECK(sums.nodes[0].more == no_piece);
    CHECK(sums.nodes[2].inputs[0].sum == sums.nodes[0].dvalue);
    nodes[0].sums_gradient = true;
    const auto apart = ls::model::plan_memory(nodes);
    CHECK(apart.nodes[2].inputs[0].sum == no_piece);
    for (const std::size_t i : {0, 1}) {
        CHECK(apart.nodes[i].dvalue == apart.nodes[3].inputs[1].written);
        CHECK(apart.nodes[i].more == apart.nodes[2].inputs[0].given);
    }
    CHECK(apart.bytes == sums.bytes);
    // Where somebody else reads the value behind the view, the view's gradient is one of two itself.
    const std::vector<std::vector<std::size_t>> more{{the_samples}, {0}, {1}, {2, 1}, {3, 0}};
    for (std::size_t i = 0; i < 4; ++i) nodes[i].reads = more[i];
    nodes.push_back(layer(more[4], false, false, false));
    nodes[4].passes_gradient = true;
    const auto both = ls::model::plan_memory(nodes);
    CHECK(both.nodes[1].more == no_piece);
    CHECK(both.nodes[0].more == both.nodes[1].inputs[0].given);
    CHECK(both.nodes[0].dvalue == both.network_gradient);
}

TEST_CASE("model/memory_plan: each path of a concatenation has a gradient of its own size, in any order of the widths", "[model]") {
    std::vector<std::size_t> widths{1, 2, 3, 5};
    do {
        const std::vector<std::vector<std::size_t>> reads{{the_samples}, {the_samples}, {the_samples}, {the_samples}, {0, 1, 2, 3}};
        std::vector<memory_node> nodes;
        for (std::size_t k = 0; k < 4; ++k) {
            nodes.push_back(layer(reads[k], true, false, false));
            nodes[k].output = nodes[k].value = 64 * widths[k];
        }
        nodes.push_back(layer(reads[4], false, false, false));
        nodes[4].input = nodes[0].value;
        nodes[4].output = nodes[4].value = std::size_t{64} * 11;
        const auto plan = ls::model::plan_memory(nodes);
        for (std::size_t k = 0; k < 4; ++k) {
            CHECK(plan.pieces[plan.nodes[4].inputs[k].written].bytes == nodes[k].value);
            CHECK(plan.nodes[k].dvalue == plan.nodes[4].inputs[k].written);
        }
    } while (std::next_permutation(widths.begin(), widths.end()));
}

TEST_CASE("model/memory_plan: a chain in blocks keeps the input of each block and the values of one", "[model]") {
    // Twelve convolutions of 64 bytes, each of which needs its input in backward.
    constexpr std::size_t n = 12;
    std::vector<std::vector<std::size_t>> reads{{the_samples}};
    for (std::size_t i = 1; i < n; ++i) reads.push_back({i - 1});
    const auto plan_of = [&](std::size_t length) {
        std::vector<memory_node> nodes;
        for (std::size_t i = 0; i < n; ++i) nodes.push_back(layer(reads[i], true, false, false));
        for (std::size_t i = 0; length > 0 && i < n; ++i) {
            nodes[i].block = 1 + i / length;
            nodes[i].runs_again = (i + 1) % length != 0;
        }
        return ls::model::plan_memory(nodes);
    };
    const auto plain = plan_of(0), blocks = plan_of(4);
    // 11 inputs, the output and, behind the loss, two gradients.
    CHECK(plain.bytes == 13 * 64);
    // The inputs of two blocks; of the last block three values, and two gradients.
    CHECK(blocks.bytes == 7 * 64);
    CHECK(blocks.pieces[blocks.nodes[3].value].last > blocks.pieces[blocks.nodes[11].value].last);
    CHECK(blocks.pieces[blocks.nodes[2].value].last == 3);
    CHECK(blocks.again[3].output == no_piece);
}

TEST_CASE("model/memory_plan: pieces that together exceed what a program can have are an error", "[model]") {
    std::vector<piece> all(3, {.bytes = std::size_t{1} << 62U, .first = 0, .last = 1});
    CHECK_THROWS_WITH(ls::model::place_pieces(all), Catch::Contains("bytes of a step"));
    all[1].first = all[1].last = 2;
    all[2].first = all[2].last = 3;
    CHECK(ls::model::place_pieces(all) == std::size_t{1} << 62U);
}
