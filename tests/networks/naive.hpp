// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A naive walk through a network, in double: each item of the nested text does its own forward and backward, by loops
// over samples, with a vector for each value. Nothing is planned, fused or shared; of the library it has the random
// numbers only.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "networks/spec.hpp"

namespace networks {

/// Rows, columns and channels, or features.
using extents = std::vector<std::size_t>;
[[nodiscard]] std::size_t size_of(const extents& shape);

/// The values of one node, or their gradients: rows x size numbers.
struct tensor {
    std::size_t size = 0;
    std::vector<double> numbers;

    tensor() = default;
    tensor(std::size_t rows, std::size_t size_of_sample) : size{size_of_sample}, numbers(rows * size_of_sample) {}
    [[nodiscard]] std::size_t rows() const { return size == 0 ? 0 : numbers.size() / size; }
    double* operator[](std::size_t row) { return numbers.data() + row * size; }
    const double* operator[](std::size_t row) const { return numbers.data() + row * size; }
};

/// A parameter, as all_weights() orders them.
struct parameter {
    std::string name;
    std::size_t first = 0;
    std::size_t count = 0;
    std::size_t fan_in = 1;
    bool decays = true;
};

/// What belongs to one step.
struct state {
    std::vector<double> weights, gradient;
    std::vector<double> running,
        observed;  ///< statistics, as running_statistics() orders them; their means over the minibatch
    std::vector<std::pair<std::size_t, std::size_t>> lanes;  ///< rows first .. last - 1
    std::uint64_t seed = 0, step = 0;
    bool trains = true;
    std::function<double()>
        rounding{};  ///< what each value and each of its gradients is multiplied with; none: as it is
};

/// An item bound to the shape that it takes. Forward remembers what backward needs.
class part {
public:
    extents in, out;
    part() = default;
    part(const part&) = delete;
    part& operator=(const part&) = delete;
    virtual ~part() = default;
    virtual tensor forward(const tensor& x, state& of) = 0;
    virtual tensor backward(const tensor& dy, state& of) = 0;
};

struct network {
    std::unique_ptr<part> all;
    std::vector<parameter> parameters, statistics;
    std::vector<std::function<void(state&)>> absorb;  ///< each takes what a step observed into the running values
    std::size_t nodes = 0;
    std::size_t least_per_channel =
        0;  ///< numbers of one sample that a channel of a batch normalisation has, the fewest; 0: there is none

    /// Throws std::runtime_error where an item does not fit what it takes.
    explicit network(const item& sequential);
    [[nodiscard]] std::size_t weights() const {
        return parameters.empty() ? 0 : parameters.back().first + parameters.back().count;
    }
    [[nodiscard]] std::size_t running() const {
        return statistics.empty() ? 0 : statistics.back().first + statistics.back().count;
    }
};

/// What the item gives for this shape; empty where it does not take it.
[[nodiscard]] extents output_of(const item& one, const extents& in);

/// The sum of the losses of the rows. Targets: class numbers, or the wanted outputs. dy: the gradient of `scale` times
/// the sum.
[[nodiscard]] double loss_of(const item& loss, const tensor& y, std::span<const double> targets, double scale,
                             tensor* dy);

/// Weights and slots of an optimizer.
void update(const item& optimizer, const network& net, state& of, double rate, std::vector<std::vector<double>>& slots);

/// Rows of each lane of a minibatch: as equal as possible.
[[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> cut_into_lanes(std::size_t rows, std::size_t lanes);

}  // namespace networks
