// SPDX-License-Identifier: BSD-3-Clause
//
// What is written down of a run where no endpoint names a fixed host: who hosts it, and whose
// workers may be alive.  rendezvous/host_registry.h has the places where that is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/decide/run_file.h"
#include "store/base/endpoint.h"
#include "store/base/error.h"

namespace ddprun::rendezvous {

struct HostEntry {
  std::uint64_t generation = 0;  // counts the hosts of the run; 0: there has been none
  std::string node{};            // whose agent hosts: member::Config::name
  Endpoint at{};
  bool is_over = false;  // it hosts no more, and has said so
  // The registry has not heard of it for so long that it may be gone.  Not written down.
  bool is_silent = false;
  // As it is written down: whether this host has said what `file` is.  If not, what the hosts
  // before it have said still holds.
  bool says_file = false;
  // The last round whose workers may be alive.  Nothing: none lives.
  std::optional<RunFile> file{};
};

std::string encode(const HostEntry& entry);

// Fails with Errc::Protocol and what is wrong with `text`.
Result<HostEntry> decode_host_entry(std::string_view text);

}  // namespace ddprun::rendezvous
