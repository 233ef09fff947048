// SPDX-License-Identifier: BSD-3-Clause
//
// One `ddprun`: the real agent::step and member::step, with models of the shells around them
// (agent::Agent, rendezvous::NetworkHandler) and of the workers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/decide/core.h"
#include "rendezvous/decide/host_search.h"
#include "rendezvous/decide/member.h"
#include "rendezvous/decide/member_messages.h"
#include "rendezvous/decide/node_file.h"
#include "tests/sim/monitor.h"
#include "tests/sim/world.h"

namespace ddprun::sim {

class Node {
 public:
  Node(World& world, Process& process, NodePlan plan, int pid);

  void begin();
  void signal(int signal);
  // No command reaches it for so long.
  void deafen(Duration lasts);

  // From the network.
  void heard(const Wire& wire, const std::string& text);
  void connection_lost(const Wire& wire, const std::string& why, bool is_reset = false);

  const NodePlan& plan() const { return plan_; }
  Process& process() { return process_; }
  const Process& process() const { return process_; }
  const agent::State& core() const { return core_; }
  const rendezvous::member::State& member() const { return member_; }
  const Wire& wire() const { return wire_; }
  std::string id() const { return rendezvous::member::node_id(member_, config_); }
  bool is_joined() const { return member_.is_joined && !member_.is_over; }
  std::uint16_t store_port() const { return store_port_; }
  std::string address() const { return "10.0.0." + std::to_string(plan_.machine); }
  // Of the run, as the last round said it.
  std::string run_uuid() const { return member_.last ? member_.last->run_uuid : ""; }

  // What of a round is going on here.
  std::optional<std::size_t> round() const { return round_; }
  // Workers that live, and are not held back from doing anything.
  int workers_alive() const;
  bool is_held() const { return is_paused_ || is_held_; }
  bool is_working(std::size_t round) const;
  // The round whose workers have all succeeded, and no others have been started since.
  std::optional<std::size_t> done() const { return done_; }
  std::optional<int> exit_code() const { return exit_code_; }
  std::optional<int> verdict() const { return verdict_; }
  std::optional<std::string> failure() const { return failed_; }
  bool was_signalled() const { return core_.shutdown_signal != 0; }
  // When the first signal came.
  std::optional<Duration> signalled_at() const { return signalled_at_; }
  // When its workers were last started.
  std::optional<Duration> started_at() const { return started_at_; }

  // Its hang watch.
  Monitor& monitor() { return monitor_; }
  std::set<int> ranks_up() const;
  void signal_worker(int local_rank, int signal);
  void tell_end(int local_rank, process::ExitStatus status);
  // Something that happens to the agent.
  void later(Duration delay, Deed deed);

  // A peer in this round has gone.
  void peer_lost(std::size_t round);

  // Its agent has gone without a word; with a guardian that ends the workers and says so.
  void agent_killed(bool has_guardian);
  // All of it stands still, its guardian and its workers too.
  void pause();
  void unpause();

 private:
  // The agent's shell.
  void on(const agent::Event& event);
  void perform(const agent::Action& action);
  void finish();
  void start_workers();
  void plan_worker(int local_rank);
  void plan_hang(int local_rank);
  bool may_hang() const;
  void hang_worker(int local_rank, std::uint64_t group);
  void finish_worker(int local_rank, std::uint64_t group);
  void end_worker(int local_rank, process::ExitStatus status);
  void after(Duration delay, Deed deed);

  // Its guardian.
  void renew_lease(MonoTime end);
  void lease_is_over(std::uint64_t number);
  void kill_workers();
  void signal_workers(int signal);
  void sweep();
  void take_stacks();
  void kill_now();
  void arm_deadline();
  void leave_when_possible(Duration flush_until);

  // The rendezvous' shell.
  void join();
  void step(const rendezvous::member::Event& event);
  void perform(const rendezvous::member::Action& action);
  void connect(const rendezvous::member::action::Connect& wanted);
  void shake_hands(const rendezvous::member::action::Connect& wanted);
  void reach(const rendezvous::member::action::Connect& wanted,
             const std::optional<Endpoint>& place);

  // RunEndpoint and RegisteredHost, where a registry says who hosts.
  Endpoint own_place() const;
  rendezvous::host_search::Searcher searcher() const;
  void seek(const rendezvous::member::action::Connect& wanted);
  void claim(const rendezvous::member::action::Connect& wanted, std::uint64_t generation);
  void open_by_claim(const rendezvous::HostEntry& entry);
  void prepare(Host& host, bool is_claimed);
  void tell_of_rounds(Host& host);
  void begin_when_noted(const rendezvous::RunFile& file, std::function<void(bool)> may);
  void superseded();
  void look_around(Host& own);
  void write_down();
  void write_once();
  void written(bool is_answered);
  bool note_now();
  void leave_desk();
  rendezvous::HostEntry own_entry(std::uint64_t generation) const;
  void open_or_close(const rendezvous::member::action::Connect& wanted);
  void connected(const Wire& wire, std::uint64_t attempt);
  void connect_failed(const std::string& why, std::uint64_t attempt, bool is_refused = false);
  void disconnect();
  void post(const rendezvous::Message& message, bool is_heartbeat);
  void pump();
  void tick();
  void notice(Deed deed);
  void keep_memory();
  void leave_last_word(const std::string& why);
  std::vector<rendezvous::NodeFile> dead_here();
  std::vector<rendezvous::Died> died_here();
  rendezvous::RunPlaces known_here();

  World& world_;
  Process& process_;
  NodePlan plan_;
  Monitor monitor_;
  agent::Config core_config_;
  agent::State core_;
  rendezvous::member::Config config_;
  rendezvous::member::State member_;
  std::uint16_t store_port_ = 0;
  Wire wire_;
  Duration deaf_until_{};
  Wire trying_;  // of an attempt to connect
  std::deque<std::pair<std::string, bool>> outgoing_;
  bool is_sending_ = false;
  MonoTime tick_due_{};
  std::uint64_t ticks_ = 0;
  std::uint64_t attempt_ = 0;
  Host* hosting_ = nullptr;      // at the endpoint
  Host* standing_in_ = nullptr;  // on its spare port

  Host* here_ = nullptr;  // of its own, if it was there that it went last
  std::optional<Endpoint> registered_at_;
  std::optional<rendezvous::HostEntry> reaching_;  // the host of this entry
  rendezvous::member::action::Connect reaching_for_;
  rendezvous::host_search::State search_;
  // What this node has written of itself: see RegisteredHost.
  struct Desk {
    std::uint64_t generation = 0;
    std::uint64_t hostings = 0;
    bool says_file = false;
    std::optional<rendezvous::RunFile> file{};
    bool is_due = false;
    bool is_writing = false;
  };
  Desk desk_;

  std::optional<std::size_t> round_;
  std::optional<std::size_t> done_;  // the round whose workers have all succeeded
  std::optional<std::uint64_t> last_number_;
  std::uint64_t group_ = 0;  // counts starts of workers
  std::optional<Duration> started_at_;
  std::vector<bool> is_up_;
  bool is_signalled_ = false;
  bool is_killed_ = false;
  MonoTime lease_end_ = MonoTime::max();
  std::uint64_t leases_ = 0;
  std::uint64_t holds_ = 0;
  bool is_paused_ = false;
  bool is_held_ = false;          // by the guardian, which stood still as well
  bool has_stood_still_ = false;  // the guardian, and the lease was not renewed since
  std::uint64_t deadlines_ = 0;
  std::optional<int> exit_code_;
  std::optional<rendezvous::member::UnsaidLeft> unsaid_;  // by a host that goes
  std::optional<int> verdict_;
  std::optional<std::string> failed_;
  std::optional<Duration> signalled_at_;
};

}  // namespace ddprun::sim
