// SPDX-License-Identifier: BSD-3-Clause
//
// What an agent and a rendezvous say to each other, whatever kind of rendezvous it is.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/ranks.h"
#include "rendezvous/decide/trace.h"

namespace ddprun::rendezvous {

using Round = command::Round;

// What a rendezvous reports to its agent.
namespace notice {
// There will be no further round and no verdict: the rendezvous itself has failed.
struct Failed {
  std::string why;
};
// Just before a Stop or a Failed: the workers must be dead by then, since the others go on without
// this node.
struct LeaseEnding {
  MonoTime kill_by{};
};
// For people.
struct Info {
  std::string text;
};
}  // namespace notice
using Notice =
    std::variant<Round, command::Inspect, command::TakeStacks, command::TakeBundle, command::Stop,
                 command::Waiting, command::End, notice::Failed, notice::LeaseEnding, notice::Info>;

// A node's side of a rendezvous.  In the course of a run: join(), Round, then either
// report_success() or report_failure() or neither, Stop, join(), Round, ... and at last End.
// Before the Stop or the End of a failure with a `wait`: Inspect, unless the failure is this node's
// own, and report_findings().
//
// Threads: used from the executor's only thread.
class Handler {
 public:
  using Listener = std::function<void(const Notice&)>;

  virtual ~Handler() = default;

  // Who is told.  To be set before join(); never called from within a call of this class.
  virtual void listen(Listener listener) = 0;

  // Where ddpctl and a browser find the run, as a field of a log line: "rendezvous=node0:29400",
  // or of a run of one node, once its workers run, "page=http://127.0.0.1:41234/".  Empty: nowhere.
  virtual std::string meeting_place() const { return ""; }

  // Asks for the next round.  No worker of this node runs.  The worker store of the round before is
  // closed, so that a client that waits in it fails at once; or, where nothing has failed, only
  // with the next round, since the workers of other nodes may still save together.
  virtual void join() = 0;

  // The workers of `round` run, as these processes: for people who ask the workers' store who has
  // not come.
  virtual void workers_started(const Round& round, std::vector<StartedWorker> workers) = 0;

  // When the last worker of the round, of all nodes, connected to the workers' store; nullopt where
  // this node does not have that, or not all of them have connected.  To be asked before join().
  virtual std::optional<MonoTime> workers_connected() { return std::nullopt; }

  // The first failure of a worker of this round on this node.  A Stop or an End follows.  With
  // `is_final` the run is to end with exit_code_of(failure), whatever may be left of its restarts.
  // With a `wait` the nodes are first asked who did not come, and this one reports its findings.
  virtual void report_failure(Failure failure, bool is_final,
                              const std::optional<TimedOutWait>& wait) = 0;

  // What the workers of this node do; who has never connected to their store is added here, where
  // this node has that.
  virtual void report_findings(Findings findings) = 0;

  // All workers of this node have succeeded.  An End follows, or a Stop where others failed.
  virtual void report_success() = 0;

  // What is of use of what say_vitals() says of this node's workers: nothing, the progress of each
  // (its step and its output), or everything, since others can see it.
  enum class VitalsUse : std::uint8_t { Nothing, Progress, Everything };
  virtual VitalsUse vitals_use() const { return VitalsUse::Nothing; }
  // The text of a Vitals (rendezvous/decide/vitals.h).  It may get lost.
  virtual void say_vitals(std::string /*text*/) {}

  // The answer to a TakeStacks: the text of a NodeStacks (rendezvous/decide/stacks.h).  Likewise.
  virtual void say_stacks(std::string /*text*/) {}
  // The answer to a TakeBundle: the text of a BundlePiece (rendezvous/decide/bundle_piece.h).
  virtual void say_bundle(std::string /*text*/) {}
  // What the workers of this node have drawn in the timeline: the text of a SliceBook
  // (rendezvous/decide/drawn_slices.h), for the node that hosts the run.  It may get lost.
  virtual void say_slices(std::string /*text*/) {}
  // Who gets what the coordinator of this run sees, where it is in this process (decide/tracer.h).
  // To be set before join(); called from within calls of this class, too.
  virtual void trace_to(std::function<void(const TraceEvent&)> /*sink*/) {}

  // This node "was stopped by SIGTERM", a `signal`: it takes part in no further round, and stops
  // its workers, whose store stays until finish().  The others wait for workers_gone() or finish().
  // During finish(): what this node hosts ends, too.
  virtual void leave(std::string why, int signal) = 0;

  // After leave(): no worker of this node lives any more.  The others go on, whatever may still
  // keep this node from finish(): a disk, or the scheduler's answer.
  virtual void workers_gone() {}

  // No worker of this node lives any more, and the others are told so.  Completes when no other
  // node needs what this one hosts.  To be called after the end.
  virtual boost::asio::awaitable<void> finish() = 0;

  // Ends everything now, and what finish() waits for.
  virtual void close() = 0;
};

}  // namespace ddprun::rendezvous
