// SPDX-License-Identifier: BSD-3-Clause
#include "networks/naive.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "lockstep/core/random.hpp"

namespace networks {

std::size_t size_of(const extents& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>{});
}

std::vector<std::pair<std::size_t, std::size_t>> cut_into_lanes(std::size_t rows, std::size_t lanes) {
    std::vector<std::pair<std::size_t, std::size_t>> out;
    for (std::size_t lane = 0; lane < lanes; ++lane) out.emplace_back(rows * lane / lanes, rows * (lane + 1) / lanes);
    return out;
}

namespace {

void require(bool condition, const std::string& what) {
    if (!condition) throw std::runtime_error("the network does not fit together: " + what);
}

/// Numbers what is made, in the order in which it is written.
struct builder {
    network& net;

    std::size_t node() { return net.nodes++; }
    std::size_t parameter(std::string name, std::size_t count, std::size_t fan_in, bool decays) {
        net.parameters.push_back({std::move(name), net.weights(), count, fan_in, decays});
        return net.parameters.back().first;
    }
    std::size_t statistic(std::size_t count) {
        net.statistics.push_back({"", net.running(), count, 1, false});
        return net.statistics.back().first;
    }
    std::unique_ptr<part> make(const item& of, const extents& in);
};

// Combinators.

struct chain final : part {
    std::vector<std::unique_ptr<part>> parts;
    chain(const std::vector<item>& items, const extents& shape, builder& to) {
        in = out = shape;
        for (const item& one : items) {
            parts.push_back(to.make(one, out));
            out = parts.back()->out;
        }
    }
    tensor forward(const tensor& x, state& of) override {
        tensor y = x;
        for (const auto& one : parts) y = rounded(one->forward(y, of), of);
        return y;
    }
    tensor backward(const tensor& dy, state& of) override {
        tensor dx = dy;
        for (std::size_t i = parts.size(); i-- > 0;) dx = rounded(parts[i]->backward(dx, of), of);
        return dx;
    }
    static tensor rounded(tensor of_part, const state& of) {
        if (of.rounding)
            for (double& one : of_part.numbers) one *= of.rounding();
        return of_part;
    }
};

void add_to(tensor& sum, const tensor& other) {
    for (std::size_t i = 0; i < sum.numbers.size(); ++i) sum.numbers[i] += other.numbers[i];
}

struct residual final : part {
    chain inner;
    residual(const item& of, const extents& shape, builder& to) : inner{of.inside, shape, to} {
        in = out = shape;
        require(inner.out == shape, "a residual changes its shape");
        to.node();
    }
    tensor forward(const tensor& x, state& of) override {
        tensor y = inner.forward(x, of);
        add_to(y, x);
        return y;
    }
    tensor backward(const tensor& dy, state& of) override {
        tensor dx = inner.backward(dy, of);
        add_to(dx, dy);
        return dx;
    }
};

struct sum final : part {
    std::vector<std::unique_ptr<part>> paths;
    sum(const item& of, const extents& shape, builder& to) {
        for (const item& one : of.inside) paths.push_back(to.make(one, shape));
        in = shape;
        out = paths.at(0)->out;
        for (const auto& one : paths) require(one->out == out, "the paths of an add");
        to.node();
    }
    tensor forward(const tensor& x, state& of) override {
        tensor y{x.rows(), size_of(out)};
        for (const auto& one : paths) add_to(y, one->forward(x, of));
        return y;
    }
    tensor backward(const tensor& dy, state& of) override {
        tensor dx{dy.rows(), size_of(in)};
        for (const auto& one : paths) add_to(dx, one->backward(dy, of));
        return dx;
    }
};

struct concatenation final : part {
    std::vector<std::unique_ptr<part>> paths;
    std::size_t places = 1;
    concatenation(const item& of, const extents& shape, builder& to) {
        for (const item& one : of.inside) paths.push_back(to.make(one, shape));
        in = shape;
        out = paths.at(0)->out;
        out.back() = 0;
        for (const auto& one : paths) {
            extents same = one->out;
            same.back() = out.back();
            require(same == out, "the paths of a concatenate");
            out.back() += one->out.back();
        }
        places = size_of(out) / out.back();
        to.node();
    }
    /// Numbers [first, last) of each place of `all` are those of one path.
    void copy(std::size_t first, std::size_t width, tensor& all, tensor& of_path, bool into) const {
        for (std::size_t row = 0; row < all.rows(); ++row)
            for (std::size_t place = 0; place < places; ++place)
                for (std::size_t c = 0; c < width; ++c) {
                    double& there = all[row][place * out.back() + first + c];
                    double& here = of_path[row][place * width + c];
                    (into ? there : here) = into ? here : there;
                }
    }
    tensor forward(const tensor& x, state& of) override {
        tensor y{x.rows(), size_of(out)};
        std::size_t first = 0;
        for (const auto& one : paths) {
            tensor given = one->forward(x, of);
            copy(first, one->out.back(), y, given, true);
            first += one->out.back();
        }
        return y;
    }
    tensor backward(const tensor& dy, state& of) override {
        tensor dx{dy.rows(), size_of(in)}, all = dy;
        std::size_t first = 0;
        for (const auto& one : paths) {
            tensor asked{dy.rows(), size_of(one->out)};
            copy(first, one->out.back(), all, asked, false);
            first += one->out.back();
            add_to(dx, one->backward(asked, of));
        }
        return dx;
    }
};

// Layers.

struct flatten final : part {
    flatten(const extents& shape, builder& to) {
        in = shape;
        out = {size_of(shape)};
        to.node();
    }
    tensor forward(const tensor& x, state&) override { return x; }
    tensor backward(const tensor& dy, state&) override { return dy; }
};

/// y = f(x), dx = dy f'(x).
struct elementwise final : part {
    double (*f)(double);
    double (*derivative)(double);
    tensor x_;
    elementwise(const extents& shape, builder& to, double (*function)(double), double (*gradient)(double))
        : f{function}, derivative{gradient} {
        in = out = shape;
        to.node();
    }
    tensor forward(const tensor& x, state&) override {
        x_ = x;
        tensor y = x;
        for (double& one : y.numbers) one = f(one);
        return y;
    }
    tensor backward(const tensor& dy, state&) override {
        tensor dx = dy;
        for (std::size_t i = 0; i < dx.numbers.size(); ++i) dx.numbers[i] *= derivative(x_.numbers[i]);
        return dx;
    }
};

double relu_of(double x) { return x > 0 ? x : 0; }
double relu_derivative(double x) { return x > 0 ? 1 : 0; }
double tanh_of(double x) { return std::tanh(x); }
double tanh_derivative(double x) { return 1 - std::tanh(x) * std::tanh(x); }
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double sigmoid_derivative(double x) { return sigmoid_of(x) * (1 - sigmoid_of(x)); }
const double root_2_pi = std::sqrt(2 / std::acos(-1.0));
double gelu_of(double x) { return x * (1 + std::tanh(root_2_pi * (x + 0.044715 * x * x * x))) / 2; }
double gelu_derivative(double x) {
    const double t = std::tanh(root_2_pi * (x + 0.044715 * x * x * x));
    return (1 + t) / 2 + x * (1 - t * t) * root_2_pi * (1 + 3 * 0.044715 * x * x) / 2;
}

/// The mask is a function of the layer, the step, the number of the sample in the minibatch and the feature.
struct dropout final : part {
    std::size_t number;
    double rate;
    dropout(const item& of, const extents& shape, builder& to) : number{to.node()}, rate{of.member("rate", 0.5)} {
        in = out = shape;
    }
    tensor masked(tensor x, const state& of) const {
        if (!of.trains) return x;
        const lockstep::core::random_stream random{of.seed, lockstep::core::purpose::dropout,
                                                   static_cast<std::uint32_t>(number),
                                                   static_cast<std::uint32_t>(of.step)};
        for (std::size_t i = 0; i < x.numbers.size(); ++i)
            x.numbers[i] =
                static_cast<double>(random.word(i)) < std::floor(rate * 0x1p32) ? 0 : x.numbers[i] / (1 - rate);
        return x;
    }
    tensor forward(const tensor& x, state& of) override { return masked(x, of); }
    tensor backward(const tensor& dy, state& of) override { return masked(dy, of); }
};

struct dense final : part {
    std::size_t weight, bias;
    tensor x_;
    dense(const item& of, const extents& shape, builder& to) {
        require(shape.size() == 1, "dense on an image");
        in = shape;
        out = {of.option(0, 0)};
        to.node();
        weight = to.parameter("weight", in[0] * out[0], in[0], true);
        bias = to.parameter("bias", out[0], in[0], false);
    }
    tensor forward(const tensor& x, state& of) override {
        x_ = x;
        tensor y{x.rows(), out[0]};
        for (std::size_t row = 0; row < x.rows(); ++row)
            for (std::size_t j = 0; j < out[0]; ++j) {
                for (std::size_t i = 0; i < in[0]; ++i) y[row][j] += x[row][i] * of.weights[weight + i * out[0] + j];
                y[row][j] += of.weights[bias + j];
            }
        return y;
    }
    tensor backward(const tensor& dy, state& of) override {
        tensor dx{dy.rows(), in[0]};
        for (std::size_t row = 0; row < dy.rows(); ++row)
            for (std::size_t j = 0; j < out[0]; ++j) {
                of.gradient[bias + j] += dy[row][j];
                for (std::size_t i = 0; i < in[0]; ++i) {
                    of.gradient[weight + i * out[0] + j] += x_[row][i] * dy[row][j];
                    dx[row][i] += of.weights[weight + i * out[0] + j] * dy[row][j];
                }
            }
        return dx;
    }
};

/// Windows of an image, in one dimension.
struct windows {
    std::size_t kernel = 1, stride = 1, padding = 0, dilation = 1;
    [[nodiscard]] bool fit(std::size_t size) const { return size + 2 * padding >= (kernel - 1) * dilation + 1; }
    [[nodiscard]] std::size_t outputs(std::size_t size) const {
        return (size + 2 * padding - ((kernel - 1) * dilation + 1)) / stride + 1;
    }
    /// Where position `tap` of window `at` lies, and whether that is inside.
    [[nodiscard]] std::pair<std::size_t, bool> place(std::size_t at, std::size_t tap, std::size_t size) const {
        const std::size_t padded = at * stride + tap * dilation;
        return {padded - padding, padded >= padding && padded - padding < size};
    }
};

struct windowed : part {
    windows down, across;
    std::size_t rows = 0, columns = 0;  ///< of windows
    void bind(const extents& shape, std::size_t channels) {
        require(shape.size() == 3, "windows on a row of features");
        require(down.fit(shape[0]) && across.fit(shape[1]), "a window larger than its image");
        in = shape;
        rows = down.outputs(shape[0]);
        columns = across.outputs(shape[1]);
        out = {rows, columns, channels};
    }
    /// f(output place, kernel position, input place) for all that lie inside.
    template <class F>
    void each(F&& f) const {
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t c = 0; c < columns; ++c)
                for (std::size_t kr = 0; kr < down.kernel; ++kr)
                    for (std::size_t kc = 0; kc < across.kernel; ++kc) {
                        const auto [row, row_inside] = down.place(r, kr, in[0]);
                        const auto [column, column_inside] = across.place(c, kc, in[1]);
                        if (row_inside && column_inside)
                            f(r * columns + c, kr * across.kernel + kc, row * in[1] + column);
                    }
    }
};

struct convolution : windowed {
    std::size_t filters, groups = 1, weight = 0, bias = 0;
    bool has_bias = true;
    tensor x_;
    void bind_weights(const extents& shape, builder& to) {
        require(shape.size() == 3 && filters > 0 && shape[2] % groups == 0 && filters % groups == 0,
                "the groups of a convolution");
        bind(shape, filters);
        to.node();
        const std::size_t fan_in = down.kernel * across.kernel * (shape[2] / groups);
        weight = to.parameter("weight", fan_in * filters, fan_in, true);
        if (has_bias) bias = to.parameter("bias", filters, fan_in, false);
    }
    /// f(input, output, weight) for all products of one sample.
    template <class F>
    void products(F&& f) const {
        const std::size_t channels = in[2] / groups, of_group = filters / groups;
        each([&](std::size_t to, std::size_t tap, std::size_t from) {
            for (std::size_t k = 0; k < filters; ++k)
                for (std::size_t c = 0; c < channels; ++c)
                    f(from * in[2] + k / of_group * channels + c, to * filters + k,
                      weight + (tap * channels + c) * filters + k);
        });
    }
    tensor forward(const tensor& x, state& of) override {
        x_ = x;
        tensor y{x.rows(), size_of(out)};
        for (std::size_t row = 0; row < x.rows(); ++row) {
            products([&](std::size_t i, std::size_t o, std::size_t w) { y[row][o] += x[row][i] * of.weights[w]; });
            for (std::size_t o = 0; o < y.size && has_bias; ++o) y[row][o] += of.weights[bias + o % filters];
        }
        return y;
    }
    tensor backward(const tensor& dy, state& of) override {
        tensor dx{dy.rows(), size_of(in)};
        for (std::size_t row = 0; row < dy.rows(); ++row) {
            products([&](std::size_t i, std::size_t o, std::size_t w) {
                of.gradient[w] += x_[row][i] * dy[row][o];
                dx[row][i] += of.weights[w] * dy[row][o];
            });
            for (std::size_t o = 0; o < dy.size && has_bias; ++o) of.gradient[bias + o % filters] += dy[row][o];
        }
        return dx;
    }
};

/// conv<filters, kernel, conv_options{..}>, depthwise_conv<kernel, conv_options{..}>, conv_max_pool<filters, kernel,
/// conv_max_pool_options{..}>: its convolution.
std::unique_ptr<convolution> make_convolution(const item& of, const extents& shape, builder& to) {
    auto made = std::make_unique<convolution>();
    // A number, or one for rows and one for columns.
    const auto both = [&](const item& found, std::size_t windows::*where) {
        made->down.*where = found.inside.empty() ? found.count() : found.inside.at(0).count();
        made->across.*where = found.inside.empty() ? found.count() : found.inside.at(1).count();
    };
    const bool depthwise = of.name == "depthwise_conv";
    require(!depthwise || shape.size() == 3, "depthwise_conv on a row of features");
    made->filters = depthwise ? shape[2] : of.option(0, 1);
    made->groups = depthwise ? shape[2] : 1;
    both(of.options.at(depthwise ? 0 : 1), &windows::kernel);
    if (const item* named = of.named_options()) {
        if (const item* found = named->find("stride")) both(*found, &windows::stride);
        if (const item* found = named->find("padding")) both(*found, &windows::padding);
        if (const item* found = named->find("dilation")) both(*found, &windows::dilation);
        if (const item* found = named->find("groups")) made->groups = found->count();
        if (const item* found = named->find("bias")) made->has_bias = found->name == "each";
    }
    made->bind_weights(shape, to);
    return made;
}

struct max_pool final : windowed {
    std::vector<std::size_t> winner;
    explicit max_pool(const windows& both) { down = across = both; }
    tensor forward(const tensor& x, state&) override {
        tensor y{x.rows(), size_of(out)};
        winner.assign(y.numbers.size(), x.size);
        for (std::size_t row = 0; row < x.rows(); ++row)
            each([&](std::size_t to, std::size_t, std::size_t from) {
                for (std::size_t c = 0; c < in[2]; ++c) {
                    std::size_t& best = winner[row * y.size + to * in[2] + c];
                    if (best == x.size || x[row][from * in[2] + c] > x[row][best]) best = from * in[2] + c;
                }
            });
        for (std::size_t i = 0; i < winner.size(); ++i) y.numbers[i] = x[i / y.size][winner[i]];
        return y;
    }
    tensor backward(const tensor& dy, state&) override {
        tensor dx{dy.rows(), size_of(in)};
        for (std::size_t i = 0; i < winner.size(); ++i) dx[i / dy.size][winner[i]] += dy.numbers[i];
        return dx;
    }
};

struct mean_pool final : windowed {
    mean_pool(const windows& vertical, const windows& horizontal) {
        down = vertical;
        across = horizontal;
    }
    template <class F>
    void pairs(std::size_t samples, F&& f) const {
        for (std::size_t row = 0; row < samples; ++row)
            each([&](std::size_t to, std::size_t, std::size_t from) {
                for (std::size_t c = 0; c < in[2]; ++c) f(row, to * in[2] + c, from * in[2] + c);
            });
    }
    tensor forward(const tensor& x, state&) override {
        tensor y{x.rows(), size_of(out)};
        pairs(x.rows(), [&](std::size_t row, std::size_t to, std::size_t from) { y[row][to] += x[row][from]; });
        for (double& one : y.numbers) one /= static_cast<double>(down.kernel * across.kernel);
        return y;
    }
    tensor backward(const tensor& dy, state&) override {
        tensor dx{dy.rows(), size_of(in)};
        pairs(dy.rows(), [&](std::size_t row, std::size_t to, std::size_t from) {
            dx[row][from] += dy[row][to] / static_cast<double>(down.kernel * across.kernel);
        });
        return dx;
    }
};

/// A convolution and the largest of each window of its outputs.
struct pooled_convolution final : part {
    std::unique_ptr<convolution> first;
    max_pool second;
    pooled_convolution(const item& of, const extents& shape, builder& to)
        : first{make_convolution(of, shape, to)}, second{{window(of), window(of), 0}} {
        second.bind(first->out, first->filters);
        in = shape;
        out = second.out;
    }
    static std::size_t window(const item& of) {
        const item* const named = of.named_options();
        return named == nullptr ? 2 : static_cast<std::size_t>(named->member("window", 2));
    }
    tensor forward(const tensor& x, state& of) override { return second.forward(first->forward(x, of), of); }
    tensor backward(const tensor& dy, state& of) override { return first->backward(second.backward(dy, of), of); }
};

/// Every stride-th place, with half of the further channels before and the others after.
struct shortcut final : part {
    std::size_t stride;
    shortcut(const item& of, const extents& shape, builder& to) : stride{of.option(1, 1)} {
        require(shape.size() == 3 && shape[2] <= of.option(0, 1), "a shortcut");
        in = shape;
        out = {(shape[0] + stride - 1) / stride, (shape[1] + stride - 1) / stride, of.option(0, 1)};
        to.node();
    }
    template <class F>
    void pairs(std::size_t rows, F&& f) const {
        const std::size_t before = (out[2] - in[2]) / 2;
        for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t r = 0; r < out[0]; ++r)
                for (std::size_t column = 0; column < out[1]; ++column)
                    for (std::size_t c = 0; c < in[2]; ++c)
                        f(row, (r * out[1] + column) * out[2] + before + c,
                          (r * stride * in[1] + column * stride) * in[2] + c);
    }
    tensor forward(const tensor& x, state&) override {
        tensor y{x.rows(), size_of(out)};
        pairs(x.rows(), [&](std::size_t row, std::size_t to, std::size_t from) { y[row][to] = x[row][from]; });
        return y;
    }
    tensor backward(const tensor& dy, state&) override {
        tensor dx{dy.rows(), size_of(in)};
        pairs(dy.rows(), [&](std::size_t row, std::size_t to, std::size_t from) { dx[row][from] = dy[row][to]; });
        return dx;
    }
};

/// The gradient of numbers x from that of (x - mean) / deviation, where both are of these numbers.
void normalise_backward(std::vector<double>& gradient, const std::vector<double>& normalised, double inverse) {
    double mean = 0, product = 0;
    const auto n = static_cast<double>(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        mean += gradient[i] / n;
        product += gradient[i] * normalised[i] / n;
    }
    for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = (gradient[i] - mean - normalised[i] * product) * inverse;
}

struct moments {
    double mean = 0, variance = 0;
    explicit moments(const std::vector<double>& x) {
        for (const double one : x) mean += one / static_cast<double>(x.size());
        for (const double one : x) variance += (one - mean) * (one - mean) / static_cast<double>(x.size());
    }
};

/// With the means and variances of one lane; their unbiased form goes into the running values, weighted by the samples
/// of the lane.
struct batch_norm final : part {
    std::size_t scale, shift, mean, variance, channels, pixels;
    double momentum, epsilon;
    tensor x_;
    batch_norm(const item& of, const extents& shape, builder& to)
        : channels{shape.back()},
          pixels{size_of(shape) / shape.back()},
          momentum{of.member("momentum", 0.1)},
          epsilon{of.member("epsilon", 1e-5)} {
        in = out = shape;
        to.node();
        scale = to.parameter("scale", channels, 1, false);
        shift = to.parameter("shift", channels, 1, false);
        mean = to.statistic(channels);
        variance = to.statistic(channels);
        to.net.absorb.push_back([this](state& now) { absorb(now); });
        to.net.least_per_channel = to.net.least_per_channel == 0 ? pixels : std::min(to.net.least_per_channel, pixels);
    }
    /// The numbers of a channel in a lane.
    std::vector<double> gather(const tensor& from, std::pair<std::size_t, std::size_t> rows, std::size_t c) const {
        std::vector<double> all;
        for (std::size_t row = rows.first; row < rows.second; ++row)
            for (std::size_t pixel = 0; pixel < pixels; ++pixel) all.push_back(from[row][pixel * channels + c]);
        return all;
    }
    void scatter(const std::vector<double>& all, tensor& to, std::pair<std::size_t, std::size_t> rows,
                 std::size_t c) const {
        for (std::size_t i = 0; i < all.size(); ++i) to[rows.first + i / pixels][i % pixels * channels + c] = all[i];
    }
    tensor forward(const tensor& x, state& of) override {
        x_ = x;
        tensor y = x;
        if (!of.trains) {
            for (std::size_t i = 0; i < y.numbers.size(); ++i) {
                const std::size_t c = i % channels;
                const double normalised =
                    (x.numbers[i] - of.running[mean + c]) / std::sqrt(of.running[variance + c] + epsilon);
                y.numbers[i] = normalised * of.weights[scale + c] + of.weights[shift + c];
            }
            return y;
        }
        for (const auto& lane : of.lanes)
            for (std::size_t c = 0; c < channels && lane.first < lane.second; ++c) {
                auto all = gather(x, lane, c);
                const moments now{all};
                for (double& one : all)
                    one = (one - now.mean) / std::sqrt(now.variance + epsilon) * of.weights[scale + c] +
                          of.weights[shift + c];
                scatter(all, y, lane, c);
                const auto n = static_cast<double>(all.size());
                const double share = static_cast<double>(lane.second - lane.first) / static_cast<double>(x.rows());
                of.observed[mean + c] += share * now.mean;
                of.observed[variance + c] += share * now.variance * n / (n - 1);
            }
        return y;
    }
    tensor backward(const tensor& dy, state& of) override {
        tensor dx = dy;
        for (const auto& lane : of.lanes)
            for (std::size_t c = 0; c < channels && lane.first < lane.second; ++c) {
                auto normalised = gather(x_, lane, c), gradient = gather(dy, lane, c);
                const moments now{normalised};
                const double inverse = 1 / std::sqrt(now.variance + epsilon);
                for (std::size_t i = 0; i < normalised.size(); ++i) {
                    normalised[i] = (normalised[i] - now.mean) * inverse;
                    of.gradient[scale + c] += normalised[i] * gradient[i];
                    of.gradient[shift + c] += gradient[i];
                    gradient[i] *= of.weights[scale + c];
                }
                normalise_backward(gradient, normalised, inverse);
                scatter(gradient, dx, lane, c);
            }
        return dx;
    }
    void absorb(state& of) const {
        for (const std::size_t from : {mean, variance})
            for (std::size_t c = 0; c < channels; ++c)
                of.running[from + c] = (1 - momentum) * of.running[from + c] + momentum * of.observed[from + c];
    }
};

struct layer_norm final : part {
    std::size_t scale, shift;
    double epsilon;
    tensor x_;
    layer_norm(const item& of, const extents& shape, builder& to) : epsilon{of.member("epsilon", 1e-5)} {
        in = out = shape;
        to.node();
        scale = to.parameter("scale", size_of(shape), 1, false);
        shift = to.parameter("shift", size_of(shape), 1, false);
    }
    tensor forward(const tensor& x, state& of) override {
        x_ = x;
        tensor y = x;
        for (std::size_t row = 0; row < x.rows(); ++row) {
            const moments now{{x[row], x[row] + x.size}};
            for (std::size_t i = 0; i < x.size; ++i)
                y[row][i] = (x[row][i] - now.mean) / std::sqrt(now.variance + epsilon) * of.weights[scale + i] +
                            of.weights[shift + i];
        }
        return y;
    }
    tensor backward(const tensor& dy, state& of) override {
        tensor dx = dy;
        for (std::size_t row = 0; row < dy.rows(); ++row) {
            std::vector<double> normalised{x_[row], x_[row] + x_.size}, gradient{dy[row], dy[row] + dy.size};
            const moments now{normalised};
            const double inverse = 1 / std::sqrt(now.variance + epsilon);
            for (std::size_t i = 0; i < dy.size; ++i) {
                normalised[i] = (normalised[i] - now.mean) * inverse;
                of.gradient[scale + i] += normalised[i] * gradient[i];
                of.gradient[shift + i] += gradient[i];
                gradient[i] *= of.weights[scale + i];
            }
            normalise_backward(gradient, normalised, inverse);
            std::copy(gradient.begin(), gradient.end(), dx[row]);
        }
        return dx;
    }
};

/// y = x / (offset + alpha sum of x^2)^beta, the sum over the channels around.
struct local_response_norm final : part {
    std::size_t half, channels;
    double alpha, beta, offset;
    tensor x_;
    local_response_norm(const item& of, const extents& shape, builder& to)
        : half{of.option(0, 5) / 2},
          channels{shape.back()},
          alpha{of.member("alpha", 1e-4)},
          beta{of.member("beta", 0.75)},
          offset{of.member("offset", 2)} {
        in = out = shape;
        to.node();
    }
    /// f(i, j) for the numbers j around number i.
    template <class F>
    void around(std::size_t count, F&& f) const {
        for (std::size_t i = 0; i < count; ++i)
            for (std::size_t j = 0; j < count; ++j)
                if (i / channels == j / channels && i <= j + half && j <= i + half) f(i, j);
    }
    std::vector<double> bases(const double* x, std::size_t count) const {
        std::vector<double> out_(count, offset);
        around(count, [&](std::size_t i, std::size_t j) { out_[i] += alpha * x[j] * x[j]; });
        return out_;
    }
    tensor forward(const tensor& x, state&) override {
        x_ = x;
        tensor y = x;
        for (std::size_t row = 0; row < x.rows(); ++row) {
            const auto base = bases(x[row], x.size);
            for (std::size_t i = 0; i < x.size; ++i) y[row][i] = x[row][i] * std::pow(base[i], -beta);
        }
        return y;
    }
    tensor backward(const tensor& dy, state&) override {
        tensor dx{dy.rows(), dy.size};
        for (std::size_t row = 0; row < dy.rows(); ++row) {
            const double* x = x_[row];
            const auto base = bases(x, dy.size);
            for (std::size_t i = 0; i < dy.size; ++i) dx[row][i] += dy[row][i] * std::pow(base[i], -beta);
            around(dy.size, [&](std::size_t i, std::size_t j) {
                dx[row][j] -= 2 * alpha * beta * x[i] * dy[row][i] * std::pow(base[i], -beta - 1) * x[j];
            });
        }
        return dx;
    }
};

std::unique_ptr<part> builder::make(const item& of, const extents& in) {
    const std::string& name = of.name;
    const auto pool = [&](auto made) {
        made->bind(in, in.back());
        node();
        return made;
    };
    const windows window{of.option(0, 1), of.option(1, of.option(0, 1)), of.option(2, 0)};
    if (name == "path" || name == "recompute" || name == "sequential")
        return std::make_unique<chain>(of.inside, in, *this);
    if (name == "residual") return std::make_unique<residual>(of, in, *this);
    if (name == "add") return std::make_unique<sum>(of, in, *this);
    if (name == "concatenate") return std::make_unique<concatenation>(of, in, *this);
    if (name == "conv" || name == "depthwise_conv") return make_convolution(of, in, *this);
    if (name == "conv_max_pool") return std::make_unique<pooled_convolution>(of, in, *this);
    if (name == "max_pool") return pool(std::make_unique<max_pool>(window));
    if (name == "mean_pool") return pool(std::make_unique<mean_pool>(window, window));
    if (name == "global_mean_pool") {
        require(in.size() == 3, "global_mean_pool on a row of features");
        auto made = pool(std::make_unique<mean_pool>(windows{in[0], in[0]}, windows{in[1], in[1]}));
        made->out = {in[2]};
        return made;
    }
    if (name == "shortcut") return std::make_unique<shortcut>(of, in, *this);
    if (name == "dense") return std::make_unique<dense>(of, in, *this);
    if (name == "flatten") return std::make_unique<flatten>(in, *this);
    if (name == "dropout") return std::make_unique<dropout>(of, in, *this);
    if (name == "batch_norm") return std::make_unique<batch_norm>(of, in, *this);
    if (name == "layer_norm") return std::make_unique<layer_norm>(of, in, *this);
    if (name == "local_response_norm") return std::make_unique<local_response_norm>(of, in, *this);
    if (name == "relu") return std::make_unique<elementwise>(in, *this, relu_of, relu_derivative);
    if (name == "tanh") return std::make_unique<elementwise>(in, *this, tanh_of, tanh_derivative);
    if (name == "sigmoid") return std::make_unique<elementwise>(in, *this, sigmoid_of, sigmoid_derivative);
    if (name == "gelu") return std::make_unique<elementwise>(in, *this, gelu_of, gelu_derivative);
    throw std::runtime_error("the naive walk knows no '" + name + "'");
}

}  // namespace

network::network(const item& sequential) {
    extents shape;
    for (const item& extent : sequential.inside.at(0).options) shape.push_back(extent.count());
    builder to{*this};
    all = std::make_unique<chain>(std::vector<item>{sequential.inside.begin() + 1, sequential.inside.end()}, shape, to);
}

extents output_of(const item& one, const extents& in) {
    item around{.name = "sequential", .inside = {item{.name = "input"}, one}};
    for (const std::size_t extent : in) around.inside[0].options.push_back({.number = std::to_string(extent)});
    try {
        return network{around}.all->out;
    } catch (const std::runtime_error&) {
        return {};
    }
}

double loss_of(const item& loss, const tensor& y, std::span<const double> targets, double scale, tensor* dy) {
    double sum = 0;
    const auto n = static_cast<double>(y.size);
    const double smoothing = loss.member("smoothing", 0);
    if (dy) *dy = tensor{y.rows(), y.size};
    for (std::size_t row = 0; row < y.rows(); ++row) {
        if (loss.name == "mean_squared_error") {
            for (std::size_t i = 0; i < y.size; ++i) {
                const double difference = y[row][i] - targets[row * y.size + i];
                sum += difference * difference / n;
                if (dy) (*dy)[row][i] = scale * 2 * difference / n;
            }
            continue;
        }
        const double most = *std::max_element(y[row], y[row] + y.size);
        double all = 0;
        for (std::size_t i = 0; i < y.size; ++i) all += std::exp(y[row][i] - most);
        for (std::size_t i = 0; i < y.size; ++i) {
            const double wanted = (static_cast<double>(i) == targets[row] ? 1 - smoothing : 0) + smoothing / n;
            const double likelihood = y[row][i] - most - std::log(all);
            sum -= wanted * likelihood;
            if (dy) (*dy)[row][i] = scale * (std::exp(likelihood) - wanted);
        }
    }
    return sum;
}

void update(const item& optimizer, const network& net, state& of, double rate,
            std::vector<std::vector<double>>& slots) {
    const bool has_decay = optimizer.name == "weight_decay";
    const item& inner = has_decay ? *optimizer.find("inner") : optimizer;
    const double decay = has_decay ? optimizer.member("rate", 1e-4) : 0;
    const bool decoupled = has_decay && optimizer.member("decoupled", 0) != 0;
    slots.resize(2, std::vector<double>(of.weights.size()));
    for (const parameter& one : net.parameters)
        for (std::size_t i = one.first; i < one.first + one.count; ++i) {
            double& w = of.weights[i];
            double g = of.gradient[i];
            if (one.decays && decoupled) w -= rate * decay * w;
            if (one.decays && !decoupled) g += decay * w;
            if (inner.name == "sgd") {
                w -= rate * g;
            } else if (inner.name == "momentum") {
                const double beta = inner.member("beta", 0.9);
                double& v = slots[0][i];
                v = beta * v + g;
                w -= rate * (inner.member("nesterov", 0) != 0 ? g + beta * v : v);
            } else if (inner.name == "adam") {
                const double beta1 = inner.member("beta1", 0.9), beta2 = inner.member("beta2", 0.999);
                const double updates = static_cast<double>(of.step) + 1;
                double &m = slots[0][i], &v = slots[1][i];
                m = beta1 * m + (1 - beta1) * g;
                v = beta2 * v + (1 - beta2) * g * g;
                w -= rate * (m / (1 - std::pow(beta1, updates))) /
                     (std::sqrt(v / (1 - std::pow(beta2, updates))) + inner.member("epsilon", 1e-8));
            } else {
                throw std::runtime_error("the naive walk knows no '" + inner.name + "'");
            }
        }
}

}  // namespace networks
