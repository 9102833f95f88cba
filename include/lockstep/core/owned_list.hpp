// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A list of objects that stay where they are. A compiler makes a hundred functions of std::vector<std::unique_ptr<T>>
// for each T; here the pointers of all lists are of one type.

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep::core {

/// Objects need not be movable; references to them stay valid as long as the list does.
template <class T>
class owned_list {
public:
    owned_list() noexcept = default;
    owned_list(const owned_list&) = delete;
    owned_list& operator=(const owned_list&) = delete;
    ~owned_list() {
        for (void* const one : items_) delete static_cast<T*>(one);
    }

    /// Makes one at the end. The list is unchanged where its constructor throws.
    template <class... Arguments>
    T& add(Arguments&&... arguments) {
        items_.reserve(items_.size() + 1);  // after it nothing throws once there is one
        T* const made = new T(std::forward<Arguments>(arguments)...);
        items_.push_back(made);
        return *made;
    }

    [[nodiscard]] std::size_t size() const noexcept { return items_.size(); }
    [[nodiscard]] T& operator[](std::size_t index) noexcept { return *static_cast<T*>(items_[index]); }
    [[nodiscard]] const T& operator[](std::size_t index) const noexcept {
        return *static_cast<const T*>(items_[index]);
    }

private:
    std::vector<void*> items_;
};

}  // namespace lockstep::core
