// SPDX-License-Identifier: BSD-3-Clause
//
// What a store answers, in words.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "store/base/variant.h"
#include "store/decide/wire.h"

namespace ddprun::test {

// The values that a run is made of.
inline std::vector<std::string_view> values_of(const store::reply::Run& run) {
  std::vector<std::string_view> values;
  for (std::string_view rest = run.bytes; !rest.empty();) {
    std::uint64_t length = 0;
    std::memcpy(&length, rest.data(), sizeof length);
    values.push_back(rest.substr(sizeof length, length));
    rest.remove_prefix(sizeof length + length);
  }
  return values;
}

inline std::string in_words(const store::Reply& reply) {
  return std::visit(
      Overloaded{
          [](const store::reply::Byte& r) { return "byte " + std::to_string(r.value); },
          [](const store::reply::Nonce& r) { return "nonce " + std::to_string(r.value); },
          [](const store::reply::Number& r) { return std::to_string(r.value); },
          [](const store::reply::Bytes& r) { return "'" + std::string(r.value.view()) + "'"; },
          [](const store::reply::Run& r) {
            std::string text;
            for (std::string_view value : values_of(r)) {
              text += (text.empty() ? "'" : ", '") + std::string(value) + "'";
            }
            return text;
          },
      },
      reply);
}

}  // namespace ddprun::test
