// SPDX-License-Identifier: BSD-3-Clause
#include "agent/agent.h"

#include <signal.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <set>
#include <utility>

#include "agent/decide/wait_words.h"
#include "agent/flight_recorder.h"
#include "agent/part_configs.h"
#include "agent/report/report.h"
#include "store/base/check.h"
#include "store/base/count.h"
#include "store/base/seconds.h"
#include "store/base/variant.h"
#include "store/clock.h"
#include "worker/process/proc_files.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;

using TraceKind = rendezvous::TraceEvent::Kind;
using rendezvous::kAgentThread;

// A start has the processors to itself, and most runs that fail live longer.
constexpr auto kPrepareAfter = std::chrono::seconds(1);

// What the disk may take for copies before the next attempt, or the end, goes on without them.
constexpr auto kDumpPatience = std::chrono::seconds(5);

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// As the timeline has it.
const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::Joining:
      return "joining";
    case Phase::Running:
      return "workers run";
    case Phase::Inspecting:
      return "looking at the workers";
    case Phase::Stopping:
      return "stopping";
    case Phase::Waiting:
      return "waiting for the others";
    case Phase::Finished:
      break;
  }
  return "finished";
}

// What a node does in a phase of its core.  Running: until all workers run, and then it trains.
Doing doing_in(Phase phase) {
  switch (phase) {
    case Phase::Running:
      return Doing::Starting;
    case Phase::Inspecting:
    case Phase::Stopping:
      return Doing::Stopping;
    case Phase::Joining:
    case Phase::Waiting:
    case Phase::Finished:
      break;
  }
  return Doing::Waiting;
}

}  // namespace

Agent::Agent(asio::any_io_executor executor, AgentConfig config, AgentParts parts)
    : executor_(executor),
      config_(std::move(config)),
      rendezvous_(parts.rendezvous),
      workers_(parts.workers),
      disk_(parts.disk),
      logger_(parts.logger),
      clock_(std::move(parts.clock)),
      tasks_(executor),
      failures_(config_.no_restart_codes),
      hangs_(
          executor, parts.reaper, parts.disk, hang_config(config_), workers_, logger_,
          [this](const WorkerExit& exit) { worker_exited(exit); },
          [this](const RunningWorker& worker) { abandon_hung(worker); },
          [this] { stack_show_.interrupt(); }),
      inspection_(
          executor, parts.reaper, parts.disk, InspectionConfig{.tools = stack_config(config_)},
          workers_,
          [this](rendezvous::Findings findings) { on(event::Inspected{std::move(findings)}); }),
      stack_show_(executor, parts.reaper, parts.disk, stack_config(config_), workers_,
                  [this](std::string stacks) { rendezvous_.say_stacks(std::move(stacks)); }),
      bundle_(
          executor, [this] { return node_files(config_, workers_.log_path(), round_, attempt_); },
          [this](std::string piece) { rendezvous_.say_bundle(std::move(piece)); }),
      vitals_(executor, vitals_config(config_, rendezvous_), workers_,
              [this](std::string vitals) { rendezvous_.say_vitals(std::move(vitals)); }),
      events_(config_.event_sink, event_context(config_)),
      timeline_(
          executor,
          {.path = config_.timeline_path,
           .node = config_.node_name,
           .host = config_.workers.hostname},
          workers_,
          [this](const Error& error) {
            logger_->warn("the timeline is incomplete: {}", to_string(error));
          },
          [this](std::string slices) { rendezvous_.say_slices(std::move(slices)); }),
      signals_(
          executor, [this](int signal) { stop_signalled(signal); },
          [this](int signal) { forward_signalled(signal); }),
      job_control_(executor, [this](int signal) { workers_.signal_all(signal); }),
      deadline_timer_(executor),
      finished_(executor),
      leftovers_(std::move(parts.sweep), config_.sweep_scope, logger_),
      guardian_(executor, parts.reaper, leftovers_.spared(), config_.guardian, logger_),
      stop_file_(executor, parts.reaper, stop_file_config(config_), logger_),
      worker_signals_(
          executor, config_,
          {.workers = workers_, .stop_file = stop_file_, .tasks = tasks_, .logger = logger_}),
      ending_(config_, {.workers = workers_,
                        .disk = disk_,
                        .failures = failures_,
                        .events = events_,
                        .stop_file = stop_file_,
                        .logger = logger_}) {
  workers_.listen([this](const WorkerExit& exit) { worker_exited(exit); },
                  [this](const std::string& warning) { logger_->warn("{}", warning); },
                  [this](const std::string& text) { logger_->info("{}", text); });
}

Agent::~Agent() = default;

asio::awaitable<int> Agent::run() {
  signals_.catch_all(config_.stop_signals, config_.forward_signals);
  if (std::ranges::count(config_.stop_signals, SIGTSTP) == 0) job_control_.start();
  Result<void> subreaper = process::Reaper::become_subreaper();
  if (!subreaper) {
    logger_->warn("orphans of workers cannot be ended: {}", to_string(subreaper.error()));
  }

  rendezvous_.listen([this](const rendezvous::Notice& notice) { heard(notice); });
  if (timeline_.is_wanted())
    rendezvous_.trace_to([this](const rendezvous::TraceEvent& event) { timeline_.hosted(event); });
  time_.begin(clock_().mono);
  Step first = begin();
  state_ = std::move(first.state);
  perform(first.actions);
  if (state_.phase != Phase::Finished) co_await finished_.wait();
  co_await workers_.end_helper();
  // What it was about to fork does not know yet that it has ended.  The workers have left nothing.
  if (config_.workers.has_warm_restarts) {
    leftovers_.set_deadline(clock_().mono);
    co_await leftovers_.end(hangs_.sweep_begins(), stop_file_.programs());
  }
  co_await rendezvous_.finish();
  rendezvous_.close();
  co_await leftovers_.wait_for_shm_managers();
  co_await timeline_.end();
  job_control_.stop();
  signals_.stop_forwarding();
  worker_signals_.close();
  co_await hangs_.stop();
  co_await inspection_.stop();
  co_await stack_show_.stop();
  co_await bundle_.stop();
  co_await vitals_.stop();
  co_await stop_file_.stop();
  guardian_.stop();
  tasks_.cancel();
  co_await tasks_.join();
  signals_.close();
  co_return exit_code();
}

int Agent::exit_code() const {
  const int code = stop_signals_.exit_code(exit_code_, others_are_signalled_);
  if (code != exit_code_)
    logger_->info("this node was stopped by {}, too: exit code {}",
                  process::signal_name(late_signal()), code);
  return code;
}

// The loop's body: one event in, its actions out, one line about it.
void Agent::on(const Event& event) {
  Phase before = state_.phase;
  Now now = clock_();
  Step next = step(std::move(state_), event, now, config_.core);
  state_ = std::move(next.state);
  if (state_.phase != before) {
    time_.enter(doing_in(state_.phase), now.mono);
    timeline_.draw(
        {.kind = TraceKind::Begin, .thread = kAgentThread, .name = name_of(state_.phase)});
  }
  logger_->debug("{}: {} -> {}: {}", to_string(event), to_string(before), to_string(state_.phase),
                 to_string(next.actions));
  bool had_workers = before == Phase::Running || before == Phase::Inspecting;
  if (before == Phase::Running && state_.phase != before) {
    if (auto at = rendezvous_.workers_connected()) time_.connected(*at);
  }
  if (had_workers && state_.phase == Phase::Stopping) stop_began_ = clock_().mono;
  if (before == Phase::Inspecting && state_.phase != before) inspection_.interrupt();
  if (state_.phase != Phase::Running) {
    workers_.stop_starting();
    vitals_.workers_stop();
    stack_show_.interrupt();
    hangs_.workers_stop(std::holds_alternative<event::ShutdownRequested>(event));
  }
  arm_deadline();
  perform(next.actions);
}

void Agent::perform(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    std::visit(
        Overloaded{
            [this](const action::JoinRound&) {
              events_.joining(read_clocks());
              Duration delay = failures_.delay_of_restart();
              if (delay == Duration::zero()) return rendezvous_.join();
              tasks_.spawn(join_later(delay));
            },
            [this](const action::ReportFailure& report) {
              rendezvous_.report_failure(for_other_nodes(report.failure), report.is_final,
                                         report.wait);
            },
            [this](const action::TakeStacks& take) {
              timeline_.draw({.thread = kAgentThread, .name = "takes stacks"});
              failures_.asked(take.wait);
              inspection_.begin(take.wait);
            },
            [this](const action::ReportFindings& report) {
              rendezvous_.report_findings(failures_.with_ended(report.findings));
            },
            [this](const action::ReportSuccess&) { rendezvous_.report_success(); },
            [this](const action::LeaveRun& leave) {
              rendezvous_.leave("was stopped by " + process::signal_name(leave.signal),
                                leave.signal);
            },
            [this](const action::StartWorkers& start) { start_workers(start.restart_count); },
            [this](const action::SignalWorkers& signal) {
              timeline_.draw({.thread = kAgentThread,
                              .name = process::signal_name(signal.signal) + " to the workers"});
              if (state_.workers_end == WorkersEnd::WorkerFailed && state_.failure)
                stop_file_.on(stop_reason::event::Published{worker::StopCause::WorkerFailed,
                                                            describe(*state_.failure)});
              process::AskedGroups asked{.signal = signal.signal, .groups = {}};
              for (const RunningWorker& worker : workers_.running())
                asked.groups.insert(worker.pid);
              leftovers_.set_asked(std::move(asked));
              bool is_from_outside =
                  state_.workers_end == WorkersEnd::ShutdownRequested || others_are_signalled_;
              // What its guardian holds at the end of a lease is not to go on.
              worker_signals_.stop({.signal = signal.signal,
                                    .is_from_outside = is_from_outside,
                                    .continues = !state_.kill_by},
                                   [this, round = round_.number] {
                                     // The workers of another round may run by now.
                                     return state_.phase == Phase::Stopping &&
                                            round_.number == round;
                                   });
            },
            [this](const action::Sweep& wanted) {
              leftovers_.set_deadline(wanted.deadline);
              tasks_.spawn(sweep());
            },
            [this](const action::KillNow&) {
              timeline_.draw({.thread = kAgentThread, .name = "SIGKILL to the workers"});
              workers_.kill_all();
              leftovers_.set_deadline(clock_().mono);
            },
            [this](const action::AbandonWorkers&) {
              for (const RunningWorker& worker : workers_.running()) abandon(worker);
            },
            [this](const action::Finish& end) { tasks_.spawn(finish(end.exit_code)); },
        },
        action);
  }
}

void Agent::arm_deadline() {
  deadline_timer_.cancel();
  if (!state_.deadline) return;
  deadline_timer_.expires_after(*state_.deadline - clock_().mono);
  deadline_timer_.async_wait([this](boost::system::error_code error) {
    if (error || !state_.deadline || clock_().mono < *state_.deadline)
      return;  // disarmed meanwhile
    // What has ended is not among those that nothing ends.
    if (state_.phase == Phase::Stopping && state_.is_killed) workers_.report_ends();
    if (!state_.deadline || clock_().mono < *state_.deadline) return;
    if (state_.running > 0 && !state_.is_killed) {
      logger_->warn("{} of the workers still run after the grace; they get SIGKILL",
                    state_.running);
    }
    on(event::DeadlineReached{});
  });
}

void Agent::stop_signalled(int signal) {
  timeline_.draw({.thread = kAgentThread, .name = "received " + process::signal_name(signal)});
  const MonoTime now = clock_().mono;
  const bool is_finished = state_.phase == Phase::Finished;
  const StopSignals::Effect effect = stop_signals_.heard(signal, now, is_finished);
  if (effect.is_told)
    logger_->warn("received {}; {}", process::signal_name(signal),
                  effect_of_stop(state_, config_.core, signal, grace(), now));
  if (!is_finished)
    stop_file_.on(stop_reason::event::Signalled{{.signal = signal, .is_stop = true}});
  on(event::ShutdownRequested{signal});
  if (effect.leaves) rendezvous_.leave("was stopped by " + process::signal_name(signal), signal);
  if (effect.closes) rendezvous_.close();
}

void Agent::forward_signalled(int signal) {
  timeline_.draw({.thread = kAgentThread, .name = "passes on " + process::signal_name(signal)});
  stop_file_.on(stop_reason::event::Signalled{{.signal = signal, .is_stop = false}});
  worker_signals_.forward(signal, [this] { return state_.running; });
}

// A program that dies young again and again is not started at full speed, nor one for which
// something is lacking.
asio::awaitable<void> Agent::join_later(Duration delay) {
  logger_->info("{}; the next restart waits {}", failures_.why_delayed(), seconds_text(delay));
  asio::steady_timer timer(executor_, delay);
  co_await timer.async_wait(asio::use_awaitable);
  if (state_.phase == Phase::Joining) rendezvous_.join();
}

void Agent::heard(const rendezvous::Notice& notice) {
  std::visit(
      Overloaded{
          [this](const rendezvous::Round& round) {
            if (state_.phase != Phase::Joining) return;  // a shutdown overtook the join
            round_ = round;
            ending_.round_joined();
            events_.joined(round, read_clocks());
            on(event::RoundJoined{round.restart_count});
          },
          [this](const rendezvous::command::Inspect& inspect) { inspect_ordered(inspect); },
          [this](const rendezvous::command::TakeStacks& take) {
            if (state_.phase == Phase::Running && !hangs_.is_taking_stacks())
              stack_show_.begin(take);
          },
          [this](const rendezvous::command::TakeBundle& take) { bundle_.heard(take); },
          [this](const rendezvous::command::Stop& stop) { stop_ordered(stop); },
          [this](const rendezvous::command::Waiting& waiting) { ending_.waiting(waiting.why); },
          [this](const rendezvous::command::End& end) { run_ended(end); },
          [this](const rendezvous::notice::Failed& failed) {
            if (state_.failure) logger_->error("{}", describe(*state_.failure));
            logger_->error("{}", failed.why);
            on(event::RendezvousFailed{failed.why});
          },
          [this](const rendezvous::notice::LeaseEnding& lease) {
            on(event::LeaseEnding{lease.kill_by});
          },
          [this](const rendezvous::notice::Info& info) { logger_->info("{}", info.text); },
      },
      notice);
}

// That workers have which are told to stop now.
Duration Agent::grace() const {
  Duration grace = config_.core.stop_grace;
  if (state_.kill_by) grace = std::clamp(*state_.kill_by - clock_().mono, Duration::zero(), grace);
  return grace;
}

void Agent::stop_ordered(const rendezvous::command::Stop& stop) {
  time_.interrupted(cause_of(stop));
  ending_.stopped(stop);
  others_are_signalled_ = stop.signal != 0;
  if (others_are_signalled_) stop_file_.on(stop_reason::event::OtherSignalled{stop.signal});
  std::string fields = fmt::format("round={} attempt={}", stop.round, round_.restart_count);
  if (stop.failure) {
    time_.hung(stop.failure->hung_for, clock_().mono);
    std::string failure = describe(*stop.failure);
    logger_->error("{}; {}{}  {}", failure,
                   stopping(state_.running, state_.failure.has_value(), grace()),
                   restart_of(stop.restart_count, stop.max_restarts), fields);
    stop_file_.on(
        stop_reason::event::Published{worker::StopCause::WorkerFailed, std::move(failure)});
  } else {
    bool has_succeeded =
        state_.phase == Phase::Waiting && state_.workers_end == WorkersEnd::Succeeded;
    std::string then = has_succeeded
                           ? "the workers of this node have succeeded, and start again only "
                             "if the others begin another round"
                           : "another round";
    if (state_.failure)
      logger_->error("{}; it costs no restart, since the round ends for another reason",
                     describe(*state_.failure));
    logger_->warn("{}; {}{}  {}", stop.why,
                  stopping(state_.running, state_.failure.has_value(), grace()), then, fields);
    stop_file_.on(stop_reason::event::Published{worker::StopCause::NewRound, stop.why});
  }
  on(event::StopOrdered{});
}

void Agent::inspect_ordered(const rendezvous::command::Inspect& inspect) {
  if (state_.phase == Phase::Running && !inspect.has_lost_peer)
    logger_->warn("{}; looking what the workers here do, before they are stopped", inspect.why);
  rendezvous::TimedOutWait wait{
      .in = inspect.in, .is_idle = inspect.is_idle, .has_lost_peer = inspect.has_lost_peer};
  failures_.asked(wait);
  on(event::InspectOrdered{std::move(wait)});
}

void Agent::run_ended(const rendezvous::command::End& end) {
  round_.max_restarts = end.max_restarts;  // also where this node has never been in a round
  others_are_signalled_ = end.signal != 0;
  if (others_are_signalled_) stop_file_.on(stop_reason::event::OtherSignalled{end.signal});
  ending_.ended(end, state_.failure);
  if (ending_.is_by_worker()) {
    const rendezvous::Failure& last = end.failures.back();
    time_.hung(last.hung_for, clock_().mono);
    // A program that cannot be started is told at the end, in full.
    if (last.pid != 0) {
      logger_->error("{}; {}{}  round={} attempt={}", describe(last),
                     stopping(state_.running, ending_.is_by_own_worker(), grace()),
                     end.restart_count < end.max_restarts
                         ? "the end, since a restart would fail too"
                         : why_no_restart(end.max_restarts),
                     round_.number, end.restart_count);
    }
    stop_file_.on(stop_reason::event::Published{worker::StopCause::WorkerFailed, describe(last)});
  } else if (end.exit_code != 0) {
    if (state_.phase == Phase::Running && state_.running > 0)
      logger_->warn("{}; {}the end", end.why, stopping(state_.running, false, grace()));
    stop_file_.on(stop_reason::event::Published{worker::StopCause::RunEnded, end.why});
  }
  on(event::RunEnded{end.exit_code});
}

// The run's folder.  One in which nothing lies is not there any more when the others look for it.
std::string Agent::log_path_of_failures() const {
  return config_.workers.has_late_folders ? "" : workers_.log_path();
}

void Agent::start_workers(int restart_count) {
  attempt_began_ = read_clocks().wall;
  stop_file_.on(stop_reason::event::Cleared{});
  failures_.round_begins(round_.number);
  workers_.start(
      round_, restart_count,
      [this](const std::optional<Workers::StartFailure>& failure) { workers_started(failure); });
}

void Agent::workers_started(const std::optional<Workers::StartFailure>& failure) {
  if (failure) {
    // The program could be started before: the machine may lack something for a moment only.
    failures_.start_failed();
    if (state_.phase != Phase::Running) logger_->warn("a worker was not started: {}", failure->why);
    bool may_be_passing = attempt_ >= 0 && failure->exit_code == kExitInfrastructure;
    return on(event::StartFailed{.started = failure->started,
                                 .failure = {.rank = round_.ranks.base_rank + failure->started,
                                             .local_rank = failure->started,
                                             .status = {.exit_code = failure->exit_code},
                                             .message = failure->why,
                                             .log_path = log_path_of_failures()},
                                 .is_final = !may_be_passing});
  }
  int restart_count = state_.restart_count;
  std::string who = describe_workers(round_.ranks.base_rank, config_.core.local_world_size,
                                     round_.ranks.world_size);
  std::string fields = fmt::format("round={} attempt={} master={}", round_.number, restart_count,
                                   to_string(round_.master));
  std::vector<rendezvous::StartedWorker> started;
  for (const RunningWorker& worker : workers_.started()) {
    started.push_back({.rank = worker.rank, .pid = worker.pid});
  }
  rendezvous_.workers_started(round_, std::move(started));
  ending_.workers_started();
  time_.enter(Doing::Training, clock_().mono);
  leftovers_.set_asked({});
  failures_.workers_run(clock_().mono);
  vitals_.start(round_.number);
  hangs_.start(round_.ranks.world_size > config_.core.local_world_size);
  events_.started(workers_.started(), read_clocks());
  timeline_.workers_run(round_.number, restart_count);
  int previous_attempt = std::exchange(attempt_, restart_count);
  if (previous_attempt < 0) {
    const std::string place = rendezvous_.meeting_place();
    logger_->info("started {}  {}{}", who, fields, place.empty() ? "" : " " + place);
    return tasks_.spawn(prepare_restart());
  }
  // Both parts of a restart, each by this line's own clock: how long the workers took to go, and
  // how long it took from there to the last exec.
  logger_->info(
      "{}: started {}, {:.1f} ms after the last of the workers before had ended "
      "(stopping them took {:.1f} ms)  {}",
      restart_count > previous_attempt ? restart_of(restart_count, round_.max_restarts)
                                       : fmt::format("round {}", round_.number),
      who, milliseconds(clock_().mono - last_exit_),
      std::max(0.0, milliseconds(last_exit_ - stop_began_)), fields);
}

// What the end of an attempt asks of the disk is on its way to the next one: no thread is to be
// made then.
asio::awaitable<void> Agent::prepare_restart() {
  asio::steady_timer timer(executor_, kPrepareAfter);
  co_await timer.async_wait(asio::use_awaitable);
  disk_.start_early();
  stop_file_.start_early();
}

void Agent::worker_exited(const WorkerExit& exit) {
  if (hangs_.take_exit(exit)) return;
  last_exit_ = clock_().mono;
  timeline_.worker_ended(exit);
  event::WorkerExited event{.local_rank = exit.local_rank};
  events_.ended(exit, state_.phase != Phase::Running, read_clocks());
  if (state_.phase != Phase::Running) {
    if (state_.phase == Phase::Inspecting) failures_.ended_meanwhile(exit);
    failures_.ended_after(exit, hangs_.is_showing_stacks());
    if (!exit.status.is_success()) event.failure = rendezvous::Failure{.status = exit.status};
  } else if (exit.status.is_success()) {
    failures_.ended_well(exit);
  } else {
    HangJudgement hang = hangs_.begin_failure(exit.local_rank);
    event.failure = failures_.first_failure(exit, hang.cause, last_exit_);
    if (event.failure->log_path.empty()) event.failure->log_path = log_path_of_failures();
    event.is_final = !failures_.why_no_restart().empty();
    event.is_hang = hangs_.is_showing_stacks();
    event.wait = hang.cause.empty() ? wait_behind(exit) : hang.wait;
    event.failure->hung_for = hang.silence;
    failures_.saw_before(std::move(hang.findings));
    if (event.wait) failures_.asked(*event.wait);
    if (event.wait && !event.wait->has_lost_peer && state_.running > 1)
      logger_->warn("{}; looking what the other workers do, before they are stopped",
                    describe_briefly(*event.failure));
    if (event.is_final) logger_->error("no restart: {}", failures_.why_no_restart());
  }
  hangs_.worker_ended(exit);
  on(event);
}

// The wait that was over, of this worker or of a peer that has told it by closing its connection,
// and has not ended yet.
std::optional<rendezvous::TimedOutWait> Agent::wait_behind(const WorkerExit& exit) const {
  if (auto own = timed_out_wait(exit)) return own;
  auto lost = lost_peer(exit);
  if (!lost) return std::nullopt;
  for (const RunningWorker& worker : workers_.running()) {
    auto wait = worker.stderr_lines ? timed_out_wait(worker.stderr_lines()) : std::nullopt;
    if (wait) return wait;
  }
  return lost;
}

// What the kernel does not let go, such as a process in D state, must not keep the job.
void Agent::abandon(const RunningWorker& worker) {
  std::string what =
      fmt::format("rank {} (local rank {}, pid {}) does not end, not even by SIGKILL; it is {}",
                  worker.rank, worker.local_rank, worker.pid, process::doing_of(worker.pid));
  logger_->error("{}; going on without it", what);
  failures_.saw_stuck(std::move(what));
  workers_.abandon(worker.local_rank);
  leftovers_.leave(worker.pid);
}

void Agent::abandon_hung(const RunningWorker& worker) {
  abandon(worker);
  worker_exited({.local_rank = worker.local_rank,
                 .rank = worker.rank,
                 .pid = worker.pid,
                 .status = {.signal = SIGKILL},
                 .folder = worker.folder});
}

asio::awaitable<void> Agent::sweep() {
  std::set<pid_t> no_leftovers = hangs_.sweep_begins();
  no_leftovers.merge(inspection_.interrupt());
  no_leftovers.merge(stack_show_.interrupt());
  std::set<pid_t> helpers = stop_file_.programs();
  if (workers_.helper() != 0) helpers.insert(workers_.helper());
  process::SweepResult result =
      co_await leftovers_.end(std::move(no_leftovers), std::move(helpers));
  workers_.finish_output();
  if (state_.workers_end != WorkersEnd::Succeeded) co_await keep_dumps();
  if (std::string stuck = leftovers_.tell(result); !stuck.empty())
    failures_.saw_stuck(std::move(stuck));
  on(event::Swept{});
}

// The next attempt overwrites them.
asio::awaitable<void> Agent::keep_dumps() {
  DumpsWanted wanted{.prefix = dump_prefix(config_.workers.environment),
                     .first_rank = round_.ranks.base_rank,
                     .count = config_.core.local_world_size,
                     .since = attempt_began_,
                     .folder = workers_.log_path() + "/flight_recorder",
                     .attempt = attempt_};
  if (wanted.prefix.empty() || workers_.log_path().empty()) co_return;
  auto copies = std::make_shared<Result<std::vector<std::string>>>(std::vector<std::string>{});
  std::string call = "copy the dumps of the flight recorder to " + wanted.folder;
  const std::string folder = wanted.folder;
  std::function<void()> work = [wanted = std::move(wanted), copies] {
    *copies = copy_dumps(wanted);
  };
  disk_.run(std::move(call), std::move(work));
  if (!co_await disk_.settled(mono_now() + kDumpPatience))
    co_return logger_->warn(
        "dumps of the flight recorder may be missing in {}: the disk stands still", folder);
  if (!*copies) co_return logger_->warn("a dump is not kept: {}", to_string(copies->error()));
  failures_.saw_dumps(**copies);
}

asio::awaitable<void> Agent::finish(int exit_code) {
  check(state_.phase == Phase::Finished, "finished before the end");
  co_await timeline_.settled();  // what they have drawn last comes before that
  rendezvous_.workers_gone();
  // So that the report can say why, if the scheduler knows.
  if (state_.shutdown_signal != 0 && stop_file_.is_asking()) co_await stop_file_.settled();
  stop_file_.on(stop_reason::event::Cleared{});
  if (stop_file_.is_writing()) co_await stop_file_.written();
  exit_code_ =
      co_await ending_.report(state_, exit_code, round_.max_restarts, time_.account(clock_().mono));
  finished_.notify();
}

}  // namespace ddprun::agent
