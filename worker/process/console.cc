// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace ddprun::process {
namespace {

// A second, non-blocking descriptor to the pipe or terminal behind `fd`; -1 for anything else, and
// where opening it anew is not allowed.
int open_without_blocking(int fd) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !(S_ISFIFO(info.st_mode) || ::isatty(fd) == 1)) return -1;
  std::string path = "/proc/self/fd/" + std::to_string(fd);
  return ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

Console::Console(boost::asio::any_io_executor executor, int fd) : fd_(fd), reader_(executor) {
  int own = open_without_blocking(fd);
  if (own < 0) return;
  boost::system::error_code error;
  reader_.assign(own, error);
  if (error) ::close(own);
}

Console::~Console() = default;

bool Console::can_block_here() const {
  return !reader_.is_open();
}

void Console::write(std::string_view lines) {
  if (lines.empty() || is_gone_) return;
  if (waiting_bytes_ + lines.size() > kMaxWaitingBytes && !can_block_here()) {
    left_out_bytes_ += lines.size();
    return;
  }
  if (left_out_bytes_ > 0) {
    std::string gap = "[ddprun: " + std::to_string(left_out_bytes_) +
                      " bytes are left out here, this console was too slow]\n";
    left_out_bytes_ = 0;
    waiting_bytes_ += gap.size();
    waiting_.push_back(std::move(gap));
  }
  waiting_.emplace_back(lines);
  waiting_bytes_ += lines.size();
  if (!is_armed_) flush();
}

void Console::flush() {
  int fd = can_block_here() ? fd_ : reader_.native_handle();
  while (!waiting_.empty()) {
    const std::string& text = waiting_.front();
    ssize_t count = ::write(fd, text.data() + taken_, text.size() - taken_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      if (!can_block_here()) return flush_when_ready();
      // A socket, say, that whoever started us made non-blocking: it cannot be opened anew.
      pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
      continue;
    }
    if (count < 0) {  // the reader has gone, or the disk is full: the run goes on
      is_gone_ = errno == EPIPE || errno == EIO;
      waiting_.clear();
      waiting_bytes_ = taken_ = 0;
      return;
    }
    taken_ += static_cast<std::size_t>(count);
    waiting_bytes_ -= static_cast<std::size_t>(count);
    if (taken_ < text.size()) continue;
    waiting_.pop_front();
    taken_ = 0;
  }
}

void Console::flush_when_ready() {
  if (is_armed_) return;
  is_armed_ = true;
  reader_.async_wait(boost::asio::posix::descriptor_base::wait_write,
                     [this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
                       if (alive.expired() || error) return;
                       is_armed_ = false;
                       flush();
                     });
}

void Console::finish() {
  while (!waiting_.empty()) {
    is_armed_ = true;  // no more waits of the loop's: this is the end of it
    flush();
    if (waiting_.empty()) return;
    pollfd ready{.fd = reader_.native_handle(), .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, -1) < 0) return;
  }
}

}  // namespace ddprun::process
