// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Any reduction of given rounds behind one type, chosen when it is made: models Reduction.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/compress/parts/choice.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// What compress::any is for compressors: one trainer type for all reductions whose rounds are `Rounds`, such as
/// any_reduction<algebra::ordered_sum> for random_k and random_block, with error_feedback or without, but not of those
/// with elements of their own. The same elements and bits as that reduction in its place, but for the text of the
/// recipe. Copies share it; nothing changes it. One indirect call for each matrix and round.
template <algebra... Rounds>
class any_reduction {
public:
    static constexpr std::string_view name = "any_reduction";
    static constexpr std::size_t slot_count = 4;  ///< at most; slots() are in use
    static constexpr std::array rounds{Rounds...};
    static constexpr std::size_t last = rounds.size() - 1;

    /// Throws core::error if it has more than 4 slots.
    template <class R>
        requires(!std::is_same_v<std::remove_cvref_t<R>, any_reduction> && Reduction<R> && Reduction<R, double> &&
                 R::rounds == rounds &&
                 std::is_same_v<typename detail::element_for<R, float, algebra::ordered_sum>::type, float>)
    any_reduction(const R& one) : held_{std::make_shared<const holder<R>>(one)} {  // implicit, as that of any
        if (slots_of(one) > slot_count)
            core::fail(core::text("compress::any_reduction has room for ", slot_count, " slots, and ", R::name, " has ",
                                  slots_of(one)),
                       "name its type in the plan");
    }

    [[nodiscard]] std::string settings() const { return held_->settings(); }
    void check() const { held_->check(); }
    void check_feedback() const { held_->check_feedback(); }
    [[nodiscard]] std::size_t slots() const noexcept { return held_->slots(); }
    [[nodiscard]] bool is_dense(const matrix& shape) const { return held_->is_dense(shape); }
    [[nodiscard]] bool sees_whole_tensors() const { return held_->sees_whole_tensors(); }
    [[nodiscard]] std::uint64_t plain_steps() const { return held_->plain_steps(); }
    [[nodiscard]] reduction_sizes<rounds.size()> sizes(const matrix& shape, std::size_t workers) const {
        return held_->sizes(shape, workers);
    }
    template <class T>
    void initialise(const shared_pass<T>& all) const noexcept {
        held_->initialise(all);
    }
    template <std::size_t Number, class T>
    void encode(round_number<Number>, const worker_pass<T>& in,
                std::span<round_element<T, rounds[Number]>> out) const noexcept {
        held_->encode(Number, in, out.data(), out.size());
    }
    template <std::size_t Number, class T>
        requires(Number < last)
    void combined(round_number<Number>, const shared_pass<T>& all,
                  std::span<const round_element<T, rounds[Number]>> result) const noexcept {
        held_->combined(Number, all, result.data(), result.size());
    }
    template <class T>
    void finish(const shared_pass<T>& all, std::span<const round_element<T, rounds[last]>> result,
                std::span<T> mean) const noexcept {
        held_->finish(all, result, mean);
    }
    template <class T>
    void decode_own(const worker_pass<T>& in, std::span<const round_element<T, rounds[last]>> elements, T scale,
                    std::span<T> sum) const noexcept {
        held_->decode_own(in, elements, scale, sum);
    }

private:
    /// What is said for each type of numbers. Elements of a round come as they are known to both sides by its number.
    template <class T>
    struct words {
        words() = default;
        words(const words&) = delete;
        words& operator=(const words&) = delete;
        virtual ~words() = default;
        virtual void initialise(const shared_pass<T>& all) const noexcept = 0;
        virtual void encode(std::size_t round, const worker_pass<T>& in, void* out, std::size_t n) const noexcept = 0;
        virtual void combined(std::size_t round, const shared_pass<T>& all, const void* result,
                              std::size_t n) const noexcept = 0;
        virtual void finish(const shared_pass<T>& all, std::span<const round_element<T, rounds[last]>> result,
                            std::span<T> mean) const noexcept = 0;
        virtual void decode_own(const worker_pass<T>& in, std::span<const round_element<T, rounds[last]>> elements,
                                T scale, std::span<T> sum) const noexcept = 0;
    };
    struct interface : words<float>, words<double> {
        using words<float>::initialise, words<double>::initialise, words<float>::encode, words<double>::encode;
        using words<float>::combined, words<double>::combined, words<float>::finish, words<double>::finish;
        using words<float>::decode_own, words<double>::decode_own;
        [[nodiscard]] virtual std::string settings() const = 0;
        virtual void check() const = 0;
        virtual void check_feedback() const = 0;
        [[nodiscard]] virtual std::size_t slots() const noexcept = 0;
        [[nodiscard]] virtual bool is_dense(const matrix& shape) const = 0;
        [[nodiscard]] virtual bool sees_whole_tensors() const = 0;
        [[nodiscard]] virtual std::uint64_t plain_steps() const = 0;
        [[nodiscard]] virtual reduction_sizes<rounds.size()> sizes(const matrix& shape, std::size_t workers) const = 0;
    };
    /// The words of one type, over those of another.
    template <class T, class Base>
    struct spoken : Base {
        using Base::Base;
        using Base::initialise, Base::encode, Base::combined, Base::finish, Base::decode_own;
        void initialise(const shared_pass<T>& all) const noexcept override {
            if constexpr (requires { this->reduction.initialise(all); }) this->reduction.initialise(all);
        }
        void encode(std::size_t round, const worker_pass<T>& in, void* out, std::size_t n) const noexcept override {
            core::for_each_index<rounds.size()>([&](auto number) {
                using element = round_element<T, rounds[number]>;
                if (round == number)
                    this->reduction.encode(round_number<number>{}, in,
                                           std::span<element>{static_cast<element*>(out), n});
            });
        }
        void combined(std::size_t round, const shared_pass<T>& all, const void* result,
                      std::size_t n) const noexcept override {
            if constexpr (last > 0)
                core::for_each_index<last>([&](auto number) {
                    using element = const round_element<T, rounds[number]>;
                    if (round == number)
                        this->reduction.combined(round_number<number>{}, all,
                                                 std::span<element>{static_cast<element*>(result), n});
                });
        }
        void finish(const shared_pass<T>& all, std::span<const round_element<T, rounds[last]>> result,
                    std::span<T> mean) const noexcept override {
            this->reduction.finish(all, result, mean);
        }
        void decode_own(const worker_pass<T>& in, std::span<const round_element<T, rounds[last]>> elements, T scale,
                        std::span<T> sum) const noexcept override {
            this->reduction.decode_own(in, elements, scale, sum);
        }
    };
    template <class R>
    struct kept : interface {
        R reduction;
        explicit kept(const R& of) : reduction{of} {}
        [[nodiscard]] std::string settings() const override { return detail::describe(reduction); }
        void check() const override { detail::check(reduction); }
        void check_feedback() const override { detail::check_feedback(reduction); }
        [[nodiscard]] std::size_t slots() const noexcept override { return slots_of(reduction); }
        [[nodiscard]] bool is_dense(const matrix& shape) const override { return compress::is_dense(reduction, shape); }
        [[nodiscard]] bool sees_whole_tensors() const override { return compress::sees_whole_tensors(reduction); }
        [[nodiscard]] std::uint64_t plain_steps() const override { return compress::plain_steps(reduction); }
        [[nodiscard]] reduction_sizes<rounds.size()> sizes(const matrix& shape, std::size_t workers) const override {
            return reduction.sizes(shape, workers);
        }
    };
    template <class R>
    struct holder final : spoken<double, spoken<float, kept<R>>> {
        using spoken<double, spoken<float, kept<R>>>::spoken;
    };

    std::shared_ptr<const interface> held_;
};

}  // namespace lockstep::compress
