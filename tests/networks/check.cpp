// SPDX-License-Identifier: BSD-3-Clause
#include "networks/check.hpp"

#include <algorithm>
#include <array>
#include <boost/mpi/collectives.hpp>
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <exception>
#include <span>

#include "equivalence/groups.hpp"
#include "lockstep/core/random.hpp"
#include "networks/naive.hpp"

namespace networks {

namespace {

namespace ls = lockstep;
namespace mpi = boost::mpi;

/// In [-1, 1), by a number for each draw.
class draws {
public:
    explicit draws(std::uint64_t seed, std::uint32_t series) : from_{seed, ls::core::purpose::user, series} {}
    double operator()() { return 2 * static_cast<double>(from_.uniform(at_++)) - 1; }

private:
    ls::core::random_stream from_;
    std::uint64_t at_ = 0;
};

samples draw_samples(std::size_t count, std::size_t inputs, std::size_t outputs, bool classes, draws draw) {
    samples out;
    for (std::size_t i = 0; i < count * inputs; ++i) out.x.push_back(draw());
    for (std::size_t i = 0; i < count * (classes ? 1 : outputs); ++i)
        out.y.push_back(classes ? std::floor((draw() + 1) / 2 * static_cast<double>(outputs)) : draw());
    return out;
}

/// A sum of n products is the exact sum of products whose factors are off by n roundings at most, and mostly by a root
/// of that (Higham, Accuracy and Stability of Numerical Algorithms, 3.1): 32 roundings stand for sums of a thousand
/// products.
double off_by_roundings(draws& draw) { return 1 + 0x1p-48 * draw(); }

/// Every number differs from what the library begins with: a bias of 0 would hide where it goes.
beginning begin(const network& net, const item& loss, const settings& of) {
    beginning out;
    draws draw{of.seed, 1};
    for (const parameter& one : net.parameters) {
        const double size = one.name == "weight" ? std::sqrt(3 / static_cast<double>(one.fan_in)) : 0.4;
        for (std::size_t i = 0; i < one.count; ++i)
            out.weights.push_back((one.name == "scale" ? 1 : 0) + size * draw());
    }
    for (std::size_t i = 0; i < net.statistics.size(); ++i)  // a mean and a variance by turns
        for (std::size_t c = 0; c < net.statistics[i].count; ++c)
            out.running.push_back(static_cast<double>(i % 2) + 0.3 * draw());
    const bool classes = loss.name != "mean_squared_error";
    const std::size_t inputs = size_of(net.all->in), outputs = size_of(net.all->out);
    out.training = draw_samples(of.samples, inputs, outputs, classes, draws{of.seed, 2});
    out.test = draw_samples(of.batch + of.batch / 2 + 1, inputs, outputs, classes, draws{of.seed, 3});
    return out;
}

struct minibatch {
    tensor x;
    std::vector<double> y;
    minibatch(const samples& all, std::size_t first, std::size_t count, std::size_t size) : x{count, size} {
        const auto at = [](const std::vector<double>& from, std::size_t index) {
            return from.begin() + static_cast<std::ptrdiff_t>(index);
        };
        const std::size_t label = all.y.size() * size / all.x.size();
        std::copy_n(at(all.x, first * size), count * size, x.numbers.begin());
        y.assign(at(all.y, first * label), at(all.y, (first + count) * label));
    }
};

/// Rounded: all that is multiplied is off by as much as roundings make of it; samples and weights, values and their
/// gradients.
outcome walk(network& net, const item& loss, const item& optimizer, const settings& of, beginning from,
             bool rounded = false) {
    outcome out;
    state now;
    draws draw{of.seed, 4};
    if (rounded) {
        for (auto* numbers : {&from.weights, &from.training.x, &from.test.x})
            for (double& one : *numbers) one *= off_by_roundings(draw);
        now.rounding = [&] { return off_by_roundings(draw); };
    }
    now.weights = from.weights;
    now.running = from.running;
    now.seed = of.seed;
    std::vector<std::vector<double>> slots;
    const std::size_t size = size_of(net.all->in);
    for (std::size_t at = 0; now.step < of.steps; ++now.step) {
        const std::size_t rows = std::min(of.batch, of.samples - at);
        const minibatch taken{from.training, at, rows, size};
        at = at + rows == of.samples ? 0 : at + rows;
        now.lanes = cut_into_lanes(rows, of.lanes);
        now.gradient.assign(net.weights(), 0);
        now.observed.assign(net.running(), 0);
        tensor dy;
        const tensor y = net.all->forward(taken.x, now);
        const double scale = 1 / static_cast<double>(rows);
        out.losses.push_back(scale * loss_of(loss, y, taken.y, scale, &dy));
        (void)net.all->backward(dy, now);
        for (const auto& absorb : net.absorb) absorb(now);
        update(optimizer, net, now, of.rate, slots);
        out.weights.push_back(now.weights);
    }
    out.running = now.running;
    now.trains = false;
    const std::size_t tests = from.test.x.size() / size;
    const minibatch all{from.test, 0, tests, size};
    const tensor y = net.all->forward(all.x, now);
    out.test_loss = loss_of(loss, y, all.y, 1, nullptr) / static_cast<double>(tests);
    for (std::size_t row = 0; row < tests && loss.name != "mean_squared_error"; ++row)
        out.accuracy += static_cast<double>(std::max_element(y[row], y[row] + y.size) - y[row]) == all.y[row] ? 1 : 0;
    out.accuracy /= static_cast<double>(tests);
    return out;
}

/// max |a - b| / max |b|; no number is not equal to any.
double error_of(std::span<const double> a, std::span<const double> b, double least = 0) {
    if (a.size() != b.size()) return HUGE_VAL;
    double error = 0, size = least;
    for (std::size_t i = 0; i < b.size(); ++i) {
        error = std::fmax(error, std::isfinite(a[i] - b[i]) ? std::fabs(a[i] - b[i]) : HUGE_VAL);
        size = std::fmax(size, std::fabs(b[i]));
    }
    return error == 0 ? 0 : error / size;
}

/// The largest error of a parameter.
double error_of(const network& net, const std::vector<double>& a, const std::vector<double>& b, std::string& where) {
    if (a.size() != b.size()) return HUGE_VAL;
    double largest = 0;
    for (std::size_t index = 0; index < net.parameters.size(); ++index) {
        const parameter& one = net.parameters[index];
        const double error =
            error_of(std::span{a}.subspan(one.first, one.count), std::span{b}.subspan(one.first, one.count));
        if (error > largest) where = one.name + ", parameter " + std::to_string(index);
        largest = std::fmax(largest, error);
    }
    return largest;
}

/// The largest error of a run: of the weights after each step, and of what is a number of size 1 beside that.
double error_of(const network& net, const outcome& found, const outcome& wanted, std::string& where) {
    if (found.losses.size() != wanted.losses.size() || found.running.size() != wanted.running.size()) return HUGE_VAL;
    double largest = 0;
    const auto take = [&](double error, const std::string& what) {
        if (!(error <= largest)) where = what;
        largest = std::fmax(largest, error);
    };
    const std::size_t skipped = wanted.weights.size() - found.weights.size();
    for (std::size_t i = 0; i < found.weights.size(); ++i) {
        std::string parameter;
        const double error = error_of(net, found.weights[i], wanted.weights[i + skipped], parameter);
        take(error, parameter + " after step " + std::to_string(i + skipped + 1));
    }
    take(error_of(found.losses, wanted.losses, 1), "the losses");
    take(error_of(found.running, wanted.running, 1), "the running statistics");
    take(error_of(std::array{found.test_loss, found.accuracy}, std::array{wanted.test_loss, wanted.accuracy}, 1),
         "the evaluation");
    return largest;
}

/// What the ranks of a group throw is a failure that does not keep other ranks waiting.
template <class F>
void attempt(F&& f) {
    try {
        f();
    } catch (const std::exception& error) {
        FAIL_CHECK(error.what());
    }
}

}  // namespace

std::vector<entry>& entries() {
    static std::vector<entry> all;
    return all;
}
std::size_t enter(entry one) {
    entries().push_back(std::move(one));
    return entries().size() - 1;
}

void check(const entry& one) {
    REQUIRE(mpi::communicator{}.size() == 4);
    INFO("network " << one.seed << ": " << one.network << "\n" << one.loss << ", " << one.optimizer);
    const item loss = parse(one.loss), optimizer = parse(one.optimizer);
    network net{parse(one.network)};
    settings numbers = one.numbers;
    const beginning from = begin(net, loss, numbers);
    outcome wanted = walk(net, loss, optimizer, numbers, from);
    // Steps that are too long for this network would compare overflows.
    const auto diverges = [](const std::vector<double>& losses) {
        return std::any_of(losses.begin(), losses.end(),
                           [&](double now) { return !(now <= 2 * std::fmax(1, losses.front())); });
    };
    for (int tries = 0; tries < 20 && diverges(wanted.losses); ++tries) {
        numbers.rate /= 4;
        wanted = walk(net, loss, optimizer, numbers, from);
    }
    // What roundings make of the walk itself, where that is more: few samples in a normalisation divide by little.
    std::string where;
    const outcome rounded = walk(net, loss, optimizer, numbers, from, true);
    const double sensitivity = error_of(net, rounded, wanted, where);
    INFO("roundings change " << sensitivity << " of the largest number, in " << where);
    REQUIRE(sensitivity < 1e-9);
    const double allowed = std::fmax(1e-12, sensitivity);
    const auto compare = [&](const outcome& found) {
        const double error = error_of(net, found, wanted, where);
        INFO("the error is " << error << " of the largest number, in " << where << "; allowed is " << allowed);
        CHECK(error <= allowed);
    };

    settings plain = numbers;  // on one rank, as simple as it gets
    plain.threads = 1;
    plain.overlap = true;
    plain.progress_thread = plain.prefetch = false;
    plain.all_reduce = "";
    plain.transport = ls::reduce::transport::automatic;
    const outcome serial = one.on_data(ls::comm::group{}, plain, from, true);
    {
        INFO("one rank");
        compare(serial);
    }
    const auto numbers_for = [&](std::size_t ranks) {
        settings out = numbers;
        if (ranks == 3 && out.all_reduce.starts_with("doubling"))
            out.all_reduce = "";  // it takes a power of two of ranks
        return out;
    };
    const auto same = [&](const ls::comm::group& ranks) {
        INFO(ranks.size() << " ranks with the settings of the network");
        attempt([&] {
            const outcome other = one.on_data(ranks, numbers_for(ranks.size()), from, false);
            CHECK(other.hash == serial.hash);
            CHECK(other.losses == serial.losses);
            CHECK(other.test_loss == serial.test_loss);
        });
    };
    same(ls::comm::group{});
    const auto on_ranks = [&](const mpi::communicator& ranks) { same(ls::comm::group{ranks}); };
    support::on_groups({2}, on_ranks);
    support::on_groups({3}, on_ranks);
    support::on_groups({4}, on_ranks);
    if (one.shards < 2) return;
    std::vector<std::uint64_t> hashes;
    for (const int size : {2, 3, 4}) {
        if (static_cast<std::size_t>(size) % one.shards != 0) continue;
        support::on_groups({size}, [&](const mpi::communicator& ranks) {
            INFO(ranks.size() << " ranks, " << one.shards << " shards");
            outcome found;
            attempt([&] {
                found = one.on_shards(ls::comm::group{ranks}, numbers_for(static_cast<std::size_t>(size)), from, true);
                compare(found);
            });
            for (const auto hash : support::of_all(ranks, found.hash)) CHECK(hash == found.hash);
            hashes.push_back(found.hash);
        });
    }
    for (const auto hash : hashes) CHECK(hash == hashes.front());
}

}  // namespace networks
