// SPDX-License-Identifier: BSD-3-Clause
#include "agent/timeline_file.h"

#include <chrono>
#include <memory>
#include <utility>

#include "store/clock.h"

namespace ddprun::agent {

using rendezvous::TraceEvent;
using rendezvous::TraceText;

namespace {

// How long the end of the run waits for it, as kDiskPatience of agent/run_ending.h.
constexpr auto kPatience = std::chrono::seconds(1);
// Of what a full file says at last, at most.
constexpr std::size_t kEndBytes = 512;

}  // namespace

TimelineFile::TimelineFile(boost::asio::any_io_executor executor, TimelineConfig config,
                           std::function<void(const Error&)> on_failure)
    : config_(std::move(config)),
      on_failure_(std::move(on_failure)),
      // The log files' thread says it.
      disk_(std::move(executor), [](const process::IoThread::Stall&) {}) {}

void TimelineFile::hosted(const TraceEvent& event) {
  if (!is_wanted() || has_ended_) return;
  if (!has_begun_) begin();
  bool is_of_own_workers =
      event.node == config_.node && !event.node.empty() && event.thread != rendezvous::kAgentThread;
  if (!is_of_own_workers) write(event);
}

void TimelineFile::here(TraceEvent event) {
  if (!is_wanted() || has_ended_) return;
  event.node = config_.node;
  event.host = config_.host;
  if (has_begun_) return write(event);
  if (kept_.size() >= kKeptEvents) kept_.erase(kept_.begin());
  kept_.push_back(std::move(event));
}

void TimelineFile::begin() {
  has_begun_ = true;
  auto opened = std::make_shared<Result<Fd>>(Fd());
  disk_.run(
      "make " + config_.path,
      [opened, path = config_.path] { *opened = process::LogFile::open(path); },
      [this, opened] {
        if (!*opened) return failed(opened->error());
        file_.emplace(config_.path, std::move(**opened), disk_,
                      [this](const Error& error) { failed(error); });
        file_->write(std::exchange(unwritten_, ""));
      });
  put(TraceText::head());
  for (const TraceEvent& event : std::exchange(kept_, {})) write(event);
}

// What the disk does not take for long is left out, and said.
void TimelineFile::write(const TraceEvent& event) {
  bool is_slow =
      file_ ? file_->wants_pause() : unwritten_.size() >= process::LogFile::kMaxWaitingBytes;
  if (is_slow) {
    ++left_out_;
    return;
  }
  if (left_out_ > 0) {
    TraceEvent gap{.at = event.at,
                   .name = "the disk stood still: " + std::to_string(std::exchange(left_out_, 0)) +
                           " events are left out"};
    put(text_.lines(gap));
  }
  std::string lines = text_.lines(event);
  if (bytes_ + lines.size() + kEndBytes <= config_.most_bytes) return put(std::move(lines));
  put(text_.lines({.at = event.at, .name = "the file is full"}));
  close();
}

void TimelineFile::put(std::string text) {
  bytes_ += text.size();
  if (file_) return file_->write(text);
  unwritten_ += text;
}

void TimelineFile::close() {
  if (!has_begun_ || std::exchange(has_ended_, true)) return;
  put(TraceText::tail());
}

boost::asio::awaitable<void> TimelineFile::end() {
  close();
  // Not inside the condition: GCC 12 stumbles over a braced list behind one.
  bool is_whole = co_await disk_.settled(mono_now() + kPatience);
  if (!is_whole) failed({Errc::TimedOut, "write " + config_.path + ": the disk stands still"});
}

void TimelineFile::failed(const Error& error) {
  has_ended_ = true;
  if (auto tell = std::exchange(on_failure_, nullptr)) tell(error);
}

}  // namespace ddprun::agent
