// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/world.h"

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "rendezvous/decide/node_id.h"
#include "tests/sim/host.h"
#include "tests/sim/node.h"

namespace ddprun::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

World::World(Scenario scenario_, bool is_traced_)
    : scenario(std::move(scenario_)),
      random(scenario.seed),
      machines(static_cast<std::size_t>(scenario.machines)),
      oracle(*this),
      majority(*this),
      is_traced(is_traced_) {
  if (!scenario.has_own_clocks) return;
  Random clocks(scenario.seed * 2);
  for (Machine& machine : machines) {
    machine.clock_start = clocks.duration(seconds(1), std::chrono::hours(100));
    machine.clock_ppm = clocks.number(-1000, 1000);
  }
}

// A message under way holds the connection that holds it.
World::~World() {
  for (const std::weak_ptr<Connection>& made : made_wires) {
    Wire wire = made.lock();
    if (wire == nullptr) continue;
    wire->up.messages.clear();
    wire->down.messages.clear();
  }
}

void World::trace(const std::string& who, const std::string& what) const {
  if (!is_traced) return;
  std::printf("%10.4f %-12s %s\n", std::chrono::duration<double>(time.now()).count(), who.c_str(),
              what.c_str());
}

void World::violate(const std::string& what) const {
  char text[48];
  std::snprintf(text, sizeof text,
                "at %.4f s: ", std::chrono::duration<double>(time.now()).count());
  throw Violation(text + what);
}

Process& World::add_process(const std::string& name, int machine) {
  processes_.push_back({.name = name, .machine = machine});
  return processes_.back();
}

Node* World::find(const std::string& node_id) {
  auto found = by_name_.find(rendezvous::coordinator::name_of(node_id));
  return found == by_name_.end() ? nullptr : found->second;
}

// The play.

void World::run() {
  trace("scenario", to_string(scenario));
  if (scenario.has_daemon) start_daemon(0);
  for (int i = 0; i < scenario.daemons; ++i) start_daemon(i);
  to_come_ = static_cast<int>(scenario.nodes.size());
  Duration last_start{};
  for (const NodePlan& plan : scenario.nodes) {
    last_start = std::max(last_start, plan.start);
    time.at(plan.start, [this, plan] { start(plan); });
  }
  for (const Fault& fault : scenario.faults) {
    time.at(fault.at, [this, fault] { strike(fault); });
  }
  bool has_majority = scenario.has_stand_ins && scenario.daemons == 0 && !scenario.has_deaf &&
                      !scenario.is_quorum_chosen && scenario.registry_stalls.empty();
  if (has_majority) watch_majority();
  const rendezvous::Policy& policy = scenario.nodes.front().policy;
  Duration silence{};
  for (const NodePlan& plan : scenario.nodes) silence = std::max(silence, plan.policy.lease());
  Duration round_trip = scenario.grace + silence + policy.last_call_timeout;
  Duration limit = std::max(scenario.faults_end, last_start) + 2 * policy.join_timeout +
                   3 * scenario.read_timeout + 4 * scenario.work + 5 * round_trip + seconds(60);
  // Each hang costs its timeout, the stacks, and what is left to the other nodes.
  if (scenario.has_watches()) limit += 6 * seconds(8 + 20 + 2 * 20 + 7 + 15);
  // A network that is too slow for the silence limit cuts nodes off for ever: the limit of short
  // rounds ends such a run.
  Duration shortest = policy.silence_limit();
  for (const NodePlan& plan : scenario.nodes)
    shortest = std::min(shortest, plan.policy.silence_limit());
  if (shortest < 12 * scenario.max_delay) limit += 2 * rendezvous::coordinator::kProgressWindow;
  constexpr std::uint64_t kMostAtOnce = 100'000;
  while (!is_all_over() && time.run_one(limit)) {
    if (time.steps_at_once() > kMostAtOnce) violate("somebody is busy for ever");
  }
  // The last commands to who is gone.
  Duration over = std::max(time.now(), scenario.faults_end) + 2 * silence + seconds(10);
  if (host != nullptr && is_all_over()) {
    over += rendezvous::runs::kLastCommandAge;
    while (time.run_one(over)) {
    }
  }
  oracle.at_the_end();
}

void World::watch_majority() {
  majority.look();
  time.after(milliseconds(100), [this] { watch_majority(); });
}

bool World::is_all_over() const {
  return to_come_ == 0 &&
         std::ranges::none_of(nodes, [](const auto& node) { return node->process().is_alive; });
}

void World::start(const NodePlan& plan) {
  if (!machines[static_cast<std::size_t>(plan.machine)].is_up) {
    return time.after(seconds(1), [this, plan] { start(plan); });
  }
  --to_come_;
  int pid = ++pids_;
  Process& process = add_process(plan.host + "-" + std::to_string(pid), plan.machine);
  nodes.push_back(std::make_unique<Node>(*this, process, plan, pid));
  by_name_[process.name] = nodes.back().get();
  trace(process.name, "starts");
  nodes.back()->begin();
}

void World::start_daemon(int machine) {
  if (!machines[static_cast<std::size_t>(machine)].is_up)
    return time.after(seconds(1), [this, machine] { start_daemon(machine); });
  Process* daemon = &add_process("ddpd-" + std::to_string(++pids_), machine);
  daemons_[machine] = daemon;
  if (machine == 0) {
    listen(*daemon);
    return;
  }
  stand_in(*daemon, kEndpointPort, 0, [](Host&) {});
}

// The one that has published the last round, or the one that the fault names.
int World::daemon_to_strike(const Fault& fault) const {
  if (fault.target >= 0) return fault.target % std::max(1, scenario.daemons);
  return last_host != nullptr ? last_host->process().machine : 0;
}

Host* World::listen(Process& process) {
  hosts.push_back(std::make_unique<Host>(*this, process));
  host = hosts.back().get();
  trace(process.name, "hosts");
  host->begin();
  return host;
}

Host* World::stand_in(Process& process, std::uint16_t port, std::uint64_t order,
                      const std::function<void(Host&)>& prepare) {
  hosts.push_back(std::make_unique<Host>(*this, process, port, order));
  prepare(*hosts.back());
  stand_ins[{process.machine, port}] = hosts.back().get();
  trace(process.name, "hosts on port " + std::to_string(port));
  hosts.back()->begin();
  return hosts.back().get();
}

rendezvous::HostEntry World::newest_entry() const {
  rendezvous::HostEntry newest = registry.empty() ? rendezvous::HostEntry{} : registry.back();
  for (const rendezvous::HostEntry& entry : registry) {
    if (entry.says_file) newest.file = entry.file;
  }
  return newest;
}

// A call that finds it standing still takes effect when it goes on, and by then its caller has been
// told that there was no answer.
void World::ask_registry(Process& process, Deed work, std::function<void(bool)> done) {
  Duration there = random.duration(Duration(1000), scenario.max_delay);
  Duration back = random.duration(Duration(1000), scenario.max_delay);
  time.to(process, there, [this, &process, back, work = std::move(work), done = std::move(done)] {
    const std::vector<Duration>& stalls = scenario.registry_stalls;
    for (std::size_t i = 0; i + 1 < stalls.size(); i += 2) {
      if (time.now() < stalls[i] || time.now() >= stalls[i + 1]) continue;
      Duration left = stalls[i + 1] - time.now();
      time.to(process, left, [work] { work(); });
      return time.to(process, std::chrono::seconds(2), [done] { done(false); });
    }
    work();
    time.to(process, back, [done] { done(true); });
  });
}

int World::machine_of(const std::optional<Endpoint>& place) {
  return place ? std::stoi(place->host.substr(place->host.rfind('.') + 1)) : 0;
}

Host* World::at(const std::optional<Endpoint>& place) const {
  if (!place || (machine_of(place) == 0 && place->port == kEndpointPort)) return host;
  auto found = stand_ins.find({machine_of(place), place->port});
  return found == stand_ins.end() ? nullptr : found->second;
}

bool World::reaches(int from, int to) const {
  if (from == to) return true;
  const Machine& sender = machines[static_cast<std::size_t>(from)];
  const Machine& receiver = machines[static_cast<std::size_t>(to)];
  return !sender.is_cut_up && !receiver.is_cut_down && sender.part == receiver.part;
}

void World::close(Host* closed) {
  if (closed->is_closed) return;
  closed->is_closed = true;
  bool has_nodes = std::ranges::any_of(
      wires, [&](const Wire& wire) { return wire->host == closed && wire->is_open; });
  if (closed->process().is_alive && has_nodes) closed_on_nodes = true;
  if (host == closed) host = nullptr;
  std::erase_if(stand_ins, [closed](const auto& entry) { return entry.second == closed; });
  if (last_host == closed) last_host = nullptr;
}

bool World::can_connect(int from, int to) const {
  return reaches(from, to) && reaches(to, from) && lets_in(from, to);
}

// The end of a process: the kernel closes what it had open, unless that has gone as well.
void World::exit(Process& process, bool tells) {
  process.is_alive = false;
  process.is_frozen = false;
  process.backlog.clear();
  for (auto& each : hosts) {
    if (&each->process() == &process) close(each.get());
  }
  std::vector<Wire> all = wires;
  for (const Wire& wire : all) {
    if (&wire->client->process() == &process && wire->is_open) close_at_node(wire, tells);
    if (&wire->host->process() == &process) close_at_host(wire, tells);
  }
  std::erase_if(wires, [](const Wire& wire) {
    bool is_over = !wire->is_open && !wire->is_served && wire->up.messages.empty();
    if (is_over) wire->down.messages.clear();  // no reader
    return is_over;
  });
}

// The network.

Duration World::delay(const Wire& wire) {
  std::optional<Duration> started = wire->client->started_at();
  bool is_within = &wire->host->process() == &wire->client->process();
  bool is_busy = started && !is_within && time.now() < *started + scenario.start_load;
  return is_busy ? random.duration(scenario.max_busy_delay / 6, scenario.max_busy_delay)
                 : random.duration(Duration(1000), scenario.max_delay);
}

void World::send_up(const Wire& wire, Deed deed) {
  wire->up.messages.push_back([this, wire, deed = std::move(deed)]() mutable {
    Process& there = wire->host->process();
    bool is_there = there.is_alive && !wire->host->is_closed;
    if (is_there) return time.to(there, Duration::zero(), std::move(deed));
    // Nobody has that connection any more.
    if (machines[static_cast<std::size_t>(there.machine)].is_up) close_at_host(wire);
  });
  wire->up.last = std::max(wire->up.last, time.now() + delay(wire));
  time.at(wire->up.last, [this, wire] { pump(wire, true); });
}

void World::send_down(const Wire& wire, Deed deed) {
  wire->down.messages.push_back([this, wire, deed = std::move(deed)]() mutable {
    if (wire->is_open) time.to(wire->client->process(), Duration::zero(), std::move(deed));
  });
  wire->down.last = std::max(wire->down.last, time.now() + delay(wire));
  time.at(wire->down.last, [this, wire] { pump(wire, false); });
}

void World::pump(const Wire& wire, bool is_up) {
  int there = wire->host->process().machine;
  if (is_up ? !reaches(wire->machine, there) : !reaches(there, wire->machine)) return;
  Pipe& pipe = is_up ? wire->up : wire->down;
  if (pipe.messages.empty()) return;
  Deed deed = std::move(pipe.messages.front());
  pipe.messages.pop_front();
  deed();
}

void World::close_at_node(const Wire& wire, bool tells) {
  if (!wire->is_open) return;
  wire->is_open = false;
  if (tells) send_up(wire, [wire] { wire->host->lost(wire); });
}

void World::close_at_host(const Wire& wire, bool tells) {
  wire->is_served = false;
  if (tells && wire->is_open) {
    send_down(wire, [wire] { wire->client->connection_lost(wire, "it closed the connection"); });
  }
}

void World::heal(int machine) {
  Machine& healed = machines[static_cast<std::size_t>(machine)];
  healed.is_cut_up = healed.is_cut_down = false;
  for (const Wire& wire : wires) {
    if (wire->machine != machine && wire->host->process().machine != machine) continue;
    for (bool is_up : {true, false}) {
      Pipe& pipe = is_up ? wire->up : wire->down;
      Duration resent = time.now() + random.duration(milliseconds(1), milliseconds(900));
      pipe.last = std::max(pipe.last, resent);
      for (std::size_t i = 0; i < pipe.messages.size(); ++i) {
        time.at(pipe.last, [this, wire, is_up] { pump(wire, is_up); });
      }
    }
  }
}

// The faults.

void World::strike(const Fault& fault) {
  trace("fault", to_string(fault));
  Node* node = static_cast<std::size_t>(fault.target) < nodes.size()
                   ? nodes[nodes.size() - 1 - static_cast<std::size_t>(fault.target)].get()
                   : nullptr;
  bool is_there = node != nullptr && node->process().is_alive;
  switch (fault.kind) {
    case FaultKind::KillAgent:
      if (is_there) kill(*node, true, !fault.takes_guardian);
      return;
    case FaultKind::LoseMachine:
      return lose_machine(fault);
    case FaultKind::Signal:
      if (is_there) time.to(node->process(), Duration::zero(), [node] { node->signal(SIGTERM); });
      return;
    case FaultKind::Cancel:
      cancelled_at = time.now();
      for (auto& each : nodes) {
        if (!each->process().is_alive) continue;
        cancelled.insert(each.get());
        Duration delay = random.duration(milliseconds(0), seconds(1));
        Node* target = each.get();
        time.to(target->process(), delay, [target] { target->signal(SIGTERM); });
      }
      return;
    case FaultKind::Reset:
    case FaultKind::HalfOpen:
      if (!is_there || !node->wire()) return;
      if (fault.kind == FaultKind::Reset) {
        Wire wire = node->wire();
        time.to(wire->host->process(), Duration::zero(), [wire] { wire->host->lost(wire); });
      }
      return time.to(node->process(), Duration::zero(), [wire = node->wire(), node, this] {
        if (node->wire() != wire) return;
        node->connection_lost(wire, "connection reset", true);
      });
    case FaultKind::Cut:
      return cut(fault);
    case FaultKind::FallApart:
      return fall_apart(fault);
    case FaultKind::Deafen:
      if (is_there) node->deafen(fault.lasts);
      return;
    case FaultKind::Freeze:
      return freeze(fault);
    case FaultKind::Pause:
      return pause(fault);
    case FaultKind::WallClock:
      machines[static_cast<std::size_t>(fault.target) % machines.size()].wall_jump +=
          random.duration(-std::chrono::hours(1), std::chrono::hours(1));
      return;
    case FaultKind::FreezeHost: {
      auto daemon = daemons_.find(daemon_to_strike(fault));
      if (daemon == daemons_.end() || !daemon->second->is_alive) return;
      return freeze(*daemon->second, fault.lasts);
    }
    case FaultKind::KillHost:
      if (scenario.daemons > 0) {
        int machine = daemon_to_strike(fault);
        auto daemon = daemons_.find(machine);
        if (daemon == daemons_.end() || !daemon->second->is_alive) return;
        trace(daemon->second->name, "is killed");
        exit(*daemon->second, true);
        return time.after(fault.lasts, [this, machine] { start_daemon(machine); });
      }
      if (scenario.has_stand_ins && last_host != nullptr) {
        for (auto& each : nodes) {
          if (&each->process() == &last_host->process()) return kill(*each, true);
        }
      }
      if (host == nullptr) return;
      if (daemons_.contains(0) && daemons_[0]->is_alive) {
        exit(*daemons_[0], true);
        return time.after(random.duration(milliseconds(10), seconds(3)),
                          [this] { start_daemon(0); });
      }
      for (auto& each : nodes) {
        if (&each->process() == &host->process()) return kill(*each, true);
      }
      return;
  }
}

void World::kill(Node& node, bool tells, bool has_guardian) {
  trace(node.process().name, "is killed");
  std::optional<std::size_t> round = node.round();
  bool had_guardian = node.process().is_alive;
  exit(node.process(), tells);
  node.agent_killed(tells && had_guardian && has_guardian);
  if (round && scenario.victims_fail) {
    for (Node* peer : oracle.round(*round).members) peer->peer_lost(*round);
  }
  if (node.plan().comes_back && time.now() < scenario.faults_end) {
    NodePlan plan = node.plan();
    ++to_come_;
    time.after(random.duration(milliseconds(10), seconds(5)), [this, plan] { start(plan); });
  }
}

void World::lose_machine(const Fault& fault) {
  auto index = static_cast<std::size_t>(fault.target) % machines.size();
  if (!machines[index].is_up) return;
  machines[index].is_up = false;
  node_files.erase(static_cast<int>(index));
  std::vector<Node*> lost;
  for (auto& node : nodes) {
    if (node->process().is_alive && node->plan().machine == static_cast<int>(index))
      lost.push_back(node.get());
  }
  for (Node* node : lost) kill(*node, false);
  Duration down = fault.lasts;
  int machine = static_cast<int>(index);
  if (index == 0 || daemons_.contains(machine)) {
    // Run files are lost with the machine.  Where the host may change a container takes its place
    // at once; where it may not, it takes longer to begin anew than any lease.
    run_files.erase(machine);
    for (const NodePlan& plan : scenario.nodes) {
      if (!scenario.has_stand_ins) down = std::max(down, plan.policy.lease());
    }
  }
  if (daemons_.contains(machine) && daemons_[machine]->is_alive) {
    exit(*daemons_[machine], false);
    time.after(seconds(1), [this, machine] { start_daemon(machine); });
  }
  time.after(down, [this, index] { machines[index].is_up = true; });
}

void World::cut(const Fault& fault) {
  int machine = fault.target % static_cast<int>(machines.size());
  if (machine == 0 && !scenario.has_stand_ins) return;
  Machine& hit = machines[static_cast<std::size_t>(machine)];
  hit.is_cut_up |= fault.cuts_up;
  hit.is_cut_down |= fault.cuts_down;
  time.after(fault.lasts, [this, machine] { heal(machine); });
}

// The network falls into two parts.
void World::fall_apart(const Fault& fault) {
  for (std::size_t i = 0; i < machines.size(); ++i) {
    machines[i].part = (static_cast<unsigned>(fault.target) >> (i % 16)) & 1U ? 1 : 0;
  }
  time.after(fault.lasts, [this] {
    trace("world", "is whole again");
    for (Machine& machine : machines) machine.part = 0;
    for (int i = 0; i < static_cast<int>(machines.size()); ++i) {
      const Machine& machine = machines[static_cast<std::size_t>(i)];
      if (!machine.is_cut_up && !machine.is_cut_down) heal(i);
    }
  });
}

void World::freeze(const Fault& fault) {
  Process* target = nullptr;
  if (fault.target == 0 && scenario.daemons == 0 && daemons_.contains(0)) target = daemons_[0];
  if (target == nullptr && static_cast<std::size_t>(fault.target) < nodes.size())
    target = &nodes[static_cast<std::size_t>(fault.target)]->process();
  if (target != nullptr && target->is_alive) freeze(*target, fault.lasts);
}

void World::freeze(Process& target, Duration lasts) {
  trace(target.name, "freezes");
  Timeline::freeze(target);
  time.after(lasts, [this, &target] {
    trace(target.name, "thaws");
    time.thaw(target);
  });
}

// All that runs on a machine, or on all of them, stands still: agents, guardians, workers.
void World::pause(const Fault& fault) {
  bool all = fault.cuts_up && fault.cuts_down;
  int machine = fault.target % static_cast<int>(machines.size());
  std::vector<Process*> paused;
  std::vector<Node*> nodes_paused;
  for (auto& node : nodes) {
    if (!node->process().is_alive || (!all && node->plan().machine != machine)) continue;
    if (node->process().is_frozen) continue;
    nodes_paused.push_back(node.get());
    paused.push_back(&node->process());
  }
  for (auto& [its_machine, daemon] : daemons_) {
    bool is_hit = daemon->is_alive && !daemon->is_frozen && (all || machine == its_machine);
    if (is_hit) paused.push_back(daemon);
  }
  trace("world", all ? "pauses everywhere" : "pauses on machine " + std::to_string(machine));
  for (Process* process : paused) Timeline::freeze(*process);
  for (Node* node : nodes_paused) node->pause();
  time.after(fault.lasts, [this, paused, nodes_paused] {
    trace("world", "goes on");
    for (Node* node : nodes_paused) node->unpause();
    for (Process* process : paused) time.thaw(*process);
  });
}

void World::deliver(int machine, const std::string& message, Duration until,
                    const std::optional<Endpoint>& place) {
  const Machine& from = machines[static_cast<std::size_t>(machine)];
  int there = machine_of(place);
  bool is_cut = !can_connect(machine, there);
  if (!from.is_up || time.now() > until) return;
  Host* host_there = at(place);
  bool is_up = machines[static_cast<std::size_t>(there)].is_up;
  if (host_there == nullptr || is_cut || !is_up || host_there->process().is_frozen) {
    return time.after(milliseconds(100), [this, machine, message, until, place] {
      deliver(machine, message, until, place);
    });
  }
  Process& process = host_there->process();
  time.after(random.duration(Duration(1000), scenario.max_delay),
             [this, host_there, &process, message] {
               if (host_there->is_closed) return;
               time.to(process, Duration::zero(), [host_there, message] {
                 if (!host_there->is_closed) host_there->push(message);
               });
             });
}

bool World::can_knock(Host& from, Host* there) const {
  return there != nullptr && !there->process().is_frozen &&
         can_connect(from.process().machine, there->process().machine);
}

void World::knock(Host& from, const std::optional<Endpoint>& place) {
  if (at(place) == &from) return;
  if (!can_knock(from, at(place))) {
    const int machine = from.process().machine;
    bool is_found = at(place) != nullptr && can_connect(machine, at(place)->process().machine);
    if (place && !is_found) {
      return time.to(from.process(), milliseconds(500), [&from, there = *place] {
        if (!from.is_closed) from.unreached(there);
      });
    }
    if (place || !from.is_in_doubt()) return;
    return time.to(from.process(), milliseconds(500), [&from] {  // it is tried for a while
      if (!from.is_closed) from.endpoint_is_clear();
    });
  }
  knock(from, place.value_or(Host::endpoint()), from.knock(place.value_or(Host::endpoint())));
}

void World::knock(Host& from, const Endpoint& place, const std::optional<std::string>& message) {
  Host* there = at(place);
  if (!message || there == &from || !can_knock(from, there)) return;
  Process& asked = there->process();
  Process& asker = from.process();
  time.after(random.duration(Duration(1000), scenario.max_delay), [=, this, &from, &asked, &asker] {
    if (there->is_closed) return;
    time.to(asked, Duration::zero(), [=, this, &from, &asked, &asker] {
      if (there->is_closed) return;
      std::optional<std::string> answer = there->answer(*message);
      if (!answer || !reaches(asked.machine, asker.machine)) return;
      time.to(asker, random.duration(Duration(1000), scenario.max_delay), [&from, answer] {
        if (!from.is_closed) from.answered(*answer);
      });
    });
  });
}

}  // namespace ddprun::sim
