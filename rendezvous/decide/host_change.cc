// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/host_change.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "rendezvous/decide/node_id.h"
#include "rendezvous/decide/seating.h"
#include "store/base/endpoint.h"

namespace ddprun::rendezvous::coordinator {
namespace {

// In leases: after that, the others of a round have come, or will not come soon.
constexpr int kPatientLeases = 2;

// What a node said when it came of the endpoints that it does not reach holds for so long.
constexpr Duration kStuckFor = std::chrono::seconds(5);

// Killed, or told to stop while no host was there to hear of it.
const std::string kHasDied = "was lost (its agent has ended)";

std::string_view without_incarnation(std::string_view id) {
  return id.substr(0, id.rfind('.'));
}

std::vector<Present> present_nodes(const State& state) {
  std::vector<Present> present;
  present.reserve(state.nodes.size());
  for (const auto& [id, node] : state.nodes) {
    present.push_back({.name = without_incarnation(id),
                       .knows = node.knows,
                       .nodes = node.join.previous_nodes,
                       .contact = node.join.is_host ? MonoTime::max() : node.contact,
                       .is_member = node.is_member,
                       .after = node.join.after});
  }
  return present;
}

// Without so much contact a coordinator is alone; nodes that were with it have their leases beyond
// that.
Duration alone_after(const State& state) {
  return state.policy.silence_limit() / 2;
}
Duration beyond_alone(const State& state) {
  return std::max(state.policy.silence_limit(), state.contacts.silence) * 3 / 5;
}
// The leases of other coordinators' nodes: who comes first here may go by another one.
Duration lease_elsewhere(const State& state) {
  return std::max(state.policy.lease(), state.contacts.lease);
}

// When the workers are dead that another coordinator may have had since this contact with it.
MonoTime fence_after(const State& state, MonoTime contact) {
  if (contact == MonoTime::min()) return contact;
  return contact + lease_elsewhere(state) + beyond_alone(state);
}

// Another coordinator may have begun a round since then, of which the nodes that come know nothing:
// not after the node whose agent hosted it was gone.
void note_contact(State& state, const std::string& round_by, const std::string& seen_of,
                  MonoTime at) {
  if (round_by.empty() || seen_of == state.quorum.self || !may_change_host(state)) return;
  auto host = state.quorum.gone.find(hosting_node(seen_of));
  if (host != state.quorum.gone.end()) at = std::min(at, host->second.at);
  state.contacts.elsewhere = std::max(state.contacts.elsewhere, at);
  if (seen_of != round_by) state.contacts.between = std::max(state.contacts.between, at);
}

// Of a node that is gone: who goes on without counting it need not wait for that (basis_now()).
void note_last_contact(State& state, Gone& gone, const std::string& seen_of, MonoTime at) {
  bool counts_alone = seen_of == gone.knows.by && seen_of != state.quorum.self;
  if (!counts_alone || may_move(state) || !may_change_host(state))
    return note_contact(state, gone.knows.by, seen_of, at);
  auto host = state.quorum.gone.find(hosting_node(seen_of));
  gone.contact = host != state.quorum.gone.end() ? std::min(at, host->second.at) : at;
}

bool is_of_adopted(const State& state, const Gone& gone) {
  return state.moving.adopted && gone.knows == *state.moving.adopted;
}

// With another coordinator, as nodes that are here or are gone have said.
MonoTime last_contact(const State& state) {
  MonoTime last = state.contacts.elsewhere;
  for (const auto& [name, gone] : state.quorum.gone) last = std::max(last, gone.contact);
  return last;
}

// What nodes that are gone may have known for nobody here to miss it: no later round than the nodes
// that are here, nor one of the same number that these know nothing of.
class KnownToAll {
 public:
  explicit KnownToAll(const State& state) {
    for (const auto& [id, node] : state.nodes) note(node.knows);
    if (!state.quorum.bodies.empty()) note(state.quorum.bodies.back().id);
  }
  bool contains(const RoundId& knows) const {
    return knows.number < last_.number || (knows == last_ && is_only_one_);
  }

 private:
  void note(const RoundId& round) {
    if (round.by.empty() || round.number < last_.number) return;
    bool is_later = last_.by.empty() || round.number > last_.number;
    is_only_one_ = is_later || (is_only_one_ && round == last_);
    if (is_later) last_ = round;
  }

  RoundId last_;
  bool is_only_one_ = false;
};

bool was_elsewhere(const State& state, const RoundId& knows, const std::string& seen_of) {
  return !seen_of.empty() && seen_of != knows.by && seen_of != state.quorum.self;
}

// In some incarnation.
bool is_here(const State& state, const std::string& name) {
  const std::string beginning = name + '.';
  auto node = state.nodes.lower_bound(beginning);
  return node != state.nodes.end() && node->first.starts_with(beginning);
}

// That nodes which are here have heard of.
std::set<RoundId> rounds_heard_of(const State& state) {
  std::set<RoundId> rounds;
  for (const auto& [id, node] : state.nodes) {
    if (!node.knows.by.empty()) rounds.insert(node.knows);
    for (const Unsettled& before : node.join.after) rounds.insert(before.id);
  }
  return rounds;
}

bool is_recent(const State& state, std::optional<MonoTime> heard, MonoTime now) {
  return heard && (*heard == MonoTime::max() || now < *heard + alone_after(state));
}

// Where a run begins that no node keeps from being begun elsewhere.
bool is_at_first_endpoint(const State& state) {
  return !may_move(state) || state.moving.endpoint == 0;
}

// That nodes which are here know; empty: none does.
RoundId last_known(const std::vector<Present>& present) {
  RoundId last;
  for (const Present& node : present) last = std::max(last, node.knows);
  return last;
}

// Whether a node was to be in a round: the round may have been on its way to it when it lost the
// connection.
bool was_in(const State& state, const RoundId& round, std::string_view name) {
  return std::ranges::any_of(state.quorum.bodies, [&](const Body& body) {
    return body.id == round && body.names.contains(name);
  });
}

// The nodes of the last round that is known here are as many as the user wants for going on without
// the others.
bool has_chosen_quorum(const State& state, const std::vector<Present>& present, MonoTime now) {
  if (state.policy.quorum == 0) return false;
  RoundId last = last_known(present);
  std::set<std::string_view> names;  // one may be here twice for a moment
  for (const Present& node : present) {
    bool had_last = node.knows == last || was_in(state, last, node.name);
    bool counts = !last.by.empty() && had_last && is_recent(state, node.contact, now);
    if (counts) names.insert(node.name);
  }
  return static_cast<int>(names.size()) >= state.policy.quorum;
}

// The rounds of which enough nodes are here, and have been heard lately.
std::optional<std::vector<Body>> majority_basis(const State& state, const Quorum& quorum,
                                                const std::vector<Present>& present, MonoTime now) {
  auto bodies = basis(quorum, present);
  if (!bodies || bodies->empty()) return bodies;
  if (bodies->size() > kMaxUnsettled) return std::nullopt;  // until some of them are settled
  auto heard = heard_at(
      {.self = quorum.self, .bodies = *bodies, .heard_of = {}, .gone = quorum.gone}, present);
  if (!is_recent(state, heard, now)) return std::nullopt;
  // Who was at another endpoint then might have kept the workers alive that are taken for dead.
  bool is_after_leases = heard >= std::max(fence(state), state.contacts.judged_at);
  if (may_move(state) && !is_after_leases) return std::nullopt;
  return bodies;
}

// The same, as if of nodes that are gone nothing had been heard yet: of those that knew no more of
// the rounds than the nodes that are here.  Enough nodes without them need not wait until the
// workers of their coordinators are dead.
std::optional<std::vector<Body>> basis_without_gone(const State& state,
                                                    const std::vector<Present>& present,
                                                    MonoTime now) {
  const KnownToAll known(state);
  auto is_fenced = [&](const auto& gone) { return now < fence_after(state, gone.second.contact); };
  Quorum quorum = state.quorum;
  std::erase_if(quorum.gone, [&](const auto& gone) {
    return known.contains(gone.second.knows) && is_fenced(gone);
  });
  bool is_due =
      now >= fence_after(state, std::max(state.contacts.elsewhere, state.contacts.between));
  if (!is_due || std::ranges::any_of(quorum.gone, is_fenced)) return std::nullopt;
  return majority_basis(state, quorum, present, now);
}

// The nodes here, whenever they were heard, without those that are gone and were with another
// coordinator after `contact`.
bool are_enough_without_gone(const State& state, MonoTime contact) {
  const KnownToAll known(state);
  Quorum quorum = state.quorum;
  auto is_later = [&](const auto& gone) { return gone.second.contact > contact; };
  std::erase_if(quorum.gone, [&](const auto& gone) {
    return is_later(gone) && known.contains(gone.second.knows);
  });
  if (std::ranges::any_of(quorum.gone, is_later)) return false;
  auto bodies = basis(quorum, present_nodes(state));
  return bodies && !bodies->empty();
}

// When enough nodes of the round that goes on here were last heard; nothing if too few are here.
std::optional<MonoTime> adopted_heard_at(const State& state) {
  std::vector<Present> members = present_nodes(state);
  std::erase_if(members, [](const Present& node) { return !node.is_member; });
  Quorum line = sure(line_of(state.quorum, *state.moving.adopted, members));
  if (line.bodies.empty()) return std::nullopt;
  return heard_at(line, members);
}

std::optional<MonoTime> round_heard_at(const State& state) {
  if (state.moving.adopted) return adopted_heard_at(state);
  return heard_in_round_at(state.quorum, present_nodes(state));
}

// Nobody here has said a word of any, and no run file was found.
bool knows_no_round(const State& state) {
  return state.quorum.bodies.empty() && state.quorum.gone.empty() && !state.quorum.seen &&
         !state.had_round;
}

}  // namespace

RoundId known_round(const request::Join& join) {
  if (join.next_round == 0 || join.round_by.empty()) return {};
  return {.number = join.next_round - 1, .by = join.round_by};
}

MonoTime published_at(std::int64_t pulse, MonoTime now) {
  MonoTime at{Duration(pulse)};
  return pulse > 0 && at <= now ? at : MonoTime::min();
}

void note_contact_elsewhere(State& state, const request::Join& join, MonoTime now) {
  note_seen(state.quorum, known_round(join), join.previous_nodes);
  if (!join.round_by.empty()) {
    state.contacts.lease = std::max(state.contacts.lease, join.policy.lease());
    state.contacts.silence = std::max(state.contacts.silence, join.policy.silence_limit());
  }
  if (join.seen_age) note_contact(state, join.round_by, join.seen_of, now - *join.seen_age);
}

bool note_round(State& state, const std::string& id, Node& node, std::uint64_t round) {
  bool is_ours = node.round && node.round->number == round && !node.round->by.empty();
  if (!is_ours || node.knows == node.round->id()) return false;
  node.knows = node.round->id();
  return heard_of(state.quorum, name_of(id), round);
}

// To leave out what is heard is as if it had been lost on the way.
bool is_of_another_start(const State& state, const std::string& id, const request::Left& left) {
  if (!state.has_formed || may_move(state) || left.knows.by.empty()) return false;
  const std::set<RoundId> known = rounds_heard_of(state);
  auto is_heard_of = [&](const RoundId& round) {
    return round.by == state.quorum.self || known.contains(round);
  };
  auto has_it = [&](const Body& body) {
    return body.id == left.knows || body.names.contains(name_of(id));
  };
  return !is_heard_of(left.knows) &&
         std::ranges::none_of(left.after, is_heard_of, &Unsettled::id) &&
         std::ranges::none_of(state.quorum.bodies, has_it);
}

void note_gone(State& state, const std::string& id, const request::Left& left, MonoTime now) {
  if (!has_room_for_gone(state.quorum, name_of(id))) return;
  auto node = state.nodes.find(id);
  if (!left.knows.by.empty()) {
    Gone gone{.knows = left.knows,
              .nodes = left.nodes,
              .after = left.after,
              .at = now,
              .was_elsewhere = was_elsewhere(state, left.knows, left.seen_of),
              .why = left.why,
              .loss = loss_of(left)};
    if (node == state.nodes.end() || may_move(state))
      note_last_contact(state, gone, left.seen_of, now - left.seen_age.value_or(Duration{}));
    Gone& known = state.quorum.gone[name_of(id)];
    gone.contact = std::max(gone.contact, known.contact);
    known = std::move(gone);
  } else if (node != state.nodes.end()) {
    state.quorum.gone[name_of(id)] = {.knows = node->second.knows,
                                      .nodes = node->second.join.previous_nodes,
                                      .after = node->second.join.after,
                                      .at = now,
                                      .why = left.why,
                                      .loss = loss_of(left)};
  }
}

void note_died(State& state) {
  std::vector<std::pair<const Died*, MonoTime>> found;
  for (const auto& [id, node] : state.nodes) {
    for (const Died& died : node.join.died) {
      bool is_news = !is_here(state, died.name) && !state.quorum.gone.contains(died.name);
      if (is_news) found.emplace_back(&died, node.came_at);
    }
  }
  if (found.empty()) return;
  // The machine may also have had an agent of a run that had this id long ago.
  const std::set<RoundId> heard_of = rounds_heard_of(state);
  std::erase_if(found, [&](const auto& each) {
    const Died& died = *each.first;
    auto had_it = [&](const Body& body) { return body.names.contains(died.name); };
    return !heard_of.contains(died.knows) && std::ranges::none_of(state.quorum.bodies, had_it);
  });
  const std::size_t room = kMostGone - std::min(kMostGone, state.quorum.gone.size());
  found.resize(std::min(found.size(), room));
  for (const auto& [died, at] : found) {
    state.quorum.gone[died->name] = {
        .knows = died->knows,
        .nodes = died->nodes,
        .after = died->after,
        .at = at,
        .was_elsewhere = was_elsewhere(state, died->knows, died->seen_of),
        .why = died->left.empty() ? kHasDied : died->left,
        .loss = LossKind::Lost};
  }
  // When it is known which of the hosts that they saw have died.
  for (const auto& [died, at] : found)
    note_last_contact(state, state.quorum.gone[died->name], died->seen_of, at);
}

std::optional<std::vector<Body>> basis_now(const State& state, MonoTime now) {
  if (!may_change_host(state)) return std::vector<Body>{};
  if (is_in_doubt(state, now)) return std::nullopt;
  if (knows_no_round(state) && is_at_first_endpoint(state)) return std::vector<Body>{};
  std::vector<Present> present = present_nodes(state);
  bool is_fenced = now < fence(state);
  auto bodies = is_fenced ? basis_without_gone(state, present, now)
                          : majority_basis(state, state.quorum, present, now);
  // As if no round had been before: what others do does not count any more.
  if (!bodies && !is_fenced && has_chosen_quorum(state, present, now)) return std::vector<Body>{};
  // A node that is gone may never have had a round, and of a round all nodes may be gone.
  bool begins = bodies && needs_nobody(state.quorum, *bodies);
  if (begins && !is_at_first_endpoint(state)) return std::nullopt;
  return bodies;
}

bool waits_for_first_endpoint(const State& state) {
  if (is_at_first_endpoint(state)) return false;
  auto bodies = basis(state.quorum, present_nodes(state));
  return bodies && needs_nobody(state.quorum, *bodies);
}

bool has_missed(const request::Join& join, const Endpoint& place) {
  const std::vector<Endpoint>& endpoints = join.settings.endpoints;
  auto known = std::ranges::find(endpoints, place);
  return known != endpoints.end() && (join.unreached & (1U << (known - endpoints.begin()))) != 0;
}

int stuck_from(const State& state, const Endpoint& place, MonoTime now) {
  if (state.phase != Phase::Gathering) return 0;
  return static_cast<int>(std::ranges::count_if(state.nodes, [&](const auto& node) {
    return now < node.second.came_at + kStuckFor && has_missed(node.second.join, place);
  }));
}

bool is_beyond_reach(const State& state, const Endpoint& place, MonoTime now) {
  return !state.nodes.empty() &&
         stuck_from(state, place, now) == static_cast<int>(state.nodes.size());
}

bool is_wanted_at(const State& state, const Endpoint& place, int stuck, MonoTime now) {
  const int here = static_cast<int>(state.nodes.size());
  const int needed = state.settings.min_nodes;
  bool is_lacking = state.phase == Phase::Gathering && here < needed && here + stuck >= needed;
  bool is_for_long = now >= state.gathering_since + kPatientLeases * lease_elsewhere(state);
  const std::vector<Endpoint>& endpoints = state.settings.endpoints;
  if (std::ranges::find(endpoints, place) == endpoints.end()) return false;
  return is_lacking && is_for_long && may_give_way(state, now) && goes_on_from_a_round(state) &&
         !is_in_doubt(state, now) && stuck_from(state, place, now) == 0;
}

MonoTime first_round_fence(const State& state) {
  if (!may_change_host(state) || state.is_guarded || !knows_no_round(state)) return MonoTime::min();
  bool is_one_machine = std::ranges::all_of(
      state.nodes, [](const auto& node) { return is_loopback_host(node.second.join.address); });
  return is_one_machine ? MonoTime::min() : fence_after(state, state.gathering_since);
}

std::optional<Lack> lacking_now(const State& state) {
  if (!may_change_host(state)) return std::nullopt;
  return lacking(state.quorum, present_nodes(state));
}

std::optional<RoundId> lacking_for_long(const State& state, MonoTime now) {
  Duration patience = kPatientLeases * lease_elsewhere(state) * (1 << state.quorum.sent_on);
  bool is_for_long = state.phase == Phase::Gathering && now >= state.gathering_since + patience;
  bool has_enough = static_cast<int>(state.nodes.size()) >= state.settings.min_nodes;
  if (!is_for_long || !has_enough || !may_form(state)) return std::nullopt;
  if (!lacking_now(state) || may_go_on(state, now)) return std::nullopt;
  RoundId last = last_known(present_nodes(state));
  return last.by.empty() ? std::nullopt : std::optional(last);
}

MonoTime fence(const State& state) {
  MonoTime elsewhere = fence_after(state, std::max(last_contact(state), state.contacts.between));
  return std::max(elsewhere, state.contacts.doubted_until);
}

void forget_contacts(State& state, MonoTime until) {
  auto forget = [until](MonoTime& contact) {
    if (contact <= until) contact = MonoTime::min();
  };
  forget(state.contacts.elsewhere);
  for (auto& [name, gone] : state.quorum.gone) forget(gone.contact);
}

// The workers of the host itself die a lease after it was heard last.  Other nodes may have been
// with it for longer.
void set_former_end(State& state) {
  if (!state.former.awaited || !may_change_host(state)) return;
  Former& former = *state.former.awaited;
  bool is_known = former.round && !former.by.empty();
  MonoTime contact = state.contacts.elsewhere;
  if (former.counts_gone || contact == MonoTime::min()) contact = last_contact(state);
  if (!is_known || contact == MonoTime::min()) return;
  former.counted = contact;
  bool lacks_host = !former.accounted[former.id()].contains(hosting_node(former.by));
  former.until = contact + std::max(former.lease, lease_elsewhere(state));
  bool may_others_live = missing(former) > 1 || !lacks_host || may_move(state);
  if (may_others_live) former.until += beyond_alone(state);
  if (former.filed_until) former.until = std::max(former.until, *former.filed_until);
}

bool put_off_former_end(State& state, MonoTime now) {
  Former& former = *state.former.awaited;
  bool counts_all = former.counts_gone || last_contact(state) <= former.counted;
  if (counts_all || are_enough_without_gone(state, former.counted)) return false;
  former.counts_gone = true;
  set_former_end(state);
  return now < former.until;
}

void name_stand_ins(const State& state, command::Round& round, const std::vector<Seat>& seats) {
  if (!may_change_host(state)) return;
  if (may_move(state)) {
    round.by = state.quorum.self;
    return;
  }
  for (const Seat& seat : seats) {
    const request::Join& join = seat.node->join;
    if (join.stand_in_port == 0) continue;
    round.by = state.quorum.self;
    if (join.is_host || round.stand_ins.size() >= kMaxStandIns) continue;
    round.stand_ins.push_back(
        {.name = name_of(*seat.id), .at = {.host = join.address, .port = join.stand_in_port}});
  }
}

std::vector<StandIn> stand_ins_of(const State& state) {
  for (const auto& [id, node] : state.nodes) {
    if (node.is_member && node.round) return node.round->stand_ins;
  }
  return {};
}

bool can_leave_to_others(const State& state) {
  int left = 0;
  bool has_stand_in = false;
  for (const auto& [id, node] : state.nodes) {
    if (node.join.is_host || node.leaves_by) continue;
    ++left;
    has_stand_in = has_stand_in || (node.round && !node.round->stand_ins.empty());
  }
  return may_change_host(state) && has_stand_in && left >= state.settings.min_nodes;
}

void name_unsettled(command::Round& round, const std::vector<Body>& from, const std::string& id) {
  if (!round.by.empty()) round.after = unsettled(from, name_of(id));
}

// Of nodes that had a round and go on from none: basis_now() has found as many as the user wants.
std::string chosen_quorum_text(const State& state) {
  bool is_chosen = state.policy.quorum > 0 && may_change_host(state);
  if (!is_chosen || last_known(present_nodes(state)).by.empty()) return "";
  return "the run goes on here without the other nodes of its last round, as quorum=" +
         std::to_string(state.policy.quorum) +
         " in --rdzv-conf allows; if they were only cut off, they may go on, too, as a second run "
         "that saves to the same files";
}

std::string host_text(const State& state, const std::vector<Body>& from) {
  if (from.empty()) return chosen_quorum_text(state);
  if (from.back().is_own) return "";
  const std::string now = hosting_node(state.quorum.self);
  const std::string before = hosting_node(from.back().id.by);
  if (now == before) return host_of(now) + " hosts the run again";
  if (may_move(state))
    return host_of(now) == host_of(before)
               ? "the run goes on at " + host_of(now) + ", which has been started again"
               : "the run is at " + host_of(now) + " now; it was at " + host_of(before);
  std::string text = host_of(now) + " hosts the run now; " + host_of(before) + ", which did, ";
  auto gone = state.quorum.gone.find(before);
  if (is_here(state, before)) return text + "was cut off, and has come back as a node";
  if (gone == state.quorum.gone.end())
    return text + "was lost (nothing was heard of it until its lease was over)";
  return text + (gone->second.why.empty() ? "has left" : gone->second.why);
}

void note_formed(State& state, std::vector<Body> from, const RoundId& id, MonoTime now) {
  if (!may_change_host(state)) return;
  Body body{.id = id, .nodes = 0, .names = {}, .is_own = true, .formed_at = now};
  for (const auto& [node_id, node] : state.nodes) {
    if (node.is_member) body.names.insert(name_of(node_id));
  }
  body.nodes = static_cast<int>(body.names.size());
  formed(state.quorum, std::move(from), std::move(body));
  // Of coordinators that nodes which are gone were with no worker lives by now: this round's
  // workers may count on these nodes, as the round did.
  bool is_fenced = now < fence(state);
  for (auto& [name, gone] : state.quorum.gone) gone.was_elsewhere = gone.was_elsewhere && is_fenced;
  state.contacts.unanswered.clear();
  state.moving.adopted.reset();
  look_at_contacts(state, now);
}

void look_at_contacts(State& state, MonoTime now) {
  bool has_workers = state.phase == Phase::Running || state.up_count > 0;
  bool goes_on = has_workers && (!state.quorum.bodies.empty() || state.moving.adopted);
  // To look in between does not put off the next one.
  MonoTime next = goes_on ? now + state.policy.silence_limit() / 20 : MonoTime::max();
  state.contacts.next_look = goes_on ? std::min(state.contacts.next_look, next) : next;
  state.contacts.heard_at = round_heard_at(state).value_or(MonoTime::min());
}

// Fresh nodes at the endpoint have not heard of this host for so long.
bool may_be_begun_anew(const State& state, Duration stood_still) {
  return state.is_away_from_endpoint && !state.is_guarded && stood_still >= state.policy.lease() &&
         goes_on_from_a_round(state);
}

void note_standstill(State& state, Duration stood_still, MonoTime now) {
  state.contacts.woke_at = now;
  if (!may_be_begun_anew(state, stood_still)) return;
  state.contacts.stood_still = stood_still;
  state.contacts.doubted_until = fence_after(state, now);
}

bool is_in_doubt(const State& state, MonoTime now) {
  return now < state.contacts.doubted_until || may_be_begun_anew(state, now - state.last_turn);
}

// Of the nodes of its round.
bool hears_too_few(const State& state, MonoTime now) {
  // Also after the end, while workers may save.
  bool has_round = state.phase != Phase::Gathering;
  MonoTime heard_at = state.contacts.heard_at;
  bool may_be = has_round && (!state.quorum.bodies.empty() || state.moving.adopted);
  if (!may_be || heard_at == MonoTime::max()) return false;
  return heard_at == MonoTime::min() || now >= heard_at + alone_after(state);
}

bool is_alone(const State& state, MonoTime now) {
  bool is_doubted = state.phase != Phase::Gathering && is_in_doubt(state, now);
  return is_doubted || hears_too_few(state, now);
}

bool must_stop_alone(const State& state, MonoTime now) {
  if (state.phase != Phase::Running || !hears_too_few(state, now)) return false;
  // A blink of the network may be over in a moment, and the other endpoints are asked first whether
  // the round goes on there.  Meanwhile its pulse renews no lease.
  MonoTime heard_at = state.contacts.heard_at;
  bool is_known = heard_at != MonoTime::min();
  if (is_known && now < heard_at + alone_after(state) * 3 / 2) return false;
  // The others of a round that is to go on here are on their way.
  if (state.moving.adopted && now < state.moving.adopted_at + alone_after(state)) return false;
  MonoTime woke_at = state.contacts.woke_at;
  return woke_at == MonoTime::min() || now >= woke_at + alone_after(state);
}

bool is_adopted_broken(const State& state) {
  if (!state.moving.adopted || !is_taken_over(state)) return false;
  auto is_of_it = [&](const auto& gone) { return is_of_adopted(state, gone.second); };
  return is_broken(state) || std::ranges::any_of(state.quorum.gone, is_of_it);
}

command::Stop stop_of_broken(const State& state) {
  command::Stop stop{.cause = RoundEndCause::NodeLost};
  for (const auto& [name, gone] : state.quorum.gone) {
    if (!is_of_adopted(state, gone) || gone.why.empty()) continue;
    stop.loss = gone.loss;
    stop.why = host_of(name) + " " + gone.why;
    return stop;
  }
  stop.loss = state.former.broken_loss;
  stop.why = state.former.broken_why;
  if (stop.why.empty()) stop.why = "a node of the round has left it, or was cut off";
  return stop;
}

bool may_give_way(const State& state, MonoTime now) {
  if (state.phase == Phase::Ended) return false;
  return state.phase == Phase::Gathering || (may_move(state) && is_alone(state, now));
}

bool is_anyone_heard(const State& state, MonoTime now) {
  return std::ranges::any_of(state.nodes, [&](const auto& node) {
    return !node.second.away_at && now - node.second.seen < alone_after(state);
  });
}

std::uint64_t last_formed(const State& state) {
  const std::vector<Body>& bodies = state.quorum.bodies;
  bool is_last = !bodies.empty() && bodies.back().is_own && !waits_for_first_endpoint(state);
  return is_last ? bodies.back().id.number + 1 : 0;
}

bool holds_run(const State& state, MonoTime now) {
  const std::vector<Body>& bodies = state.quorum.bodies;
  if (state.moving.adopted) {
    return state.phase != Phase::Ended && is_recent(state, adopted_heard_at(state), now);
  }
  if (state.phase == Phase::Ended || bodies.empty() || !bodies.back().is_own) return false;
  return is_recent(state, heard_at(state.quorum, present_nodes(state)), now);
}

}  // namespace ddprun::rendezvous::coordinator
