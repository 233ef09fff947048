// SPDX-License-Identifier: BSD-3-Clause
//
// How a training program learns that it is to stop or to save, and how its ranks agree on the step
// at which they do.  A launcher that ends or restarts a run sends SIGTERM and waits for its grace
// (ddprun: 30 s) before SIGKILL; a person may send SIGUSR1 to have a checkpoint written now.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "worker/ddp/process_group.h"
#include "worker/ddp/rank_agreement.h"
#include "worker/stop_reason.h"

namespace ddprun::ddp {

// While one of these lives, SIGTERM and SIGUSR1 are noted and end nothing.
//
// Threads: used from the training thread.
class StopRequests {
 public:
  // What to exit with after a stop: as a shell says of SIGTERM.  A launcher that sent the signal
  // expects an end; for one that did not, this is a failure, so that it starts the run again.
  static constexpr int kExitCode = 128 + 15;

  explicit StopRequests(const ProcessGroup& group);
  explicit StopRequests(c10::intrusive_ptr<c10d::ProcessGroup> group);  // the program's own
  StopRequests();                                                       // of one process
  ~StopRequests();
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;

  enum class Asked : std::int64_t { Nothing, Save, Stop };

  // What any rank was asked for; every rank gets the same answer from the same call.  All ranks
  // call it together, once a step.  They talk while the step is computed: the answer is from what
  // was known at the call before, and costs no waiting.  A save is answered once for each SIGUSR1
  // or several; a stop, from then on.  Throws DdpError when a peer is lost.
  Asked poll();

  // The same for a program that does not save when asked to.
  bool should_stop() { return poll() == Asked::Stop; }

 private:
  class Listening;
  struct Exchange;
  explicit StopRequests(Ranks ranks);

  std::unique_ptr<Exchange> exchange_;
};

// Why this rank was asked to stop or to save, as its agent knows it at the moment: preempted, the
// time limit, a node lost (worker/stop_reason.h).  nullopt where nothing was said: no signal has
// come through ddprun, or another launcher runs the program.  Under Slurm the cause may come a
// moment after the signal.  Reads a file.
std::optional<worker::StopReason> stop_reason(const ProcessGroup& group);

}  // namespace ddprun::ddp
