// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/engine.h"

#include <exception>
#include <utility>

#include "store/base/signal_mask.h"

namespace ddprun::ddp::shm {

using std::chrono::steady_clock;

namespace {

// Runs `action`; its exception as a sentence.
std::optional<std::string> error_of(const std::function<void()>& action) {
  try {
    action();
    return std::nullopt;
  } catch (const std::exception& error) {
    return std::string("the result cannot be copied back: ") + error.what();
  } catch (...) {
    return "the result cannot be copied back";
  }
}

}  // namespace

Engine::Engine(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {
  std::lock_guard lock(mutex_);
  wake_background();
}

Engine::~Engine() {
  close();
}

std::shared_ptr<Job> Engine::submit(const Request& request, Start start,
                                    std::function<void()> on_success,
                                    std::function<void(const std::optional<std::string>&)> on_end) {
  Lock lock(mutex_);
  auto job =
      std::make_shared<Job>(Transfer(request, next_chunk_, channel_->layout(), steady_clock::now()),
                            std::move(on_success), std::move(on_end));
  next_chunk_ = job->transfer_.plan().end();
  const bool is_first = queue_.empty();
  const bool is_posted = !failure_ && is_first && job->transfer_.try_post(*channel_);
  queue_.push_back(job);
  // A peer may need data that this rank has not posted, before a thread here waits for the job.
  if (!is_first || (start == Start::Now && !is_posted)) is_kicked_ = true;
  if (is_kicked_) wake_background();
  return job;
}

std::optional<std::string> Engine::wait(const std::shared_ptr<Job>& job) {
  Lock lock(mutex_);
  while (!job->is_done_) {
    if (is_running_) {
      changed_.wait(lock);
    } else {
      run_first(lock, WaitMode::Spin);
    }
  }
  return job->problem_;
}

// Unlocks while it runs the job: the job stays first in the queue, and is_running_ keeps other
// threads away.
void Engine::run_first(Lock& lock, WaitMode mode) {
  std::shared_ptr<Job> job = queue_.front();
  std::optional<std::string> problem = failure_;
  is_running_ = true;
  lock.unlock();
  if (!problem) problem = job->transfer_.run(*channel_, mode);
  if (problem) channel_->fail(*problem, job->transfer_.plan().number(0));
  std::optional<std::string> own_problem;
  if (!problem && job->on_success_) own_problem = error_of(job->on_success_);
  lock.lock();
  if (problem && !failure_) failure_ = problem;
  if (own_problem) problem = own_problem;  // the peers have their results, and the group goes on
  job->problem_ = problem;
  job->is_done_ = true;
  queue_.pop_front();
  is_running_ = false;
  if (queue_.empty()) is_kicked_ = false;
  const bool is_background = mode == WaitMode::Sleep;
  if (is_background && job->on_end_) --free_background_;
  if (is_kicked_ || is_closing_) wake_background();
  changed_.notify_all();
  lock.unlock();
  if (job->on_end_) job->on_end_(problem);
  lock.lock();
  if (is_background && job->on_end_) ++free_background_;
}

// Has a background thread look for work, and starts one if there is none that could.
void Engine::wake_background() {
  if (has_stopped_) return;
  if (free_background_ == 0 && (!queue_.empty() || background_.empty())) {
    SignalsBlocked blocked;  // the handlers run on the program's own threads
    background_.emplace_back([this] { run_background(); });
    ++free_background_;
  } else {
    work_ready_.notify_one();
  }
}

void Engine::run_background() {
  Lock lock(mutex_);
  while (true) {
    work_ready_.wait(lock, [&] {
      if (is_running_) return false;
      return queue_.empty() ? is_closing_ : is_kicked_ || is_closing_;
    });
    if (queue_.empty()) break;
    run_first(lock, WaitMode::Sleep);
  }
  --free_background_;
  work_ready_.notify_all();  // the last job's end may have woken this thread alone
}

// An `on_end` that is still running may start one more thread, which runs what it waits for.
void Engine::stop_background() {
  Lock lock(mutex_);
  while (!background_.empty()) {
    std::thread thread = std::move(background_.back());
    background_.pop_back();
    lock.unlock();
    thread.join();
    lock.lock();
  }
  has_stopped_ = true;
}

bool Engine::is_on_background() const {
  std::lock_guard lock(mutex_);
  for (const std::thread& thread : background_) {
    if (thread.get_id() == std::this_thread::get_id()) return true;
  }
  return false;
}

void Engine::release(std::shared_ptr<Engine> engine) {
  if (!engine->is_on_background()) return engine->close();
  std::thread([engine = std::move(engine)] { engine->close(); }).detach();
}

void Engine::kick() {
  std::lock_guard lock(mutex_);
  if (queue_.empty() || is_kicked_) return;
  is_kicked_ = true;
  wake_background();
}

bool Engine::wait_until(const std::shared_ptr<Job>& job, Deadline deadline) {
  kick();
  Lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return job->is_done_; });
}

std::optional<std::string> Engine::problem_of(const Job& job) {
  std::lock_guard lock(mutex_);
  return job.problem_;
}

bool Engine::is_done(const Job& job) {
  std::lock_guard lock(mutex_);
  return job.is_done_;
}

void Engine::abort() {
  const std::string reason = "rank " + std::to_string(rank()) + " of " + std::to_string(ranks()) +
                             " has aborted the group";
  std::lock_guard lock(mutex_);
  channel_->fail(reason, queue_.empty() ? next_chunk_ : queue_.front()->transfer_.plan().number(0));
  if (!failure_) failure_ = reason;
  is_kicked_ = true;
  wake_background();
}

void Engine::close() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    is_closing_ = true;
    work_ready_.notify_all();
  }
  stop_background();
  channel_->leave();
  std::lock_guard lock(mutex_);
  if (!failure_) failure_ = "the group is closed on rank " + std::to_string(rank());
}

}  // namespace ddprun::ddp::shm
