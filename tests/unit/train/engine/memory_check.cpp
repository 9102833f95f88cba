// SPDX-License-Identifier: BSD-3-Clause
// The checker of a step's memory finds layers that write and read where they must not, and names them.
#include "lockstep/train/engine/memory_check.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/train/trainer.hpp"

namespace {

namespace ls = lockstep;
using namespace ls::layers;

enum class fault : std::uint8_t {
    none,
    past_output,
    before_output,
    past_saved,
    past_scratch,
    past_gradient,
    past_output_in_sight,
    late_write,
    late_read,
    late_read_of_weights,
    no_value
};

/// Out of sight of the sanitizer, which would end the program.
__attribute__((no_sanitize("address"), noinline)) void write(float* at, float what) noexcept { *at = what; }
__attribute__((no_sanitize("address"), noinline)) float read_late(const float* at) noexcept { return *at; }

/// What a layer must not keep from one pass to another.
float* kept_output = nullptr;
const float* kept_input = nullptr;

/// y = 2 x, with one fault.
template <fault Fault, ls::tensor::Shape S>
struct faulty_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "faulty";
    static constexpr std::array<ls::tensor::parameter, 1> parameters{
        ls::tensor::parameter{.name = "unused", .rows = 1, .columns = 1}};
    static constexpr double flops = 1;
    static constexpr ls::layer_api::traits traits{.needs_x = false, .needs_y = false, .saved_numbers = 1};
    template <class T>
    static std::size_t scratch(std::size_t, std::size_t, ls::parallel::team) {
        return 3;
    }

    template <class T>
    void forward(const ls::layer_api::forward_pass<T, faulty_layer>& pass) const noexcept {
        const std::size_t count = pass.x.rows * S::size;
        for (std::size_t i = Fault == fault::no_value ? 1 : 0; i < count; ++i) pass.y.data[i] = 2 * pass.x.data[i];
        if (Fault == fault::past_output) write(pass.y.data + count, 1);
        if (Fault == fault::past_output_in_sight) pass.y.data[count] = 1;
        if (Fault == fault::before_output) write(pass.y.data - 1, 1);
        if (Fault == fault::past_saved) write(reinterpret_cast<float*>(pass.saved.data() + pass.saved.size()), 1);
        if (Fault == fault::past_scratch) write(pass.use.scratch.data() + pass.use.scratch.size(), 1);
        kept_input = pass.x.data;
        kept_output = pass.y.data;
    }
    template <class T>
    void backward(const ls::layer_api::backward_pass<T, faulty_layer>& pass) const noexcept {
        const bool reads = Fault == fault::late_read_of_weights;
        pass.each_lane([&](ls::parallel::block, const auto& g) { g[0][0] = reads ? read_late(kept_input) : 0; });
        const std::size_t count = pass.dy.rows * S::size;
        for (std::size_t i = 0; i < count; ++i)
            pass.dx.data[i] = pass.dy.data[i] * (Fault == fault::late_read ? read_late(kept_input + i) : 2);
        if (Fault == fault::past_gradient) write(pass.dx.data + count, 1);
        if (Fault == fault::late_write) write(kept_output, 1);
    }
};
template <fault Fault>
struct faulty {
    template <ls::tensor::Shape S>
    constexpr auto on(S) const {
        return faulty_layer<Fault, S>{};
    }
};

constexpr std::size_t rows = 8;

/// Three steps, and the text of the error that they end in.
template <fault Fault>
std::string error_with(bool only_evaluate = false) {
    const std::vector<float> x(rows * 5, 0.5F);
    const std::vector<std::int32_t> y(rows, 1);
    ls::trainer trainer{ls::comm::group{}, ls::plan{.model = ls::sequential{ls::input<5>, dense<16>{}, faulty<Fault>{},
                                                                            dense<16>{}, dense<3>{}},
                                                    .loss = ls::loss::softmax_cross_entropy{},
                                                    .optimizer = ls::optim::sgd{},
                                                    .schedule = ls::optim::constant{.rate = 0.1},
                                                    .batch = rows,
                                                    .lanes = 2}};
    const auto set = ls::data::in_memory<ls::tensor::shape<5>, ls::tensor::classes<3>>(x, y);
    try {
        if (only_evaluate)
            (void)trainer.evaluate(set);
        else
            trainer.fit(set, ls::steps{3});
    } catch (const ls::core::error& failure) {
        const std::string text = failure.what();
        return text.substr(0, text.find("\n    the weights on rank "));
    }
    return "";
}

constexpr std::string_view too_far = "; a layer writes the rows and the bytes that its pass has, no more";

}  // namespace

TEST_CASE("train/memory_check: writes beside a piece are reported with the layer, its pass and the piece", "[train]") {
    if (!ls::tensor::checks_memory) return;
    CHECK(error_with<fault::none>() == "");
    CHECK(error_with<fault::past_output>() ==
          ls::core::text("lockstep: layer 1 (faulty), forward, wrote past the end of its output, 512 bytes", too_far));
    CHECK(error_with<fault::past_output>(true) == error_with<fault::past_output>());
    CHECK(error_with<fault::before_output>() ==
          ls::core::text("lockstep: layer 1 (faulty), forward, wrote before the start of its output, 512 bytes",
                         too_far));
    CHECK(error_with<fault::past_saved>() ==
          ls::core::text("lockstep: layer 1 (faulty), forward, wrote past the end of its saved values, 32 bytes",
                         too_far));
    CHECK(error_with<fault::past_scratch>() ==
          ls::core::text("lockstep: layer 1 (faulty), forward, wrote past the end of its scratch, 12 bytes", too_far));
    CHECK(error_with<fault::past_gradient>() == ls::core::text("lockstep: layer 1 (faulty), backward, wrote past the "
                                                               "end of its gradient with respect to input 0, 512 bytes",
                                                               too_far));
}

TEST_CASE("train/memory_check: uses of memory outside of its life, and results without a value, are reported",
          "[train]") {
    if (!ls::tensor::checks_memory) return;
    CHECK(error_with<fault::late_write>() ==
          "lockstep: memory was written while it belonged to no value, byte 0 of what layer 1 (faulty), forward, takes "
          "for its output, "
          "512 bytes; a layer before it kept a pointer beyond its pass, or wrote far past the end of an array");
    const auto no_value = [](std::string_view pass, std::string_view what) {
        return ls::core::text(
            "lockstep: layer 1 (faulty), ", pass, ", gave element 0 of its ", what,
            " no value, or computed it from memory that holds none; a layer writes all of its results, and reads "
            "nothing but what its pass has (see needs_x, needs_y)");
    };
    CHECK(error_with<fault::no_value>() == no_value("forward", "output"));
    CHECK(error_with<fault::late_read>() == no_value("backward", "gradient"));
    CHECK(error_with<fault::late_read_of_weights>() == no_value("backward", "parameters' gradient"));
}

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("train/memory_check: the address sanitizer reports the access itself", "[train]") {
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::dup2(ends[1], STDERR_FILENO);
        (void)error_with<fault::past_output_in_sight>();
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string report;
    std::array<char, 4096> part{};
    for (ssize_t count = 0; (count = ::read(ends[0], part.data(), part.size())) > 0;)
        report.append(part.data(), static_cast<std::size_t>(count));
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status != 0);
    CHECK(report.find("AddressSanitizer: use-after-poison") != std::string::npos);
}
#endif
