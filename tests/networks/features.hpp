// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a network has, in words, and what the networks of the suite have to have together.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "networks/spec.hpp"

namespace networks {

/// "conv", "recompute inside concatenate", "a later path of a concatenate is wider", ".threads = 2", "shards 2", ..
[[nodiscard]] std::set<std::string> features_of(const item& net, const item& loss, const item& optimizer,
                                                std::string_view settings, std::size_t shards);

[[nodiscard]] std::vector<std::string> required_features();

}  // namespace networks
