// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The share of elements that a compressor sends, and the same compressor with another one.
// Tested by tests/unit/compress/warm_up.cpp.

namespace lockstep::compress {

/// Whether it has a share of elements that it sends: a member `ratio`, or with_ratio(ratio) and, if stages are not to
/// send less than it does, own_ratio().
template <class C>
inline constexpr bool has_ratio = requires(C one) {
    one.ratio = 0.5;
}
|| requires(const C& one) { one.with_ratio(0.5); };

/// It; 0 where nothing says so.
template <class C>
    requires has_ratio<C>
[[nodiscard]] double ratio_of(const C& one) {
    if constexpr (requires { one.own_ratio(); })
        return one.own_ratio();
    else if constexpr (requires { one.ratio; })
        return one.ratio;
    else
        return 0;
}

/// The same compressor with another share of elements.
template <class C>
    requires has_ratio<C>
[[nodiscard]] C with_ratio(const C& of, double ratio) {
    if constexpr (requires { of.with_ratio(ratio); }) {
        return of.with_ratio(ratio);
    } else {
        C out = of;
        out.ratio = ratio;
        return out;
    }
}

}  // namespace lockstep::compress
