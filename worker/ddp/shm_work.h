// SPDX-License-Identifier: BSD-3-Clause
//
// A collective under way, as a c10d::Work.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "worker/shm/engine.h"

namespace ddprun::ddp::shm {

// Threads: any.  Lifetime: may outlive its backend, and is complete by then.
class Work : public c10d::Work {
 public:
  // Submits `request` to `engine`.  `on_success` runs first, then the future completes with
  // `results`. `kept` must hold the tensors that the request points into.
  static c10::intrusive_ptr<Work> start(c10d::OpType type, std::shared_ptr<Engine> engine,
                                        const Request& request, Engine::Start start,
                                        std::vector<at::Tensor> results,
                                        std::vector<at::Tensor> kept,
                                        std::function<void()> on_success);

  Work(c10d::OpType type, std::shared_ptr<Engine> engine, std::vector<at::Tensor> results);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override { engine_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Job> job_;
  std::vector<at::Tensor> results_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace ddprun::ddp::shm
