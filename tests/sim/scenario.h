// SPDX-License-Identifier: BSD-3-Clause
//
// What a seed stands for: who takes part, with what settings, and what goes wrong when.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "store/base/time.h"

namespace ddprun::sim {

// A node's watch for hangs, and the tools of its machine.
struct WatchPlan {
  Duration timeout{};       // --hang-timeout; zero: none
  Duration stacks{};        // that the stacks take
  bool has_tools = false;   // that show who waits for its peers
  bool has_python = false;  // that show Python's stacks
};

// One `ddprun` that somebody starts.
struct NodePlan {
  int machine = 0;
  std::string run = "job";
  std::string host;
  std::optional<int> node_rank;
  int workers = 1;
  std::string role = "default";
  rendezvous::Settings settings;
  rendezvous::Policy policy;
  Duration start{};
  bool comes_back = false;  // somebody starts it again after it was killed
  WatchPlan watch{};
};

enum class FaultKind : std::uint8_t {
  KillAgent,    // SIGKILL: its connections end at once
  LoseMachine,  // power: nobody is told; its agents are gone
  Signal,       // SIGTERM to an agent
  Reset,        // one connection, seen at both ends
  HalfOpen,     // one connection, seen at the node only
  Cut,          // between a machine and the host's, in one direction or both, for a time
  Freeze,       // an agent, or the daemon, for a time
  Pause,        // all that runs on a machine (or, cut both ways, on all machines), for a time
  WallClock,    // a machine's wall clock jumps
  KillHost,     // whoever hosts, with its store
  FreezeHost,   // a ddpd, for a time
  Cancel,       // SIGTERM to all agents, within a second
  FallApart,    // the network falls into two parts, for a time: the bits of `target` say which
  Deafen,       // no command reaches an agent, for a time; its heartbeats and their answers pass
};

struct Fault {
  FaultKind kind{};
  Duration at{};
  Duration lasts{};
  int target = 0;  // of plans or machines, as the kind wants
  bool cuts_up = true;
  bool cuts_down = true;
  bool takes_guardian = false;  // of KillAgent: and the workers, so that nobody says anything
};

struct Scenario {
  std::uint64_t seed = 0;
  std::vector<NodePlan> nodes;
  std::vector<Fault> faults;
  int machines = 1;
  bool has_daemon = false;     // ddpd hosts, else the first agent on machine 0
  bool has_wills = true;       // a server with our extensions
  bool has_stand_ins = false;  // other nodes can host the run
  // So many ddpds, on the first machines, are the endpoints of the run; 0: there is one endpoint.
  int daemons = 0;
  // No endpoint is fixed: a registry says who hosts.  It does not answer from one of these moments
  // to the next, in pairs.
  bool has_registry = false;
  std::vector<Duration> registry_stalls;
  // One node is lost for good, and nothing else goes wrong: the others go on by themselves.
  bool is_one_loss = false;
  // One ddpd is lost, and nothing else goes wrong: no worker is stopped.
  bool is_undisturbed = false;
  // The network and the machines have faults that pass, and no process is lost: all succeed.
  bool is_healed = false;
  // So many are lost for good that too few are left, but for --rdzv-conf quorum.
  bool is_quorum_chosen = false;
  // All agents are killed at once, with their guardians, and started again: all succeed.
  bool is_begun_anew = false;
  // The endpoint's machine is lost for good, and then agents are killed and started again, which
  // find the run where it is: all that are left succeed.
  bool is_found_again = false;
  // Fewer than half of the machines are lost, for good or for a while, in whichever ways; the nodes
  // of all others succeed.
  bool is_minority_lost = false;
  std::vector<int> minority;
  int closed_machine = -1;      // no new connection from another one comes about there; -1: none
  bool has_own_clocks = false;  // they begin and run differently on each machine
  bool victims_fail = false;    // workers fail when a peer is gone, rather than hang
  int failing_percent = 0;      // of workers, while faults last
  int waits_percent = 0;        // of the workers that fail: since others did not come in time
  int slow_stop_percent = 0;    // of workers: they ignore SIGTERM
  int no_start_percent = 0;     // of attempts on a node
  Duration faults_end{};        // after it nothing goes wrong any more
  Duration work{};              // of a worker, in one go
  Duration grace{};             // --shutdown-timeout
  Duration read_timeout{};
  Duration max_delay{};  // of one message
  // Of one to or from an agent whose workers have started less than `start_load` ago: it is busy.
  Duration start_load{};
  Duration max_busy_delay{};
  bool has_deaf = false;  // a node may be deaf, which shows after many heartbeats only
  bool is_calm = false;   // nothing goes wrong that may cost anything, and nobody is refused

  // Workers that hang.
  int hang_percent = 0;                  // of workers, while faults last
  bool hangs_last = false;               // no worker goes on, or exits, by itself
  bool hang_looks_like_waiting = false;  // in what the kernel says of it
  bool waits_spin = false;               // a worker that waits for its peers uses its CPU
  bool are_hangs_judged = false;         // nothing else goes wrong: the one that hangs is blamed
  bool has_watches() const;              // of any node
};

// From here on the seeds are of runs whose host may change.
inline constexpr std::uint64_t kFirstStandInSeed = 10'000'000;
// And from here on of such runs that go on with less than a majority, since the user wants it.
inline constexpr std::uint64_t kFirstQuorumSeed = 20'000'000;
// And from here on of such runs whose agents are killed with their guardians, on machines that have
// one name.
inline constexpr std::uint64_t kFirstKilledSeed = 30'000'000;

// And from here on of runs whose host stands in a registry.
inline constexpr std::uint64_t kFirstRegistrySeed = 40'000'000;

// And from here on of runs that have several endpoints.
inline constexpr std::uint64_t kFirstDaemonsSeed = 50'000'000;

// And from here on of runs of the first two kinds, whose workers fail since others did not come.
inline constexpr std::uint64_t kFirstWaitSeed = 60'000'000;

// And from here on of single hosts, of hosts that change and of several endpoints in turn, with
// nodes that are deaf for a while.
inline constexpr std::uint64_t kFirstDeafSeed = 70'000'000;

// And from here on of runs whose endpoint is gone for good, with agents that are started again.
inline constexpr std::uint64_t kFirstFoundSeed = 80'000'000;

// And from here on of runs that lose fewer than half of their nodes.
inline constexpr std::uint64_t kFirstMinoritySeed = 90'000'000;

// And from here on of the same, where one of the machines can be reached by no other.
inline constexpr std::uint64_t kFirstClosedSeed = 95'000'000;

// The scenario of a seed; with `nodes` so many of them, and few faults.
Scenario make_scenario(std::uint64_t seed, int nodes = 0);

std::string to_string(const Fault& fault);
std::string to_string(const Scenario& scenario);

}  // namespace ddprun::sim
