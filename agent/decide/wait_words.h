// SPDX-License-Identifier: BSD-3-Clause
//
// Whether a worker has failed since other ranks did not come in time, by its last words.  Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/decide/worker_exit.h"
#include "rendezvous/decide/findings.h"

namespace ddprun::agent {

// The wait that was over, with the ranks that the words name.  The words are those of torch 2.15
// (its store, Gloo, monitored_barrier, NCCL's watchdog) and of worker/ddp.  nullopt for any other
// end, such as that of a worker whose peer has closed the connection.
std::optional<rendezvous::TimedOutWait> timed_out_wait(
    const std::vector<std::string>& stderr_lines);

// Of a worker that has ended: its error file goes before its stderr.
std::optional<rendezvous::TimedOutWait> timed_out_wait(const WorkerExit& exit);

// What a worker was in that has failed since a peer has closed its connection: one whose own wait
// is over, which may end after it, or one that has ended.  nullopt for any other end.
std::optional<rendezvous::TimedOutWait> lost_peer(const WorkerExit& exit);

// The same of a worker that is about to end, by what it has written.
std::optional<rendezvous::TimedOutWait> lost_peer(const std::vector<std::string>& stderr_lines);

}  // namespace ddprun::agent
