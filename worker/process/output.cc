// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "worker/process/decide/line_filter.h"

namespace ddprun::process {
namespace {

// Asked of the kernel for each pipe, so that a talkative worker waits seldom.  Bytes.
constexpr int kPipeBytes = 1024 * 1024;

// What one read takes; small enough to stay in a core's cache on its way to file and console.
constexpr std::size_t kBufferBytes = 256 * 1024;

constexpr int kPullLimit = 16;  // buffers; more than a pipe holds

// A read of less is copied, so that a slow disk does not hold a whole buffer for a few lines.
// Bytes.
constexpr std::size_t kCopiedBytes = kBufferBytes / 4;

// Buffers that wait to be used again.  malloc would give blocks of this size back to the kernel,
// which would have to clear them for the next read.
constexpr std::size_t kSpares = 8;

// kBufferBytes of them.  Not cleared: of a worker that says little most is never touched.
using Buffer = std::unique_ptr<char[]>;

// All pumps share it: each is done with it before the next one reads.
struct Scratch {
  std::vector<Buffer> spares;
  std::string lines;

  Buffer take_buffer() {
    if (spares.empty()) return std::make_unique_for_overwrite<char[]>(kBufferBytes);
    Buffer buffer = std::move(spares.back());
    spares.pop_back();
    return buffer;
  }
  void give_back(Buffer buffer) {
    if (spares.size() < kSpares) spares.push_back(std::move(buffer));
  }
};

Scratch& scratch() {
  static Scratch scratch;
  return scratch;
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
  ::fcntl(read_end.get(), F_SETPIPE_SZ, kPipeBytes);  // may fail: there is a limit for each user
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
      splitter_(sinks_.prefix) {
  bool is_kept_nowhere = sinks_.is_raw && !sinks_.file;
  if (is_kept_nowhere && sinks_.console != nullptr) sinks_.console->leave_nothing_out();
}

// A disk that is behind makes the worker wait in turn, and so does a console that is full, for as
// long as the console hopes to get rid of what it has.
void OutputPump::read_when_ready() {
  auto again = [this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) read_when_ready();
  };
  if (sinks_.file && sinks_.file->wants_pause()) return sinks_.file->when_room(again);
  if (sinks_.filtered && sinks_.filtered->file.wants_pause())
    return sinks_.filtered->file.when_room(again);
  if (sinks_.console != nullptr && sinks_.console->wants_pause())
    return sinks_.console->when_room(again);
  wait_for_pipe();
}

void OutputPump::wait_for_pipe() {
  pipe_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                   [this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
                     if (alive.expired() || error) return;
                     // One buffer a turn, so that a talkative worker starves no other.
                     if (read_once() != Read::End) read_when_ready();
                   });
}

OutputPump::Read OutputPump::read_once() {
  Buffer buffer = scratch().take_buffer();
  ssize_t count = ::read(pipe_.native_handle(), buffer.get(), kBufferBytes);
  if (count > 0) {
    std::size_t size = static_cast<std::size_t>(count);
    read_bytes_ += size;
    deliver({buffer.get(), size});
    to_file(std::move(buffer), size);
    return Read::Data;
  }
  bool is_nothing_now = count < 0 && (errno == EAGAIN || errno == EINTR);
  scratch().give_back(std::move(buffer));
  return is_nothing_now ? Read::NothingNow : Read::End;
}

void OutputPump::deliver(std::string_view bytes) {
  if (sinks_.tail) sinks_.tail->feed(bytes);
  if (sinks_.console == nullptr) return;
  if (sinks_.is_raw) return sinks_.console->pass_on(bytes);
  if (sinks_.changing_prefix) splitter_.set_prefix(sinks_.changing_prefix());
  splitter_.feed(bytes, scratch().lines);
  pass_on_lines(scratch().lines);
}

void OutputPump::to_file(std::unique_ptr<char[]> buffer, std::size_t size) {
  if (sinks_.file && size >= kCopiedBytes) {
    return sinks_.file->write(std::move(buffer), size,
                              [](Buffer used) { scratch().give_back(std::move(used)); });
  }
  if (sinks_.file) sinks_.file->write(std::string_view(buffer.get(), size));
  scratch().give_back(std::move(buffer));
}

void OutputPump::pass_on_lines(std::string& lines) {
  sinks_.console->pass_on(lines);
  if (sinks_.filtered) {
    sinks_.filtered->file.write(
        matching_lines(lines, splitter_.prefix().size(), sinks_.filtered->needles));
  }
  lines.clear();
}

void OutputPump::pull() {
  for (int i = 0; i < kPullLimit && read_once() == Read::Data; ++i) {
  }
}

// No more than is there now: what a foreign process goes on to write has no end.
void OutputPump::drain() {
  int waiting = 0;
  ::ioctl(pipe_.native_handle(), FIONREAD, &waiting);
  const std::size_t end = read_bytes_ + static_cast<std::size_t>(waiting);
  while (read_bytes_ < end && read_once() == Read::Data) {
  }
  if (sinks_.console == nullptr || sinks_.is_raw) return;
  splitter_.finish(scratch().lines);
  pass_on_lines(scratch().lines);
}

}  // namespace ddprun::process
