// SPDX-License-Identifier: BSD-3-Clause
//
// Where the time of a run goes on one node: to training, starting, stopping or waiting, and what
// each stop and new start of the workers has cost, by cause.  Pure: it is told what begins and
// when.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "store/base/time.h"

namespace ddprun::agent {

// What a node does at one moment.
enum class Doing : std::uint8_t {
  Waiting,   // no worker runs, and other nodes or the rendezvous are waited for
  Starting,  // the round is known, and not all workers run yet
  Training,  // all workers run, or some have ended well
  Stopping,  // the workers, or what they have left behind, are being ended
  Hanging,   // all workers ran, and one that was ended for it later gave no sign of life any more
};
inline constexpr std::size_t kDoings = 5;

// Why workers were stopped and started again.
struct RestartCause {
  enum class Kind : std::uint8_t {
    Failure,
    NodeLost,
    NodeLeft,        // it was told to stop
    NodeCutOff,      // this node or another one, which may have come back
    RendezvousLost,  // the host or ddpd, or only the connection to it
    NodeJoined
  };

  Kind kind = Kind::Failure;
  std::string what{};  // of a failure, in a few words: "OOM", "hang", "SIGSEGV", "ValueError"
  std::string node{};  // of a failure; empty where the run has one node

  friend bool operator==(const RestartCause&, const RestartCause&) = default;
};

RestartCause cause_of(const rendezvous::command::Stop& stop);

// Restarts that have one cause.
struct RestartCost {
  RestartCause cause;
  int count = 0;
  Duration cost{};  // from the end of training until training went on
};

// How long the new workers of restarts took until the last rank of all nodes had connected to the
// workers' store: imports, and what else a script does before init_process_group.
struct TimeToConnect {
  int restarts = 0;  // of which it is known
  Duration spent{};  // in all, from when the workers of this node ran
};

struct TimeAccount {
  Duration up{};
  std::array<Duration, kDoings> spent{};     // by Doing; their sum is `up`
  std::optional<Duration> until_training{};  // from the start; nullopt: it has never begun
  std::vector<RestartCost> restarts{};       // in the order in which their causes first came
  TimeToConnect to_connect{};

  Duration of(Doing doing) const { return spent.at(static_cast<std::size_t>(doing)); }
};

class TimeKeeper {
 public:
  // The run begins, and this node waits.
  void begin(MonoTime now);
  // From now on the node does this.
  void enter(Doing doing, MonoTime now);
  // The workers are stopped, or are about to be, since one of the run has hung for so long: what
  // was taken for training meanwhile was none.
  void hung(Duration time, MonoTime now);
  // The workers are stopped, and others are to follow.  Of several causes until these run, the
  // first counts.
  void interrupted(RestartCause cause);
  // The ranks of the attempt had connected to their store by then.  To be said at most once an
  // attempt.
  void connected(MonoTime at);
  TimeAccount account(MonoTime now) const;

 private:
  void settle(MonoTime now);

  TimeAccount account_;
  Doing doing_ = Doing::Waiting;
  MonoTime began_{};
  MonoTime since_{};                     // doing_
  std::optional<RestartCause> cause_{};  // of the restart under way
  MonoTime training_since_{};            // the last time, or the one that goes on
  MonoTime trained_until_{};
  std::optional<MonoTime> restarted_at_{};  // the workers that run are a restart's, and ran then
};

}  // namespace ddprun::agent
