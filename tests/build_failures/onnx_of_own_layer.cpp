// SPDX-License-Identifier: BSD-3-Clause
// A user's layer that does not say what it is in ONNX.
// build error: lockstep: a layer cannot be written as ONNX; give it a member write_onnx\(node\)
#include <array>
#include <vector>

#include "lockstep/infer/onnx.hpp"

namespace ls = lockstep;
using namespace ls::layers;

template <class Input>
struct half_layer {
    using input = Input;
    using output = Input;
    static constexpr std::string_view name = "half";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr double flops = static_cast<double>(Input::size);

    void forward(const auto& pass) const noexcept {
        for (std::size_t i = 0; i < pass.x.size(); ++i) pass.y.data[i] = pass.x.data[i] / 2;
    }
    void backward(const auto&) const noexcept {}
};
struct half {
    template <class Input>
    constexpr auto on(Input) const {
        return half_layer<Input>{};
    }
};

int main() {
    constexpr auto net = ls::sequential{ls::input<28>, dense<64>{}, half{}, dense<10>{}};
    ls::write_onnx("net.onnx", net, std::vector<float>(2506), std::vector<float>{});
}
