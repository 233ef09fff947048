// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/async_work.h"

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "worker/ddp/diagnosing_group.h"
#include "worker/ddp/dropped_messages.h"
#include "worker/ddp/error.h"
#include "worker/ddp/peer_failures.h"

namespace ddprun::ddp {

struct AsyncWork::State {
  const char* name;
  c10::intrusive_ptr<c10d::Work> work;  // null once it is complete
  std::vector<at::Tensor> results;
  std::function<void()> finish;
  std::shared_ptr<PeerFailures> peer_failures;
  std::weak_ptr<DroppedMessages> keeper;  // null where the work goes on without its handle
  std::optional<std::string> problem{};

  ~State() {
    auto group = work ? keeper.lock() : nullptr;
    if (group) group->take(std::move(work), std::move(finish));
  }

  std::string wait_for_work() {
    try {
      work->wait();
    } catch (const DdpError& error) {
      return error.what();
    } catch (const std::exception&) {
      return peer_failures->diagnose(message_of(std::current_exception()));
    }
    return "";
  }

  std::string run_finish() {
    try {
      if (finish) finish();
    } catch (const std::exception&) {
      return message_of(std::current_exception());
    }
    return "";
  }
};

const std::vector<at::Tensor>& AsyncWork::wait() {
  if (!state_->problem) {
    std::string problem = state_->work ? state_->wait_for_work() : "";
    if (problem.empty()) problem = state_->run_finish();
    state_->work.reset();
    state_->finish = nullptr;
    state_->problem = problem.empty() ? "" : std::string(state_->name) + ": " + problem;
  }
  if (!state_->problem->empty()) throw DdpError(*state_->problem);
  return state_->results;
}

bool AsyncWork::is_completed() {
  return !state_->work || state_->work->isCompleted();
}

AsyncWork make_async_work(const char* name, c10::intrusive_ptr<c10d::Work> work,
                          std::vector<at::Tensor> results, std::function<void()> finish,
                          std::shared_ptr<PeerFailures> peer_failures,
                          std::weak_ptr<DroppedMessages> keeper) {
  return AsyncWork(std::shared_ptr<AsyncWork::State>(new AsyncWork::State{
      .name = name,
      .work = std::move(work),
      .results = std::move(results),
      .finish = std::move(finish),
      .peer_failures = std::move(peer_failures),
      .keeper = std::move(keeper),
  }));
}

}  // namespace ddprun::ddp
