// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A check of backward passes: layers and losses, also a user's, against central differences of their own forward pass.
// Opt-in, for tests: nothing else includes it.
// Tested by tests/gradients/check.cpp.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/member.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/loss/concept.hpp"

namespace lockstep {

/// What a check may be told; the defaults fit layers of numbers of size 1.
struct gradient_options {
    double step = 0;          ///< h of the differences; 0: 1e-5 in double, 1/64 in float
    double resolution = 0;    ///< the least error that has to show, in parts of an array's largest derivative; 0: 1e-4
                              ///< in double, 0.1 in float
    std::uint64_t seed = 1;   ///< of x, weights, labels and the gradient that comes in
    std::size_t most = 4096;  ///< entries of an array that are looked at: all, or so many that are spread over it
};

/// What a check has found.
///
/// With D(h) = sum_i g_i (y_i(+h) - y_i(-h)) / 2h for each entry, where g is the gradient that comes in, an entry is
/// wrong where backward is farther from D(h) than 2 |D(2h) - D(h)| + 2 |2 B(h) - B(2h)| + 4 u sum_i |g_i| (1 + |y_i|)
/// n / h, over the y that change, with B(h) = sum_i g_i (y_i(+h) - 2 y_i + y_i(-h)) / 2h. The first term is six times
/// the truncation error of a smooth function, c h^2 = (D(2h) - D(h)) / 3. The second is as small for those; at a kink
/// that a step crosses, the two together are more than the error of D(h), wherever in the step it is. The third bounds
/// rounding: u is half an epsilon, n the operations of an output. An entry is neither right nor wrong but unsure where
/// that is more than `resolution` times the largest D of its array, at a kink, say, or where nothing depends on the
/// array.
struct gradient_check {
    /// One entry of an array.
    struct entry {
        std::string array;      ///< x, a parameter of the layer, or y of a loss
        std::size_t index = 0;  ///< from the start of the array
        double backward = 0;    ///< what backward says
        double difference = 0;  ///< D(h)
        double tolerance = 0;   ///< as above
        double rounding = 0;    ///< the part of it that bounds rounding

        /// How far the two are apart.
        [[nodiscard]] double error() const noexcept { return std::fabs(backward - difference); }
        /// Whether that is more than the tolerance, or no number.
        [[nodiscard]] bool is_wrong() const noexcept { return !(error() <= tolerance); }
    };
    std::string name;             ///< of the layer or loss, its input and the precision
    std::vector<entry> worst{};   ///< of each array: of its sure entries the one with the largest error over tolerance
    std::vector<entry> doubts{};  ///< of each array with unsure entries: the least sure one
    std::size_t checked = 0;      ///< entries
    std::size_t wrong = 0;        ///< of them
    std::size_t unsure = 0;       ///< of them

    /// Whether there are entries, and all of them are right.
    [[nodiscard]] bool passes() const noexcept { return checked > 0 && wrong == 0 && unsure == 0; }
    /// A line for the whole, and one for the worst entry of each array.
    [[nodiscard, gnu::cold]] std::string text() const;
    /// Throws core::error with that text, unless it passes.
    [[gnu::cold]] void require() const;

    /// Entries of one array.
    [[gnu::cold]] void add(const std::vector<entry>& all, double resolution);
};

namespace detail {

/// Numbers that begin on a cache line.
template <class T>
class aligned_numbers {
public:
    explicit aligned_numbers(std::size_t n, T value = std::numeric_limits<T>::quiet_NaN())
        : memory_(n + line, value), n_{n} {}
    [[nodiscard]] std::span<T> all() {
        const auto at = reinterpret_cast<std::uintptr_t>(memory_.data()) / sizeof(T) % line;
        return std::span{memory_}.subspan((line - at) % line, n_);
    }
    [[nodiscard]] T* data() { return all().data(); }

private:
    static constexpr std::size_t line = std::max<std::size_t>(1, 64 / sizeof(T));
    std::vector<T> memory_;
    std::size_t n_;
};

/// All different, in random order, in (-1, 1): neighbours are 2 / n apart, and none is nearer to 0 than 1 / (2 n). So a
/// step of a difference crosses no kink at 0 and changes no winner of a maximum, while n is small.
template <class T>
[[gnu::cold]] void spread(std::span<T> out, const core::random_stream& random) {
    std::vector<std::size_t> order(out.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return random.word(a) < random.word(b); });
    for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<T>((2.0 * static_cast<double>(order[i]) + 1.5) / static_cast<double>(out.size()) - 1.0);
}
template <class T>
[[gnu::cold]] void uniform(std::span<T> out, const core::random_stream& random, double from, double to) {
    for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<T>(from + (to - from) * static_cast<double>(random.uniform(i)));
}

template <class T>
[[nodiscard]] double resolution_of(const gradient_options& how) noexcept {
    return how.resolution > 0 ? how.resolution : std::is_same_v<T, float> ? 0.1 : 1e-4;
}

/// Compares one array of numbers. `run(y)` computes the outputs for what they are now; `g`: the gradient of each
/// output; `operations`: that round on the way to one.
template <class T, class Out, class Run>
[[gnu::cold]] void compare_array(gradient_check& out, const gradient_options& how, std::string_view array,
                                 std::span<T> numbers, std::span<const T> backward, std::span<const Out> g,
                                 double operations, const Run& run) {
    constexpr double u = std::numeric_limits<T>::epsilon() / 2;
    const double step = how.step > 0 ? how.step : std::is_same_v<T, float> ? 1.0 / 64 : 1e-5;
    const std::size_t count = std::min(numbers.size(), how.most);
    std::vector<Out> above(g.size()), below(g.size()), here(g.size());
    run(std::span{here});
    std::vector<gradient_check::entry> all;
    for (std::size_t k = 0; k < count; ++k) {
        const std::size_t i = count == numbers.size() ? k : k * numbers.size() / count;
        const T before = numbers[i];
        double noise = 0, bend = 0;
        const auto difference = [&](double h) {
            const T high = static_cast<T>(static_cast<double>(before) + h),
                    low = static_cast<T>(static_cast<double>(before) - h);
            numbers[i] = high;
            run(std::span{above});
            numbers[i] = low;
            run(std::span{below});
            const double width = static_cast<double>(high) - static_cast<double>(low);
            double sum = 0;
            noise = bend = 0;
            for (std::size_t j = 0; j < g.size(); ++j) {
                const double a = static_cast<double>(above[j]), b = static_cast<double>(below[j]),
                             weight = static_cast<double>(g[j]);
                bend += weight * ((a - 2 * static_cast<double>(here[j]) + b) / width);
                if (above[j] == below[j]) continue;
                sum += weight * ((a - b) / width);
                noise += std::fabs(weight) * (1 + std::fabs(a)) * operations;
            }
            return sum;
        };
        const double wide = difference(2 * step), bend_of_wide = bend, narrow = difference(step);
        const double rounding = 4 * u * noise / step;
        numbers[i] = before;
        all.push_back({.array = std::string{array},
                       .index = i,
                       .backward = static_cast<double>(backward[i]),
                       .difference = narrow,
                       .tolerance = 2 * std::fabs(wide - narrow) + 2 * std::fabs(2 * bend - bend_of_wide) + rounding,
                       .rounding = rounding});
    }
    out.add(all, resolution_of<T>(how));
}

/// A layer that is run in another way gives the same numbers, but for so much relative to 1 and to them. Two entries:
/// the one that is farthest from that, and the largest number of the array.
template <class T>
[[gnu::cold]] void compare_ways(gradient_check& out, const gradient_options& how, std::string_view array,
                                std::span<const T> other, std::span<const T> usual, double relative) {
    gradient_check::entry most, largest;
    double excess = 0;
    for (std::size_t i = 0; i < usual.size(); ++i) {
        const gradient_check::entry one{.array = std::string{array},
                                        .index = i,
                                        .backward = static_cast<double>(other[i]),
                                        .difference = static_cast<double>(usual[i]),
                                        .tolerance = relative * (1 + std::fabs(static_cast<double>(usual[i])))};
        const double excess_here = one.is_wrong() ? (std::isfinite(one.error()) ? one.error() : HUGE_VAL) : 0;
        if (excess_here > excess) {
            excess = excess_here;
            most = one;
        }
        if (std::fabs(one.difference) > std::fabs(largest.difference)) largest = one;
    }
    if (excess > 0)
        out.add({most, largest}, resolution_of<T>(how));
    else if (largest.difference != 0)
        out.add({largest}, resolution_of<T>(how));
}

[[gnu::cold]] void check_options(const gradient_options& how);

}  // namespace detail

/// Checks backward of a layer that is bound to its input: with respect to x and to each parameter, on 11 rows in lanes
/// of uneven lengths, some without a row (14 for layers that need two rows in a lane), in training. Where the layer
/// needs no x or y in backward they are NaN. A layer that is in_place or sums_gradient is run so as well, and has to
/// give the same numbers. In double, unless `T` says otherwise. Cost: four forward passes for each entry; take a small
/// input. Not for joins and views.
template <class T = double, layer_api::Described L>
[[nodiscard, gnu::cold]] gradient_check check_gradients(const L& layer, const gradient_options& how = {}) {
    static_assert(!layer_api::is_join<L>, "lockstep: check_gradients takes layers that read one value");
    static_assert(!layer_api::traits_of<L>.is_view, "lockstep: a view computes nothing that has a gradient");
    static_assert(!layer_api::traits_of<L>.has_addend, "lockstep: check_gradients takes no layers with an addend");
    constexpr layer_api::traits says = layer_api::traits_of<L>;
    detail::check_options(how);
    gradient_check out{.name = core::text(L::name, " on ", tensor::to_text<typename L::input>(), " in ",
                                          std::is_same_v<T, float> ? "float" : "double")};
    constexpr std::size_t weights = tensor::total_size(L::parameters),
                          statistics = tensor::total_size(layer_api::statistics_of<L>);
    std::vector<std::size_t> lengths{4, 2, 0, 1, 3, 1, 1, 3, 6};
    for (std::size_t& one : lengths)
        if (one > 0) one = std::max<std::size_t>(one, layer_api::traits_of<L>.least_rows_per_lane);
    tensor::lane_set lanes{lengths.size(), {1, lengths.size() - 1}};
    lanes.assign(lengths);
    const std::size_t rows = lanes.rows(), nodes = lanes.trees().size();
    const core::random_stream numbers{how.seed, core::purpose::user, 1}, more{how.seed, core::purpose::user, 2},
        incoming{how.seed, core::purpose::user, 3};

    using numbers_of = detail::aligned_numbers<T>;
    numbers_of x{rows * L::input::size}, w{weights}, y{rows * L::output::size}, dy{y.all().size()}, dx{x.all().size()};
    const parallel::team team{1};
    numbers_of scratch{layer_api::scratch_size<T>(layer, rows, lanes.count(), team)},
        partials{std::max(weights, statistics) * layer_api::partial_sums<L>(lanes.count(), team)},
        observed{nodes * statistics}, gradient{nodes * weights};
    detail::aligned_numbers<std::byte> saved{rows * layer_api::saved_bytes<L, T>, std::byte{99}};
    // In training there is no memory at all for what backward does not need: here it has no numbers.
    numbers_of nothing{says.needs_x && says.needs_y ? 0 : std::max(x.all().size(), y.all().size())};
    detail::spread(x.all(), numbers);
    detail::uniform(w.all(), more, -0.5, 0.5);
    detail::uniform(dy.all(), incoming, -1, 1);
    const core::random_stream random{how.seed, core::purpose::dropout, 1, 2};
    const kernels::resources<T> use{team, scratch.all()};

    const auto forward_to = [&](T* from, T* to) {
        layer.forward(layer_api::forward_pass<T, L>{.x = {from, rows},
                                                    .y = {to, rows},
                                                    .w = {w.data()},
                                                    .saved = saved.all(),
                                                    .use = use,
                                                    .random = random,
                                                    .first_row = lanes.first_row(),
                                                    .lanes = &lanes,
                                                    .observed = observed.data(),
                                                    .observed_stride = statistics,
                                                    .observed_partials = partials.data()});
    };
    const auto forward = [&](std::span<T> to) {
        forward_to(x.data(), y.data());
        std::ranges::copy(y.all(), to.begin());
    };
    // After it the nodes of the lane tree together hold the gradient with respect to the parameters.
    std::vector<T> dw(weights);
    const auto backward = [&](const T* dy_from, const T* rest, T* dx_to) {
        layer_api::backward_pass<T, L> pass{.x = {says.needs_x ? x.data() : nothing.data(), rows},
                                            .y = {says.needs_y ? y.data() : nothing.data(), rows},
                                            .dy = {dy_from, rows},
                                            .dx = {dx_to, rows},
                                            .w = {w.data()},
                                            .saved = saved.all(),
                                            .use = use,
                                            .random = random,
                                            .first_row = lanes.first_row(),
                                            .lanes = &lanes,
                                            .gradient = gradient.data(),
                                            .stride = weights,
                                            .partials = partials.data()};
        if constexpr (says.sums_gradient) pass.more_dy = {rest, rows};
        layer.backward(pass);
        std::ranges::fill(dw, T{0});
        for (std::size_t node = 0; node < nodes; ++node)
            for (std::size_t i = 0; i < weights; ++i) dw[i] += gradient.all()[node * weights + i];
    };
    std::vector<T> result(y.all().size());
    forward(result);
    // What comes in may be overwritten.
    const std::vector<T> g(dy.all().begin(), dy.all().end());
    backward(dy.data(), nullptr, dx.data());
    const std::vector<T> dw_of{dw}, dx_of(dx.all().begin(), dx.all().end());

    double operations = L::flops / static_cast<double>(L::output::size) + static_cast<double>(rows) + 8;
    for (const auto& one : L::parameters) operations = std::fmax(operations, static_cast<double>(one.fan_in) + 8);
    const std::span<const T> outputs{g};
    detail::compare_array(out, how, "x", x.all(), std::span<const T>{dx_of}, outputs, operations, forward);
    std::size_t at = 0;
    for (const auto& one : L::parameters) {
        detail::compare_array(out, how, one.name, w.all().subspan(at, one.size()),
                              std::span<const T>{dw_of}.subspan(at, one.size()), outputs, operations, forward);
        at += one.size();
    }

    // The other ways in which it may be run.
    const double relative = 64 * (std::numeric_limits<T>::epsilon() / 2) * operations;
    const std::span<const T> usual_dx{dx_of}, usual_dw{dw_of}, other_dw{dw};
    numbers_of part{says.sums_gradient ? g.size() : 0}, other{part.all().size()};
    if constexpr (says.sums_gradient) {
        forward(result);
        detail::uniform(other.all(), core::random_stream{how.seed, core::purpose::user, 4}, -1, 1);
        for (std::size_t i = 0; i < g.size(); ++i) part.data()[i] = g[i] - other.data()[i];
        backward(part.data(), other.data(), dx.data());
        detail::compare_ways<T>(out, how, "x where dy has two parts", dx.all(), usual_dx, relative);
        detail::compare_ways<T>(out, how, "parameters where dy has two parts", other_dw, usual_dw, relative);
    }
    // Values of other sizes never share memory.
    if constexpr (says.in_place && L::input::size == L::output::size) {
        forward(result);
        numbers_of one{result.size()};
        std::ranges::copy(x.all(), one.data());
        forward_to(one.data(), one.data());
        detail::compare_ways<T>(out, how, "y in the memory of x", one.all(), std::span<const T>{result}, relative);
        std::ranges::copy(g, one.data());
        backward(one.data(), nullptr, one.data());
        detail::compare_ways<T>(out, how, "x in the memory of dy", one.all(), usual_dx, relative);
        detail::compare_ways<T>(out, how, "parameters, with x in the memory of dy", other_dw, usual_dw, relative);
        if constexpr (says.sums_gradient) {
            std::ranges::copy(part.all(), one.data());
            backward(one.data(), other.data(), one.data());
            detail::compare_ways<T>(out, how, "x in the memory of dy, which has two parts", one.all(), usual_dx,
                                    relative);
        }
    }
    return out;
}

/// The same of what stands in a network, for samples of this shape: check_gradients(dense<5>{}, tensor::shape<7>{}).
/// Calls its check() first, as a trainer does.
template <class T = double, class Spec, tensor::Shape Input>
    requires layer_api::LayerSpec<Spec, Input>
[[nodiscard, gnu::cold]] gradient_check check_gradients(const Spec& spec, Input input,
                                                        const gradient_options& how = {}) {
    core::check_inner_part(spec);
    return check_gradients<T>(spec.on(input), how);
}

/// Checks the gradient that a loss gives for outputs of this shape, on 11 rows, with labels of all classes or numbers
/// between 0 and 1, which are fit for regressions and for probabilities. The gradient of 11 rows has to be that of each
/// row by itself, and their loss the sum of those of the rows: a mean is none. Calls the check() of the loss first, as
/// a trainer does.
template <class T = double, class Loss, tensor::Shape Output>
    requires loss::Loss<Loss, T, Output>
[[nodiscard, gnu::cold]] gradient_check check_gradients(const Loss& of, Output, const gradient_options& how = {}) {
    core::check_inner_part(of);
    detail::check_options(how);
    using label = typename Loss::template label<Output>;
    constexpr std::size_t rows = 11;
    gradient_check out{.name = core::text(Loss::name, " of ", tensor::to_text<Output>(), " in ",
                                          std::is_same_v<T, float> ? "float" : "double")};
    const core::random_stream numbers{how.seed, core::purpose::user, 1}, labels{how.seed, core::purpose::user, 2};
    std::vector<T> y(rows * Output::size), dy(y.size(), std::numeric_limits<T>::quiet_NaN());
    std::vector<tensor::label_element<label, T>> target(rows * tensor::label_size<label>);
    detail::spread(std::span{y}, numbers);
    if constexpr (tensor::is_classes<label>) {
        for (std::size_t i = 0; i < target.size(); ++i)
            target[i] = static_cast<std::int32_t>((i + labels.below(label::count, 0)) % label::count);
    } else {
        detail::uniform(std::span{target}, labels, 0.05, 0.95);
    }
    constexpr T scale = T{1} / T{16};  // not that of a mean over the rows: a loss has to use it
    // Of `count` rows from `first` on.
    const auto run = [&](std::size_t first, std::size_t count, T* gradient) {
        const tensor::targets<label, T> labels_of{target.data() + first * tensor::label_size<label>,
                                                  count * tensor::label_size<label>};
        return static_cast<double>(of(tensor::batch<const T, Output>{y.data() + first * Output::size, count}, labels_of,
                                      tensor::batch<T, Output>{gradient, count}, scale));
    };
    const double together = run(0, rows, dy.data());
    std::array<double, rows> g{}, each{};
    g.fill(static_cast<double>(scale));
    const auto run_each = [&](std::span<double> to) {
        for (std::size_t row = 0; row < rows; ++row) to[row] = run(row, 1, nullptr);
    };
    // A row has as many exponentials and sums as outputs.
    constexpr double operations = static_cast<double>(Output::size) + 8;
    detail::compare_array(out, how, "y", std::span{y}, std::span<const T>{dy}, std::span<const double>{g}, operations,
                          run_each);
    run_each(each);
    double sum = 0, sizes = 0;
    for (const double one : each) sum += one, sizes += 1 + std::fabs(one);
    out.add({{.array = "the loss of all rows, beside the sum of theirs",
              .index = 0,
              .backward = together,
              .difference = sum,
              .tolerance = 4 * std::numeric_limits<T>::epsilon() * operations * sizes}},
            detail::resolution_of<T>(how));
    return out;
}

#if LOCKSTEP_BODIES

namespace detail {

LOCKSTEP_FUNCTION void check_options(const gradient_options& how) {
    if (!(std::isfinite(how.step) && how.step >= 0) || !(std::isfinite(how.resolution) && how.resolution >= 0) ||
        how.most == 0)
        core::fail(core::text("gradients are to be checked with step ", how.step, ", resolution ", how.resolution,
                              " and at most ", how.most, " entries"),
                   "take positive numbers, or 0 for the usual step and resolution");
}

}  // namespace detail

LOCKSTEP_FUNCTION void gradient_check::add(const std::vector<entry>& all, double resolution) {
    if (all.empty()) return;
    double largest = 0;
    for (const entry& one : all) largest = std::fmax(largest, std::fabs(one.difference));
    const auto badness = [](const entry& one) {
        const double times = one.error() / one.tolerance;
        return std::isnan(times) ? (one.is_wrong() ? std::numeric_limits<double>::infinity() : 0.0) : times;
    };
    const entry *worst_one = nullptr, *least_sure = nullptr;
    for (const entry& one : all) {
        const bool is_sure = one.tolerance <= resolution * largest;
        if (is_sure && (worst_one == nullptr || badness(one) > badness(*worst_one))) worst_one = &one;
        if (is_sure && one.is_wrong()) ++wrong;
        if (is_sure && (largest > 0 || one.is_wrong())) continue;
        ++unsure;
        if (least_sure == nullptr || one.tolerance > least_sure->tolerance) least_sure = &one;
    }
    checked += all.size();
    if (worst_one != nullptr) worst.push_back(*worst_one);
    if (least_sure != nullptr) doubts.push_back(*least_sure);
}

LOCKSTEP_FUNCTION std::string gradient_check::text() const {
    std::string out =
        core::text("gradients of ", name, ": ", checked, " checked, ", wrong, " wrong, ", unsure, " unsure");
    const auto line = [&](const char* what, const entry& one) {
        out += core::text("\n    ", what, " in ", one.array, ": number ", one.index, ", backward ", one.backward,
                          ", central difference ", one.difference, ", tolerance ", one.tolerance);
    };
    for (const entry& one : worst) line(one.is_wrong() ? "wrong, the worst" : "the worst", one);
    for (const entry& one : doubts)
        line(2 * one.rounding > one.tolerance
                 ? "unsure (of rounding: a longer step, or double, may tell), the least sure"
                 : "unsure (a kink? another seed or step may tell), the least sure",
             one);
    return out;
}

LOCKSTEP_FUNCTION void gradient_check::require() const {
    if (passes()) return;
    throw core::error{core::text("lockstep: ", text(), "\n    correct backward, or give other numbers where a step ",
                                 "crosses a kink")};
}

#endif

}  // namespace lockstep
