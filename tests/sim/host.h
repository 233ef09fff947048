// SPDX-License-Identifier: BSD-3-Clause
//
// The store as far as the rendezvous uses it, and rendezvous::CoordinatorService: the real
// runs::step() behind one inbox.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/decide/runs.h"
#include "store/base/endpoint.h"
#include "tests/sim/world.h"

namespace ddprun::sim {

class Host {
 public:
  Host(World& world, Process& process, std::uint16_t port = kEndpointPort, std::uint64_t order = 0)
      : world_(world), process_(process), port_(port), order_(order), number_(world.hosts.size()) {}

  // Reads the run files of its machine.
  void begin();

  // What a client asks of the store.
  void serve(const Wire& wire) { wire->is_served = true; }
  void push(const std::string& message) { take(message); }
  std::string pulse(const std::string& run) const;
  bool has_given_up(const std::string& node) const { return given_up_.contains(node); }
  MonoTime heard_at(const std::string& run) const;
  void pop(const Wire& wire);
  void lost(const Wire& wire);

  void leave(const std::string& why);  // CoordinatorService::host_leaves()
  bool is_idle() const { return rendezvous::runs::is_idle(state_); }
  bool leaves_to_others() const { return rendezvous::runs::leaves_to_others(state_); }
  Process& process() { return process_; }
  // What no other coordinator is called.
  std::string name() const;
  bool is_closed = false;
  std::set<std::string> found_starts;  // that the run files told of
  // Where a registry has the run file.  `may_begin`: of a host that has claimed; the answer comes
  // later, and false closes it.
  std::vector<rendezvous::RunFile> found;
  std::function<void(const rendezvous::RunFile&)> keep;
  std::function<void()> drop;
  std::function<void(const rendezvous::RunFile&, std::function<void(bool)>)> may_begin;
  std::function<void(const rendezvous::command::Round&)> on_own_round;  // of an agent
  bool holds_run() const;
  bool is_beginning() const { return is_held_; }  // its first round waits for the registry

  // Between hosts of one run, which find each other.
  static Endpoint endpoint() { return {.host = "10.0.0.0", .port = kEndpointPort}; }
  std::optional<std::string> knock(const std::string& run, const rendezvous::request::Knock& knock);
  std::optional<std::string> knock(const Endpoint& to);
  std::optional<std::string> answer(const std::string& knock);
  void unreached(const Endpoint& at);
  void answered(const std::string& answer);
  void endpoint_is_clear();
  bool is_in_doubt() const;
  // The queues of commands that hold something.
  std::size_t mailbox_count() const { return mailboxes_.size(); }

 private:
  void take(const std::string& text);
  void step(const rendezvous::runs::Event& event);
  bool holds_back(const std::vector<rendezvous::runs::Action>& actions);
  void perform(const std::vector<rendezvous::runs::Action>& actions);
  void deliver(const std::string& mailbox, const rendezvous::Command& command);
  void set_alarm();
  void ring();

  World& world_;
  Process& process_;
  std::uint16_t port_;
  std::uint64_t order_;  // 0: at the endpoint; else the number of the stand-in
  std::size_t number_;   // of all hosts
  std::uint64_t knocks_ = 0;
  rendezvous::runs::State state_;
  std::map<std::string, std::deque<std::string>> mailboxes_;
  std::map<std::string, Wire> waiting_;
  std::set<std::string> given_up_;
  MonoTime alarm_ = MonoTime::max();
  std::uint64_t alarms_ = 0;
  bool has_begun_ = false;
  bool is_held_ = false;  // until it may begin
  struct Held {
    rendezvous::runs::State state;
    std::vector<rendezvous::runs::Action> actions;
  };
  std::vector<Held> held_;
};

}  // namespace ddprun::sim
