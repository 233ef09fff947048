// SPDX-License-Identifier: BSD-3-Clause
//
// Shared memory of one node as a c10d::Backend, so that a Reducer, or any other user of a process
// group, works over it as over Gloo.
//
// all_reduce and reduce (sum, mean, product, min, max of float, double, half, bfloat16 and
// integers), broadcast, all_gather, gather and barrier of dense CPU tensors run here; everything
// else is forwarded to Gloo. Results are the same bits on every rank and depend on the order of the
// ranks only.
#pragma once

#include <atomic>
#include <memory>

#include "worker/ddp/forwarding_backend.h"
#include "worker/shm/engine.h"

namespace ddprun::ddp::shm {

// Whether tensors of that dtype are reduced here, and not by Gloo.
bool reduces(at::ScalarType type);

// Threads: any; all ranks call the same collectives in the same order.
// Failure: if a peer dies, leaves, is late or calls another collective, every rank that waits
// throws DdpError at once, and so does every later collective. Lifetime: the destructor completes
// pending collectives; during stack unwinding it aborts them.
class Backend : public Forwarding {
 public:
  // `others` runs the other collectives; it has the same rank and size.
  Backend(std::unique_ptr<Channel> channel, c10::intrusive_ptr<c10d::Backend> others,
          std::chrono::milliseconds timeout);
  ~Backend() override;

  const std::string getBackendName() const override { return "shm"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = {}) override;
  // The tensor of a rank that is not the root stays as it is.
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options = {}) override;

  // Virtual in newer LibTorch only, hence without "override".
  // NOLINTBEGIN(modernize-use-override)
  void abort();
  void shutdown();
  void setTimeout(std::chrono::milliseconds timeout);
  // NOLINTEND(modernize-use-override)

 private:
  std::chrono::milliseconds timeout_of(std::chrono::milliseconds asked) const;
  bool is_rank(std::int64_t root) const;

  std::shared_ptr<Engine> engine_;
  std::atomic<std::chrono::milliseconds> timeout_;
};

}  // namespace ddprun::ddp::shm
