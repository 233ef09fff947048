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
#include <memory>
#include <optional>

namespace ddprun::process {
namespace {

namespace asio = boost::asio;

// What the callbacks of the tools share with the one who waits; they may outlive it.
struct Running {
  explicit Running(const asio::any_io_executor& executor) : all_ended(executor, MonoTime::max()) {}
  std::vector<pid_t> tools;
  asio::steady_timer all_ended;
};

void write_line(const std::string& path, const std::string& line) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  std::string text = line + "\n";
  if (file) (void)!::write(file.get(), text.data(), text.size());
}

std::string own_path(const StackTarget& target, const StackTool& tool) {
  std::string name = tool.front().substr(tool.front().rfind('/') + 1);
  return target.path + "." + name;
}

// Each tool has a file of its own, so that their lines do not mix.
void start(Reaper& reaper, const std::shared_ptr<Running>& running, const StackTool& tool,
           const StackTarget& target, const std::vector<std::string>& environment) {
  std::string path = own_path(target, tool);
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file) return;
  ProcessSpec spec{
      .argv = tool, .environment = environment, .stdout_fd = file.get(), .stderr_fd = file.get()};
  spec.argv.push_back(std::to_string(target.pid));
  Result<Process> process = spawn(spec);
  if (!process) {
    write_line(path, to_string(process.error()));
    return;
  }
  pid_t pid = process->pid;
  running->tools.push_back(pid);
  reaper.watch(std::move(*process), [running, pid](ExitStatus) {
    std::erase(running->tools, pid);
    if (running->tools.empty()) running->all_ended.cancel();
  });
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
  if (!add("gdb", {"-batch", "-nx", "-iex", "set debuginfod enabled off", "-ex",
                   "thread apply all backtrace 60", "-p"}))
    add("eu-stack", {"-n", "60", "-p"});
  return tools;
}

asio::awaitable<void> collect_stacks(Reaper& reaper, std::vector<StackTool> tools,
                                     std::vector<StackTarget> targets,
                                     std::vector<std::string> environment, Duration limit) {
  auto executor = co_await asio::this_coro::executor;
  auto running = std::make_shared<Running>(executor);
  for (const StackTarget& target : targets) {
    for (const StackTool& tool : tools) start(reaper, running, tool, target, environment);
  }
  if (running->tools.empty()) co_return;
  running->all_ended.expires_after(limit);
  co_await running->all_ended.async_wait(asio::as_tuple(asio::use_awaitable));
  for (pid_t tool : running->tools) ::kill(-tool, SIGKILL);
  if (running->tools.empty()) co_return;
  for (const StackTarget& target : targets) {
    for (const StackTool& tool : tools)
      write_line(own_path(target, tool), "(ddprun: not complete, the time for it was over)");
  }
}

bool waits_for_peers(std::string_view stacks) {
  // gdb: "Thread 1 (Thread 0x... )" comes last, and is the main thread.  eu-stack: "TID 4211:", the
  // main thread first.
  auto begin = stacks.find("\nThread 1 ");
  if (begin == std::string_view::npos) begin = stacks.find("TID ");
  if (begin == std::string_view::npos) return false;
  std::string_view own = stacks.substr(begin + 1);
  own = own.substr(0, std::min(own.find("\n\n"), own.find("\nTID ")));
  return own.find("c10d::") != std::string_view::npos ||
         own.find("gloo::") != std::string_view::npos ||
         own.find("ncclComm") != std::string_view::npos;
}

}  // namespace ddprun::process
