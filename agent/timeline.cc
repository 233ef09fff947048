// SPDX-License-Identifier: BSD-3-Clause
#include "agent/timeline.h"

#include <chrono>
#include <utility>
#include <vector>

#include "store/clock.h"
#include "store/event.h"

namespace ddprun::agent {

namespace asio = boost::asio;
using rendezvous::TraceEvent;
using TraceKind = TraceEvent::Kind;

namespace {

// How long the end of the run waits for what the workers' disk still has, as kDiskPatience of
// agent/run_ending.h.
constexpr auto kPatience = std::chrono::seconds(1);
// The last look reads so many pieces of one file, at most.
constexpr int kLastPieces = 16;

}  // namespace

Timeline::Timeline(asio::any_io_executor executor, TimelineConfig config, Workers& workers,
                   std::function<void(const Error&)> on_failure,
                   std::function<void(std::string)> say_slices)
    : say_slices_(std::move(say_slices)),
      workers_(workers),
      file_(executor, std::move(config), std::move(on_failure)),
      thread_(executor, [](const process::IoThread::Stall&) {}),  // settled() bounds the wait
      timer_(executor),
      tasks_(executor) {}

void Timeline::draw(TraceEvent event) {
  if (!is_wanted()) return;
  event.at = wall_now();
  file_.here(std::move(event));
}

void Timeline::workers_run(std::uint64_t round, int attempt) {
  if (!is_wanted()) return;
  for (const RunningWorker& worker : workers_.started()) {
    draw({.kind = TraceKind::Begin,
          .thread = worker.local_rank,
          .name = "rank " + std::to_string(worker.rank),
          .facts = {{"pid", std::to_string(worker.pid)},
                    {"round", std::to_string(round)},
                    {"attempt", std::to_string(attempt)}}});
  }
  if (!std::exchange(is_watching_, true)) tasks_.spawn(watch());
}

void Timeline::worker_ended(const WorkerExit& exit) {
  if (!is_wanted()) return;
  std::string status = exit.status.signal != 0
                           ? process::signal_name(exit.status.signal)
                           : "exit code " + std::to_string(exit.status.exit_code);
  draw({.kind = TraceKind::End, .thread = exit.local_rank, .facts = {{"ended by", status}}});
  if (!exit.folder.empty())
    look({{.local_rank = exit.local_rank, .folder = exit.folder, .is_last = true}});
}

asio::awaitable<void> Timeline::watch() {
  for (;;) {
    timer_.expires_after(kPeriod);
    co_await store::wait_for(timer_);
    if (!thread_.is_idle()) continue;  // its disk stands still
    std::vector<Place> places;
    for (const RunningWorker& worker : workers_.running()) {
      if (!worker.folder.empty())
        places.push_back({.local_rank = worker.local_rank, .folder = worker.folder});
    }
    if (!places.empty()) look(std::move(places));
  }
}

void Timeline::look(std::vector<Place> places) {
  auto found = std::make_shared<std::vector<std::pair<int, worker::TimelineSlice>>>();
  thread_.run(
      "read what the workers draw",
      [reader = reader_, places = std::move(places), found] {
        for (const Place& place : places) {
          int pieces = place.is_last ? kLastPieces : 1;
          for (; pieces > 0; --pieces) {
            auto slices = reader->read(place.folder);
            if (slices.empty()) break;
            for (auto& slice : slices) found->emplace_back(place.local_rank, std::move(slice));
          }
        }
      },
      [this, found] {
        for (auto& [local_rank, slice] : *found) draw_slice(local_rank, std::move(slice));
        if (!found->empty() && !file_.has_begun()) say_slices_(slices_.text());
      });
}

void Timeline::draw_slice(int local_rank, worker::TimelineSlice slice) {
  TraceEvent event{.kind = TraceKind::Slice,
                   .at = slice.begin,
                   .until = slice.end,
                   .thread = local_rank,
                   .name = std::move(slice.name),
                   .facts = std::move(slice.facts)};
  if (!file_.has_begun()) slices_.add(event);
  file_.here(std::move(event));
}

asio::awaitable<void> Timeline::settled() {
  co_await thread_.settled(mono_now() + kPatience);
}

asio::awaitable<void> Timeline::end() {
  tasks_.cancel();
  co_await tasks_.join();
  co_await settled();
  co_await file_.end();
}

}  // namespace ddprun::agent
