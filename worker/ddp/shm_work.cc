// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/shm_work.h"

#include "worker/ddp/error.h"

namespace ddprun::ddp::shm {

using std::chrono::steady_clock;

Work::Work(c10d::OpType type, std::shared_ptr<Engine> engine, std::vector<at::Tensor> results)
    : c10d::Work(engine->rank(), type),
      engine_(std::move(engine)),
      results_(std::move(results)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors())) {}

c10::intrusive_ptr<Work> Work::start(c10d::OpType type, std::shared_ptr<Engine> engine,
                                     const Request& request, Engine::Start start,
                                     std::vector<at::Tensor> results, std::vector<at::Tensor> kept,
                                     std::function<void()> on_success) {
  auto work = c10::make_intrusive<Work>(type, engine, results);
  auto on_end = [future = work->future_, results = std::move(results),
                 kept = std::move(kept)](const std::optional<std::string>& problem) {
    if (problem) {
      future->setErrorIfNeeded(std::make_exception_ptr(DdpError(*problem)));
    } else {
      future->markCompleted(c10::IValue(results));
    }
  };
  work->job_ = engine->submit(request, start, std::move(on_success), std::move(on_end));
  return work;
}

bool Work::isCompleted() {
  engine_->kick();
  return engine_->is_done(*job_);
}

bool Work::isSuccess() const {
  return engine_->is_done(*job_) && !engine_->problem_of(*job_);
}

std::exception_ptr Work::exception() const {
  std::optional<std::string> problem = engine_->problem_of(*job_);
  return problem ? std::make_exception_ptr(DdpError(*problem)) : nullptr;
}

bool Work::wait(std::chrono::milliseconds timeout) {
  if (timeout != kNoTimeout && !engine_->wait_until(job_, steady_clock::now() + timeout)) {
    throw DdpError(c10d::opTypeToString(retrieveOpType()) + " is not complete after " +
                   std::to_string(timeout.count()) + " ms");
  }
  if (std::optional<std::string> problem = engine_->wait(job_)) throw DdpError(*problem);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  engine_->kick();
  return future_;
}

}  // namespace ddprun::ddp::shm
