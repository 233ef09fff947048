// SPDX-License-Identifier: BSD-3-Clause
//
// The collectives of one rank, carried out one after the other in the order in which they were
// submitted.  Whoever waits for one carries it out, which costs no change of threads; a thread in
// the background takes over what nobody waits for, so that it goes on beside the computation.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

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

  // ByWaiter promises that wait() follows at once.
  enum class Start : std::uint8_t { Now, ByWaiter };

  // Submits a collective.  `on_success` runs before it counts as done, `on_end` (with a sentence
  // when it failed) soon after, both on whatever thread carried it out.  Nothing is waited for
  // here.  The background begins with what the peers need; what only this rank still needs is left
  // for wait(), hurry() or the next submission.
  std::shared_ptr<Job> submit(const Request& request, Start start, std::function<void()> on_success,
                              std::function<void(const std::optional<std::string>&)> on_end);

  // Carries `job` out, and those before it; returns its problem, if it has one.
  std::optional<std::string> wait(const std::shared_ptr<Job>& job);

  // Waits while the background does so; false when `deadline` passes first.
  bool wait_until(const std::shared_ptr<Job>& job, Deadline deadline);

  // Lets the background carry out what has been submitted.
  void hurry();

  bool is_done(const Job& job);

  // Of a job that is done.
  std::optional<std::string> problem_of(const Job& job);

  // Ends every collective, here and on the peers that wait for this rank, with an error that says
  // so.  Those under way, too; the group cannot be used afterwards.
  void abort();

  // Completes what has been submitted, and leaves the group.
  void close();

 private:
  using Lock = std::unique_lock<std::mutex>;
  void carry_out_first(Lock& lock, Patience patience);
  void run_background();

  std::unique_ptr<Channel> channel_;
  std::mutex mutex_;                 // of all below; never held while waiting for a peer
  std::condition_variable changed_;  // a job is done, or nobody is at work any more
  std::condition_variable wanted_;   // the background is to look
  std::deque<std::shared_ptr<Job>> queue_;
  std::uint64_t next_chunk_ = 0;
  bool is_at_work_ = false;
  bool is_hurried_ = false;
  bool is_closing_ = false;
  bool is_closed_ = false;
  std::optional<std::string> failure_;  // of the first that failed; all later ones share it
  std::thread background_;
};

}  // namespace ddprun::ddp::shm
