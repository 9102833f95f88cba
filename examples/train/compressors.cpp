// SPDX-License-Identifier: BSD-3-Clause
#include "compressors.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(EXAMPLE_HAS_ATOMO)
#include "lockstep/compress/atomo.hpp"
#endif
#include "lockstep/compress/by_layer.hpp"
#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/gaussian_top_k.hpp"
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/qsgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/random_block.hpp"
#include "lockstep/compress/random_k.hpp"
#include "lockstep/compress/sampled_top_k.hpp"
#include "lockstep/compress/scaled_sign.hpp"
#include "lockstep/compress/sign_vote.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/compress/threshold.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/two_sided.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace example {
namespace {

using namespace lockstep::compress;
using lockstep::core::error;
using lockstep::core::text;

/// The parts of NAME:SETTING,SETTING:plain.
struct request {
    std::string whole;
    std::string name;
    std::vector<std::string> settings;
    bool is_plain = false;
    statistics* to = nullptr;
    mutable bool has_plain = false;  ///< that there is something to leave out

    [[nodiscard]] bool plain() const {
        has_plain = true;
        return is_plain;
    }
    template <class Number>
    [[nodiscard]] Number number(std::size_t which) const {
        const std::string& word = settings.at(which);
        Number out{};
        const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), out);
        if (problem != std::errc{} || end != word.data() + word.size())
            throw error{text("--compress '", whole, "' has '", word, "' for a ",
                             std::is_integral_v<Number> ? "whole number from 0 on" : "number"),
                        "see train --list-compressors"};
        return out;
    }
    [[nodiscard]] double share(std::size_t which) const { return number<double>(which); }
    [[nodiscard]] std::size_t count(std::size_t which) const { return number<std::size_t>(which); }
    /// Whether it is `word`, and not `other`.
    [[nodiscard]] bool is(std::size_t which, std::string_view word, std::string_view other) const {
        const std::string& found = settings.at(which);
        if (found != word && found != other)
            throw error{text("--compress ", whole, ": '", found, "' is neither ", other, " nor ", word),
                        "see train --list-compressors"};
        return found == word;
    }
    [[nodiscard]] bool flag(std::size_t which) const {
        if (count(which) > 1)
            throw error{text("--compress ", whole, ": '", settings.at(which), "' is neither 0 nor 1"),
                        "see train --list-compressors"};
        return count(which) == 1;
    }
};

/// With error feedback unless it is left out.
template <class C>
gathered with_feedback(const request& of, const C& one) {
    const measured<C> inside{one, of.to};
    if (of.plain()) return inside;
    return error_feedback<measured<C>>{inside};
}
template <class Any, class R>
Any summed_with_feedback(const request& of, const R& one) {
    const measured<R> inside{one, of.to};
    if (of.plain()) return inside;
    return error_feedback<measured<R>>{inside};
}

struct row {
    std::string_view name;
    std::string_view settings;  ///< what stands for them in the list
    std::string_view usual;     ///< settings that are not given
    std::string_view what;
    chosen_compressor (*make)(const request&);
};

const row rows[] = {
    {"topk", "RATIO", "0.01", "the largest numbers and their indices",
        [](const request& of) -> chosen_compressor { return with_feedback(of, top_k{.ratio = of.share(0)}); }},
    {"sampledtopk", "RATIO", "0.01",
        "the same by a threshold from a sample, as deep gradient compression has it",
        [](const request& of) -> chosen_compressor {
            return with_feedback(of, sampled_top_k{.ratio = of.share(0)});
        }},
    {"gaussiantopk", "RATIO", "0.01", "the same by a threshold for normal deviates",
        [](const request& of) -> chosen_compressor {
            return with_feedback(of, gaussian_top_k{.ratio = of.share(0)});
        }},
    {"threshold", "VALUE,RATIO", "0.001,0.1", "all from a magnitude on, at most a share",
        [](const request& of) -> chosen_compressor {
            return with_feedback(of, threshold{.value = of.share(0), .most_share = of.share(1)});
        }},
    {"quantize", "BITS", "4", "stochastic rounding to levels of the largest of 512",
        [](const request& of) -> chosen_compressor { return with_feedback(of, quantize{.bits = of.count(0)}); }},
    {"qsgd", "LEVELS,NORM,CODING", "7,l2,packed",
        "stochastic rounding to levels of the norm of 512 (l2 or largest), packed or elias; unbiased, without error "
        "feedback",
        [](const request& of) -> chosen_compressor {
            const qsgd one{.levels = of.count(0),
                           .norm = of.is(1, "largest", "l2") ? bucket_norm::largest : bucket_norm::l2,
                           .coding = of.is(2, "elias", "packed") ? level_coding::elias : level_coding::packed};
            return gathered{measured<qsgd>{one, of.to}};
        }},
    {"onebit", "", "", "signs with two means a column, both ways; plain: one way, without feedback",
        [](const request& of) -> chosen_compressor {
            if (of.plain()) return gathered{measured<one_bit>{one_bit{}, of.to}};
            return gathered{two_sided{error_feedback<measured<one_bit>>{measured<one_bit>{one_bit{}, of.to}}}};
        }},
    {"sign", "", "", "signs times the mean magnitude",
        [](const request& of) -> chosen_compressor { return with_feedback(of, scaled_sign{}); }},
    {"chain", "RATIO,BITS", "0.01,4", "topk, then quantize of what is sent",
        [](const request& of) -> chosen_compressor {
            return with_feedback(of, chain{top_k{.ratio = of.share(0)}, quantize{.bits = of.count(1)}});
        }},
    {"bylayer", "RATIO,BITS", "0.01,8", "topk for dense weights, quantize for convolutions",
        [](const request& of) -> chosen_compressor {
            return with_feedback(of, by_layer{top_k{.ratio = of.share(0)}, quantize{.bits = of.count(1)}});
        }},
    {"warmup", "RATIO,STEPS", "0.001,100",
        "topk; before it 0.25, 0.063, 0.015, 0.004, but no less than RATIO, for so many steps each",
        [](const request& of) -> chosen_compressor {
            return with_feedback(of, warm_up<top_k>{.inner = {.ratio = of.share(0)}, .each = of.count(1)});
        }},
    {"randomk", "RATIO", "0.1", "random numbers, the same of all workers: added on the way; plain: unbiased",
        [](const request& of) -> chosen_compressor {
            return summed_with_feedback<summed>(of, random_k{.ratio = of.share(0), .unbiased = of.plain()});
        }},
    {"randomblock", "RATIO", "0.1", "a random block of neighbours, the same of all workers",
        [](const request& of) -> chosen_compressor {
            return summed_with_feedback<summed>(of, random_block{.ratio = of.share(0), .unbiased = of.plain()});
        }},
    {"powersgd", "RANK,STEPS", "2,0", "low rank by power iteration, after so many steps of all numbers",
        [](const request& of) -> chosen_compressor {
            const power_sgd one{.rank = of.count(0)};
            if (of.count(1) == 0) return summed_with_feedback<summed_twice>(of, one);
            return summed_with_feedback<summed_twice>(of, warm_up{.inner = one, .start = of.count(1)});
        }},
    {"terngrad", "CLIP", "2.5", "signs and zeros of one scale; unbiased, without error feedback",
        [](const request& of) -> chosen_compressor {
            return scaled{measured<terngrad>{terngrad{.clip = of.share(0)}, of.to}};
        }},
    {"half", "STOCHASTIC", "0",
        "numbers of 16 bits on the wire, and in the sums of the tree; 1: stochastic rounding",
        [](const request& of) -> chosen_compressor {
            return half_sums{half{.stochastic = of.flag(0)}, of.to};
        }},
    {"bfloat16", "STOCHASTIC", "0", "the same with the exponents of float",
        [](const request& of) -> chosen_compressor {
            return bfloat16_sums{bfloat16{.stochastic = of.flag(0)}, of.to};
        }},
    {"signvote", "SCALE,MOMENTUM", "1,0",
        "majority vote of signs times SCALE, without error feedback; Signum with 0.9; take --momentum 0 and a "
        "small --lr",
        [](const request& of) -> chosen_compressor {
            return counted{measured<sign_vote>{sign_vote{.scale = of.share(0), .momentum = of.share(1)}, of.to}};
        }},
    {"sparsesum", "RATIO,BITS", "0.01,4",
        "topk, added on the way as streams; where a sum gets dense, that sum in BITS bits",
        [](const request& of) -> chosen_compressor {
            return streamed{lists{with_feedback(of, top_k{.ratio = of.share(0)})}, quantize{.bits = of.count(1)}};
        }},
    {"globaltopk", "RATIO", "0.01",
        "the largest numbers of the sum, by merges of that many; with a residual of its own",
        [](const request& of) -> chosen_compressor { return global_top_k{.ratio = of.share(0), .statistics = of.to}; }},
#if defined(EXAMPLE_HAS_ATOMO)
    {"atomo", "ATOMS", "3", "so many singular triples by chance; unbiased, without error feedback",
        [](const request& of) -> chosen_compressor {
            return gathered{measured<atomo>{atomo{.atoms = of.count(0)}, of.to}};
        }},
#endif
    {"dgc", "RATIO,STEPS", "0.001,0",
        "deep gradient compression: momentum and --clip of each worker, then warmup",
        [](const request& of) -> chosen_compressor {
            return with_momentum_of_workers{
                with_feedback(of, warm_up<top_k>{.inner = {.ratio = of.share(0)}, .each = of.count(1)})};
        }},
    {"onebitadam", "STEPS", "100",
        "1-bit Adam: adam for so many steps, half of a short run, then momenta as onebit; wants an --lr of about 0.001",
        [](const request& of) -> chosen_compressor {
            return with_frozen_variance{with_feedback(of, one_bit{}), of.count(0)};
        }},
};

std::vector<std::string> cut(std::string_view words, char at) {
    std::vector<std::string> out;
    for (std::size_t first = 0;; first = words.find(at, first) + 1) {
        out.emplace_back(words.substr(first, words.find(at, first) - first));
        if (words.find(at, first) == std::string_view::npos) return out;
    }
}

request parse(const std::string& whole, std::string_view usual) {
    auto parts = cut(whole, ':');
    request out{.whole = whole, .name = parts.front(), .settings = cut(usual, ',')};
    parts.erase(parts.begin());
    if (!parts.empty() && parts.back() == "plain") {
        out.is_plain = true;
        parts.pop_back();
    }
    if (parts.size() > 1)
        throw error{text("--compress ", whole, " has more parts than a name, settings and plain"),
                    "see train --list-compressors"};
    if (!parts.empty()) {
        const auto given = cut(parts.front(), ',');
        if (given.size() > out.settings.size() || usual.empty())
            throw error{text("--compress ", whole, " has ", given.size(), " settings, and ", out.name, " takes ",
                             usual.empty() ? 0 : out.settings.size()),
                        "see train --list-compressors"};
        std::ranges::copy(given, out.settings.begin());
    }
    return out;
}

/// Bytes of a worker in a step after all warm-up, for a matrix of 1000 x 1000 floats in segments of 65,536, 8 workers;
/// without the 8 bytes of a length.
template <class C>
std::size_t bytes_of(const C& one) {
    if constexpr (adapts<C>) {
        return 0;  // those of what is chosen
    } else if constexpr (requires { one.compressor; }) {
        return bytes_of(one.compressor);
    } else {
        constexpr std::size_t side = 1000, whole = side * side;
        const std::size_t segment = sees_whole_tensors(one) ? whole : 65'536;
        std::size_t bytes = 0;
        for (std::size_t first = 0; first < whole; first += segment) {
            const std::size_t n = std::min(segment, whole - first);
            if constexpr (Reduction<C>) {
                const auto elements = one.sizes(n == whole ? matrix{side, side} : matrix{1, n}, 8).elements;
                bytes +=
                    sizeof(element_of<C, float, 0>) * std::accumulate(elements.begin(), elements.end(), std::size_t{0});
            } else {
                bytes +=
                    max_bytes_at<float>(one, n, ~std::uint64_t{0}, {.rows = side, .columns = side, .offset = first});
            }
        }
        return bytes;
    }
}

}  // namespace

chosen_compressor choose_compressor(const std::string& whole, statistics* to, bool keeps_rest) {
    if (whole == "none") return none{};
    if (whole == "adaptive") return adaptive{.statistics = to};
    const std::string name = whole.substr(0, whole.find(':'));
    if (name == "adaptive")
        return adaptive{.replay = choice_list::read(whole.substr(name.size() + 1)), .statistics = to};
    for (const row& one : rows)
        if (one.name == name) {
            request of = parse(whole, one.usual);
            of.to = to;
            const bool is_plain = std::exchange(of.is_plain, of.is_plain || keeps_rest);
            auto made = one.make(of);
            if (is_plain && !of.has_plain)
                throw error{text("--compress ", whole, ": ", name, " has no error feedback that could be left out"),
                            "leave ':plain' out"};
            return made;
        }
    std::string names = "none, adaptive";
    for (const row& one : rows) names += text(", ", one.name);
    throw error{text("--compress '", whole, "' is not known"),
                text("write one of ", names, "; see train --list-compressors")};
}

std::string list_of_compressors() {
    const auto column = [](std::string word, std::size_t width) {
        word.resize(std::max(word.size() + 1, width), ' ');
        return word;
    };
    std::string out = "name:settings              if not given   bytes of 1,000,000 floats\n";
    out += column("none", 42) + column("4000000", 10) + "exact, over the tree of lanes\n";
    for (const row& one : rows) {
        const auto made = choose_compressor(std::string{one.name}, nullptr);
        const std::size_t bytes = std::visit([](const auto& which) { return bytes_of(which); }, made);
        out += column(text(one.name, one.settings.empty() ? "" : ":", one.settings), 27) +
               column(std::string{one.usual}, 15) + column(text(bytes), 10) + std::string{one.what} + "\n";
    }
    out += column("adaptive:FILE", 27) + column("measured", 25) + "none, topk, quantize, powersgd, sign or chain "
           "for each layer, by measured times, or as in FILE of --compress-choices\n";
    return out +
           "With error feedback, which ':plain' at the end leaves out: topk:0.01:plain. None in half, bfloat16, qsgd, "
           "terngrad,\natomo and signvote; globaltopk has a residual of its own: no ':plain' for these.\n";
}

}  // namespace example
