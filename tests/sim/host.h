// SPDX-License-Identifier: BSD-3-Clause
//
// The store as far as the rendezvous uses it, and rendezvous::CoordinatorService: the real
// runs::step() behind one inbox.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "rendezvous/decide/runs.h"
#include "tests/sim/world.h"

namespace ddprun::sim {

class Host {
 public:
  Host(World& world, Process& process) : world_(world), process_(process) {}

  // Reads the run files of its machine.
  void begin();

  // What a client asks of the store.
  void serve(const Wire& wire) { wire->is_served = true; }
  void push(const std::string& message) { take(message); }
  std::string pulse() const;
  bool has_given_up(const std::string& node) const { return given_up_.contains(node); }
  void pop(const Wire& wire);
  void lost(const Wire& wire);

  void leave(const std::string& why);  // CoordinatorService::host_leaves()
  bool is_idle() const { return state_.runs.empty(); }
  Process& process() { return process_; }
  // The queues of commands that hold something.
  std::size_t mailbox_count() const { return mailboxes_.size(); }

 private:
  void take(const std::string& text);
  void step(const rendezvous::runs::Event& event);
  void deliver(const std::string& mailbox, const rendezvous::Command& command);
  void set_alarm();
  void ring();

  World& world_;
  Process& process_;
  rendezvous::runs::State state_;
  std::map<std::string, std::deque<std::string>> mailboxes_;
  std::map<std::string, Wire> waiting_;
  std::set<std::string> given_up_;
  MonoTime alarm_ = MonoTime::max();
  std::uint64_t alarms_ = 0;
};

}  // namespace ddprun::sim
