// SPDX-License-Identifier: BSD-3-Clause
//
// The agent's stdout or stderr, to which it passes on workers' lines and writes its own.  The
// reader may be slow or stand still (a pager, a stopped terminal, a file on a slow disk), and the
// agent goes on watching its workers: text that is not taken waits here, up to a bound.  Then the
// workers are made to wait, but not for long: a reader that does not take kMaxWaitingBytes / 2 in
// kPatience misses what comes until it has caught up, and reads a line that says so.  Where a
// worker's text is kept nowhere else, its writer waits as long as the reader needs, as it would
// without the agent between them.  What a full disk refuses is lost; see Loss.
#pragma once

#include <sys/types.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/process/io_thread.h"

namespace ddprun::process {

// Threads: used from the executor's only thread.
// Lifetime: borrows the descriptor.  finish() before the destructor, or what waits is lost.
// A pipe or terminal is opened anew and written without blocking.  Where that is not allowed (it
// belongs to another user), and for sockets and files, a thread does the writing.
class Console {
 public:
  // So much text may wait for a slow reader before its writers should.  Bytes.
  static constexpr std::size_t kMaxWaitingBytes = 8 * 1024 * 1024;

  // Beyond it text is left out even if its writer could not wait.  Bytes.
  static constexpr std::size_t kMostBytes = 4 * kMaxWaitingBytes;

  // How long a full console makes its writers wait.
  static constexpr std::chrono::seconds kPatience{1};

  // `on_stall` is told where that thread stands still.  `other` is a console that may lead to the
  // same file: then both use its thread, so that their lines keep their order.
  Console(boost::asio::any_io_executor executor, int fd,
          std::function<void(const IoThread::Stall&)> on_stall = nullptr,
          const Console* other = nullptr);
  ~Console();
  Console(const Console&) = delete;

  // Writes whole lines of the agent's own, now or when the reader takes them.  Never blocks.  A
  // reader that has gone away loses them.
  void write(std::string_view lines);

  // The same for a worker's lines, which are left out while the reader is too slow for them.
  void pass_on(std::string_view lines);

  // Whether a writer that can wait should, with when_room().
  bool wants_pause() const { return waiting_bytes_ >= kMaxWaitingBytes && !is_leaving_out_; }

  // From now on nothing is left out: the writers wait for the reader, however long it stands still.
  void leave_nothing_out() { leaves_out_ = false; }

  // Calls `writer` from the event loop, once, when there is room again or no hope of it.
  void when_room(std::function<void()> writer);

  // What the file or device has refused so far: its disk was full, say.  What comes after it is
  // tried all the same, behind a line that says what is missing.  A reader that has gone away
  // refuses nothing.
  struct Loss {
    std::size_t bytes = 0;
    int error_number = 0;  // of the first
  };
  const Loss& loss() const { return loss_; }

  // Calls `listener` from the event loop, once, when something has been refused.
  void on_loss(std::function<void()> listener);

  // "stdout, which is /home/u/out".
  std::string name() const;

  // The device of the file system that a regular file is on; nullopt for anything else.
  std::optional<dev_t> device() const { return device_; }

  // Waits until all has been taken or the reader has gone, at the latest until `deadline`.
  boost::asio::awaitable<void> finish(MonoTime deadline = MonoTime::max());

  // How much has not been taken yet.  Bytes.
  std::size_t waiting_bytes() const { return waiting_bytes_; }

 private:
  void open_thread(std::function<void(const IoThread::Stall&)> on_stall, const Console* other);
  void write_first_on_thread();
  std::size_t offer(std::string_view text);
  void enqueue(std::string_view text);
  void drop_first();
  void flush();
  void flush_when_ready();
  void caught_up();
  void let_writers_go();
  void tell_gap();
  std::string words_on_loss() const;
  void refused(int error_number, std::size_t bytes);
  void tell_loss();

  int fd_;
  // A descriptor of our own to the same pipe or terminal, so that not blocking is our matter alone:
  // the flag belongs to what is shared with the workers and with the shell.  Closed where a thread
  // writes, and for a device that takes everything (/dev/null).
  boost::asio::posix::stream_descriptor reader_;
  std::shared_ptr<IoThread> thread_;  // nullptr where none is needed
  std::string thread_call_;           // what it does, for a report of a stall
  boost::asio::steady_timer patience_;
  boost::asio::steady_timer finished_;          // cancelled when nothing waits any more
  std::vector<std::function<void()>> writers_;  // that wait for room
  std::deque<std::string> waiting_;
  std::vector<std::string> spares_;  // their contents mean nothing
  std::size_t taken_ = 0;            // of waiting_.front(), bytes
  std::size_t waiting_bytes_ = 0;
  std::size_t left_out_bytes_ = 0;  // since the last line about it
  std::optional<dev_t> device_;
  Loss loss_;
  std::size_t missing_bytes_ = 0;  // of it, since the last line about it
  std::function<void()> on_loss_;  // empty once it has been called
  bool leaves_out_ = true;
  bool is_leaving_out_ = false;
  bool is_gone_ = false;
  bool is_armed_ = false;  // the reader is waited for, or the thread writes
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::process
