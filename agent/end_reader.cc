// SPDX-License-Identifier: BSD-3-Clause
#include "agent/end_reader.h"

#include <string>
#include <utility>

namespace ddprun::agent {

struct EndReader::Held {
  WorkerExit exit;  // without what the disk has
  boost::asio::steady_timer patience;
  bool is_over = false;  // told, or not to be told any more
};

EndReader::EndReader(boost::asio::any_io_executor executor, process::IoThread& disk,
                     std::function<void(WorkerExit)> tell)
    : executor_(std::move(executor)), disk_(disk), tell_(std::move(tell)) {}

EndReader::~EndReader() {
  begin_attempt();
}

void EndReader::ended(WorkerExit exit, ReadEnd read_end) {
  if (!read_end || exit.status.is_success()) return tell_(std::move(exit));
  std::string call = "read what rank " + std::to_string(exit.rank) + " has left in " +
                     (exit.folder.empty() ? "the log folder" : exit.folder);
  auto complete = std::make_shared<WorkerExit>(exit);  // of the disk's thread until it has ended
  auto held = std::make_shared<Held>(Held{std::move(exit), boost::asio::steady_timer(executor_)});
  held_.push_back(held);
  arm(held, is_hurried_ ? kPatience : kLongPatience);
  disk_.run(
      std::move(call), [read_end = std::move(read_end), complete] { read_end(*complete); },
      [this, held, complete] {
        if (!held->is_over) release(held, std::move(*complete));
      });
}

void EndReader::hurry() {
  if (std::exchange(is_hurried_, true)) return;
  for (const auto& held : held_) arm(held, kPatience);
}

void EndReader::tell_held() {
  while (!held_.empty()) {
    const std::shared_ptr<Held> held = held_.front();
    release(held, held->exit);
  }
}

void EndReader::begin_attempt() {
  is_hurried_ = false;
  for (const auto& held : std::exchange(held_, {})) {
    held->is_over = true;
    held->patience.cancel();
  }
}

void EndReader::arm(const std::shared_ptr<Held>& held, Duration patience) {
  held->patience.expires_after(patience);
  held->patience.async_wait([this, held](boost::system::error_code cancelled) {
    if (!cancelled && !held->is_over) release(held, held->exit);
  });
}

void EndReader::release(const std::shared_ptr<Held>& held, WorkerExit exit) {
  held->is_over = true;
  held->patience.cancel();
  held_.remove(held);
  tell_(std::move(exit));
}

}  // namespace ddprun::agent
