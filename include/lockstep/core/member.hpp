// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a member of a class is: of which class where it is inherited, of the type or of its objects.

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

/// Whether each object of a type has name: concepts ask for one of the type, static.
template <class C>
inline constexpr bool name_is_of_objects = false;
template <class C>
    requires std::is_member_pointer_v<decltype(&C::name)>
inline constexpr bool name_is_of_objects<C> = true;

/// Whether each object of a type has slot_count: concepts ask for one of the type, static.
template <class C>
inline constexpr bool slot_count_is_of_objects = false;
template <class C>
    requires std::is_member_pointer_v<decltype(&C::slot_count)>
inline constexpr bool slot_count_is_of_objects<C> = true;

/// Whether each object of a type has flops: concepts ask for one of the type, static.
template <class C>
inline constexpr bool flops_is_of_objects = false;
template <class C>
    requires std::is_member_pointer_v<decltype(&C::flops)>
inline constexpr bool flops_is_of_objects<C> = true;

}  // namespace lockstep::core
