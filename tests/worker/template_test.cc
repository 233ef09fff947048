// SPDX-License-Identifier: BSD-3-Clause
//
// The agent's half of a template, with a real Python.  What Python's half does is in
// template_test.py, and both together in tests/e2e/warm_restart_test.py.
#include "worker/process/template.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "tests/support/workers.h"
#include "worker/process/pidfd.h"
#include "worker/process/proc_files.h"

using namespace ddprun;
using namespace ddprun::process;

namespace {

struct Templates : test::Workers {
  Templates() {
    REQUIRE(Reaper::become_subreaper().has_value());
    std::ofstream(script)
        << "import os\nos.write(1, (os.environ['RANK'] + ' of ' + "
           "os.environ['WORDS']).encode())\n"
           "os._exit(len(os.listdir('/proc/self/fd')) + int(os.environ['RANK']))\n";
  }

  std::string script = folder.path() + "/train.py";
  TemplateSpec spec{.worker = {.argv = {python(), "-u", script}, .environment = {"WORDS=two"}},
                    .imports = {},
                    .variables = {"RANK"}};
  std::optional<std::string> ready;
  std::optional<std::string> refused;
  std::unique_ptr<Template> made;
  pid_t pid = -1;
  bool has_ended = false;
  ExitStatus end{};

  static std::string python() {
    Result<std::string> found = find_program("python3", ::getenv("PATH"));
    REQUIRE(found.has_value());
    return *found;
  }

  void start_template() {
    auto started =
        Template::start(loop.get_executor(), spec,
                        {.on_ready = [this](const std::string& text) { ready = text; },
                         .on_refused = [this](const std::string& why) { refused = why; }});
    REQUIRE(started.has_value());
    made = std::move(*started);
    Process process = made->take_process();
    pid = process.pid;
    reaper.watch(std::move(process), [this](ExitStatus how) {
      has_ended = true;
      end = how;
      if (made) made->ended();
    });
    REQUIRE(test::run_until(loop, [&] { return ready || refused || has_ended; }));
  }

  Result<std::vector<Fork>> fork(int count) {
    std::optional<Result<std::vector<Fork>>> result;
    made->fork(count, [&](Result<std::vector<Fork>> forks) { result = std::move(forks); });
    REQUIRE(test::run_until(loop, [&] { return result.has_value(); }));
    return std::move(*result);
  }

  ProcessSpec worker(int rank, int stdout_fd) {
    ProcessSpec worker = spec.worker;
    worker.environment.push_back("RANK=" + std::to_string(rank));
    worker.stdout_fd = stdout_fd;
    return worker;
  }
};

}  // namespace

TEST_SUITE("worker/process/template") {
  TEST_CASE("why it has ended is known to the fork after that") {
    Templates t;
    std::string library = t.folder.path() + "/library.py";
    std::ofstream(library) << "value = 1\n";
    std::filesystem::last_write_time(
        library, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    t.spec.imports = {"library"};
    t.spec.worker.environment.push_back("PYTHONPATH=" + t.folder.path());
    t.start_template();
    REQUIRE(t.ready);
    std::ofstream(library) << "value = 22\n";
    std::string why;
    t.made->park(1, [&](Result<void> parked) { why = to_string(parked.error()); });
    REQUIRE(test::run_until(t.loop, [&] { return !t.made->why_ended().empty(); }));
    CHECK(why.find("library.py has been changed") != std::string::npos);  // and it ends
    auto forks = t.fork(1);
    REQUIRE_FALSE(forks.has_value());
    CHECK(to_string(forks.error()).find("library.py has been changed") != std::string::npos);
  }

  TEST_CASE("why its program cannot be run is known at its end") {
    Templates t;
    t.spec.worker.argv[0] = "/no/such/python";
    t.start_template();
    REQUIRE(t.has_ended);
    CHECK(t.end.exit_code == 127);  // and no signal, such as SIGPIPE
    Result<void> could_run = t.made->exec_result();
    REQUIRE_FALSE(could_run.has_value());
    CHECK(to_string(could_run.error()) == "start /no/such/python: No such file or directory");
  }

  TEST_CASE("a process gets more of the CPUs, and never less") {
    pid_t child = ::fork();
    if (child == 0) {
      ::setpriority(PRIO_PROCESS, 0, 19);
      ::raise(SIGSTOP);
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
    auto nice_of = [child] { return ::getpriority(PRIO_PROCESS, static_cast<id_t>(child)); };
    raise_priority(child, 10);
    const int raised = ::geteuid() == 0 ? 10 : 19;  // others may not
    CHECK(nice_of() == raised);
    raise_priority(child, 15);
    CHECK(nice_of() == raised);
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    raise_priority(child, 0);  // it is gone
  }

  TEST_CASE_FIXTURE(Templates, "workers are forked, and are this process's children") {
    start_template();
    REQUIRE(ready);
    auto forks = fork(2);
    REQUIRE(forks.has_value());
    for (int rank = 0; rank < 2; ++rank) {
      Fd log(::open(output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
      auto starting = begin_spawn(std::move(forks->at(static_cast<std::size_t>(rank))),
                                  worker(rank, log.get()));
      REQUIRE(starting.has_value());
      CHECK(report_of_fork(starting->report, starting->context).has_value());
      // 0, 1, 2, and the folder that it lists.
      CHECK(status_of(std::move(starting->process)).exit_code == 4 + rank);
      CHECK(output() == std::to_string(rank) + " of two");
    }
    made.reset();
    CHECK(test::run_until(loop, [&] { return has_ended; }));
  }

  TEST_CASE_FIXTURE(Templates, "a fork that ends before it has begun is no worker") {
    start_template();
    auto forks = fork(1);
    REQUIRE(forks.has_value());
    ::kill(forks->at(0).process.pid, SIGSTOP);
    auto starting = begin_spawn(std::move(forks->at(0)), worker(0, -1));
    REQUIRE(starting.has_value());
    ::kill(starting->process.pid, SIGKILL);
    auto began = report_of_fork(starting->report, "start it");
    REQUIRE(began.has_error());
    CHECK(to_string(began.error()) == "start it: it has ended before it began");
    CHECK(status_of(std::move(starting->process)).signal == SIGKILL);
  }

  TEST_CASE_FIXTURE(Templates, "forks that wait and stand still are made anew") {
    start_template();
    made->park(1);
    REQUIRE(test::run_until(loop, [&] { return made->parked() == 1; }));
    made->check_files();
    REQUIRE(test::run_until(loop, [&] { return made->is_checked(); }));
    for (const Leftover& child : descendants_of(::getpid())) {
      if (child.pid == pid) continue;
      ::kill(child.pid, SIGSTOP);
      while (stat_of(child.pid).state != 'T') ::usleep(1000);
    }
    auto forks = fork(1);
    REQUIRE(forks.has_value());
    Fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    auto starting = begin_spawn(std::move(forks->at(0)), worker(1, null.get()));
    REQUIRE(starting.has_value());
    CHECK(status_of(std::move(starting->process)).exit_code == 5);
  }

  TEST_CASE("a script in Python's place stands against a template") {
    test::TempDir folder;
    std::string wrapper = folder.path() + "/python";
    std::ofstream(wrapper) << "#!/bin/sh\n";
    CHECK(obstacle_to_template({.argv = {wrapper}}) ==
          wrapper + " is a script, which forks would not run; PYTHON_EXEC may name Python itself");
    CHECK(obstacle_to_template({.argv = {"/bin/sh"}}) == "");
    CHECK(obstacle_to_template({.argv = {"/no/such/python"}}) == "");
  }

  TEST_CASE_FIXTURE(Templates, "a fork that is not used ends") {
    start_template();
    auto forks = fork(1);
    REQUIRE(forks.has_value());
    Process process = std::move(forks->at(0).process);
    forks->clear();
    CHECK(status_of(std::move(process)).exit_code == 127);
  }

  TEST_CASE_FIXTURE(Templates, "forks that wait are taken by the next fork of as many") {
    start_template();
    REQUIRE(ready);
    made->park(2);
    auto forks = fork(2);  // also while they are made
    REQUIRE(forks.has_value());
    forks->clear();

    made->park(1);
    forks = fork(2);  // not these: they are too few
    REQUIRE(forks.has_value());
    CHECK(forks->size() == 2);
    forks->clear();
  }

  TEST_CASE_FIXTURE(Templates, "two hundred forks leave no descriptor behind") {
    start_template();
    auto descriptors = [] {
      auto entries = std::filesystem::directory_iterator("/proc/self/fd");
      return std::distance(std::filesystem::begin(entries), std::filesystem::end(entries));
    };
    Fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    std::ptrdiff_t before = 0;
    for (int i = 0; i < 200; ++i) {
      if (i % 2 == 0) made->park(1);
      if (i % 4 == 0) made->check_files();  // nothing waits yet
      auto forks = fork(1);
      REQUIRE(forks.has_value());
      auto starting = begin_spawn(std::move(forks->at(0)), worker(i % 2, null.get()));
      REQUIRE(starting.has_value());
      CHECK(status_of(std::move(starting->process)).exit_code == 4 + i % 2);
      starting->report = Fd();
      forks->clear();
      if (i == 0) before = descriptors();
    }
    CHECK(descriptors() == before);
  }

  TEST_CASE_FIXTURE(Templates,
                    "who has forks parked is told once they wait, also if they do already") {
    start_template();
    std::vector<int> told;
    made->park(2, [&](Result<void>) { told.push_back(made->parked()); });
    made->park(2, [&](Result<void>) { told.push_back(-1); });  // under way: the first is told
    CHECK(told.empty());
    REQUIRE(test::run_until(loop, [&] { return !told.empty(); }));
    CHECK(told == std::vector<int>{2});
    made->park(2, [&](Result<void> parked) {
      CHECK(parked.has_value());
      told.push_back(made->parked());
    });
    CHECK(told == std::vector<int>{2, 2});
  }

  TEST_CASE_FIXTURE(Templates, "forks that wait are told of before the fork() that takes them") {
    start_template();
    bool is_told = false;
    made->park(1, [&](Result<void> parked) { is_told = parked.has_value(); });
    CHECK(fork(1).has_value());
    CHECK(is_told);
  }

  TEST_CASE_FIXTURE(Templates, "a look beforehand holds for the next fork") {
    start_template();
    made->park(1);
    REQUIRE(test::run_until(loop, [&] { return made->parked() == 1; }));
    made->check_files();
    REQUIRE(test::run_until(loop, [&] { return made->is_checked(); }));
    ::kill(pid, SIGKILL);  // it is not asked again
    CHECK(fork(1).has_value());
  }

  TEST_CASE_FIXTURE(Templates, "forks that wait are killed with the template") {
    start_template();
    made->park(2);
    REQUIRE(test::run_until(loop, [&] { return made->parked() == 2; }));
    std::vector<Process> killed = made->kill_parked();
    REQUIRE(killed.size() == 2);
    std::vector<int> signals;
    for (Process& process : killed) {
      reaper.watch(std::move(process),
                   [&](ExitStatus status) { signals.push_back(status.signal); });
    }
    CHECK(test::run_until(loop, [&] { return signals.size() == 2; }));
    CHECK(signals == std::vector<int>{SIGKILL, SIGKILL});
    CHECK(made->parked() == 0);
  }

  TEST_CASE_FIXTURE(Templates, "a worker is bound to its CPUs") {
    start_template();
    auto forks = fork(1);
    REQUIRE(forks.has_value());
    ProcessSpec bound = worker(0, -1);
    bound.cpus = {1'000'000};
    CHECK(begin_spawn(std::move(forks->at(0)), bound).has_error());
  }

  TEST_CASE_FIXTURE(Templates, "a template that is killed, or stands still, fails the fork") {
    start_template();
    REQUIRE(ready);
    ::kill(pid, SIGSTOP);
    auto forks = fork(1);
    REQUIRE(forks.has_error());
    CHECK(to_string(forks.error()) == "the template does not answer");
    ::kill(pid, SIGKILL);
    forks = fork(1);
    REQUIRE(forks.has_error());
    CHECK(test::run_until(loop, [&] { return has_ended; }));
  }

  TEST_CASE_FIXTURE(Templates, "a Python that does not take the archive in never runs the script") {
    std::string wrapper = folder.path() + "/python";
    std::ofstream(wrapper) << "#!/bin/sh\nexec " << python() << " -I \"$@\"\n";
    ::chmod(wrapper.c_str(), 0700);
    std::ofstream(script) << "import os\nos.mkdir('" << folder.path() << "/ran')\n";
    spec.worker.argv.at(0) = wrapper;
    start_template();
    CHECK(has_ended);
    CHECK(::access((folder.path() + "/ran").c_str(), F_OK) != 0);
  }

  TEST_CASE_FIXTURE(Templates, "what it prints last is kept") {
    spec.worker.argv.at(0) = folder.path() + "/python";
    std::ofstream(spec.worker.argv.at(0)) << "#!/bin/sh\necho one\necho two >&2\n";
    ::chmod(spec.worker.argv.at(0).c_str(), 0700);
    start_template();
    CHECK(made->last_words() == "two");
  }

  TEST_CASE("what is different in the workers stands against a fork") {
    TemplateSpec spec{.worker = {.argv = {"python", "x.py"}, .environment = {"A=1", "RANK=0"}},
                      .imports = {},
                      .variables = {"RANK"}};
    ProcessSpec worker = spec.worker;
    worker.environment = {"A=1", "RANK=1"};
    CHECK(obstacle_to_fork(spec, worker) == "");
    worker.environment = {"A=2", "RANK=1"};
    CHECK(obstacle_to_fork(spec, worker) == "A is different in the workers");
    for (std::string name : {"OMP_NUM_THREADS", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONHASHSEED",
                             "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "CUDA_MODULE_LOADING"}) {
      worker.environment = {"A=1", "RANK=1", name + "=1"};
      CHECK(obstacle_to_fork(spec, worker) == name + " is different in the workers");
    }
    worker.environment = {"A=1", "B=1"};
    CHECK(obstacle_to_fork(spec, worker) == "B is different in the workers");
    worker = spec.worker;
    worker.argv.push_back("1");
    CHECK(obstacle_to_fork(spec, worker) == "the workers' command lines are different");
    worker = spec.worker;
    worker.cpus = {0};
    CHECK(obstacle_to_fork(spec, worker) ==
          "a worker that is bound to CPUs needs OMP_NUM_THREADS for it");
    spec.worker.environment.emplace_back("OMP_NUM_THREADS=1");
    worker.environment = spec.worker.environment;
    CHECK(obstacle_to_fork(spec, worker) == "");
  }
}
