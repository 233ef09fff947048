// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/stacks.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <filesystem>
#include <memory>
#include <utility>

#include "store/base/fd.h"
#include "worker/process/pidfd.h"

namespace ddprun::process {
namespace {

namespace asio = boost::asio;

// The folder is a worker's, who may have put anything there.
Fd open_for_stacks(const std::string& path) {
  return Fd(::open(path.c_str(),
                   O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
}

void write_line(IoThread& disk, std::string path, std::string line) {
  std::string call = "write " + path;
  disk.run(std::move(call), [path = std::move(path), line = std::move(line)] {
    Fd file = open_for_stacks(path);
    std::string text = line + "\n";
    if (file) (void)!::write(file.get(), text.data(), text.size());
  });
}

// Each tool has a file of its own, so that their lines do not mix.
std::string own_path(const StackTarget& target, const StackTool& tool) {
  std::string name = tool.front().substr(tool.front().rfind('/') + 1);
  return target.path + "." + name;
}

// One tool that is to be run on one target.
struct Run {
  StackTool tool;
  pid_t target = -1;
  std::string path;
  Fd file;
};

// The tools of one target run one after another: a process has one debugger at a time.
using Chain = std::deque<Run>;

std::vector<Chain> chains_of(const std::vector<StackTool>& tools,
                             const std::vector<StackTarget>& targets) {
  std::vector<Chain> chains;
  for (const StackTarget& target : targets) {
    Chain& chain = chains.emplace_back();
    for (const StackTool& tool : tools)
      chain.push_back({.tool = tool, .target = target.pid, .path = own_path(target, tool)});
  }
  return chains;
}

Result<StartingProcess> start(const Run& run, const std::vector<std::string>& environment) {
  ProcessSpec spec{.argv = run.tool,
                   .environment = environment,
                   .stdout_fd = run.file.get(),
                   .stderr_fd = run.file.get()};
  spec.argv.push_back(std::to_string(run.target));
  return begin_spawn(spec);
}

}  // namespace

// What the callbacks of the tools share with the one who waits; they may outlive it.
struct StackCollector::Collection {
  struct RunningTool {
    pid_t pid = -1;
    SignalTarget target;
    std::string path;
  };

  Collection(const asio::any_io_executor& executor, std::vector<std::string> of_tools)
      : environment(std::move(of_tools)), all_ended(executor, MonoTime::max()) {}

  void ended(pid_t pid);
  void kill_all(IoThread& disk, const std::string& why);

  std::vector<std::string> environment;
  std::vector<Chain> chains;  // what has not been started yet, by target
  std::vector<RunningTool> tools;
  bool are_killed = false;
  asio::steady_timer all_ended;
};

void StackCollector::Collection::ended(pid_t pid) {
  auto tool = std::ranges::find(tools, pid, &RunningTool::pid);
  // A debugger that is killed while it attaches leaves its target stopped.
  if (are_killed) tool->target.send(SIGCONT);
  tools.erase(tool);
}

void StackCollector::Collection::kill_all(IoThread& disk, const std::string& why) {
  are_killed = true;
  for (const RunningTool& tool : tools) {
    signal_group(tool.pid, SIGKILL);
    write_line(disk, tool.path, "(ddprun: not complete, " + why + ")");
  }
  for (const Chain& chain : std::exchange(chains, {})) {
    for (const Run& run : chain) write_line(disk, run.path, "(ddprun: not begun, " + why + ")");
  }
}

// Starts the next tool of a target, if there is one that can be.
void StackCollector::start_next(const std::shared_ptr<Collection>& collection, std::size_t target) {
  while (target < collection->chains.size() && !collection->chains[target].empty()) {
    Run run = std::move(collection->chains[target].front());
    collection->chains[target].pop_front();
    if (!run.file) continue;
    Result<StartingProcess> starting = start(run, collection->environment);
    if (!starting) {
      write_line(disk_, run.path, to_string(starting.error()));
      continue;
    }
    pid_t pid = starting->process.pid;
    collection->tools.push_back({.pid = pid, .target = SignalTarget(run.target), .path = run.path});
    auto report = std::make_shared<Fd>(std::move(starting->report));
    auto on_end = [this, collection, target, pid, report, context = starting->context,
                   path = run.path](ExitStatus) {
      Result<void> started = report_of(*report, context);  // it has ended: there is no wait
      if (!started) write_line(disk_, path, to_string(started.error()));
      collection->ended(pid);
      start_next(collection, target);
      if (collection->tools.empty()) collection->all_ended.cancel();
    };
    reaper_.watch(std::move(starting->process), std::move(on_end));
    return;
  }
}

namespace {

// gdb reads all symbols of LibTorch first, which takes ten seconds.
bool is_slow(const StackTool& tool) {
  return tool.at(0).ends_with("gdb");
}

}  // namespace

std::vector<StackTool> stack_tools(std::string_view search_path) {
  std::vector<StackTool> tools;
  auto add = [&](const char* name, StackTool arguments) {
    Result<std::string> program = find_program(name, search_path);
    if (!program) return false;
    arguments.insert(arguments.begin(), *program);
    tools.push_back(std::move(arguments));
    return true;
  };
  add("py-spy", {"dump", "--pid"});
  if (!add("eu-stack", {"-n", "60", "-p"})) {
    add("gdb", {"-batch", "-nx", "-iex", "set debuginfod enabled off", "-ex",
                "thread apply all backtrace 60", "-p"});
  }
  return tools;
}

std::vector<StackTool> quick_tools(std::vector<StackTool> tools) {
  std::erase_if(tools, is_slow);
  return tools;
}

std::vector<StackTool> slow_tools(std::vector<StackTool> tools) {
  std::erase_if(tools, [](const StackTool& tool) { return !is_slow(tool); });
  return tools;
}

std::string names_of(const std::vector<StackTool>& tools) {
  std::string names;
  for (const StackTool& tool : tools)
    names += (names.empty() ? "" : " and ") + std::filesystem::path(tool.at(0)).filename().string();
  return names;
}

asio::awaitable<void> StackCollector::collect(std::vector<StackTool> tools,
                                              std::vector<StackTarget> targets,
                                              std::vector<std::string> environment,
                                              Duration limit) {
  auto executor = co_await asio::this_coro::executor;
  auto collection = std::make_shared<Collection>(executor, std::move(environment));
  const int interruptions = interruptions_;
  auto chains = std::make_shared<std::vector<Chain>>(chains_of(tools, targets));
  std::string call = "make the files for the workers' stacks";
  std::function<void()> work = [chains] {
    for (Chain& chain : *chains) {
      for (Run& run : chain) run.file = open_for_stacks(run.path);
    }
  };
  co_await disk_.run_and_wait(std::move(call), std::move(work));
  if (interruptions != interruptions_) co_return;
  collection->chains = std::move(*chains);
  for (std::size_t i = 0; i < collection->chains.size(); ++i) start_next(collection, i);
  if (collection->tools.empty()) co_return;
  std::erase_if(collections_, [](const auto& former) { return former.expired(); });
  collections_.push_back(collection);
  collection->all_ended.expires_after(limit);
  co_await collection->all_ended.async_wait(asio::as_tuple(asio::use_awaitable));
  if (!collection->are_killed) collection->kill_all(disk_, "the time for it was over");
}

std::set<pid_t> StackCollector::interrupt() {
  ++interruptions_;
  std::set<pid_t> ending;
  for (const std::weak_ptr<Collection>& running : collections_) {
    auto collection = running.lock();
    if (!collection) continue;
    if (!collection->are_killed) collection->kill_all(disk_, "the workers were stopped");
    for (const auto& tool : collection->tools) ending.insert(tool.pid);
  }
  return ending;
}

}  // namespace ddprun::process
