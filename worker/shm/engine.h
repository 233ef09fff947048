// SPDX-License-Identifier: BSD-3-Clause
//
// Runs the collectives of one rank, one after the other, in the order of submission.  A thread that
// waits for a collective runs it itself, which saves a thread switch.  A background thread runs
// those that no thread waits for, beside the computation.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/shm/transfer.h"

namespace ddprun::ddp::shm {

// A submitted collective.
class Job {
 public:
  Job(Transfer transfer, std::function<void()> on_success,
      std::function<void(const std::optional<std::string>&)> on_end)
      : transfer_(std::move(transfer)),
        on_success_(std::move(on_success)),
        on_end_(std::move(on_end)) {}

 private:
  friend class Engine;
  Transfer transfer_;
  std::function<void()> on_success_;
  std::function<void(const std::optional<std::string>&)> on_end_;
  bool is_done_ = false;                // under the engine's mutex
  std::optional<std::string> problem_;  // final once is_done_
};

// Threads: any, but all ranks must submit the same collectives in the same order.
// Lifetime: close() ends it; the channel is its own.
class Engine {
 public:
  explicit Engine(std::unique_ptr<Channel> channel);
  ~Engine();

  int rank() const { return channel_->rank(); }
  int ranks() const { return channel_->ranks(); }

  // ByWaiter: the caller calls wait() at once.
  enum class Start : std::uint8_t { Now, ByWaiter };

  // Submits a collective and returns at once.  `on_success` runs before it counts as done, `on_end`
  // (with an error sentence if it failed) soon after; both run on the thread that ran the
  // collective. An exception out of `on_success` fails this collective on this rank only.  `on_end`
  // must not throw; it may submit collectives and wait for them.  The background thread starts if
  // the peers need data from this rank; the rest waits for wait(), kick() or the next submission.
  std::shared_ptr<Job> submit(const Request& request, Start start, std::function<void()> on_success,
                              std::function<void(const std::optional<std::string>&)> on_end);

  // Runs `job` and those before it; returns its error, if any.
  std::optional<std::string> wait(const std::shared_ptr<Job>& job);

  // Waits while the background thread does so; false if `deadline` passes first.
  bool wait_until(const std::shared_ptr<Job>& job, Deadline deadline);

  // Lets the background thread run what has been submitted.
  void kick();

  bool is_done(const Job& job);

  // REQUIRES: the job is done.
  std::optional<std::string> problem_of(const Job& job);

  // Ends every collective, also those under way, with an error on this rank and on the peers that
  // wait for it.  The group cannot be used afterwards.
  void abort();

  // Completes what has been submitted, and leaves the group.
  // REQUIRES: not called by an `on_end`.
  void close();

  // The same, also for an `on_end` that drops the last user of the group: then another thread
  // closes the engine as soon as that `on_end` has returned.
  static void release(std::shared_ptr<Engine> engine);

 private:
  using Lock = std::unique_lock<std::mutex>;
  void run_first(Lock& lock, WaitMode mode);
  void run_background();
  void wake_background();
  void stop_background();
  bool is_on_background() const;

  std::unique_ptr<Channel> channel_;
  mutable std::mutex mutex_;            // of all below; never held while waiting for a peer
  std::condition_variable changed_;     // a job is done, or no thread runs one any more
  std::condition_variable work_ready_;  // the background thread has something to do
  std::deque<std::shared_ptr<Job>> queue_;
  std::uint64_t next_chunk_ = 0;
  bool is_running_ = false;  // a thread runs the first job
  bool is_kicked_ = false;
  bool is_closing_ = false;
  bool is_closed_ = false;
  bool has_stopped_ = false;            // all background threads have ended
  std::optional<std::string> failure_;  // of the first job that failed; all later jobs fail with it
  // Usually one.  While all of them run an `on_end`, which may wait for a collective, there is one
  // more.
  std::vector<std::thread> background_;
  int free_background_ = 0;  // how many of them run no `on_end`
};

}  // namespace ddprun::ddp::shm
