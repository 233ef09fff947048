// SPDX-License-Identifier: BSD-3-Clause
//
// The file in which workers find why they are to stop, or to save (worker/stop_reason).  It is
// written before they get the signal, and again when the scheduler has said why the signal came.
// agent/decide/stop_reason decides; this writes the file and asks the scheduler.
#pragma once

#include <spdlog/fwd.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/decide/scheduler.h"
#include "agent/decide/stop_reason.h"
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
// Lifetime: borrows the reaper.  stop() must have completed before the destructor runs.
class StopReasonFile {
 public:
  // How long that program may take before it is ended.
  static constexpr Duration kAnswerLimit = std::chrono::seconds(5);
  // How long the end of a run waits for that.
  static constexpr Duration kPatience = std::chrono::seconds(1);
  // How long the workers' signal waits for the file.
  static constexpr Duration kDiskPatience = std::chrono::milliseconds(300);
  StopReasonFile(boost::asio::any_io_executor executor, process::Reaper& reaper,
                 StopReasonFileConfig config, std::shared_ptr<spdlog::logger> logger);

  void on(const stop_reason::Event& event);

  // Makes its thread before there is something to write.
  void start_early() { disk_.start_early(); }

  // Whether the answer to a question is still awaited.
  bool is_asking() const { return state_.questions > 0; }

  // The programs that ask, each the leader of a session: no sweep is to end them.
  const std::set<pid_t>& programs() const { return programs_; }

  // Waits for that, at most kPatience.
  boost::asio::awaitable<void> settled();

  // Whether the disk has not taken the file yet.
  bool is_writing() const { return !disk_.is_idle(); }

  // Waits for that, at most kDiskPatience: the workers are to find the file when the signal comes,
  // and a disk that stands still must not keep the signal from them.
  boost::asio::awaitable<void> written();

  // What is known of signals from outside.
  int signal() const { return state_.signal; }
  const std::optional<worker::StopReason>& reason() const { return state_.reason; }

  // The end: asks no more, ends the programs that ask, and removes the file.
  boost::asio::awaitable<void> stop();

 private:
  boost::asio::awaitable<void> learn_answer(OutsideRequest request, stop_reason::Whose whose);
  boost::asio::awaitable<std::string> answer();
  void write(const worker::StopReason& reason);
  void remove();

  boost::asio::any_io_executor executor_;
  process::Reaper& reaper_;
  std::set<pid_t> programs_;
  std::string program_;  // that asks the scheduler; empty for none
  StopReasonFileConfig config_;
  std::shared_ptr<spdlog::logger> logger_;
  process::IoThread disk_;  // its own: what is written here must not wait for the log files
  stop_reason::State state_;
  store::TaskGroup questions_;
  store::Event answered_;
};

}  // namespace ddprun::agent
