// SPDX-License-Identifier: BSD-3-Clause
#include "agent/stack_show.h"

#include <utility>

#include "store/clock.h"
#include "worker/process/decide/stack_text.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;

// Where a tool has found no stack, its last words say why.
std::string last_line(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  auto end = text.rfind('\n');
  return std::string(end == std::string_view::npos ? text : text.substr(end + 1));
}

}  // namespace

rendezvous::NodeStacks stacks_of(std::uint64_t number, const SeenWorkers& seen) {
  rendezvous::NodeStacks stacks{.number = number, .tools = seen.tools};
  for (const auto& [local_rank, worker] : seen.workers) {
    auto python = process::python_stack(worker.python);
    process::Activity activity = process::activity_of(worker.native, worker.python, worker.doing);
    rendezvous::WorkerStack stack{
        .rank = worker.rank,
        .pid = static_cast<int>(worker.pid),
        .in = activity.collective,
        .place = python ? python->place : "",
        .doing = worker.doing,
        .waits = activity.is_waiting,
        .frames = process::main_frames(worker.native, worker.python, rendezvous::kMaxFrames)};
    if (stack.frames.empty())
      stack.problem = last_line(worker.python.empty() ? worker.native : worker.python);
    stacks.workers.push_back(std::move(stack));
  }
  return stacks;
}

StackShow::StackShow(asio::any_io_executor executor, process::Reaper& reaper,
                     process::IoThread& disk, StackReaderConfig config, Workers& workers,
                     std::function<void(std::string)> say)
    : say_(std::move(say)), stacks_(reaper, disk, std::move(config), workers), tasks_(executor) {}

void StackShow::begin(const rendezvous::command::TakeStacks& take) {
  if (!std::exchange(is_looking_, true)) tasks_.spawn(look(take));
}

asio::awaitable<void> StackShow::look(rendezvous::command::TakeStacks take) {
  std::set<int> ranks;
  if (take.rank) ranks.insert(*take.rank);
  auto seen =
      co_await stacks_.look(StackReader::Texts::Removed, std::move(ranks), mono_now() + kLimit);
  is_looking_ = false;
  if (seen) say_(encode(stacks_of(take.number, *seen)));
}

asio::awaitable<void> StackShow::stop() {
  interrupt();
  tasks_.cancel();
  co_await tasks_.join();
}

}  // namespace ddprun::agent
