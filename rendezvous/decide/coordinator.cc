// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/coordinator.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "rendezvous/decide/waiting_text.h"
#include "store/base/count.h"
#include "store/base/text.h"
#include "store/base/variant.h"

namespace ddprun::rendezvous::coordinator {
namespace {

// People are told what is waited for after so long, and again when it changes or so much later.
constexpr Duration kPatience = std::chrono::seconds(2);
constexpr Duration kRepeat = std::chrono::seconds(30);

// The words of so many failures are kept in full; an End must fit into a message.
constexpr std::size_t kMaxFailures = 32;
constexpr std::size_t kMaxOldMessage = 200;

// Of a Former with nodes of several starts: none of them has it.
constexpr std::uint64_t kManyRounds = std::numeric_limits<std::uint64_t>::max();

std::string describe(const request::Join& join) {
  return join.host + " (pid " + std::to_string(join.pid) + ")";
}

// A round begins only when every worker of the round before is provably dead, and when all that are
// counted on can hear of it.
bool are_all_down(const State& state) {
  if (state.former || state.up_count > 0) return false;
  return std::ranges::none_of(
      state.nodes, [](const auto& node) { return node.second.away_at || node.second.leaves_by; });
}

std::string name_of(const std::string& id) {
  return id.substr(0, id.rfind('.'));
}

std::vector<Present> present_nodes(const State& state) {
  std::vector<Present> present;
  present.reserve(state.nodes.size());
  for (const auto& [id, node] : state.nodes) {
    present.push_back({.name = std::string_view(id).substr(0, id.rfind('.')),
                       .knows = node.knows,
                       .nodes = node.join.previous_nodes,
                       .contact = node.join.is_host ? MonoTime::max() : node.contact,
                       .is_member = node.is_member});
  }
  return present;
}

// Without so much contact a coordinator is alone; nodes that were with it have their leases beyond
// that.
Duration alone_after(const State& state) {
  return state.policy.silence_limit() / 2;
}
Duration beyond_alone(const Policy& policy) {
  return policy.silence_limit() * 3 / 5;
}

// Before it workers of a coordinator may live that some of the nodes here were with.
MonoTime fence(const State& state) {
  if (state.elsewhere == MonoTime::min()) return state.elsewhere;
  return state.elsewhere + state.policy.lease() + beyond_alone(state.policy);
}

// The rounds that a next one may go on from, where enough of their nodes have been heard lately.
std::optional<std::vector<Body>> basis_now(const State& state, MonoTime now) {
  if (state.quorum.self.empty()) return std::vector<Body>{};
  bool is_first = state.quorum.bodies.empty() && state.quorum.gone.empty() && !state.had_round;
  if (is_first) return std::vector<Body>{};
  if (now < fence(state)) return std::nullopt;
  std::vector<Present> present = present_nodes(state);
  auto bodies = basis(state.quorum, present);
  if (!bodies || bodies->empty()) return bodies;
  auto heard =
      heard_at({.self = state.quorum.self, .bodies = *bodies, .gone = state.quorum.gone}, present);
  if (!heard || now >= (*heard == MonoTime::max() ? now : *heard) + alone_after(state)) {
    return std::nullopt;
  }
  return bodies;
}

bool may_form(const State& state, MonoTime now) {
  return are_all_down(state) && basis_now(state, now);
}

// One step: the state being changed and the actions being collected.
class CoordinatorTransition {
 public:
  CoordinatorTransition(State state, Now now) : state_(std::move(state)), now_(now.mono) {
    forgive_own_silence();
  }

  Step result() && {
    if (is_over(state_) && !state_.next_run.empty()) begin_anew();
    return {std::move(state_), std::move(actions_)};
  }

  void operator()(const event::Arrived& event) {
    speaker_ = event.connection;
    auto node = state_.nodes.find(event.node);
    if (const auto* join = std::get_if<request::Join>(&event.request)) {
      if (node == state_.nodes.end()) joined(event.node, *join, event.connection);
      return;
    }
    if (const auto* foreign = std::get_if<request::Foreign>(&event.request)) {
      return send_outside(event.node, event.connection,
                          command::Refuse{"it speaks version " + std::to_string(foreign->version) +
                                          " of the rendezvous protocol, and the run version " +
                                          std::to_string(kProtocolVersion)});
    }
    if (node == state_.nodes.end()) return outsider_spoke(event);
    bool is_old = event.connection < node->second.connection;
    if (event.connection > node->second.connection) moved(node->first, node->second);
    if (const auto* lost = std::get_if<request::Lost>(&event.request)) {
      // It may be back on another connection already.
      if (!is_old) heard(node->first, node->second, *lost);
      return;
    }
    // Its workers may run by now, and the answer would pass for one to a later question.
    if (is_old && std::holds_alternative<request::Resume>(event.request)) return;
    node->second.seen = now_;
    std::visit([&](const auto& request) { heard(node->first, node->second, request); },
               event.request);
  }

  void operator()(const event::Tick&) {
    if (now_ >= state_.next_look) look_for_the_silent();
    if (now_ >= state_.next_quorum_look) look_at_quorum();
    if (state_.phase == Phase::Gathering && !state_.nodes.empty()) {
      form_if_due();
      bool has_waited = now_ >= state_.gathering_since + state_.policy.join_timeout;
      bool has_too_few = has_waited && (count() < state_.settings.min_nodes ||
                                        (are_all_down(state_) && !basis_now(state_, now_)));
      if (state_.phase == Phase::Gathering && has_too_few) {
        announce_shortage();
        return end({.exit_code = command::kExitRendezvous, .why = too_few_text(state_)});
      }
    }
    if (state_.former && now_ >= state_.former->until) give_up_former();
    if (state_.newcomers_due && now_ >= *state_.newcomers_due) take_in_newcomers();
    report_waiting();
  }

  void operator()(const event::HostLeaves& event) {
    for (auto& comer : std::exchange(state_.next_run, {})) {
      send_outside(comer.id, comer.connection, command::Refuse{event.why});
    }
    if (state_.phase == Phase::Ended) return;
    end({.exit_code = command::kExitRendezvous, .why = event.why, .signal = event.signal});
  }

  void operator()(const event::GivesWay& event) {
    if (state_.phase != Phase::Gathering) return;
    command::Moved moved{.to = event.to, .why = event.why};
    for (auto& [id, node] : std::exchange(state_.nodes, {})) {
      send_outside(id, node.connection, moved);
    }
    for (auto& [id, contender] : std::exchange(state_.contenders, {})) {
      send_outside(id, contender.connection, moved);
    }
    state_.next_run.clear();
    state_.former.reset();
  }

 private:
  // To a node of the run.
  void send(const std::string& id, Command command) {
    auto node = state_.nodes.find(id);
    std::uint64_t connection = node != state_.nodes.end() ? node->second.connection : speaker_;
    actions_.push_back(action::Send{id, std::move(command), connection});
  }
  void send_outside(const std::string& id, std::uint64_t connection, Command command) {
    actions_.push_back(action::Send{id, std::move(command), connection});
  }

  // It speaks on another connection: what was sent on the one before may not have arrived.
  void moved(const std::string& id, Node& node) {
    actions_.push_back(action::Forget{id, node.connection});
    node.connection = speaker_;
    node.away_at.reset();
  }

  // Should this process have been stopped for a while, nobody else was silent meanwhile.
  void forgive_own_silence() {
    Duration slept = now_ - state_.last_turn;
    if (!state_.nodes.empty() && slept > 2 * state_.policy.keep_alive_interval) {
      for (auto& [id, node] : state_.nodes) node.seen += slept;
      state_.woke_at = now_;
    }
    state_.last_turn = now_;
  }

  // Joining (a node comes, or comes back).

  void joined(const std::string& id, const request::Join& join, std::uint64_t connection) {
    std::uint64_t speaker = std::exchange(speaker_, connection);  // it may have waited
    consider(id, join, connection);
    speaker_ = speaker;
  }
  void consider(const std::string& id, const request::Join& join, std::uint64_t connection) {
    forget_waiting(id);
    if (state_.phase == Phase::Ended) {
      // Who was in a round of this run has only been away.
      if (join.next_round > 0) return send_outside(id, connection, state_.verdict);
      if (state_.next_run.size() < kMaxStandbys) state_.next_run.push_back({id, join, connection});
      return;
    }
    if (is_outdated(id) || state_.taken_out.contains(id)) return;
    std::optional<MonoTime> last_call = state_.last_call;
    forget_earlier_incarnations(id);
    if (!state_.last_call) state_.last_call = last_call;  // it takes the place of itself
    if (state_.phase == Phase::Ended)
      return send_outside(id, connection, state_.verdict);  // by that
    if (is_unfounded()) found(id, join);
    note_contact(join);
    if (join.is_back) expect_others(id, join);
    if (!join.preflight_failure.empty() && state_.had_round) {
      return send(id, command::Refuse{preflight_text(join)});
    }
    if (join.settings != state_.settings) return refuse_difference(id, join);
    if (join.node_rank) {
      if (*join.node_rank >= state_.settings.max_nodes) {
        return send(id, command::Refuse{
                            "--node-rank=" + std::to_string(*join.node_rank) + ": with at most " +
                            std::to_string(state_.settings.max_nodes) + " nodes it is 0.." +
                            std::to_string(state_.settings.max_nodes - 1)});
      }
      if (auto holder = state_.holders.find(*join.node_rank); holder != state_.holders.end()) {
        if (state_.contenders.size() < kMaxStandbys)
          state_.contenders[id] = {.rival = holder->second, .join = join, .connection = connection};
        return;
      }
    }
    admit(id, join, connection);
  }

  // The nodes of the same agent, by the end of their names: "host-uuid.INCARNATION".
  std::vector<std::string> incarnations_of(const std::string& id) const {
    std::vector<std::string> found;
    std::size_t dot = id.rfind('.');
    if (dot == std::string::npos) return found;
    std::string name = id.substr(0, dot + 1);
    for (auto node = state_.nodes.lower_bound(name);
         node != state_.nodes.end() && node->first.starts_with(name); ++node) {
      if (node->first != id) found.push_back(node->first);
    }
    return found;
  }
  static bool comes_before(const std::string& one, const std::string& other) {
    return std::pair(one.size(), one) < std::pair(other.size(), other);
  }
  // A message that was under way for long: the node has come back as another meanwhile.
  bool is_outdated(const std::string& id) const {
    return std::ranges::any_of(incarnations_of(id),
                               [&](const std::string& other) { return comes_before(id, other); });
  }
  // What waits is a join of this agent; the present one takes its place.
  void forget_waiting(const std::string& id) {
    auto is_same = [&](const std::string& other) {
      return other.substr(0, other.rfind('.')) == id.substr(0, id.rfind('.'));
    };
    std::erase_if(state_.next_run, [&](const NextComer& comer) { return is_same(comer.id); });
    std::erase_if(state_.contenders, [&](const auto& entry) { return is_same(entry.first); });
  }
  // A node joins when its workers are dead, those of its earlier incarnations included.
  void forget_earlier_incarnations(const std::string& id) {
    for (const std::string& earlier : incarnations_of(id)) {
      lose(earlier, state_.nodes.at(earlier).join.host + " was cut off");
    }
  }

  bool is_unfounded() const {
    return state_.founder.empty() || (state_.nodes.empty() && !state_.former);
  }
  void found(const std::string& id, const request::Join& join) {
    state_.founder = id;
    state_.run_uuid = join.run_uuid.empty() ? id : join.run_uuid;
    state_.settings = join.settings;
    state_.policy = join.policy;
    state_.gathering_since = now_;
    state_.next_look = now_ + state_.policy.keep_alive_interval;
  }

  void refuse_difference(const std::string& id, const request::Join& join) {
    std::string difference = difference_text(join.settings, state_.settings);
    const auto founder = state_.nodes.find(state_.founder);
    const request::Join& first =
        founder != state_.nodes.end() ? founder->second.join : state_.nodes.begin()->second.join;
    send(id, command::Refuse{"it has " + difference + " as the other nodes of the run, begun by " +
                             describe(first) + ", have it"});
    if (founder != state_.nodes.end()) {
      send(state_.founder,
           command::Info{"refused " + describe(join) + ": it has " + difference + " here"});
    }
  }

  void admit(const std::string& id, const request::Join& join, std::uint64_t connection) {
    std::size_t most = static_cast<std::size_t>(state_.settings.max_nodes) + kMaxStandbys;
    if (state_.nodes.size() >= most) {
      return send(id, command::Refuse{"there are " + std::to_string(state_.nodes.size()) +
                                      " nodes already, standbys included"});
    }
    if (join.next_round > 0) was_in_a_round(join);
    if (join.node_rank) state_.holders[*join.node_rank] = id;
    state_.nodes[id] = {.join = join,
                        .arrival = state_.arrivals++,
                        .connection = connection,
                        .seen = now_,
                        .last_rank = join.previous_rank,
                        .knows = known_round(join),
                        .contact = published_at(join.pulse)};
    if (join.policy != state_.policy) {
      send(id, command::KeepAlive{.keep_alive_interval = state_.policy.keep_alive_interval,
                                  .keep_alive_max_attempt = state_.policy.keep_alive_max_attempt,
                                  .lease_grace = state_.policy.lease_grace,
                                  .text = "the run goes by the settings of its first node: " +
                                          policy_text(state_.policy)});
    }
    switch (state_.phase) {
      case Phase::Gathering:
        return form_if_due();
      case Phase::Running:
        if (is_taken_over() && state_.is_former_broken) {
          // A node of the round which had to stop: the round cannot go on.
          return stop({.cause = StopCause::NodeLost, .why = join.host + " was cut off"});
        }
        if (has_room() && !somebody_is_done() && !is_flapping(join.host)) {
          state_.newcomers_due = std::max(now_, state_.round_began + kSettleTime);
          if (*state_.newcomers_due <= now_) take_in_newcomers();
          return;
        }
        return stand_by(id, state_.nodes[id]);
      case Phase::Stopping:
        if (state_.nodes.size() > static_cast<std::size_t>(state_.settings.max_nodes))
          stand_by(id, state_.nodes[id]);
        return form_if_due();  // it may be the last of a round that this coordinator took over
      case Phase::Ended:
        return;
    }
  }

  // Of a node that comes with what it knows of rounds before, maybe under a host that is gone.
  void was_in_a_round(const request::Join& join) {
    state_.restart_count = std::max(state_.restart_count, join.restart_count);
    state_.next_round = std::max(state_.next_round, join.next_round);
    if (!std::exchange(state_.had_round, true)) state_.run_uuid = join.run_uuid;
  }

  static RoundId known_round(const request::Join& join) {
    if (join.next_round == 0 || join.round_by.empty()) return {};
    return {.number = join.next_round - 1, .by = join.round_by};
  }
  // A pulse is the time at which it was published, by this clock.
  MonoTime published_at(std::int64_t pulse) const {
    MonoTime at{Duration(pulse)};
    return pulse > 0 && at <= now_ ? at : MonoTime::min();
  }
  // Another coordinator may have begun a round since then, of which the nodes that come know
  // nothing.
  void note_contact(const request::Join& join) {
    bool was_elsewhere =
        !join.round_by.empty() && join.seen_age && join.seen_of != state_.quorum.self;
    if (!was_elsewhere || state_.quorum.self.empty()) return;
    state_.elsewhere = std::max(state_.elsewhere, now_ - *join.seen_age);
  }
  // The workers of the host itself die a lease after it was heard last.  Other nodes may have been
  // with it for longer.
  void set_former_end() {
    if (!state_.former || state_.former->by.empty()) return;
    Former& former = *state_.former;
    if (!former.round || state_.elsewhere == MonoTime::min()) return;
    bool lacks_host = !former.accounted[*former.round].contains(host_of(former.by));
    former.until = state_.elsewhere + former.lease;
    if (missing(former) > 1 || !lacks_host) former.until += beyond_alone(state_.policy);
  }
  // The name of a coordinator begins with that of the node whose agent hosts it.
  static std::string host_of(const std::string& by) { return by.substr(0, by.find('@')); }

  // It was here before this coordinator: so may others have been, and their workers may run.  After
  // this coordinator's first round that holds for the nodes of another start.
  void expect_others(const std::string& id, const request::Join& join, bool goes_on = false) {
    if (state_.settled_starts.contains(join.run_uuid)) return;
    if (state_.has_formed && (join.run_uuid.empty() || join.run_uuid == state_.run_uuid)) return;
    MonoTime until = now_ + std::max(state_.policy.lease(), join.policy.lease());
    if (!state_.former) state_.former = Former{.run_uuid = join.run_uuid, .until = until};
    Former& former = *state_.former;
    if (former.run_uuid.empty() && !former.round) former.run_uuid = join.run_uuid;
    if (former.run_uuid != join.run_uuid && !join.run_uuid.empty()) {
      former.run_uuid.clear();
      former.round = kManyRounds;
      former.names.clear();
      former.until = until;
    }
    // Where hosts may change, the quorum tells whether others have gone on.
    bool counts = join.was_in_round || !(join.round_by.empty() || state_.quorum.self.empty());
    if (!counts || join.next_round == 0) return account_for_named(id);
    std::uint64_t round = join.next_round - 1;
    if (!former.round || round > *former.round) {
      former.round = round;
      former.nodes = join.previous_nodes;
      former.names.clear();
      former.until = until;
      former.by = state_.quorum.self.empty() ? "" : join.round_by;
      state_.is_former_broken = false;
    }
    former.lease = std::max({former.lease, state_.policy.lease(), join.policy.lease()});
    set_former_end();
    if (round < *former.round) return account_for_named(id);
    account_for(id, round, goes_on);
  }
  void account_for_named(const std::string& id) {
    if (state_.former && state_.former->names.contains(name_of(id)))
      account_for(id, *state_.former->round);
  }
  void account_for(const std::string& id, std::uint64_t round, bool goes_on = false) {
    state_.former->accounted[round].insert(name_of(id));
    if (state_.former->round == round && !goes_on) state_.is_former_broken = true;
    set_former_end();
    if (state_.former->round != round || missing(*state_.former) > 0) return;
    settle_former();
    state_.were_all_former = state_.phase == Phase::Gathering && !state_.has_formed;
  }
  int settle_former() {
    Former former = *std::exchange(state_.former, std::nullopt);
    state_.settled_starts.insert(former.run_uuid);
    state_.elsewhere = MonoTime::min();
    return missing(former);
  }

  // The round that runs is one of the coordinator before.
  bool is_taken_over() const { return state_.phase == Phase::Running && !state_.has_formed; }
  // A node goes on with its round after its coordinator was started anew: the round is as it was.
  void adopt(const std::string& id, const request::Resume& resume) {
    const request::Join& join = resume.join;
    if (is_unfounded()) found(id, join);
    bool is_first = state_.phase == Phase::Gathering;
    was_in_a_round(join);
    expect_others(id, join, true);
    Node& node = state_.nodes[id];
    node = {.join = join,
            .arrival = state_.arrivals++,
            .connection = speaker_,
            .seen = now_,
            .is_member = true,
            .is_down = false,
            .last_rank = join.previous_rank,
            .knows = known_round(join),
            .contact = published_at(join.pulse)};
    if (join.node_rank) claim_rank(id, *join.node_rank);
    ++state_.up_count;
    if (is_first) {
      state_.phase = Phase::Running;
      state_.round = join.next_round - 1;
      state_.round_began = now_;
      state_.last_call.reset();
      state_.were_all_former = false;
    }
    if (!state_.former) keep_run_file();
    send(id, command::Continue{});
    if (is_taken_over() && state_.is_former_broken) {
      stop({.cause = StopCause::NodeLost, .why = "a node of the round was cut off"});
    }
    // The coordinator before has counted a failure whose restart count is that of an attempt
    // before.
    bool is_counted = resume.failed && resume.failed->failure.restart_count < state_.restart_count;
    request::Resume news = resume;
    if (is_counted) news.failed.reset();
    reconcile(id, node, news);
    bool is_stopping = news.workers == Workers::Stopping && !news.failed;
    if (is_stopping && state_.phase == Phase::Running) {
      stop({.cause = StopCause::NodeLost,
            .why = "the round was being stopped when the rendezvous began anew"});
    }
  }
  // It had the rank in its round, so a node that has come meanwhile cannot have it.
  void claim_rank(const std::string& id, int rank) {
    auto holder = state_.holders.find(rank);
    if (holder != state_.holders.end()) {
      auto other = state_.nodes.extract(holder->second);
      send_outside(other.key(), other.mapped().connection,
                   command::Refuse{"--node-rank=" + std::to_string(rank) + " is that of " +
                                   describe(state_.nodes.at(id).join) + " already"});
    }
    state_.holders[rank] = id;
  }
  bool can_adopt(const request::Resume& resume) const {
    if (state_.has_formed) return false;
    if (auto rank = resume.join.node_rank) {
      auto holder = state_.holders.find(*rank);
      if (holder != state_.holders.end() && state_.nodes.at(holder->second).is_member) return false;
    }
    if (resume.join.next_round == 0 || resume.workers == Workers::Down) return false;
    if (!state_.nodes.empty() && resume.join.settings != state_.settings) return false;
    std::uint64_t round = resume.join.next_round - 1;
    auto past = state_.past_rounds.find(resume.join.run_uuid);
    if (past != state_.past_rounds.end() && round < past->second) return false;
    if (state_.phase == Phase::Gathering) {
      bool has_later = state_.former && state_.former->round && round < *state_.former->round;
      return round + 1 >= state_.next_round && !has_later;
    }
    return state_.former && state_.former->round == round && state_.phase != Phase::Ended;
  }
  // The leases of those that have not come back are over.
  void give_up_former() {
    int lost = settle_former();
    if (state_.phase == Phase::Running && !state_.has_formed) {
      return stop({.cause = StopCause::NodeLost,
                   .why = count_of(static_cast<std::size_t>(lost), "node") +
                          " of the round did not come back to the rendezvous"});
    }
    form_if_due();
  }

  // What a node that is back may have missed, and what it could not say.
  void reconcile(const std::string& id, Node& node, const request::Resume& resume) {
    if (!node.is_member) return;
    if (node.round && resume.join.next_round <= node.round->number) {
      // It has not heard of its round.
      if (state_.phase == Phase::Running) return send(id, *node.round);
      return heard(id, node, request::Ready{node.round->number, resume.join.store_port});
    }
    std::uint64_t round = resume.join.next_round - 1;
    switch (resume.workers) {
      case Workers::Down:
        return heard(id, node, request::Ready{round, resume.join.store_port});
      case Workers::Succeeded:
        heard(id, node, request::Succeeded{round});
        break;
      case Workers::Up:
      case Workers::Stopping:
        if (resume.failed) heard(id, node, *resume.failed);
        break;
    }
    if (state_.phase == Phase::Stopping && state_.last_stop) send(id, *state_.last_stop);
  }

  void take_in_newcomers() {
    state_.newcomers_due.reset();
    if (state_.phase != Phase::Running) return;
    if (state_.former) {
      state_.newcomers_due = state_.former->until;
      return;
    }
    std::string names;
    std::size_t count = 0;
    for (auto& [id, node] : state_.nodes) {
      if (node.is_member || node.is_standby) continue;
      if (!has_room() || somebody_is_done()) {
        stand_by(id, node);
        continue;
      }
      if (++count <= 3) names += (names.empty() ? "" : ", ") + node.join.host;
    }
    if (count == 0) return;
    if (count > 3) names += " and " + std::to_string(count - 3) + " more";
    stop({.cause = StopCause::NodeJoined,
          .why = names + (count == 1 ? " has joined" : " have joined")});
  }

  // A host that is lost again and again would stop every round.
  bool is_flapping(const std::string& host) const {
    int limit = state_.policy.flap_limit;
    auto losses = state_.losses.find(host);
    if (limit == 0 || losses == state_.losses.end()) return false;
    auto recent =
        std::ranges::count_if(losses->second, [&](MonoTime at) { return at + kFlapWindow > now_; });
    return recent >= limit;
  }
  void note_loss(const Node& lost) {
    if (!lost.is_member || state_.policy.flap_limit == 0) return;
    bool has_twin = std::ranges::any_of(
        state_.nodes, [&](const auto& node) { return node.second.join.host == lost.join.host; });
    if (has_twin) return;  // several nodes of one machine
    auto& losses = state_.losses[lost.join.host];
    losses.push_back(now_);
    if (losses.size() > static_cast<std::size_t>(state_.policy.flap_limit)) losses.pop_front();
  }

  static std::string preflight_text(const request::Join& join) {
    return join.host + " cannot start its workers: " + join.preflight_failure;
  }

  void turn_away(std::map<std::string, Node>::node_type node) {
    const request::Join& join = node.mapped().join;
    if (join.node_rank) state_.holders.erase(*join.node_rank);
    send(node.key(), command::Refuse{preflight_text(join)});
    for (const auto& [id, other] : state_.nodes)
      send(id, command::Info{preflight_text(join) + "; the run goes on without it"});
  }

  void stand_by(const std::string& id, Node& node) {
    node.is_standby = true;
    std::string reason = is_flapping(node.join.host)
                             ? "it was lost " + std::to_string(state_.policy.flap_limit) +
                                   " times in 10 minutes (flap_limit)"
                         : has_room() ? "some of the nodes have finished already"
                                      : "there are " + std::to_string(state_.settings.max_nodes) +
                                            " nodes, as many as --nnodes allows";
    send(id, command::Standby{reason});
  }

  bool has_room() const {
    auto members =
        std::ranges::count_if(state_.nodes, [](const auto& node) { return node.second.is_member; });
    return members < state_.settings.max_nodes;
  }
  bool somebody_is_done() const {
    return std::ranges::any_of(state_.nodes,
                               [](const auto& node) { return node.second.has_succeeded; });
  }

  // Of two nodes with one --node-rank the first has it, unless it turns out to be gone.  Like one
  // that waits for the next run, a contender may be gone as well.
  void outsider_spoke(const event::Arrived& event) {
    const std::string& id = event.node;
    if (const auto* resume = std::get_if<request::Resume>(&event.request)) {
      // It may have overtaken its own join, on the connection before.
      bool is_new_here = resume->workers == Workers::Down && !state_.taken_out.contains(id);
      if (state_.phase == Phase::Ended || is_new_here) {
        return joined(id, resume->join, event.connection);
      }
      if (can_adopt(*resume)) return adopt(id, *resume);
      return send_outside(id, event.connection, command::Dropped{"its lease was over"});
    }
    bool has_left = std::holds_alternative<request::Left>(event.request);
    bool is_gone = has_left || std::holds_alternative<request::Lost>(event.request) ||
                   std::holds_alternative<request::Leaving>(event.request);
    if (!is_gone) return;
    // The last will of an earlier attempt says nothing of the one on which it waits.
    auto is_heard_no_more = [&](std::uint64_t on) { return has_left || on <= event.connection; };
    std::erase_if(state_.next_run, [&](const auto& comer) {
      return comer.id == id && is_heard_no_more(comer.connection);
    });
    std::erase_if(state_.contenders, [&](const auto& contender) {
      return contender.first == id && is_heard_no_more(contender.second.connection);
    });
    actions_.push_back(action::Forget{id, event.connection});
    if (!has_left) return;
    // Its guardian says so: a node of the round under the host before, maybe that host itself.
    std::optional<std::uint64_t> round = std::get<request::Left>(event.request).round;
    const auto& left = std::get<request::Left>(event.request);
    if (!left.knows.by.empty())
      state_.quorum.gone[name_of(id)] = {.knows = left.knows, .nodes = left.nodes};
    if (state_.former && round) account_for(id, *round);
    account_for_named(id);
    if (is_taken_over() && state_.is_former_broken) {
      const std::string& why = std::get<request::Left>(event.request).why;
      stop({.cause = StopCause::NodeLost,
            .why = "a node of the round " + (why.empty() ? "has left" : why)});
    }
    form_if_due();
    forget_earlier_incarnations(id);
  }
  void refuse_contenders_of(const std::string& rival) {
    for (auto it = state_.contenders.begin(); it != state_.contenders.end();) {
      if (it->second.rival != rival) {
        ++it;
        continue;
      }
      const request::Join& holder = state_.nodes[rival].join;
      std::string rank = std::to_string(*it->second.join.node_rank);
      send_outside(
          it->first, it->second.connection,
          command::Refuse{"--node-rank=" + rank + " is that of " + describe(holder) + " already"});
      send(rival, command::Info{"refused " + describe(it->second.join) + ": --node-rank=" + rank +
                                " is taken by this node"});
      it = state_.contenders.erase(it);
    }
  }
  void admit_contenders_of(const std::string& rival) {
    auto contenders = std::exchange(state_.contenders, {});
    for (auto& [id, contender] : contenders) {
      if (contender.rival != rival) {
        state_.contenders[id] = std::move(contender);
      } else {
        joined(id, contender.join, contender.connection);
      }
    }
  }

  // What nodes say.

  void heard(const std::string& id, Node& node, const request::Heartbeat& heartbeat) {
    node.contact = std::max(node.contact, published_at(heartbeat.pulse));
    if (heartbeat.round) note_round(id, node, *heartbeat.round);
    refuse_contenders_of(id);
    if (state_.phase == Phase::Gathering && !state_.quorum.self.empty()) form_if_due();
  }
  // It has heard of this round of ours.
  void note_round(const std::string& id, Node& node, std::uint64_t round) {
    bool is_ours = node.round && node.round->number == round && !node.round->by.empty();
    if (!is_ours || node.knows == node.round->id()) return;
    node.knows = node.round->id();
    heard_of(state_.quorum, name_of(id), round);
  }

  void heard(const std::string& id, Node& node, const request::Ready& ready) {
    note_round(id, node, ready.round);
    if (!node.is_member || node.is_down || ready.round != state_.round) return;
    node.join.store_port = ready.store_port;
    bool was_up = !node.has_succeeded;
    node.is_down = true;
    if (was_up) --state_.up_count;
    if (state_.phase == Phase::Stopping) form_if_due();
  }

  void heard(const std::string& id, Node& node, const request::Failed& failed) {
    bool is_news = state_.phase == Phase::Running && node.is_member && !node.has_succeeded &&
                   failed.round == state_.round;
    if (!is_news) return;  // a victim of what the round is being stopped for
    Failure failure = failed.failure;
    failure.node = node.join.host;
    failure.restart_count = state_.restart_count;
    record(failure);
    if (failed.is_final) return end({.exit_code = exit_code_of(failed.failure)});
    if (state_.restart_count >= state_.policy.max_restarts) {
      bool had_any = state_.policy.max_restarts > 0;
      command::End verdict{.exit_code =
                               had_any ? command::kExitBudgetSpent : exit_code_of(failed.failure)};
      const Node* suspect = away_member();
      return suspect == nullptr ? end(std::move(verdict)) : end_if_not_lost(*suspect, id, verdict);
    }
    ++state_.restart_count;
    state_.failed_at = now_;
    state_.failed_on = id;
    forget_output(failure);  // every node reads it once, at the end
    stop({.cause = StopCause::WorkerFailed, .failure = std::move(failure)});
  }

  void heard(const std::string&, Node& node, const request::Succeeded& succeeded) {
    bool is_news = state_.phase == Phase::Running && node.is_member && !node.has_succeeded &&
                   succeeded.round == state_.round;
    if (!is_news) return;
    node.has_succeeded = true;
    --state_.up_count;
    end_if_all_succeeded();
  }

  // Its workers have the grace that it says, and then it says Left.  The others are stopped at
  // once.
  void heard(const std::string& id, Node& node, const request::Leaving& leaving) {
    if (node.leaves_by) return;
    std::string why = node.join.host + " " + (leaving.why.empty() ? "leaves" : leaving.why);
    if (!is_up(node)) return lose(id, why, leaving.signal);
    node.leaves_by = now_ + leaving.grace + kLeaveMargin;
    node.leaves_why = why;
    node.leaves_signal = leaving.signal;
    node.leaves_since = now_;
    state_.next_look = std::min(state_.next_look, *node.leaves_by);
    if (state_.phase == Phase::Running) {
      stop({.cause = StopCause::NodeLost, .why = why, .signal = leaving.signal});
    }
  }
  void heard(const std::string& id, Node& node, const request::Left& left) {
    bool is_told = !left.knows.by.empty();
    state_.quorum.gone[name_of(id)] = {.knows = is_told ? left.knows : node.knows,
                                       .nodes = is_told ? left.nodes : node.join.previous_nodes};
    if (node.leaves_by) return lose(id, node.leaves_why, node.leaves_signal, node.leaves_since);
    lose(id, node.join.host + " " + (left.why.empty() ? "has left" : left.why));
  }
  // It may be back in a moment; if its agent is gone, the guardian says Left.
  void heard(const std::string&, Node& node, const request::Lost&) {
    if (!node.away_at) node.away_at = now_;
  }
  void heard(const std::string& id, Node& node, const request::Resume& resume) {
    if (state_.phase == Phase::Ended) return send(id, state_.verdict);
    node.away_at.reset();
    if (node.is_down) {
      bool is_back = std::exchange(node.join, resume.join).is_back;
      node.join.is_back = is_back;  // before it came here
    }
    node.contact = std::max(node.contact, published_at(resume.join.pulse));
    if (resume.join.next_round > 0) note_round(id, node, resume.join.next_round - 1);
    if (is_alone(state_, now_)) {
      state_.unanswered.push_back({.id = id, .connection = node.connection, .resume = resume});
      return;
    }
    answer(id, node, resume);
  }
  // Its workers may live.
  void answer(const std::string& id, Node& node, const request::Resume& resume) {
    send(id, command::Continue{});
    reconcile(id, node, resume);
    form_if_due();
  }
  void heard(const std::string&, Node&, const request::Join&) {}
  void heard(const std::string&, Node&, const request::Knock&) {}
  void heard(const std::string&, Node&, const request::Foreign&) {}

  // Whether enough nodes are heard to see this coordinator; where they are not, others may begin a
  // round when the leases of those that are here are over.
  void look_at_quorum() {
    state_.next_quorum_look = now_ + state_.policy.silence_limit() / 20;
    state_.heard_at =
        heard_in_round_at(state_.quorum, present_nodes(state_)).value_or(MonoTime::min());
    if (!is_alone(state_, now_)) {
      while (!state_.unanswered.empty()) {  // a round that is formed meanwhile answers all others
        Unanswered asks = std::move(state_.unanswered.front());
        state_.unanswered.pop_front();
        auto node = state_.nodes.find(asks.id);
        if (node != state_.nodes.end() && node->second.connection == asks.connection)
          answer(asks.id, node->second, asks.resume);
      }
    } else if (state_.phase == Phase::Running && now_ >= state_.woke_at + alone_after(state_)) {
      stop({.cause = StopCause::NodeLost,
            .why = "too few of the nodes of this round are heard, and the others may go on "
                   "without this one"});
    }
    bool has_workers = state_.phase == Phase::Running || state_.up_count > 0;
    if (!has_workers || state_.quorum.bodies.empty()) state_.next_quorum_look = MonoTime::max();
  }

  // Losing nodes.

  void look_for_the_silent() {
    state_.next_look = now_ + state_.policy.keep_alive_interval;
    std::vector<std::string> silent;
    for (const auto& [id, node] : state_.nodes) {
      MonoTime due =
          node.seen + (is_up(node) ? state_.policy.lease() : state_.policy.silence_limit());
      if (node.leaves_by) due = std::min(due, *node.leaves_by);
      if (due <= now_) {
        silent.push_back(id);
      } else {
        state_.next_look = std::min(state_.next_look, due);
      }
    }
    std::vector<Loss> losses;
    for (const std::string& id : silent) {
      const Node& node = state_.nodes.at(id);
      std::string why = node.join.host + " was lost (silent for " + seconds_text(now_ - node.seen) +
                        (node.away_at ? ", its connection broken)" : ")");
      if (node.leaves_by && *node.leaves_by <= now_) {
        why = node.join.host + " has not ended its workers within the grace that it announced";
      }
      send(id, command::Dropped{why});
      losses.push_back(take_out(id, why));
    }
    // All at once: no round is to begin with a node that is about to go as well.
    if (!losses.empty()) go_on_without(losses);
  }

  struct Loss {
    std::string id;
    std::string why;
    bool was_up = false;      // its workers ran, and nobody knew that it goes
    bool was_member = false;  // of the last round
    bool had_store = false;   // of the workers of the round, which others still need
    int signal = 0;           // which stopped it
    MonoTime since{};         // when that came
  };

  // Of a node that cannot hear any more.
  void lose(std::string id, const std::string& why, int signal = 0,
            std::optional<MonoTime> since = std::nullopt) {
    actions_.push_back(action::Forget{id, state_.nodes.at(id).connection});
    Loss loss = take_out(id, why);
    loss.signal = signal;
    loss.since = since.value_or(now_);
    go_on_without({loss});
  }

  Loss take_out(const std::string& id, const std::string& why) {
    auto node = state_.nodes.extract(id);
    state_.taken_out.insert(id);
    const Node& lost = node.mapped();
    if (lost.join.node_rank) state_.holders.erase(*lost.join.node_rank);
    bool was_up = is_up(lost);
    if (was_up) --state_.up_count;
    if (was_up && state_.phase == Phase::Stopping && id != state_.failed_on) blame_the_loss(lost);
    bool had_store = lost.is_member && lost.has_succeeded && lost.last_rank == 0;
    if (!lost.leaves_by) note_loss(lost);
    return {.id = node.key(),
            .why = had_store ? why + "; it had the store of the workers" : why,
            .was_up = was_up && !lost.leaves_by,
            .was_member = lost.is_member,
            .had_store = had_store && state_.up_count > 0};
  }

  void go_on_without(const std::vector<Loss>& losses) {
    for (const Loss& loss : losses) note_shortage(loss);
    auto worst = std::ranges::find_if(
        losses, [](const Loss& loss) { return loss.was_up || loss.had_store; });
    switch (state_.phase) {
      case Phase::Gathering:
      case Phase::Stopping:
        form_if_due();
        break;
      case Phase::Running:
        // Whoever has succeeded may go: nothing of the round depends on it any more.
        if (worst != losses.end()) {
          stop({.cause = StopCause::NodeLost, .why = worst->why, .signal = worst->signal});
        } else {
          end_if_all_succeeded();
        }
        break;
      case Phase::Ended:
        break;
    }
    for (const Loss& loss : losses) admit_contenders_of(loss.id);
  }

  void note_shortage(const Loss& loss) {
    if (!loss.was_member) return;
    if (!state_.shortage) state_.shortage = Shortage{.why = loss.why, .settled_at = now_};
    MonoTime& settled_at = state_.shortage->settled_at;
    if (loss.signal != 0) settled_at = std::max(settled_at, loss.since + kStopSpread);
  }

  // To the nodes that were in the last round; who comes later has lost nobody.
  void announce_shortage() {
    if (!state_.shortage || std::exchange(state_.shortage->is_announced, true)) return;
    for (const auto& [id, node] : state_.nodes) {
      if (node.is_member) send(id, command::Waiting{state_.shortage->why});
    }
  }

  // A failure on one node that followed from the silence of another one costs no restart.
  void blame_the_loss(const Node& lost) {
    if (!state_.failed_at || lost.leaves_by) return;
    // It was silent before, by a broken connection or by heartbeats that did not come.
    bool was_away = lost.away_at && *lost.away_at <= *state_.failed_at;
    bool was_silent = lost.seen + state_.policy.keep_alive_interval * 3 / 2 <= *state_.failed_at;
    if (!was_away && !was_silent) return;
    state_.failed_at.reset();
    state_.failures.pop_back();
    if (!std::exchange(state_.end_in_doubt, std::nullopt)) --state_.restart_count;
  }

  // One that may be lost: its connection is broken.
  const Node* away_member() const {
    auto away = std::ranges::find_if(
        state_.nodes, [](const auto& node) { return node.second.away_at && is_up(node.second); });
    return away == state_.nodes.end() ? nullptr : &away->second;
  }

  // The workers of a lost node's peers fail before it is known that the node is lost.
  void end_if_not_lost(const Node& suspect, const std::string& failed_on, command::End verdict) {
    state_.end_in_doubt = std::move(verdict);
    state_.failed_at = now_;
    state_.failed_on = failed_on;
    stop({.cause = StopCause::NodeLost,
          .why = "the connection of " + suspect.join.host + " is broken, and a worker failed on " +
                 state_.failures.back().node});
  }

  // Rounds.

  static bool is_up(const Node& node) {
    return node.is_member && !node.is_down && !node.has_succeeded;
  }

  void stop(command::Stop stop) {
    if (stop.cause != StopCause::WorkerFailed && !makes_progress()) {
      return end({.exit_code = command::kExitRendezvous,
                  .why = stop.why + "; nodes that come and go have ended " +
                         std::to_string(kMaxShortRounds) +
                         " rounds in 10 minutes before they were 10 s old"});
    }
    state_.phase = Phase::Stopping;
    state_.newcomers_due.reset();
    state_.gathering_since = now_;
    state_.last_told.clear();
    stop.round = state_.round;
    stop.restart_count = state_.restart_count;
    stop.max_restarts = state_.policy.max_restarts;
    for (auto& [id, node] : state_.nodes) {
      if (!node.is_member) continue;
      if (node.has_succeeded) ++state_.up_count;  // it has to come back for the next round
      node.has_succeeded = false;
      if (!node.leaves_by) send(id, stop);
    }
    state_.last_stop = std::move(stop);
    form_if_due();
  }

  bool makes_progress() {
    while (!state_.short_rounds.empty() && state_.short_rounds.front() + kProgressWindow <= now_)
      state_.short_rounds.pop_front();
    if (now_ - state_.round_began < kShortRound) state_.short_rounds.push_back(now_);
    return state_.short_rounds.size() < kMaxShortRounds;
  }

  void form_if_due() {
    if (state_.phase == Phase::Stopping) {
      if (!are_all_down(state_)) return;
      if (state_.end_in_doubt) return end(*std::exchange(state_.end_in_doubt, std::nullopt));
      state_.phase = Phase::Gathering;
      state_.gathering_since = now_;
      if (count() >= state_.settings.min_nodes && basis_now(state_, now_)) return form();
    }
    if (state_.phase != Phase::Gathering) return;
    if (count() < state_.settings.min_nodes) {
      state_.last_call.reset();
      if (state_.shortage && now_ >= state_.shortage->settled_at) announce_shortage();
    } else if (!may_form(state_, now_)) {
      return;
    } else if (count() >= state_.settings.max_nodes || are_all_former_back()) {
      form();
    } else if (!state_.last_call) {
      state_.last_call = now_ + (state_.had_round ? std::min(kShortLastCall, last_call_timeout())
                                                  : last_call_timeout());
      if (state_.last_call <= now_) form();
    } else if (now_ >= *state_.last_call) {
      form();
    }
  }

  bool are_all_former_back() const {
    return state_.were_all_former && std::ranges::any_of(state_.nodes, [](const auto& node) {
             return node.second.join.is_back;
           });
  }
  int count() const { return static_cast<int>(state_.nodes.size()); }
  Duration last_call_timeout() const { return state_.policy.last_call_timeout; }

  void form() {
    if (!exclude_failed_nodes()) return;
    std::vector<std::pair<const std::string*, Node*>> chosen = choose();
    std::vector<Claim> claims;
    claims.reserve(chosen.size());
    // In the order in which they were chosen: a rank from an earlier round counts less than one
    // from the last.
    for (auto& [id, node] : chosen) {
      claims.push_back({.wanted = node->join.node_rank,
                        .previous = node->last_rank,
                        .host = node->join.host,
                        .arrival = claims.size()});
    }
    std::vector<std::size_t> seats = seat(claims);
    std::vector<Participant> participants;
    participants.reserve(seats.size());
    for (std::size_t i : seats) participants.push_back(chosen[i].second->join.participant);
    std::vector<Assignment> ranks = assign_ranks(participants);
    std::vector<Body> from = basis_now(state_, now_).value_or(std::vector<Body>{});

    const request::Join& first = chosen[seats.front()].second->join;
    state_.round = state_.next_round++;
    command::Round round{.number = state_.round,
                         .run_uuid = state_.run_uuid,
                         .restart_count = state_.restart_count,
                         .max_restarts = state_.policy.max_restarts,
                         .master = state_.settings.master.value_or(
                             Endpoint{.host = first.address, .port = first.store_port})};
    name_stand_ins(round, chosen, seats);
    state_.phase = Phase::Running;
    state_.had_round = true;
    state_.shortage.reset();
    state_.has_formed = true;
    state_.were_all_former = false;
    state_.round_began = now_;
    state_.newcomers_due.reset();
    state_.last_stop.reset();
    state_.last_call.reset();
    state_.failed_at.reset();
    state_.last_told.clear();
    state_.up_count = seats.size();
    for (std::size_t rank = 0; rank < seats.size(); ++rank) {
      auto& [id, node] = chosen[seats[rank]];
      node->is_member = true;
      node->is_down = false;
      node->is_standby = false;
      node->last_rank = static_cast<int>(rank);
      round.ranks = ranks[rank];
      node->round = round;
      send(*id, round);
    }
    for (auto& [id, node] : state_.nodes) {
      if (!node.is_member && !node.is_standby) stand_by(id, node);
    }
    keep_run_file();
    note_formed(std::move(from), round.id());
  }

  // The first by group rank, without the host's own node.
  void name_stand_ins(command::Round& round,
                      const std::vector<std::pair<const std::string*, Node*>>& chosen,
                      const std::vector<std::size_t>& seats) const {
    if (state_.quorum.self.empty()) return;
    for (std::size_t seat : seats) {
      const auto& [id, node] = chosen[seat];
      if (node->join.stand_in_port == 0) continue;
      round.by = state_.quorum.self;
      if (node->join.is_host || round.stand_ins.size() >= kMaxStandIns) continue;
      round.stand_ins.push_back(
          {.name = name_of(*id),
           .at = {.host = node->join.address, .port = node->join.stand_in_port}});
    }
  }

  void note_formed(std::vector<Body> from, const RoundId& id) {
    if (state_.quorum.self.empty()) return;
    Body body{.id = id, .is_own = true, .formed_at = now_};
    for (const auto& [node_id, node] : state_.nodes) {
      if (node.is_member) body.names.insert(name_of(node_id));
    }
    body.nodes = static_cast<int>(body.names.size());
    formed(state_.quorum, std::move(from), std::move(body));
    state_.unanswered.clear();
    look_at_quorum();
  }

  void keep_run_file() {
    RunFile file{.run = {},
                 .run_uuid = state_.run_uuid,
                 .round = state_.round,
                 .lease = state_.policy.lease(),
                 .nodes = {},
                 .by = state_.quorum.self};
    for (const auto& [id, node] : state_.nodes) {
      if (node.is_member) file.nodes.insert(name_of(id));
    }
    actions_.emplace_back(action::KeepRunFile{std::move(file)});
  }

  // Nodes that can start no worker are as if they had not come.  Where too few are left, nobody is
  // to wait for more: false, and the run is over.
  bool exclude_failed_nodes() {
    std::vector<std::string> failed;
    for (const auto& [id, node] : state_.nodes) {
      if (!node.join.preflight_failure.empty()) failed.push_back(id);
    }
    if (failed.empty()) return true;
    std::string why = preflight_text(state_.nodes.at(failed.front()).join);
    int able = count() - static_cast<int>(failed.size());
    if (able < state_.settings.min_nodes) {
      end({.exit_code = command::kExitPreflight, .why = why});
      return false;
    }
    for (const std::string& id : failed) turn_away(state_.nodes.extract(id));
    return true;
  }

  // At most max_nodes of those who are there: survivors of the last round first, then who came
  // first.  Nobody is a member when it returns.
  std::vector<std::pair<const std::string*, Node*>> choose() {
    std::vector<std::pair<const std::string*, Node*>> chosen;
    chosen.reserve(state_.nodes.size());
    for (auto& [id, node] : state_.nodes) chosen.emplace_back(&id, &node);
    std::ranges::sort(chosen, {}, [this](const auto& entry) {
      return std::tuple(is_flapping(entry.second->join.host), !entry.second->is_member,
                        entry.second->arrival);
    });
    // Of those that are lost again and again no more than must be.
    while (static_cast<int>(chosen.size()) > state_.settings.min_nodes &&
           is_flapping(chosen.back().second->join.host)) {
      chosen.pop_back();
    }
    auto most = static_cast<std::size_t>(state_.settings.max_nodes);
    for (auto& [id, node] : state_.nodes) node.is_member = false;
    if (chosen.size() > most) chosen.resize(most);
    return chosen;
  }

  // The end.

  void end_if_all_succeeded() {
    if (state_.phase == Phase::Running && state_.up_count == 0 &&
        (!state_.former || state_.has_formed)) {
      if (std::ranges::any_of(state_.nodes,
                              [](const auto& node) { return node.second.has_succeeded; }))
        end({.exit_code = 0});
    }
  }

  void end(command::End end) {
    state_.phase = Phase::Ended;
    end.failures = state_.failures;
    end.restart_count = state_.restart_count;
    end.max_restarts = state_.policy.max_restarts;
    for (const auto& [id, node] : state_.nodes) send(id, end);
    if (state_.had_round) actions_.push_back(action::Over{state_.run_uuid, end});
    state_.verdict = std::move(end);
    for (auto& [id, contender] : std::exchange(state_.contenders, {})) {
      send_outside(id, contender.connection, command::Refuse{"the run is over"});
    }
  }

  void record(const Failure& failure) {
    for (Failure& earlier : state_.failures) {
      earlier.message = std::string(beginning_of(earlier.message, kMaxOldMessage));
      forget_output(earlier);
    }
    if (state_.failures.size() >= kMaxFailures) {
      state_.failures.erase(state_.failures.begin() + kMaxFailures / 2);
    }
    state_.failures.push_back(failure);
  }

  void begin_anew() {
    auto comers = std::exchange(state_.next_run, {});
    std::optional<Former> former = std::move(state_.former);
    std::string self = std::move(state_.quorum.self);
    state_ = State{.last_turn = now_};
    state_.quorum.self = std::move(self);
    state_.former = std::move(former);
    for (auto& comer : comers) joined(comer.id, comer.join, comer.connection);
  }

  void report_waiting() {
    bool waits = state_.phase == Phase::Gathering || state_.phase == Phase::Stopping;
    if (!waits || now_ - state_.gathering_since < kPatience) return;
    std::string what = waiting_text(state_);
    std::string beside = beside_text(state_);
    if (what + beside == state_.last_told && now_ - state_.last_told_at < kRepeat) return;
    state_.last_told = what + beside;
    state_.last_told_at = now_;
    command::Info info{what + time_left_text(state_, now_) + beside};
    for (const auto& [id, node] : state_.nodes) {
      if (node.is_down) send(id, info);
    }
  }

  State state_;
  MonoTime now_;
  std::uint64_t speaker_ = 0;  // the connection on which the present message came
  std::vector<Action> actions_;
};

}  // namespace

Step step(State state, const Event& event, Now now) {
  CoordinatorTransition transition(std::move(state), now);
  std::visit(transition, event);
  return std::move(transition).result();
}

bool is_alone(const State& state, MonoTime now) {
  bool has_round = state.phase == Phase::Running || state.phase == Phase::Stopping;
  if (!has_round || state.quorum.bodies.empty() || state.heard_at == MonoTime::max()) return false;
  return state.heard_at == MonoTime::min() || now >= state.heard_at + alone_after(state);
}

bool holds_run(const State& state, MonoTime now) {
  const std::vector<Body>& bodies = state.quorum.bodies;
  if (state.phase == Phase::Ended || bodies.empty() || !bodies.back().is_own) return false;
  auto heard = heard_at(state.quorum, present_nodes(state));
  return heard && (*heard == MonoTime::max() || now < *heard + alone_after(state));
}

int missing(const Former& former) {
  if (!former.round) return 0;
  auto accounted = former.accounted.find(*former.round);
  int known = accounted == former.accounted.end() ? 0 : static_cast<int>(accounted->second.size());
  return former.nodes - known;
}

Former former_of(const RunFile& file, MonoTime now) {
  return {.run_uuid = file.run_uuid,
          .round = file.round,
          .nodes = static_cast<int>(file.nodes.size()),
          .names = file.nodes,
          .until = now + file.lease,
          .by = file.by,
          .lease = file.lease};
}

std::optional<MonoTime> deadline(const State& state) {
  if (state.nodes.empty()) return std::nullopt;
  MonoTime due = state.next_look;
  bool waits_for_call = state.phase == Phase::Gathering && state.last_call && are_all_down(state) &&
                        basis_now(state, state.last_turn);
  if (waits_for_call) due = std::min(due, *state.last_call);
  if (state.former) due = std::min(due, state.former->until);
  if (state.newcomers_due) due = std::min(due, *state.newcomers_due);
  due = std::min(due, state.next_quorum_look);
  bool waits_for_fence = state.phase == Phase::Gathering && fence(state) > state.last_turn;
  if (waits_for_fence) due = std::min(due, fence(state));
  bool is_short = state.phase == Phase::Gathering &&
                  state.nodes.size() < static_cast<std::size_t>(state.settings.min_nodes);
  if (is_short && state.shortage && !state.shortage->is_announced)
    due = std::min(due, state.shortage->settled_at);
  return due;
}

bool is_over(const State& state) {
  return state.nodes.empty() && state.contenders.empty();
}

}  // namespace ddprun::rendezvous::coordinator
