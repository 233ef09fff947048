// SPDX-License-Identifier: BSD-3-Clause
//
// A backend that forwards every collective to another one; a base class for a backend that
// implements only some, or that has several others and chooses by the tensor.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

namespace ddprun::ddp::shm {

class Forwarding : public c10d::Backend {
 public:
  // REQUIRES: `others` is not null.  Takes its rank and size, and forwards to it.
  explicit Forwarding(c10::intrusive_ptr<c10d::Backend> others)
      : c10d::Backend(others->getRank(), others->getSize()), others_(std::move(others)) {}

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = {}) override {
    return other(first(tensors)).allreduce(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options = {}) override {
    return other(first(tensors)).broadcast(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options = {}) override {
    return other(first(inputs)).allgather(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options = {}) override {
    return other(input)._allgather_base(output, input, options);
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options = {}) override {
    return others_->barrier(options);
  }
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(
      std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options = {}) override {
    return other(first(tensors)).allreduce_sparse(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceCoalescedOptions& options = {}) override {
    return other(first(tensors)).allreduce_coalesced(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options = {}) override {
    return other(first(tensors)).reduce(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(
      std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options = {}) override {
    return other(first(inputs)).allgather_coalesced(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options = {}) override {
    return other(first(inputs)).allgather_into_tensor_coalesced(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options = {}) override {
    return other(first(inputs)).gather(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs,
                                         std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options = {}) override {
    return other(first(outputs)).scatter(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> reduce_scatter(
      std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
      const c10d::ReduceScatterOptions& options = {}) override {
    return other(first(outputs)).reduce_scatter(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& options = {}) override {
    return other(input)._reduce_scatter_base(output, input, options);
  }
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::ReduceScatterOptions& options = {}) override {
    return other(first(inputs)).reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<std::int64_t>& output_sizes,
                                               std::vector<std::int64_t>& input_sizes,
                                               const c10d::AllToAllOptions& options = {}) override {
    return other(input).alltoall_base(output, input, output_sizes, input_sizes, options);
  }
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options = {}) override {
    return other(first(inputs)).alltoall(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    return other(first(tensors)).send(tensors, to, tag);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from,
                                      int tag) override {
    return other(first(tensors)).recv(tensors, from, tag);
  }
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override {
    return other(first(tensors)).recvAnysource(tensors, tag);
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) override {
    others_->monitoredBarrier(options, wait_for_all);
  }

 protected:
  // The one for this tensor, which is undefined where a caller gave none.
  virtual c10d::Backend& other(const at::Tensor&) { return *others_; }

  const c10::intrusive_ptr<c10d::Backend> others_;

 private:
  static at::Tensor first(const std::vector<at::Tensor>& tensors) {
    return tensors.empty() ? at::Tensor() : tensors[0];
  }
};

}  // namespace ddprun::ddp::shm
