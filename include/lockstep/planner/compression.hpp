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
    double drag = 0;         ///< of computing, more (or less) than layers were measured with: see with_drag()
};

/// Candidate 0 is dense, and always there.
struct bucket_costs {
    std::size_t lowest_layer = 0;
    std::size_t highest_layer = 0;
    std::vector<compression_cost> candidates{};
    double max_error = std::numeric_limits<double>::infinity();  ///< beside that of the rule
};

/// A step on the slowest rank: from the start of backward to the end of the next forward.
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
    // Drag slows all layers down, but none to less than a tenth.
    double computing = 0, more = 0, pace = 1;
    for (const double one : of.forward) computing += one;
    for (const double one : of.backward) computing += one;
    for (std::size_t bucket = 0; bucket < count; ++bucket) more += cost(bucket).drag;
    if (more != 0 && computing > 0) pace = std::max(0.1, 1 + more / computing);
    double now = 0, link = 0;
    std::vector<double> arrived(count), weights(count);
    std::size_t next = 0;
    for (std::size_t layer = of.backward.size(); layer-- > 0;) {
        now += pace * of.backward[layer];
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
            if (ready == count || arrived[bucket] < first) {
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
        now += pace * of.forward[layer];
    }
    return now;
}

/// All seconds of the link times `link`, those of encoding and decoding times `coding`.
[[nodiscard, gnu::cold]] inline step_model scaled(const step_model& of, double link, double coding) {
    step_model out = of;
    for (auto& bucket : out.buckets)
        for (std::size_t candidate = 0; candidate < bucket.candidates.size(); ++candidate) {
            compression_cost& one = bucket.candidates[candidate];
            one.sum *= link;
            one.share *= link;
            if (candidate == 0) continue;
            one.encode *= coding;
            one.finish *= coding;
        }
    return out;
}

/// Seconds of the link with a choice.
[[nodiscard, gnu::cold]] inline double link_seconds(const step_model& of, std::span<const std::size_t> choice) {
    double out = 0;
    for (std::size_t bucket = 0; bucket < choice.size(); ++bucket) {
        const compression_cost& one = of.buckets[bucket].candidates[choice[bucket]];
        out += one.sum + one.share;
    }
    return out;
}

/// The least number from `low` to `high` that reaches(number), where all larger ones do; `high` if none does.
template <class F>
[[nodiscard, gnu::cold]] double least(double low, double high, const F& reaches) {
    if (reaches(low)) return low;
    for (int halving = 0; halving < 50; ++halving) {
        const double middle = (low + high) / 2;
        (reaches(middle) ? high : low) = middle;
    }
    return high;
}

/// Multiplies all seconds of the link by what makes the step with this choice wait for so many seconds of messages in
/// all, as was measured; by 1/8 to 16. Returns the factor.
inline double fit_link(step_model& of, std::span<const std::size_t> choice, double waited) {
    const double without = step_seconds(scaled(of, 0, 1), choice);
    const double factor =
        least(0.125, 16, [&](double one) { return step_seconds(scaled(of, one, 1), choice) - without >= waited; });
    of = scaled(of, factor, 1);
    return factor;
}

/// Multiplies the seconds of encoding and decoding by what makes the step with this choice no longer than was measured;
/// by 1/8 to 1. Returns the factor. Alone they take longer than beside layers that need the same numbers.
inline double fit_coding(step_model& of, std::span<const std::size_t> choice, double seconds) {
    const double factor =
        least(0.125, 1, [&](double one) { return step_seconds(scaled(of, 1, one), choice) >= seconds; });
    of = scaled(of, 1, factor);
    return factor;
}

/// Where each second of the link takes `drag` seconds from the core that computes, even if its messages are hidden
/// (TCP does). Times of layers were measured with the choice `measured`: what its messages took is in them.
[[nodiscard, gnu::cold]] inline step_model with_drag(const step_model& of, std::span<const std::size_t> measured,
                                                     double drag) {
    step_model out = of;
    for (std::size_t bucket = 0; bucket < out.buckets.size(); ++bucket) {
        const compression_cost& base = of.buckets[bucket].candidates[measured[bucket]];
        for (auto& one : out.buckets[bucket].candidates) {
            const double more = (one.sum + one.share) - (base.sum + base.share);
            one.drag = std::isfinite(more) ? drag * more : 0;
        }
    }
    return out;
}

/// The drag, from 0 to 1, with which a step with the choice `to` takes so many seconds less than one with `from`, as
/// was measured.
[[nodiscard, gnu::cold]] inline double fit_drag(const step_model& of, std::span<const std::size_t> measured,
                                                std::span<const std::size_t> from, std::span<const std::size_t> to,
                                                double saved) {
    const auto saves = [&](double drag) {
        const step_model model = with_drag(of, measured, drag);
        return step_seconds(model, from) - step_seconds(model, to);
    };
    return least(0, 1, [&](double drag) { return saves(drag) >= saved; });
}

/// What a choice has to keep to.
struct compression_rule {
    double margin = 0.02;  ///< share of the step that it has to save
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
/// dense. Searched from several choices (all dense, each candidate everywhere, now) by passes over the buckets, each of
/// which takes the candidate that makes the step shortest, until a pass changes nothing: a local optimum. What saves
/// less than a thousandth of the step stays dense or has the smaller error. Cost: of b buckets with c candidates about
/// c b step models of b buckets and the layers for each pass, of which there are few.
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
        for (bool changes = true; changes;) {
            changes = false;
            for (std::size_t bucket = 0; bucket < count; ++bucket) {
                choice other = from;
                for (std::size_t candidate = 0; candidate < of.buckets[bucket].candidates.size(); ++candidate) {
                    if (candidate == from[bucket] || !allows(bucket, candidate)) continue;
                    other[bucket] = candidate;
                    if (const double taken = step_seconds(of, other); taken < seconds) {
                        seconds = taken;
                        from = other;
                        changes = true;
                    }
                }
            }
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
