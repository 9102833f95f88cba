// SPDX-License-Identifier: BSD-3-Clause
// How much of the communication of a training step is hidden: trainers that overlap, by polling between layers and by a
// progress thread, and one that does not (plan.overlap), in turns.
//   benchmarks/cluster/run --hosts 2 --rate 500mbit --burst 16384 -- bench_overlap --net vgg [--batch 32] [--bucket
//   100000] [--steps 20] [--turns 5]
//     [--timeline FILE.json] [--against watch|overlap|same|TABLE] [--transport automatic|messages]
// A JSON line for polling and one for the thread, times in ms of a step, from rank 0, medians of the turns:
//   compute    data, forward, backward, update, without overlap        blocking  what communication adds without
//   overlap hideable   what of it could be hidden at best: buckets one after the other, each at its share of
//   `blocking`, started when backward has
//              finished it; weights in the order of forward, which waits before each layer (times of the layers as
//              recorded), but those of the last step of a turn, after which there is nothing to hide them
//   exposed    what the rank still waits with overlap                 hidden    blocking - exposed, and as a share of
//   hideable gained     what the step gains by overlap (wall time): less than hidden by the work of sending and
//   receiving itself, `polling` ms in
//              this process and more in the kernel, which on an emulated cluster is that of all hosts
//   reported   share of communication that trainer.report() calls hidden   recorded  the same from the recorded events
//   of these steps in_vain    what of `polling` was in polls with which no bucket arrived last_bucket .. other   why
//   communication was exposed with overlap, in the last turn
// With --against one line only: the ratio of the times of two trainers in turns, median and quartiles, see against.hpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/comm/program.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/models/lenet5.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/report/timeline.hpp"
#include "lockstep/train/trainer.hpp"
#include "measure.hpp"
#include "overlap/against.hpp"
#include "small_vgg.hpp"

namespace ls = lockstep;
using namespace ls::layers;
using ls::report::activity;

namespace {

struct options {
    std::string net = "lenet5";
    std::size_t batch = 0;
    std::size_t bucket = 10'000;
    std::size_t steps = 20;
    std::size_t turns = 5;
    std::string timeline;
    std::string against;
    ls::transport transport = ls::transport::automatic;
};

options read(int argc, char** argv) {
    options out;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i];
        if (i + 1 == argc)
            throw ls::core::error{"the argument " + name + " is unknown or has no value",
                                  "see the head of overlap.cpp"};
        const std::string value = argv[i + 1];
        if (name == "--net" && value != "lenet5" && value != "vgg")
            throw ls::core::error{"there is no network " + value, "take lenet5 or vgg"};
        else if (name == "--net")
            out.net = value;
        else if (name == "--batch")
            out.batch = std::stoul(value);
        else if (name == "--bucket")
            out.bucket = std::stoul(value);
        else if (name == "--steps")
            out.steps = std::stoul(value);
        else if (name == "--turns")
            out.turns = std::max(1UL, std::stoul(value));
        else if (name == "--timeline")
            out.timeline = value;
        else if (name == "--against")
            out.against = value;
        else if (name == "--transport" && (value == "messages" || value == "automatic"))
            out.transport = value == "messages" ? ls::transport::messages : ls::transport::automatic;
        else
            throw ls::core::error{"the argument " + name + " is unknown", "see the head of overlap.cpp"};
    }
    return out;
}

/// Keeps what happened.
struct tape {
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;
    ls::report::recorder recorded;
    explicit tape(std::size_t steps) { recorded.limit(steps); }
    ls::report::recorder* events_of_this_rank() { return &recorded; }
    void on_step(const ls::report::step_event&) {}
};

/// Seconds for which a bucket was under way, and what of them this rank did not only wait.
struct seen {
    double in_flight = 0;
    double hidden = 0;
};
seen from_events(const std::vector<ls::report::recorded_event>& events) {
    std::vector<std::pair<std::int64_t, std::int64_t>> flights, waits;
    for (const auto& one : events) {
        if (one.what == activity::sum || one.what == activity::share) flights.emplace_back(one.begin, one.end);
        if (one.what == activity::waiting) waits.emplace_back(one.begin, one.end);
    }
    std::sort(flights.begin(), flights.end());
    seen out;
    std::int64_t end = 0;
    std::int64_t exposed = 0;
    std::int64_t all = 0;
    const auto add = [&](std::int64_t from, std::int64_t to) {
        all += to - from;
        for (const auto& wait : waits)
            exposed += std::max<std::int64_t>(0, std::min(to, wait.second) - std::max(from, wait.first));
    };
    for (const auto& one : flights) {
        if (one.second > end) add(std::max(one.first, end), one.second);
        end = std::max(end, one.second);
    }
    out.in_flight = 1e-9 * static_cast<double>(all);
    out.hidden = 1e-9 * static_cast<double>(all - exposed);
    return out;
}

/// The least that stays exposed of a step with these layers and buckets, `pace` seconds a byte for a sum or a share.
/// After the last of the steps of a fit there is no forward: its shares are exposed as a whole.
double unavoidable(const ls::report::recorder& layers, std::size_t steps, std::size_t size, double pace) {
    std::vector<double> forward(size), backward(size);
    double data = 0;
    for (const auto& one : layers.events) {
        const double took = 1e-9 * static_cast<double>(one.end - one.begin) / static_cast<double>(steps);
        if (one.what == activity::forward) forward[one.number] += took;
        if (one.what == activity::backward) backward[one.number] += took;
        if (one.what == activity::data) data += took;
    }
    const auto& buckets = layers.buckets;  // in the order of backward
    double now = 0, links = 0;
    for (std::size_t layer = size; layer-- > 0;) {
        now += backward[layer];
        for (const auto& one : buckets)
            if (one.lowest_layer == layer) links = std::max(links, now) + pace * static_cast<double>(one.bytes) / 2;
    }
    const double sums = std::max(0.0, links - now);
    now = data;
    links = 0;
    double computing = data;
    for (std::size_t layer = 0; layer < size; ++layer) {
        for (const auto& one : buckets)
            if (one.lowest_layer == layer) {
                links += pace * static_cast<double>(one.bytes) / 2;
                now = std::max(now, links);
            }
        now += forward[layer];
        computing += forward[layer];
    }
    const double last = 1 / static_cast<double>(steps);
    return sums + (1 - last) * (now - computing) + last * links;
}

template <class Net>
int measure(const boost::mpi::communicator& world, const options& of, const Net& net, std::size_t default_batch) {
    const std::size_t batch = of.batch > 0 ? of.batch : default_batch;
    const auto plan = [&](bool overlap, bool thread) {
        return ls::plan{.model = net,
                        .loss = ls::softmax_cross_entropy{},
                        .optimizer = ls::optim::momentum{.beta = 0.9},
                        .schedule = ls::optim::constant{.rate = 1e-4},
                        .batch = batch,
                        .bucket = of.bucket,
                        .overlap = overlap,
                        .progress_thread = thread,
                        .transport = of.transport};
    };
    using input = typename Net::input;
    const ls::core::random_stream random{1, ls::core::purpose::user, 1};
    // All weights are waited for at the end of an epoch: there is one in a fit().
    std::vector<float> x(of.steps * batch * input::size);
    std::vector<std::int32_t> y(of.steps * batch);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.uniform(i)) - 0.5F;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::int32_t>(i % 10);
    const auto set = ls::data::in_memory<input, ls::tensor::classes<10>>(x, y);
    if (!of.against.empty())
        return benchmark::measure_against(world, of.against, plan(true, false), set, of.steps, of.turns);
    const ls::comm::group ranks{world};
    ls::trainer polling{ranks, plan(true, false)};
    ls::trainer threaded{ranks, plan(true, true)};
    ls::trainer waiting{ranks, plan(false, false)};
    using network = typename decltype(polling)::network;

    const auto per_step = [&](double seconds) { return seconds / static_cast<double>(of.steps); };
    struct round {
        double seconds;
        ls::report::seconds_spent spent;
    };
    struct figures {
        std::vector<double> gains, of_hideable, exposed, polling, in_vain, steps, reported, recorded;
        ls::report::exposed_because because;
    };
    figures of_both[2];
    std::vector<double> compute, blocking, hideable;
    for (std::size_t turn = 0; turn <= of.turns; ++turn) {
        const auto fit = [&](auto& trainer, tape& to) {
            const auto before = trainer.report().seconds;
            world.barrier();
            const double begin = benchmark::seconds(true);
            trainer.fit(set, ls::steps{of.steps}, to);
            return round{per_step(benchmark::seconds(true) - begin), trainer.report().seconds - before};
        };
        tape without{of.steps}, polled{of.steps}, beside{of.steps};
        const round a = fit(waiting, without);
        const round both[2] = {fit(polling, polled), fit(threaded, beside)};
        if (turn == 0) continue;  // connects the hosts
        const double work = per_step(a.spent.data + a.spent.forward + a.spent.backward + a.spent.update);
        const double wait = a.seconds - work;
        double bytes = 0;
        for (const auto& one : without.recorded.buckets) bytes += static_cast<double>(one.bytes);
        const double most = wait - unavoidable(without.recorded, of.steps, network::size, wait / bytes);
        compute.push_back(work);
        blocking.push_back(wait);
        hideable.push_back(most);
        for (const bool thread : {false, true}) {
            const round& b = both[thread];
            const auto& events = (thread ? beside : polled).recorded.events;
            figures& to = of_both[thread];
            to.gains.push_back(a.seconds - b.seconds);
            to.exposed.push_back(per_step(b.spent.communication_exposed));
            to.of_hideable.push_back(most > 0 ? (wait - to.exposed.back()) / most
                                              : 0);  // nothing to hide, nothing hidden
            to.steps.push_back(b.seconds);
            const double told = b.spent.communication();
            to.reported.push_back(told > 0 ? b.spent.communication_hidden / told : 0);
            const auto found = from_events(events);
            double waits = 0, polls = 0, nothing = 0;
            bool arrived = false;  // since the last poll
            for (const auto& one : events) {
                const double took = 1e-9 * static_cast<double>(one.end - one.begin);
                if (one.what == activity::waiting) waits += took;
                if (one.what == activity::polling) {
                    polls += took;
                    if (!arrived) nothing += took;
                }
                arrived = one.what == activity::sum || one.what == activity::share;
            }
            to.polling.push_back(per_step(polls));
            to.in_vain.push_back(per_step(nothing));
            to.recorded.push_back(found.hidden / (found.hidden + waits));
            to.because = b.spent.because;
        }
    }
    if (!of.timeline.empty())
        polling.fit(set, ls::steps{of.steps}, ls::timeline{of.timeline, of.steps, of.timeline + ".svg"});
    const auto middle = [&](const std::vector<double>& all) { return benchmark::median(all); };
    for (const bool thread : {false, true}) {
        const figures& one = of_both[thread];
        if (world.rank() == 0)
            std::printf(
                "{\"bench\":\"overlap\",\"net\":\"%s\",\"progress\":\"%s\",\"ranks\":%d,\"batch\":%zu,\"buckets\":%zu,"
                "\"bytes\":%zu,"
                "\"compute\":%."
                "3f,\"blocking\":%.3f,\"of_compute\":%.2f,\"hideable\":%.3f,\"exposed\":%.3f,\"hidden\":%.3f,\"of_"
                "hideable\":%.3f,"
                "\"gained\":%."
                "3f,\"polling\":%.3f,\"in_vain\":%.4f,\"step\":%.3f,\"reported\":%.3f,\"recorded\":%.3f,\"last_"
                "bucket\":%.3f,\"no_"
                "progress\":%.3f,\"large_"
                "bucket\":%.3f,\"slow_rank\":%.3f,\"other\":%.3f}\n",
                of.net.c_str(), thread ? "thread" : "polling", world.size(), batch, polling.buckets(),
                polling.averaging_bytes(), 1e3 * middle(compute), 1e3 * middle(blocking),
                middle(blocking) / middle(compute), 1e3 * middle(hideable), 1e3 * middle(one.exposed),
                1e3 * (middle(blocking) - middle(one.exposed)), middle(one.of_hideable), 1e3 * middle(one.gains),
                1e3 * middle(one.polling), 1e3 * middle(one.in_vain), 1e3 * middle(one.steps), middle(one.reported),
                middle(one.recorded), 1e3 * per_step(one.because.last_bucket), 1e3 * per_step(one.because.no_progress),
                1e3 * per_step(one.because.large_bucket), 1e3 * per_step(one.because.slow_rank),
                1e3 * per_step(one.because.other));
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    return ls::program(
        argc, argv,
        [&](const boost::mpi::communicator& world) {
            const options of = read(argc, argv);
            if (of.net == "vgg") return measure(world, of, benchmark::small_vgg, 32);
            return measure(world, of, ls::models::lenet5, 512);
        },
        boost::mpi::threading::serialized);
}
