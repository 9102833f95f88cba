// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Clipping by the global norm and LARS: norms of tensors have the same bits on any number of ranks, and are what a
// plain loop computes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/model/layout.hpp"
#include "lockstep/optim/lamb.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/optim/weight_decay.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/train/summary.hpp"

namespace {

using namespace support;
using ls::sync::clip_by_global_norm;

constexpr double none = std::numeric_limits<double>::infinity();
template <class T>
const samples<T> training{190};

/// 26,446 parameters in 8 tensors, one of 25,600, and running statistics.
constexpr auto normalised =
    ls::sequential{ls::input<12, 12, 1>,  ls::layers::conv<4, 3>{}, ls::layers::batch_norm{}, ls::layers::relu{},
                   ls::layers::flatten{}, ls::layers::dense<64>{},  ls::layers::relu{},       ls::layers::dense<10>{}};

/// What changes no bit.
struct machine {
    ls::transport transport;
    std::size_t bucket;
    bool overlap;
    std::size_t threads;
    bool thread = false;
    const char* all_reduce = "";
};
constexpr auto messages = ls::transport::messages, shared = ls::transport::shared_memory;
/// Each two of the settings meet in one of them.
constexpr machine machines[] = {{messages, 1, true, 1},
                                {messages, 1U << 20U, false, 2},
                                {shared, 1, false, 2},
                                {shared, 1U << 20U, true, 1},
                                {messages, 1U << 20U, true, 1, true},
                                {shared, 1, true, 2, true},
                                {messages, 1, true, 1, false, "doubling:0-3000;tree:3001-max"}};

/// In double a norm with one other bit would show in every weight; in float most such norms round to the same factor.
template <class T, class Optimizer, class Clip, class Compressor = ls::compress::none,
          class Partition = ls::partition::data>
auto recipe(const Optimizer& optimizer, const Clip& clip, const machine& on = {ls::transport::automatic, 1000, true, 1},
            const Compressor& compressor = {}, const Partition& partition = {}) {
    return ls::plan{.model = normalised,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = optimizer,
                    .schedule = [](std::uint64_t step) { return 0.1 / static_cast<double>(1 + step); },
                    .partition = partition,
                    .compressor = compressor,
                    .precision = ls::real<T>{},
                    .clip = clip,
                    .batch = 61,
                    .workers = 4,
                    .seed = 5,
                    .threads = ls::parallel::has_threads ? on.threads : 1,
                    .bucket = on.bucket,
                    .overlap = on.overlap,
                    .progress_thread = on.thread,
                    .transport = on.transport,
                    .all_reduce = on.all_reduce};
}

template <class Ranks, class Plan>
std::uint64_t run(const Ranks& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    trainer.fit(training<typename decltype(plan.precision)::type>.set(), ls::steps{4});
    return trainer.weights_hash();
}

/// Each weight becomes a number for where the pass says that it is.
struct writes_places {
    static constexpr std::string_view name = "writes_places";
    static constexpr std::size_t slot_count = 0;
    static constexpr bool needs_tensors = true;
    [[nodiscard]] static std::string settings() { return {}; }

    [[nodiscard]] static double place(std::size_t layer, std::size_t number, std::size_t rows, std::size_t columns,
                                      std::size_t row, std::size_t column) {
        double out = 0;
        for (const std::size_t one : {layer, number, rows, columns, row, column}) out = out * 300 + double(one);
        return out;
    }
    template <class T>
    void update(const ls::optim::update_pass<T>& pass) const noexcept {
        const auto& of = pass.tensor;
        for (std::size_t i = 0; i < pass.weights.size(); ++i) {
            const std::size_t at = of.offset + i;
            pass.weights[i] =
                static_cast<T>(place(of.layer, of.number, of.rows, of.columns, at / of.columns, at % of.columns));
        }
    }
};

/// The same bits on 1, 2, 3, 4 and 8 ranks of any machine.
template <class Recipe>
std::uint64_t same_everywhere(const Recipe& recipe_on) {
    const std::uint64_t alone = run(ls::comm::group{}, recipe_on(machines[0]));
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        for (const machine& on : machines) {
            // Doubling wants a power of two of ranks; each of them owns all of a bucket then.
            if (on.all_reduce[0] != '\0' && group.size() == 3) continue;
            INFO(group.size() << " ranks, buckets of " << on.bucket << ", overlap " << on.overlap << ", " << on.threads
                              << " threads");
            CHECK(run(group, recipe_on(on)) == alone);
        }
    });
    return alone;
}

}  // namespace

TEST_CASE("equivalence/norms: clipping has the same bits everywhere, and none where gradients are short",
          "[equivalence]") {
    const ls::optim::momentum momentum{.nesterov = true};
    const std::uint64_t clipped =
        same_everywhere([&](const machine& on) { return recipe<float>(momentum, clip_by_global_norm{0.2}, on); });
    const std::uint64_t plain = run(ls::comm::group{}, recipe<float>(momentum, ls::sync::no_clipping{}));
    CHECK(clipped != plain);
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        CHECK(run(group, recipe<float>(momentum, clip_by_global_norm{none})) == plain);
        CHECK(run(group, recipe<float>(momentum, clip_by_global_norm{1e6})) == plain);
    });
}

TEST_CASE("equivalence/norms: LARS, and clipped, has the same bits everywhere", "[equivalence]") {
    const ls::optim::lars lars{.decay = 1e-3, .trust = 0.1};
    const auto alone = run(ls::comm::group{}, recipe<double>(lars, clip_by_global_norm{none}));
    on_groups({3, 5}, [&](const mpi::communicator& group) {
        CHECK(run(group, recipe<double>(lars, clip_by_global_norm{none})) == alone);
    });
    CHECK(same_everywhere([&](const machine& on) { return recipe<double>(lars, clip_by_global_norm{0.2}, on); }) !=
          alone);
}

TEST_CASE("equivalence/norms: LAMB has the same bits everywhere, compressed and in a hybrid partition, too",
          "[equivalence]") {
    const ls::optim::lamb lamb{.decay = 0.05};
    const ls::sync::no_clipping whole;
    // On one rank for all of them: eight at once would share the cores.
    const auto run_alone = [](const auto& plan) {
        const mpi::communicator world;
        std::uint64_t hash = world.rank() == 0 ? run(ls::comm::group{}, plan) : 0;
        mpi::broadcast(world, hash, 0);
        return hash;
    };
    const std::uint64_t plain = run_alone(recipe<double>(lamb, whole, machines[0]));
    // Each rank owns all of a bucket where it is summed by doubling.
    const auto on_two = [&](const machine& first, const machine& second) {
        return [&](const mpi::communicator& group) {
            CHECK(run(group, recipe<double>(lamb, whole, first)) == plain);
            CHECK(run(group, recipe<double>(lamb, whole, second)) == plain);
        };
    };
    on_groups({1, 3, 4}, on_two(machines[1], machines[2]));
    on_groups({2, 2, 4}, on_two(machines[3], machines[6]));
    on_groups({8}, on_two(machines[0], machines[4]));
    CHECK(run_alone(recipe<double>(ls::optim::lamb{.decay = 0.04}, whole)) != plain);

    const auto compressor = ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.05}};
    const auto packed = [&](std::size_t bucket) {
        return recipe<double>(lamb, whole, {ls::transport::automatic, bucket, true, 1}, compressor);
    };
    const std::uint64_t alone = run_alone(packed(1000));
    CHECK(alone != plain);
    on_groups({2, 6}, [&](const mpi::communicator& group) { CHECK(run(group, packed(1)) == alone); });

    constexpr auto hybrid = ls::partition::hybrid{ls::partition::data{}, ls::partition::model<2>{}};
    const auto cut = [&](const machine& on) { return recipe<double>(lamb, whole, on, ls::compress::none{}, hybrid); };
    std::uint64_t pair = 0;
    on_groups({2, 2, 2, 2}, [&](const mpi::communicator& group) { pair = run(group, cut(machines[0])); });
    on_groups({4}, [&](const mpi::communicator& group) { CHECK(run(group, cut(machines[2])) == pair); });
    on_groups({2}, [&](const mpi::communicator& group) {
        ls::trainer uncut{group, recipe<double>(lamb, whole)};
        ls::trainer halves{group, cut(machines[0])};
        uncut.fit(training<double>.set(), ls::steps{2});
        halves.fit(training<double>.set(), ls::steps{2});
        CHECK(relative_error(halves.all_weights(), uncut.all_weights()) < 1e-9);
    });
}

TEST_CASE("equivalence/norms: an optimizer that needs tensors is told which weights a pass has", "[equivalence]") {
    const ls::optim::weight_decay<writes_places> by_place{.rate = 0, .inner = {}};
    constexpr ls::sync::no_clipping none_at_all;
    const auto check = [&](const auto& group, const auto& partition, const machine& on, std::size_t shards,
                           const auto& clip) {
        ls::trainer trainer{group, recipe<double>(by_place, clip, on, ls::compress::none{}, partition)};
        trainer.fit(training<double>.set(), ls::steps{1});
        const auto found = trainer.all_weights();
        std::size_t layer = 0, number = 0, wrong = 0;
        for (const auto& one : ls::model::weight_layout<typename decltype(trainer)::network>) {
            number = one.layer == layer ? number : 0;
            layer = one.layer;
            // Dense layers are cut by columns.
            const std::size_t cut = one.layer_name == std::string_view{"dense"} ? shards : 1, width = one.columns / cut;
            for (std::size_t i = 0; i < one.size(); ++i)
                wrong += found[one.offset + i] !=
                         writes_places::place(layer, number, one.rows, width, i / one.columns, i % one.columns % width);
            ++number;
        }
        CHECK(wrong == 0);
    };
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        for (const machine& on : {machines[1], machines[3]}) check(group, ls::partition::data{}, on, 1, none_at_all);
    });
    constexpr auto hybrid = ls::partition::hybrid{ls::partition::data{}, ls::partition::model<2>{}};
    on_groups({2, 6},
              [&](const mpi::communicator& group) { check(group, hybrid, machines[1], 2, clip_by_global_norm{0.2}); });
}

TEST_CASE("equivalence/norms: two doubles for each node of a strip are sent, counted, and named in the summary",
          "[equivalence]") {
    on_groups({2, 2}, [&](const mpi::communicator& group) {
        const machine on{messages, 1U << 20U, true, 1};
        const auto plan = recipe<double>(ls::optim::lars{}, clip_by_global_norm{0.2}, on);
        ls::trainer trainer{group, plan};
        using network = decltype(trainer)::network;
        const auto runs = ls::collectives::deal_lanes(2, plan.lanes);
        const auto strip =
            ls::collectives::tree_strips(runs, network::parameters)[static_cast<std::size_t>(group.rank())];
        std::size_t nodes = 0, at = 0;
        for (const std::size_t size : {36U, 4U, 4U, 4U, 25'600U, 64U, 640U, 10U}) {
            const std::size_t first = std::clamp(strip.first, at, at + size),
                              last = std::clamp(strip.last, at, at + size);
            nodes += ls::tensor::cover({first - at, last - at}, size).size();
            at += size;
        }
        REQUIRE(at == network::parameters);
        std::size_t sums = 0;
        for (const auto& range : ls::sync::make_buckets<network>(on.bucket)) {
            const auto rank = static_cast<std::size_t>(group.rank());
            const auto strips = ls::collectives::tree_strips(runs, range.count);
            sums += ls::collectives::tree_reduce_scatter(rank, runs, range.count, strips).sent().elements +
                    ls::collectives::all_gather(rank, strips).sent().elements;
        }
        CHECK(trainer.averaging_bytes() == (sums + 2 * nodes) * sizeof(double));
        CHECK(ls::summary(trainer).find("\nclip          global_norm(norm=0.2)\n") != std::string::npos);
    });
}

TEST_CASE("equivalence/norms: the mean of compressed gradients is clipped, and a hybrid partition keeps its bits",
          "[equivalence]") {
    const auto compressor = ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.05}};
    const auto plan = [&](double norm, std::size_t bucket) {
        return recipe<float>(ls::optim::momentum{}, clip_by_global_norm{norm},
                             {ls::transport::automatic, bucket, true, 1}, compressor);
    };
    const std::uint64_t alone = run(ls::comm::group{}, plan(0.05, 1000));
    CHECK(alone != run(ls::comm::group{}, plan(none, 1000)));
    on_groups({2, 6}, [&](const mpi::communicator& group) { CHECK(run(group, plan(0.05, 1)) == alone); });

    constexpr auto hybrid = ls::partition::hybrid{ls::partition::data{}, ls::partition::model<2>{}};
    const ls::optim::lars lars{.trust = 0.1};
    const auto cut = [&](const machine& on, double norm = 0.2) {
        return recipe<double>(lars, clip_by_global_norm{norm}, on, ls::compress::none{}, hybrid);
    };
    std::uint64_t pair = 0;
    on_groups({2, 2, 2, 2}, [&](const mpi::communicator& group) {
        pair = run(group, cut(machines[0]));
        CHECK(run(group, cut(machines[0], none)) != pair);
    });
    on_groups({4, 4}, [&](const mpi::communicator& group) { CHECK(run(group, cut(machines[3])) == pair); });
    on_groups({8}, [&](const mpi::communicator& group) {
        for (const machine& on : machines) CHECK(run(group, cut(on)) == pair);
    });
    // Whole and cut, both have the norms of whole tensors: equal up to rounding.
    on_groups({8}, [&](const mpi::communicator& group) {
        ls::trainer whole{group, recipe<double>(lars, clip_by_global_norm{0.2})};
        ls::trainer halves{group, cut(machines[0])};
        whole.fit(training<double>.set(), ls::steps{2});
        halves.fit(training<double>.set(), ls::steps{2});
        CHECK(relative_error(halves.all_weights(), whole.all_weights()) < 1e-12);
    });
}

namespace {

constexpr std::size_t inputs = 7, hidden = 5, outputs = 3, rows = 12;
constexpr auto small =
    ls::sequential{ls::input<inputs>, ls::layers::dense<hidden>{}, ls::layers::relu{}, ls::layers::dense<outputs>{}};

/// Plain loops in double, without the library: two dense layers, the mean of squares, momentum or LARS.
struct reference {
    std::vector<double> w, v = std::vector<double>(w.size()), m = v;
    std::size_t clipped = 0;

    static constexpr std::size_t sizes[] = {inputs * hidden, hidden, hidden* outputs, outputs};

    std::vector<double> gradient(const std::vector<double>& x, const std::vector<double>& t) const {
        std::vector<double> g(w.size());
        const double *w1 = w.data(), *b1 = w1 + sizes[0], *w2 = b1 + sizes[1], *b2 = w2 + sizes[2];
        double *g1 = g.data(), *c1 = g1 + sizes[0], *g2 = c1 + sizes[1], *c2 = g2 + sizes[2];
        for (std::size_t r = 0; r < rows; ++r) {
            double h[hidden], dh[hidden] = {};
            for (std::size_t j = 0; j < hidden; ++j) {
                h[j] = b1[j];
                for (std::size_t i = 0; i < inputs; ++i) h[j] += x[r * inputs + i] * w1[i * hidden + j];
                h[j] = std::fmax(h[j], 0);
            }
            for (std::size_t k = 0; k < outputs; ++k) {
                double y = b2[k];
                for (std::size_t j = 0; j < hidden; ++j) y += h[j] * w2[j * outputs + k];
                const double d = 2 * (y - t[r * outputs + k]) / static_cast<double>(outputs * rows);
                c2[k] += d;
                for (std::size_t j = 0; j < hidden; ++j) {
                    g2[j * outputs + k] += d * h[j];
                    dh[j] += d * w2[j * outputs + k];
                }
            }
            for (std::size_t j = 0; j < hidden; ++j) {
                if (h[j] <= 0) continue;
                c1[j] += dh[j];
                for (std::size_t i = 0; i < inputs; ++i) g1[i * hidden + j] += dh[j] * x[r * inputs + i];
            }
        }
        return g;
    }
    static double norm(const double* of, std::size_t n) {
        long double sum = 0;
        for (std::size_t i = 0; i < n; ++i) sum += static_cast<long double>(of[i]) * of[i];
        return static_cast<double>(std::sqrt(sum));
    }
    /// `lars`: null for plain momentum.
    void step(std::vector<double> g, double rate, double most, double beta, const ls::optim::lars* lars) {
        const double total = norm(g.data(), g.size());
        clipped += total > most;
        for (double& one : g) one *= most / std::fmax(most, total);
        std::size_t at = 0;
        for (const std::size_t size : sizes) {
            double local = 1, decay = 0;
            if (lars != nullptr && (size == sizes[0] || size == sizes[2])) {
                decay = lars->decay;
                const double a = norm(w.data() + at, size), b = norm(g.data() + at, size);
                if (a > 0 && b > 0) local = lars->trust * a / (b + decay * a + lars->epsilon);
            }
            for (std::size_t end = at + size; at < end; ++at) {
                v[at] = beta * v[at] + (lars != nullptr ? rate : 1) * local * (g[at] + decay * w[at]);
                w[at] -= (lars != nullptr ? 1 : rate) * v[at];
            }
        }
    }
    /// LAMB: moments, directions, then a rate for each matrix.
    void step(const std::vector<double>& g, double rate, std::uint64_t number, const ls::optim::lamb& lamb) {
        const auto updates = static_cast<double>(number + 1);
        std::size_t at = 0;
        for (const std::size_t size : sizes) {
            const bool is_matrix = size == sizes[0] || size == sizes[2];
            std::vector<double> u(size);
            for (std::size_t i = 0; i < size; ++i) {
                double &first = m[at + i], &second = v[at + i];
                first = lamb.beta1 * first + (1 - lamb.beta1) * g[at + i];
                second = lamb.beta2 * second + (1 - lamb.beta2) * g[at + i] * g[at + i];
                u[i] = first / (1 - std::pow(lamb.beta1, updates)) /
                       (std::sqrt(second / (1 - std::pow(lamb.beta2, updates))) + lamb.epsilon);
                if (is_matrix) u[i] += lamb.decay * w[at + i];
            }
            const double trust = is_matrix ? norm(w.data() + at, size) / norm(u.data(), size) : 1;
            for (std::size_t i = 0; i < size; ++i, ++at) w[at] -= rate * trust * u[i];
        }
    }
};

/// Both take the same steps: `step(plain, gradient, rate, number)` is that of plain loops, which clip so many.
template <class Optimizer, class Clip, class Step>
void compare(const Optimizer& optimizer, const Clip& clip, std::size_t clipped, const Step& step_of) {
    const ls::core::random_stream random{3, ls::core::purpose::user};
    constexpr auto rate = [](std::uint64_t step) { return 0.3 / static_cast<double>(1 + step); };
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        ls::trainer trainer{group, ls::plan{.model = small,
                                            .loss = ls::loss::mean_squared_error{},
                                            .optimizer = optimizer,
                                            .schedule = rate,
                                            .precision = ls::real<double>{},
                                            .clip = clip,
                                            .batch = rows,
                                            .lanes = 4}};
        reference plain{.w = trainer.all_weights()};
        for (std::uint64_t step = 0; step < 6; ++step) {
            std::vector<double> x(rows * inputs), t(rows * outputs);
            for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.normal(1000 * step + i);
            for (std::size_t i = 0; i < t.size(); ++i)
                t[i] = random.normal(1000 * step + 500 + i) * (step == 5 ? 0.01 : 1);
            const auto all = static_cast<std::size_t>(group.size()), rank = static_cast<std::size_t>(group.rank());
            const std::size_t first = 4 * rank / all * 3, last = 4 * (rank + 1) / all * 3;  // whole lanes
            const auto part = [&](const std::vector<double>& of, std::size_t width) {
                return std::vector<double>(of.begin() + static_cast<std::ptrdiff_t>(first * width),
                                           of.begin() + static_cast<std::ptrdiff_t>(last * width));
            };
            (void)trainer.step(part(x, inputs), part(t, outputs));
            step_of(plain, plain.gradient(x, t), rate(step), step);
            CHECK(relative_error(trainer.all_weights(), plain.w) < 1e-12);
        }
        CHECK(plain.clipped == clipped);
    });
}

}  // namespace

TEST_CASE("equivalence/norms: clipping and LARS are what plain loops in double compute", "[equivalence]") {
    compare(ls::optim::momentum{.beta = 0.8}, clip_by_global_norm{1}, 4,
            [](reference& plain, const auto& g, double rate, auto) { plain.step(g, rate, 1, 0.8, nullptr); });
    const ls::optim::lars lars{.momentum = 0.8, .decay = 0.01, .trust = 0.05, .epsilon = 1e-3};
    compare(lars, clip_by_global_norm{1}, 5,
            [&](reference& plain, const auto& g, double rate, auto) { plain.step(g, rate, 1, 0.8, &lars); });
}

namespace {

/// A user's clipping: each gradient is as long as the others (Hazan, Levy, Shalev-Shwartz, NeurIPS 2015).
struct equal_lengths {
    double length = 1;

    static constexpr std::string_view name = "equal_lengths";
    std::string settings() const { return ls::core::text("length=", length); }
    bool is_active() const noexcept { return length > 0; }
    double factor(double norm) const noexcept { return norm > 0 ? length / norm : 1; }
};

}  // namespace

TEST_CASE("equivalence/norms: a user's clipping is what plain loops in double compute", "[equivalence]") {
    compare(ls::optim::momentum{.beta = 0.8}, equal_lengths{0.7}, 0, [](reference& plain, auto g, double rate, auto) {
        const double norm = reference::norm(g.data(), g.size());
        for (double& one : g) one *= 0.7 / norm;
        plain.step(g, rate, std::numeric_limits<double>::max(), 0.8, nullptr);
    });
    CHECK(same_everywhere([](const machine& on) {
              return recipe<float>(ls::optim::momentum{}, equal_lengths{0.2}, on);
          }) != run(ls::comm::group{}, recipe<float>(ls::optim::momentum{}, ls::sync::no_clipping{})));
    // Settings with which it never changes anything measure no norm.
    CHECK(run(ls::comm::group{}, recipe<float>(ls::optim::momentum{}, equal_lengths{0})) ==
          run(ls::comm::group{}, recipe<float>(ls::optim::momentum{}, ls::sync::no_clipping{})));
}

namespace {

struct broken {
    double gives = 1;

    static constexpr std::string_view name = "broken";
    std::string settings() const { return ls::core::text("gives=", gives); }
    bool is_active() const noexcept { return true; }
    double factor(double) const noexcept { return gives; }
};

}  // namespace

TEST_CASE("equivalence/norms: a factor that gradients cannot have is refused before weights change", "[equivalence]") {
    constexpr double inf = std::numeric_limits<double>::infinity();
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        for (const double factor : {-0.5, inf, 1e39, std::numeric_limits<double>::quiet_NaN()}) {
            ls::trainer trainer{group, recipe<float>(ls::optim::momentum{}, broken{factor})};
            const auto before = trainer.local_hash();
            std::string why;
            try {
                trainer.fit(training<float>.set(), ls::steps{1});
            } catch (const ls::core::error& failure) {
                why = failure.what();
            }
            CHECK(why.find("plan::clip, broken, gives the factor ") != std::string::npos);
            CHECK(why.find("in step 1; make factor(norm) return a number from 0 to 3.4") != std::string::npos);
            CHECK(trainer.weights_state().is_usable());
            CHECK(trainer.local_hash() == before);
        }
        // 0 is a factor: with momentum, gradients of zero change no weight. Running statistics go on.
        ls::trainer still{group, recipe<float>(ls::optim::momentum{}, broken{0})};
        const auto before = still.all_weights();
        still.fit(training<float>.set(), ls::steps{1});
        CHECK(still.all_weights() == before);
    });
}

TEST_CASE("equivalence/norms: LAMB is what plain loops in double compute", "[equivalence]") {
    const ls::optim::lamb lamb{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .decay = 0.1};
    compare(lamb, ls::sync::no_clipping{}, 0,
            [&](reference& plain, const auto& g, double rate, std::uint64_t step) { plain.step(g, rate, step, lamb); });
}

namespace {

bool breaks = false;

/// A user's layer: y = x, and a gradient that is infinite where a test says so.
template <ls::tensor::Shape S>
struct breaking_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "breaking";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr double flops = 0;

    void forward(const auto& pass) const { std::copy_n(pass.x.data, pass.x.size(), pass.y.data); }
    void backward(const auto& pass) const {
        if (!pass.wants_dx()) return;
        std::copy_n(pass.dy.data, pass.dy.size(), pass.dx.data);
        if (breaks && pass.dx.size() > 0) pass.dx.data[0] = HUGE_VALF;
    }
};
struct breaking {
    template <ls::tensor::Shape Input>
    constexpr auto on(Input) const {
        return breaking_layer<Input>{};
    }
};

constexpr auto breakable = ls::sequential{ls::input<12, 12, 1>, ls::layers::conv<4, 3>{}, ls::layers::batch_norm{},
                                          breaking{},           ls::layers::flatten{},    ls::layers::dense<10>{}};

}  // namespace

TEST_CASE("equivalence/norms: a gradient that is infinite on one rank is refused on all, before anything changes",
          "[equivalence]") {
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        for (const auto transport : {messages, shared}) {
            ls::trainer trainer{group, ls::plan{.model = breakable,
                                                .loss = ls::loss::softmax_cross_entropy{},
                                                .optimizer = ls::optim::lars{},
                                                .clip = clip_by_global_norm{1},
                                                .batch = 64,
                                                .transport = transport}};
            trainer.fit(training<float>.set(), ls::steps{2});
            const std::uint64_t before = trainer.local_hash();  // weights and running statistics
            breaks = group.rank() == group.size() - 1;
            std::string said;
            try {
                trainer.fit(training<float>.set(), ls::steps{1});
            } catch (const ls::comm::remote_failure& failure) {
                said = failure.what();
                FAIL_CHECK("another rank refused first: " << said);
            } catch (const ls::core::error& failure) {
                said = failure.what();
            }
            breaks = false;
            INFO(group.size() << " ranks: " << said);
            CHECK(said.find("the norm of the gradient or of the weight of layer 0 (conv) is not finite in step 3; use "
                            "a lower") != std::string::npos);
            CHECK(said.find("are those after step 2") != std::string::npos);
            CHECK(trainer.local_hash() == before);
            CHECK(trainer.weights_state().is_usable());
            CHECK(trainer.weights_state().steps == 2);
            if (group.size() == 1) {  // alone, a rank may go on
                trainer.fit(training<float>.set(), ls::steps{1});
                CHECK(trainer.weights_state().steps == 3);
                CHECK(trainer.local_hash() != before);
            }
        }
    });
}

TEST_CASE("equivalence/norms: ranks that own nothing refuse an infinite gradient as the others do", "[equivalence]") {
    // Strips of 16 numbers at least: most of eight ranks have none.
    constexpr auto few =
        ls::sequential{ls::input<12, 12, 1>, ls::layers::mean_pool<6>{}, ls::layers::flatten{}, ls::layers::dense<5>{},
                       breaking{},           ls::layers::dense<10>{}};
    on_groups({8}, [&](const mpi::communicator& group) {
        for (int turn = 0; turn < 8; ++turn) {
            ls::trainer trainer{group, ls::plan{.model = few,
                                                .loss = ls::loss::softmax_cross_entropy{},
                                                .clip = clip_by_global_norm{0.1},
                                                .batch = 64,
                                                .bucket = 1,
                                                .overlap = turn % 2 == 0,
                                                .transport = messages}};
            breaks = group.rank() == 7;
            bool refused = false;
            try {
                trainer.fit(training<float>.set(), ls::steps{1});
            } catch (const ls::comm::remote_failure& failure) {
                FAIL_CHECK("another rank refused first: " << failure.what());
            } catch (const ls::core::error&) {
                refused = true;
            }
            breaks = false;
            CHECK(refused);
            CHECK(trainer.weights_state().is_usable());
        }
    });
}

TEST_CASE("equivalence/norms: a norm that makes no sense is refused, and ranks agree on it", "[equivalence]") {
    CHECK_THROWS_WITH(
        (ls::trainer{ls::comm::group{}, recipe<float>(ls::optim::momentum{}, clip_by_global_norm{1e-45})}),
        Catch::Contains("which its numbers cannot hold"));
    for (const double norm : {0.0, -1.0, std::nan("")})
        CHECK_THROWS_WITH(
            (ls::trainer{ls::comm::group{}, recipe<float>(ls::optim::momentum{}, clip_by_global_norm{norm})}),
            Catch::StartsWith("lockstep: the plan clips gradients to a global norm of ") &&
                Catch::Contains("; take a number above 0, such as 1, or infinity for no clipping"));
    on_groups({2}, [&](const mpi::communicator& group) {
        CHECK_THROWS_WITH(
            (ls::trainer{group, recipe<float>(ls::optim::momentum{}, clip_by_global_norm{group.rank() + 1.0})}),
            Catch::Contains("clip is global_norm(norm=1) on rank 0 and global_norm(norm=2) on rank 1"));
    });
}
