// SPDX-License-Identifier: BSD-3-Clause
// One rank fails inside a step, where the others wait for its part: `fault <place>:<what>` with what happens as in
// faults.hpp. Places: norms, mean (of workers), mean_late (where two ranks share each worker, and one of them is slow),
// factors, terngrad and power_sgd (the second round), sparse_sum (a round of streams), delayed, adaptive (while it
// tries its candidates); and shared_norms, shared_mean, shared_delayed through shared memory, shared_worker (the sum of
// a worker that all ranks share, there). Every rank that throws compares its weights with what weights_state() says of
// them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "faults.hpp"
#include "lockstep/comm/program.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/node/shared_window.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/sync/adaptive.hpp"
#include "lockstep/sync/clip.hpp"
#include "lockstep/sync/delayed.hpp"
#include "lockstep/sync/factors.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/train/trainer.hpp"

namespace {

namespace ls = lockstep;
using input = ls::tensor::shape<6, 6, 1>;
constexpr std::uint64_t failing_step = 1;

/// Where the bad rank fails.
enum class word { agreement, norms, commit, second_round, trial };

/// What the others' weights are then: those after the steps before, or unusable.
enum class left { whole, torn, either };

/// What the trainer that runs is to do, and what it has shown.
struct {
    faults::fault of;
    word at = word::commit;
    bool is_late = false;  // where another rank fails
    std::uint64_t step = 0;
    int rank = 0, ranks = 1;
    std::function<std::atomic_ref<int>(int)> arrived{};  // of each rank: 1 once it is where the bad one fails
    std::span<const float> weights{};  // all of this rank, also those that cannot be asked for after a failure
} now;

bool is_there(word at) { return now.at == at && now.step == failing_step; }
bool fails_at(word at) { return now.of.bad && is_there(at); }
void reach(word at) {
    if (now.arrived && is_there(at)) {  // the others first, however busy the machine is
        now.arrived(now.rank) = 1;
        for (int other = 0; now.of.bad && other < now.ranks; ++other)
            while (now.arrived(other) == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    if (!fails_at(at)) return;
    // From there to where they wait they need some microseconds; what they wait for comes within their timeout.
    const bool are_close = now.arrived && at != word::agreement;
    if (now.of.what != "stop") std::this_thread::sleep_for(std::chrono::milliseconds{are_close ? 150 : 400});
    if (now.of.what == "kill") std::raise(SIGKILL);
    now.of.strike();
}

/// A strategy, on one rank of which a word fails.
template <class Choice>
struct failing : Choice {
    template <class Types>
    class strategy : public Choice::template strategy<Types> {
        using base = typename Choice::template strategy<Types>;
        using T = typename Types::value_type;

    public:
        using base::base;

        [[nodiscard]] double reduce_loss(ls::sync::step_sums& losses, std::uint64_t step) {
            now.step = step;
            if constexpr (!ls::sync::has_worker_weights<Choice>) {
                if (fails_at(word::agreement))  // so late that all ranks have agreed, and its sums never begin
                    (void)this->agree_on_loss(losses, [] {});
                reach(word::agreement);
            }
            return base::reduce_loss(losses, step);
        }
        [[nodiscard]] std::size_t measure_norms(std::span<const T> weights) {
            reach(word::norms);
            return base::measure_norms(weights);
        }
        [[nodiscard]] bool commit(std::span<T> weights, double rate, std::uint64_t step) {
            now.weights = weights;
            reach(word::commit);
            if (now.is_late && step == failing_step) std::this_thread::sleep_for(std::chrono::milliseconds{800});
            return base::commit(weights, rate, step);
        }
    };
};

/// A reduction, on one rank of which the first round is the last.
template <class R>
struct failing_reduction : R {
    template <std::size_t K, class T, class E>
    void combined(ls::compress::round_number<K> round, const ls::compress::shared_pass<T>& all,
                  std::span<const E> result) const noexcept {
        reach(word::second_round);
        R::combined(round, all, result);
    }
};

/// A candidate that fails when it is tried.
struct failing_candidate : ls::compress::top_k {
    template <class T>
    std::size_t encode(const ls::compress::encoding<T>& in) const noexcept {
        if (now.at == word::trial) reach(word::trial);
        return top_k::encode(in);
    }
};

/// Two steps, of which the second one fails on the last rank.
template <class Plan>
int run(const boost::mpi::communicator& world, const faults::fault& of, word at, left leaves, const Plan& plan) {
    const std::vector<float> x(2 * input::size, world.rank() == 0 ? 1.0F : 0.5F);
    const std::vector<std::int32_t> y{1, world.rank() == 0 ? 2 : 3};
    std::vector<std::vector<float>> after{{}};  // so many steps
    now = {};
    ls::trainer healthy{world, plan};
    for (std::uint64_t step = 0; step < failing_step + 2; ++step) {
        (void)healthy.step(x, y);
        after.emplace_back(now.weights.begin(), now.weights.end());
    }
    if (of.what == "none") {
        faults::print_hash(world, healthy.weights_hash());
        return 0;
    }
    ls::trainer trainer{world, plan};
    now.of = of;
    now.at = at;
    now.is_late = plan.workers > 0 && world.rank() == 1;
    now.rank = world.rank();
    now.ranks = world.size();
    ls::node::shared_window window{ls::comm::group{world}, 4096};
    const auto flag = window.memory().reserve<int>(1);
    // Between two rounds a rank has not come before all others have.
    if (at != word::second_round)
        now.arrived = [&window, flag](int rank) {
            return std::atomic_ref{window.memory().of(static_cast<std::size_t>(rank), flag)[0]};
        };
    try {
        for (std::uint64_t step = 0; step < failing_step + 2; ++step) (void)trainer.step(x, y);
        std::printf("lockstep: rank %d has ended without an error\n", world.rank());
        return 0;
    } catch (...) {
        const ls::sync::weights_state state = trainer.weights_state();
        const std::string claim = state.text(static_cast<std::size_t>(world.rank()));
        if (state.is_usable() && !(state.steps < after.size() && std::ranges::equal(now.weights, after[state.steps])))
            std::printf("lockstep: rank %d has other weights than it says: %s\n", world.rank(), claim.c_str());
        if (!of.bad && leaves != left::either &&
            (state.is_torn != (leaves == left::torn) || state.steps != failing_step))
            std::printf("lockstep: rank %d should say something else: %s\n", world.rank(), claim.c_str());
        throw;
    }
}

template <class Sync, class Optimizer = ls::optim::sgd, class Clip = ls::sync::no_clipping,
          class Compressor = ls::compress::none, class Factors = ls::sync::no_factors>
auto recipe(ls::transport transport, const Sync& sync, const Optimizer& optimizer = {}, const Clip& clip = {},
            const Compressor& compressor = {}, const Factors& factors = {}, std::size_t workers = 0) {
    return ls::plan{.model = ls::sequential{input{}, ls::layers::flatten{}, ls::layers::dense<10>{}},
                    .loss = ls::softmax_cross_entropy{},
                    .optimizer = optimizer,
                    .schedule = ls::optim::constant{.rate = 0.1},
                    .compressor = compressor,
                    .sync = sync,
                    .clip = clip,
                    .factors = factors,
                    .batch = 12,
                    .lanes = 6,
                    .workers = workers,
                    .overlap = false,
                    .transport = transport};
}

/// As many steps as adaptive takes to try its candidates; their first message fails.
int run_adaptive(const boost::mpi::communicator& world, const faults::fault& of) {
    const std::vector<float> x(2 * input::size, world.rank() == 0 ? 1.0F : 0.5F);
    const std::vector<std::int32_t> y{1, world.rank() == 0 ? 2 : 3};
    const ls::compress::adaptive choice{.candidates = {failing_candidate{{.ratio = 0.1}}}, .least_numbers = 1};
    ls::trainer trainer{world, recipe(ls::transport::messages, ls::sync::every_step{}, ls::optim::sgd{}, {}, choice)};
    now = {.of = of, .at = word::trial, .step = failing_step};
    for (int step = 0; step < 6; ++step) (void)trainer.step(x, y);
    if (of.what != "none") std::printf("lockstep: rank %d has ended without an error\n", world.rank());
    faults::print_hash(world, trainer.weights_hash());
    return 0;
}

int fail(const boost::mpi::communicator& world, const std::string& name) {
    const auto colon = name.find(':');
    const faults::fault of{name.substr(colon + 1), world.rank() == world.size() - 1};
    std::string_view place = std::string_view{name}.substr(0, colon);
    const bool is_shared = place.starts_with("shared_");
    if (is_shared) place.remove_prefix(std::string_view{"shared_"}.size());
    const auto by = is_shared ? ls::transport::shared_memory : ls::transport::messages;
    using every_step = failing<ls::sync::every_step>;
    using local_sgd = failing<ls::sync::local_sgd>;
    const ls::optim::sgd sgd;
    const ls::sync::no_clipping whole;
    // Through shared memory others may have written into the weights of a rank.
    const left before_updates = is_shared ? left::torn : left::whole;
    // Without time to throw between two rounds: what is thrown comes before or after both.
    const word between = of.what == "throw" ? word::commit : word::second_round;
    if (place == "norms")
        return run(world, of, word::norms, before_updates,
                   recipe(by, every_step{}, ls::optim::lars{}, ls::sync::clip_by_global_norm{}));
    if (place == "mean" || place == "mean_late")
        // The slow rank may have sent its part of the worker's gradient before it stops moving messages on, or not: who
        // shares the worker has updated a strip or not begun, and says which.
        return run(world, of, word::commit, place == "mean" ? left::torn : left::either,
                   recipe(by, local_sgd{{.period = 2}}, sgd, whole, {}, {}, place == "mean" ? 0 : 2));
    if (place == "factors")
        return run(world, of, word::agreement, before_updates,
                   recipe(by, every_step{}, sgd, whole, {}, ls::sync::factors{.always = true}));
    if (place == "terngrad")
        return run(world, of, between, left::either,
                   recipe(by, every_step{}, sgd, whole, failing_reduction<ls::compress::terngrad>{}));
    if (place == "power_sgd")
        return run(world, of, between, left::either,
                   recipe(by, every_step{}, sgd, whole, failing_reduction<ls::compress::power_sgd>{}));
    // No rank writes into the weights of another one: they are whole through shared memory as well.
    if (place == "sparse_sum" || place == "worker")
        return run(world, of, word::agreement, left::whole,
                   recipe(by, every_step{}, sgd, whole,
                          ls::compress::error_feedback{ls::compress::sparse_sum{ls::compress::top_k{.ratio = 0.1}}}, {},
                          place == "worker" ? 1 : 0));
    if (place == "adaptive") return run_adaptive(world, of);
    if (place == "delayed") return run(world, of, word::commit, left::torn, recipe(by, failing<ls::sync::delayed>{}));
    throw std::invalid_argument{"no such place"};
}

}  // namespace

int main(int argc, char** argv) {
    return ls::program(argc, argv,
                       [&](const boost::mpi::communicator& world) { return fail(world, argc > 2 ? argv[2] : ""); });
}
