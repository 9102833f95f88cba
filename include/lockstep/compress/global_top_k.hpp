// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The largest elements of the sum over all workers, by a tree of merges of width k (gTop-k): models Compressor.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/measured.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// gTop-k (Shi et al., ICDCS 2019). Each worker w keeps a residual e_w. Tensors of one extent are added as they are;
/// for each segment of n numbers of others, k = top_k's:
///   p_w = g_w + e_w;  L_w = the k largest magnitudes of p_w;  e_w = p_w without L_w
///   S(node of the tree of workers) = the k largest magnitudes of S(left) + S(right); S(worker) = L_w
///   result: S(root), on every rank;  e_w = e_w + those entries of L_w whose index is not in S(root)
/// Of equal magnitudes the lowest indices are kept. An entry that a merge cuts returns to its workers if the result
/// lacks its index. If the result has that index from another part of the tree, the cut entry is lost, as published:
/// what workers keep and the result then add up to less than they had. With k = n, or one worker, nothing is lost.
/// The tree is that of workers: the same bits on any number of ranks, for a given number of workers.
/// Cost for each rank with W workers on p ranks, a power of two: log2(p) messages of (4 + c) k bytes and a header, c
/// bytes a value; others as recursive doubling. Beside a selection for each worker, one of at most 2k numbers for each
/// merge. Error feedback is part of it: error_feedback around it is refused.
struct global_top_k {
    double ratio = 0.01;  ///< of the elements of a segment
    /// Of L_w and p_w, where it is given: as of measured, in error feedback. What merges send is not counted.
    compress::statistics* statistics = nullptr;

    static constexpr std::string_view name = "global_top_k";
    static constexpr compress::traits traits{.dense_vectors = true};
    static constexpr std::size_t slot_count = 1;
    static constexpr bool cuts_streams = true;

    [[nodiscard]] std::string settings() const { return core::text("ratio=", ratio); }
    /// Throws core::error unless 0 < ratio <= 1.
    void check() const { check_share(name, "ratio", ratio); }
    void check_feedback() const {
        core::fail("error_feedback around global_top_k would keep a second residual of what it keeps itself",
                   "use global_top_k alone");
    }

    /// What a worker sends: L_w, of p_w = values + state.
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        return local().template max_bytes<T>(n);
    }
    template <class T>
    [[nodiscard]] std::size_t scratch_size(std::size_t n) const {
        return compress::scratch_size<T>(local(), n);
    }
    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        return local().encode(in);
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        local().decode_add(message, scale, sum);
    }

private:
    [[nodiscard]] error_feedback<measured<top_k>> local() const noexcept { return {{{.ratio = ratio}, statistics}}; }
};

[[nodiscard]] constexpr stream_settings stream_settings_of(const global_top_k&) noexcept {
    return {.algorithm = sparse_algorithm::recursive_doubling, .cuts = true};
}
[[nodiscard]] constexpr none second_half_of(const global_top_k&) noexcept { return {}; }

static_assert(StreamCompressor<global_top_k, float> && StreamCompressor<global_top_k, double>);

}  // namespace lockstep::compress
