// SPDX-License-Identifier: BSD-3-Clause
//
// What a server shows on its pages beside its own state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "store/http.h"

namespace ddprun::store {

// Who reads a page.
enum class Reader : std::uint8_t {
  Stranger,  // whoever can connect
  Trusted,   // a process here of the same user, or a reader that has shown the token of the secret
};

// Threads: called from the server's only thread.  None of these waits.
class PageSource {
 public:
  virtual ~PageSource() = default;

  // Further fields of /status: JSON without the outer braces.
  virtual std::string status(Reader reader) const = 0;
  // Further lines of /metrics, in Prometheus's text form.
  virtual std::string metrics() const = 0;
  // A page of its own, if there is one.
  virtual std::optional<Page> page(const std::string& target) const = 0;
};

}  // namespace ddprun::store
