// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <utility>

#include <nlohmann/json.hpp>

namespace {

using nlohmann::json;

json configuration(const example::options& of) {
    return {{"net", of.net},
            {"data", of.data},
            {"epochs", of.epochs},
            {"steps", of.steps},
            {"batch", of.batch},
            {"lanes", of.lanes},
            {"partition", of.partition},
            {"compress", of.compress},
            {"workers", of.workers},
            {"sync", of.sync},
            {"factors", of.factors},
            {"optimizer", of.optimizer},
            {"lr", of.rate},
            {"schedule", of.schedule},
            {"momentum", of.momentum},
            {"weight_decay", of.weight_decay},
            {"clip", of.clip},
            {"dropout", of.dropout},
            {"seed", of.seed},
            {"threads", of.threads},
            {"transport", of.transport},
            {"progress", of.progress},
            {"all_reduce", of.all_reduce},
            {"timeout", of.timeout}};
}

json plan(const example::report_facts& of) {
    json layers = json::array();
    for (const auto& row : of.layers)
        layers.push_back({{"name", row.name},
                          {"output", row.output},
                          {"parameters", row.parameters},
                          {"forward_flops", row.flops},
                          {"sharded", row.is_sharded}});
    return {{"grid",
             {{"ranks", of.grid.ranks},
              {"replicas", of.grid.replicas()},
              {"shards", of.grid.shards},
              {"threads", of.threads}}},
            {"input", of.input},
            {"layers", layers},
            {"parameters", of.parameters},
            {"forward_flops_per_sample", of.forward_flops},
            {"training_flops_per_sample", of.training_flops},
            {"transport", of.transport},
            {"bytes_per_step", {{"averaging", of.averaging_bytes}, {"between_layers", of.between_layers}}},
            {"memory_bytes", of.memory_bytes},
            {"memory",
             {{"weights", of.memory.weights},
              {"gradients", of.memory.gradients},
              {"optimizer", of.memory.optimizer},
              {"activations", of.memory.activations},
              {"scratch", of.memory.scratch},
              {"data", of.memory.data},
              {"messages", of.memory.messages}}}};
}

}  // namespace

std::string example::report_text(const report_facts& facts, const options& of) {
    const auto& report = facts.totals;
    json epochs = json::array();
    for (const auto& epoch : report.epochs) {
        json one{{"epoch", epoch.epoch}, {"loss", epoch.loss}, {"seconds", epoch.seconds}};
        if (epoch.test) {
            one["test_loss"] = epoch.test->loss;
            one["test_accuracy"] = *epoch.test->accuracy;
        }
        epochs.push_back(std::move(one));
    }
    json messages = json::array();
    for (const auto& [name, of_tensor] : facts.messages)
        messages.push_back({{"tensor", name},
                            {"messages", of_tensor.messages},
                            {"numbers", of_tensor.numbers},
                            {"bytes", of_tensor.bytes},
                            {"saved_bytes", of_tensor.saved_bytes(sizeof(float))},
                            {"ratio", of_tensor.ratio(sizeof(float))},
                            {"relative_error", of_tensor.relative_error()},
                            {"encode_seconds", of_tensor.encode_seconds},
                            {"decode_seconds", of_tensor.decode_seconds}});
    const json all{{"configuration", configuration(of)},
                   {"plan", plan(facts)},
                   {"epochs", epochs},
                   {"steps", report.steps},
                   {"samples_per_second", report.samples_per_second()},
                   {"core_hours", report.core_hours()},
                   {"bytes_sent_per_rank", facts.sent},
                   {"messages_of_rank_0", messages},
                   {"seconds",
                    {{"forward", report.seconds.forward},
                     {"backward", report.seconds.backward},
                     {"communication_hidden", report.seconds.communication_hidden},
                     {"communication_exposed", report.seconds.communication_exposed},
                     {"exposed_by_last_bucket", report.seconds.because.last_bucket},
                     {"exposed_by_no_progress", report.seconds.because.no_progress},
                     {"exposed_by_large_bucket", report.seconds.because.large_bucket},
                     {"exposed_by_slow_rank", report.seconds.because.slow_rank},
                     {"exposed_by_other", report.seconds.because.other},
                     {"update", report.seconds.update},
                     {"data", report.seconds.data}}},
                   {"weights_hash", facts.hash}};
    // Names of files need not be UTF-8.
    return all.dump(2, ' ', false, json::error_handler_t::replace);
}
