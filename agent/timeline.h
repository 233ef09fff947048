// SPDX-License-Identifier: BSD-3-Clause
//
// What this node's agent draws in the timeline of the run: what it does itself, its workers' lives,
// and what these say that they have done (worker/timeline_slice.h), such as checkpoints.
// agent/timeline_file writes it.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "agent/slice_reader.h"
#include "agent/timeline_file.h"
#include "agent/workers.h"
#include "rendezvous/decide/drawn_slices.h"
#include "store/task_group.h"
#include "worker/process/io_thread.h"

namespace ddprun::agent {

// Threads: used from the executor's only thread.
// Lifetime: borrows the workers.  end() must have completed before the destructor runs.
class Timeline {
 public:
  // How often the workers' files are looked at.
  static constexpr Duration kPeriod = std::chrono::seconds(2);

  // `on_failure`: as of TimelineFile.  `say_slices` gets what the workers have drawn while another
  // node's agent writes the file: the text of a SliceBook (rendezvous/decide/drawn_slices.h).
  Timeline(boost::asio::any_io_executor executor, TimelineConfig config, Workers& workers,
           std::function<void(const Error&)> on_failure,
           std::function<void(std::string)> say_slices);

  bool is_wanted() const { return file_.is_wanted(); }

  // Seen by the coordinator, which is in this process.
  void hosted(const rendezvous::TraceEvent& event) { file_.hosted(event); }
  // Happens now, at this node.
  void draw(rendezvous::TraceEvent event);
  // The workers of a round run.
  void workers_run(std::uint64_t round, int attempt);
  // Its files are read to their ends.
  void worker_ended(const WorkerExit& exit);
  // What the workers have drawn so far is read, or their disk stands still.
  boost::asio::awaitable<void> settled();
  // There is no other event.  Completes when the file is whole, or its disk stands still.
  boost::asio::awaitable<void> end();

 private:
  struct Place {
    int local_rank = 0;
    std::string folder;
    bool is_last = false;  // nothing is written there any more
  };
  boost::asio::awaitable<void> watch();
  void look(std::vector<Place> places);
  void draw_slice(int local_rank, worker::TimelineSlice slice);

  std::function<void(std::string)> say_slices_;
  rendezvous::SliceBook slices_;  // that are drawn by another agent
  Workers& workers_;
  TimelineFile file_;
  std::shared_ptr<SliceReader> reader_ = std::make_shared<SliceReader>();  // used by the thread
  process::IoThread thread_;
  boost::asio::steady_timer timer_;
  bool is_watching_ = false;
  store::TaskGroup tasks_;
};

}  // namespace ddprun::agent
