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

#include "worker/ddp/async_work.h"
#include "worker/ddp/error.h"
#include "worker/ddp/reduce_op.h"
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
  std::optional<std::string> backend{};

  // The GPUs of this rank's tensors, with NCCL only: one, or several for a module in parts on
  // several of them, as many on each rank.  The tensors on the first are reduced with those on the
  // first of the other ranks, and so on.  Empty: the GPU of the local rank.  gpus_of_worker() gives
  // each worker of a node as many.
  std::vector<at::Device> devices{};

  // How long a collective or barrier() waits for the other ranks.  Unset: the variable
  // DDPRUN_TIMEOUT (seconds), else 30 minutes, as in PyTorch.  A shorter one finds a hung rank
  // sooner and must still outlast the slowest rank's pause, such as a checkpoint.
  std::optional<std::chrono::milliseconds> timeout{};

  // Tells the groups of one program apart in the store.  All ranks give the same.  A name can be
  // used again, by all ranks in the same order: that makes another group.
  std::string name = "default";

  // For debugging: compares what the ranks call, before anything is sent, and where they call
  // different collectives, or one of tensors of different shapes or dtypes, every rank throws a
  // DdpError that has the calls of all, and the group goes on.  Of the collectives of this class
  // and of barrier(), and of the forwards of DistributedDataParallel that synchronise; not of
  // messages between two ranks.  Each then costs some requests to the store by every rank.  Unset:
  // if the variable TORCH_DISTRIBUTED_DEBUG is DETAIL, as in Python.  One rank that asks for it is
  // enough.
  std::optional<bool> check_collectives{};
};

struct SubgroupOptions {
  // As in ProcessGroupOptions; unset: that of the whole group.
  std::optional<std::string> backend{};
  std::optional<std::chrono::milliseconds> timeout{};
};

struct AdoptOptions {
  // A store that the ranks share and in which nobody else uses keys below "ddprun/": through it
  // they report failures to each other, and barrier() names the ranks that do not come.  Null: the
  // one that the group was made with.  (To give it an initialiser here takes the whole type, which
  // programs need not include.)
  c10::intrusive_ptr<c10d::Store> store;

  // Where this rank's module and data belong.
  at::Device device = at::kCPU;

  // How long barrier() waits for the other ranks, as in ProcessGroupOptions; how long a collective
  // waits, the group itself decides.
  std::optional<std::chrono::milliseconds> timeout{};
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

  // "shm" or "gloo": who carries CPU tensors here, the same on all ranks.  Of an adopted group the
  // name of its backend.
  const std::string& cpu_backend() const;

  // Where this rank's module and data belong: the CPU, or with NCCL the first of
  // ProcessGroupOptions::devices, else the GPU of its local rank among those in
  // CUDA_VISIBLE_DEVICES.
  at::Device device() const;

  // Waits until every rank has come here.  It goes through the store, so that a time-out names the
  // ranks that did not come, and leaves the group usable.
  void barrier();

  // --- Collectives.  All ranks of the group call them, with tensors of the same dtype and, where
  // nothing else is said, of the same shape: dense ones on the CPU, of any strides, or on device().
  // They return when the results are there; of a GPU's tensors, when work queued on its current
  // stream from now on will see them.  The forms in _async return at once, and AsyncWork::wait()
  // gives what the others return; AsyncWork says what may be done with the tensors meanwhile.  What
  // a rank asks for wrongly, such as a root that is no rank, throws on that rank alone.

  // Reduces `tensor` over the ranks, in place on each.
  void all_reduce(at::Tensor tensor, ReduceOp op = ReduceOp::Sum);
  AsyncWork all_reduce_async(at::Tensor tensor, ReduceOp op = ReduceOp::Sum);

  // The same, in place on the `root` alone; the others keep their tensors.
  void reduce(at::Tensor tensor, int root = 0, ReduceOp op = ReduceOp::Sum);
  AsyncWork reduce_async(at::Tensor tensor, int root = 0, ReduceOp op = ReduceOp::Sum);

  // Gives every rank the `root`'s content of `tensor`, in place.
  void broadcast(at::Tensor tensor, int root = 0);
  AsyncWork broadcast_async(at::Tensor tensor, int root = 0);

  // The same for many tensors at once, in few messages.
  void broadcast(std::vector<at::Tensor> tensors, int root = 0);

  // The `tensor` of every rank, by rank.
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor);
  AsyncWork all_gather_async(const at::Tensor& tensor);

  // The same on the `root`; nothing on the others.
  std::vector<at::Tensor> gather(const at::Tensor& tensor, int root = 0);
  AsyncWork gather_async(const at::Tensor& tensor, int root = 0);

  // Gives each rank's `output` the tensor of its number among the `root`'s `inputs`; the others'
  // inputs are ignored.
  void scatter(at::Tensor output, const std::vector<at::Tensor>& inputs = {}, int root = 0);
  AsyncWork scatter_async(at::Tensor output, const std::vector<at::Tensor>& inputs = {},
                          int root = 0);

  // Each rank gives a tensor for every rank; its `output` is the reduction of those for itself.
  void reduce_scatter(at::Tensor output, const std::vector<at::Tensor>& inputs,
                      ReduceOp op = ReduceOp::Sum);
  AsyncWork reduce_scatter_async(at::Tensor output, const std::vector<at::Tensor>& inputs,
                                 ReduceOp op = ReduceOp::Sum);

  // Each rank gives a tensor for every rank and takes one from each, by rank.  Shapes may differ,
  // but that of an output is that of the sender's input for this rank.
  void all_to_all(std::vector<at::Tensor> outputs, const std::vector<at::Tensor>& inputs);
  AsyncWork all_to_all_async(std::vector<at::Tensor> outputs,
                             const std::vector<at::Tensor>& inputs);

  // A message from one rank to another; the other ranks call nothing.  Messages of a sender with
  // the same `tag` arrive in their order.  To send may take until the receiver is there.
  void send(const at::Tensor& tensor, int to, int tag = 0);
  AsyncWork send_async(const at::Tensor& tensor, int to, int tag = 0);
  void recv(at::Tensor tensor, int from, int tag = 0);
  AsyncWork recv_async(at::Tensor tensor, int from, int tag = 0);

  // --- The same for texts of any length and content, which may differ between ranks.
  std::string broadcast_text(const std::string& text, int root = 0);
  std::vector<std::string> all_gather_text(const std::string& text);
  std::vector<std::string> gather_text(const std::string& text, int root = 0);
  std::string scatter_text(const std::vector<std::string>& texts, int root = 0);
  void send_text(const std::string& text, int to, int tag = 0);
  std::string recv_text(int from, int tag = 0);

  // --- The same for objects that have a text: of a class such as nlohmann::json, with
  // `std::string dump()` and a static `parse(text)`.  What those throw comes out on that rank.
  template <class Json>
  Json broadcast_object(const Json& object, int root = 0) {
    return Json::parse(broadcast_text(rank() == root ? object.dump() : "", root));
  }
  template <class Json>
  std::vector<Json> all_gather_object(const Json& object) {
    return parsed<Json>(all_gather_text(object.dump()));
  }
  template <class Json>
  std::vector<Json> gather_object(const Json& object, int root = 0) {
    return parsed<Json>(gather_text(object.dump(), root));
  }
  template <class Json>
  Json scatter_object(const std::vector<Json>& objects, int root = 0) {
    std::vector<std::string> texts;
    for (const Json& object : objects) texts.push_back(object.dump());
    return Json::parse(scatter_text(texts, root));
  }
  template <class Json>
  void send_object(const Json& object, int to, int tag = 0) {
    send_text(object.dump(), to, tag);
  }
  template <class Json>
  Json recv_object(int from, int tag = 0) {
    return Json::parse(recv_text(from, tag));
  }

  // Returns if every rank passes an empty `problem`; otherwise every rank throws the same DdpError,
  // the sentence of the lowest rank that passed one.  For steps that may fail on one rank only,
  // such as reading its share of the data.
  void throw_first_problem(const std::string& problem);

  // A group of the `ranks`, numbered from 0 in the order of their numbers here; nullopt on a rank
  // that is not among them.  All ranks of this group call it together, also those that are not in
  // `ranks`, with the same `ranks` in any order; otherwise, and for a number that is no rank or is
  // there twice, all throw the same DdpError.  It has connections and a failure state of its own;
  // local_rank() stays.  Where the program hosts the worker store itself (under a launcher without
  // agents), rank 0 keeps this group until the new one is gone on all ranks.
  std::optional<ProcessGroup> new_group(const std::vector<int>& ranks,
                                        const SubgroupOptions& options = {});

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

  // For the runtime itself: what this rank does next with all others, as check_collectives compares
  // it.
  void compare_call(const char* words) const;

 private:
  struct Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  friend ProcessGroup init_process_group(const ProcessGroupOptions&, const worker::WorkerEnv&);
  friend ProcessGroup adopt_process_group(c10::intrusive_ptr<c10d::ProcessGroup>,
                                          const AdoptOptions&);

  template <class Json>
  static std::vector<Json> parsed(const std::vector<std::string>& texts) {
    std::vector<Json> objects;
    for (const std::string& text : texts) objects.push_back(Json::parse(text));
    return objects;
  }

  // What this handle refers to; throws DdpError if the program has moved it away.
  Impl& alive() const;

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

// A group that the program has made itself, for DistributedDataParallel and all else that takes a
// ProcessGroup.  All its ranks call this together; it returns when all are there.  env() has rank
// and world size, and else the defaults.  The group needs a backend for CPU tensors, also with
// `device` on a GPU.  Its collectives are its own: their errors in a backward pass are the
// transport's, and abort() throws.  Throws DdpError for a null group, one without a store or
// without a backend for the CPU, and when a rank does not come within the timeout.
ProcessGroup adopt_process_group(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                 const AdoptOptions& options = {});

}  // namespace ddprun::ddp
