// SPDX-License-Identifier: BSD-3-Clause
//
// Numbers of files that are not trusted.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace ddprun::ddp {

// A number without a fraction that `T` has; the parser makes those that are too long fractions, and
// would cast these.  Throws std::out_of_range.
template <class T>
T whole_number(const nlohmann::json& json) {
  if (json.is_number_unsigned() && std::in_range<T>(json.get<std::uint64_t>())) {
    return json.get<T>();
  }
  if (json.is_number_integer() && !json.is_number_unsigned() &&
      std::in_range<T>(json.get<std::int64_t>())) {
    return json.get<T>();
  }
  throw std::out_of_range("not a whole number in range");
}

}  // namespace ddprun::ddp
