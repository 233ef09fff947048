// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/quorum.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace ddprun::rendezvous::coordinator {
namespace {

// It is a round of this coordinator, which knows its last one.  It may have forgotten them all
// while the run was elsewhere: then its own are like those of others.
bool is_own_round(const Quorum& quorum, const RoundId& knows) {
  return knows.by == quorum.self && !quorum.bodies.empty() && quorum.bodies.back().is_own;
}

// Whether a node of the body that knows `knows` last may count for it: it was told of no later
// round, unless that one is gone on from as well.
bool counts_for(const Quorum& quorum, const Body& body, const RoundId& knows,
                std::span<const Unsettled> after) {
  if (knows == body.id || is_own_round(quorum, knows)) return true;
  if (body.is_own && (knows.by.empty() || knows.number < body.id.number)) return true;
  bool is_in_line = std::ranges::find(quorum.bodies, knows, &Body::id) != quorum.bodies.end();
  return is_in_line && std::ranges::any_of(after, [&](const Unsettled& before) {
           return before.was_in && before.id == body.id;
         });
}

int gone_of(const Quorum& quorum, const Body& body) {
  auto is_gone = [&](const std::string& name) {
    auto gone = quorum.gone.find(name);
    return gone != quorum.gone.end() &&
           counts_for(quorum, body, gone->second.knows, gone->second.after);
  };
  return static_cast<int>(std::ranges::count_if(body.names, is_gone));
}

// When each node of the body that is here last showed contact.
std::vector<MonoTime> contacts(const Quorum& quorum, const Body& body,
                               std::span<const Present> present) {
  std::map<std::string_view, MonoTime> found;  // one may be here twice for a moment
  for (const Present& node : present) {
    if (!counts_for(quorum, body, node.knows, node.after)) continue;
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

bool has_enough_of_all(const Quorum& quorum, std::span<const Present> present) {
  return std::ranges::all_of(quorum.bodies,
                             [&](const Body& body) { return has_enough(quorum, body, present); });
}

// Whatever rounds they knew last, no node of this one lives.
bool is_each_gone(const Quorum& quorum, const RoundId& round) {
  auto body = std::ranges::find(quorum.bodies, round, &Body::id);
  return body != quorum.bodies.end() && static_cast<int>(body->names.size()) == body->nodes &&
         std::ranges::all_of(body->names,
                             [&](const std::string& name) { return quorum.gone.contains(name); });
}

// Nodes that know of no round would go on from it alone: no other group has to have one in common
// with them.
bool is_all_gone(const Quorum& quorum, const Quorum& line) {
  return std::ranges::all_of(line.bodies, [&](const Body& body) {
    return enough(body.nodes, gone_of(line, body), body.is_own) == 0 ||
           is_each_gone(quorum, body.id);
  });
}

// Of all rounds that are known here each node is gone.
bool is_nobody_left(const Quorum& quorum, const std::vector<Quorum>& lines) {
  auto is_over = [&](const RoundId& round) {
    return std::ranges::any_of(lines, [&](const Quorum& line) {
      return line.bodies.back().id == round && is_all_gone(quorum, line);
    });
  };
  auto is_over_here = [&](const RoundId& round) {
    return is_over(round) || is_each_gone(quorum, round);
  };
  return !lines.empty() &&
         std::ranges::all_of(lines,
                             [&](const Quorum& line) { return is_all_gone(quorum, line); }) &&
         (!quorum.seen || is_over(quorum.seen->round)) &&
         std::ranges::all_of(quorum.bodies, is_over_here, &Body::id);
}

// The rounds of other coordinators that nodes which are here, or are gone, have known last.
class ForeignRounds {
 public:
  ForeignRounds(const Quorum& quorum, std::span<const Present> present) : quorum_(quorum) {
    for (const Present& node : present) note(node.name, node.knows, node.nodes, node.after);
    for (const auto& [name, gone] : quorum.gone) note(name, gone.knows, gone.nodes, gone.after);
  }

  // Each with those that it needs before it; the newest first.
  std::vector<Quorum> lines() const {
    std::vector<Quorum> found;
    for (const auto& [id, known] : rounds_) {
      Quorum line{.self = quorum_.self, .bodies = {}, .heard_of = {}, .gone = quorum_.gone};
      for (const auto& [before, nodes] : *known.before)
        line.bodies.push_back(body_of(before, nodes));
      line.bodies.push_back(body_of(id, known.nodes));
      found.push_back(std::move(line));
    }
    std::ranges::reverse(found);
    return found;
  }

 private:
  struct Known {
    int nodes = 0;
    std::optional<std::map<RoundId, int>> before;  // not settled, as far as any of its nodes knows
  };

  void note(std::string_view name, const RoundId& knows, int nodes,
            std::span<const Unsettled> after) {
    if (knows.by.empty() || is_own_round(quorum_, knows)) return;
    Known& round = rounds_[knows];
    round.nodes = std::max(round.nodes, nodes);
    names_[knows].emplace(name);
    std::map<RoundId, int> before;
    for (const Unsettled& each : after) {
      before.emplace(each.id, each.nodes);
      if (each.was_in) names_[each.id].emplace(name);
    }
    if (!round.before) {
      round.before = std::move(before);
    } else {
      std::erase_if(*round.before, [&](const auto& each) { return !before.contains(each.first); });
    }
  }

  Body body_of(const RoundId& id, int nodes) const {
    auto own = std::ranges::find(quorum_.bodies, id, &Body::id);
    if (own != quorum_.bodies.end() && own->is_own) return *own;
    Body body{.id = id, .nodes = nodes, .names = {}};
    if (auto names = names_.find(id); names != names_.end()) body.names = names->second;
    return body;
  }

  const Quorum& quorum_;
  std::map<RoundId, Known> rounds_;
  std::map<RoundId, std::set<std::string, std::less<>>> names_;  // that were in each
};

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

bool was_elsewhere(const std::pair<const std::string, Gone>& gone) {
  return gone.second.was_elsewhere;
}

// Of the present round by its own nodes, and of those before it.
std::optional<MonoTime> all_heard_at(const Quorum& quorum, std::span<const Present> present) {
  auto at = heard_at(quorum, present);
  if (!at || quorum.bodies.empty()) return at;
  std::vector<Present> members;
  std::ranges::copy_if(present, std::back_inserter(members), &Present::is_member);
  auto in_round = heard_at(
      {.self = quorum.self, .bodies = {quorum.bodies.back()}, .gone = quorum.gone}, members);
  if (!in_round) return std::nullopt;
  return std::min(*at, *in_round);
}

}  // namespace

bool has_room_for_gone(const Quorum& quorum, const std::string& name) {
  return quorum.gone.size() < kMostGone || quorum.gone.contains(name);
}

int enough(int nodes, int gone, bool is_own) {
  if (gone >= nodes) return 0;
  return is_own ? (nodes - gone + 1) / 2 : (nodes - gone) / 2 + 1;
}

std::optional<std::vector<Body>> basis(const Quorum& quorum, std::span<const Present> present) {
  if (quorum.self.empty()) return std::vector<Body>{};
  bool has_own = !quorum.bodies.empty() && quorum.bodies.back().is_own;
  if (has_own && has_enough_of_all(quorum, present)) return quorum.bodies;
  std::vector<Quorum> lines = ForeignRounds(quorum, present).lines();
  for (Quorum& line : lines) {
    bool may_go_on = has_enough_of_all(line, present) && !is_all_gone(quorum, line);
    if (may_go_on) return std::move(line.bodies);
  }
  if (quorum.bodies.empty() && lines.empty() && !quorum.seen) return std::vector<Body>{};
  if (!is_nobody_left(quorum, lines)) return std::nullopt;
  return std::move(lines.front().bodies);
}

bool needs_nobody(const Quorum& quorum, std::span<const Body> basis) {
  return is_all_gone(quorum, {.self = quorum.self,
                              .bodies = {basis.begin(), basis.end()},
                              .heard_of = {},
                              .gone = quorum.gone});
}

Quorum line_of(const Quorum& quorum, const RoundId& round, std::span<const Present> present) {
  if (!quorum.bodies.empty() && quorum.bodies.back().id == round) return quorum;
  for (Quorum& line : ForeignRounds(quorum, present).lines()) {
    if (line.bodies.back().id == round) return std::move(line);
  }
  return {.self = quorum.self, .bodies = {}, .heard_of = {}, .gone = quorum.gone};
}

bool may_suffice(const Quorum& quorum, const RoundId& round, int nodes) {
  if (quorum.bodies.empty() || !quorum.bodies.back().is_own) return false;
  const RoundId& last = quorum.bodies.back().id;
  if (last != round && last.number <= round.number) return false;
  return std::ranges::all_of(quorum.bodies, [&](const Body& body) {
    return nodes >= enough(body.nodes, gone_of(quorum, body), body.is_own);
  });
}

void note_seen(Quorum& quorum, const RoundId& knows, int nodes) {
  if (quorum.self.empty() || knows.by.empty() || is_own_round(quorum, knows)) return;
  if (!quorum.seen || quorum.seen->round < knows)
    quorum.seen = Lack{.round = knows, .nodes = nodes};
}

std::optional<Lack> lacking(const Quorum& quorum, std::span<const Present> present) {
  Quorum line = quorum;
  if (line.bodies.empty()) {
    std::vector<Quorum> lines = ForeignRounds(quorum, present).lines();
    if (!lines.empty()) line = std::move(lines.front());
  }
  for (const Body& body : line.bodies) {
    if (has_enough(line, body, present)) continue;
    return Lack{.round = body.id,
                .nodes = body.nodes,
                .here = static_cast<int>(contacts(line, body, present).size()),
                .gone = gone_of(line, body)};
  }
  return line.bodies.empty() ? quorum.seen : std::nullopt;
}

std::vector<Unsettled> unsettled(std::span<const Body> basis, std::string_view name) {
  std::vector<Unsettled> rounds;
  rounds.reserve(basis.size());
  for (const Body& body : basis) {
    rounds.push_back({.id = body.id, .nodes = body.nodes, .was_in = body.names.contains(name)});
  }
  return rounds;
}

void formed(Quorum& quorum, std::vector<Body> basis, Body round) {
  if (round.id.by.empty()) {
    quorum.bodies.clear();
    return;
  }
  quorum.bodies = std::move(basis);
  quorum.bodies.push_back(std::move(round));
  quorum.sent_on = 0;
  std::erase_if(quorum.gone, [&](const auto& gone) {
    return std::ranges::none_of(quorum.bodies,
                                [&](const Body& body) { return body.names.contains(gone.first); });
  });
}

bool heard_of(Quorum& quorum, const std::string& name, std::uint64_t round) {
  if (quorum.bodies.size() < 2) return false;
  auto [entry, is_new] = quorum.heard_of.try_emplace(name, round);
  if (!is_new && entry->second >= round) return false;
  entry->second = round;
  const Body& first = quorum.bodies.front();
  int least = enough(first.nodes, static_cast<int>(quorum.gone.size()), first.is_own);
  if (static_cast<int>(quorum.heard_of.size()) < least) return false;
  while (quorum.bodies.size() > 1 && is_settled(quorum, quorum.bodies.front())) {
    quorum.bodies.erase(quorum.bodies.begin());
  }
  if (quorum.bodies.size() > 1) return false;
  quorum.heard_of.clear();
  return true;
}

Quorum sure(Quorum quorum) {
  std::erase_if(quorum.gone, was_elsewhere);
  return quorum;
}

std::optional<MonoTime> heard_in_round_at(const Quorum& quorum, std::span<const Present> present) {
  bool is_sure = std::ranges::none_of(quorum.gone, was_elsewhere);
  return is_sure ? all_heard_at(quorum, present) : all_heard_at(sure(quorum), present);
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
