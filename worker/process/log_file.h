// SPDX-License-Identifier: BSD-3-Clause
//
// A file that the agent writes workers' output to.  Neither a full disk nor one that stands still
// stops the run: a thread does the writing, and closes the file.  What the file refuses is lost,
// and its owner is told once.  What it does not take yet waits here, and the writer should pause
// when that is much.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "store/base/error.h"
#include "store/base/fd.h"
#include "worker/process/io_thread.h"

namespace ddprun::process {

// Threads: used from the event loop's thread only.
// Lifetime: borrows the IoThread, which must outlive it.  `on_failure` is called from the event
// loop, at most once, and perhaps after the destructor: what was written before it still reaches
// the file, and the disk may refuse it only at its close.
class LogFile {
 public:
  // So much may wait for the disk before a writer should pause.  Bytes.
  static constexpr std::size_t kMaxWaitingBytes = 4 * 1024 * 1024;

  // Opens `path` for appending, and makes it.  Fails with the path and the system's reason.  May
  // wait for the disk, and may be called on any thread.
  static Result<Fd> open(const std::string& path);

  // Writes to `fd`, which open() has opened.
  LogFile(const std::string& path, Fd fd, IoThread& thread,
          std::function<void(const Error&)> on_failure);
  LogFile(LogFile&&) = default;
  LogFile& operator=(LogFile&&) = delete;
  ~LogFile();

  // Writes the first `size` bytes of `bytes`, or as much as the file takes, on the thread.  Each
  // call tries anew.  `done` gets the buffer back.
  void write(std::unique_ptr<char[]> bytes, std::size_t size,
             std::function<void(std::unique_ptr<char[]>)> done = nullptr);
  void write(std::string_view bytes);

  // Whether a writer that can wait should, with when_room().
  bool wants_pause() const;

  // Calls `writer` from the event loop, once, when there is room again.
  void when_room(std::function<void()> writer);

 private:
  struct State;
  std::shared_ptr<State> state_;
  IoThread* thread_;
};

}  // namespace ddprun::process
