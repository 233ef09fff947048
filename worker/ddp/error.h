// SPDX-License-Identifier: BSD-3-Clause
//
// How the runtime fails towards a training program.  Inside, a failure is a Result<T>; at the
// public edge it becomes this one exception, since a training loop has nowhere better to go with
// it: left uncaught, it ends the worker, and the launcher restarts the group.
#pragma once

#include <stdexcept>
#include <string>

#include "store/base/error.h"

namespace ddprun::ddp {

// what() is one sentence for a person: what failed, and where it helps, what to do.  It also comes
// out of loss.backward(), when the reduction fails; LibTorch's own exceptions (c10::Error, for a
// shape that does not fit) pass through untouched.
class DdpError : public std::runtime_error {
 public:
  explicit DdpError(const std::string& sentence) : std::runtime_error(sentence) {}
  explicit DdpError(const Error& error) : std::runtime_error(to_string(error)) {}
};

// The value of `result`; throws a failure as DdpError.
template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw DdpError(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace ddprun::ddp
