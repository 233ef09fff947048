// SPDX-License-Identifier: BSD-3-Clause
//
// Operational failures: what could not be done, and why.  An expected outcome (a key that is not
// there yet, a worker that exited 1) is data and never an Error; a bug is a check().
//
// The standard library alone is included here, since programs of users include it through the
// runtime's headers.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#include "store/base/check.h"

namespace ddprun {

// Failures of our own, for which neither the system nor Asio has a code.
enum class Errc {
  InvalidInput = 1,  // what a user or a peer gave is not acceptable
  NotSupported,      // understood, and not built yet
  TimedOut,          // a deadline of ours passed
  Protocol,          // a peer sent bytes that the protocol does not allow
  LimitExceeded,     // larger than a configured limit
  Closed,            // the other side, or this object, is closed
  Refused,           // no program listens at the address
};

const std::error_category& ddprun_category();
std::error_code make_error_code(Errc code);

struct Error {
  std::error_code code;  // the system's or Asio's own where there is one, else Errc
  std::string context;   // what was being attempted: "bind 0.0.0.0:29500"
};

// "bind 0.0.0.0:29500: Address already in use".  For our own codes the context is the whole
// sentence, since it says more than the code's name.
std::string to_string(const Error& error);

// Makes the Error of `code` for the system call that has just failed with `error_number`.
Error system_error(int error_number, std::string context);

// A T, or the Error that came instead.  It is made from either implicitly: "return 5;",
// "return system_error(errno, ...);".  `*result` and `result->` of a failure are bugs, and abort;
// value() throws std::system_error with the same sentence, for tests and main.
template <class T>
class Result {
 public:
  Result() requires std::default_initializable<T>
  = default;

  template <class Value = T>
  requires(std::is_convertible_v<Value, T> && !std::is_constructible_v<Error, Value>)
      Result(Value&& value)
      : state_(std::in_place_index<0>, std::forward<Value>(value)) {}

  template <class Failure = Error>
  requires(std::is_convertible_v<Failure, Error> && !std::is_constructible_v<T, Failure>)
      Result(Failure&& failure)
      : state_(std::in_place_index<1>, std::forward<Failure>(failure)) {}

  bool has_value() const { return state_.index() == 0; }
  bool has_error() const { return !has_value(); }
  explicit operator bool() const { return has_value(); }

  T* operator->() { return std::addressof(present()); }
  const T* operator->() const { return std::addressof(present()); }
  T& operator*() & { return present(); }
  const T& operator*() const& { return present(); }
  T operator*() && { return std::move(present()); }
  const T& operator*() const&& = delete;

  T& value() & { return checked(), present(); }
  const T& value() const& { return checked(), present(); }
  T value() && { return checked(), std::move(present()); }
  const T& value() const&& = delete;

  // An empty one when there is a value.
  Error error() const { return has_value() ? Error{} : std::get<1>(state_); }

  friend bool operator==(const Result&, const Result&) = default;

 private:
  T& present() { return const_cast<T&>(std::as_const(*this).present()); }
  const T& present() const {
    check(has_value(), "a failed Result was asked for its value");
    return *std::get_if<0>(&state_);
  }
  void checked() const {
    if (has_error()) throw std::system_error(error().code, error().context);
  }

  std::variant<T, Error> state_;
};

// That it was done, or the Error.  A default one says that it was done.
template <>
class Result<void> {
 public:
  Result() = default;

  template <class Failure = Error>
  requires std::is_convertible_v<Failure, Error> Result(Failure&& failure)
      : failure_(std::in_place, std::forward<Failure>(failure)) {}

  bool has_value() const { return !failure_; }
  bool has_error() const { return failure_.has_value(); }
  explicit operator bool() const { return has_value(); }

  void value() const {
    if (failure_) throw std::system_error(failure_->code, failure_->context);
  }
  // An empty one when it was done.
  Error error() const { return failure_.value_or(Error{}); }

 private:
  std::optional<Error> failure_;
};

}  // namespace ddprun

template <>
struct std::is_error_code_enum<ddprun::Errc> : std::true_type {};
