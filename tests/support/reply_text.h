// SPDX-License-Identifier: BSD-3-Clause
//
// What a store answers, in words.
#pragma once

#include <string>
#include <variant>

#include "store/base/variant.h"
#include "store/wire.h"

namespace ddprun::test {

inline std::string in_words(const store::Reply& reply) {
  return std::visit(
      Overloaded{
          [](const store::reply::Byte& r) { return "byte " + std::to_string(r.value); },
          [](const store::reply::Nonce& r) { return "nonce " + std::to_string(r.value); },
          [](const store::reply::Number& r) { return std::to_string(r.value); },
          [](const store::reply::Bytes& r) { return "'" + std::string(r.value.view()) + "'"; },
      },
      reply);
}

}  // namespace ddprun::test
