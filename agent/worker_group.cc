// SPDX-License-Identifier: BSD-3-Clause
#include "agent/worker_group.h"

#include <signal.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "agent/decide/start_failure.h"
#include "agent/worker_spec.h"
#include "store/base/count.h"
#include "store/base/seconds.h"
#include "store/clock.h"
#include "worker/process/cgroup.h"
#include "worker/process/spawn.h"

namespace ddprun::agent {

namespace asio = boost::asio;

namespace {

constexpr auto kLookAtLease = std::chrono::milliseconds(20);
constexpr auto kForkPatience = std::chrono::seconds(10);

// How long the end of the run waits for the removal of an empty folder.
constexpr auto kCleaningPatience = std::chrono::seconds(1);

std::vector<pid_t> pids_of(const std::vector<RunningWorker>& workers) {
  std::vector<pid_t> pids;
  for (const RunningWorker& worker : workers) pids.push_back(worker.pid);
  return pids;
}

std::string of_local_rank(int local_rank, const Error& error) {
  return "local rank " + std::to_string(local_rank) + ": " + to_string(error);
}

}  // namespace

WorkerGroup::WorkerGroup(boost::asio::any_io_executor executor, process::Reaper& reaper,
                         Consoles consoles, process::IoThread& disk, WorkerGroupConfig config)
    : executor_(std::move(executor)),
      reaper_(reaper),
      consoles_(consoles),
      disk_(disk),
      config_(std::move(config)),
      error_files_(config_.log_dir),
      ends_(executor_, disk, [this](WorkerExit exit) { tell(std::move(exit)); }),
      cleaning_(executor_, [](const process::IoThread::Stall&) {}),
      forks_timer_(executor_),
      lease_timer_(executor_) {}

WorkerGroup::~WorkerGroup() = default;

void WorkerGroup::listen(OnExit on_exit, OnWarning on_warning, OnInfo on_info) {
  on_exit_ = std::move(on_exit);
  on_warning_ = std::move(on_warning);
  listen_to(consoles_.out, &WorkerRoutes::out);
  listen_to(consoles_.err, &WorkerRoutes::err);
  if (!config_.has_warm_restarts) return;
  WarmRestarts::Parts parts{.imports = config_.warm_imports,
                            .variables = varying_variables(),
                            .has_first_attempt = config_.has_warm_start,
                            .workers = [this] { return pids_of(running()); },
                            .on_info = std::move(on_info),
                            .on_warning = on_warning_};
  warm_ = std::make_unique<WarmRestarts>(executor_, reaper_, std::move(parts));
}

void WorkerGroup::start(const rendezvous::Round& round, int restart_count,
                        std::function<void(const std::optional<StartFailure>&)> on_started) {
  workers_.clear();
  if (log_losses_.size() > 1) log_losses_.resize(1);
  ends_.begin_attempt();
  ++starts_;
  restart_count_ = restart_count;
  error_files_.begin_attempt(starts_, restart_count);
  start_ = std::make_unique<AttemptStart>(executor_,
                                          AttemptStart::Parts{.round = round,
                                                              .workers = config_.local_world_size,
                                                              .program = config_.command.at(0),
                                                              .on_started = std::move(on_started),
                                                              .on_warning = on_warning_});
  AttemptFilesSpec spec = attempt_files_spec(config_, restart_count, starts_ == 1);
  auto files = std::make_shared<Result<AttemptFiles>>(
      Error{Errc::LimitExceeded, "the log files could not be made"});  // where that throws
  bool has_just_been_made = spec.has_late_folders && starts_ == 1;
  if (!spec.log_dir || has_just_been_made) return files_made(make_attempt_files(spec));
  std::string call = "make the log files in " + spec.log_dir->path();
  disk_.run(
      std::move(call), [spec = std::move(spec), files] { *files = make_attempt_files(spec); },
      [this, files, number = starts_, alive = std::weak_ptr(alive_)] {
        if (!alive.expired() && is_starting(number)) files_made(std::move(*files));
      });
}

// Whether this start is under way, and has not been stopped.
bool WorkerGroup::is_starting(int number) const {
  return number == starts_ && start_ != nullptr;
}

// They have been, or cannot be.
void WorkerGroup::files_made(Result<AttemptFiles> files) {
  if (!files) {
    start_->set_files_made();
    start_->fail(0, to_string(files.error()), kExitInfrastructure, config_.local_world_size);
    return end_start_if_settled();
  }
  if (!files->lost.empty()) {
    log_losses_.push_back(files->lost);
    on_warning_("this attempt has no log files: " + files->lost);
  }
  auto prepared = std::make_shared<Prepared>(
      Prepared{.start = starts_, .files = std::move(*files), .forks = {}});
  bool is_warm = warm_ && (starts_ > 1 || config_.has_warm_start);
  if (!is_warm) return begin_when_leased(prepared);
  warm_->fork(specs_of(start_->round()), [this, prepared](std::vector<process::Fork> forks) {
    prepared->forks = std::move(forks);
    begin_when_leased(prepared);
  });
}

// The disk, or a stop of this process, may have taken longer than the lease of the workers that are
// to be forked.  The others may then go on without them, until it is renewed.
void WorkerGroup::begin_when_leased(const std::shared_ptr<Prepared>& prepared) {
  if (!is_starting(prepared->start)) return;
  if (!config_.lease_end || mono_now() < config_.lease_end()) {
    start_->set_files_made();
    return begin_all(std::move(prepared->files), std::move(prepared->forks));
  }
  lease_timer_.expires_after(kLookAtLease);
  lease_timer_.async_wait(
      [this, prepared, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
        if (!error && !alive.expired()) begin_when_leased(prepared);
      });
}

std::vector<process::ProcessSpec> WorkerGroup::specs_of(const rendezvous::Round& round) const {
  std::vector<process::ProcessSpec> specs;
  for (int local_rank = 0; local_rank < config_.local_world_size; ++local_rank)
    specs.push_back(
        worker_spec(config_, worker_env(config_, round, restart_count_, local_rank), ""));
  return specs;
}

// `forks`: for each worker, or none.
void WorkerGroup::begin_all(AttemptFiles files, std::vector<process::Fork> forks) {
  AttemptOutput output(executor_, consoles_, disk_, config_, std::move(files),
                       [this, alive = std::weak_ptr(alive_)](const Error& error) {
                         if (!alive.expired()) output_lost(error);
                       });
  for (int local_rank = 0; local_rank < config_.local_world_size; ++local_rank) {
    std::optional<process::Fork> fork;
    if (!forks.empty()) fork = std::move(forks.at(static_cast<std::size_t>(local_rank)));
    auto begun = begin_one(output, worker_env(config_, start_->round(), restart_count_, local_rank),
                           std::move(fork));
    if (begun) continue;
    start_->fail(local_rank, of_local_rank(local_rank, begun.error()), kExitInfrastructure,
                 config_.local_world_size - local_rank);
    break;
  }
  start_->all_forked();
  if (!forks.empty()) watch_forks();
  end_start_if_settled();
}

// One that stands still, or hangs in what a library does after a fork, would be waited for.
void WorkerGroup::watch_forks() {
  forks_timer_.expires_after(kForkPatience);
  forks_timer_.async_wait(
      [this, number = starts_, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
        if (error || alive.expired() || number != starts_ || !start_) return;
        for (const auto& worker : workers_) {
          if (worker->has_ended() || worker->is_exec_known()) continue;
          const RunningWorker fork = worker->describe();
          worker->signal(SIGKILL);
          warm_->rule_out("rank " + std::to_string(fork.rank) + ", which was forked as pid " +
                          std::to_string(fork.pid) + ", has not begun within " +
                          seconds_text(kForkPatience) + " and gets SIGKILL; it is started cold");
        }
      });
}

Result<process::StartingProcess> WorkerGroup::begin(const process::ProcessSpec& spec,
                                                    std::optional<process::Fork> fork) {
  if (!fork) return process::begin_spawn(spec);
  auto starting = process::begin_spawn(std::move(*fork), spec);
  if (starting) return starting;
  on_warning_("a worker is started cold: " + to_string(starting.error()));
  return process::begin_spawn(spec);
}

Result<void> WorkerGroup::begin_one(AttemptOutput& output, worker::WorkerEnv env,
                                    std::optional<process::Fork> fork) {
  auto streams = output.open_worker(env);
  if (!streams) return streams.error();
  env.error_file = error_files_.path_for(streams->folder, env.local_rank);
  process::ProcessSpec spec = worker_spec(config_, env, streams->folder);
  spec.stdout_fd = streams->stdout_fd;
  spec.stderr_fd = streams->stderr_fd;
  process::CgroupLeaf cgroup;
  if (!config_.cgroup_base.empty()) {
    // One of the round before may still be there, with a process that nothing ends.
    auto made = process::CgroupLeaf::create(config_.cgroup_base, std::to_string(cgroups_made_++));
    if (made) cgroup = std::move(*made);
    spec.cgroup = cgroup.path();
  }
  auto starting = begin(spec, std::move(fork));
  if (!starting) return starting.error();
  LocalWorker::Parts parts{.local_rank = env.local_rank,
                           .rank = env.rank,
                           .error_file = env.error_file,
                           .streams = std::move(*streams),
                           .cgroup = std::move(cgroup)};
  add(std::move(parts), std::move(*starting));
  return {};
}

// In the place of the one with its local rank, if there is one.
void WorkerGroup::add(LocalWorker::Parts parts, process::StartingProcess starting) {
  const int local_rank = parts.local_rank;
  auto worker = std::make_shared<LocalWorker>(executor_, std::move(parts), starting);
  auto place = std::ranges::find_if(
      workers_, [local_rank](const auto& other) { return other->local_rank() == local_rank; });
  if (place == workers_.end()) {
    workers_.push_back(worker);
  } else {
    *place = worker;
  }
  start_->worker_forked();
  watch(worker, std::move(starting.process));
}

// The fork has ended before its script began: nobody has seen anything of it.
void WorkerGroup::begin_cold(LocalWorker& fork, const Error& error) {
  const RunningWorker was = fork.describe();
  warm_->rule_out("rank " + std::to_string(was.rank) + ", which was forked as pid " +
                  std::to_string(was.pid) + ", has not begun (" + to_string(error) +
                  "); it is started cold");
  LocalWorker::Parts parts = fork.take_parts();
  worker::WorkerEnv env = worker_env(config_, start_->round(), restart_count_, parts.local_rank);
  env.error_file = parts.error_file;
  process::ProcessSpec spec = worker_spec(config_, env, parts.streams.folder);
  spec.stdout_fd = parts.streams.stdout_fd;
  spec.stderr_fd = parts.streams.stderr_fd;
  spec.cgroup = parts.cgroup.path();
  auto starting = process::begin_spawn(spec);
  if (starting) return add(std::move(parts), std::move(*starting));
  start_->fail(parts.local_rank, of_local_rank(parts.local_rank, starting.error()),
               kExitInfrastructure, 1);
}

void WorkerGroup::watch(const std::shared_ptr<LocalWorker>& worker, process::Process process) {
  std::weak_ptr<LocalWorker> watched = worker;
  worker->watch_exec([this, watched] {
    auto settled = watched.lock();
    if (!settled) return;
    settle(*settled, false);
    end_start_if_settled();
  });
  reaper_.watch(std::move(process), [this, watched](process::ExitStatus status) {
    if (auto gone = watched.lock()) ended(*gone, status);
  });
}

// It is known whether the worker's program runs.
void WorkerGroup::settle(LocalWorker& worker, bool is_gone) {
  auto started = worker.take_exec_result(is_gone);
  if (!started || !start_) return;  // known before, or abandoned
  start_->worker_settled();
  if (*started || (worker.is_fork() && start_->is_stopping())) return;
  worker.set_ended();
  if (worker.is_fork()) return begin_cold(worker, started->error());
  const Error& error = started->error();
  start_->fail(worker.local_rank(), of_local_rank(worker.local_rank(), error),
               exit_code_of_start(error), 1);
}

void WorkerGroup::end_start_if_settled() {
  if (!start_ || !start_->is_settled()) return;
  std::unique_ptr<AttemptStart> start = std::move(start_);
  start->finish();
  if (start->is_stopping()) return;
  if (warm_) warm_->workers_run(specs_of(start->round()));
  for (const WorkerExit& exit : start->take_exits()) on_exit_(exit);
}

void WorkerGroup::stop_starting() {
  ends_.hurry();
  if (!start_ || start_->is_stopping()) return;
  if (!start_->has_files()) {  // no worker will come of it
    std::unique_ptr<AttemptStart> start = std::move(start_);
    asio::post(executor_, [on_started = start->on_started(), alive = std::weak_ptr(alive_)] {
      if (alive.expired()) return;
      on_started(StartFailure{.started = 0, .why = "stopped before the workers were started"});
    });
    return;
  }
  auto failure = start_->set_stopping();
  asio::post(executor_, [this, failure, on_started = start_->on_started(),
                         exits = start_->take_exits(), alive = std::weak_ptr(alive_)] {
    if (failure && !alive.expired()) on_started(failure);
    for (const WorkerExit& exit : exits) {
      if (!alive.expired()) on_exit_(exit);
    }
  });
}

void WorkerGroup::ended(LocalWorker& worker, process::ExitStatus status) {
  if (warm_ && !status.is_success()) warm_->expect_restart();
  settle(worker, true);
  if (!worker.has_ended()) {
    worker.set_ended();
    ends_.ended(worker.exit(status), worker.reader_of_end(error_files_));
  }
  end_start_if_settled();
}

void WorkerGroup::tell(WorkerExit exit) {
  if (start_ && !start_->is_stopping()) return start_->hold_back(std::move(exit));
  on_exit_(exit);
}

// One line for the run: a full disk refuses every worker's.
void WorkerGroup::output_lost(const Error& error) {
  log_losses_.push_back(to_string(error));
  if (log_losses_.size() > 1) return;
  on_warning_("log files miss lines from here on, " + words_on_console() + ": " +
              log_losses_.front());
}

// Where the lines are that log files miss.
std::string WorkerGroup::words_on_console() const {
  if (!console_loss().empty()) return "and so does the console";
  for (const process::Console* console : {&consoles_.out, &consoles_.err}) {
    if (config_.log_dir && console->device() == config_.log_dir->device())
      return "and the console is a file on the same disk";
  }
  return "which are on the console only";
}

void WorkerGroup::listen_to(process::Console& console, StreamRoute WorkerRoutes::*stream) {
  console.on_loss([this, &console, stream, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) console_lost(console, stream);
  });
}

void WorkerGroup::console_lost(const process::Console& console, StreamRoute WorkerRoutes::*stream) {
  auto is_any = [&](StreamRoute route) {
    return std::ranges::any_of(config_.routes,
                               [&](const WorkerRoutes& routes) { return routes.*stream == route; });
  };
  std::string rest;
  if (is_any(StreamRoute::FileAndConsole) && !log_losses_.empty()) {
    rest = "; the log files miss lines, too: what workers print is lost";
  } else if (is_any(StreamRoute::FileAndConsole) && config_.log_dir) {
    rest = "; what workers print is in the log files only: " + log_path();
  } else if (is_any(StreamRoute::FileAndConsole) || is_any(StreamRoute::Inherit)) {
    rest =
        "; what workers print there is kept nowhere else (--tee=3 and --log-dir on another disk "
        "keep it)";
  }
  const Error error = system_error(console.loss().error_number, "write to " + console.name());
  on_warning_("the console misses lines from here on: " + to_string(error) + rest);
}

std::string WorkerGroup::console_loss() const {
  std::string text;
  for (const process::Console* console : {&consoles_.out, &consoles_.err}) {
    const process::Console::Loss& loss = console->loss();
    if (loss.bytes == 0) continue;
    text += (text.empty() ? "" : "; ") +
            to_string(system_error(loss.error_number,
                                   console->name() + ", misses " + count_of(loss.bytes, "byte")));
  }
  return text;
}

asio::awaitable<void> WorkerGroup::consoles_written(MonoTime deadline) {
  if (consoles_.out.device()) co_await consoles_.out.finish(deadline);
  if (consoles_.err.device()) co_await consoles_.err.finish(deadline);
}

// Workers have log files themselves, and write past the agent.
bool WorkerGroup::has_own_files() const {
  return std::ranges::any_of(config_.routes, [](const WorkerRoutes& routes) {
    return routes.out == StreamRoute::File || routes.err == StreamRoute::File;
  });
}

// Where a worker writes to its log files itself, only it hears that the disk refuses a write.
void WorkerGroup::look_at_disk() {
  if (!has_own_files() || !config_.log_dir || was_disk_full_) return;
  auto is_full = std::make_shared<bool>(false);
  disk_.run(
      "look at the disk of " + log_path(),
      [is_full, path = log_path()] { *is_full = is_disk_full(path); },
      [this, is_full, alive = std::weak_ptr(alive_)] {
        if (!alive.expired() && *is_full) was_disk_full_ = true;
      });
}

LogLoss WorkerGroup::log_loss(const std::string& folder) const {
  if (log_losses_.empty() && was_disk_full_)
    return {.why = "the disk of " + log_path() + " was full", .is_certain = false};
  if (log_losses_.empty()) return {};
  auto found = std::ranges::find_if(log_losses_, [&](const std::string& loss) {
    return loss.find(folder + "/") != std::string::npos;
  });
  return {.why = found == log_losses_.end() ? log_losses_.front() : *found,
          .is_on_console = !has_own_files() && console_loss().empty()};
}

void WorkerGroup::signal_all(int signal) {
  for (const auto& worker : workers_) {
    if (!worker->has_ended()) worker->signal_group(signal);
  }
}

void WorkerGroup::kill_all() {
  signal_all(SIGKILL);
  for (const auto& worker : workers_) worker->kill_cgroup();
}

void WorkerGroup::signal_each(int signal) {
  for (const auto& worker : workers_) {
    if (!worker->has_ended()) worker->signal(signal);
  }
}

void WorkerGroup::signal_one(int local_rank, int signal) {
  for (const auto& worker : workers_) {
    if (worker->local_rank() != local_rank || worker->has_ended()) continue;
    worker->signal(signal);
    worker->signal(SIGCONT);  // a stopped process sees no other signal
  }
}

void WorkerGroup::abandon(int local_rank) {
  for (const auto& worker : workers_) {
    if (worker->local_rank() == local_rank) worker->set_ended();
  }
  start_.reset();
}

void WorkerGroup::finish_output() {
  for (const auto& worker : workers_) worker->finish_output();
  look_at_disk();
}

std::vector<RunningWorker> WorkerGroup::running() const {
  std::vector<RunningWorker> running;
  for (const auto& worker : workers_) {
    if (!worker->has_ended()) running.push_back(worker->describe());
  }
  return running;
}

std::vector<RunningWorker> WorkerGroup::started() const {
  std::vector<RunningWorker> started;
  for (const auto& worker : workers_) started.push_back(worker->describe());
  return started;
}

asio::awaitable<void> WorkerGroup::end_helper() {
  if (warm_) co_await warm_->end();
}

asio::awaitable<void> WorkerGroup::remove_empty_log_dir() {
  if (!config_.log_dir || !config_.log_dir->is_temporary()) co_return;
  auto is_removed = std::make_shared<bool>(false);
  cleaning_.run("remove " + config_.log_dir->path(), [log_dir = config_.log_dir, is_removed] {
    *is_removed = log_dir->remove_if_empty();
  });
  if (!co_await cleaning_.settled(mono_now() + kCleaningPatience)) {
    on_warning_("the log folder stays, since its disk stands still: " + log_path());
  } else if (*is_removed) {
    config_.log_dir.reset();
  }
}

}  // namespace ddprun::agent
