// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "store/decide/outgoing.h"
#include "store/decide/value.h"

namespace ddprun::store {

// A reply of many values.  Small values are written one behind the other at once.
class ValuesReply {
 public:
  ValuesReply(const Context& context, std::size_t most_values)
      : context_(context), values_left_(most_values) {}

  void add(const Value& value) {
    std::string_view framed = value.framed();
    if (framed.size() > kCopiedBytes) {
      finish();
      context_.reply(reply::Bytes{value});
    } else {
      if (run_.capacity() - run_.size() < framed.size()) {  // the others may be about as large
        run_.reserve(run_.size() + std::min(std::max<std::size_t>(values_left_, 1) * framed.size(),
                                            kMostReserved));
      }
      run_.append(framed);
    }
    if (values_left_ > 0) --values_left_;
  }

  void finish() {
    if (!run_.empty()) context_.reply(reply::Run{std::exchange(run_, {})});
  }

 private:
  static constexpr std::size_t kMostReserved = 256 * 1024;  // at one time

  const Context& context_;
  std::size_t values_left_;
  std::string run_;
};

}  // namespace ddprun::store
