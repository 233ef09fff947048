// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/output.h"

#include <fcntl.h>
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

// All pumps share it: each is done with it before the next one reads.
struct Scratch {
  std::vector<char> buffer = std::vector<char>(kBufferBytes);
  std::string lines;
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
      splitter_(sinks_.prefix) {}

// A console that is full makes the worker wait in turn, for as long as the console hopes to get rid
// of what it has.
void OutputPump::read_when_ready() {
  if (sinks_.console == nullptr || !sinks_.console->wants_pause()) return wait_for_pipe();
  sinks_.console->when_room([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) read_when_ready();
  });
}

void OutputPump::wait_for_pipe() {
  pipe_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                   [this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
                     if (alive.expired() || error) return;
                     // One buffer a turn, so that a talkative worker starves nobody.
                     if (read_once() != Read::End) read_when_ready();
                   });
}

OutputPump::Read OutputPump::read_once() {
  std::vector<char>& buffer = scratch().buffer;
  ssize_t count = ::read(pipe_.native_handle(), buffer.data(), buffer.size());
  if (count > 0) {
    deliver({buffer.data(), static_cast<std::size_t>(count)});
    return Read::Data;
  }
  return count < 0 && (errno == EAGAIN || errno == EINTR) ? Read::NothingNow : Read::End;
}

void OutputPump::deliver(std::string_view bytes) {
  if (sinks_.tail) sinks_.tail->feed(bytes);
  if (sinks_.file) sinks_.file->write(bytes);
  if (sinks_.console == nullptr) return;
  if (sinks_.is_raw) return sinks_.console->pass_on(bytes);
  if (sinks_.changing_prefix) splitter_.set_prefix(sinks_.changing_prefix());
  splitter_.feed(bytes, scratch().lines);
  pass_on_lines(scratch().lines);
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

void OutputPump::drain() {
  while (read_once() == Read::Data) {
  }
  if (sinks_.console == nullptr || sinks_.is_raw) return;
  splitter_.finish(scratch().lines);
  pass_on_lines(scratch().lines);
}

}  // namespace ddprun::process
