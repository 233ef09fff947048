// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <string>
#include <utility>

namespace ddprun::process {
namespace {

// Asked of the kernel for a pipe; more than a pump passes on at a time, with its prefixes, so that
// little is copied aside.
constexpr int kPipeBytes = 1024 * 1024;

// Room that is kept for what has to wait.
constexpr std::size_t kSpares = 4;
constexpr std::size_t kSpareBytes = 1024 * 1024;

// A second, non-blocking descriptor to the pipe or terminal behind `fd`; -1 for anything else, and
// where opening it anew is not allowed.
int open_without_blocking(int fd) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !(S_ISFIFO(info.st_mode) || ::isatty(fd) == 1)) return -1;
  std::string path = "/proc/self/fd/" + std::to_string(fd);
  int own = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  // Fewer turns with the reader.  Fails on a terminal, and at the limit for a user.
  if (own >= 0) ::fcntl(own, F_SETPIPE_SZ, kPipeBytes);
  return own;
}

}  // namespace

Console::Console(boost::asio::any_io_executor executor, int fd)
    : fd_(fd), reader_(executor), patience_(executor) {
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
  if (waiting_bytes_ + lines.size() > kMostBytes) {
    left_out_bytes_ += lines.size();
    return;
  }
  tell_gap();
  if (waiting_.empty()) lines.remove_prefix(offer(lines));
  if (lines.empty()) return;
  enqueue(lines);
  if (!is_armed_) flush();
}

void Console::pass_on(std::string_view lines) {
  if (is_leaving_out_ && !is_gone_) {
    left_out_bytes_ += lines.size();
  } else {
    write(lines);
  }
}

void Console::when_room(std::function<void()> writer) {
  writers_.push_back(std::move(writer));
  if (writers_.size() > 1) return;
  patience_.expires_after(kPatience);
  patience_.async_wait([this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
    if (error || alive.expired() || writers_.empty()) return;
    is_leaving_out_ = true;
    let_writers_go();
  });
}

void Console::let_writers_go() {
  if (writers_.empty()) return;
  patience_.cancel();
  for (auto& writer : std::exchange(writers_, {}))
    boost::asio::post(reader_.get_executor(), std::move(writer));
}

// What a reader that has caught up, or hears from the agent, must know.
void Console::tell_gap() {
  std::size_t bytes = std::exchange(left_out_bytes_, 0);
  if (bytes == 0) return;
  enqueue("[ddprun: " + std::to_string(bytes) +
          " bytes are left out here, this console was too slow; the log files have them]\n");
}

void Console::enqueue(std::string_view text) {
  waiting_bytes_ += text.size();
  std::string copy;
  if (!spares_.empty()) {
    copy = std::move(spares_.back());
    spares_.pop_back();
  }
  copy.assign(text);
  waiting_.push_back(std::move(copy));
}

// The memory is used again: malloc would give blocks of this size back to the kernel, which would
// have to clear them for the next lines.
void Console::drop_first() {
  std::string& first = waiting_.front();
  if (spares_.size() < kSpares && first.capacity() <= kSpareBytes)
    spares_.push_back(std::move(first));
  waiting_.pop_front();
}

// How much of `text` the reader takes now, in bytes.  One that fails for good (it has gone, or the
// disk is full) takes everything, into nothing: the run goes on.
std::size_t Console::offer(std::string_view text) {
  int fd = can_block_here() ? fd_ : reader_.native_handle();
  std::size_t taken = 0;
  while (taken < text.size()) {
    ssize_t count = ::write(fd, text.data() + taken, text.size() - taken);
    if (count >= 0) {
      taken += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN && !can_block_here()) {
      break;
    } else if (errno == EAGAIN) {
      // A socket, say, that whoever started us made non-blocking: it cannot be opened anew.
      pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      is_gone_ = errno == EPIPE || errno == EIO;
      return text.size();
    }
  }
  return taken;
}

void Console::flush() {
  while (!waiting_.empty()) {
    std::string_view rest = std::string_view(waiting_.front()).substr(taken_);
    std::size_t taken = offer(rest);
    taken_ += taken;
    waiting_bytes_ -= taken;
    if (taken < rest.size()) return flush_when_ready();
    drop_first();
    taken_ = 0;
    if (waiting_.empty()) tell_gap();
  }
  is_leaving_out_ = false;
  let_writers_go();
}

void Console::flush_when_ready() {
  if (waiting_bytes_ <= kMaxWaitingBytes / 2) let_writers_go();
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
