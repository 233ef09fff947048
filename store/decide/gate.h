// SPDX-License-Identifier: BSD-3-Clause
//
// Who may connect to a store that is meant for the processes of one job: those of some users on
// this machine, and all of some other machines.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "store/decide/allow_list.h"

namespace ddprun::store {

struct Gate {
  // Other machines.  Unlike ServerConfig::allow, an empty list admits none.
  AllowList machines{};
  bool any_machine = false;

  // Addresses of this machine beside loopback.  A connection from one of them comes from a process
  // here, also if `machines` has that address.
  AllowList own{};

  // Processes here must belong to this user or to root, or to one that `admits_user`.
  std::uint32_t user = 0;
  bool any_user = false;
  std::function<bool(std::uint32_t user)> admits_user{};

  // The end of the line about a refused connection: what to do.
  std::string advice_for_machines{};
  std::string advice_for_users{};
};

// What the system says of the process at the other end of a connection within this machine.
struct PeerProcess {
  enum class Is : std::uint8_t {
    Known,    // `user` has it
    Gone,     // it has closed the connection, or ended
    Absent,   // it is in another network namespace
    Unasked,  // the system has no answer to such questions
  };
  Is is = Is::Unasked;
  std::uint32_t user = 0;
};

// A refused connection.
struct Refusal {
  std::string peer{};  // "10.0.0.9", "a process of user 1001 on this machine": each is logged once
  std::string why{};   // empty: nothing to log
};

// Whether `host`, a numeric address, means this machine; `reached` is its address at which the
// connection arrived.
bool is_this_machine(const Gate& gate, const std::string& host, const std::string& reached);

// Of a machine that no list has; `advice` ends the line.
Refusal not_allowed(const std::string& host, const std::string& advice = "");

// Of another machine.
std::optional<Refusal> why_refused(const Gate& gate, const std::string& host);

// Of a process of this machine.
std::optional<Refusal> why_refused(const Gate& gate, const PeerProcess& process);

}  // namespace ddprun::store
