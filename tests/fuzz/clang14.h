// SPDX-License-Identifier: BSD-3-Clause
//
// Debian 12's clang has libFuzzer but not std::source_location; scripts/fuzz includes this first.
#pragma once

#include <version>
#if !defined(__cpp_lib_source_location)
namespace std {
struct source_location {
  static constexpr source_location current() { return {}; }
  constexpr const char* file_name() const { return "?"; }
  constexpr const char* function_name() const { return "?"; }
  constexpr unsigned line() const { return 0; }
};
}  // namespace std
#endif
