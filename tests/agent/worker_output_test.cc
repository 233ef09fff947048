// SPDX-License-Identifier: BSD-3-Clause
#include "agent/worker_output.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <future>
#include <string>
#include <utility>

#include "tests/support/event_loop.h"
#include "tests/support/temp_dir.h"
#include "worker/process/console.h"
#include "worker/process/io_thread.h"
#include "worker/process/log_file.h"

using namespace ddprun;
using namespace ddprun::agent;

namespace {

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

// One worker, whose streams go to its log files, before it is started.
struct OneWorker {
  boost::asio::io_context loop;
  process::Console out{loop.get_executor(), STDOUT_FILENO};
  process::Console err{loop.get_executor(), STDERR_FILENO};
  process::IoThread disk{loop.get_executor(), [](const process::IoThread::Stall&) {}};
  test::TempDir folder;
  WorkerGroupConfig config{.routes = {{.out = StreamRoute::File, .err = StreamRoute::File}}};
  AttemptOutput output{loop.get_executor(), {out, err}, disk, config, files(), [](const Error&) {}};

  AttemptFiles files() const {
    AttemptFiles files;
    files.workers.push_back({.folder = folder.path(),
                             .out = process::LogFile::open(folder.path() + "/stdout.log").value(),
                             .err = process::LogFile::open(folder.path() + "/stderr.log").value()});
    return files;
  }
};

}  // namespace

TEST_SUITE("agent/worker_output") {
  TEST_CASE_FIXTURE(OneWorker,
                    "files that a worker has are closed by the thread for the disk, when it can") {
    std::promise<void> goes_on;
    disk.run("stand still", [&] { goes_on.get_future().wait(); });
    WorkerStreams streams = output.open_worker({}).value();
    const int stdout_fd = streams.stdout_fd;
    const int stderr_fd = streams.stderr_fd;
    streams.worker_has_them();
    CHECK(is_open(stdout_fd));
    CHECK(is_open(stderr_fd));
    goes_on.set_value();
    REQUIRE(test::run_until(loop, [&] { return disk.is_idle(); }));
    CHECK_FALSE(is_open(stdout_fd));
    CHECK_FALSE(is_open(stderr_fd));
  }
}
