// SPDX-License-Identifier: BSD-3-Clause
//
// Writes what happens to the run into timeline.json (rendezvous/decide/trace.h has the form): on
// the node that hosts the run what its coordinator sees of all nodes, and what this node's agent
// sees of its own workers, to the millisecond.  A thread of its own does the writing: nothing that
// matters more waits for it.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <functional>
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
  // The file is no longer than this; the last that it says then is that it is full.
  std::size_t most_bytes = std::size_t{64} << 20;
};

// Threads: used from the executor's only thread, where it calls back as long as it lives.
class TimelineFile {
 public:
  // What this node's agent has seen before the run is hosted here: so much, the last.
  static constexpr std::size_t kKeptEvents = 1024;

  // `on_failure` is called once where the file cannot be written, and nothing is written from then
  // on.
  TimelineFile(boost::asio::any_io_executor executor, TimelineConfig config,
               std::function<void(const Error&)> on_failure);

  bool is_wanted() const { return !config_.path.empty(); }
  // Whether the run is hosted here, or was.
  bool has_begun() const { return has_begun_; }

  // Seen by the coordinator, which is in this process: the file begins with the first of these.
  // Of this node's workers it is not taken, since here() knows better.
  void hosted(const rendezvous::TraceEvent& event);
  // Seen by this agent; `event` needs no node.
  void here(rendezvous::TraceEvent event);
  // There is no other event.  Completes when the file is whole; a disk that stands still is waited
  // for kPatience.
  boost::asio::awaitable<void> end();

 private:
  void begin();
  void write(const rendezvous::TraceEvent& event);
  void put(std::string text);
  void close();
  void failed(const Error& error);

  TimelineConfig config_;
  std::function<void(const Error&)> on_failure_;  // empty once it has been called
  rendezvous::TraceText text_;
  std::vector<rendezvous::TraceEvent> kept_;
  std::string unwritten_;  // until the file is open
  process::IoThread disk_;
  std::optional<process::LogFile> file_;
  std::size_t bytes_ = 0;
  std::size_t left_out_ = 0;  // events that the disk did not take in time
  bool has_begun_ = false;
  bool has_ended_ = false;
};

}  // namespace ddprun::agent
