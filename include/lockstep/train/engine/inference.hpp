// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Forward without training: evaluation over data sets and predictions for rows, in parts that fit into the memory of a
// trainer.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/member.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/core/stop_request.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/metrics/accuracy.hpp"
#include "lockstep/metrics/list.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/report/measured.hpp"
#include "lockstep/saving/agreed_error.hpp"
#include "lockstep/sync/lane_sums.hpp"
#include "lockstep/tensor/views.hpp"
#include "lockstep/train/engine/agreement.hpp"
#include "lockstep/train/engine/deal.hpp"
#include "lockstep/train/engine/inputs.hpp"
#include "lockstep/train/engine/network_run.hpp"
#include "lockstep/train/engine/pipeline_lines.hpp"
#include "lockstep/train/engine/statistics.hpp"
#include "lockstep/train/plan.hpp"
#include "lockstep/train/recipe.hpp"

namespace lockstep::train {

/// These rows of an output, and their labels.
template <tensor::Label Label, class T, class Output>
[[nodiscard]] auto of_rows(tensor::batch<const T, Output> out, const tensor::label_element<Label, T>* y,
                           parallel::block rows) noexcept {
    constexpr std::size_t per_label = tensor::label_size<Label>;
    return std::pair{out.part(rows.first, rows.size()),
                     tensor::targets<Label, T>{y + rows.first * per_label, rows.size() * per_label}};
}

/// What a trainer lends for one call. `rows` is the deal of the last part afterwards.
template <class T, class Network, class Label, class Plan>
struct inference {
    using input = typename Network::input;
    using output = typename Network::output;
    using samples = inputs<T, input, Label>;

    using net = decltype(Plan::model);
    using partition_type = decltype(Plan::partition);
    static constexpr bool has_stages = partition_type::stages > 1;
    /// Ranks of a group need each other in a forward walk.
    static constexpr bool is_cut = Network::shards > 1 || has_stages;

    /// An output for each class: with one output for two classes, say, the largest one says nothing.
    static constexpr bool has_accuracy = std::is_same_v<Label, tensor::classes<output::size>>;

    const Plan& plan;
    const comm::group& ranks;
    const partition::grid& grid;
    std::size_t capacity;  ///< rows of a rank that there is memory for
    const T* weights;
    statistics_place<T> statistics;
    step_key key;
    run_of<T, net, partition_type>& run;
    samples& brought;
    deal& rows;
    sync::row_counts& counts;
    sync::step_sums& sums;
    lines_of<T, net, Label, partition_type>& lines;
    parallel::team team;

    /// Mean loss, accuracy and metrics over a data set that every rank can read. Equal bits for any number of ranks.
    /// A sample that a rank cannot read is an error of all ranks alike. Collective.
    template <class Dataset, class... Metrics>
    [[nodiscard]] report::evaluation_of<Metrics...> evaluate(const Dataset& set,
                                                             const metrics::list<Metrics...>& also) const {
        const std::size_t n = require_evaluable(ranks, set, also);
        std::vector<std::uint64_t> numbers;
        reader<Dataset> source{*this, set};
        metric_sums<Metrics...> others{source, *this};
        sums.clear();
        std::vector<double> of_lanes(2 * lanes_here());
        for (std::size_t at = 0; at < n; at += plan.batch) {
            rows.whole(std::min(plan.batch, n - at));
            const auto& lanes = lanes_to_read();
            numbers.resize(reads_rows() ? lanes.rows() : 0);
            for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = at + lanes.first_row() + i;
            const auto own = source.read(numbers);
            if (!own) break;
            const auto [x, y, count] = *own;
            const auto add = [&](std::size_t lane, auto part, auto target) noexcept {
                of_lanes[2 * lane] += plan.loss(part, target, tensor::batch<T, output>{nullptr, part.rows}, T{1});
                if constexpr (has_accuracy)
                    of_lanes[2 * lane + 1] += static_cast<double>(metrics::accuracy{}(part, target));
            };
            if constexpr (has_stages) {
                lines.forward(weights, x, y, key, statistics, [&](std::size_t lane, auto out, const auto* labels) {
                    const auto [part, target] = of_rows<Label>(out, labels, {0, out.rows});
                    add(lane, part, target);
                    if constexpr (sizeof...(Metrics) > 0) others.add(also, lane, part, target);
                });
            } else {
                const auto out = forward(x);
                parallel::for_each(team, lanes.count(), [&](std::size_t lane) noexcept {
                    const auto [part, target] = of_rows<Label>(out, y, lanes.blocks()[lane]);
                    add(lane, part, target);
                });
                for (std::size_t lane = 0; lane < lanes.count() && sizeof...(Metrics) > 0; ++lane) {
                    const auto [part, target] = of_rows<Label>(out, y, lanes.blocks()[lane]);
                    others.add(also, lane, part, target);
                }
            }
        }
        source.agree();
        if constexpr (has_stages) lines.lanes_back(of_lanes, 2);
        for (std::size_t lane = 0; lane < rows.own().count(); ++lane)
            for (const std::size_t which : {0U, 1U}) sums(lane, which) = of_lanes[2 * lane + which];
        sums.start();
        const auto sum = sums.finish();
        report::evaluation_of<Metrics...> result{};
        result.loss = sum[0] / static_cast<double>(n);
        result.samples = n;
        if constexpr (has_accuracy) result.accuracy = sum[1] / static_cast<double>(n);
        if constexpr (sizeof...(Metrics) > 0) others.over_ranks(*this);
        const auto finish = [&] {
            require_finite("the loss", result.loss, set);
            if constexpr (sizeof...(Metrics) > 0)
                core::for_each_index<sizeof...(Metrics)>(
                    [&](auto metric) { others.finish(also, metric, set, result); });
        };
        // All ranks have the same sums. What makes a result of them is a user's, and may fail on one.
        if constexpr ((metrics::HasResult<Metrics> || ...))
            saving::together<core::error>(ranks, finish);
        else
            saving::alike(ranks, finish);
        ranks.aborts().passed();  // a rank with all sums knows that no rank can fail any more
        return result;
    }

    template <class Dataset, class Metric>
    [[nodiscard]] report::measured<Metric> evaluate(const Dataset& set, const Metric& also) const {
        return evaluate(set, metrics::list<Metric>{also});
    }

    /// Throws core::error, on all ranks alike, where evaluate() would without a look at the network: the trainer goes
    /// on after it, unless samples are others. How many samples there are. Collective.
    template <class Dataset, class... Metrics>
    static std::size_t require_evaluable(const comm::group& ranks, const Dataset& set,
                                         const metrics::list<Metrics...>& also) {
        plan_text asked;
        std::size_t n = 0;
        saving::together<core::error>(ranks, [&] {
            require_names<Metrics...>();
            n = require_samples(set, "evaluate");
            require_settings(also);
            asked = train::text_of(set);
            if constexpr (sizeof...(Metrics) > 0) asked.emplace_back("metrics", text_of(also));
        });
        saving::alike(ranks, [&] {
            require_equal(ranks, n, "samples to evaluate");
            if (!asked.empty()) agree_on_call(ranks, asked, data::name_of(set));
        });
        require_same_samples<T>(ranks, set, n);
        return n;
    }

    /// The outputs for these rows, as an xtensor that owns them. Ranks may bring other numbers of rows. Collective
    /// where a partition cuts the network, else local.
    [[nodiscard]] auto predict(const typename samples::rows& x) const {
        std::size_t most = x.count;
        if constexpr (is_cut) most = std::ranges::max(counts.gather(x.count));
        auto out = core::with_memory(
            "predictions", core::checked_product("bytes of predictions", x.count, output::size, sizeof(T)),
            "pass fewer rows at once", [&] { return tensor::views<const T>::template make_batch<output>(x.count); });
        for (std::size_t at = 0; at < most; at += capacity) {
            const std::size_t first = std::min(at, x.count), here = std::min(capacity, x.count - first);
            if constexpr (is_cut)
                rows.brought(counts.gather(here));
            else
                rows.brought(std::vector<std::size_t>(grid.ranks, here));
            const T* const from = x.x + first * input::size;
            T* const to = out.data() + first * output::size;
            if constexpr (has_stages)
                predict_in_stages(from, to);
            else
                std::copy_n(forward(from).data, here * output::size, to);
        }
        return out;
    }

private:
    /// Lanes whose rows this rank reads in an evaluation: its own, or those of its pipeline where it begins or ends
    /// one.
    [[nodiscard]] const tensor::lane_set& lanes_to_read() const {
        if constexpr (has_stages) return lines.rows();
        return rows.own();
    }
    [[nodiscard]] bool reads_rows() const noexcept { return !grid.is_between(); }
    /// Lanes whose outputs this rank may have.
    [[nodiscard]] std::size_t lanes_here() const noexcept {
        if constexpr (has_stages) return lines.lanes();
        return rows.own().count();
    }
    void predict_in_stages(const T* from, T* to) const {
        comm::buffer<T> all(lanes_to_read().rows() * output::size);
        lines.forward(weights, lines.samples_of_group(from), nullptr, key, statistics,
                      [&](std::size_t lane, auto out, const auto*) {
                          std::copy_n(out.data, out.rows * output::size,
                                      all.data() + lanes_to_read().blocks()[lane].first * output::size);
                      });
        lines.outputs_back(all, to);
    }

    /// Reads the samples of an evaluation. A core::error in it is one of all ranks alike, which leaves nothing under
    /// way: where no partition cuts the network ranks read and compute alone until agree().
    template <class Dataset>
    class reader {
    public:
        reader(const inference& of, const Dataset& set) : of_{of}, set_{set} {}

        /// Nothing where this rank could not read a sample, this one or an earlier one.
        [[nodiscard]] std::optional<typename samples::rows> read(std::span<const std::uint64_t> which) {
            std::optional<typename samples::rows> out;
            const auto read_own = [&] { out = of_.brought.template read<Dataset>(set_, which); };
            if constexpr (is_cut) {
                saving::together<core::error>(of_.ranks, read_own);  // forward takes all ranks of a group
            } else if (!failure_) {
                try {
                    read_own();
                } catch (const comm::remote_failure&) {
                    throw;
                } catch (const core::interrupted&) {
                    throw;
                } catch (const core::error&) {
                    failure_ = std::current_exception();
                }
            }
            return out;
        }
        /// Before the first message after the reads. Collective.
        void agree() const {
            if constexpr (!is_cut) {
                // Others may have the whole set to go, which takes as long as it takes.
                std::optional<saving::long_waits> until_they_come;
                if (failure_) until_they_come.emplace(of_.ranks);
                try {
                    saving::together<core::error>(of_.ranks, [&] {
                        if (failure_) std::rethrow_exception(failure_);
                    });
                } catch (const saving::agreed_error&) {
                    throw;
                } catch (...) {  // they do not come: what this rank knows comes first
                    if (failure_) std::rethrow_exception(failure_);
                    throw;
                }
            }
        }

    private:
        const inference& of_;
        const Dataset& set_;
        std::exception_ptr failure_;
    };

    /// The sums of all metrics, lane by lane, and their maxima. For metrics with a result every rank reads the label of
    /// sample 0.
    template <class... Metrics>
    class metric_sums {
        static constexpr std::array<std::size_t, sizeof...(Metrics)> counts{metrics::sums_of<Metrics, output>...};
        static constexpr std::array<std::size_t, sizeof...(Metrics)> max_counts{metrics::maxima_of<Metrics, output>...};
        static constexpr std::size_t count = (std::size_t{0} + ... + metrics::sums_of<Metrics, output>),
                                     max_count = (std::size_t{0} + ... + metrics::maxima_of<Metrics, output>);

    public:
        metric_sums(auto& source, const inference& of)
            : lanes_(count * of.lanes_here()), maxima_(max_count, -std::numeric_limits<double>::infinity()) {
            if constexpr ((metrics::HasResult<Metrics> || ...)) {
                const std::uint64_t first = 0;
                if (const auto found = source.read(std::span{&first, 1}))
                    first_.assign(found->y, found->y + tensor::label_size<Label>);
            }
        }

        /// Rows of one lane.
        void add(const metrics::list<Metrics...>& also, std::size_t lane, tensor::batch<const T, output> y,
                 tensor::targets<Label, T> target) {
            core::for_each_index<sizeof...(Metrics)>([&](auto index) {
                const auto& metric = core::get<index>(also.all);
                const std::span<double> own =
                    std::span{lanes_}.subspan(lane * count + offset(counts, index), counts[index]);
                if constexpr (metrics::HasResult<std::remove_cvref_t<decltype(metric)>>)
                    metric.add(metrics::sums_pass<T, output, Label>{
                        y, target, first_, own,
                        std::span{maxima_}.subspan(offset(max_counts, index), max_counts[index])});
                else
                    own[0] += static_cast<double>(metric(y, target));
            });
        }

        /// Over the lanes of all ranks, along their tree. Collective.
        void over_ranks(const inference& of) {
            if constexpr (count > 0) add_over_ranks(of);
            if constexpr (max_count > 0) {
                comm::buffer<double> all(max_count * of.grid.ranks);
                std::copy_n(maxima_.data(), max_count, all.data() + max_count * of.grid.rank);
                comm::run(of.ranks.named("metrics"),
                          collectives::all_gather(of.grid.rank, collectives::equal_strips(of.grid.ranks, max_count)),
                          all);
                std::ranges::fill(maxima_, -std::numeric_limits<double>::infinity());  // the same on every rank
                for (std::size_t i = 0; i < max_count * of.grid.ranks; ++i)
                    metrics::take_largest(maxima_[i % max_count], all[i]);
            }
        }

        /// The value of a metric, from its sums and maxima.
        template <class Dataset, class Result>
        void finish(const metrics::list<Metrics...>& also, auto index, const Dataset& set, Result& result) const {
            using metric = core::element<index, core::pack<Metrics...>>;
            const std::span<const double> own{all_.data() + offset(counts, index), counts[index]};
            const auto maxima = std::span{maxima_}.subspan(offset(max_counts, index), max_counts[index]);
            for (const double one : own) require_finite(metric::name, one, set);
            // One of nothing is minus infinity: the metric knows what that is.
            for (const double one : maxima)
                if (!(one < 0)) require_finite(metric::name, one, set);
            auto& value = core::get<index>(result.values);
            if constexpr (metrics::HasMaxima<metric>)
                value = core::get<index>(also.all).result(own, maxima, result.samples);
            else if constexpr (metrics::HasResult<metric>)
                value = core::get<index>(also.all).result(own, result.samples);
            else
                value = own[0] / static_cast<double>(result.samples);
            if constexpr (metrics::is_one_number<metric>) {
                result.metrics.push_back({metric::name, static_cast<double>(value)});
                require_finite(metric::name, result.metrics.back().value, set);
            }
        }

    private:
        void add_over_ranks(const inference& of) {
            if constexpr (has_stages) of.lines.lanes_back(lanes_, count);
            const partition::grid& on = of.grid;
            std::vector<parallel::block> runs;
            for (std::size_t rank = 0; rank < on.ranks; ++rank) runs.push_back(on.lanes_of(rank));
            const parallel::block own = runs[on.rank];
            all_.resize(collectives::tree_data_size(own, on.lanes, count));
            double* node = all_.data();
            for (const tensor::subtree& part : tensor::cover(own, on.lanes)) {
                double* const lanes = lanes_.data() + (part.first - own.first) * count;
                for (std::size_t apart = 1; apart < part.count; apart *= 2)
                    for (std::size_t lane = 0; lane + apart < part.count; lane += 2 * apart)
                        for (std::size_t i = 0; i < count; ++i)
                            lanes[lane * count + i] += lanes[(lane + apart) * count + i];
                node = std::copy_n(lanes, count, node);
            }
            comm::run(of.ranks.named("metrics"),
                      collectives::lane_tree_sum(on.rank, runs, count, collectives::tree_strips(runs, count)), all_);
        }

        [[nodiscard]] static constexpr std::size_t offset(const std::array<std::size_t, sizeof...(Metrics)>& of,
                                                          std::size_t metric) noexcept {
            std::size_t out = 0;
            for (std::size_t i = 0; i < metric; ++i) out += of[i];
            return out;
        }

        std::vector<double> lanes_, maxima_;
        std::vector<tensor::label_element<Label, T>> first_;
        comm::buffer<double> all_;
    };

    template <class... Metrics>
    static void require_settings(const metrics::list<Metrics...>& also) {
        core::for_each_index<sizeof...(Metrics)>([&](auto index) {
            const auto& metric = core::get<index>(also.all);
            core::check_inner_part(metric);
            constexpr bool looks_at_outputs = requires { metric.check_outputs(output::size); };
            using metric_type = std::remove_cvref_t<decltype(metric)>;
            static_assert(
                looks_at_outputs || !requires(metric_type & one) { one.check_outputs(output::size); },
                "lockstep: the check_outputs() of a metric is const");
            if constexpr (looks_at_outputs) metric.check_outputs(output::size);
        });
    }
    /// What every rank has to ask for alike.
    template <class... Metrics>
    [[nodiscard]] static std::string text_of(const metrics::list<Metrics...>& also) {
        std::string text;
        core::for_each_index<sizeof...(Metrics)>(
            [&](auto index) { text += core::text(text.empty() ? "" : " ", describe(core::get<index>(also.all))); });
        return text;
    }

    /// All ranks have the same number.
    template <class Dataset>
    static void require_finite(std::string_view what, double value, const Dataset& set) {
        if (!std::isfinite(value))
            core::fail(core::text(what, " is ", value, " over ", data::name_of(set)),
                       "look at the outputs of predict() for a few samples: numbers are too large, or weights are no "
                       "numbers any more");
    }

    /// Results are found by name, beside those that an evaluation has without them.
    template <class... Metrics>
    static void require_names() {
        const std::array<std::string_view, sizeof...(Metrics)> names{Metrics::name...};
        const std::array<bool, sizeof...(Metrics)> own{!std::is_same_v<Metrics, metrics::accuracy>...};
        for (std::size_t a = 0; a < names.size(); ++a) {
            if (own[a] && (names[a] == "loss" || (has_accuracy && names[a] == "accuracy")))
                core::fail(core::text("a metric has the name '", names[a], "', which the evaluation has already"),
                           "give it a name of its own");
            for (std::size_t b = 0; b < a; ++b)
                if (names[a] == names[b])
                    core::fail(core::text("two metrics have the name '", names[a], "'"), "give each a name of its own");
        }
    }

    [[nodiscard]] auto forward(const T* x) const { return run.forward(weights, x, rows, key, statistics); }
};

}  // namespace lockstep::train
