// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the ranks of a pipeline exchange beside values and their gradients: rows that ranks bring go to the first stage
// and labels to the last one, losses and outputs come back.
// Tested by tests/equivalence/pipeline.cpp.

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/gather.hpp"
#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/train/engine/deal.hpp"
#include "lockstep/train/engine/pipeline_run.hpp"

namespace lockstep::train {

/// Ranks bring rows and own lanes as without stages; the lanes of a group are computed by all of its stages. Every
/// member is collective in the group.
template <class T, class Net, tensor::Label Label>
class pipeline_lines {
    using run_type = pipeline_run<T, Net>;
    using input = typename run_type::input;
    using output = typename run_type::output;
    using label_element = tensor::label_element<Label, T>;

public:
    [[gnu::cold]] pipeline_lines(run_type& run, const partition::grid& on, const comm::group& group, const deal& rows,
                                 parallel::team team)
        : run_{run},
          group_{group},
          team_{team},
          me_{group.rank()},
          last_{group.size() - 1},
          all_{rows},
          rows_{on.of_stage()} {
        const std::size_t first = on.group_lanes().first;
        for (std::size_t member = 0; member < on.stages; ++member) {
            const auto lanes = on.lanes_of(on.replica() * on.stages + member);
            lanes_.push_back({lanes.first - first, lanes.last - first});
        }
        losses_.assign(lanes_.back().last, 0.0);
        losses_back_.emplace(group, collectives::scatter(me_, last_, lanes_));
    }

    /// One pass over all lanes, forward and backward: as pipeline_run::train(). `loss(output, y, dy)` returns the loss
    /// of a lane. Afterwards `own(lane, loss)` for each lane of this rank.
    template <class Loss, class Place, class Done, class Observed, class Own>
    void train(const T* weights, const T* x, const label_element* y, const step_key& key,
               const statistics_place<T>& observing, const sync::layer_hook& before_layer, const Loss& loss,
               const Place& place, const Done& done, const Observed& observed, const Own& own) {
        rows_.follow(all_);
        run_.train(
            weights, x, rows_, key, observing, before_layer,
            [&](std::size_t first, const tensor::lane_set& lanes, auto out, auto dy) {
                parallel::for_each(team_, lanes.count(), [&](std::size_t lane) noexcept {
                    const auto part = lanes.blocks()[lane];
                    losses_[first + lane] = loss(out.part(part.first, part.size()), labels(y, first + lane),
                                                 dy.part(part.first, part.size()));
                });
            },
            place, done, observed);
        run_.begin(*losses_back_, std::span{losses_});
        run_.finish(*losses_back_);
        own_lanes(losses_, 1, own);
    }

    /// The same forward alone. `take(lane, output, labels)` on the last stage; lanes count from the first of the group.
    template <class Take>
    void forward(const T* weights, const T* x, const label_element* y, const step_key& key,
                 const statistics_place<T>& observing, const Take& take) {
        rows_.follow(all_);
        run_.forward(weights, x, rows_, key, observing,
                     [&](std::size_t first, const tensor::lane_set& lanes, auto out) {
                         for (std::size_t lane = 0; lane < lanes.count(); ++lane) {
                             const auto own = lanes.blocks()[lane];
                             take(first + lane, out.part(own.first, own.size()),
                                  y == nullptr ? nullptr : labels(y, first + lane));
                         }
                     });
    }
    /// Rows of the group in a pass, as the first stage and the last one need them.
    [[nodiscard]] const tensor::lane_set& rows() {
        rows_.follow(all_);
        return rows_.own();
    }
    [[nodiscard]] std::size_t lanes() const noexcept { return lanes_.back().last; }

    /// `count` numbers for each lane of the group, on the last stage; then those of the lanes of this rank.
    void lanes_back(std::vector<double>& numbers, std::size_t count) const {
        comm::buffer<double> all(numbers.begin(), numbers.end());
        all.resize(lanes() * count);
        comm::run(group_, collectives::scatter(me_, last_, times(lanes_, count)), all);
        numbers.resize(lanes_[me_].size() * count);
        own_lanes(all, count, [&](std::size_t at, double one) { numbers[at] = one; });
    }

    /// All rows of the group on the first stage, of those that each rank has.
    [[nodiscard]] const T* samples_of_group(const T* own) { return gather_rows(own, 0, input::size, samples_); }
    /// All labels on the last one.
    [[nodiscard]] const label_element* labels_of_group(const label_element* own) {
        return gather_rows(own, last_, tensor::label_size<Label>, labels_);
    }
    /// Bytes of rows that this rank has sent since the last call.
    [[nodiscard]] std::size_t rows_sent() noexcept { return std::exchange(sent_, 0); }
    /// The outputs of all rows of the group, which the last stage has, go to the ranks that brought the rows.
    void outputs_back(comm::buffer<T>& all, T* own) const {
        const auto strips = times(all_.members(), output::size);
        all.resize(strips.back().last);
        comm::run(group_, collectives::scatter(me_, last_, strips), all);
        std::copy_n(all.data() + (me_ == last_ ? strips[me_].first : 0), strips[me_].size(), own);
    }

private:
    [[nodiscard]] const label_element* labels(const label_element* y, std::size_t lane) const noexcept {
        return y + rows_.own().blocks()[lane].first * tensor::label_size<Label>;
    }
    [[nodiscard]] static std::vector<parallel::block> times(const std::vector<parallel::block>& of, std::size_t count) {
        std::vector<parallel::block> out;
        for (const auto& one : of) out.push_back({one.first * count, one.last * count});
        return out;
    }
    template <class F>
    void own_lanes(std::span<const double> all, std::size_t count, const F& f) const {
        const std::size_t first = me_ == last_ ? lanes_[me_].first * count : 0;
        for (std::size_t i = 0; i < lanes_[me_].size() * count; ++i) f(i, all[first + i]);
    }
    template <class U>
    [[nodiscard]] const U* gather_rows(const U* own, std::size_t root, std::size_t width, comm::buffer<U>& all) {
        const auto strips = times(all_.members(), width);
        all.resize(me_ == root ? strips.back().last : strips[me_].size());
        std::copy_n(own, strips[me_].size(), all.data() + (me_ == root ? strips[me_].first : 0));
        comm::operation<U> once{group_, collectives::gather(me_, root, strips)};
        once.run(all, {});
        sent_ += once.program().sent().elements * sizeof(U);
        return all.data();
    }

    run_type& run_;
    comm::group group_;
    parallel::team team_;
    std::size_t me_, last_;
    const deal& all_;
    deal rows_;
    std::vector<parallel::block> lanes_;  // of each rank, counted from the first of the group
    comm::buffer<double> losses_;
    std::optional<comm::operation<double>> losses_back_;
    comm::buffer<T> samples_;
    comm::buffer<label_element> labels_;
    std::size_t sent_ = 0;
};

/// Of a plan without stages.
struct no_lines {
    template <class... From>
    constexpr explicit no_lines(const From&...) noexcept {}
};
template <class T, class Net, class Label, class Partition>
using lines_of = std::conditional_t<(Partition::stages > 1), pipeline_lines<T, Net, Label>, no_lines>;

}  // namespace lockstep::train
