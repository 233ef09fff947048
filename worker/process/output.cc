// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace ddprun::process {
namespace {

constexpr std::size_t kBufferBytes = 64 * 1024;  // the capacity of a pipe

// Writes all of `bytes`.  A file that refuses them (the disk is full) loses them: the worker must
// go on.
void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

Result<std::unique_ptr<OutputPump>> OutputPump::open(boost::asio::any_io_executor executor,
                                                     Sinks sinks) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return system_error(errno, "make a pipe for a worker's output");
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(read_end.get(), F_SETPIPE_SZ,
          1024 * 1024);  // fewer waits for a talkative worker; may fail
  std::unique_ptr<OutputPump> pump(new OutputPump(std::move(executor), std::move(read_end),
                                                  std::move(write_end), std::move(sinks)));
  pump->read_when_ready();
  return pump;
}

OutputPump::OutputPump(boost::asio::any_io_executor executor, Fd read_end, Fd write_end,
                       Sinks sinks)
    : pipe_(std::move(executor), read_end.release()),
      write_end_(std::move(write_end)),
      sinks_(std::move(sinks)),
      splitter_(sinks_.prefix),
      buffer_(kBufferBytes) {}

void OutputPump::read_when_ready() {
  pipe_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                   [this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
                     if (alive.expired() || error) return;
                     // One buffer a turn, so that a talkative worker starves nobody.
                     if (read_once() != Read::End) read_when_ready();
                   });
}

OutputPump::Read OutputPump::read_once() {
  ssize_t count = ::read(pipe_.native_handle(), buffer_.data(), buffer_.size());
  if (count > 0) {
    deliver({buffer_.data(), static_cast<std::size_t>(count)});
    return Read::Data;
  }
  return count < 0 && (errno == EAGAIN || errno == EINTR) ? Read::NothingNow : Read::End;
}

void OutputPump::deliver(std::string_view bytes) {
  if (sinks_.file) write_all(sinks_.file.get(), bytes);
  if (sinks_.console != nullptr) sinks_.console->write(splitter_.feed(bytes));
}

void OutputPump::drain() {
  while (read_once() == Read::Data) {
  }
  if (sinks_.console != nullptr) sinks_.console->write(splitter_.finish());
}

}  // namespace ddprun::process
