// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which compressor each bucket of a step should have: a model of the step, and the choice with the shortest one. Pure
// functions: the same numbers give the same choice on all ranks.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace lockstep::planner {

/// What a bucket costs with one compressor, in seconds.
struct compression_cost {
    double encode = 0;       ///< of computing, before its messages can leave
    double sum = 0;          ///< of the link: its messages
    double finish = 0;       ///< of computing, once they are there: decoding and the update
    double share = 0;        ///< of the link: its new weights
    double error = 0;        ///< |g - decoded| / |g|
    bool is_barred = false;  ///< never chosen again
};

/// Candidate 0 is dense, and always there.
struct bucket_costs {
    std::size_t lowest_layer = 0;
    std::size_t highest_layer = 0;
    std::vector<compression_cost> candidates{};
    double max_error = std::numeric_limits<double>::infinity();  ///< beside that of the rule
};

/// A step on the slowest rank: from the begin of backward to the end of the next forward.
struct step_model {
    std::vector<double> forward{};        ///< seconds of each layer
    std::vector<double> backward{};       ///< the same
    std::vector<bucket_costs> buckets{};  ///< in the order in which backward finishes them
    bool overlaps = true;                 ///< messages travel while layers are computed
};

/// Seconds of a step with choice[b] for bucket b. Computing: backward layer by layer, then updates as sums arrive,
/// those first that the next forward needs first, then forward, which waits before each layer for its weights. One
/// link: sums one after the other as they are ready, then weights.
///
///     computing   backward 2 | encode 2 | backward 1 | .. |  update 1 | update 2 | forward 1 | forward 2
///     link                              | sum 2 ......... | sum 1 .....| weights 1 | weights 2
[[nodiscard, gnu::cold]] inline double step_seconds(const step_model& of, std::span<const std::size_t> choice) {
    const std::size_t count = of.buckets.size();
    const auto cost = [&](std::size_t bucket) -> const compression_cost& {
        return of.buckets[bucket].candidates[choice[bucket]];
    };
    double now = 0, link = 0;
    std::vector<double> arrived(count), weights(count);
    std::size_t next = 0;
    for (std::size_t layer = of.backward.size(); layer-- > 0;) {
        now += of.backward[layer];
        for (; next < count && of.buckets[next].lowest_layer == layer; ++next) {
            now += cost(next).encode;
            if (of.overlaps) arrived[next] = link = std::max(link, now) + cost(next).sum;
        }
    }
    if (!of.overlaps)
        for (std::size_t bucket = 0; bucket < count; ++bucket)
            arrived[bucket] = link = std::max(link, now) + cost(bucket).sum;
    // Forward needs the last bucket first. Weights leave in that order.
    std::vector<double> updated(count, -1);
    std::size_t shared = count;
    for (std::size_t done = 0; done < count; ++done) {
        std::size_t ready = count;
        double first = std::numeric_limits<double>::infinity();
        for (std::size_t bucket = count; bucket-- > 0;) {
            if (updated[bucket] >= 0) continue;
            if (arrived[bucket] <= now) {
                ready = bucket;
                break;
            }
            if (arrived[bucket] < first) {
                first = arrived[bucket];
                ready = bucket;
            }
        }
        now = std::max(now, arrived[ready]) + cost(ready).finish;
        updated[ready] = now;
        for (; shared > 0 && updated[shared - 1] >= 0; --shared) {
            const double seconds = cost(shared - 1).share;
            weights[shared - 1] = seconds == 0 ? now : (link = std::max(link, now) + seconds);
        }
    }
    if (!of.overlaps)
        for (const double one : weights) now = std::max(now, one);
    std::size_t bucket = count;
    for (std::size_t layer = 0; layer < of.forward.size(); ++layer) {
        if (bucket > 0 && of.buckets[bucket - 1].lowest_layer == layer) now = std::max(now, weights[--bucket]);
        now += of.forward[layer];
    }
    return now;
}

/// Multiplies all seconds of the link by what makes the step with this choice wait for so many seconds of messages in
/// all, as was measured; by 1/8 to 16. Returns the factor.
inline double fit_link(step_model& of, std::span<const std::size_t> choice, double waited) {
    const auto with = [&](double factor) {
        step_model out = of;
        for (auto& bucket : out.buckets)
            for (auto& one : bucket.candidates) {
                one.sum *= factor;
                one.share *= factor;
            }
        return out;
    };
    const double without = step_seconds(with(0), choice);
    double low = 0.125, high = 16;
    for (int halving = 0; halving < 40; ++halving) {
        const double middle = std::sqrt(low * high);
        (step_seconds(with(middle), choice) - without < waited ? low : high) = middle;
    }
    of = with(high);
    return high;
}

/// What a choice has to keep to.
struct compression_rule {
    double margin = 0.03;  ///< share of the step that it has to save
    double max_error = 0.98;
};

/// Dense, or neither barred nor of too large an error.
[[nodiscard, gnu::cold]] inline bool is_allowed(const bucket_costs& bucket, std::size_t candidate,
                                                const compression_rule& rule) {
    if (candidate == 0) return true;
    return candidate < bucket.candidates.size() && !bucket.candidates[candidate].is_barred &&
           bucket.candidates[candidate].error <= std::min(rule.max_error, bucket.max_error);
}

/// `now` with dense buckets in place of those whose candidate is not allowed.
[[nodiscard, gnu::cold]] inline std::vector<std::size_t> allowed_of(const step_model& of,
                                                                    std::span<const std::size_t> now,
                                                                    const compression_rule& rule) {
    std::vector<std::size_t> out(now.begin(), now.end());
    for (std::size_t bucket = 0; bucket < out.size(); ++bucket)
        if (!is_allowed(of.buckets[bucket], out[bucket], rule)) out[bucket] = 0;
    return out;
}

/// A choice for each bucket: `now`, but for buckets whose candidate is barred or has too large an error, which become
/// dense; or the best one that is found, where it saves more than the margin. Dense where that saves less against
/// dense. Searched from several choices (all dense, each candidate everywhere, now) by the best change of one bucket
/// after the other. What saves less than a thousandth of the step stays dense or has the smaller error. Cost: of b
/// buckets with c candidates about c b^2 models of b buckets and the layers.
[[nodiscard, gnu::cold]] inline std::vector<std::size_t> choose_compression(const step_model& of,
                                                                            std::span<const std::size_t> now,
                                                                            const compression_rule& rule) {
    constexpr double negligible = 1e-3;
    const std::size_t count = of.buckets.size();
    const auto allows = [&](std::size_t bucket, std::size_t candidate) {
        return is_allowed(of.buckets[bucket], candidate, rule);
    };
    const auto error = [&](std::size_t bucket, std::size_t candidate) {
        return candidate == 0 ? -1.0 : of.buckets[bucket].candidates[candidate].error;
    };
    std::size_t candidates = 1;
    for (const auto& bucket : of.buckets) candidates = std::max(candidates, bucket.candidates.size());

    using choice = std::vector<std::size_t>;
    const choice dense(count, 0);
    const choice kept = allowed_of(of, now, rule);

    const auto improve = [&](choice from) {
        double seconds = step_seconds(of, from);
        while (true) {
            std::size_t where = count, which = 0;
            double best = seconds;
            for (std::size_t bucket = 0; bucket < count; ++bucket)
                for (std::size_t candidate = 0; candidate < of.buckets[bucket].candidates.size(); ++candidate) {
                    if (candidate == from[bucket] || !allows(bucket, candidate)) continue;
                    choice other = from;
                    other[bucket] = candidate;
                    if (const double taken = step_seconds(of, other); taken < best) {
                        best = taken;
                        where = bucket;
                        which = candidate;
                    }
                }
            if (where == count) break;
            from[where] = which;
            seconds = best;
        }
        // The smallest errors that this time allows.
        const double most = seconds * (1 + negligible);
        for (std::size_t bucket = 0; bucket < count; ++bucket) {
            choice other = from;
            for (std::size_t candidate = 0; candidate < of.buckets[bucket].candidates.size(); ++candidate) {
                if (!allows(bucket, candidate) || error(bucket, candidate) >= error(bucket, from[bucket])) continue;
                other[bucket] = candidate;
                if (step_seconds(of, other) <= most) from = other;
            }
        }
        return from;
    };

    choice best = dense;
    double best_seconds = step_seconds(of, dense);
    const auto look = [&](const choice& from) {
        const choice found = improve(from);
        if (const double seconds = step_seconds(of, found); seconds < best_seconds * (1 - negligible)) {
            best = found;
            best_seconds = seconds;
        }
    };
    look(dense);
    for (std::size_t candidate = 1; candidate < candidates; ++candidate) {
        choice all = dense;
        for (std::size_t bucket = 0; bucket < count; ++bucket)
            if (allows(bucket, candidate)) all[bucket] = candidate;
        look(all);
    }
    look(kept);

    const double as_now = step_seconds(of, kept), as_dense = step_seconds(of, dense);
    if (best_seconds < (1 - rule.margin) * as_now) return best_seconds < (1 - rule.margin) * as_dense ? best : dense;
    return as_now < as_dense ? kept : dense;
}

}  // namespace lockstep::planner
