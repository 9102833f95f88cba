// SPDX-License-Identifier: BSD-3-Clause
// Lists that are added on their way: with a quantised second half, with each algorithm named, and gTop-k.
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/global_top_k.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/top_k.hpp"
#include "settings/settings.hpp"

using namespace settings;
using ls::compress::sparse_algorithm;

namespace {

auto of(std::size_t workers, double ratio = 0.1, sparse_algorithm algorithm = sparse_algorithm::automatic) {
    ls::compress::sparse_sum sum{ls::compress::top_k{.ratio = ratio}, ls::compress::quantize{.bits = 4}};
    sum.algorithm = algorithm;
    return recipe(parts{.compressor = ls::compress::error_feedback{sum}, .workers = workers});
}
auto global(std::size_t workers) {
    return recipe(parts{.compressor = ls::compress::global_top_k{.ratio = 0.05}, .workers = workers});
}

}  // namespace

TEST_CASE("settings/sparse_sum: one hash", "[settings]") {
    const std::vector<refusal> refused{thread_without_overlap()};
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("sparse_sum, half of it quantised, ", workers, " workers"), of(workers), refused);
    for (const auto algorithm : {sparse_algorithm::recursive_doubling, sparse_algorithm::split_all_gather})
        same_everywhere(
            text("sparse_sum by ",
                 algorithm == sparse_algorithm::recursive_doubling ? "recursive doubling" : "split all-gather",
                 ", 8 workers"),
            of(8, 0.02, algorithm), refused);
    for (const std::size_t workers : {8, 4})
        same_everywhere(text("global_top_k, ", workers, " workers"), global(workers), refused);
    differs("sparse_sum, 8 workers", of(8), "a ratio of 0.11", of(8, 0.11));
    differs("global_top_k, 8 workers", global(8), "4 workers", global(4));
}
