// SPDX-License-Identifier: BSD-3-Clause
//
// Operational failures: what could not be done, and why.  An expected outcome (a key that is not
// there yet, a worker that exited 1) is data and never an Error; a bug is a check().
#pragma once

#include <boost/system/error_code.hpp>
#include <boost/system/result.hpp>
#include <string>

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

const boost::system::error_category& ddprun_category();
boost::system::error_code make_error_code(Errc code);

struct Error {
  boost::system::error_code code;  // the system's or Asio's own where there is one, else Errc
  std::string context;             // what was being attempted: "bind 0.0.0.0:29500"
};

// "bind 0.0.0.0:29500: Address already in use".  For our own codes the context is the whole
// sentence, since it says more than the code's name.
std::string to_string(const Error& error);

template <class T>
using Result = boost::system::result<T, Error>;

// Makes the Error of `code` for the system call that has just failed with `error_number`.
Error system_error(int error_number, std::string context);

// Result<T>::value() on a failure ends here.  Only tests and main may ask for a value unchecked.
[[noreturn]] void throw_exception_from_error(const Error& error,
                                             const boost::source_location& where);

}  // namespace ddprun

template <>
struct boost::system::is_error_code_enum<ddprun::Errc> : std::true_type {};
