// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "store/base/file.h"

namespace ddprun::process {
namespace {

// 0, or the errno.  Interrupted, it is closed all the same.
int close_file(int fd) {
  return ::close(fd) == 0 || errno == EINTR ? 0 : errno;
}

// A buffer on its way: the thread has it while it writes, the event loop before and after.
struct Part {
  std::unique_ptr<char[]> bytes;
  std::size_t size = 0;
  int error_number = 0;
};

}  // namespace

// The thread reads only `fd`.
struct LogFile::State {
  std::string path;
  std::string what;  // "write PATH"
  int fd = -1;       // closed on the thread, or where that is gone by the end of the process
  std::function<void(const Error&)> on_failure;  // empty once it has been called
  std::size_t waiting_bytes = 0;
  std::vector<std::function<void()>> writers;  // that wait for room

  void tell_failure(int error_number) {
    if (error_number == 0) return;
    if (auto tell = std::exchange(on_failure, nullptr)) tell(system_error(error_number, what));
  }
};

Result<Fd> LogFile::open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return system_error(errno, "open " + path);
  return fd;
}

LogFile::LogFile(const std::string& path, Fd fd, IoThread& thread,
                 std::function<void(const Error&)> on_failure)
    : state_(std::make_shared<State>()), thread_(&thread) {
  state_->path = path;
  state_->what = "write " + path;
  state_->fd = fd.release();
  state_->on_failure = std::move(on_failure);
}

// A shared disk may take, or refuse, what was written only when the file is closed.
LogFile::~LogFile() {
  if (!state_) return;
  auto error_number = std::make_shared<int>(0);
  thread_->run(
      "close " + state_->path, [fd = state_->fd, error_number] { *error_number = close_file(fd); },
      [state = state_, error_number] { state->tell_failure(*error_number); });
}

void LogFile::write(std::unique_ptr<char[]> bytes, std::size_t size,
                    std::function<void(std::unique_ptr<char[]>)> done) {
  if (size == 0) return;
  auto part = std::make_shared<Part>(Part{.bytes = std::move(bytes), .size = size});
  state_->waiting_bytes += size;
  thread_->run(
      state_->what,
      [state = state_, part] {
        part->error_number = write_all(state->fd, {part->bytes.get(), part->size});
      },
      [state = state_, part, done = std::move(done)] {
        state->waiting_bytes -= part->size;
        state->tell_failure(part->error_number);
        if (done) done(std::move(part->bytes));
        if (state->waiting_bytes > kMaxWaitingBytes / 2) return;
        for (const auto& writer : std::exchange(state->writers, {})) writer();
      });
}

void LogFile::write(std::string_view bytes) {
  auto copy = std::make_unique_for_overwrite<char[]>(bytes.size());
  std::ranges::copy(bytes, copy.get());
  write(std::move(copy), bytes.size());
}

bool LogFile::wants_pause() const {
  return state_->waiting_bytes >= kMaxWaitingBytes;
}

void LogFile::when_room(std::function<void()> writer) {
  state_->writers.push_back(std::move(writer));
}

}  // namespace ddprun::process
