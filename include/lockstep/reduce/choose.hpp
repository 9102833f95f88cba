// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the gradients of a plan become sums: by its compressor.

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/reduce/gathered_messages.hpp"
#include "lockstep/reduce/node_memory.hpp"
#include "lockstep/reduce/rounds.hpp"
#include "lockstep/reduce/sparse_sum.hpp"
#include "lockstep/reduce/tree_sum.hpp"

namespace lockstep::reduce {

/// A specialisation names the reducer of a compressor and where its gradients lie.
template <class T, class C>
struct method;

/// Every compressor's messages are gathered, and have workers: state and messages of their own for a fixed cut of the
/// minibatch.
template <class T, compress::Compressor<T> C>
struct method<T, C> {
    static_assert(!compress::hides_streams<C>,
                  "lockstep: sparse_sum and global_top_k stand alone or in error_feedback: what is around them here "
                  "would gather their messages; leave it out, or the sparse sum in it: measured goes inside, as in "
                  "sparse_sum{measured{top_k{}}}");
    using reducer = gathered_messages<T, C>;
    using memory = worker_memory;
    static constexpr bool has_workers = true;

    [[nodiscard]] static reducer make(const bucket& of, const C& compressor, tensor::arena& arena) {
        return {of, compressor, arena};
    }
};

/// Lists of indices and values may be added on their way.
template <class T, compress::StreamCompressor<T> C>
struct method<T, C> {
    using reducer = sparse_sum<T, C>;
    using memory = worker_memory;
    static constexpr bool has_workers = true;
    static constexpr bool needs_costs = true;

    [[nodiscard]] static reducer make(const bucket& of, const C& compressor, tensor::arena& arena) {
        return {of, compressor, arena};
    }
};

/// A reduction has workers, too, and as many sums as rounds.
template <class T, compress::Reduction<T> R>
struct method<T, R> {
    using reducer = rounds<T, R>;
    using memory = worker_memory;
    static constexpr bool has_workers = true;

    [[nodiscard]] static reducer make(const bucket& of, const R& reduction, tensor::arena& arena) {
        return {of, reduction, arena};
    }
};

/// The exact sum over the lane tree, the same on any number of ranks without workers; through shared memory where ranks
/// have it.
template <class T>
struct method<T, compress::none> {
    using reducer = tree_sum<T>;
    using memory = node_memory;
    static constexpr bool has_workers = false;

    [[nodiscard]] static reducer make(const bucket& of, const compress::none&, tensor::arena& arena) {
        return {of, arena};
    }
};

}  // namespace lockstep::reduce
