// SPDX-License-Identifier: BSD-3-Clause
//
// The failure of a worker: one record, from the worker's exit through the rendezvous to the report
// on every node.  Values and sentences only.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "store/base/exit_status.h"
#include "store/base/time.h"

namespace ddprun::rendezvous {

// A rank that is suspected of having kept a worker waiting until its time was over.
struct Suspect {
  int rank = 0;
  int pid = 0;           // 0: not known, such as that of one that has ended
  std::string node{};    // the name of its node; empty where that is not known, or the run has one
  bool has_come = true;  // it has connected to the store of the workers
  std::string doing{};   // "sleeps in load (data.py:40)"; empty: not known

  friend bool operator==(const Suspect&, const Suspect&) = default;
};
// So many are named.
inline constexpr std::size_t kMaxSuspects = 8;
inline constexpr std::size_t kMaxEndedNodes = 8;

// The ranks of one node.
struct RankRange {
  int first = 0;
  int count = 1;

  friend bool operator==(const RankRange&, const RankRange&) = default;
};

// The first failure of a round on its node.  Workers that fail after it are its victims, which are
// not recorded: their peer is gone, or the agent has stopped them.
struct Failure {
  int rank = 0;
  int local_rank = 0;
  int pid = 0;                   // 0: the worker could not be started
  std::string node{};            // the name of its node; empty where the run has only one
  process::ExitStatus status{};  // with pid 0: the exit code of a run that ends with this
  // What the worker says last ("ValueError: boom"), or what the kernel or the hang watch says of
  // it.  It may have several lines.
  std::string message{};
  std::string log_path{};  // the folder of its logs on its node; empty: none
  int restart_count = 0;   // of the run at that time
  WallTime at{};           // by its node's clock, for people; zero: not known
  // The last lines of what it wrote.  Other nodes have only the end of the traceback or, where
  // there is none, of stderr, and only of the last failure of a run.
  std::string traceback{};    // of its error file
  std::string stderr_tail{};  // as lines, each with its line end
  // Of a worker whose wait for others was over, once the nodes have been asked (findings.h).
  std::string waited_in{};          // "all_reduce"; empty: it is no such failure
  std::vector<Suspect> suspects{};  // by rank
  int suspect_count = 0;            // also those beyond kMaxSuspects
  int also_waited = 0;              // so many other ranks waited in vain
  // Of a worker that was ended since it hung, from its last sign of life to its end; zero: that is
  // not known, or it did not hang.
  Duration hung_for{};
  // Nodes all of whose workers had ended with exit code 0 before that, at most kMaxEndedNodes.
  std::vector<RankRange> ended_before{};

  friend bool operator==(const Failure&, const Failure&) = default;
};

// "rank 5 (local rank 1, pid 4211) on node7 exited with code 1: ValueError: boom", with the first
// line of the message, quoted as printable() does; "rank 5 on node7 could not be started: start x:
// No such file or directory". Where others are suspected: "rank 1 (node2, pid 4711) did not come to
// all_reduce: it sleeps in load (data.py:40); rank 5 (...) waited for it and exited with code 1:
// ...".
std::string describe(const Failure& failure);

// "rank 1 (node2, pid 4711) never reached init_process_group: it sleeps in load (data.py:40); 2
// more".  Of a failure with suspects.
std::string describe_suspects(const Failure& failure);

// "rank 5 on node7 exited with code 1: ValueError: boom".
std::string describe_briefly(const Failure& failure);

// The exit code of a run that ends by this failure, as a shell shows it: 1 to 255.
int exit_code_of(const Failure& failure);

// The failure as other nodes get it: with at most kOutputBytes of its last output.
Failure for_other_nodes(Failure failure);
inline constexpr std::size_t kOutputBytes = 4 * 1024;

// Forgets the last output.
void forget_output(Failure& failure);

}  // namespace ddprun::rendezvous
