// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/room.h"

#include <string>
#include <vector>

namespace ddprun::rendezvous {
namespace {

std::size_t bytes_of(const std::vector<Unsettled>& rounds) {
  std::size_t bytes = 0;
  for (const Unsettled& each : rounds) bytes += sizeof each + each.id.by.size();
  return bytes;
}

std::size_t bytes_of(const Died& died) {
  return sizeof died + died.name.size() + died.knows.by.size() + bytes_of(died.after) +
         died.seen_of.size() + died.left.size();
}

// In a tree.
constexpr std::size_t kNodeBytes = 64;

std::size_t bytes_of(const RoundId& round) {
  return kNodeBytes + sizeof round + round.by.size();
}

std::size_t bytes_of(const std::string& name) {
  return kNodeBytes + sizeof name + name.size();
}

std::size_t bytes_of(const std::string& name, const coordinator::Gone& gone) {
  return bytes_of(name) + sizeof gone + gone.knows.by.size() + bytes_of(gone.after) +
         gone.why.size();
}

}  // namespace

std::size_t bytes_of(const request::Join& join) {
  std::size_t bytes = sizeof(coordinator::Node) + bytes_of(join.after);
  for (const std::string* text :
       {&join.host, &join.address, &join.participant.role, &join.run_uuid, &join.looks_for,
        &join.preflight_failure, &join.round_by, &join.seen_of})
    bytes += text->size();
  for (const Endpoint& each : join.settings.endpoints) bytes += sizeof each + each.host.size();
  for (const std::string& each : join.addresses) bytes += sizeof each + each.size();
  for (const Died& each : join.died) bytes += bytes_of(each);
  return bytes;
}

std::size_t bytes_of(const request::Left& left) {
  return 4 * kNodeBytes + sizeof(coordinator::Gone) + 4 * left.knows.by.size() +
         bytes_of(left.after) + left.why.size();
}

std::size_t said_bytes(const coordinator::Former& former) {
  std::size_t bytes = 0;
  for (const auto& [round, names] : former.accounted) {
    bytes += bytes_of(round);
    for (const std::string& name : names) bytes += bytes_of(name);
  }
  for (const RoundId& round : former.broken) bytes += bytes_of(round);
  return bytes;
}

std::size_t said_bytes(const coordinator::Quorum& quorum) {
  std::size_t bytes = 0;
  for (const auto& [name, gone] : quorum.gone) bytes += bytes_of(name, gone);
  return bytes;
}

std::size_t said_bytes(const coordinator::State& run) {
  std::size_t bytes = said_bytes(run.quorum);
  if (run.former.awaited) bytes += said_bytes(*run.former.awaited);
  for (const auto& [id, node] : run.nodes) bytes += bytes_of(node.join);
  for (const auto& [id, contender] : run.contenders) bytes += bytes_of(contender.join);
  for (const auto& comer : run.next_run) bytes += bytes_of(comer.join);
  return bytes;
}

}  // namespace ddprun::rendezvous
