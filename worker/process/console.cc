// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/console.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <climits>
#include <string>
#include <utility>

#include "store/base/file.h"

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

// A device that takes everything at once, such as /dev/null.
bool never_waits(int fd) {
  struct stat info = {};
  return ::fstat(fd, &info) != 0 || (S_ISCHR(info.st_mode) && ::isatty(fd) == 0);
}

bool are_one_file(int fd, int other) {
  struct stat info = {};
  struct stat other_info = {};
  return ::fstat(fd, &info) == 0 && ::fstat(other, &other_info) == 0 &&
         info.st_dev == other_info.st_dev && info.st_ino == other_info.st_ino;
}

// "stdout, which is socket:[4211]".
std::string describe(int fd) {
  std::array<char, PATH_MAX> target{};
  std::string link = "/proc/self/fd/" + std::to_string(fd);
  ssize_t count = ::readlink(link.c_str(), target.data(), target.size());
  std::string name = fd == STDOUT_FILENO   ? "stdout"
                     : fd == STDERR_FILENO ? "stderr"
                                           : "descriptor " + std::to_string(fd);
  if (count <= 0) return name;
  return name + ", which is " + std::string(target.data(), static_cast<std::size_t>(count));
}

// Of a terminal EIO is its end, of a file a fault of its disk.
bool is_end_of_reader(int error_number, bool is_file) {
  return error_number == EPIPE || (error_number == EIO && !is_file);
}

// Not what a closed descriptor says: its owner wants none of it.
bool is_refusal(int error_number) {
  return error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG ||
         error_number == EIO || error_number == ESTALE;
}

std::optional<dev_t> device_of_file(int fd) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return info.st_dev;
}

}  // namespace

Console::Console(boost::asio::any_io_executor executor, int fd,
                 std::function<void(const IoThread::Stall&)> on_stall, const Console* other)
    : fd_(fd),
      reader_(executor),
      patience_(executor),
      finished_(executor),
      device_(device_of_file(fd)) {
  int own = open_without_blocking(fd);
  if (own < 0) {
    if (!never_waits(fd)) open_thread(std::move(on_stall), other);
    return;
  }
  boost::system::error_code error;
  reader_.assign(own, error);
  if (!error) return;
  ::close(own);
  open_thread(std::move(on_stall), other);
}

Console::~Console() = default;

void Console::open_thread(std::function<void(const IoThread::Stall&)> on_stall,
                          const Console* other) {
  thread_call_ = "write to " + describe(fd_);
  if (other != nullptr && other->thread_ && are_one_file(fd_, other->fd_)) {
    thread_ = other->thread_;
    return;
  }
  if (!on_stall) on_stall = [](const IoThread::Stall&) {};
  thread_ = std::make_shared<IoThread>(reader_.get_executor(), std::move(on_stall));
}

void Console::write(std::string_view lines) {
  if (lines.empty() || is_gone_) return;
  if (waiting_bytes_ + lines.size() > kMostBytes) {
    left_out_bytes_ += lines.size();
    return;
  }
  tell_gap();
  if (waiting_.empty() && !thread_) lines.remove_prefix(offer(lines));
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
  if (writers_.size() > 1 || !leaves_out_) return;
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
          " bytes are left out here, this console was too slow; the log files have them, where "
          "logs are kept]\n");
}

void Console::on_loss(std::function<void()> listener) {
  on_loss_ = std::move(listener);
  if (loss_.bytes > 0) tell_loss();
}

std::string Console::name() const {
  return describe(fd_);
}

void Console::refused(int error_number, std::size_t bytes) {
  if (is_end_of_reader(error_number, device_.has_value())) is_gone_ = true;
  if (is_gone_ || !is_refusal(error_number)) return;
  if (loss_.error_number == 0) loss_.error_number = error_number;
  loss_.bytes += bytes;
  missing_bytes_ += bytes;
  tell_loss();
}

// Later: the listener may write to this console.
void Console::tell_loss() {
  if (on_loss_) boost::asio::post(reader_.get_executor(), std::exchange(on_loss_, nullptr));
}

// Where what was refused would stand; "" while all is there.
std::string Console::words_on_loss() const {
  if (missing_bytes_ == 0) return "";
  return "\n[ddprun: " + std::to_string(missing_bytes_) + " bytes are missing here, " +
         to_string(system_error(loss_.error_number, "the file could not be written")) +
         "; the log files have them, where logs are kept]\n";
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
  int fd = reader_.is_open() ? reader_.native_handle() : fd_;
  std::size_t taken = 0;
  while (taken < text.size()) {
    ssize_t count = ::write(fd, text.data() + taken, text.size() - taken);
    if (count >= 0) {
      taken += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN && reader_.is_open()) {
      break;
    } else if (errno != EINTR) {
      refused(errno, text.size() - taken);
      return text.size();
    }
  }
  return taken;
}

void Console::flush() {
  if (thread_ && !waiting_.empty()) return write_first_on_thread();
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
  caught_up();
}

void Console::caught_up() {
  is_leaving_out_ = false;
  let_writers_go();
  finished_.cancel();
}

void Console::write_first_on_thread() {
  struct Part {
    std::string gap;  // before it
    std::string text;
    bool is_gap_told = false;
    Written written{};
  };
  is_armed_ = true;
  auto part =
      std::make_shared<Part>(Part{.gap = words_on_loss(), .text = std::move(waiting_.front())});
  thread_->run(
      thread_call_,
      [fd = fd_, part] {
        part->written.error_number = write_all(fd, part->gap);
        part->is_gap_told = part->written.error_number == 0;
        if (part->is_gap_told) part->written = write_what_fits(fd, part->text);
      },
      [this, part, alive = std::weak_ptr(alive_)] {
        if (alive.expired()) return;
        is_armed_ = false;
        if (part->is_gap_told) missing_bytes_ = 0;
        if (part->written.error_number != 0)
          refused(part->written.error_number, part->text.size() - part->written.bytes);
        waiting_bytes_ -= part->text.size();
        waiting_.front() = std::move(part->text);
        drop_first();
        if (waiting_bytes_ <= kMaxWaitingBytes / 2) let_writers_go();
        if (waiting_.empty()) tell_gap();
        flush();
      });
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

boost::asio::awaitable<void> Console::finish(MonoTime deadline) {
  while (!waiting_.empty() && std::chrono::steady_clock::now() < deadline) {
    finished_.expires_at(deadline);
    co_await finished_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }
}

}  // namespace ddprun::process
