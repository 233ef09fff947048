// SPDX-License-Identifier: BSD-3-Clause
#include "agent/stack_reader.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>

#include "store/clock.h"
#include "worker/process/proc_files.h"
#include "worker/process/text_file.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;

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

StackReader::StackReader(process::Reaper& reaper, process::IoThread& disk, StackReaderConfig config,
                         Workers& workers)
    : config_(std::move(config)), disk_(disk), workers_(workers), stacks_(reaper, disk) {}

std::set<pid_t> StackReader::interrupt() {
  ++interruptions_;
  return stacks_.interrupt();
}

asio::awaitable<std::optional<SeenWorkers>> StackReader::look(Texts texts, std::set<int> ranks,
                                                              MonoTime until) {
  const int interruptions = interruptions_;
  auto seen = std::make_shared<SeenWorkers>();
  for (const RunningWorker& worker : workers_.running()) {
    if (!ranks.empty() && !ranks.contains(worker.rank)) continue;
    SeenWorker& one = seen->workers[worker.local_rank];
    one.rank = worker.rank;
    one.pid = worker.pid;
    one.folder = worker.folder;
    one.doing = process::doing_of(worker.pid);
  }

  struct Prepared {
    std::vector<process::StackTool> tools;
    std::shared_ptr<const std::string> scratch;
  };
  auto prepared = std::make_shared<Prepared>();
  std::function<void()> prepare = [prepared, search_path = config_.search_path] {
    prepared->tools = process::quick_tools(process::stack_tools(search_path));
    if (!prepared->tools.empty()) prepared->scratch = make_scratch();
  };
  co_await disk_.run_and_wait("look for py-spy and eu-stack", std::move(prepare));
  for (const process::StackTool& tool : prepared->tools)
    seen->tools.push_back(std::filesystem::path(tool.at(0)).filename());

  // The paths of the stacks, without the tools' names, by local rank.
  auto paths = std::make_shared<std::map<int, std::string>>();
  std::vector<process::StackTarget> targets;
  bool is_wanted = interruptions == interruptions_ && !prepared->tools.empty();
  for (const RunningWorker& worker : workers_.running()) {
    auto known = seen->workers.find(worker.local_rank);
    if (!is_wanted || known == seen->workers.end() || known->second.pid != worker.pid) continue;
    bool is_kept = texts == Texts::Kept && !worker.folder.empty();
    if (!is_kept && !prepared->scratch) continue;
    std::string path = is_kept ? worker.folder + "/stack"
                               : *prepared->scratch + "/" + std::to_string(worker.local_rank);
    targets.push_back({worker.pid, path});
    (*paths)[worker.local_rank] = std::move(path);
  }
  Duration left = std::max(until - mono_now(), Duration(1));
  if (!targets.empty())
    co_await stacks_.collect(prepared->tools, std::move(targets), config_.environment, left);

  // A folder is removed by the disk's thread.
  std::function<void()> read = [seen, paths, prepared] {
    for (const auto& [local_rank, path] : *paths) {
      seen->workers.at(local_rank).native = text_at(path + ".eu-stack");
      seen->workers.at(local_rank).python = text_at(path + ".py-spy");
    }
    prepared->scratch.reset();
  };
  co_await disk_.run_and_wait("read the stacks of the workers", std::move(read));
  if (interruptions != interruptions_) co_return std::nullopt;
  co_return std::move(*seen);
}

}  // namespace ddprun::agent
