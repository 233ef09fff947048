// SPDX-License-Identifier: BSD-3-Clause
#include "agent/inspection.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "agent/decide/wait_words.h"
#include "agent/decide/whereabouts.h"
#include "agent/local_worker.h"
#include "store/clock.h"
#include "store/event.h"
#include "worker/process/proc_files.h"
#include "worker/process/text_file.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;

// gdb reads all symbols of LibTorch first, which takes ten seconds.
std::vector<process::StackTool> quick_tools(const std::string& search_path) {
  std::vector<process::StackTool> tools = process::stack_tools(search_path);
  std::erase_if(tools, [](const process::StackTool& tool) { return tool.at(0).ends_with("gdb"); });
  return tools;
}

// For the stacks of workers without a folder; removed when the last copy of the pointer goes.
std::shared_ptr<const std::string> make_scratch() {
  std::error_code error;
  std::string path = std::filesystem::temp_directory_path(error).string() + "/ddprun-stacks-XXXXXX";
  if (error || ::mkdtemp(path.data()) == nullptr) return nullptr;
  return {new std::string(path), [](const std::string* made) {
            std::error_code ignored;
            std::filesystem::remove_all(*made, ignored);
            delete made;
          }};
}

std::string text_at(const std::string& path) {
  constexpr std::size_t kMostBytes = 4 * 1024 * 1024;
  return process::end_of_regular_file(path, kMostBytes).value_or("");
}

}  // namespace

// What is known of one worker, beside its stack when the tools have taken it.
struct Inspection::Seen {
  std::string doing;  // by the kernel
  std::string path;   // of its stacks, without the tools' names; empty: none are taken
  std::string folder;
  std::string native;
  std::string python;
  std::vector<std::string> stderr_lines;  // of its log file
};

Inspection::Inspection(asio::any_io_executor executor, process::Reaper& reaper,
                       process::IoThread& disk, InspectionConfig config, Workers& workers,
                       std::function<void(rendezvous::Findings)> on_found)
    : config_(std::move(config)),
      disk_(disk),
      workers_(workers),
      on_found_(std::move(on_found)),
      stacks_(reaper, disk),
      timer_(executor),
      tasks_(executor, [](std::exception_ptr error) { std::rethrow_exception(error); }) {}

void Inspection::begin(std::string in) {
  tasks_.spawn(look(std::move(in), ++number_));
}

std::set<pid_t> Inspection::interrupt() {
  ++number_;
  timer_.cancel();
  return stacks_.interrupt();
}

asio::awaitable<void> Inspection::stop() {
  tasks_.cancel();
  co_await tasks_.join();
}

asio::awaitable<void> Inspection::look(std::string in, int number) {
  const MonoTime until = mono_now() + config_.limit;
  auto seen = std::make_shared<std::map<int, Seen>>();
  for (const RunningWorker& worker : workers_.running())
    (*seen)[worker.local_rank] = {.doing = process::doing_of(worker.pid), .folder = worker.folder};

  struct Prepared {
    std::vector<process::StackTool> tools;
    std::shared_ptr<const std::string> scratch;
  };
  auto prepared = std::make_shared<Prepared>();
  std::function<void()> prepare = [prepared, search_path = config_.search_path] {
    prepared->tools = quick_tools(search_path);
    if (!prepared->tools.empty()) prepared->scratch = make_scratch();
  };
  co_await disk_.run_and_wait("look for py-spy and eu-stack", std::move(prepare));
  // A folder is removed by the disk's thread.
  auto drop = [this, &prepared] {
    if (prepared->scratch)
      disk_.run("remove " + *prepared->scratch, [made = prepared] { made->scratch.reset(); });
  };
  if (number != number_) co_return drop();

  std::vector<process::StackTarget> targets;
  for (const RunningWorker& worker : workers_.running()) {
    auto known = seen->find(worker.local_rank);
    if (known == seen->end() || (worker.folder.empty() && !prepared->scratch)) continue;
    known->second.path = worker.folder.empty()
                             ? *prepared->scratch + "/" + std::to_string(worker.local_rank)
                             : worker.folder + "/stack";
    targets.push_back({worker.pid, known->second.path});
  }
  Duration left = std::max(until - mono_now(), Duration(1));
  if (!prepared->tools.empty() && !targets.empty())
    co_await stacks_.collect(prepared->tools, std::move(targets), config_.environment, left);
  if (number != number_) co_return drop();
  timer_.expires_at(until);
  co_await store::wait_for(timer_);
  if (number != number_) co_return drop();

  std::function<void()> read = [seen, prepared] {
    for (auto& [local_rank, worker] : *seen) {
      if (!worker.path.empty()) {
        worker.native = text_at(worker.path + ".eu-stack");
        worker.python = text_at(worker.path + ".py-spy");
      }
      if (!worker.folder.empty()) worker.stderr_lines = last_stderr_lines(worker.folder);
    }
    prepared->scratch.reset();
  };
  co_await disk_.run_and_wait("read the stacks of the workers", std::move(read));
  if (number == number_) on_found_(judge(in, *seen));
}

rendezvous::Findings Inspection::judge(const std::string& in,
                                       const std::map<int, Seen>& seen) const {
  rendezvous::Findings findings;
  for (const RunningWorker& worker : workers_.running()) {
    auto known = seen.find(worker.local_rank);
    if (known == seen.end()) continue;
    const Seen& it = known->second;
    bool has_timed_out = timed_out_wait(it.stderr_lines) ||
                         (worker.stderr_lines && timed_out_wait(worker.stderr_lines()));
    findings.workers.push_back(
        finding_of({.rank = worker.rank,
                    .pid = worker.pid,
                    .activity = process::activity_of(it.native, it.python, it.doing),
                    .has_timed_out = has_timed_out},
                   in));
  }
  limit(findings);
  return findings;
}

}  // namespace ddprun::agent
