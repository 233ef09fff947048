// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/oracle.h"

#include <algorithm>
#include <utility>

#include "tests/sim/host.h"
#include "tests/sim/node.h"
#include "tests/sim/world.h"

namespace ddprun::sim {

constexpr std::size_t kMostRoundsUnderLoad = 14;

using namespace rendezvous;
using coordinator::Phase;
using std::chrono::milliseconds;
using std::chrono::seconds;

void Oracle::require(bool holds, const std::string& what) const {
  if (!holds) world_.violate(what);
}

// The first node decides, and after a change of hosts that may be another one.
int Oracle::budget() const {
  int most = 0;
  for (const NodePlan& plan : world_.scenario.nodes)
    most = std::max(most, plan.policy.max_restarts);
  return most;
}

void Oracle::heard(Host& host, const Message& message) {
  RunBook& book = this->book(host, message.run);
  bool is_knock = std::holds_alternative<request::Knock>(message.request);
  bool comes_regularly = is_knock || std::holds_alternative<request::Heartbeat>(message.request);
  if (!comes_regularly) ++book.messages;
  if (is_knock) ++book.allowed_commands;  // the answer
  // For a broken connection: its last will, what was under way on it, Resume, Leaving; and the
  // answer with the command that was missed.
  if (std::holds_alternative<request::Resume>(message.request)) {
    book.allowed_messages += 4;
    book.allowed_commands += 3;
    book.refused.erase(message.node);  // it may be told again
  }
  // All nodes are asked who did not come, and answer.
  const auto* failed = std::get_if<request::Failed>(&message.request);
  if (failed != nullptr && failed->wait) {
    book.allowed_commands += book.known.size();
    book.allowed_messages += book.known.size();
  }
  bool is_gone = std::holds_alternative<request::Left>(message.request);
  if (is_gone) book.gone.insert(message.node);
  if (std::holds_alternative<request::Resume>(message.request)) book.gone.erase(message.node);
}

// Sorts what was said by runs, and looks at each.
void Oracle::stepped(Host& host, const runs::State& state,
                     const std::vector<runs::Action>& actions) {
  static const coordinator::State kNone{.phase = Phase::Ended};
  std::map<std::string, Sends> sends;
  for (const auto& [name, run] : state.runs) sends[name];
  for (const auto& [key, book] : books_) {
    if (key.first == &host) sends[key.second];
  }
  for (const auto& action : actions) {
    const auto* send = std::get_if<runs::action::Send>(&action);
    if (send == nullptr) continue;
    if (world_.scenario.daemons > 0 && send->node.ends_with(".knock")) continue;
    const Node* node = world_.find(send->node);
    require(node != nullptr, "a command to nobody: " + send->node);
    sends[node->plan().run].push_back(send);
  }
  for (const auto& [name, said] : sends) {
    auto run = state.runs.find(name);
    stepped(host, name, run != state.runs.end() ? run->second : kNone, said);
    if (run == state.runs.end()) books_.erase({&host, name});
  }
}

void Oracle::stepped(Host& host, const std::string& run, const coordinator::State& state,
                     const Sends& sends) {
  RunBook& book = this->book(host, run);
  if (book.is_ended && state.phase != Phase::Ended) book = {};
  book.is_ended = state.phase == Phase::Ended;
  Published round;
  for (const auto* send : sends) {
    const auto* part = std::get_if<command::Round>(&send->command);
    if (part != nullptr) round.emplace_back(send->node, *part);
  }
  check_sends(host, book, state, sends);
  if (!round.empty()) check_round(host, book, run, state, round);
  bool is_big = state.nodes.size() > 64;
  if (!is_big || !sends.empty()) check_state(state);
  check_waits(host, book, state);
}

// Who is written to, and how often.
void Oracle::check_sends(Host& host, RunBook& book, const coordinator::State& state,
                         const Sends& sends) {
  for (const auto* send : sends) {
    if (world_.scenario.is_calm) {
      const auto* stop = std::get_if<command::Stop>(&send->command);
      require(stop == nullptr || stop->cause == RoundEndCause::NodeJoined,
              "a stop, and nothing has gone wrong: " + (stop == nullptr ? "" : stop->why));
      bool is_dropped = std::holds_alternative<command::Dropped>(send->command);
      require(!is_dropped || state.phase == Phase::Ended,
              send->node + " was dropped, and nothing has gone wrong");
    }
    const auto* standby = std::get_if<command::Standby>(&send->command);
    bool is_last_command = (standby != nullptr && standby->is_outside) ||
                           std::holds_alternative<command::Refuse>(send->command) ||
                           std::holds_alternative<command::Dropped>(send->command) ||
                           std::holds_alternative<command::Moved>(send->command) ||
                           std::holds_alternative<command::End>(send->command);
    bool is_known = state.nodes.contains(send->node) || book.known.contains(send->node) ||
                    send->node.ends_with(".knock");
    require(is_last_command || is_known,
            "a command to " + send->node + ", which is not in the run");
    require(!book.gone.contains(send->node) || is_last_command || world_.is_late,
            "a command to " + send->node + ", which has gone");
    if (std::holds_alternative<command::Dropped>(send->command)) book.gone.insert(send->node);
    if (std::holds_alternative<command::Refuse>(send->command)) {
      auto [refused, is_new] = book.refused.try_emplace(send->node, send->connection);
      // What it had asked on another connection may arrive later.
      require(is_new || send->connection != refused->second, send->node + " was refused twice");
    }
    if (const auto* end = std::get_if<command::End>(&send->command)) {
      check_end(host, book, state, send->node, *end);
    }
    if (!std::holds_alternative<command::Info>(send->command)) ++book.commands;
  }
  if (book.known.size() == state.nodes.size() && sends.empty()) return;
  book.known.clear();
  for (const auto& [id, node] : state.nodes) book.known.insert(id);
}

void Oracle::check_end(Host& host, const RunBook& book, const coordinator::State& state,
                       const std::string& node, const command::End& end) {
  require(end.restart_count <= budget(), "an end beyond the budget");
  bool is_by_failure = end.exit_code != 0 && end.why.empty();
  require(!is_by_failure || !end.failures.empty(), "an end without its failure");
  if (state.nodes.contains(node) || book.known.contains(node)) {
    if (end.exit_code == 0) check_success(book, state);
    ended_[{&host, state.run_uuid}] = end.exit_code;
    return;
  }
  // It was away when the run ended.
  if (state.phase == Phase::Ended && state.verdict.exit_code == end.exit_code) return;
  // Nobody may have been left when it ended.
  const std::string& run_uuid = world_.find(node)->run_uuid();
  if (run_uuid.empty() && world_.scenario.has_deaf) return;  // it may not know in which it was
  require(!run_uuid.empty(), node + " is told of the end of a run that it was not in");
  auto ended = ended_.emplace(std::pair(&host, run_uuid), end.exit_code).first;
  require(ended->second == end.exit_code, node + " is told another verdict than the others");
}

// All of the round have succeeded who are still there; or had, when another host said that it was
// stopped, while their word was on its way to this one.
void Oracle::check_success(const RunBook& book, const coordinator::State& state) {
  for (const auto& [id, rank] : book.ranks) {
    if (!state.nodes.contains(id)) continue;
    const Node* node = world_.find(id);
    bool is_current = node->process().is_alive && node->id() == id && node->is_joined();
    require(!is_current || node->done() == book.index, "success, and " + id + " has not succeeded");
  }
}

void Oracle::check_round(Host& host, RunBook& book, const std::string& run,
                         const coordinator::State& state, const Published& round) {
  const command::Round& first = round.front().second;
  if (book.number && first.number == *book.number) return;  // again, to a node that missed it
  check_all_dead(host, run, first.run_uuid,
                 static_cast<int>(round.size()) >= state.settings.max_nodes);
  require(!book.number || first.number > *book.number, "a round number that does not grow");
  auto size = static_cast<int>(round.size());
  require(size >= state.settings.min_nodes && size <= state.settings.max_nodes,
          "a round of " + std::to_string(size) + " nodes");
  require(first.restart_count <= budget(), "more restarts than allowed");
  require(first.restart_count <= failures_[run], "a restart was counted, and nothing has failed");
  for (const auto& [id, part] : round) {
    require(part.number == first.number && part.restart_count == first.restart_count &&
                part.master == first.master && part.max_restarts == first.max_restarts,
            "the nodes of one round see different ones");
  }
  check_ranks(state, round);
  check_stickiness(book, state, round);
  check_recipients(run, state, round);

  book.number = first.number;
  book.ranks.clear();
  book.index = rounds_.size();
  rounds_.push_back({.run = run,
                     .number = first.number,
                     .by = first.by,
                     .run_uuid = first.run_uuid,
                     .at = world_.time.now()});
  for (const auto& [id, part] : round) {
    book.ranks[id] = part.ranks.group_rank;
    Node* node = world_.find(id);
    require(!ended_.contains({&host, node->run_uuid()}),
            id + " begins its run anew, which has ended here");
    rounds_.back().members.push_back(node);
    told_[{node->process().name, part.number}] = rounds_.size() - 1;
  }
  // Each round: a word from each node before it, a Stop, a Waiting and a Round to each; each new
  // node: a Join,
  // at most two words about its place (and where the stand-ins are), and its last command.
  std::uint64_t known = state.arrivals;
  // Where the host may change: that the round is settled, too, maybe twice to one that asks.
  book.allowed_commands += (world_.scenario.has_stand_ins ? 5 : 3) * round.size();
  // Each node that is not in it hears of the stand-ins.
  if (world_.scenario.has_stand_ins) book.allowed_commands += state.nodes.size() - round.size();
  book.allowed_messages += 3 * round.size();
  require(book.commands <= book.allowed_commands + (world_.scenario.has_stand_ins ? 4 : 3) * known +
                               2 * book.refused.size() + book.gone.size(),
          "too many commands: " + std::to_string(book.commands));
  require(world_.is_late || book.messages <= book.allowed_messages +
                                                 3 * (known + book.refused.size()) +
                                                 2 * book.gone.size(),
          "too many messages: " + std::to_string(book.messages));
}

void Oracle::check_ranks(const coordinator::State& state, const Published& round) {
  std::vector<const std::pair<std::string, command::Round>*> by_rank(round.size(), nullptr);
  for (const auto& entry : round) {
    auto rank = static_cast<std::size_t>(entry.second.ranks.group_rank);
    require(rank < round.size(), "a group rank beyond the nodes");
    require(by_rank[rank] == nullptr, "two nodes with one group rank");
    by_rank[rank] = &entry;
  }
  int base = 0;
  std::map<std::string, int> role_bases;
  for (const auto* entry : by_rank) {
    const Assignment& ranks = entry->second.ranks;
    const Participant& part = state.nodes.at(entry->first).join.participant;
    require(ranks.base_rank == base, "ranks that are not dense from 0");
    require(ranks.role_base_rank == role_bases[part.role], "wrong role ranks");
    base += part.local_world_size;
    role_bases[part.role] += part.local_world_size;
  }
  for (const auto* entry : by_rank) {
    const Assignment& ranks = entry->second.ranks;
    const Participant& part = state.nodes.at(entry->first).join.participant;
    require(ranks.world_size == base && ranks.group_world_size == static_cast<int>(round.size()),
            "a node sees another world");
    require(ranks.role_world_size == role_bases[part.role], "a node sees another role's world");
  }
  const Node* leader = world_.find(by_rank[0]->first);
  const Endpoint& master = round.front().second.master;
  bool is_itself = leader->id() == by_rank[0]->first && leader->process().is_alive;
  require(!is_itself || (master.host == leader->address() && master.port == leader->store_port()),
          "the master is not the worker store of group rank 0");
}

bool Oracle::is_flapping(const coordinator::State& state, const std::string& host) const {
  auto losses = state.churn.losses.find(host);
  if (losses == state.churn.losses.end() || state.policy.flap_limit == 0) return false;
  MonoTime oldest = state.last_turn - coordinator::kFlapWindow;
  return std::ranges::count_if(losses->second, [&](MonoTime at) { return at > oldest; }) >=
         state.policy.flap_limit;
}

// Who was in the round before and is still there is in this one, in its place if there is one.
void Oracle::check_stickiness(const RunBook& book, const coordinator::State& state,
                              const Published& round) {
  std::map<std::string, int> now;
  bool has_wishes = false;
  for (const auto& [id, part] : round) {
    now[id] = part.ranks.group_rank;
    has_wishes = has_wishes || state.nodes.at(id).join.node_rank.has_value();
  }
  for (const auto& [id, rank] : book.ranks) {
    auto there = state.nodes.find(id);
    if (there == state.nodes.end() || is_flapping(state, there->second.join.host)) continue;
    require(now.contains(id), id + " was in the round before, and another node took its place");
    require(has_wishes || rank >= static_cast<int>(round.size()) || now[id] == rank,
            id + " has lost its group rank without need");
  }
}

void Oracle::check_recipients(const std::string& run, const coordinator::State& state,
                              const Published& round) {
  std::map<const Node*, int> times;
  for (const auto& [id, part] : round) {
    const Node* node = world_.find(id);
    require(node != nullptr, "a round for nobody: " + id);
    require(node->plan().run == run, id + " belongs to another run");
    require(node->plan().settings == state.settings, id + " has other settings");
    bool is_current = node->process().is_alive && node->id() == id && node->is_joined();
    if (!is_current) continue;
    require(++times[node] == 1, id + " is twice in a round");
    bool is_down = node->core().running == 0 || node->core().phase == agent::Phase::Finished;
    require(is_down, "a round begins while workers of the last one run on " + id);
  }
}

// When a round is published, no worker of an earlier one lives anywhere, but for those that are
// held.  See may_begin_twice() for another start of the run that knows nothing of the first.
void Oracle::check_all_dead(const Host& host, const std::string& run, const std::string& run_uuid,
                            bool has_all) {
  for (const auto& node : world_.nodes) {
    std::string its = node->round() ? rounds_[*node->round()].run_uuid : "";
    bool is_other_start = its != run_uuid && !host.found_starts.contains(its);
    if (is_other_start && may_begin_twice(has_all)) continue;
    bool is_alive = node->plan().run == run && node->workers_alive() > 0 && !node->is_held();
    require(!is_alive, node->process().name + " still runs workers of an earlier round");
  }
}

// Where the host may change and its machine has forgotten the run, another start of it may begin at
// the endpoint: with all nodes at once, or if the present host's knocks do not come there.  With a
// registry no such start does.  Of several endpoints only the first begins a run, and what it knows
// is lost with its machine only.
bool Oracle::may_begin_twice(bool has_all) const {
  const Scenario& scenario = world_.scenario;
  if (!scenario.has_stand_ins || scenario.has_registry) return false;
  bool is_cut = std::ranges::any_of(scenario.faults, [](const Fault& fault) {
    return fault.kind == FaultKind::Cut || fault.kind == FaultKind::FallApart;
  });
  if (!has_all && !is_cut) return false;
  return scenario.daemons == 0 || std::ranges::any_of(scenario.faults, [&](const Fault& fault) {
           return fault.kind == FaultKind::LoseMachine && fault.target % scenario.machines == 0;
         });
}

void Oracle::goes_on(const Node& node) {
  if (!node.round() || node.workers_alive() == 0) return;
  const PublishedRound& its = rounds_[*node.round()];
  for (std::size_t later = *node.round() + 1; later < rounds_.size(); ++later) {
    auto size = static_cast<int>(rounds_[later].members.size());
    bool may_be_other =
        world_.scenario.has_registry || may_begin_twice(size >= node.plan().settings.max_nodes);
    bool is_other_start = may_be_other && rounds_[later].run_uuid != its.run_uuid;
    require(rounds_[later].run != its.run || is_other_start,
            node.process().name + " goes on with round " + std::to_string(its.number) +
                ", and there is a later one");
  }
}

void Oracle::check_state(const coordinator::State& state) {
  std::size_t up = 0;
  for (const auto& [id, node] : state.nodes) {
    if (node.is_member && !node.is_down && !node.has_succeeded) ++up;
    if (node.join.node_rank) {
      auto holder = state.holders.find(*node.join.node_rank);
      require(holder != state.holders.end() && holder->second == id,
              "two nodes hold --node-rank=" + std::to_string(*node.join.node_rank));
    }
  }
  if (state.phase == Phase::Running || state.phase == Phase::Stopping) {
    require(up == state.up_count, "the members still up are miscounted: " + std::to_string(up) +
                                      ", not " + std::to_string(state.up_count));
  } else if (state.phase == Phase::Gathering) {
    require(up == 0, "a gathering while workers run");
  }
  for (const auto& [id, contender] : state.contenders) {
    require(state.nodes.contains(contender.rival), id + " contends with nobody");
  }
}

// A coordinator does not wait without a reason.
void Oracle::check_waits(Host& host, RunBook& book, const coordinator::State& state) {
  if (world_.is_late) return;
  Duration now = world_.time.now();
  Duration patience = 2 * state.policy.keep_alive_interval + 2 * state.policy.lease() +
                      world_.scenario.grace + kLeaveMargin + seconds(4);
  if (world_.scenario.has_deaf) {
    const int beats = state.policy.keep_alive_max_attempt + 4;
    patience += 2 * (state.policy.lease() + beats * state.policy.keep_alive_interval);
  }
  Duration since_thaw = now - host.process().thawed_at;
  if (host.process().thawed_at > Duration::zero() && since_thaw < patience) {
    book.enough_since.reset();
    return;
  }
  MonoTime mono = world_.mono(host.process().machine);
  for (const auto& [id, node] : state.nodes) {
    require(mono - node.seen <= state.policy.lease() + 2 * state.policy.keep_alive_interval,
            id + " has been silent for too long, and is still waited for");
  }
  // Each loss on the way may cost the lease of the one that was lost.
  book.stops_since = std::max(book.stops_since, state.gathering_since);
  for (const auto& [id, node] : state.nodes)
    if (node.away_at) book.stops_since = std::max(book.stops_since, *node.away_at);
  bool is_stopping = state.phase == Phase::Stopping;
  require(!is_stopping || mono - book.stops_since <= patience + world_.scenario.max_delay * 4,
          "the stop of a round takes too long");
  bool has_enough = state.phase == Phase::Gathering &&
                    static_cast<int>(state.nodes.size()) >= state.settings.min_nodes;
  bool has_lost_one = book.gone.size() != std::exchange(book.gone_before, book.gone.size());
  bool is_blocked = world_.scenario.has_stand_ins || state.former.awaited ||
                    std::ranges::any_of(state.nodes, [](const auto& node) {
                      return node.second.away_at || node.second.leaves_by;
                    });
  if (!has_enough || has_lost_one || is_blocked) return book.enough_since.reset();
  if (!book.enough_since) book.enough_since = now;
  require(now - *book.enough_since <= state.policy.last_call_timeout + seconds(1),
          "there are enough nodes, and no round begins");
}

std::size_t Oracle::index_of(const Node& node, const command::Round& round) const {
  auto found = told_.find({node.process().name, round.number});
  require(found != told_.end(), node.process().name + " is told of a round that it is not in");
  return found->second;
}

bool Oracle::is_whole(std::size_t round) const {
  return std::ranges::all_of(rounds_[round].members,
                             [round](const Node* node) { return node->is_working(round); });
}

// Of nodes that one event stops, none waits for another.
void Oracle::waits(const Node& node, const std::string& why) const {
  world_.trace(node.process().name, "waits: " + why);
  bool is_cancelled = world_.cancelled.contains(&node);
  if (!is_cancelled || !why.ends_with(" was stopped by SIGTERM")) return;
  std::string host = why.substr(0, why.find(' '));
  bool was_waiting = std::ranges::any_of(world_.nodes, [&](const auto& other) {
    return other->plan().host == host && other->signalled_at() &&
           *other->signalled_at() < world_.cancelled_at;
  });
  require(was_waiting,
          node.process().name + " waits for " + host + ", which the same event has stopped");
}

// It was cut off for good.
bool Oracle::is_the_lost(const Node& node) const {
  const Fault& fault = world_.scenario.faults.front();
  return node.was_signalled() ||
         (fault.kind == FaultKind::Cut && fault.target == node.plan().machine);
}

// A fault has hit it, maybe for a while.
bool Oracle::is_of_the_lost(const Node& node) const {
  const std::vector<int>& lost = world_.scenario.minority;
  return std::ranges::find(lost, node.plan().machine) != lost.end();
}

// A node that waits for its first round does not know of the stand-ins.
bool Oracle::had_all_before_the_loss() const {
  Duration lost_at = world_.scenario.faults.front().at;
  const PublishedRound* last = nullptr;
  for (const PublishedRound& round : rounds_) {
    if (round.at < lost_at) last = &round;
  }
  if (last == nullptr || last->members.size() != world_.scenario.nodes.size()) return false;
  Duration known_for = lost_at - last->at;  // to its nodes: it was under way before
  return known_for < world_.scenario.work && known_for > 5 * world_.scenario.max_delay;
}

// After the loss of one node the others have a round soon.
void Oracle::check_one_loss() const {
  const Fault& fault = world_.scenario.faults.front();
  auto next = std::ranges::find_if(
      rounds_, [&](const PublishedRound& round) { return round.at > fault.at; });
  const rendezvous::Policy& policy = world_.scenario.nodes.front().policy;
  Duration needed = seconds(1) + 20 * world_.scenario.max_delay;
  needed += fault.kind == FaultKind::KillAgent ? Duration::zero() : policy.lease();
  // The workers take their grace.
  bool is_host = fault.kind != FaultKind::KillAgent && fault.target == 0 &&
                 !world_.scenario.has_registry;  // there any of them may be
  // It is asked before the stand-ins are tried, and may stand still.
  if (world_.scenario.has_registry) needed += seconds(2);
  if (!is_host || world_.scenario.slow_stop_percent > 0) {
    needed += std::max<Duration>(world_.scenario.grace, seconds(2));
  }
  needed += std::min<Duration>(policy.last_call_timeout, coordinator::kShortLastCall);
  // To a node that came just then it is another host which may have counted on it.
  if (world_.closed_on_nodes) needed += 2 * policy.lease();
  require(next != rounds_.end() && next->at - fault.at <= needed,
          "no round in time after the loss of one node");
}

void Oracle::at_the_end() {
  bool has_loss = world_.scenario.is_one_loss || world_.scenario.is_quorum_chosen;
  bool is_judged = has_loss && had_all_before_the_loss();
  if (is_judged && world_.scenario.is_one_loss) check_one_loss();
  // One that is cut off while the others come to their end finds no host any more.
  bool has_succeeded =
      std::ranges::any_of(world_.nodes, [](const auto& node) { return node->exit_code() == 0; });
  require(has_succeeded || !world_.scenario.is_healed, "all faults have passed, and none succeeds");
  for (const auto& node : world_.nodes) {
    const std::string& name = node->process().name;
    if (node->process().is_alive) {
      world_.violate(name + " never ends: its agent is " + agent::to_string(node->core().phase));
    }
    if (!node->exit_code()) continue;  // killed
    if (node->verdict() && !node->failure() && !node->was_signalled()) {
      require(*node->exit_code() == *node->verdict(), name + " ends with another verdict");
    }
    bool must_succeed = world_.scenario.is_calm || world_.scenario.start_load > Duration::zero() ||
                        world_.scenario.is_begun_anew || world_.scenario.is_undisturbed ||
                        world_.scenario.is_found_again || (is_judged && !is_the_lost(*node)) ||
                        (world_.scenario.is_minority_lost && !is_of_the_lost(*node));
    if (must_succeed) {
      require(*node->exit_code() == 0, name + " failed, and nothing had gone wrong: " +
                                           node->failure().value_or("no reason"));
    }
  }
  require(!world_.scenario.is_undisturbed || rounds_.size() == 1,
          "workers were stopped, and only one ddpd was away at a time");
  if (world_.scenario.start_load > Duration::zero()) {
    require(rounds_.size() <= kMostRoundsUnderLoad,
            "the start of workers has cost " + std::to_string(rounds_.size()) + " rounds");
  }
  if (world_.host == nullptr) return;
  require(world_.host->is_idle(), "nobody is there, and the host still has a run");
  require(world_.host->mailbox_count() == 0, "nobody is there, and " +
                                                 std::to_string(world_.host->mailbox_count()) +
                                                 " mailboxes are not empty");
}

}  // namespace ddprun::sim
