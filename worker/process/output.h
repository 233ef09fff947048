// SPDX-License-Identifier: BSD-3-Clause
//
// One output stream of one worker that passes through the agent: a pipe whose bytes go to the
// worker's log file as they are, and to the console in whole lines with the rank's prefix.
// Streams that only go to a file do not come here: the worker writes the file itself.  A file or
// console that takes nothing makes the worker wait, not the agent.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/base/error.h"
#include "store/base/fd.h"
#include "worker/process/console.h"
#include "worker/process/decide/line_splitter.h"
#include "worker/process/decide/tail.h"
#include "worker/process/log_file.h"

namespace ddprun::process {

// A file that gets, of the lines of several workers, those with one of some texts in them.
struct FilteredLog {
  LogFile file;
  std::vector<std::string> needles;
};

// Threads: used from the executor's only thread.
// Lifetime: after destruction nothing is read or written any more.  Call drain() first.
class OutputPump {
 public:
  // Where the bytes go.
  struct Sinks {
    std::optional<LogFile> file;
    Console* console = nullptr;  // borrowed; nullptr for none
    std::string prefix;          // before each line on the console, never in the file
    // Where the prefix changes: asked once for each batch of lines, instead of `prefix`.
    std::function<std::string()> changing_prefix;
    std::shared_ptr<FilteredLog> filtered;  // nullptr for none
    std::shared_ptr<Tail> tail;             // of the bytes as they are; nullptr for none
    bool is_raw = false;  // the console gets the bytes as they are, without lines and prefix
  };

  // Makes a pipe and starts reading it.  The write end is write_end() until close_write_end().
  static Result<std::unique_ptr<OutputPump>> open(boost::asio::any_io_executor executor,
                                                  Sinks sinks);

  // The worker's stdout or stderr; owned by the pump.
  int write_end() const { return write_end_.get(); }

  // To be called once the worker has been started, so that its end is seen as end of file.
  void close_write_end() { write_end_ = Fd(); }

  // Passes on what the pipe holds now, in bounds: what holds its other end may write on.
  void pull();

  // Passes on what the pipe still holds, without waiting for more, and an unfinished line.
  void drain();

 private:
  OutputPump(boost::asio::any_io_executor executor, Fd read_end, Fd write_end, Sinks sinks);
  void read_when_ready();
  void wait_for_pipe();
  enum class Read { Data, NothingNow, End };
  Read read_once();
  void deliver(std::string_view bytes);
  void to_file(std::unique_ptr<char[]> buffer, std::size_t size);
  void pass_on_lines(std::string& lines);

  boost::asio::posix::stream_descriptor pipe_;
  Fd write_end_;
  Sinks sinks_;
  LineSplitter splitter_;
  std::size_t read_bytes_ = 0;  // so far
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::process
