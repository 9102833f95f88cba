// SPDX-License-Identifier: BSD-3-Clause
// Trains a network on handwritten digits: drawn by the program itself, or MNIST files. `mpirun -n 2 train --help` lists
// the options.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <CLI/CLI.hpp>

#include "../same_folder.hpp"
#include "../whole_number.hpp"
#include "lockstep/comm/program.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/report/progress.hpp"
#include "compressors.hpp"
#include "networks.hpp"

namespace {

using lockstep::core::error;
using lockstep::core::text;

template <class Number>
Number read(const std::string& option, const std::string& word, const std::string& usage) {
    Number number{};
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (problem != std::errc{} || end != word.data() + word.size())
        throw error{word.empty() ? text(option, " has no number") : text(option, " has '", word, "'"),
                    "write " + usage};
    return number;
}

/// Of a strategy that names one.
lockstep::sync::graph graph_of(const example::options& of, const std::string& name, const std::string& usage) {
    using namespace lockstep::sync;
    const std::array graphs{ring, torus, exponential, random_pairs};
    const auto* const found = std::ranges::find(graphs, name, &graph::name);
    if (found == graphs.end()) throw error{text("--sync ", of.sync, " names a graph that is not known"), usage};
    return *found;
}

/// The strategy's name and what follows its colon.
void interpret_sync(example::options& of, const std::pair<std::string, std::string>& cut) {
    const auto& [sync, setting] = cut;
    const std::string usage =
        "every, delayed, local:PERIOD, gossip[:GRAPH], choco[:GAMMA[,GRAPH]], server[:[BOUND][,RANKS]], "
        "asynchronous[:LEARNERS[,BOUND]] or asynchronous:FILE, for example local:8";
    of.is_of_workers =
        sync == "local" || sync == "gossip" || sync == "choco" || sync == "asynchronous" || sync == "server";
    const bool has_setting = of.sync.size() > sync.size();
    if (sync == "local") {
        of.period = read<std::size_t>("--sync local", setting, usage);
        if (of.period == 0) throw error{"--sync local:0 would average weights every 0 steps", "write " + usage};
    } else if (sync == "gossip") {
        if (has_setting)
            of.graph =
                graph_of(of, setting, "write gossip:ring, gossip:torus, gossip:exponential or gossip:random_pairs");
    } else if (sync == "choco") {
        const auto comma = setting.find(',');
        of.gamma = has_setting ? read<double>("--sync choco", setting.substr(0, comma), usage) : 0.1;
        if (comma != std::string::npos)
            of.graph = graph_of(of, setting.substr(comma + 1), "write choco:0.1,ring or choco:0.1,torus");
    } else if (sync == "server") {
        const auto comma = setting.find(',');
        if (has_setting && comma != 0)
            of.bound = read<std::uint64_t>("--sync server", setting.substr(0, comma), usage);
        if (comma != std::string::npos)
            of.ranks_per_learner = read<std::size_t>("--sync server", setting.substr(comma + 1), usage);
    } else if (sync == "asynchronous") {
        const auto comma = setting.find(',');
        const bool is_number = setting.empty() || (setting.front() >= '0' && setting.front() <= '9');
        if (has_setting && !is_number) {
            of.replay = setting;
            return;
        }
        if (has_setting) of.learners = read<std::size_t>("--sync asynchronous", setting.substr(0, comma), usage);
        if (has_setting && of.learners == 0)
            throw error{text("--sync ", of.sync, " has 0 learners"), "give at least 1, or leave them out"};
        if (comma != std::string::npos)
            of.bound = read<std::uint64_t>("--sync asynchronous", setting.substr(comma + 1), usage);
    } else if (of.sync != "every" && of.sync != "delayed") {
        throw error{text("--sync '", of.sync, "' is not known"), "write " + usage};
    }
}

/// `given(option)`: whether it stands on the command line.
template <class F>
void interpret(example::options& of, const F& given) {
    const auto cut = [](const std::string& whole) {
        const auto colon = whole.find(':');
        return std::pair{whole.substr(0, colon), colon == std::string::npos ? std::string{} : whole.substr(colon + 1)};
    };
    if (!of.resume.empty() && !of.load_weights.empty() && !example::is_same_folder(of.resume, of.checkpoint))
        throw error{"--resume and --load-weights were both given: a resumed run has the weights of its checkpoint",
                    "leave one of them out, or give --checkpoint the folder of --resume: then its first start loads "
                    "them"};
    const auto [partition, shards] = cut(of.partition);
    const std::string partitions =
        "data, model:M or hybrid:M with M shards of each dense layer, or pipeline:S with S stages, such as hybrid:2";
    if (partition == "model" || partition == "hybrid")
        of.shards = read<std::size_t>("--partition", shards, partitions);
    else if (partition == "pipeline")
        of.stages = read<std::size_t>("--partition", shards, partitions);
    else if (of.partition != "data")
        throw error{text("--partition '", of.partition, "' is not known"), "write " + partitions};
    of.replicates = partition != "model";

    const bool is_choco = of.sync.starts_with("choco");
    const auto compressor = example::choose_compressor(of.compress, nullptr, is_choco);
    const bool is_plain = std::holds_alternative<lockstep::compress::none>(compressor);
    const bool is_gathered = std::holds_alternative<example::gathered>(compressor);
    const bool has_workers_momentum = std::holds_alternative<example::with_momentum_of_workers>(compressor);
    const bool has_frozen_variance = std::holds_alternative<example::with_frozen_variance>(compressor);
    const bool is_adaptive = std::holds_alternative<lockstep::compress::adaptive>(compressor);
    of.is_compressed_otherwise = !(is_plain || is_gathered);
    if (of.compress_statistics && is_plain)
        throw error{text("--compress-statistics with --compress ", of.compress, ", whose messages are not measured"),
                    "leave it out, or take one such as topk"};

    if (of.plan_only && of.quiet) throw error{"--plan with --quiet would show nothing", "leave one of them out"};
    if (of.compress_statistics && of.quiet && of.html.empty())
        throw error{"--compress-statistics with --quiet and without --html would show nothing",
                    "leave one of them out, or name a page with --html"};
    if (!of.compress_choices.empty() && !is_adaptive)
        throw error{text("--compress-choices with --compress ", of.compress, ", which chooses nothing"),
                    "leave it out, or write --compress adaptive"};
    if (is_adaptive && std::isfinite(of.clip))
        throw error{text("--compress ", of.compress, " measures no norms before its updates"), "leave --clip out"};

    if (given("--checkpoint-every") && of.checkpoint.empty())
        throw error{"--checkpoint-every was given without a folder for checkpoints", "name one with --checkpoint"};
    if (given("--momentum") && (of.optimizer == "adam" || has_frozen_variance))
        throw error{text("--momentum was given with ",
                         has_frozen_variance ? "--compress " + of.compress : "--optimizer adam", ", which has its own"),
                    "leave it out"};

    interpret_sync(of, cut(of.sync));
    if (!of.sync_arrivals.empty() && !of.sync.starts_with("asynchronous") && !of.sync.starts_with("server"))
        throw error{text("--sync-arrivals with --sync ", of.sync, ", where all gradients arrive together"),
                    "leave it out, or write --sync server or --sync asynchronous"};

    // Each combination is a trainer of its own; these are compiled into this program.
    if (of.shards > 1 && (of.is_compressed_otherwise || of.optimizer == "lars"))
        throw error{text("--compress ", of.compress, " with --optimizer ", of.optimizer,
                         " is compiled for whole layers, which --partition ", of.partition, " cuts"),
                    "leave --partition out"};
    if (of.stages != 1 && of.stages != 2)
        throw error{text("--partition ", of.partition, " in a program that has pipelines of 2 stages"),
                    "write --partition pipeline:2"};
    if (of.stages > 1 && !(is_plain && of.optimizer == "momentum" && of.sync == "every" && !std::isfinite(of.clip)))
        throw error{text("--partition ", of.partition, " is compiled for momentum, without compression or clipping"),
                    "leave --compress, --optimizer, --sync and --clip out"};
    const bool sends = of.period > 0 || is_choco;
    if (is_choco && is_plain)
        throw error{text("--sync ", of.sync, " without --compress"),
                    "name a compressor such as topk, or write --sync gossip"};
    if (sends && !(is_plain || is_gathered))
        throw error{text("--sync ", of.sync, " is compiled for compressors whose messages are gathered, as those of ",
                         "--compress ", of.compress, " are not"),
                    is_choco ? "take one such as topk" : "leave --compress out, or take one such as topk"};
    if (of.sync != "every" && !((is_plain || sends) && of.optimizer == "momentum"))
        throw error{text("--sync ", of.sync,
                         " is compiled for momentum, and except for local and choco without compression"),
                    sends ? "leave --optimizer out" : "leave --compress and --optimizer out"};
    if (of.sync != "every" && std::isfinite(of.clip))
        throw error{text("--sync ", of.sync, " measures no norms before its updates"), "leave --clip out"};
    if (of.is_of_workers && of.shards > 1)
        throw error{
            text("--sync ", of.sync, " trains a whole network on each rank, which --partition ", of.partition, " cuts"),
            "leave --partition out"};
    if (of.factors != "never" && !(is_plain && of.optimizer == "momentum" && of.sync == "every" &&
                                   of.partition == "data" && !std::isfinite(of.clip)))
        throw error{text("--factors ", of.factors,
                         " is compiled for momentum, without compression or clipping and for whole layers"),
                    "leave --compress, --optimizer, --sync, --clip and --partition out"};
    if (has_workers_momentum || has_frozen_variance) {
        if (given("--optimizer"))
            throw error{
                text("--optimizer was given with --compress ", of.compress, ", which is an optimizer of its own"),
                "leave it out"};
        if (has_frozen_variance && std::isfinite(of.clip))
            throw error{text("--clip with --compress ", of.compress, ", whose sums are momenta"), "leave it out"};
        of.optimizer = has_frozen_variance ? "one_bit_adam" : "deep_gradient";
        if (!given("--weight-decay")) of.weight_decay = 0;
    } else if (of.optimizer != "momentum" && !is_plain) {
        throw error{text("--optimizer ", of.optimizer, " is compiled without compression"),
                    "leave --compress out, or take momentum"};
    }
}

/// Shards are compiled in: which numbers divide every dense layer is known before.
template <class Net>
void require_shards(const Net& net, std::size_t shards) {
    using shardable = lockstep::model::shardable<Net>;
    if (shards == 0) throw error{"a model partition with 0 shards", "use at least 1"};
    const std::size_t at = shardable::first_undivided(shards);
    (void)net;
    if (at == Net::size) return;
    const auto& layer = lockstep::model::network<Net, 1>::facts[at];
    lockstep::core::fail(text("layer ", at, " (", layer.name, ", ", layer.outputs, " outputs) cannot be cut into ",
                              shards, " equal shards"),
                         "use 1 or 2 shards, which divide every dense layer of this network");
}

void describe(CLI::App& app, example::options& of) {
    app.description(
        "Trains a network on handwritten digits, on all ranks of mpirun together.\n"
        "The batch is the global one: more ranks give the same weights, bit for bit, sooner.\n\n"
        "  mpirun -n 2 train                                    LeNet on generated digits\n"
        "  mpirun -n 4 train --data mnist --epochs 5            on MNIST files in the folder mnist\n"
        "  mpirun -n 4 train --net mlp --partition hybrid:2     dense layers cut over pairs of ranks\n"
        "  mpirun -n 4 train --partition pipeline:2             two stages, each on two ranks; the same weights\n"
        "  mpirun -n 2 train --compress topk:0.01 --workers 8   send 1 % of each gradient; the same weights on 1 to 8 "
        "ranks\n"
        "  mpirun -n 2 train --sync delayed                     communication hides behind the whole next step\n"
        "  mpirun -n 2 train --sync local:8 --workers 4         4 workers average their weights every 8 steps\n"
        "  mpirun -n 2 train --sync gossip:ring --workers 8     8 workers average with their neighbours on a ring\n"
        "  mpirun -n 2 train --sync asynchronous --workers 8    8 learners of a parameter server, drawn from the seed\n"
        "  mpirun -n 4 train --sync server                      each rank is a learner, and waits for none");
    const auto any_number = example::any_number(), positive = example::positive_number();
    const auto seconds =
        example::number([](double one) { return one >= 0 && one < 1e9; }, "a number of seconds from 0 to below 1e9",
                        "SECONDS");
    const auto add_path = [&](const char* option, std::string& to, const char* what) {
        return app.add_option(option, to, what)->check(example::a_name());
    };
    app.add_option("--net", of.net, "network: lenet (2 convolutions, 582,026 weights) or mlp (784-1024-1024-10)")
        ->check(CLI::IsMember({"lenet", "mlp"}))
        ->capture_default_str();
    add_path("--data", of.data,
             "'digits' (generated, nothing to download) or a folder with the four MNIST files, .gz or not")
        ->capture_default_str();
    CLI::Option* const epochs = app.add_option("--epochs", of.epochs, "passes over the training samples")
        ->transform(example::whole_number(1))->capture_default_str();
    app.add_option("--steps", of.steps, "stop after so many steps instead of epochs")
        ->transform(example::whole_number(1))
        ->excludes(epochs);
    app.add_option("--batch", of.batch, "samples of the GLOBAL minibatch")
        ->transform(example::whole_number(1))->capture_default_str();
    app.add_option("--lanes", of.lanes, "cut of the minibatch; part of the recipe, at least as many as ranks")
        ->transform(example::whole_number(1))->capture_default_str();
    app.add_option("--partition", of.partition,
                   "data, model:M or hybrid:M (M ranks share each dense layer), or pipeline:S (S ranks have a part of "
                   "the layers each); 1 or 2 in this program")
        ->capture_default_str();
    app.add_option("--compress", of.compress,
                   "gradients: none or one of --list-compressors, such as topk:0.01; with error feedback, which "
                   "':plain' at the end leaves out. Other bits, "
                   "the same on any number of ranks for the same --workers")
        ->capture_default_str();
    app.add_flag("--list-compressors", of.list_compressors,
                 "print the names that --compress takes, their settings and bytes, and stop");
    add_path(
        "--compress-choices", of.compress_choices,
        "file for what --compress adaptive has chosen: --compress adaptive:FILE repeats it, on any number of ranks for "
        "the same --workers");
    app.add_flag("--compress-statistics", of.compress_statistics,
                 "print bytes, error and time of the messages of rank 0 for each tensor at the end, and show them in "
                 "the page of --html; the same bits");
    app.add_option("--workers", of.workers,
                   "owners of residuals with --compress and of weights with --sync local, gossip, choco or "
                   "asynchronous: part of the recipe; 0: one for each rank. Else they change no bit")
        ->transform(example::whole_number(0))
        ->capture_default_str();
    app.add_option("--sync", of.sync,
                   "every: each step waits for its gradients; delayed: they are applied a step later, other bits, the "
                   "same on any number of ranks; "
                   "local:PERIOD: --workers train weights of their own and average them every PERIOD steps, or with "
                   "--compress send how far they have come; "
                   "gossip[:GRAPH]: in each step they average with their neighbours on a ring, torus, exponential or "
                   "random_pairs; choco[:GAMMA[,GRAPH]]: the same through --compress, towards copies of neighbours by "
                   "GAMMA (0.1); asynchronous[:LEARNERS[,BOUND]]: a parameter server is updated by the next --workers "
                   "gradients of LEARNERS (--workers) that arrive in an order drawn from the seed, none more than "
                   "BOUND ahead, or as in FILE of --sync-arrivals (asynchronous:FILE); all of these: other bits, the "
                   "same on any number of ranks for the same --workers; server[:[BOUND][,RANKS]]: the same over "
                   "messages, where each rank, or so many together, is a learner, and the order is that of the machine")
        ->capture_default_str();
    add_path("--sync-arrivals", of.sync_arrivals,
             "file for the list of arrivals of --sync asynchronous or server, a line of learner, version and time for "
             "each gradient: --sync asynchronous:FILE repeats it, with the same --workers; that of a server with "
             "--workers 1");
    app.add_option("--factors", of.factors,
                   "dense layers that send rows of x and dy in place of gradients, the same bits: never, always, or "
                   "automatic (where they cost less)")
        ->check(CLI::IsMember({"never", "automatic", "always"}))
        ->capture_default_str();
    app.add_option("--optimizer", of.optimizer,
                   "momentum (Nesterov), adam (wants an --lr of about 0.001), or lars (a rate for each tensor by its "
                   "norms; wants an --lr above 1): "
                   "other bits, the same on any number of ranks")
        ->check(CLI::IsMember({"momentum", "adam", "lars"}))
        ->capture_default_str();
    app.add_option("--clip", of.clip,
                   "longest gradient, by its norm over all weights; none if not given. Where it clips, other bits, the "
                   "same on any number of ranks")
        ->check(positive);
    app.add_option("--lr", of.rate, "peak learning rate")->check(positive)->capture_default_str();
    app.add_option("--schedule", of.schedule, "cosine (with warm-up) or constant")
        ->check(CLI::IsMember({"cosine", "constant"}))
        ->capture_default_str();
    app.add_option("--momentum", of.momentum,
                   "of Nesterov's method, of lars, or of each worker with --compress dgc")
        ->check(any_number)->capture_default_str();
    app.add_option("--weight-decay", of.weight_decay,
                   "L2 penalty on weights, not on biases; with --compress dgc outside of the momentum, with onebitadam "
                   "decoupled; with either of the two 0 if not given")
        ->check(any_number)->capture_default_str();
    app.add_option("--dropout", of.dropout, "probability that a hidden unit is left out in training")
        ->check(any_number)->capture_default_str();
    app.add_option("--seed", of.seed, "of everything random")
        ->transform(example::whole_number(0, UINT64_MAX))->capture_default_str();
    app.add_option("--threads", of.threads, "OpenMP threads on each rank")
        ->transform(example::whole_number(1))->capture_default_str();
    app.add_option(
           "--transport", of.transport,
           "how gradients go between ranks, the same bits: messages, shared_memory (ranks of one node), or automatic")
        ->check(CLI::IsMember({"automatic", "messages", "shared_memory"}))
        ->capture_default_str();
    app.add_option("--progress", of.progress,
                   "what moves gradients and weights on while layers are computed, the same bits: polling between "
                   "them, or a thread")
        ->check(CLI::IsMember({"polling", "thread"}))
        ->capture_default_str();
    app.add_option(
        "--all-reduce", of.all_reduce,
        "algorithm of messages, by bytes of a bucket, in quotes: \"doubling:0-8192;tree:8193-max\"; by measured costs "
        "if not given")
        ->check(example::a_name());
    app.add_option(
           "--timeout", of.timeout,
           "seconds to wait for another rank before the job ends; 0: for ever; default: LOCKSTEP_TIMEOUT, or 60")
        ->check(seconds);
    app.add_option("--train-samples", of.train_samples, "generated digits in an epoch")
        ->transform(example::whole_number(1))->capture_default_str();
    app.add_option("--test-samples", of.test_samples, "generated digits to test on")
        ->transform(example::whole_number(1))->capture_default_str();
    add_path(
        "--checkpoint", of.checkpoint,
        "folder for checkpoints, from which any number of ranks can go on with the same bits (where --compress or "
        "--sync has workers, with those of the checkpoint); the newest two stay");
    app.add_option("--checkpoint-every", of.checkpoint_every, "steps from one checkpoint to the next")
        ->transform(example::whole_number(1))->capture_default_str();
    app.add_flag("--checkpoint-behind", of.checkpoint_behind,
                 "a thread of each rank writes checkpoints during the steps; takes memory for a second state")
        ->needs("--checkpoint");
    add_path("--resume", of.resume,
                   "go on from the newest checkpoint in this folder, to the same --epochs or --steps in all; "
                   "the folder of --checkpoint may be without one: a first start");
    app.add_option("--may-change", of.may_change,
                   "lines of the recipe that need not be those of the checkpoint, as its error names them: "
                   "\"schedule, learning rates\"")
        ->delimiter(',')
        ->transform(CLI::Validator{[](std::string& one) {
                                       one = CLI::detail::trim_copy(one);
                                       return std::string{};
                                   },
                                   "NAME,.."})
        ->needs("--resume");
    add_path("--save-weights", of.save_weights, "safetensors file for the weights at the end");
    add_path("--load-weights", of.load_weights,
                   "begin with the weights of such a file, or of state.safetensors of a checkpoint; a run that is "
                   "resumed from its own --checkpoint folder keeps those of the checkpoint");
    add_path("--csv", of.csv, "file for a line of numbers after each step");
    add_path("--log", of.log,
                   "file for JSON lines: begin, steps, epochs, end; `lockstep-compare` puts such files side by side");
    add_path("--timeline", of.timeline,
                   "file for the first 50 steps as trace events, for Perfetto; FILE.svg is a picture of one");
    add_path("--report", of.report, "file for the final report as JSON");
    add_path("--html", of.html,
             "file for a page of the run, written after epochs and at the end: curves, time, memory, the recipe; with "
             "--timeline a recorded step");
    add_path("--tensorboard", of.tensorboard,
                   "folder for event files, a folder for each run; look at them with `tensorboard --logdir FOLDER`");
    app.add_flag("--plan", of.plan_only, "print the plan and stop");
    app.add_flag("--quiet", of.quiet, "print nothing unless something fails");
}

/// How many letters have to be put in, taken out or changed (Levenshtein 1966).
std::size_t distance(const std::string& a, const std::string& b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t before = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j)
            before =
                std::exchange(row[j + 1], std::min({before + (a[i] == b[j] ? 0U : 1U), row[j] + 1, row[j + 1] + 1}));
    }
    return row.back();
}

/// Names the first word that is no option, and the option that was probably meant.
[[noreturn]] void refuse_unknown(const CLI::App& app) {
    const auto words = app.remaining();
    const auto found =
        std::find_if(words.begin(), words.end(), [](const std::string& one) { return one.starts_with("-"); });
    const std::string word = found == words.end() ? words.front() : found->substr(0, found->find('='));
    std::string nearest;
    std::size_t least = 3;
    for (const CLI::Option* option : app.get_options())
        if (const std::size_t to = distance(word, option->get_name()); to < least) {
            least = to;
            nearest = option->get_name();
        }
    throw error{text("'", word, "' is no option"),
                nearest.empty() ? "see train --help" : "did you mean " + nearest + "? See train --help"};
}

}  // namespace

int main(int argc, char** argv) {
    return lockstep::program(argc, argv, [&](const boost::mpi::communicator& world) {
        example::options of;
        CLI::App app;
        describe(app, of);
        // The parser takes no notice of it.
        if (std::find(argv, argv + argc, std::string_view{"--"}) != argv + argc)
            throw error{"'--' is no option", "see train --help"};
        try {
            app.parse(argc, argv);
        } catch (const CLI::Success&) {
            if (world.rank() == 0) lockstep::report::print(std::cout, app.help());
            return 0;
        } catch (const CLI::ExtrasError&) {
            refuse_unknown(app);
        } catch (const CLI::ArgumentMismatch& mistake) {
            throw error{mistake.what(), "give each option once, with a value; see train --help"};
        } catch (const CLI::ParseError& mistake) {
            throw error{mistake.what(), "see train --help"};
        }
        if (of.list_compressors) {
            if (world.rank() == 0) lockstep::report::print(std::cout, example::list_of_compressors());
            return 0;
        }
        for (const char* option : {"--train-samples", "--test-samples"})
            if (app.count(option) > 0 && of.data != "digits")
                throw error{text(option, " was given with the files in '", of.data, "', which are used whole"),
                            "leave it out, or generate samples with --data digits"};
        interpret(of, [&](const char* option) { return app.count(option) > 0; });
        if (of.net == "lenet") {
            require_shards(example::lenet(of.dropout), of.shards);
            if (of.is_compressed_otherwise) return example::run_lenet_compressed(world, of);
            if (of.is_of_workers) return example::run_lenet_of_workers(world, of);
            if (of.stages > 1) return example::run_lenet_in_two_stages(world, of);
            return of.shards == 1 ? example::run_lenet(world, of) : example::run_lenet_in_two_shards(world, of);
        }
        require_shards(example::mlp(of.dropout), of.shards);
        if (of.is_compressed_otherwise) return example::run_mlp_compressed(world, of);
        if (of.is_of_workers) return example::run_mlp_of_workers(world, of);
        if (of.stages > 1) return example::run_mlp_in_two_stages(world, of);
        return of.shards == 1 ? example::run_mlp(world, of) : example::run_mlp_in_two_shards(world, of);
    }, boost::mpi::threading::serialized);  // --progress thread
}
