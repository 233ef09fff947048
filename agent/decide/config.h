// SPDX-License-Identifier: BSD-3-Clause
//
// What an agent is told before it starts: values, validated by cli/config/launch_config.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/decide/core.h"
#include "agent/decide/scheduler.h"

namespace ddprun {
class Fd;
namespace process {
class Guardian;
struct SweepScope;
}  // namespace process
}  // namespace ddprun

namespace ddprun::agent {

class LogDir;
class TimerFile;

// What the agent's exit code tells of a failure.
enum class ExitCodes : std::uint8_t {
  Distinct,  // the code of the worker that failed first, and codes of our own (agent/STATES.md)
  Worker,    // likewise, and the worker's code also where the restarts are spent
  Torchrun,  // 1 for every failure
};

// Where one stream of one worker goes.
enum class StreamRoute : std::uint8_t {
  Inherit,         // the agent's own stream, untouched
  Discard,         // /dev/null
  File,            // the worker's log file
  FileAndConsole,  // both; on the console in whole lines with a prefix.  No file without a log
                   // folder
};

struct WorkerRoutes {
  StreamRoute out = StreamRoute::Inherit;
  StreamRoute err = StreamRoute::Inherit;
};

// What one worker has to itself.
struct WorkerPlacement {
  // On top of the contract of worker/env.
  std::map<std::string, std::string, std::less<>> environment;
  std::vector<int> cpus;  // that it may run on; empty: all that the agent may
};

struct WorkerGroupConfig {
  // The workers' command; `${local_rank}` in an argument becomes the local rank.  command[0] is a
  // path, or a name resolved already.
  std::vector<std::string> command;

  // What every worker inherits; the contract of worker/env comes on top.
  std::map<std::string, std::string, std::less<>> environment;

  int local_world_size = 1;
  std::string role = "default";
  std::string run_id = "none";
  // The id that a run keeps when a scheduler requeues it, and how often it has been requeued.
  std::string job_id{};
  int requeue_count = 0;

  // By local rank; its size is local_world_size.
  std::vector<WorkerRoutes> routes;
  std::vector<WorkerPlacement> placements;  // likewise

  // Before each line of a worker on the console.  Macros: role_name, local_rank, rank, hostname,
  // node (the same), group_rank, restart_count, and time, when the agent passes the line on.
  std::string line_prefix = "[${role_name}${local_rank}]:";
  std::string hostname;

  // Lines on the console with one of these texts also go to filtered_{stdout,stderr}.log of the
  // attempt.
  std::vector<std::string> stdout_filters;
  std::vector<std::string> stderr_filters;

  // Whether a worker's stderr that goes to the agent's own passes through the agent, byte by byte,
  // so that its last lines are known when the worker fails.  Not at a terminal, which the worker is
  // to see.
  bool keeps_stderr = false;

  // When the workers must be dead, unless that is put off before; none is started after it.  Empty:
  // never.
  std::function<MonoTime()> lease_end{};

  // Whether they need a log folder for their heartbeat files (DDPRUN_HEARTBEAT_FILE).
  bool has_heartbeat = false;

  // The folder of the cgroup in which each worker gets its own; empty where none is delegated.
  std::string cgroup_base;

  // Whether there is a log folder at all (not with --log-dir /dev/null), and where it is to be
  // made; the folder itself once it has been, before the agent starts.
  bool has_log_dir = true;
  std::string log_base;
  std::shared_ptr<const LogDir> log_dir;

  // Whether a worker's folder is made when it ends and has left an error file: nothing else will
  // lie in it.  Until then its error file lies in the run's folder.  To make and remove a folder
  // for each worker takes longer than all the rest of a short run.
  bool has_late_folders = false;

  // Whether workers of a restart are forked from an interpreter that has imported what they import,
  // and modules that it imports beside those that the script's sources name.  And whether those of
  // the first attempt are, too.
  bool has_warm_restarts = false;
  bool could_be_warm = false;  // they could be, but the option was not given
  bool has_warm_start = false;
  std::vector<std::string> warm_imports;
};

struct AgentConfig {
  Config core;
  WorkerGroupConfig workers;
  std::string program = "ddprun";    // with its version
  std::vector<int> stop_signals;     // each of them ends the run; workers get the one that came
  std::vector<int> forward_signals;  // each of them is passed on to the workers, once
  std::set<int> no_restart_codes;  // a worker that ends so is not started again; 128 + n: signal n
  std::function<void(std::string_view)> event_sink;  // of each event, a line; nullptr: none
  std::string rdzv_backend = "static";               // named in events
  ExitCodes exit_codes = ExitCodes::Distinct;
  Duration vitals_period{};        // after which people hear of the workers again; zero: never
  bool shares_last_lines = false;  // with the last line that each has written
  Duration hang_timeout{};  // after so long without a sign of life a worker hangs; zero: never
  std::optional<Scheduler> scheduler{};  // of the job that this agent runs in
  bool shares_output = false;            // with the other nodes: see JobReport::shares_output
  // Reports of signals that reached the guardian (worker/process/guardian.h), where the
  // scheduler sends, or may send, a signal to every process.
  std::shared_ptr<Fd> signal_reports{};
  // Whether workers may set torch's file timers, and where.  Owned by the caller, who makes it
  // before the agent starts.
  bool has_timers = false;
  std::string timer_path;
  const TimerFile* timer_file = nullptr;
  // The process that ends the workers if this one is killed; nullptr without one.
  std::shared_ptr<process::Guardian> guardian{};
  // What was below this process before its workers, and how theirs is known; nullptr: all below it
  // is theirs.
  std::shared_ptr<const process::SweepScope> sweep_scope{};

  // Where what happens to the run is written as a timeline, and what the rendezvous calls this
  // node; empty: nowhere.
  std::string timeline_path;
  std::string node_name;

  // Where the cause of a failed run is written in torch's form, for a launcher above this one.
  // Empty: nowhere.
  std::string error_file;
};

}  // namespace ddprun::agent
