// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Batch normalisation (Ioffe, Szegedy 2015) with the statistics of a lane, and what stands after it: relu, or a sum and
// relu. Models LayerSpec.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/normalisation/column_moments.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/pass.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// Training: y = (x - mean) / sqrt(variance + epsilon) scale + shift for each channel, the last extent of the shape.
/// Mean and (biased) variance are those of the samples and pixels of one lane: "ghost" batch normalisation (Hoffer,
/// Hubara, Soudry 2017) with ghosts of batch / lanes samples, the same on any number of ranks. Inference: with the
/// running mean and variance; the latter takes the unbiased variance of each lane, n / (n - 1) times the biased one (0
/// where a lane has a single number of a channel), as PyTorch does. Cost: forward reads x twice and writes y, backward
/// reads x and dy twice and writes dx, which may be dy. Keeps 2 numbers a channel for each sample, of which only those
/// of a lane's first sample are used. With an epilogue, y = max(.., 0) or max(addend + .., 0) costs no pass of its own:
/// the first works out in backward again where it was 0, the second reads the addend in forward, y in backward, and
/// writes daddend.
template <tensor::Shape S, epilogue Epilogue = epilogue::none>
struct batch_norm_layer {
    using input = S;
    using output = S;
    static constexpr std::size_t channels = S::extents.back();
    static constexpr std::size_t pixels = S::size / channels;
    static constexpr std::string_view name = "batch_norm";
    static constexpr std::array parameters{
        tensor::parameter{.name = "scale", .columns = channels, .initial = tensor::start::ones, .decays = false},
        tensor::parameter{.name = "shift", .columns = channels, .initial = tensor::start::zeros, .decays = false},
    };
    static constexpr std::array statistics{
        tensor::parameter{.name = "mean", .columns = channels, .initial = tensor::start::zeros, .decays = false},
        tensor::parameter{.name = "variance",
                          .columns = channels,
                          .initial = tensor::start::ones,
                          .decays = false,
                          .is_square = true},
    };
    static constexpr double flops = 7.0 * static_cast<double>(S::size);
    /// Rows of a lane: two numbers of a channel, because x - mean of a single one is 0, and so is every gradient.
    static constexpr layer_api::traits traits{.needs_y = Epilogue == epilogue::add_relu,
                                              .in_place = true,
                                              .has_addend = Epilogue == epilogue::add_relu,
                                              .sums_gradient = Epilogue == epilogue::add_relu,
                                              .deals_lanes = true,
                                              .saved_numbers = 2 * channels,
                                              .least_rows_per_lane = pixels == 1 ? 2 : 1};

    double momentum = 0.1;
    double epsilon = 1e-5;

    template <epilogue Other>
    [[nodiscard]] constexpr auto with_epilogue() const noexcept {
        return batch_norm_layer<S, Other>{.momentum = momentum, .epsilon = epsilon};
    }

    template <class T>
    [[nodiscard]] static constexpr std::size_t scratch(std::size_t rows, std::size_t lanes, parallel::team team) {
        const std::size_t share = work_size + kernels::column_sums_scratch<T>(rows * pixels, channels);
        return std::max(share, dealt_scratch<T>(share, lanes, team));
    }

    template <class Pass>
    void forward(const Pass& pass) const noexcept {
        using T = typename Pass::value_type;
        if (pass.mode == mode::inference) {
            T* const scale = pass.use.scratch.data();
            for (std::size_t c = 0; c < channels; ++c) scale[c] = pass.w[0][c] * inverse(pass.statistics[1][c]);
            normalise(pass, {0, pass.x.rows}, pass.statistics[0].data(), scale, pass.use.team);
            return;
        }
        pass.deal_lanes_observed([&](parallel::block rows, const auto& observed, const auto& use) {
            T* const scale = use.scratch.data();
            const std::size_t count = rows.size() * pixels;
            T* const mean = observed[0].data();
            T* const variance = observed[1].data();
            kernels::column_moments(count, channels, pass.x.part(rows.first, rows.size()).data, mean, variance,
                                    sums(use));
            if (rows.empty()) return;
            T* const kept = kept_of<T>(pass.saved, rows.first);
            const double unbiased = count > 1 ? static_cast<double>(count) / static_cast<double>(count - 1) : 0;
            for (std::size_t c = 0; c < channels; ++c) {
                kept[c] = mean[c];
                kept[channels + c] = inverse(variance[c]);
                scale[c] = pass.w[0][c] * kept[channels + c];
                mean[c] *= static_cast<T>(rows.size());
                variance[c] *= static_cast<T>(unbiased * static_cast<double>(rows.size()));
            }
            normalise(pass, rows, kept, scale, use.team);
        });
    }

    template <class Pass>
    void backward(const Pass& pass) const noexcept {
        using T = typename Pass::value_type;
        pass.deal_lanes([&](parallel::block rows, const auto& gradient, const auto& use) {
            const std::size_t count = rows.size() * pixels;
            const T* x = pass.x.part(rows.first, rows.size()).data;
            const T* dy = pass.dy.part(rows.first, rows.size()).data;
            const T* mean = rows.empty() ? nullptr : kept_of<const T>(pass.saved, rows.first);
            const T* inverses = mean + (rows.empty() ? 0 : channels);
            T* const scale = use.scratch.data();
            for (std::size_t c = 0; c < channels && !rows.empty(); ++c) scale[c] = pass.w[0][c] * inverses[c];
            const auto sum_gradients = [&](auto then) {
                kernels::column_gradients(count, channels, x, dy, mean, inverses, gradient[0].data(),
                                          gradient[1].data(), sums(use), then);
            };
            const auto finish = [&](const T* gradients, auto then) {
                if (rows.empty() || !pass.wants_dx()) return;
                T* const share_of_sum = scale + channels;
                T* const share_of_gradient = share_of_sum + channels;
                const T share = T{1} / static_cast<T>(count);
                for (std::size_t c = 0; c < channels; ++c) {
                    share_of_sum[c] = gradient[1][c] * share;
                    share_of_gradient[c] = gradient[0][c] * share * inverses[c];
                }
                kernels::normalise_columns_backward(count, channels, x, gradients, mean, scale, share_of_sum,
                                                    share_of_gradient, pass.dx.part(rows.first, rows.size()).data,
                                                    use.team, then);
            };
            if constexpr (Epilogue == epilogue::add_relu) {
                T* const masked = pass.daddend.part(rows.first, rows.size()).data;
                const kernels::rectified_sum_gradients<T> then{pass.y.part(rows.first, rows.size()).data, masked};
                if (pass.more_dy.data == nullptr)
                    sum_gradients(then);
                else
                    sum_gradients(kernels::rectified_sum_both_gradients<T>{
                        then, pass.more_dy.part(rows.first, rows.size()).data});
                finish(masked, kernels::unchanged{});
            } else {
                const auto then = [&] {
                    if constexpr (Epilogue == epilogue::relu)
                        return kernels::rectified<T>{scale, pass.w[1].data()};
                    else
                        return kernels::unchanged{};
                }();
                sum_gradients(then);
                finish(dy, then);
            }
        });
    }

    /// running = (1 - momentum) running + momentum observed.
    template <class T>
    void absorb(std::span<T> running, std::span<const T> observed) const noexcept {
        for (std::size_t i = 0; i < running.size(); ++i)
            running[i] = static_cast<T>(1 - momentum) * running[i] + static_cast<T>(momentum) * observed[i];
    }

private:
    static constexpr std::size_t work_size = 3 * channels;

    /// These rows of y.
    template <class Pass, class T>
    static void normalise(const Pass& pass, parallel::block rows, const T* mean, const T* scale,
                          parallel::team team) noexcept {
        const auto then = [&] {
            if constexpr (Epilogue == epilogue::add_relu)
                return kernels::rectified_sum<T>{pass.addend.part(rows.first, rows.size()).data};
            else if constexpr (Epilogue == epilogue::relu)
                return kernels::rectified<T>{scale, pass.w[1].data()};
            else
                return kernels::unchanged{};
        }();
        kernels::normalise_columns(rows.size() * pixels, channels, pass.x.part(rows.first, rows.size()).data, mean,
                                   scale, pass.w[1].data(), pass.y.part(rows.first, rows.size()).data, team, then);
    }
    template <class T>
    [[nodiscard]] T inverse(T variance) const noexcept {
        return T{1} / std::sqrt(variance + static_cast<T>(epsilon));
    }
    template <class T>
    [[nodiscard]] static kernels::resources<T> sums(const kernels::resources<T>& use) noexcept {
        return {use.team, use.scratch.subspan(work_size)};
    }
    /// Mean and inverse deviation of a lane lie in what is kept for its first row.
    template <class T>
    [[nodiscard]] static T* kept_of(auto saved, std::size_t row) noexcept {
        return reinterpret_cast<T*>(saved.data() + row * saved_bytes<batch_norm_layer, T>);
    }
};

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// batch_norm{}: after a convolution (channels) or a dense layer (features). A lane needs two numbers of a channel, of
/// which only the order remains; it should have several samples or many pixels.
struct batch_norm {
    /// running = (1 - momentum) running + momentum observed, as in PyTorch; Keras counts the other part.
    double momentum = 0.1;
    double epsilon = 1e-5;

    [[nodiscard]] std::string settings() const { return core::text("momentum=", momentum, " epsilon=", epsilon); }
    /// Throws core::error unless 0 < momentum <= 1 and epsilon lies in [1e-37, 1e37]: as a float it is neither 0 nor
    /// infinite.
    void check() const;

    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        return layer_api::batch_norm_layer<Input>{.momentum = momentum, .epsilon = epsilon};
    }
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void batch_norm::check() const {
    if (!(momentum > 0 && momentum <= 1))
        core::fail(core::text("batch_norm has momentum = ", momentum, ", outside (0, 1]"),
                   "use the part of the running statistics that a step replaces, such as 0.1");
    if (!(epsilon >= 1e-37 && epsilon <= 1e37))
        core::fail(core::text("batch_norm has epsilon = ", epsilon, ", outside [1e-37, 1e37]"),
                   "take a small positive number such as 1e-5");
}

#endif

}  // namespace lockstep::layers
