// SPDX-License-Identifier: BSD-3-Clause
//
// How a program becomes one of the ranks of a run: it reads what its launcher set, waits for the
// other ranks in the worker store and connects to them.  Any launcher that sets RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT will do; ddprun and torchrun also host the store.
//
// The header names no c10d class, so that including it costs little; c10d() returns the group.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/ddp/error.h"
#include "worker/env.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace ddprun::ddp {

class PeerFailures;

struct ProcessGroupOptions {
  // Who carries the tensors.  CPU tensors: "auto" takes shared memory where all ranks are on one
  // node and in one container, and Gloo elsewhere; "shm" insists on the former, "gloo" on the
  // latter, and one rank that does so is enough.  "nccl" carries those on a GPU, with Gloo beside
  // it for the CPU's: it comes out of a plug-in, libddprun_nccl.so, which is loaded only when it is
  // asked for and NVIDIA's driver sees a GPU; without one it is refused.  Unset: the variable
  // DDPRUN_BACKEND, else "auto".
  std::optional<std::string> backend;

  // The GPUs of this rank's tensors, with NCCL only: one, or several for a module in parts on
  // several of them, as many on each rank.  The tensors on the first are reduced with those on the
  // first of the other ranks, and so on.  Empty: the GPU of the local rank.  gpus_of_worker() gives
  // each worker of a node as many.
  std::vector<at::Device> devices;

  // How long a collective or barrier() waits for the other ranks.  Unset: the variable
  // DDPRUN_TIMEOUT (seconds), else 30 minutes, as in PyTorch.  A shorter one finds a hung rank
  // sooner and must still outlast the slowest rank's pause, such as a checkpoint.
  std::optional<std::chrono::milliseconds> timeout;

  // Tells the groups of one program apart in the store.  All ranks give the same.  A name can be
  // used again, by all ranks in the same order: that makes another group.
  std::string name = "default";
};

// The ranks of a run, seen from one of them.  A handle: copies share one connection.
//
// Threads: one at a time, but for abort(); the collectives must be called by all ranks in the same
// order. Lifetime: the connections close when the last copy, and the last DistributedDataParallel
// made from it, are gone.  Over Gloo that must not happen in a callback of a collective's future:
// torch's Gloo would wait for its own thread, and aborts.
//
// Every collective throws DdpError when a peer is lost or the timeout passes; the error names the
// ranks that have ended, that did not come, or that left parameters out, as far as they can be
// known.  The group is unusable after that: end the process, and let the launcher restart all.
// Over shared memory all waiting ranks get the error at once.  Over Gloo a rank may wait until the
// timeout, unless the ranks that got the error have ended.
//
// A backward pass that leaves parameters out without find_unused_parameters leaves its reduction
// half done: until a further pass has brought the rest, every collective of the group throws, since
// the other ranks would take its message for a part of that reduction.  With
// DataParallelOptions::split_backward it asks the other ranks first, and throws unless all have
// left the same for the next pass.
class ProcessGroup {
 public:
  const worker::WorkerEnv& env() const;
  int rank() const { return env().rank; }
  int world_size() const { return env().world_size; }
  int local_rank() const { return env().local_rank; }

  // "shm" or "gloo": who carries CPU tensors here, the same on all ranks.
  const std::string& cpu_backend() const;

  // Where this rank's module and data belong: the CPU, or with NCCL the first of
  // ProcessGroupOptions::devices, else the GPU of its local rank among those in
  // CUDA_VISIBLE_DEVICES.
  at::Device device() const;

  // Waits until every rank has come here.  It goes through the store, so that a time-out names the
  // ranks that did not come, and leaves the group usable.
  void barrier();

  // Sums `tensor` over the ranks, in place on each; dense, on the CPU or on device(), of the same
  // shape and dtype on all.  Returns when the sum is there; of a GPU's tensor, when work queued on
  // its current stream from now on will see it.
  void all_reduce(at::Tensor tensor);

  // Gives every rank the `root`'s content of `tensor`, in place; shape and dtype are the same on
  // all.
  void broadcast(at::Tensor tensor, int root = 0);

  // The same for many tensors at once, in few messages.
  void broadcast(std::vector<at::Tensor> tensors, int root = 0);

  // The `tensor` of every rank, by rank; shape and dtype are the same on all.
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor);

  // Gives every rank the `root`'s `text`; the others' argument is ignored.
  std::string broadcast_text(const std::string& text, int root = 0);

  // Returns if every rank passes an empty `problem`; otherwise every rank throws the same DdpError,
  // the sentence of the lowest rank that passed one.  For steps that may fail on one rank only,
  // such as reading its share of the data.
  void throw_first_problem(const std::string& problem);

  // Ends the collectives under way.  Over shared memory every rank that waits for this one throws
  // DdpError at once and names it; over NCCL (torch 2.9 or newer) this rank's collectives end, and
  // the others' end by their timeout.  Any thread may call it, also during a collective.  The group
  // is unusable afterwards.  Gloo cannot abort: then this throws DdpError; end the process instead.
  void abort();

  // The c10d group, for what this class does not offer.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const;
  const c10::intrusive_ptr<c10d::Store>& store() const;

  // For the runtime itself: the failures that ranks report to each other.
  PeerFailures& peer_failures() const;

 private:
  struct Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  friend ProcessGroup init_process_group(const ProcessGroupOptions&, const worker::WorkerEnv&);

  std::shared_ptr<Impl> impl_;
};

// Joins the other ranks as the process's environment says, and returns when all are there.
// Also sets LibTorch's number of threads from OMP_NUM_THREADS, which a launcher sets to 1 where
// several workers share a machine, and ignores SIGPIPE as Python does, unless the program has set
// it: over Gloo the end of a peer raises it.  Throws DdpError: a variable is missing or invalid,
// the backend is not built, the store cannot be reached, or a rank (named) does not come within the
// timeout.
ProcessGroup init_process_group(const ProcessGroupOptions& options = {});

// How many GPUs NCCL can use in this process: 0 without NVIDIA's driver or a GPU, and then nothing
// else is loaded.  Where there are some it loads the plug-in and LibTorch's CUDA half, without
// which torch::cuda::is_available() is false.  Throws DdpError when there is a GPU and no plug-in
// that fits.
int gpu_count();

// `count` GPUs of this worker's own, for ProcessGroupOptions::devices: the worker of local rank 1
// has GPUs 2 and 3 of 2 for each.  Empty when there are not that many for every worker of the node.
// Throws DdpError as gpu_count() does, and when the environment is not that of a worker.
std::vector<at::Device> gpus_of_worker(int count);

// The same for an environment already read; sets no number of threads.
ProcessGroup init_process_group(const ProcessGroupOptions& options, const worker::WorkerEnv& env);

}  // namespace ddprun::ddp
