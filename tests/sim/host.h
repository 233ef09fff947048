// SPDX-License-Identifier: BSD-3-Clause
//
// The store as far as the rendezvous uses it, and a model of rendezvous::CoordinatorService, whose
// text it follows: the coordinators of several runs behind one inbox.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "rendezvous/coordinator.h"
#include "tests/sim/world.h"

namespace ddprun::sim {

class Host {
 public:
  Host(World& world, Process& process) : world_(world), process_(process) {}

  // What a client asks of the store.
  void serve(const Wire& wire) { wire->is_served = true; }
  void push(const std::string& letter) { take(letter); }
  std::string pulse() const;
  void pop(const Wire& wire);
  void lost(const Wire& wire);

  void leave(const std::string& why);  // CoordinatorService::host_leaves()
  bool is_idle() const { return runs_.empty(); }
  Process& process() { return process_; }
  const std::map<std::string, rendezvous::coordinator::State>& runs() const { return runs_; }

 private:
  void take(const std::string& text);
  void step(const std::string& run, const rendezvous::coordinator::Event& event);
  void deliver(const std::string& node, const rendezvous::Order& order);
  void set_alarm();
  void ring();

  World& world_;
  Process& process_;
  std::map<std::string, rendezvous::coordinator::State> runs_;
  std::map<std::string, std::deque<std::string>> mailboxes_;
  std::map<std::string, Wire> waiting_;
  MonoTime alarm_ = MonoTime::max();
  std::uint64_t alarms_ = 0;
};

}  // namespace ddprun::sim
