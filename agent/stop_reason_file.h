// SPDX-License-Identifier: BSD-3-Clause
//
// The file in which workers find why they are to stop, or to save (worker/stop_reason).  It is
// written before they get the signal, and again when the scheduler has said why the signal came.
#pragma once

#include <spdlog/fwd.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/decide/scheduler.h"
#include "store/event.h"
#include "store/task_group.h"
#include "worker/process/io_thread.h"
#include "worker/process/reaper.h"

namespace ddprun::agent {

struct StopReasonFileConfig {
  std::string path;                      // of the file; empty: none is written
  std::optional<Scheduler> scheduler{};  // to be asked
  std::vector<std::string> environment;  // of the program that asks, as "NAME=value"
  std::string search_path;               // where it is looked for
};

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper and `spared`, the set of children that a sweep leaves alone, into
// which it puts its own while they run.  stop() must have completed before the destructor runs.
class StopReasonFile {
 public:
  // How long that program may take before it is ended.
  static constexpr Duration kAnswerLimit = std::chrono::seconds(5);
  // How long the end of a run waits for that.
  static constexpr Duration kPatience = std::chrono::seconds(1);
  // How long the workers' signal waits for the file.
  static constexpr Duration kDiskPatience = std::chrono::milliseconds(300);
  // So many questions run at a time; of a flood of signals the rest is not asked about.
  static constexpr int kMostQuestions = 2;

  StopReasonFile(boost::asio::any_io_executor executor, process::Reaper& reaper,
                 std::set<pid_t>& spared, StopReasonFileConfig config,
                 std::shared_ptr<spdlog::logger> logger);

  // New workers are about to start, or the last have gone: the file goes.
  void clear();

  // A reason within the run.  Why a run is stopped from outside stays.
  void publish(worker::StopCause cause, std::string words);

  // A signal has come from outside, and is about to be passed on.
  void signalled(int signal, bool is_stop);

  // Another node has been signalled, and so may be this one: asks why, and says so if it is known.
  void other_signalled(int signal);

  // Whether the answer to a question is still awaited.
  bool is_asking() const { return asking_ > 0; }

  // Waits for that, at most kPatience.
  boost::asio::awaitable<void> settled();

  // Whether the disk has not taken the file yet.
  bool is_writing() const { return !disk_.is_idle(); }

  // Waits for that, at most kDiskPatience: the workers are to find the file when the signal comes,
  // and a disk that stands still must not keep the signal from them.
  boost::asio::awaitable<void> written();

  // The last signal from outside in this run, to this node if to any, 0 for none, and what is known
  // of it.
  int signal() const { return signal_; }
  const std::optional<worker::StopReason>& reason() const { return reason_; }

  // The end: asks no more, and removes the file.
  boost::asio::awaitable<void> stop();

 private:
  enum class Whose : std::uint8_t { Own, Others };
  worker::StopReason reason_of(OutsideRequest request, std::string_view answer) const;
  void ask(OutsideRequest request, Whose whose);
  boost::asio::awaitable<void> learn_answer(OutsideRequest request, Whose whose);
  boost::asio::awaitable<std::string> answer();
  void learn(worker::StopReason reason);
  void write(const worker::StopReason& reason);

  boost::asio::any_io_executor executor_;
  process::Reaper& reaper_;
  std::set<pid_t>& spared_;
  StopReasonFileConfig config_;
  std::shared_ptr<spdlog::logger> logger_;
  process::IoThread disk_;  // its own: what is written here must not wait for the log files
  std::optional<worker::StopReason> reason_;
  int signal_ = 0;
  bool is_stopping_ = false;  // by such a signal
  bool has_written_ = false;
  int asking_ = 0;
  store::TaskGroup questions_;
  store::Event answered_;
};

}  // namespace ddprun::agent
