// SPDX-License-Identifier: BSD-3-Clause
// One network as a test case, for a file that defines SEED, NETWORK, LOSS, OPTIMIZER, SETTINGS and SHARDS: the compiler
// and the naive walk read the same text.
#include "networks/headers.hpp"

#define NETWORKS_WORDS(...) #__VA_ARGS__
#define NETWORKS_TEXT(...) NETWORKS_WORDS(__VA_ARGS__)

namespace networks {

/// What a text may name. A declaration for each: <cmath> has functions of some of these names.
namespace names {
using lockstep::add;
using lockstep::concatenate;
using lockstep::input;
using lockstep::mean_squared_error;
using lockstep::path;
using lockstep::recompute;
using lockstep::residual;
using lockstep::sequential;
using lockstep::softmax_cross_entropy;
using lockstep::transport;
using lockstep::layers::batch_norm;
using lockstep::layers::bias;
using lockstep::layers::conv;
using lockstep::layers::conv_max_pool;
using lockstep::layers::conv_max_pool_options;
using lockstep::layers::conv_options;
using lockstep::layers::dense;
using lockstep::layers::depthwise_conv;
using lockstep::layers::dropout;
using lockstep::layers::flatten;
using lockstep::layers::gelu;
using lockstep::layers::global_mean_pool;
using lockstep::layers::layer_norm;
using lockstep::layers::local_response_norm;
using lockstep::layers::max_pool;
using lockstep::layers::mean_pool;
using lockstep::layers::relu;
using lockstep::layers::rows_and_columns;
using lockstep::layers::shortcut;
using lockstep::layers::sigmoid;
using lockstep::layers::tanh;
using lockstep::layers::tuned;
using lockstep::optim::adam;
using lockstep::optim::momentum;
using lockstep::optim::sgd;
using lockstep::optim::weight_decay;

/// Rules of convolutions: one algorithm wherever it applies.
template <lockstep::kernels::algorithm Wanted>
[[nodiscard]] constexpr lockstep::kernels::algorithm always(const lockstep::kernels::convolution& g,
                                                            lockstep::kernels::convolution_pass) noexcept {
    return lockstep::kernels::applies(Wanted, g) ? Wanted : lockstep::kernels::algorithm::direct;
}
inline constexpr auto* always_direct = &always<lockstep::kernels::algorithm::direct>;
inline constexpr auto* always_winograd2 = &always<lockstep::kernels::algorithm::winograd2>;
inline constexpr auto* always_winograd4 = &always<lockstep::kernels::algorithm::winograd4>;
inline constexpr auto* always_im2col = &always<lockstep::kernels::algorithm::im2col>;

namespace {
constexpr auto the_network = NETWORK;
constexpr auto the_loss = LOSS;
constexpr auto the_optimizer = OPTIMIZER;
}  // namespace
}  // namespace names

namespace {

struct keep_losses {
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;  // they may travel on
    std::vector<double>& values;
    void on_step(const lockstep::report::step_event& event) { values.push_back(event.loss); }
};

template <class Partition>
outcome run(const lockstep::comm::group& ranks, const settings& of, const beginning& from, bool each_step) {
    namespace ls = lockstep;
    ls::trainer trainer{ranks, ls::plan{.model = names::the_network,
                                        .loss = names::the_loss,
                                        .optimizer = names::the_optimizer,
                                        .schedule = ls::optim::constant{.rate = of.rate},
                                        .partition = Partition{},
                                        .sampler = ls::data::ordered{},
                                        .precision = ls::real<double>{},
                                        .batch = of.batch,
                                        .lanes = of.lanes,
                                        .seed = of.seed,
                                        .threads = ls::parallel::has_threads ? of.threads : 1,
                                        .bucket = of.bucket,
                                        .overlap = of.overlap,
                                        .progress_thread = of.progress_thread,
                                        .prefetch = of.prefetch,
                                        .transport = of.transport,
                                        .all_reduce = of.all_reduce}};
    using made = decltype(trainer);
    using label_element = typename made::label_element;
    trainer.load_weights(from.weights, from.running);
    const std::vector<label_element> labels(from.training.y.begin(), from.training.y.end());
    const std::vector<label_element> test_labels(from.test.y.begin(), from.test.y.end());
    const auto training = ls::data::in_memory<typename made::input, typename made::label>(from.training.x, labels);
    const auto test = ls::data::in_memory<typename made::input, typename made::label>(from.test.x, test_labels);
    outcome out;
    keep_losses losses{out.losses};
    for (std::size_t at = 0; at < (each_step ? of.steps : 1); ++at) {
        trainer.fit(training, ls::steps{each_step ? 1 : of.steps}, losses);
        out.weights.push_back(trainer.all_weights());
    }
    out.running.assign(trainer.running_statistics().begin(), trainer.running_statistics().end());
    const auto seen = trainer.evaluate(test);
    out.test_loss = seen.loss;
    out.accuracy = seen.accuracy.value_or(0);
    out.hash = trainer.weights_hash();
    return out;
}

const std::size_t number = enter(
    {.seed = NETWORKS_TEXT(SEED),
     .network = NETWORKS_TEXT(NETWORK),
     .loss = NETWORKS_TEXT(LOSS),
     .optimizer = NETWORKS_TEXT(OPTIMIZER),
     .settings_text = NETWORKS_TEXT(SETTINGS),
     .numbers =
         [] {
             using names::transport;
             return settings{SETTINGS};
         }(),
     .shards = SHARDS,
     .on_data = run<lockstep::partition::data>,
     .on_shards =
         [] {
             if constexpr (SHARDS > 1)
                 return runner{
                     run<lockstep::partition::hybrid<lockstep::partition::data, lockstep::partition::model<SHARDS>>>};
             else
                 return runner{};
         }()});

}  // namespace

TEST_CASE("networks/" NETWORKS_TEXT(SEED) ": equals the naive walk, with one hash on 1 to 4 ranks", "[networks]") {
    check(entries().at(number));
}

}  // namespace networks
