// SPDX-License-Identifier: BSD-3-Clause
//
// Everything that a simulation consists of: machines, the network between them, the agents on them,
// and the one endpoint on machine 0 where they meet.  README.md has what is modelled how.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "rendezvous/decide/host_entry.h"
#include "tests/sim/majority.h"
#include "tests/sim/oracle.h"
#include "tests/sim/random.h"
#include "tests/sim/scenario.h"
#include "tests/sim/timeline.h"

namespace ddprun::sim {

class Host;
class Node;

inline constexpr std::uint16_t kEndpointPort = 29400;
inline constexpr int kMillion = 1'000'000;

// A property does not hold.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Machine {
  bool is_up = true;
  bool is_cut_up = false;    // nothing of it reaches another machine
  bool is_cut_down = false;  // nothing of another machine reaches it
  int part = 0;              // of a network that has fallen apart
  Duration wall_jump{};
  Duration clock_start = std::chrono::hours(1);  // of its monotonic clock, when the history begins
  int clock_ppm = 0;                             // so many parts in a million too fast
};

// One direction of a connection: what was sent arrives in order, or not yet.
struct Pipe {
  std::deque<Deed> messages;
  Duration last{};  // when the last of them is due
};

// One node's connection to the host (its two to the store, taken as one).  A resource, shared by
// what is under way on it.
struct Connection {
  Node* client = nullptr;
  Host* host = nullptr;
  int machine = 0;
  std::string node;
  std::uint64_t number = 0;  // of the node's connections
  Pipe up;
  Pipe down;
  bool is_open = true;     // at the node
  bool is_served = false;  // at the host
  bool has_will = false;
  bool wants_command = false;  // a pop waits at the host
};
using Wire = std::shared_ptr<Connection>;

class World {
 public:
  World(Scenario scenario_, bool is_traced_);
  ~World();

  // Plays it all; throws Violation.
  void run();

  Now now(int machine) const {
    Duration wall = time.now() + machines[static_cast<std::size_t>(machine)].wall_jump;
    return {mono(machine), WallTime(std::chrono::duration_cast<WallTime::duration>(wall))};
  }
  MonoTime mono(int machine) const {
    const Machine& its = machines[static_cast<std::size_t>(machine)];
    return MonoTime(time.now() + time.now() / kMillion * its.clock_ppm + its.clock_start);
  }
  // What a time that a machine's clock measures takes.
  Duration as_measured(int machine, Duration duration) const {
    int ppm = machines[static_cast<std::size_t>(machine)].clock_ppm;
    if (ppm == 0 || duration <= Duration::zero()) return duration;
    // Never too early by that clock.
    return duration - duration / kMillion * ppm + duration / kMillion +
           std::chrono::microseconds(1);
  }

  // Hands a message to the network.
  void send_up(const Wire& wire, Deed deed);
  void send_down(const Wire& wire, Deed deed);
  // One side is gone, and the other hears of it as far as the network lets it.
  void close_at_node(const Wire& wire, bool tells = true);
  void close_at_host(const Wire& wire, bool tells = true);

  Host* listen(Process& process);  // whoever is first at the endpoint
  // `prepare`: before it lets nodes in.
  Host* stand_in(Process& process, std::uint16_t port, std::uint64_t order,
                 const std::function<void(Host&)>& prepare);
  // A process looks into the registry, or writes there: `work`, and then it is told whether there
  // was an answer.
  void ask_registry(Process& process, Deed work, std::function<void(bool)> done);
  rendezvous::HostEntry newest_entry() const;
  // Who listens at a place; nothing: the endpoint.
  Host* at(const std::optional<Endpoint>& place) const;
  static int machine_of(const std::optional<Endpoint>& place);
  void close(Host* closed);  // it listens no more, and its connections end
  // Whether what one machine sends arrives at the other.
  bool reaches(int from, int to) const;
  // Whether a new connection comes about.
  bool can_connect(int from, int to) const;
  bool can_knock(Host& from, Host* there) const;
  // Whether the other machine takes a connection from this one, as far as it hears of it.
  bool lets_in(int from, int to) const { return from == to || to != scenario.closed_machine; }
  void exit(Process& process, bool tells);

  Process& add_process(const std::string& name, int machine);
  Node* find(const std::string& node_id);
  // A message that a guardian hands to whoever hosts at a place, on a connection of its own; tried
  // for a while.
  void deliver(int machine, const std::string& message, Duration until,
               const std::optional<Endpoint>& place = std::nullopt);
  // A host asks at another place whether the run is there.
  void knock(Host& from, const std::optional<Endpoint>& place);
  void knock(Host& from, const Endpoint& place, const std::optional<std::string>& message);
  std::uint16_t next_port() { return port_ = port_ >= 60000 ? 1024 : port_ + 1; }

  void trace(const std::string& who, const std::string& what) const;
  [[noreturn]] void violate(const std::string& what) const;

  Scenario scenario;
  Random random;
  Timeline time;
  std::vector<Machine> machines;
  std::vector<Wire> wires;
  std::vector<std::weak_ptr<Connection>> made_wires;  // also those that are out of `wires`
  std::vector<std::unique_ptr<Host>> hosts;
  std::vector<std::unique_ptr<Node>> nodes;
  Host* host = nullptr;                                      // who listens at the endpoint
  std::map<std::pair<int, std::uint16_t>, Host*> stand_ins;  // who listens elsewhere
  Host* last_host = nullptr;                                 // who has published the last round
  bool closed_on_nodes = false;  // a host that had given way has, while one came to it
  // On each machine, of each run.
  std::map<int, std::map<std::string, std::string>> run_files;
  // In the memory of each machine: of each agent that was there, what it knows.
  struct NodeMemory {
    std::string text;
    std::uint64_t written = 0;
    std::string left{};  // once no worker of it lives
  };
  std::map<int, std::map<std::string, NodeMemory>> node_files;
  std::uint64_t node_files_written = 0;
  std::vector<rendezvous::HostEntry> registry;       // by generation, from 1
  std::set<std::pair<int, std::uint16_t>> prepared;  // ports that listen and do not answer yet
  Oracle oracle;
  Majority majority;
  std::set<const Node*> cancelled;  // all of them by one event
  Duration cancelled_at{};
  bool is_traced = false;
  bool is_late = false;  // what a host is seen to do has been held back: it waited for the registry

 private:
  void watch_majority();
  Duration delay(const Wire& wire);
  void start(const NodePlan& plan);
  void start_daemon(int machine);
  int daemon_to_strike(const Fault& fault) const;
  void strike(const Fault& fault);
  void kill(Node& node, bool tells, bool has_guardian = true);
  void lose_machine(const Fault& fault);
  void freeze(const Fault& fault);
  void freeze(Process& target, Duration lasts);
  void pause(const Fault& fault);
  void cut(const Fault& fault);
  void heal(int machine);
  void fall_apart(const Fault& fault);
  void pump(const Wire& wire, bool is_up);
  bool is_all_over() const;

  std::deque<Process> processes_;
  std::map<std::string, Node*> by_name_;
  std::map<int, Process*> daemons_;  // by machine
  int pids_ = 100;
  int to_come_ = 0;
  std::uint16_t port_ = 1024;
};

}  // namespace ddprun::sim
