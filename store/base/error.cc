// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/error.h"

#include <cerrno>
#include <utility>

namespace ddprun {
namespace {

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "ddprun"; }
  std::string message(int value) const override {
    switch (static_cast<Errc>(value)) {
      case Errc::InvalidInput:
        return "invalid input";
      case Errc::NotSupported:
        return "not supported yet";
      case Errc::TimedOut:
        return "timed out";
      case Errc::Protocol:
        return "protocol violation";
      case Errc::LimitExceeded:
        return "limit exceeded";
      case Errc::Closed:
        return "closed";
      case Errc::Refused:
        return "no program listens";
    }
    return "unknown error " + std::to_string(value);
  }
};

}  // namespace

const std::error_category& ddprun_category() {
  static const Category category;
  return category;
}

std::error_code make_error_code(Errc code) {
  return {static_cast<int>(code), ddprun_category()};
}

std::string to_string(const Error& error) {
  if (error.context.empty()) return error.code.message();
  if (error.code.category() == ddprun_category()) return error.context;
  // "File too large" says neither that there is a limit nor whose it is.
  bool is_past_limit =
      error.code.category() == std::system_category() && error.code.value() == EFBIG;
  return error.context + ": " + error.code.message() +
         (is_past_limit ? " (past the limit of a file's size: ulimit -f)" : "");
}

Error system_error(int error_number, std::string context) {
  return {{error_number, std::system_category()}, std::move(context)};
}

}  // namespace ddprun
