// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which class a member function is of: a type that derives from another one inherits what the other says of itself.

#include <type_traits>

namespace lockstep::core {

/// The class of a pointer to member; nothing for any other type.
template <class Pointer>
struct class_of_member {
    using type = void;
};
template <class Member, class Class>
struct class_of_member<Member Class::*> {
    using type = Class;
};

/// Whether a member is not one of `Class` itself, but of a class that it derives from.
template <class Class, class Pointer>
inline constexpr bool is_inherited = !std::is_void_v<typename class_of_member<Pointer>::type> &&
                                     !std::is_same_v<typename class_of_member<Pointer>::type, Class>;

}  // namespace lockstep::core
