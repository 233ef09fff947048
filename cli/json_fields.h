// SPDX-License-Identifier: BSD-3-Clause
//
// The fields of a page, which a stranger may have written: one that is absent or of another kind is
// like none, and texts are quoted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "store/base/text.h"

namespace ddprun::cli {

using Json = nlohmann::ordered_json;

inline const Json& field(const Json& json, const char* name) {
  static const Json kNone;
  if (!json.is_object()) return kNone;
  auto found = json.find(name);
  return found == json.end() ? kNone : *found;
}
inline std::string text(const Json& json, const char* name) {
  const Json& value = field(json, name);
  return value.is_string() ? printable(value.get_ref<const std::string&>()) : "";
}
inline std::optional<double> number(const Json& json, const char* name) {
  const Json& value = field(json, name);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}
inline std::int64_t count(const Json& json, const char* name) {
  double value = number(json, name).value_or(0);
  return static_cast<std::int64_t>(std::clamp(value, -9e15, 9e15));
}
inline bool is_set(const Json& json, const char* name) {
  const Json& value = field(json, name);
  return value.is_boolean() && value.get<bool>();
}

}  // namespace ddprun::cli
