// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/gate.h"

#include "store/base/endpoint.h"

namespace ddprun::store {
namespace {

constexpr std::uint32_t kRoot = 0;

}  // namespace

bool is_this_machine(const Gate& gate, const std::string& host, const std::string& reached) {
  return host == reached || is_loopback_host(host) || gate.own.lists(host);
}

Refusal not_allowed(const std::string& host, const std::string& advice) {
  if (host.empty()) return {};  // it has gone already
  return {.peer = host, .why = "its address is not allowed" + advice};
}

std::optional<Refusal> why_refused(const Gate& gate, const std::string& host) {
  if (gate.any_machine || gate.machines.lists(host)) return std::nullopt;
  return not_allowed(host, gate.advice_for_machines);
}

std::optional<Refusal> why_refused(const Gate& gate, const PeerProcess& process) {
  if (gate.any_user) return std::nullopt;
  switch (process.is) {
    case PeerProcess::Is::Unasked:
      return std::nullopt;
    case PeerProcess::Is::Gone:
      return Refusal{};
    case PeerProcess::Is::Absent:
      return Refusal{
          .peer = "a process of this machine",
          .why = "it cannot be seen from here, so its user is not known" + gate.advice_for_users};
    case PeerProcess::Is::Known:
      break;
  }
  bool is_admitted = process.user == gate.user || process.user == kRoot ||
                     (gate.admits_user && gate.admits_user(process.user));
  if (is_admitted) return std::nullopt;
  return Refusal{
      .peer = "a process of user " + std::to_string(process.user) + " on this machine",
      .why = "the store is for user " + std::to_string(gate.user) + gate.advice_for_users};
}

}  // namespace ddprun::store
