// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/quorum.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace ddprun::rendezvous::coordinator {
namespace {

// Whether a node of the body that knows `knows` last may count for it: it was told of no round that
// follows the body elsewhere.
bool counts_for(const Quorum& quorum, const Body& body, const RoundId& knows) {
  if (knows == body.id || knows.by == quorum.self) return true;
  return body.is_own && (knows.by.empty() || knows.number < body.id.number);
}

int gone_of(const Quorum& quorum, const Body& body) {
  auto is_gone = [&](const std::string& name) {
    auto gone = quorum.gone.find(name);
    return gone != quorum.gone.end() && counts_for(quorum, body, gone->second.knows);
  };
  return static_cast<int>(std::ranges::count_if(body.names, is_gone));
}

// When each node of the body that is here last showed contact.
std::vector<MonoTime> contacts(const Quorum& quorum, const Body& body,
                               std::span<const Present> present) {
  std::map<std::string_view, MonoTime> found;  // one may be here twice for a moment
  for (const Present& node : present) {
    if (!counts_for(quorum, body, node.knows)) continue;
    if (!body.names.contains(node.name)) continue;
    MonoTime contact = std::max(node.contact, body.formed_at);
    auto [entry, is_new] = found.try_emplace(node.name, contact);
    if (!is_new) entry->second = std::max(entry->second, contact);
  }
  std::vector<MonoTime> times;
  times.reserve(found.size());
  for (const auto& [name, contact] : found) times.push_back(contact);
  return times;
}

bool has_enough(const Quorum& quorum, const Body& body, std::span<const Present> present) {
  auto here = static_cast<int>(contacts(quorum, body, present).size());
  return here >= enough(body.nodes, gone_of(quorum, body), body.is_own);
}

// The rounds of other coordinators that nodes which are here, or are gone, have known last.
std::vector<Body> foreign_rounds(const Quorum& quorum, std::span<const Present> present) {
  std::map<RoundId, Body> rounds;
  auto note = [&](std::string_view name, const RoundId& knows, int nodes) {
    if (knows.by.empty() || knows.by == quorum.self) return;
    Body& round = rounds[knows];
    round.id = knows;
    round.nodes = std::max(round.nodes, nodes);
    round.names.emplace(name);
  };
  for (const Present& node : present) note(node.name, node.knows, node.nodes);
  for (const auto& [name, gone] : quorum.gone) note(name, gone.knows, gone.nodes);
  std::vector<Body> found;
  for (auto& [id, round] : rounds) found.push_back(std::move(round));
  std::ranges::reverse(found);  // the newest first
  return found;
}

// Enough nodes have heard of a later round: no others can go on from this one.
bool is_settled(const Quorum& quorum, const Body& body) {
  int later = 0;
  int gone = 0;
  for (const std::string& name : body.names) {
    auto heard = quorum.heard_of.find(name);
    if (heard != quorum.heard_of.end() && heard->second > body.id.number) {
      ++later;
    } else if (auto left = quorum.gone.find(name); left != quorum.gone.end()) {
      if (left->second.knows == body.id) ++gone;
    }
  }
  return later >= enough(body.nodes, gone, body.is_own);
}

}  // namespace

int enough(int nodes, int gone, bool is_own) {
  if (gone >= nodes) return 0;
  return is_own ? (nodes - gone + 1) / 2 : (nodes - gone) / 2 + 1;
}

std::optional<std::vector<Body>> basis(const Quorum& quorum, std::span<const Present> present) {
  if (quorum.self.empty()) return std::vector<Body>{};
  bool has_own =
      !quorum.bodies.empty() && std::ranges::all_of(quorum.bodies, [&](const Body& body) {
        return has_enough(quorum, body, present);
      });
  if (has_own) return quorum.bodies;
  std::vector<Body> foreign = foreign_rounds(quorum, present);
  for (Body& round : foreign) {
    if (has_enough(quorum, round, present)) return std::vector<Body>{std::move(round)};
  }
  if (quorum.bodies.empty() && foreign.empty()) return std::vector<Body>{};
  return std::nullopt;
}

std::optional<Lack> lacking(const Quorum& quorum, std::span<const Present> present) {
  std::vector<Body> bodies = quorum.bodies;
  if (bodies.empty()) bodies = foreign_rounds(quorum, present);
  for (const Body& body : bodies) {
    if (has_enough(quorum, body, present)) continue;
    return Lack{.round = body.id,
                .nodes = body.nodes,
                .here = static_cast<int>(contacts(quorum, body, present).size()),
                .gone = gone_of(quorum, body)};
  }
  return std::nullopt;
}

void formed(Quorum& quorum, std::vector<Body> basis, Body round) {
  if (round.id.by.empty()) {
    quorum.bodies.clear();
    return;
  }
  quorum.bodies = std::move(basis);
  quorum.bodies.push_back(std::move(round));
  std::erase_if(quorum.gone, [&](const auto& gone) {
    return std::ranges::none_of(quorum.bodies,
                                [&](const Body& body) { return body.names.contains(gone.first); });
  });
}

void heard_of(Quorum& quorum, const std::string& name, std::uint64_t round) {
  if (quorum.bodies.size() < 2) return;
  auto [entry, is_new] = quorum.heard_of.try_emplace(name, round);
  if (!is_new && entry->second >= round) return;
  entry->second = round;
  const Body& first = quorum.bodies.front();
  int least = enough(first.nodes, static_cast<int>(quorum.gone.size()), first.is_own);
  if (static_cast<int>(quorum.heard_of.size()) < least) return;
  while (quorum.bodies.size() > 1 && is_settled(quorum, quorum.bodies.front())) {
    quorum.bodies.erase(quorum.bodies.begin());
  }
  if (quorum.bodies.size() < 2) quorum.heard_of.clear();
}

std::optional<MonoTime> heard_in_round_at(const Quorum& quorum, std::span<const Present> present) {
  auto at = heard_at(quorum, present);
  if (!at || quorum.bodies.empty()) return at;
  std::vector<Present> members;
  std::ranges::copy_if(present, std::back_inserter(members), &Present::is_member);
  auto in_round = heard_at(
      {.self = quorum.self, .bodies = {quorum.bodies.back()}, .gone = quorum.gone}, members);
  if (!in_round) return std::nullopt;
  return std::min(*at, *in_round);
}

std::optional<MonoTime> heard_at(const Quorum& quorum, std::span<const Present> present) {
  MonoTime at = MonoTime::max();
  for (const Body& body : quorum.bodies) {
    auto wanted = static_cast<std::size_t>(enough(body.nodes, gone_of(quorum, body), body.is_own));
    if (wanted == 0) continue;
    std::vector<MonoTime> times = contacts(quorum, body, present);
    if (times.size() < wanted) return std::nullopt;
    auto last = times.begin() + static_cast<std::ptrdiff_t>(wanted) - 1;
    std::ranges::nth_element(times, last, std::greater{});
    at = std::min(at, *last);
  }
  return at;
}

}  // namespace ddprun::rendezvous::coordinator
