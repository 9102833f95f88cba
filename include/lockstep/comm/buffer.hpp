// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory for messages, which is given back only when MPI uses it no more.
// Tested by tests/training/message_memory.cpp.

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"

namespace lockstep::comm {

/// Memory that MPI may use until the end of the program, because its messages were given up (recall() in
/// transport.hpp). A send whose receiver has failed can be neither completed nor recalled. MPI reads its memory
/// whenever the receiver answers.
class abandoned_memory {
public:
    /// Without room to note it down, all memory of messages counts as abandoned from then on.
    [[gnu::cold]] static void add(std::span<const std::byte> used) noexcept;
    /// Whether MPI may still use some of it. If so, the caller leaves it to this list, and never gives it back.
    [[nodiscard]] static bool takes(std::span<const std::byte> memory) noexcept {
        return any_.load(std::memory_order_acquire) && takes_over(memory);
    }

private:
    [[nodiscard, gnu::cold]] static bool takes_over(std::span<const std::byte> memory) noexcept;

    static inline std::atomic<bool> any_ = false;
};

/// Gives memory back unless MPI may still use it.
template <class T>
struct message_allocator {
    using value_type = T;

    message_allocator() = default;
    template <class Other>
    message_allocator(const message_allocator<Other>&) noexcept {}

    [[nodiscard]] T* allocate(std::size_t n) { return std::allocator<T>{}.allocate(n); }
    void deallocate(T* memory, std::size_t n) noexcept {
        if (!abandoned_memory::takes(std::as_bytes(std::span{memory, n}))) std::allocator<T>{}.deallocate(memory, n);
    }
    friend bool operator==(const message_allocator&, const message_allocator&) = default;
};

/// What an operation sends from and receives into. Declared before its operation, it may go at any time, also when an
/// exception leaves: the operation gives up its messages first.
template <class T>
using buffer = std::vector<T, message_allocator<T>>;

/// Keeps a thing until the end of the program: what MPI may still use after a failure.
template <class T>
[[gnu::cold]] void leak_until_exit(T thing) noexcept {
    // Not destroyed: destructors that run at the end of the program may keep things, too.
    alignas(std::vector<T>) static std::byte room[sizeof(std::vector<T>)];
    static auto* const kept = ::new (static_cast<void*>(room)) std::vector<T>;
    static std::mutex one_at_a_time;
    try {
        const std::lock_guard guard{one_at_a_time};
        kept->push_back(std::move(thing));
    } catch (...) {  // no memory for the list: nothing destroys what lies here
        alignas(T) std::byte forever[sizeof(T)];
        ::new (static_cast<void*>(forever)) T(std::move(thing));
    }
}

#if LOCKSTEP_BODIES

namespace detail {

/// Neither is destroyed: memory may be given back by destructors that run at the end of the program.
struct abandoned_list {
    std::vector<std::span<const std::byte>> used;
    std::vector<const std::byte*> kept;  // tools that look for leaks find them here
    bool all = false;
    std::atomic_flag turn;

    static abandoned_list& get() noexcept {
        alignas(abandoned_list) static std::byte room[sizeof(abandoned_list)];
        static abandoned_list* const made = ::new (static_cast<void*>(room)) abandoned_list;
        return *made;
    }
    /// A progress thread may give up messages while another thread gives memory back.
    template <class F>
    void alone(F&& f) noexcept {
        while (turn.test_and_set(std::memory_order_acquire)) {
        }
        f();
        turn.clear(std::memory_order_release);
    }
};

}  // namespace detail

LOCKSTEP_FUNCTION void abandoned_memory::add(std::span<const std::byte> used) noexcept {
    auto& list = detail::abandoned_list::get();
    list.alone([&] {
        try {
            list.used.push_back(used);
        } catch (...) {
            list.all = true;
        }
    });
    any_.store(true, std::memory_order_release);
}

LOCKSTEP_FUNCTION bool abandoned_memory::takes_over(std::span<const std::byte> memory) noexcept {
    auto& list = detail::abandoned_list::get();
    bool found = false;
    list.alone([&] {
        found = list.all;
        for (const auto& range : list.used)
            found =
                found || (range.data() < memory.data() + memory.size() && memory.data() < range.data() + range.size());
        if (!found) return;
        try {
            list.kept.push_back(memory.data());
        } catch (...) {  // it is lost, as it has to be
        }
    });
    return found;
}

#endif

}  // namespace lockstep::comm
