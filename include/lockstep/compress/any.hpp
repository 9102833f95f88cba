// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Any compressor behind one type, chosen when it is made: models Compressor.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/parts/choice.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// Holds a compressor of floats and says what that says, so that a program has one trainer type for all of them: the
/// same messages and bits as that compressor in its place, but for the text of the recipe. Copies share it; nothing
/// changes it. One indirect call for each message. `any{none{}}` gathers dense messages; compress::none by itself is
/// the exact sum over the lane tree. Not for sparse_sum and global_top_k, whose messages are added on their way.
class any {
public:
    static constexpr std::string_view name = "any";
    static constexpr std::size_t slot_count = 4;  ///< at most; slots() are in use

    any() : any{none{}} {}
    /// Throws core::error if it has more than 4 slots.
    template <class C>
        requires(!std::is_base_of_v<any, std::remove_cvref_t<C>> && Compressor<std::remove_cvref_t<C>>)
    any(const C& one) : held_{std::make_shared<const holder<C>>(one)} {  // implicit, as of std::any
        static_assert(!adds_streams<C> && !hides_streams<C>,
                      "lockstep: compress::any gathers messages, and those of sparse_sum and global_top_k are added on "
                      "their way; name the type of the compressor in the plan");
        if (slots_of(one) > slot_count)
            core::fail(
                core::text("compress::any has room for ", slot_count, " slots, and ", C::name, " has ", slots_of(one)),
                "name its type in the plan");
    }

    [[nodiscard]] std::string settings() const { return held_->settings(); }
    void check() const { held_->check(); }
    void check_feedback() const { held_->check_feedback(); }
    [[nodiscard]] std::size_t slots() const noexcept { return held_->slots(); }
    [[nodiscard]] std::size_t shared_slots() const noexcept { return held_->shared_slots(); }
    [[nodiscard]] bool seals() const noexcept { return held_->seals(); }
    [[nodiscard]] bool is_dense(const matrix& shape) const noexcept { return held_->is_dense(shape); }
    [[nodiscard]] bool sends_all(std::uint64_t step, const origin& from) const { return held_->sends_all(step, from); }
    [[nodiscard]] bool sees_whole_tensors() const noexcept { return held_->sees_whole_tensors(); }
    [[nodiscard]] bool varies() const { return held_->varies(); }
    [[nodiscard]] std::vector<std::uint64_t> changes() const { return held_->changes(); }

    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        return held_->max_bytes(n, T{});
    }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n, std::uint64_t step, const origin& from) const {
        return held_->max_bytes(n, step, from, T{});
    }
    template <class T>
    [[nodiscard]] std::size_t scratch_size(std::size_t n) const {
        return held_->scratch_size(n, T{});
    }
    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        return held_->encode(in);
    }
    template <class T>
    std::size_t encode_snapped(const encoding<T>& in, std::span<T> p) const noexcept {
        return held_->encode_snapped(in, p);
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        held_->decode_add(message, scale, sum);
    }
    template <class T>
    void seal(const sealing<T>& in) const noexcept {
        held_->seal(in);
    }

private:
    /// What is said for each type of numbers.
    template <class T>
    struct words {
        words() = default;
        words(const words&) = delete;
        words& operator=(const words&) = delete;
        virtual ~words() = default;
        [[nodiscard]] virtual std::size_t max_bytes(std::size_t n, T) const = 0;
        [[nodiscard]] virtual std::size_t max_bytes(std::size_t n, std::uint64_t step, const origin& from, T) const = 0;
        [[nodiscard]] virtual std::size_t scratch_size(std::size_t n, T) const = 0;
        virtual std::size_t encode(const encoding<T>& in) const noexcept = 0;
        virtual std::size_t encode_snapped(const encoding<T>& in, std::span<T> p) const noexcept = 0;
        virtual void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept = 0;
        virtual void seal(const sealing<T>& in) const noexcept = 0;
    };
    struct interface : words<float>, words<double> {
        using words<float>::max_bytes, words<double>::max_bytes, words<float>::scratch_size,
            words<double>::scratch_size;
        using words<float>::encode, words<double>::encode, words<float>::encode_snapped, words<double>::encode_snapped;
        using words<float>::decode_add, words<double>::decode_add, words<float>::seal, words<double>::seal;
        [[nodiscard]] virtual std::string settings() const = 0;
        virtual void check() const = 0;
        virtual void check_feedback() const = 0;
        [[nodiscard]] virtual std::size_t slots() const noexcept = 0;
        [[nodiscard]] virtual std::size_t shared_slots() const noexcept = 0;
        [[nodiscard]] virtual bool seals() const noexcept = 0;
        [[nodiscard]] virtual bool is_dense(const matrix& shape) const noexcept = 0;
        [[nodiscard]] virtual bool sends_all(std::uint64_t step, const origin& from) const = 0;
        [[nodiscard]] virtual bool sees_whole_tensors() const noexcept = 0;
        [[nodiscard]] virtual bool varies() const = 0;
        [[nodiscard]] virtual std::vector<std::uint64_t> changes() const = 0;
    };
    template <class C>
    struct kept : interface {
        C compressor;
        explicit kept(const C& of) : compressor{of} {}
        [[nodiscard]] std::string settings() const override { return detail::describe(compressor); }
        void check() const override { detail::check(compressor); }
        void check_feedback() const override { detail::check_feedback(compressor); }
        [[nodiscard]] std::size_t slots() const noexcept override { return slots_of(compressor); }
        [[nodiscard]] std::size_t shared_slots() const noexcept override { return shared_slots_of(compressor); }
        [[nodiscard]] bool seals() const noexcept override { return compress::seals(compressor); }
        [[nodiscard]] bool is_dense(const matrix& shape) const noexcept override {
            return compress::is_dense(compressor, shape);
        }
        [[nodiscard]] bool sends_all(std::uint64_t step, const origin& from) const override {
            return compress::sends_all(compressor, step, from);
        }
        [[nodiscard]] bool sees_whole_tensors() const noexcept override {
            return compress::sees_whole_tensors(compressor);
        }
        [[nodiscard]] bool varies() const override { return compress::varies(compressor); }
        [[nodiscard]] std::vector<std::uint64_t> changes() const override { return changes_of(compressor); }
    };
    /// The words of one type of numbers, over those of another.
    template <class C, class T, class Base>
    struct spoken : Base {
        using Base::Base;
        using Base::max_bytes, Base::scratch_size, Base::encode, Base::encode_snapped, Base::decode_add, Base::seal;
        [[nodiscard]] std::size_t max_bytes(std::size_t n, T) const override {
            return this->compressor.template max_bytes<T>(n);
        }
        [[nodiscard]] std::size_t max_bytes(std::size_t n, std::uint64_t step, const origin& from, T) const override {
            return max_bytes_at<T>(this->compressor, n, step, from);
        }
        [[nodiscard]] std::size_t scratch_size(std::size_t n, T) const override {
            return compress::scratch_size<T>(this->compressor, n);
        }
        std::size_t encode(const encoding<T>& in) const noexcept override { return this->compressor.encode(in); }
        std::size_t encode_snapped(const encoding<T>& in, std::span<T> p) const noexcept override {
            return compress::encode_snapped(this->compressor, in, p);
        }
        void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept override {
            this->compressor.decode_add(message, scale, sum);
        }
        void seal(const sealing<T>& in) const noexcept override {
            if constexpr (has_seal<C, T>) this->compressor.seal(in);
        }
    };
    template <class C>
    struct holder final : spoken<C, double, spoken<C, float, kept<C>>> {
        static_assert(Compressor<C, double>, "lockstep: compress::any holds compressors of float and of double");
        using spoken<C, double, spoken<C, float, kept<C>>>::spoken;
    };

    std::shared_ptr<const interface> held_;
};

static_assert(Compressor<any> && Compressor<any, double>);

}  // namespace lockstep::compress
