// SPDX-License-Identifier: BSD-3-Clause
//
// What one step of the coordinator has its shell do, above all what it sends and to whom.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/run_file.h"
#include "rendezvous/decide/run_state.h"

namespace ddprun::rendezvous::coordinator {

namespace action {
struct Send {
  std::string node;
  Command command;
  std::uint64_t connection = 0;  // of the node
};
// Nothing more will be sent to this node; what it has not read may be thrown away.
struct Forget {
  std::string node;
  std::uint64_t connection = 0;  // what was sent on it
};
// This node is about to be given up: whoever renews its lease from here on is to hear so.
struct Suspect {
  std::string node;
};
// That does not hold any more.
struct Acquit {
  std::string node;
};
// After that, what has reached the inbox by now is to be read; and then comes event::MarkRead.
struct Mark {
  std::uint64_t number = 0;
};
// The run has had its last round.  A node that comes back to it later is to hear this.
struct Over {
  std::string run_uuid;
  std::uint64_t next_round = 0;  // that it would have had
  command::End verdict;
};
// A round has begun: for the coordinator that follows, should this process be killed.  `run` is
// left empty.
struct KeepRunFile {
  RunFile file;
};
// Before the commands of a round of the static backend: the workers' store, which is the common
// space of the one where the nodes meet, is to be empty, and for the workers at these addresses.
struct EmptyCommonSpace {
  std::vector<std::string> peers;
};
}  // namespace action
using Action =
    std::variant<action::Send, action::Forget, action::Suspect, action::Acquit, action::Mark,
                 action::Over, action::KeepRunFile, action::EmptyCommonSpace>;

class Outgoing {
 public:
  // `nodes` outlives it; what each is told is counted there.
  explicit Outgoing(std::map<std::string, Node>& nodes) : nodes_(nodes) {}

  // What is sent to a node that is not one of the run's goes out on `connection`, on which it
  // spoke.  Returns the one before.
  std::uint64_t answer_on(std::uint64_t connection);

  // To a node of the run, on the connection on which it was last heard.
  void send(const std::string& id, Command command);
  void send_on(const std::string& id, std::uint64_t connection, Command command);
  void forget(const std::string& id, std::uint64_t connection);
  void add(Action action);

  std::vector<Action> take();

 private:
  std::map<std::string, Node>& nodes_;
  std::uint64_t speaker_ = 0;
  std::vector<Action> actions_;
};

}  // namespace ddprun::rendezvous::coordinator
