// SPDX-License-Identifier: BSD-3-Clause
#include "agent/timer_pipe.h"
#include "store/clock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace ddprun::agent {
namespace {

// The timers go by the wall clock, which may be set: it is looked at this often at least.
constexpr auto kLookAgain = std::chrono::seconds(1);
constexpr std::size_t kMaxLine = 4096;  // PIPE_BUF, the protocol's own limit
constexpr int kMostTold = 10;           // of lines that are no timers

}  // namespace

Result<TimerFile> TimerFile::create(const std::string& path) {
  std::string context = "make the timer file " + path;
  struct stat info = {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode)) ::unlink(path.c_str());
  if (::mkfifo(path.c_str(), 0600) != 0) return system_error(errno, context);
  // For writing as well, so that it does not end when the last worker closes it.
  Fd fd(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return system_error(errno, context);
  // In /tmp another user may have put something else in its place meanwhile.
  if (::fstat(fd.get(), &info) != 0 || !S_ISFIFO(info.st_mode) || info.st_uid != ::geteuid())
    return system_error(EEXIST, context);
  return TimerFile(path, std::move(fd));
}

TimerFile::TimerFile(TimerFile&& other) noexcept
    : path_(std::exchange(other.path_, "")), fd_(std::move(other.fd_)) {}

TimerFile& TimerFile::operator=(TimerFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

TimerFile::~TimerFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

TimerPipe::TimerPipe(boost::asio::any_io_executor executor, const TimerFile& file,
                     std::function<void(const ExpiredTimer&)> on_expired,
                     std::function<void(const std::string&)> on_warning)
    : pipe_(executor),
      timer_(executor),
      on_expired_(std::move(on_expired)),
      on_warning_(std::move(on_warning)) {
  if (!file.fd_) return;
  int own = ::fcntl(file.fd_.get(), F_DUPFD_CLOEXEC, 0);
  if (own < 0) {
    on_warning_("timers are not watched: " + to_string(system_error(errno, "dup")));
    return;
  }
  pipe_.assign(own);
  read();
}

TimerPipe::~TimerPipe() = default;

void TimerPipe::read() {
  pipe_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                   [this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
                     if (alive.expired() || error) return;
                     std::array<char, 16 * 1024> bytes{};
                     ssize_t count = ::read(pipe_.native_handle(), bytes.data(), bytes.size());
                     if (count > 0) buffer_.append(bytes.data(), static_cast<std::size_t>(count));
                     take_lines();
                     look();
                     read();
                   });
}

void TimerPipe::take_lines() {
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = buffer_.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    auto taken = timers_.take(std::string_view(buffer_).substr(begin, end - begin));
    if (taken || ++bad_lines_ > kMostTold) continue;
    on_warning_(to_string(taken.error()) +
                (bad_lines_ == kMostTold ? "; further ones are not told" : ""));
  }
  buffer_.erase(0, begin);
  if (buffer_.size() > kMaxLine) buffer_.clear();
}

void TimerPipe::look() {
  WallTime now = wall_now();
  while (auto expired = timers_.next_expired(now)) on_expired_(*expired);
  auto due = timers_.next_due();
  timer_.cancel();
  if (!due) return;
  timer_.expires_after(std::clamp<Duration>(*due - now, Duration(1), kLookAgain));
  timer_.async_wait([this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
    if (!alive.expired() && !error) look();
  });
}

}  // namespace ddprun::agent
