// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/diagnosing_group.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace {

using Future = c10::ivalue::Future;

class ExplainedWork : public c10d::Work {
 public:
  ExplainedWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<Incidents> incidents)
      : Work(-1, work->retrieveOpType()),
        work_(std::move(work)),
        incidents_(std::move(incidents)) {}

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
      throw DdpError(incidents_->explain(words_of(std::current_exception())));
    }
  }

  c10::intrusive_ptr<Future> getFuture() override {
    auto future = work_->getFuture();
    return future->then(
        [incidents = incidents_](Future& done) {
          if (done.hasError()) throw DdpError(incidents->explain(words_of(done.exception_ptr())));
          return done.value();
        },
        future->elementType());
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::shared_ptr<Incidents> incidents_;
};

class ExplainedGroup : public c10d::ProcessGroup {
 public:
  ExplainedGroup(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<Incidents> incidents,
                 int rank, int world_size)
      : ProcessGroup(std::move(store), rank, world_size), incidents_(std::move(incidents)) {}

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return explained(ProcessGroup::allreduce(tensors, options), tensors);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return explained(ProcessGroup::broadcast(tensors, options), tensors);
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options) override {
    return explained(ProcessGroup::reduce(tensors, options), tensors);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    return explained(ProcessGroup::allgather(outputs, inputs, options), inputs);
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    return explained(ProcessGroup::barrier(options));
  }

 private:
  c10::intrusive_ptr<c10d::Work> explained(c10::intrusive_ptr<c10d::Work> work,
                                           const std::vector<at::Tensor>& tensors) const {
    const bool is_of_cpu = !tensors.empty() && tensors[0].is_cpu();
    return is_of_cpu ? explained(std::move(work)) : work;
  }
  c10::intrusive_ptr<c10d::Work> explained(c10::intrusive_ptr<c10d::Work> work) const {
    return c10::make_intrusive<ExplainedWork>(std::move(work), incidents_);
  }

  std::shared_ptr<Incidents> incidents_;
};

}  // namespace

std::string words_of(const std::exception_ptr& exception) {
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

c10::intrusive_ptr<c10d::ProcessGroup> make_explained_group(
    const c10::intrusive_ptr<c10d::Store>& store, std::shared_ptr<Incidents> incidents, int rank,
    int world_size) {
  return c10::make_intrusive<ExplainedGroup>(store, std::move(incidents), rank, world_size);
}

}  // namespace ddprun::ddp
