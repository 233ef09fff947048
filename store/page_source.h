// SPDX-License-Identifier: BSD-3-Clause
//
// What a server shows on its pages beside its own state.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "store/http.h"

namespace ddprun::store {

// Who reads a page.
enum class Reader : std::uint8_t {
  Stranger,  // whoever can connect
  Trusted,   // a process here of the same user, or a reader that has shown the token of the secret
};

// A text that takes long to make, in pieces of a few milliseconds: between two of them the server
// serves others.  It may outlive its source, but is not asked for more then.
class PageText {
 public:
  virtual ~PageText() = default;
  // Appends the next piece.  Whether there are more.
  virtual bool add(std::string& out) = 0;
};

// Threads: called from the server's only thread.  None of these waits.
class PageSource {
 public:
  virtual ~PageSource() = default;

  // Changes when something has happened that those who follow the status are to see at once.
  virtual std::uint64_t version() const { return 0; }
  // Further fields of /status: JSON without the outer braces, in lines that need no end.
  virtual std::unique_ptr<PageText> status(Reader reader) const = 0;
  // Further lines of /metrics, in Prometheus's text form.
  virtual std::string metrics() const = 0;
  // A long page of its own, in JSON; nullptr: there is none at this target, but perhaps a page().
  virtual std::unique_ptr<PageText> long_page(const std::string& /*target*/) const {
    return nullptr;
  }
  // A page of its own, if there is one.
  virtual std::optional<Page> page(const std::string& target) const = 0;
  // Whether this target is for trusted readers only; then answer() has what they get.  A PUT may
  // ask for work: for a page of another site a browser sends none without asking, which is refused.
  virtual bool is_private(const std::string& /*target*/) const { return false; }
  virtual Page answer(const std::string& /*target*/, bool /*is_put*/) const { return {}; }
};

}  // namespace ddprun::store
