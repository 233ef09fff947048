// SPDX-License-Identifier: BSD-3-Clause
//
// The agent's stdout or stderr, to which it passes on workers' lines and writes its own.  Whoever
// reads it may be slow or stand still (a pager, a stopped terminal), and the agent must go on
// watching its workers all the same: text that is not taken waits here, up to a bound, and beyond
// it is left out, with a line that says so.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

namespace ddprun::process {

// Threads: used from the executor's only thread.
// Lifetime: borrows the descriptor.  finish() before the destructor, or what waits is lost.
class Console {
 public:
  // So much text may wait for a slow reader.  Bytes.
  static constexpr std::size_t kMaxWaitingBytes = 8 * 1024 * 1024;

  Console(boost::asio::any_io_executor executor, int fd);
  ~Console();
  Console(const Console&) = delete;

  // Writes whole lines, now or when the reader takes them.  Never blocks on a pipe or a terminal;
  // a file is written at once.  A reader that has gone away loses them.
  void write(std::string_view lines);

  // Waits until all has been taken, the reader has gone, or a signal arrives.
  void finish();

 private:
  bool can_block_here() const;  // a file: nobody to wait for
  void flush();
  void flush_when_ready();

  int fd_;
  // A descriptor of our own to the same pipe or terminal, so that not blocking is our matter alone:
  // the flag belongs to what is shared with the workers and with the shell.  Closed for a file.
  boost::asio::posix::stream_descriptor reader_;
  std::deque<std::string> waiting_;
  std::size_t taken_ = 0;  // of waiting_.front(), bytes
  std::size_t waiting_bytes_ = 0;
  std::size_t left_out_bytes_ = 0;
  bool is_gone_ = false;
  bool is_armed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::process
