// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/diagnosing_group.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace {

using Future = c10::ivalue::Future;

class DiagnosingWork : public c10d::Work {
 public:
  DiagnosingWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<PeerFailures> peer_failures)
      : Work(-1, work->retrieveOpType()),
        work_(std::move(work)),
        peer_failures_(std::move(peer_failures)) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  int sourceRank() const override { return work_->sourceRank(); }
  std::vector<at::Tensor> result() override { return work_->result(); }
  void synchronize() override { work_->synchronize(); }
  void abort() override { work_->abort(); }

  bool wait(std::chrono::milliseconds timeout) override {
    try {
      return work_->wait(timeout);
    } catch (const std::exception&) {
      throw DdpError(peer_failures_->diagnose(message_of(std::current_exception())));
    }
  }

  c10::intrusive_ptr<Future> getFuture() override {
    auto future = work_->getFuture();
    return future->then(
        [peer_failures = peer_failures_](Future& done) {
          if (done.hasError())
            throw DdpError(peer_failures->diagnose(message_of(done.exception_ptr())));
          return done.value();
        },
        future->elementType());
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::shared_ptr<PeerFailures> peer_failures_;
};

class DiagnosingProcessGroup : public c10d::ProcessGroup {
 public:
  DiagnosingProcessGroup(c10::intrusive_ptr<c10d::Store> store,
                         std::shared_ptr<PeerFailures> peer_failures, int rank, int world_size)
      : ProcessGroup(std::move(store), rank, world_size),
        peer_failures_(std::move(peer_failures)) {}

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return diagnosed(ProcessGroup::allreduce(tensors, options), tensors);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return diagnosed(ProcessGroup::broadcast(tensors, options), tensors);
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options) override {
    return diagnosed(ProcessGroup::reduce(tensors, options), tensors);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    return diagnosed(ProcessGroup::allgather(outputs, inputs, options), inputs);
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    return diagnosed(ProcessGroup::barrier(options));
  }

 private:
  c10::intrusive_ptr<c10d::Work> diagnosed(c10::intrusive_ptr<c10d::Work> work,
                                           const std::vector<at::Tensor>& tensors) const {
    const bool is_of_cpu = !tensors.empty() && tensors[0].is_cpu();
    return is_of_cpu ? diagnosed(std::move(work)) : work;
  }
  c10::intrusive_ptr<c10d::Work> diagnosed(c10::intrusive_ptr<c10d::Work> work) const {
    return c10::make_intrusive<DiagnosingWork>(std::move(work), peer_failures_);
  }

  std::shared_ptr<PeerFailures> peer_failures_;
};

}  // namespace

std::string message_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an error of a type that is not known";
  }
}

c10::intrusive_ptr<c10d::ProcessGroup> make_diagnosing_group(
    const c10::intrusive_ptr<c10d::Store>& store, std::shared_ptr<PeerFailures> peer_failures,
    int rank, int world_size) {
  return c10::make_intrusive<DiagnosingProcessGroup>(store, std::move(peer_failures), rank,
                                                     world_size);
}

}  // namespace ddprun::ddp
