// SPDX-License-Identifier: BSD-3-Clause
#include "agent/attempt_start.h"

#include <chrono>

#include "store/base/count.h"
#include "store/base/seconds.h"
#include "store/clock.h"
#include "worker/process/io_thread.h"

namespace ddprun::agent {
AttemptStart::AttemptStart(const boost::asio::any_io_executor& executor, Parts parts)
    : parts_(std::move(parts)), slow_(executor) {}

// An exec that takes long: Python on a slow shared disk, say.
void AttemptStart::all_forked() {
  exec_began_ = mono_now();
  slow_.expires_at(exec_began_ + process::IoThread::kStall);
  slow_.async_wait([this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
    if (error || alive.expired()) return;
    has_warned_ = true;
    Duration lasted = mono_now() - exec_began_;
    parts_.on_warning("'start " + parts_.program + "' has stood still for " + seconds_text(lasted) +
                      " for " + count_of(unsettled_, "worker") + "; the run goes on meanwhile");
  });
}

void AttemptStart::fail(int local_rank, std::string why, int exit_code, int count) {
  not_started_ += count;
  Workers::StartFailure failure{
      .started = parts_.workers - 1, .why = std::move(why), .exit_code = exit_code};
  if (is_stopping_) return parts_.on_started(failure);
  bool is_own = failure_ && failure_->exit_code == kExitInfrastructure;
  if (is_own || (failure_ && failed_local_rank_ < local_rank)) return;
  failure_ = std::move(failure);
  failed_local_rank_ = local_rank;
}

std::optional<Workers::StartFailure> AttemptStart::set_stopping() {
  is_stopping_ = true;
  if (failure_) failure_->started = parts_.workers - not_started_;
  return failure_;
}

void AttemptStart::finish() {
  if (has_warned_) {
    Duration lasted = mono_now() - exec_began_;
    parts_.on_warning("'start " + parts_.program + "' stood still for " + seconds_text(lasted));
  }
  if (is_stopping_) return;
  if (failure_) failure_->started = parts_.workers - not_started_;
  parts_.on_started(failure_);
}

}  // namespace ddprun::agent
