// SPDX-License-Identifier: BSD-3-Clause
//
// What a group of ranks connects: the worker store, and the transports of its tensors.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "worker/env.h"

namespace c10d {
class Backend;
class ProcessGroup;
class Store;
}  // namespace c10d

namespace ddprun::ddp {

class DroppedMessages;
class LivenessSocket;
class PeerFailures;

namespace shm {
class Backend;
}

// The connections of one group, which close in the reverse order; in a forked child they stay open.
struct GroupConnections {
  GroupConnections();
  ~GroupConnections();
  GroupConnections(GroupConnections&&) noexcept;
  GroupConnections& operator=(GroupConnections&&) noexcept;

  c10::intrusive_ptr<c10d::Store> store;  // this group's own part of the worker store
  std::shared_ptr<PeerFailures> peer_failures;
  std::string cpu_backend;
  c10::intrusive_ptr<shm::Backend> shm;    // null where Gloo stands alone
  c10::intrusive_ptr<c10d::Backend> nccl;  // null without it; shut down at the end, as in Python
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  // Before Gloo's connections in the order of closing: here as the last member, and at the end of
  // the process, which closes files in the order of their numbers, as the first to be opened.
  std::unique_ptr<LivenessSocket> liveness;
  std::vector<at::Device> gpus;              // with NCCL
  std::shared_ptr<DroppedMessages> dropped;  // ended before all others
  pid_t owner = ::getpid();                  // the process that has made them
};

// What the ranks of a group have agreed on, and what each brings.
struct GroupPlan {
  worker::WorkerEnv env;
  std::string backend;              // "auto", "shm", "gloo" or "nccl"
  std::vector<at::Device> devices;  // asked for, with NCCL
  std::chrono::milliseconds timeout;
  std::string name;
  worker::Lookup variable;  // the process's environment
  bool check_collectives = false;
};

// The worker store: the agent's where it hosts one, else rank 0's own.
c10::intrusive_ptr<c10d::Store> connect_store(const worker::WorkerEnv& env,
                                              std::chrono::milliseconds timeout);

// Another connection to the same store, so that threads which wait in both do not wait for each
// other; the same connection, where LibTorch cannot do that.
c10::intrusive_ptr<c10d::Store> another_connection(const c10::intrusive_ptr<c10d::Store>& store);

// The liveness socket at the address that the other ranks reach; nullptr if it cannot be opened.
std::unique_ptr<LivenessSocket> open_liveness_socket(const worker::WorkerEnv& env);

// Connects the ranks, which all call it, and returns when they are.  `connections` has a store that
// is the group's alone, and a liveness socket or none.  Throws DdpError and what LibTorch does.
void connect_group(GroupConnections& connections, const GroupPlan& plan);

}  // namespace ddprun::ddp
