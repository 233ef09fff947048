// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/scenario.h"

#include <algorithm>
#include <iterator>

#include "tests/sim/random.h"

namespace ddprun::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr FaultKind kKinds[] = {FaultKind::KillAgent, FaultKind::LoseMachine, FaultKind::Signal,
                                FaultKind::Reset,     FaultKind::HalfOpen,    FaultKind::Cut,
                                FaultKind::Freeze,    FaultKind::Pause,       FaultKind::WallClock,
                                FaultKind::KillHost};

int pick_size(Random& random) {
  int die = random.number(1, 100);
  if (die <= 80) return random.number(1, 5);
  if (die <= 97) return random.number(6, 12);
  return random.number(13, 40);
}

rendezvous::Policy make_policy(Random& random) {
  return {.max_restarts = random.number(0, 3),
          .join_timeout = random.duration(seconds(8), seconds(40)),
          .last_call_timeout = random.duration(seconds(0), seconds(4)),
          .keep_alive_interval = random.chance(80) ? milliseconds(1000) : milliseconds(500),
          .keep_alive_max_attempt = random.number(3, 6)};
}

NodePlan make_node(Random& random, int index, const Scenario& scenario,
                   const rendezvous::Settings& settings, const rendezvous::Policy& policy) {
  NodePlan plan{.machine = std::max(0, index - random.number(0, 1)),
                .host = "node" + std::to_string(index),
                .workers = random.chance(70) ? 1 : random.number(1, 4),
                .role = random.chance(85) ? "default" : "other",
                .settings = settings,
                .policy = policy};
  plan.comes_back = random.chance(scenario.is_calm ? 0 : 60);
  bool is_late = !scenario.is_calm && random.chance(25);
  plan.start = random.duration(seconds(0), is_late ? seconds(15) : seconds(1));
  if (index == 0) plan.start = random.duration(seconds(0), milliseconds(200));
  return plan;
}

void disturb_plans(Random& random, Scenario& scenario) {
  bool has_ranks = random.chance(20);
  for (std::size_t i = 0; i < scenario.nodes.size(); ++i) {
    NodePlan& plan = scenario.nodes[i];
    if (has_ranks && random.chance(90)) {
      plan.node_rank = random.chance(90) ? static_cast<int>(i) : random.number(0, 8);
    }
    if (random.chance(3)) plan.settings.max_nodes += 1;
    if (random.chance(3)) plan.policy.max_restarts += 1;
    if (scenario.has_daemon && random.chance(15)) plan.run = "other";
  }
}

// Nodes with a keep-alive of their own, and somebody who starts the same thing twice.  From a
// chance of its own, so that the rest of a seed does not depend on it.
void disturb_more(std::uint64_t seed, Scenario& scenario) {
  Random random(seed * 2 + 2);
  for (NodePlan& plan : scenario.nodes) {
    if (!random.chance(6)) continue;
    plan.policy.keep_alive_interval = random.chance(50) ? milliseconds(200) : seconds(4);
  }
  if (!random.chance(10)) return;
  NodePlan twice = scenario.nodes[random.next() % scenario.nodes.size()];
  twice.start += random.duration(seconds(0), seconds(3));
  scenario.nodes.push_back(std::move(twice));
}

// Half of the calm seeds have what must cost nothing: connections that break, and a pause of all.
// The network is fast enough to connect again within half a silence limit.
void shake(std::uint64_t seed, Scenario& scenario) {
  Random random(seed * 2 + 4);
  if (scenario.max_delay > milliseconds(10) || !random.chance(50)) return;
  auto at = [&] { return seconds(3) + random.duration(seconds(0), scenario.work); };
  for (int left = random.number(0, 3); left > 0; --left) {
    scenario.faults.push_back(
        {.kind = random.chance(50) ? FaultKind::Reset : FaultKind::HalfOpen,
         .at = at(),
         .target = random.number(0, static_cast<int>(scenario.nodes.size()) - 1)});
  }
  if (random.chance(70)) {
    scenario.faults.push_back({.kind = FaultKind::Pause,
                               .at = at(),
                               .lasts = random.duration(milliseconds(10), seconds(20))});
  }
  std::ranges::sort(scenario.faults, {}, &Fault::at);
}

WatchPlan make_watch(Random& random, Duration timeout) {
  WatchPlan watch{.timeout = timeout,
                  .stacks = random.chance(70) ? random.duration(milliseconds(0), seconds(1))
                                              : random.duration(seconds(1), seconds(20)),
                  .has_tools = random.chance(60),
                  .has_python = random.chance(30)};
  if (!watch.has_tools && !watch.has_python) watch.stacks = Duration::zero();
  return watch;
}

// A fifteenth of the seeds has nodes that watch for hangs.  In the calm ones nothing hangs; in half
// of the others nothing but hangs goes wrong, so that it is known who is to blame.
void add_hangs(std::uint64_t seed, Scenario& scenario) {
  if (seed % 15 != 2) return;
  Random random(seed * 2 + 5);
  Duration timeout = random.duration(seconds(2), seconds(8));
  Duration stacks = random.duration(milliseconds(0), seconds(random.chance(70) ? 1 : 10));
  scenario.are_hangs_judged = !scenario.is_calm && random.chance(50);
  scenario.hang_looks_like_waiting = random.chance(50);
  scenario.waits_spin = random.chance(15);
  scenario.hang_percent = scenario.is_calm ? 0 : random.number(5, 60);
  scenario.hangs_last = scenario.are_hangs_judged || random.chance(30);
  for (NodePlan& plan : scenario.nodes) {
    plan.watch = make_watch(
        random, random.chance(15) ? Duration::zero() : random.duration(seconds(2), seconds(8)));
    if (!scenario.are_hangs_judged) continue;
    // One setting for all, and stacks that take at most twice as long as another's.
    plan.watch = {.timeout = timeout,
                  .stacks = stacks + random.duration(Duration::zero(), stacks),
                  .has_tools = true,
                  .has_python = random.chance(30)};
  }
  if (scenario.are_hangs_judged) {
    scenario.faults.clear();
    scenario.failing_percent = scenario.no_start_percent = 0;
  }
  if (!scenario.is_calm && random.chance(25)) {
    scenario.faults.push_back(
        {.kind = FaultKind::Cancel, .at = random.duration(seconds(2), scenario.faults_end)});
    std::ranges::sort(scenario.faults, {}, &Fault::at);
  }
}

// A fortieth of the seeds has long leases, and agents that stand still while they leave.
void freeze_leaving(std::uint64_t seed, Scenario& scenario) {
  if (seed % 40 != 12) return;
  Random random(seed * 2 + 6);
  scenario.are_hangs_judged = false;  // an agent that stands still sees no hang
  scenario.grace = random.duration(milliseconds(500), seconds(2));
  scenario.slow_stop_percent = 60;
  Duration lease_grace = random.duration(seconds(6), seconds(20));
  for (NodePlan& plan : scenario.nodes) plan.policy.lease_grace = lease_grace;
  for (int left = random.number(1, 3); left > 0; --left) {
    Fault signal{.kind = FaultKind::Signal,
                 .at = random.duration(seconds(2), scenario.faults_end),
                 .target = random.number(0, static_cast<int>(scenario.nodes.size()) - 1)};
    Fault freeze = signal;
    freeze.kind = FaultKind::Freeze;
    freeze.at += random.duration(milliseconds(1), scenario.grace);
    freeze.lasts = random.duration(seconds(5), seconds(20));
    scenario.faults.push_back(signal);
    scenario.faults.push_back(freeze);
  }
  std::ranges::sort(scenario.faults, {}, &Fault::at);
}

// In a fiftieth of the seeds nothing goes wrong, but each start of workers keeps the machines so
// busy that their messages are late.
void overload(std::uint64_t seed, Scenario& scenario) {
  if (seed % 50 != 41) return;
  Random random(seed * 2 + 7);
  scenario.faults.clear();
  scenario.failing_percent = scenario.no_start_percent = scenario.slow_stop_percent = 0;
  scenario.hang_percent = 0;
  scenario.are_hangs_judged = scenario.victims_fail = false;
  scenario.has_wills = true;
  scenario.max_delay = milliseconds(2);
  scenario.start_load = random.duration(seconds(5), seconds(8));
  scenario.max_busy_delay = random.duration(milliseconds(1500), seconds(3));
  scenario.work = random.duration(seconds(10), seconds(40));
  if (scenario.nodes.size() < 2) scenario.nodes.push_back(scenario.nodes.front());
  int size = static_cast<int>(scenario.nodes.size());
  for (int i = 0; i < size; ++i) {
    NodePlan& plan = scenario.nodes[static_cast<std::size_t>(i)];
    plan.machine = i;
    plan.host = "node" + std::to_string(i);
    plan.run = "job";
    plan.node_rank.reset();
    plan.watch = {};
    plan.start = random.duration(seconds(0), seconds(1));
    plan.settings = {.min_nodes = std::max(1, size - 1), .max_nodes = size};
    plan.policy = {.join_timeout = seconds(60), .last_call_timeout = seconds(2)};
  }
  scenario.machines = size;
}

// A sixteenth of the seeds is cancelled, as by scancel.
void add_cancel(std::uint64_t seed, Scenario& scenario) {
  if (seed % 16 != 5) return;
  Random random(seed * 2 + 3);
  scenario.faults.push_back(
      {.kind = FaultKind::Cancel, .at = random.duration(seconds(2), scenario.faults_end)});
}

Fault make_fault(Random& random, FaultKind kind, const Scenario& scenario) {
  Fault fault{.kind = kind,
              .at = random.duration(milliseconds(50), scenario.faults_end),
              .lasts = random.chance(50) ? random.duration(milliseconds(10), seconds(3))
                                         : random.duration(seconds(3), seconds(14))};
  fault.lasts = std::min(fault.lasts, scenario.faults_end - fault.at + seconds(1));
  fault.target = random.number(0, static_cast<int>(scenario.nodes.size()) - 1);
  int direction = random.number(0, 3);
  fault.cuts_up = direction != 1;
  fault.cuts_down = direction != 2;
  return fault;
}

void add_faults(Random& random, Scenario& scenario, int most) {
  std::vector<FaultKind> kinds;
  for (FaultKind kind : kKinds) {
    bool is_rare = kind == FaultKind::KillHost || kind == FaultKind::Signal;
    if (random.chance(is_rare ? 12 : 35)) kinds.push_back(kind);
  }
  if (kinds.empty()) return;
  for (int left = random.number(1, most); left > 0; --left) {
    FaultKind kind = kinds[random.next() % kinds.size()];
    scenario.faults.push_back(make_fault(random, kind, scenario));
  }
  std::ranges::sort(scenario.faults, {}, &Fault::at);
}

// One machine, in one of the ways in which it can be lost.
void lose_one(Random& random, Scenario& scenario) {
  scenario.is_one_loss = true;
  scenario.work += seconds(10);
  int size = static_cast<int>(scenario.nodes.size());
  int lost = random.chance(60) ? 0 : random.number(1, size - 1);
  for (NodePlan& plan : scenario.nodes) {
    plan.comes_back = false;
    plan.settings.min_nodes = std::min(plan.settings.min_nodes, size - 1);
    plan.policy.join_timeout = seconds(40);
    plan.policy.max_restarts = 9;  // of workers that fail since their peer is gone
  }
  constexpr FaultKind kLosses[] = {FaultKind::KillAgent, FaultKind::LoseMachine, FaultKind::Cut};
  Fault fault{.kind = kLosses[random.number(0, 2)],
              .at = seconds(3) + random.duration(seconds(0), seconds(3)),
              .lasts = std::chrono::hours(10),
              .target = lost};
  // Agents are counted from the last one that was started.
  if (fault.kind == FaultKind::KillAgent) fault.target = size - 1 - lost;
  scenario.faults = {fault};
  scenario.faults_end = fault.at;
}

// Cuts, partitions and standstills, with time to go on after them.
void heal_all(Random& random, Scenario& scenario) {
  scenario.is_healed = true;
  scenario.victims_fail = false;
  scenario.work += seconds(6);
  int size = static_cast<int>(scenario.nodes.size());
  for (NodePlan& plan : scenario.nodes) {
    plan.comes_back = false;
    plan.settings.max_nodes = size;
    plan.policy.join_timeout = seconds(90);
    plan.policy.last_call_timeout = seconds(2);
    plan.policy.max_restarts = 9;
  }
  constexpr FaultKind kPassing[] = {FaultKind::Cut, FaultKind::Freeze, FaultKind::Pause,
                                    FaultKind::Reset, FaultKind::FallApart};
  for (int left = random.number(1, 6); left > 0; --left) {
    Fault fault = make_fault(random, kPassing[random.next() % std::size(kPassing)], scenario);
    fault.at = std::max<Duration>(fault.at, seconds(5));
    if (fault.kind == FaultKind::FallApart) fault.target = random.number(1, 65534);
    scenario.faults.push_back(fault);
  }
  std::ranges::sort(scenario.faults, {}, &Fault::at);
}

// Agents that are killed with their guardians.
void kill_without_a_word(std::uint64_t seed, Scenario& scenario) {
  Random random(seed * 2 + 8);
  int size = static_cast<int>(scenario.nodes.size());
  if (random.chance(60)) {
    for (NodePlan& plan : scenario.nodes) plan.host = "node";
  }
  for (NodePlan& plan : scenario.nodes) plan.comes_back = true;
  if (random.chance(25)) {
    scenario.is_begun_anew = true;
    scenario.victims_fail = false;
    scenario.work += seconds(10);
    scenario.faults.clear();
    for (NodePlan& plan : scenario.nodes) {
      plan.settings = {.min_nodes = size, .max_nodes = size};
      plan.policy.join_timeout = seconds(60);
      plan.policy.max_restarts = 9;
    }
    Duration at = seconds(3) + random.duration(seconds(0), seconds(3));
    // By the places that they have before any is started again.
    for (int target = 0; target < size; ++target) {
      scenario.faults.push_back(
          {.kind = FaultKind::KillAgent, .at = at, .target = target, .takes_guardian = true});
    }
    scenario.faults_end = at + seconds(1);
    return;
  }
  for (int left = random.number(1, 5); left > 0; --left) {
    scenario.faults.push_back(make_fault(random, FaultKind::KillAgent, scenario));
  }
  for (Fault& fault : scenario.faults) {
    if (fault.kind == FaultKind::KillAgent) fault.takes_guardian = random.chance(70);
  }
  std::ranges::sort(scenario.faults, {}, &Fault::at);
}

// As many machines lose their power, within a second, as `--rdzv-conf quorum` allows.
void lose_all_but_quorum(Random& random, Scenario& scenario) {
  scenario.is_quorum_chosen = true;
  scenario.work += seconds(10);
  int size = static_cast<int>(scenario.nodes.size());
  int quorum = random.number(1, size / 2);
  for (NodePlan& plan : scenario.nodes) {
    plan.comes_back = false;
    plan.settings = {.min_nodes = 1, .max_nodes = size};
    plan.policy.quorum = quorum;
    plan.policy.join_timeout = seconds(60);
    plan.policy.max_restarts = 9;
  }
  Duration at = seconds(3) + random.duration(seconds(0), seconds(3));
  int spared = random.number(0, size - 1);  // the first that is
  for (int i = 0; i < size - quorum; ++i) {
    scenario.faults.push_back({.kind = FaultKind::LoseMachine,
                               .at = at + random.duration(seconds(0), seconds(1)),
                               .lasts = std::chrono::hours(10),
                               .target = (spared + quorum + i) % size});
  }
  std::ranges::sort(scenario.faults, {}, &Fault::at);
  scenario.faults_end = scenario.faults.back().at;
}

void stall_registry(std::uint64_t seed, Scenario& scenario) {
  Random random(seed * 2 + 5);
  if (random.chance(50)) return;
  Duration at = random.duration(milliseconds(0), seconds(8));
  for (int left = random.number(1, 3); left > 0; --left) {
    // All nodes come in the first seconds, and do not look for a host for ever.
    bool is_early = at < seconds(5);
    Duration end = at + random.duration(milliseconds(100), seconds(is_early ? 4 : 10));
    scenario.registry_stalls.insert(scenario.registry_stalls.end(), {at, end});
    at = end + random.duration(milliseconds(100), seconds(10));
  }
}

// Several ddpds, on machines of their own or beside nodes.
void add_daemons(std::uint64_t seed, Scenario& scenario) {
  Random random(seed * 2 + 9);
  scenario.daemons = random.chance(70) ? 2 : 3;
  bool have_own_machines = random.chance(60);
  if (have_own_machines) {
    for (NodePlan& plan : scenario.nodes) plan.machine += scenario.daemons;
    scenario.machines += scenario.daemons;
  }
  scenario.machines = std::max(scenario.machines, scenario.daemons);
  for (NodePlan& plan : scenario.nodes) {
    for (int i = 0; i < scenario.daemons; ++i) {
      plan.settings.endpoints.push_back({.host = "10.0.0." + std::to_string(i), .port = 29400});
    }
  }
}

// One ddpd is killed, or another one stands still: the workers go on, however often it comes.
void lose_a_daemon(std::uint64_t seed, Scenario& scenario) {
  Random random(seed * 2 + 10);
  scenario.is_undisturbed = true;
  scenario.victims_fail = false;
  scenario.max_delay = milliseconds(2);
  scenario.slow_stop_percent = 0;
  int size = static_cast<int>(scenario.nodes.size());
  for (NodePlan& plan : scenario.nodes) {
    plan.settings.min_nodes = plan.settings.max_nodes = size;
    plan.comes_back = false;
    plan.policy.keep_alive_interval = seconds(1);
    plan.policy.keep_alive_max_attempt = 8;
    plan.policy.join_timeout = seconds(60);
  }
  scenario.work = random.duration(seconds(60), seconds(70));
  scenario.faults.clear();
  Duration at = seconds(5) + random.duration(seconds(0), seconds(3));
  for (int left = random.number(1, 3); left > 0; --left) {
    bool is_killed = random.chance(60);
    scenario.faults.push_back(
        {.kind = is_killed ? FaultKind::KillHost : FaultKind::FreezeHost,
         .at = at,
         .lasts = random.duration(milliseconds(10), seconds(10)),
         .target = random.chance(80) ? -1 : random.number(0, scenario.daemons - 1)});
    at += seconds(14) + random.duration(seconds(0), seconds(4));
  }
  scenario.faults_end = at;
}

Scenario make_stand_in_scenario(std::uint64_t seed) {
  Random random(seed * 2 + 1);
  Scenario scenario{.seed = seed};
  scenario.has_stand_ins = true;
  scenario.has_own_clocks = Random(seed * 2).chance(40);
  scenario.victims_fail = random.chance(30);
  scenario.slow_stop_percent = random.chance(20) ? 15 : 0;
  scenario.faults_end = random.duration(seconds(10), seconds(40));
  scenario.work = random.duration(seconds(2), seconds(20));
  scenario.grace = random.chance(85) ? random.duration(milliseconds(500), seconds(6))
                                     : random.duration(seconds(15), seconds(25));
  scenario.read_timeout = random.duration(seconds(5), seconds(20));
  scenario.max_delay = random.chance(70) ? milliseconds(2) : milliseconds(60);
  int size = random.chance(90) ? random.number(2, 6) : random.number(7, 12);
  bool has_daemons = seed >= kFirstDaemonsSeed;
  scenario.has_registry = seed >= kFirstRegistrySeed && !has_daemons;
  if (scenario.has_registry) stall_registry(seed, scenario);
  bool is_quorum_chosen = seed >= kFirstQuorumSeed && seed < kFirstKilledSeed;
  if (is_quorum_chosen) size = std::min(size, 9);  // so that one of the stand-ins is spared
  bool has_kills = seed >= kFirstKilledSeed && !scenario.has_registry && !has_daemons;
  bool is_one_loss = !is_quorum_chosen && !has_kills && !has_daemons && random.chance(25);
  if (is_one_loss) size = std::max(size, 3);
  int most = is_one_loss ? size : std::max(1, size - (random.chance(20) ? 1 : 0));
  int least = std::max(1, most - random.number(0, 4));
  rendezvous::Settings settings{.min_nodes = least, .max_nodes = most};
  rendezvous::Policy policy = make_policy(random);
  policy.join_timeout = random.duration(seconds(20), seconds(40));
  policy.keep_alive_max_attempt = random.number(5, 7);
  for (int i = 0; i < size; ++i) {
    NodePlan plan = make_node(random, i, scenario, settings, policy);
    if (is_one_loss || is_quorum_chosen) plan.machine = i;
    plan.start = random.duration(seconds(0), milliseconds(i == 0 ? 100 : 900));
    scenario.nodes.push_back(plan);
    scenario.machines = std::max(scenario.machines, plan.machine + 1);
  }
  if (has_daemons) {
    add_daemons(seed, scenario);
    if (seed % 4 == 1) {
      lose_a_daemon(seed, scenario);
      return scenario;
    }
  }
  if (is_quorum_chosen) {
    lose_all_but_quorum(random, scenario);
    return scenario;
  }
  if (is_one_loss) {
    lose_one(random, scenario);
    return scenario;
  }
  if (!has_kills && random.chance(25)) {
    heal_all(random, scenario);
    scenario.registry_stalls.clear();
    return scenario;
  }
  constexpr FaultKind kStandInKinds[] = {
      FaultKind::KillAgent, FaultKind::LoseMachine, FaultKind::Cut,   FaultKind::Freeze,
      FaultKind::Pause,     FaultKind::KillHost,    FaultKind::Reset, FaultKind::FallApart};
  std::vector<FaultKind> kinds;
  for (FaultKind kind : kStandInKinds) {
    if (random.chance(40)) kinds.push_back(kind);
  }
  if (kinds.empty()) kinds.push_back(FaultKind::FallApart);
  if (has_daemons && random.chance(60)) kinds.push_back(FaultKind::KillHost);
  if (has_daemons && random.chance(60)) kinds.push_back(FaultKind::FreezeHost);
  for (int left = random.number(1, 6); left > 0; --left) {
    Fault fault = make_fault(random, kinds[random.next() % kinds.size()], scenario);
    if (fault.kind == FaultKind::FallApart) fault.target = random.number(1, 65534);
    bool is_of_host = fault.kind == FaultKind::KillHost || fault.kind == FaultKind::FreezeHost;
    if (is_of_host && has_daemons)
      fault.target = random.chance(60) ? -1 : random.number(0, scenario.daemons - 1);
    bool hits_a_machine = fault.kind == FaultKind::Cut || fault.kind == FaultKind::LoseMachine;
    if (hits_a_machine && has_daemons) fault.target = random.number(0, scenario.machines - 1);
    scenario.faults.push_back(fault);
  }
  // While they come: each part may begin the run.
  if (scenario.has_registry && random.chance(60)) {
    scenario.faults.push_back({.kind = FaultKind::FallApart,
                               .at = random.duration(milliseconds(50), milliseconds(900)),
                               .lasts = random.duration(seconds(5), seconds(25)),
                               .target = random.number(1, 65534)});
  }
  std::ranges::sort(scenario.faults, {}, &Fault::at);
  if (has_kills) kill_without_a_word(seed, scenario);
  return scenario;
}

// Whatever else goes wrong while the endpoint's machine is gone, for good or for a while.
void disturb_search(Random& random, Scenario& scenario) {
  scenario.is_found_again = false;
  scenario.victims_fail = random.chance(30);
  scenario.work = random.duration(seconds(3), seconds(30));
  scenario.faults_end = seconds(45);
  if (random.chance(40)) {  // the loss of an agent ends the run, and its host stays for a while
    scenario.victims_fail = true;
    scenario.slow_stop_percent = 60;
    scenario.grace = seconds(8);
    for (NodePlan& plan : scenario.nodes) plan.policy.max_restarts = 0;
  }
  bool is_for_good = random.chance(60);
  scenario.nodes.front().comes_back = !is_for_good;
  scenario.faults = {
      {.kind = FaultKind::LoseMachine,
       .at = seconds(2) + random.duration(seconds(0), seconds(8)),
       .lasts = is_for_good ? std::chrono::hours(10) : random.duration(seconds(5), seconds(40)),
       .target = 0}};
  constexpr FaultKind kOthers[] = {FaultKind::KillAgent, FaultKind::KillAgent,  FaultKind::KillHost,
                                   FaultKind::Signal,    FaultKind::Cut,        FaultKind::Freeze,
                                   FaultKind::FallApart, FaultKind::LoseMachine};
  for (int left = random.number(2, 7); left > 0; --left) {
    Fault fault = make_fault(random, kOthers[random.next() % std::size(kOthers)], scenario);
    fault.at = std::max<Duration>(fault.at, seconds(3));
    fault.takes_guardian = random.chance(30);
    if (fault.kind == FaultKind::FallApart) fault.target = random.number(1, 65534);
    scenario.faults.push_back(fault);
  }
  std::ranges::sort(scenario.faults, {}, &Fault::at);
}

// Of nodes that can all host, and work for so long that machines can be lost meanwhile.
Scenario make_loss_scenario(Random& random, std::uint64_t seed) {
  Scenario scenario{.seed = seed};
  scenario.has_stand_ins = true;
  scenario.has_own_clocks = random.chance(40);
  scenario.grace = random.duration(milliseconds(500), seconds(6));
  scenario.read_timeout = random.duration(seconds(15), seconds(30));
  scenario.max_delay = random.chance(70) ? milliseconds(2) : milliseconds(60);
  scenario.work = seconds(70);
  return scenario;
}

// The agent on a machine is killed; by the order in which they were started, the last one first.
void kill_agent(Random& random, Scenario& scenario, Duration at, int target) {
  scenario.faults.push_back({.kind = FaultKind::KillAgent,
                             .at = at,
                             .target = target,
                             .takes_guardian = random.chance(30)});
  scenario.faults_end = at + seconds(1);
}

// Two more nodes than there is room for: one of them takes the place of the first host, and the
// other one is in no round.  Both are killed and started again.
void fill_up(std::uint64_t seed, Scenario& scenario) {
  Random random(seed * 2 + 11);
  int size = static_cast<int>(scenario.nodes.size());
  for (int i = 0; i < 2; ++i) {
    NodePlan plan = scenario.nodes.back();
    plan.machine = size + i;
    plan.host = "node" + std::to_string(size + i);
    plan.start = milliseconds(1500) + random.duration(milliseconds(0), seconds(1));
    scenario.nodes.push_back(plan);
  }
  scenario.machines += 2;
  Duration at = scenario.faults.front().at;
  scenario.faults.resize(1);
  for (int target : {0, 2}) {
    at += seconds(20) + random.duration(seconds(0), seconds(4));
    kill_agent(random, scenario, at, target);
  }
}

// No node is left that an agent could ask at the endpoint.
Scenario make_found_again_scenario(std::uint64_t seed) {
  Random random(seed * 2 + 1);
  Scenario scenario = make_loss_scenario(random, seed);
  scenario.is_found_again = true;
  int size = random.number(3, 6);
  scenario.machines = size;
  rendezvous::Policy policy = make_policy(random);
  policy.max_restarts = 9;
  policy.join_timeout = seconds(60);
  policy.keep_alive_max_attempt = random.number(5, 7);
  for (int i = 0; i < size; ++i) {
    NodePlan plan = make_node(random, i, scenario,
                              {.min_nodes = random.number(1, size - 1), .max_nodes = size}, policy);
    plan.settings.min_nodes =
        i == 0 ? plan.settings.min_nodes : scenario.nodes.front().settings.min_nodes;
    plan.machine = i;
    plan.start = milliseconds(40 * i) + random.duration(milliseconds(0), milliseconds(30));
    plan.comes_back = i > 0;
    scenario.nodes.push_back(plan);
  }
  Duration at = seconds(4) + random.duration(seconds(0), seconds(3));
  scenario.faults.push_back(
      {.kind = FaultKind::LoseMachine, .at = at, .lasts = std::chrono::hours(10), .target = 0});
  at += seconds(20) + random.duration(seconds(0), seconds(4));
  for (int left = random.number(1, 2); left > 0; --left) {
    kill_agent(random, scenario, at, random.number(0, size - 2));  // not the first host
    at += seconds(20) + random.duration(seconds(0), seconds(4));
  }
  if (seed % 2 == 1) disturb_search(random, scenario);
  if (seed % 8 == 6) fill_up(seed, scenario);
  return scenario;
}

// A machine that is lost with all that is on it, or is no more reached, or stands still.
Fault lose_machine_of(Random& random, int machine, int size) {
  constexpr FaultKind kLosses[] = {FaultKind::KillAgent, FaultKind::LoseMachine, FaultKind::Cut,
                                   FaultKind::Cut,       FaultKind::Pause,       FaultKind::Freeze};
  Fault fault{.kind = kLosses[random.number(0, 5)], .target = machine};
  bool stands_still = fault.kind == FaultKind::Pause || fault.kind == FaultKind::Freeze;
  bool is_for_good = !stands_still && random.chance(60);
  fault.lasts =
      is_for_good ? std::chrono::hours(10) : random.duration(milliseconds(500), seconds(40));
  int direction = random.number(0, 3);
  fault.cuts_up = direction != 1;
  fault.cuts_down = direction != 2;
  if (fault.kind == FaultKind::Pause) fault.cuts_up = false;  // not everywhere
  if (fault.kind == FaultKind::LoseMachine) fault.lasts = std::chrono::hours(10);
  fault.takes_guardian = random.chance(30);
  // By the order in which they were started, the last one first; none is started again.
  if (fault.kind == FaultKind::KillAgent) fault.target = size - 1 - machine;
  return fault;
}

// Some of the machines are lost, together or one after the other, and some of these again and
// again.
Scenario make_minority_scenario(std::uint64_t seed) {
  Random random(seed * 2 + 1);
  Scenario scenario = make_loss_scenario(random, seed);
  scenario.is_minority_lost = true;
  scenario.slow_stop_percent = random.chance(20) ? 15 : 0;
  int size = random.number(3, 8);
  scenario.machines = size;
  rendezvous::Policy policy = make_policy(random);
  policy.max_restarts = 9;
  policy.join_timeout = seconds(90);
  policy.keep_alive_max_attempt = random.number(5, 7);
  const int least = random.number(1, size / 2 + 1);
  for (int i = 0; i < size; ++i) {
    NodePlan plan = make_node(random, i, scenario, {.min_nodes = least, .max_nodes = size}, policy);
    plan.machine = i;
    plan.start = milliseconds(40 * i) + random.duration(milliseconds(0), milliseconds(30));
    plan.comes_back = false;
    scenario.nodes.push_back(plan);
  }
  if (seed >= kFirstClosedSeed) scenario.closed_machine = Random(seed * 2 + 12).number(1, size - 1);
  const int lost = random.number(1, (size - 1) / 2);
  std::vector<int>& minority = scenario.minority;
  if (random.chance(60)) minority.push_back(0);
  while (static_cast<int>(minority.size()) < lost) {
    int machine = random.number(0, size - 1);
    if (std::ranges::find(minority, machine) == minority.end()) minority.push_back(machine);
  }
  Duration at = seconds(3) + random.duration(seconds(0), seconds(3));
  const Duration spread = random.chance(60) ? seconds(1) : seconds(25);
  int times = random.chance(70) ? 1 : random.number(2, 3);
  for (int machine : minority) {
    for (int i = 0; i < times; ++i) {
      Fault fault = lose_machine_of(random, machine, size);
      fault.at = at + random.duration(Duration::zero(), i == 0 ? spread : seconds(30));
      scenario.faults.push_back(fault);
    }
  }
  std::ranges::sort(scenario.faults, {}, &Fault::at);
  for (const Fault& fault : scenario.faults) {
    bool passes = fault.lasts < std::chrono::hours(1);
    scenario.faults_end =
        std::max(scenario.faults_end, fault.at + (passes ? fault.lasts : Duration::zero()));
  }
  return scenario;
}

// In a tenth of the seeds the loss, or one more fault, is a SIGTERM, mostly to the first host. From
// a chance of its own, so that the rest of a seed does not depend on it.
void stop_one(std::uint64_t seed, Scenario& scenario) {
  bool is_judged = scenario.is_healed || scenario.is_quorum_chosen || scenario.is_begun_anew ||
                   scenario.is_undisturbed;
  if (seed % 10 != 4 || is_judged) return;
  Random random(seed * 2 + 8);
  int size = static_cast<int>(scenario.nodes.size());
  int stopped = random.chance(60) ? 0 : random.number(0, size - 1);
  Fault signal{.kind = FaultKind::Signal,
               .at = random.duration(seconds(2), scenario.faults_end),
               .target = size - 1 - stopped};  // counted from the last that was started
  if (scenario.is_one_loss) {
    signal.at = scenario.faults.front().at;
    scenario.faults.clear();
  }
  scenario.faults.push_back(signal);
  std::ranges::sort(scenario.faults, {}, &Fault::at);
}

// Where nothing is judged by what else goes wrong.
void deafen(std::uint64_t seed, Scenario& scenario) {
  bool is_judged = scenario.is_calm || scenario.is_begun_anew ||
                   scenario.start_load > Duration::zero() || scenario.is_one_loss ||
                   scenario.is_healed || scenario.is_quorum_chosen || scenario.are_hangs_judged ||
                   scenario.is_undisturbed;
  if (is_judged) return;
  scenario.has_deaf = true;
  Random random(seed * 2 + 10);
  for (int left = random.number(1, 2); left > 0; --left) {
    Fault fault = make_fault(random, FaultKind::Deafen, scenario);
    fault.lasts = random.duration(seconds(4), seconds(60));
    scenario.faults_end = std::max(scenario.faults_end, fault.at + fault.lasts);
    scenario.faults.push_back(fault);
  }
  std::ranges::sort(scenario.faults, {}, &Fault::at);
}

}  // namespace

Scenario make_scenario(std::uint64_t seed, int nodes) {
  if (seed >= kFirstMinoritySeed) return make_minority_scenario(seed);
  if (seed >= kFirstFoundSeed) return make_found_again_scenario(seed);
  if (seed >= kFirstDeafSeed) {
    constexpr std::uint64_t kFirst[] = {0, kFirstStandInSeed, kFirstDaemonsSeed};
    std::uint64_t number = seed - kFirstDeafSeed;
    Scenario scenario = make_scenario(kFirst[number % 3] + number / 3, nodes);
    deafen(seed, scenario);
    return scenario;
  }
  if (seed >= kFirstWaitSeed) {
    std::uint64_t number = (seed - kFirstWaitSeed) / 2;
    Scenario scenario = make_scenario(seed % 2 == 0 ? number : kFirstStandInSeed + number, nodes);
    scenario.waits_percent = 60;
    return scenario;
  }
  if (seed >= kFirstStandInSeed) {
    Scenario scenario = make_stand_in_scenario(seed);
    stop_one(seed, scenario);
    return scenario;
  }
  Random random(seed * 2 + 1);
  Scenario scenario{.seed = seed};
  scenario.is_calm = random.chance(10);
  scenario.has_daemon = random.chance(40);
  scenario.has_wills = random.chance(85);
  scenario.victims_fail = !scenario.is_calm && random.chance(40);
  scenario.failing_percent = !scenario.is_calm && random.chance(60) ? random.number(1, 25) : 0;
  scenario.slow_stop_percent = random.chance(30) ? 15 : 0;
  scenario.no_start_percent = !scenario.is_calm && random.chance(5) ? 5 : 0;
  scenario.faults_end = random.duration(seconds(10), seconds(30));
  scenario.work = random.duration(milliseconds(500), seconds(15));
  if (scenario.is_calm) scenario.work += seconds(2);  // for everybody to come before it is over
  scenario.grace = random.chance(85) ? random.duration(milliseconds(500), seconds(6))
                                     : random.duration(seconds(15), seconds(25));
  scenario.read_timeout = random.duration(seconds(5), seconds(20));
  scenario.max_delay = random.chance(70) ? milliseconds(2) : milliseconds(120);

  int size = nodes > 0 ? nodes : pick_size(random);
  int most = std::max(1, size - (random.chance(30) ? random.number(0, 2) : 0));
  int least = std::max(1, most - (random.chance(70) ? random.number(0, 3) : 0));
  if (scenario.is_calm) most = size;
  if (nodes > 0) least = std::max(1, most / 2);
  rendezvous::Settings settings{.min_nodes = least, .max_nodes = most};
  rendezvous::Policy policy = make_policy(random);
  for (int i = 0; i < size; ++i) {
    scenario.nodes.push_back(make_node(random, i, scenario, settings, policy));
    scenario.machines = std::max(scenario.machines, scenario.nodes.back().machine + 1);
  }
  if (nodes > 0) {
    for (NodePlan& plan : scenario.nodes) plan.start = std::min<Duration>(plan.start, seconds(1));
    scenario.faults_end = seconds(10);
    scenario.failing_percent = 0;
  }
  if (scenario.is_calm && nodes == 0) shake(seed, scenario);
  if (scenario.is_calm && nodes == 0) add_hangs(seed, scenario);
  if (!scenario.is_calm) {
    if (nodes == 0) disturb_plans(random, scenario);
    add_faults(random, scenario, nodes > 0 ? 3 : 8);
    if (nodes == 0) disturb_more(seed, scenario);
    if (nodes == 0) add_hangs(seed, scenario);
    if (nodes == 0) add_cancel(seed, scenario);
    if (nodes == 0) freeze_leaving(seed, scenario);
    if (nodes == 0) overload(seed, scenario);
  }
  return scenario;
}

bool Scenario::has_watches() const {
  return std::ranges::any_of(
      nodes, [](const NodePlan& plan) { return plan.watch.timeout != Duration::zero(); });
}

std::string to_string(const Fault& fault) {
  static constexpr const char* kNames[] = {"kill agent", "lose machine", "signal",      "reset",
                                           "half-open",  "cut",          "freeze",      "pause",
                                           "wall clock", "kill host",    "freeze host", "cancel",
                                           "fall apart", "deafen"};
  std::string text = std::string(kNames[static_cast<std::size_t>(fault.kind)]) + " " +
                     std::to_string(fault.target);
  if (fault.takes_guardian) text += " and its guardian";
  if (fault.kind == FaultKind::Cut) {
    text += fault.cuts_up && fault.cuts_down ? " both ways" : fault.cuts_up ? " up" : " down";
  }
  return text;
}

std::string to_string(const Scenario& scenario) {
  auto ms = [](Duration d) {
    return std::to_string(std::chrono::duration_cast<milliseconds>(d).count()) + " ms";
  };
  const NodePlan& first = scenario.nodes.front();
  return "seed " + std::to_string(scenario.seed) + ": " + std::to_string(scenario.nodes.size()) +
         " nodes, --nnodes=" + std::to_string(first.settings.min_nodes) + ":" +
         std::to_string(first.settings.max_nodes) +
         ", --max-restarts=" + std::to_string(first.policy.max_restarts) +
         (scenario.has_daemon ? ", ddpd" : "") + (scenario.has_stand_ins ? ", stand-ins" : "") +
         (scenario.daemons > 0 ? ", " + std::to_string(scenario.daemons) + " ddpds" : "") +
         (scenario.is_undisturbed ? ", undisturbed" : "") +
         (scenario.is_found_again ? ", found again" : "") +
         (scenario.is_minority_lost ? ", some are lost" : "") +
         (scenario.closed_machine >= 0
              ? ", nobody reaches machine " + std::to_string(scenario.closed_machine)
              : "") +
         (scenario.has_registry ? ", registry" : "") + (scenario.is_one_loss ? ", one loss" : "") +
         (scenario.is_begun_anew ? ", begun anew" : "") + (scenario.is_healed ? ", healed" : "") +
         (scenario.has_own_clocks ? ", clocks of their own" : "") +
         (scenario.has_wills ? "" : ", no wills") +
         (scenario.victims_fail ? ", victims fail" : "") + (scenario.is_calm ? ", calm" : "") +
         (scenario.has_watches() ? ", hang watches" : "") +
         (scenario.are_hangs_judged ? ", nothing but hangs" : "") + ", work " + ms(scenario.work) +
         ", grace " + ms(scenario.grace) + ", join_timeout " + ms(first.policy.join_timeout) +
         ", last call " + ms(first.policy.last_call_timeout) + ", silence limit " +
         ms(first.policy.silence_limit()) + ", read_timeout " + ms(scenario.read_timeout) +
         ", faults until " + ms(scenario.faults_end);
}

}  // namespace ddprun::sim
