// SPDX-License-Identifier: BSD-3-Clause
//
// Writes what happens to the run into timeline.json (rendezvous/decide/trace.h has the form): on
// the node that hosts the run what its coordinator sees of all nodes, and what this node's agent
// sees of its own workers, to the millisecond.  A thread does the writing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/trace.h"
#include "store/base/error.h"
#include "worker/process/io_thread.h"
#include "worker/process/log_file.h"

namespace ddprun::agent {

struct TimelineConfig {
  std::string path{};  // empty: nothing is written
  std::string node{};  // of this agent, as the coordinator calls it
  std::string host{};
};

// Threads: used from the event loop's thread only.
// Lifetime: borrows the IoThread.  Calls back from the event loop as long as it lives.
class TimelineFile {
 public:
  // The file is no longer than this; then it says that it is full.
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  // What this node's agent has seen before the run is hosted here: so much, the last.
  static constexpr std::size_t kKeptEvents = 1024;

  // `on_failure` is called once where the file cannot be written, and nothing is written from then
  // on.
  TimelineFile(TimelineConfig config, process::IoThread& disk,
               std::function<void(const Error&)> on_failure);
  ~TimelineFile();
  TimelineFile(const TimelineFile&) = delete;

  bool is_wanted() const { return !config_.path.empty(); }

  // Seen by the coordinator, which is in this process: the file begins with the first of these.
  // Of this node's workers it is not taken, since here() knows better.
  void hosted(const rendezvous::TraceEvent& event);
  // Seen by this agent; `event` needs no node.
  void here(rendezvous::TraceEvent event);
  // The last is written.
  void end();

 private:
  void begin();
  void write(const rendezvous::TraceEvent& event);
  void put(std::string text);
  void failed(const Error& error);

  TimelineConfig config_;
  process::IoThread& disk_;
  std::function<void(const Error&)> on_failure_;
  rendezvous::TraceText text_;
  std::vector<rendezvous::TraceEvent> kept_;
  std::string unwritten_;  // until the file is open
  std::optional<process::LogFile> file_;
  std::size_t bytes_ = 0;
  std::size_t left_out_ = 0;  // events that the disk did not take in time
  bool has_begun_ = false;
  bool has_ended_ = false;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::agent
