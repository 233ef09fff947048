// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/runs.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "rendezvous/decide/departed_nodes.h"
#include "rendezvous/decide/host_change.h"
#include "rendezvous/decide/node_id.h"
#include "rendezvous/decide/past_runs.h"
#include "rendezvous/decide/room.h"
#include "rendezvous/decide/runs_text.h"
#include "rendezvous/decide/waiting_text.h"
#include "store/base/variant.h"

namespace ddprun::rendezvous::runs {
namespace {

// The nodes of a run that gives way to another one that waits are sent on for so long.
constexpr Duration kBrieflyMoved = std::chrono::seconds(3);

// That nodes wait at another endpoint since they do not reach this one is known for so long.
constexpr Duration kStuckAge = std::chrono::seconds(20);

// Of more, those that are old are looked for no more often.
constexpr std::size_t kFewMoves = 64;
constexpr Duration kMovesPeriod = std::chrono::milliseconds(100);

// So often it counts what the nodes have said, when that seems to be too much.
constexpr Duration kCountPeriod = std::chrono::seconds(1);

// A node that comes back with as much as this is no stranger's: it is let in, whatever others said.
constexpr std::size_t kOrdinaryBytes = std::size_t{16} * 1024;

const std::string kHasMoved = "the run has another host";

bool is_last_command(const Command& command) {
  const auto* standby = std::get_if<command::Standby>(&command);
  return (standby != nullptr && standby->is_outside) ||
         std::holds_alternative<command::Refuse>(command) ||
         std::holds_alternative<command::Dropped>(command) ||
         std::holds_alternative<command::Moved>(command) ||
         std::holds_alternative<command::End>(command);
}

// The last words of a node that cannot hear any more.
bool is_last_word(const Request& request) {
  return std::holds_alternative<request::Lost>(request) ||
         std::holds_alternative<request::Left>(request);
}

// Of what is known of runs that are elsewhere: each step looks at all of it.
template <typename Runs>
bool has_room_for(const Runs& elsewhere, const std::string& run) {
  return elsewhere.size() < kMaxRuns || elsewhere.contains(run);
}

bool is_given_away(const State& state, const std::string& run, MonoTime now) {
  auto given = state.given_away.find(run);
  return given != state.given_away.end() && now < given->second;
}

// One step: the state being changed and the actions being collected.
class RunsTransition {
 public:
  RunsTransition(State state, Now now) : state_(std::move(state)), now_(now) {
    past_.forgive_own_pause();
    past_.clear_what_is_old();
    clear_old_moves();
    departed_.clear_what_is_old();
  }
  RunsTransition(const RunsTransition&) = delete;
  RunsTransition& operator=(const RunsTransition&) = delete;

  Step result() && {
    return {
        .state = std::move(state_), .actions = std::move(actions_), .changed = std::move(changed_)};
  }

  void operator()(const event::Begun& event) {
    state_.name = event.name;
    state_.order = event.order;
    state_.is_daemon = event.is_daemon;
    for (const RunFile& file : event.files) {
      state_.filed.insert(file.run);
      state_.formers[file.run] = coordinator::former_of(file, now_.mono);
    }
  }

  void operator()(const event::Arrived& event) {
    const Message& message = event.message;
    if (const auto* knock = std::get_if<request::Knock>(&message.request))
      return knocked(message, *knock);
    if (message.run == state_.only_run && is_last_word(message.request) &&
        state_.gone.size() < kMaxGone) {
      state_.gone.insert(coordinator::name_of(message.node));
    }
    const auto* join = std::get_if<request::Join>(&message.request);
    if (const auto* resume = std::get_if<request::Resume>(&message.request)) join = &resume->join;
    auto run = state_.runs.find(message.run);
    bool is_known = run != state_.runs.end();
    bool is_of_run = is_known && run->second.nodes.contains(message.node);
    if (std::holds_alternative<request::Left>(message.request) && !is_of_run)
      departed_.note_early(message);
    if (join != nullptr) {
      if (is_turned_away(message, *join, is_of_run) || is_too_much(message, *join, is_of_run))
        return;
      if (departed_.has_left_early(message)) return;
    } else if (is_too_much_of_a_stranger(message, is_of_run)) {
      return;
    } else if (!is_known) {
      if (is_last_word(message.request)) {
        actions_.emplace_back(action::Forget{message.node, message.connection});
      }
      bool is_foreign = std::holds_alternative<request::Foreign>(message.request);
      if (!is_foreign) return;
    }
    step(message.run,
         coordinator::event::Arrived{message.node, message.request, message.connection});
    if (!is_known) report_early(message.run);
  }

  // Its sender would wait for an answer for ever.  A node of the run has its answers.
  void operator()(const event::Unreadable& event) {
    auto run = state_.runs.find(event.sender.run);
    if (run != state_.runs.end() && run->second.nodes.contains(event.sender.node)) return;
    departed_.send_last(event.sender.node, event.sender.connection,
                        command::Refuse{"what it says cannot be read: " + event.problem});
  }

  void operator()(const event::Tick&) {
    for (const std::string& name : due_runs()) {
      coordinator::State& run = state_.runs.at(name);
      if (coordinator::deadline(run).value_or(MonoTime::max()) <= now_.mono) {
        run.beside = who_waits_beside(state_, name);
        step(name, coordinator::event::Tick{});
      } else {
        knock_if_due(name, run);
        note_due(name);
      }
    }
  }

  void operator()(const event::MarkRead& event) {
    if (state_.runs.contains(event.run))
      step(event.run, coordinator::event::MarkRead{event.number});
  }

  void operator()(const event::EndpointIsClear& event) {
    if (state_.runs.contains(event.run)) step(event.run, coordinator::event::DoubtSettled{});
  }

  void operator()(const event::Answered& event) {
    auto run = state_.runs.find(event.run);
    if (event.moved.is_other_start) {
      if (run != state_.runs.end())
        step(event.run, coordinator::event::DoubtSettled{.other_start_at = event.moved.to});
      return;
    }
    bool waits = run != state_.runs.end() && coordinator::may_give_way(run->second, now_.mono);
    if (!waits || is_asked_to_come(event.run, event.moved.to)) return;
    if (coordinator::is_beyond_reach(run->second, event.moved.to, now_.mono)) return;
    if (!state_.is_daemon)
      state_.moved[event.run] = {.to = event.moved.to, .until = now_.mono + kBrieflyMoved};
    if (coordinator::lacking_for_long(run->second, now_.mono)) ++run->second.quorum.sent_on;
    give_way(event.run, event.moved.to, event.moved.is_unreached ? event.moved.why : kHasMoved);
  }

  void operator()(const event::Unreached& event) {
    auto rival = state_.rivals.find(event.run);
    if (rival == state_.rivals.end() || rival->second.at != event.at) return;
    if (!rival->second.unreached_since) rival->second.unreached_since = now_.mono;
  }

  void operator()(const event::StacksWanted& event) {
    if (state_.runs.contains(event.run))
      step(event.run, coordinator::event::StacksWanted{event.rank});
  }

  void operator()(const event::BundleWanted& event) {
    if (state_.runs.contains(event.target.run))
      step(event.target.run, coordinator::event::BundleWanted{event.target});
  }

  void operator()(const event::PaceSeen& event) {
    if (state_.runs.contains(event.run)) step(event.run, coordinator::event::PaceSeen{event.pace});
  }

  void operator()(const event::HandOver& event) {
    for (const std::string& name : names_of_runs())
      if (name != event.own_run) step(name, coordinator::event::HandOver{event.why});
  }

  void operator()(const event::HostLeaves& event) {
    for (const std::string& name : names_of_runs())
      step(name, coordinator::event::HostLeaves{event.why, event.signal});
    // Who comes to a run that goes on elsewhere will find it there.
    if (!leaves_to_others(state_)) state_.why_leaving = event.why;
  }

 private:
  std::vector<std::string> names_of_runs() const {
    std::vector<std::string> names;
    for (const auto& [name, run] : state_.runs) names.push_back(name);
    return names;
  }

  // As many as one Tick is for, those first that are due longest.
  std::vector<std::string> due_runs() const {
    std::vector<std::string> names;
    std::size_t nodes = 0;
    for (const auto& [at, name] : state_.due) {
      if (at > now_.mono || nodes >= kTickedNodes) break;
      nodes += state_.runs.at(name).nodes.size() + 1;
      names.push_back(name);
    }
    return names;
  }

  // Another host of the run has found this one.  The one with a round stays; of two that wait, the
  // one with the later one, since it alone counts its nodes that have not heard of it; else the one
  // that is tried first.
  void knocked(const Message& message, const request::Knock& knock) {
    auto run = state_.runs.find(message.run);
    bool is_known = run != state_.runs.end();
    if (knock.asks && answer_doubt(message, knock)) return;
    if (state_.name.empty()) return;  // no run here changes its host
    if (is_known && !coordinator::may_change_host(run->second)) return;
    if (state_.is_daemon && is_known) {
      coordinator::State& its = run->second;
      if (!knock.is_over && coordinator::is_beyond_reach(its, knock.from, now_.mono)) return;
      if (knock.stuck > 0) note_stuck(its, knock);
      if (coordinator::is_wanted_at(its, knock.from, knock.stuck, now_.mono)) {
        note_moved(message, knock);
        return give_way(message.run, knock.from, stuck_text(knock.stuck));
      }
    }
    bool is_here = is_known && coordinator::holds_run(run->second, now_.mono);
    if (state_.is_daemon && !is_here) {
      if (knock.has_round || knock.is_over) departed_.acquit_those_of(message.run);
      if (hears_of_an_end(message, knock)) return;
      if (!is_known && may_go_on_here(message.run, knock)) {
        return departed_.send_last(
            message.node, message.connection,
            command::Moved{.to = knock.to, .why = "the last round of the run was formed there"});
      }
    }
    bool waits = is_known && coordinator::may_give_way(run->second, now_.mono);
    // Two that opened in different rounds may have one number.
    std::uint64_t formed = is_known ? coordinator::last_formed(run->second) : 0;
    std::uint64_t order = is_known && state_.is_daemon ? run->second.moving.endpoint : state_.order;
    bool comes_first = std::tie(knock.formed, order, knock.to.host, knock.to.port) <
                       std::tie(formed, knock.order, knock.from.host, knock.from.port);
    if (waits && state_.is_daemon)
      comes_first = comes_first && coordinator::is_anyone_heard(run->second, now_.mono);
    if (is_here || (waits && !knock.has_round && comes_first)) {
      if (knock.has_round) return other_start_found(message.run, run->second, knock);
      return departed_.send_last(message.node, message.connection,
                                 command::Moved{.to = knock.to, .why = "the run is there"});
    }
    if (waits && !knock.has_round && !state_.is_daemon) return look_back(message, knock);
    if (knock.has_round && (waits || !is_known)) note_moved(message, knock);
    if (waits) give_way(message.run, knock.from);
  }
  // Who comes from now on is sent there.
  void note_moved(const Message& message, const request::Knock& knock) {
    if (!has_room_for(state_.moved, message.run)) return;
    state_.moved[message.run] = {
        .to = knock.from, .until = now_.mono + kMovedAge, .by = coordinator::name_of(message.node)};
  }
  void note_stuck(coordinator::State& run, const request::Knock& knock) const {
    const std::vector<Endpoint>& endpoints = run.settings.endpoints;
    if (std::ranges::find(endpoints, knock.from) == endpoints.end()) return;
    run.moving.stuck = {.at = knock.from, .nodes = knock.stuck, .until = now_.mono + kStuckAge};
  }
  // The nodes here are to go there, if that host is reached from here (event::Answered).  If not,
  // they would come back and be sent again, and neither place would ever have enough of them.
  void look_back(const Message& message, const request::Knock& knock) {
    Rival& rival = state_.rivals[message.run];
    bool is_new = rival.at != knock.from || now_.mono >= rival.knocked_at + kMovedAge;
    if (is_new) rival = {.at = knock.from};
    rival.knocked_at = now_.mono;
    actions_.emplace_back(action::LookBack{message.run, knock.from});
    if (!rival.unreached_since || now_.mono < *rival.unreached_since + kBeyondReach) return;
    if (std::exchange(rival.stays_until, now_.mono + kMovedAge) <= now_.mono)
      step(message.run, coordinator::event::SaysToAll{beyond_reach_text(knock.from)});
    departed_.send_last(
        message.node, message.connection,
        command::Moved{.to = knock.to, .why = not_reached_text(knock.from), .is_unreached = true});
  }
  // Since it was not reached.  It may be by now, and then two hosts would change places.
  bool is_asked_to_come(const std::string& run, const Endpoint& from) {
    auto rival = state_.rivals.find(run);
    if (rival == state_.rivals.end() || rival->second.at != from) return false;
    if (now_.mono < rival->second.stays_until) return true;
    state_.rivals.erase(rival);
    return false;
  }
  // A host that stood still asks whether nodes that know nothing of its run began it here
  // meanwhile. True: these go on, and it has nothing else to say here.
  bool answer_doubt(const Message& message, const request::Knock& knock) {
    auto run = state_.runs.find(message.run);
    bool is_known = run != state_.runs.end();
    bool is_other = is_known && run->second.has_formed && run->second.run_uuid != knock.run_uuid;
    bool is_over = is_other && run->second.phase == coordinator::Phase::Ended;
    if (is_over && !run->second.nodes.empty()) return true;  // until its workers have ended
    if (is_over || !is_other) {
      departed_.send_last(message.node, message.connection, command::Continue{});
      return false;
    }
    command::Moved moved{.to = knock.to, .why = "the run was begun anew", .is_other_start = true};
    departed_.send_last(message.node, message.connection, std::move(moved));
    return true;
  }
  // Its nodes knew nothing of this run where it was begun, nor these of that one.
  void other_start_found(const std::string& name, const coordinator::State& run,
                         const request::Knock& knock) {
    bool is_other = !state_.is_daemon && !knock.run_uuid.empty() && knock.run_uuid != run.run_uuid;
    if (is_other) step(name, coordinator::event::OtherStartFound{knock.from});
  }
  // Between endpoints of a run, of which one has seen the end of it, or none has had a round.
  bool hears_of_an_end(const Message& message, const request::Knock& knock) {
    auto run = state_.runs.find(message.run);
    bool is_known = run != state_.runs.end();
    bool is_same = is_known && run->second.run_uuid == knock.run_uuid;
    if (knock.is_over) {
      if (auto known = state_.quorums.extract(message.run); !known.empty())
        state_.quorum_times.erase(message.run);
      if (is_same && coordinator::may_give_way(run->second, now_.mono))
        give_way(message.run, knock.from);
      return true;
    }
    bool is_over_here = is_same && run->second.phase == coordinator::Phase::Ended;
    is_over_here |= std::ranges::any_of(state_.verdicts, [&](const Verdict& verdict) {
      return verdict.run == message.run && verdict.run_uuid == knock.run_uuid;
    });
    bool is_to_begin = !is_known && knock.begins && !state_.moved.contains(message.run);
    if (!is_over_here && !is_to_begin) return false;
    departed_.send_last(message.node, message.connection,
                        command::Moved{.to = knock.to,
                                       .why = is_to_begin ? "the first round of a run begins there"
                                                          : "the run has ended there"});
    return true;
  }

  // The nodes of a run that has none here are too few there, and may be enough here.
  bool may_go_on_here(const std::string& run, const request::Knock& knock) const {
    auto known = state_.quorums.find(run);
    return known != state_.quorums.end() && !state_.moved.contains(run) &&
           !knock.lacks.by.empty() &&
           coordinator::may_suffice(known->second, knock.lacks, knock.here);
  }

  // The daemons at the endpoints of a run do not know each other but by its nodes.
  void knock_if_due(const std::string& name, coordinator::State& run) {
    bool is_due = coordinator::may_move(run) && now_.mono >= run.moving.knocks_at;
    if (!is_due || run.nodes.empty()) return;
    bool is_here = coordinator::holds_run(run, now_.mono);
    run.moving.knocks_at =
        now_.mono + std::max(kKnockPeriod, kKnockSpacing * static_cast<int>(state_.runs.size()));
    bool is_over = run.phase == coordinator::Phase::Ended;
    bool waits =
        coordinator::may_give_way(run, now_.mono) && coordinator::is_anyone_heard(run, now_.mono);
    if (!is_here && !waits && !is_over) return;
    // Not before the leases of a run that is begun anew are over, of which that place may not know.
    bool begins =
        coordinator::waits_for_first_endpoint(run) && now_.mono >= coordinator::fence(run);
    const RoundId lacks = coordinator::lacking_for_long(run, now_.mono).value_or(RoundId{});
    const std::vector<Endpoint>& endpoints = run.settings.endpoints;
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
      if (i == run.moving.endpoint || run.moving.endpoint >= endpoints.size()) continue;
      actions_.emplace_back(
          action::Knock{.run = name,
                        .knock = {.from = endpoints[run.moving.endpoint],
                                  .to = endpoints[i],
                                  .has_round = is_here,
                                  .formed = coordinator::last_formed(run),
                                  .order = run.moving.endpoint,
                                  .run_uuid = run.had_round ? run.run_uuid : "",
                                  .is_over = is_over,
                                  .begins = i == 0 && begins,
                                  .lacks = lacks,
                                  .here = static_cast<int>(run.nodes.size()),
                                  .stuck = coordinator::stuck_from(run, endpoints[i], now_.mono)}});
    }
  }

  void give_way(const std::string& run, const Endpoint& to, const std::string& why = kHasMoved) {
    note_given_away(run);
    step(run, coordinator::event::GivesWay{.to = to, .why = why});
  }

  // What its nodes have asked is answered no more, and by a pulse least of all.
  void note_given_away(const std::string& name) {
    auto run = state_.runs.find(name);
    if (!state_.is_daemon || run == state_.runs.end()) return;
    if (!has_room_for(state_.given_away, name)) return;
    state_.given_away[name] = now_.mono + run->second.policy.lease();
  }

  // Of runs that change their hosts: who comes is sent on, unless it comes from there, or has no
  // workers and does not get there.
  std::optional<Endpoint> moved_to(const Message& message, const request::Join& join) {
    const std::string& run = message.run;
    auto moved = state_.moved.find(run);
    if (moved == state_.moved.end()) return std::nullopt;
    if (!state_.is_daemon) return moved->second.to;
    if (join.settings.endpoints.empty() || holds(state_, run, now_.mono)) return std::nullopt;
    bool has_come = std::holds_alternative<request::Join>(message.request);
    if (has_come && coordinator::has_missed(join, moved->second.to)) return std::nullopt;
    if (join.seen_of != moved->second.by) return moved->second.to;
    state_.moved.erase(moved);
    return std::nullopt;
  }

  // It has known no round, and no node of a start that had one.
  static bool is_of_next_start(const request::Join& join) {
    return join.next_round == 0 && join.run_uuid.empty();
  }

  bool goes_on_here(const std::string& name) const {
    auto run = state_.runs.find(name);
    return run != state_.runs.end() && state_.why_leaving.empty() &&
           run->second.phase != coordinator::Phase::Ended && run->second.had_round &&
           !run->second.nodes.empty();
  }
  // What no coordinator of one run can judge.
  bool is_turned_away(const Message& message, const request::Join& join, bool is_of_run) {
    if (auto to = moved_to(message, join)) {
      departed_.send_last(message.node, message.connection,
                          command::Moved{.to = std::move(*to), .why = kHasMoved});
      return true;
    }
    if (!join.looks_for.empty() && !is_of_run) {
      if (goes_on_here(message.run)) return false;
      departed_.send_last(
          message.node, message.connection,
          command::Standby{.why = "the run is not here, or has ended", .is_outside = true});
      return true;
    }
    // One that has waited in this run, and was away for a moment, hears how it ends.
    if (!state_.why_leaving.empty() && is_of_next_start(join) && !is_of_run) {
      departed_.send_last(message.node, message.connection,
                          command::Standby{.why = coordinator::next_start_text(state_.why_leaving),
                                           .is_outside = true});
      return true;
    }
    auto verdict = std::ranges::find_if(state_.verdicts, [&](const Verdict& each) {
      bool is_late = join.run_uuid.empty() && message.run == state_.only_run;
      return each.run == message.run && (each.run_uuid == join.run_uuid || is_late);
    });
    if (verdict != state_.verdicts.end()) {
      departed_.send_last(message.node, message.connection, verdict->end);
      return true;
    }
    std::string why = why_refused(message.run, join);
    if (why.empty()) return false;
    departed_.send_last(message.node, message.connection, command::Refuse{why});
    return true;
  }

  // The last word of a node that is not in the run is kept as a join is.
  bool is_too_much_of_a_stranger(const Message& message, bool is_of_run) {
    const auto* left = std::get_if<request::Left>(&message.request);
    if (left == nullptr || is_of_run) return false;
    std::size_t bytes = bytes_of(*left) + 2 * message.node.size();
    if (is_room_for(bytes)) {
      state_.said_bytes += bytes;
      return false;
    }
    actions_.emplace_back(action::Forget{message.node, message.connection});
    return true;
  }

  // It counts anew where it seems to be full, since some may have gone.
  bool is_room_for(std::size_t bytes) {
    if (state_.said_bytes + bytes <= kMaxSaidBytesOfAll) return true;
    if (now_.mono < state_.said_bytes_counted_at + kCountPeriod) return false;
    state_.said_bytes = 0;
    for (const auto& [name, run] : state_.runs) state_.said_bytes += said_bytes(run);
    for (const auto& [name, former] : state_.formers) state_.said_bytes += said_bytes(former);
    for (const auto& [name, quorum] : state_.quorums) state_.said_bytes += said_bytes(quorum);
    state_.said_bytes_counted_at = now_.mono;
    return state_.said_bytes + bytes <= kMaxSaidBytesOfAll;
  }

  // Whether it is refused because all together have said too much of themselves.
  bool is_too_much(const Message& message, const request::Join& join, bool is_of_run) {
    std::size_t bytes = bytes_of(join);
    bool is_full = !is_room_for(bytes);
    bool is_let_in = !is_full || (is_of_run && bytes <= kOrdinaryBytes);
    if (is_let_in) {
      state_.said_bytes += bytes;
    } else {
      departed_.send_last(
          message.node, message.connection,
          command::Refuse{"the nodes here have said as much of themselves as is kept"});
    }
    return !is_let_in;
  }

  std::string why_refused(const std::string& name, const request::Join& join) const {
    if (state_.runs.contains(name)) return "";
    if (!state_.why_leaving.empty()) return state_.why_leaving;
    if (state_.runs.size() >= kMaxRuns) {
      return "there are " + std::to_string(state_.runs.size()) + " runs here already";
    }
    if (!join.settings.master) return "";
    auto other = std::ranges::find_if(state_.runs, [](const auto& run) {
      return run.second.settings.master.has_value() && !run.second.nodes.empty();
    });
    if (other == state_.runs.end()) return "";
    return "it has --rdzv-id=" + name + ", not " + other->first +
           ", which is what the nodes have that meet here by the static backend";
  }

  void step(const std::string& name, const coordinator::Event& event) {
    auto [entry, is_new] = state_.runs.try_emplace(name);
    coordinator::State& run = entry->second;
    if (is_new) run = past_.begin(name, event);
    bool was_over = run.phase == coordinator::Phase::Ended;
    coordinator::Step next = coordinator::step(std::move(run), event, now_);
    run = std::move(next.state);
    bool is_over_now = run.phase == coordinator::Phase::Ended && !was_over;
    if (is_over_now) run.moving.knocks_at = now_.mono;
    if (state_.is_daemon) knock_if_due(name, run);
    for (coordinator::Action& action : next.actions) {
      if (auto* over = std::get_if<coordinator::action::Over>(&action)) {
        past_.remember(name, std::move(*over));
        continue;
      }
      if (auto* forget = std::get_if<coordinator::action::Forget>(&action)) {
        actions_.emplace_back(std::move(*forget));
        continue;
      }
      if (auto* suspect = std::get_if<coordinator::action::Suspect>(&action)) {
        actions_.emplace_back(std::move(*suspect));
        continue;
      }
      if (auto* acquit = std::get_if<coordinator::action::Acquit>(&action)) {
        actions_.emplace_back(std::move(*acquit));
        continue;
      }
      if (auto* mark = std::get_if<coordinator::action::Mark>(&action)) {
        actions_.emplace_back(action::Mark{name, mark->number});
        continue;
      }
      if (auto* keep = std::get_if<action::KeepRunFile>(&action)) {
        keep->file.run = name;
        state_.filed.insert(name);
        actions_.emplace_back(std::move(*keep));
        continue;
      }
      if (auto* empty = std::get_if<action::EmptyCommonSpace>(&action)) {
        actions_.emplace_back(std::move(*empty));
        continue;
      }
      auto& send = std::get<coordinator::action::Send>(action);
      if (std::holds_alternative<command::Dropped>(send.command))
        departed_.note_given_up(name, send.node);
      if (is_last_command(send.command) && !run.nodes.contains(send.node)) {
        departed_.send_last(send.node, send.connection, std::move(send.command));
      } else {
        actions_.emplace_back(std::move(send));
      }
    }
    if (coordinator::is_over(run)) past_.forget(name);
    note_due(name);
    changed_.push_back(name);
  }

  void note_due(const std::string& name) {
    if (auto before = state_.due_at.extract(name))
      state_.due.erase({before.mapped(), before.key()});
    auto run = state_.runs.find(name);
    if (run == state_.runs.end()) return;
    MonoTime due = coordinator::deadline(run->second).value_or(MonoTime::max());
    bool knocks =
        state_.is_daemon && coordinator::may_move(run->second) && !run->second.nodes.empty();
    if (knocks) due = std::min(due, run->second.moving.knocks_at);
    if (due == MonoTime::max()) return;
    state_.due_at[name] = due;
    state_.due.emplace(due, name);
  }

  void report_early(const std::string& run) {
    std::deque<Early> all = state_.early;
    for (const Early& early : all) {
      if (early.run != run || !state_.runs.contains(run)) continue;
      step(run, coordinator::event::Arrived{early.node, early.left});
    }
  }

  // Where runs have gone.
  void clear_old_moves() {
    bool is_few =
        state_.moved.size() + state_.given_away.size() + state_.rivals.size() <= kFewMoves;
    if (!is_few && now_.mono < state_.moves_looked_at + kMovesPeriod) return;
    state_.moves_looked_at = now_.mono;
    std::erase_if(state_.moved,
                  [this](const auto& moved) { return moved.second.until <= now_.mono; });
    std::erase_if(state_.given_away,
                  [this](const auto& given) { return given.second <= now_.mono; });
    std::erase_if(state_.rivals, [this](const auto& rival) {
      return rival.second.knocked_at + kMovedAge <= now_.mono;
    });
  }

  State state_;
  Now now_;
  std::vector<Action> actions_;
  std::vector<std::string> changed_;
  PastRuns past_{state_, actions_, now_.mono};
  DepartedNodes departed_{state_, actions_, now_.mono};
};

}  // namespace

Step step(State state, const Event& event, Now now) {
  RunsTransition transition(std::move(state), now);
  std::visit([&](const auto& each) { transition(each); }, event);
  return std::move(transition).result();
}

std::optional<MonoTime> deadline(const State& state) {
  MonoTime due = state.due.empty() ? MonoTime::max() : state.due.begin()->first;
  due = std::min({due, past_runs_due(state), departed_nodes_due(state)});
  if (due == MonoTime::max()) return std::nullopt;
  return due;
}

std::optional<request::Knock> knock(const State& state, const std::string& run,
                                    const Endpoint& from, const Endpoint& to, MonoTime now) {
  auto known = state.runs.find(run);
  if (known == state.runs.end()) return std::nullopt;
  bool is_here = holds(state, run, now);
  if (!is_here && known->second.phase != coordinator::Phase::Gathering) return std::nullopt;
  bool is_running = is_here && known->second.phase == coordinator::Phase::Running;
  bool asks = coordinator::is_in_doubt(known->second, now);
  return request::Knock{.from = from,
                        .to = to,
                        .has_round = is_here,
                        .formed = coordinator::last_formed(known->second),
                        .order = state.order,
                        .run_uuid = is_running || asks ? known->second.run_uuid : "",
                        .asks = asks};
}

bool holds(const State& state, const std::string& run, MonoTime now) {
  auto known = state.runs.find(run);
  return known != state.runs.end() && coordinator::holds_run(known->second, now);
}

bool is_in_doubt(const State& state, const std::string& run, MonoTime now) {
  auto known = state.runs.find(run);
  return known != state.runs.end() && coordinator::is_in_doubt(known->second, now);
}

bool is_alone(const State& state, const std::string& run, MonoTime now) {
  auto known = state.runs.find(run);
  if (known == state.runs.end()) return is_given_away(state, run, now);
  return coordinator::is_alone(known->second, now);
}

std::vector<std::string> alone(const State& state, MonoTime now) {
  std::vector<std::string> names;
  for (const auto& [name, run] : state.runs) {
    if (coordinator::is_alone(run, now)) names.push_back(name);
  }
  for (const auto& [name, until] : state.given_away) {
    bool is_back = state.runs.contains(name);
    if (!is_back && is_given_away(state, name, now)) names.push_back(name);
  }
  return names;
}

MonoTime heard_at(const State& state, const std::string& run, MonoTime now) {
  auto known = state.runs.find(run);
  if (known == state.runs.end() || known->second.quorum.bodies.empty()) return now;
  bool has_round = known->second.phase == coordinator::Phase::Running ||
                   known->second.phase == coordinator::Phase::Stopping;
  if (has_round && coordinator::is_in_doubt(known->second, now)) return MonoTime::min();
  return has_round ? std::min(now, known->second.contacts.heard_at) : now;
}

bool leaves_to_others(const State& state) {
  return std::ranges::any_of(state.runs,
                             [](const auto& run) { return run.second.is_left_to_others; });
}

bool is_idle(const State& state) {
  return std::ranges::all_of(
      state.runs, [](const auto& run) { return coordinator::is_handed_over(run.second); });
}

bool has_ended(const State& state) {
  return std::ranges::any_of(state.verdicts, [&](const Verdict& verdict) {
    return !state.only_run.empty() && verdict.run == state.only_run;
  });
}

}  // namespace ddprun::rendezvous::runs
