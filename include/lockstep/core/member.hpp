// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a member of a class is: of which class where it is inherited, of the type or of its objects; the optional
// check().

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

/// Whether a check() that a part has is the one that is called.
template <class Part>
inline constexpr bool keeps_check = requires(const Part& part) {
    part.check();
}
|| !requires(Part & part) { part.check(); };

/// Calls the check() of a component that has one.
template <class Part>
void check_part(const Part& part) {
    if constexpr (requires { part.check(); }) part.check();
}
/// Of a component inside another one: that of a plan, and its layers, have been looked at before.
template <class Part>
void check_inner_part(const Part& part) {
    static_assert(keeps_check<Part>, "lockstep: the check() of a component is const");
    check_part(part);
}

}  // namespace lockstep::core
