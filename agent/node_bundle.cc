// SPDX-License-Identifier: BSD-3-Clause
#include "agent/node_bundle.h"

#include <algorithm>
#include <utility>

#include "agent/worker_spec.h"
#include "rendezvous/decide/bundle_piece.h"
#include "store/clock.h"
#include "store/event.h"
#include "worker/process/spawn.h"

namespace ddprun::agent {

namespace asio = boost::asio;

NodeFiles node_files(const AgentConfig& config, std::string log_folder,
                     const rendezvous::Round& round, int attempt) {
  NodeFiles files{.program = config.program, .log_folder = std::move(log_folder)};
  if (attempt < 0) {
    files.environment_line = "# What workers inherit from the agent; none has been started yet.";
    files.environment = process::to_assignments(config.workers.environment);
    return files;
  }
  files.environment_line =
      "# Of the first worker here; others have other ranks and an error file each.";
  files.environment =
      worker_spec(config.workers, worker_env(config.workers, round, attempt, 0), "").environment;
  return files;
}

// That it takes long is no stall: ddpctl names a node that does not answer.
NodeBundle::NodeBundle(asio::any_io_executor executor, std::function<NodeFiles()> files,
                       std::function<void(std::string)> say)
    : files_(std::move(files)),
      say_(std::move(say)),
      thread_(executor, [](const process::IoThread::Stall&) {}),
      timer_(executor),
      tasks_(executor) {}

void NodeBundle::heard(const rendezvous::command::TakeBundle& take) {
  if (take.piece > 0) {
    if (take.number == number_) say_piece(take.piece);
    return;
  }
  give_up();
  number_ = take.number;
  if (take.most_bytes == 0) return say_piece(0);
  wanted_ = take;
  if (!std::exchange(is_packing_, true)) tasks_.spawn(pack());
}

asio::awaitable<void> NodeBundle::pack() {
  while (wanted_) {
    auto take = *std::exchange(wanted_, std::nullopt);
    auto packed = std::make_shared<std::string>();
    is_wanted_ = std::make_shared<std::atomic<bool>>(true);
    auto most = static_cast<std::size_t>(std::min(take.most_bytes, rendezvous::kMostNodeBundle));
    std::function<void()> work = [packed, most, files = files_(), is_wanted = is_wanted_] {
      const MonoTime until = mono_now() + kPackLimit;
      *packed = packed_node(files, most, [&] { return *is_wanted && mono_now() < until; });
    };
    co_await thread_.run_and_wait("pack the files of this node", std::move(work));
    if (take.number != number_ || !*is_wanted_) continue;  // another one, or none, is wanted by now
    packed_ = std::move(*packed);
    say_piece(0);
  }
  is_packing_ = false;
}

void NodeBundle::say_piece(std::uint64_t piece) {
  say_(encode(rendezvous::bundle_piece_of(packed_, number_, piece)));
  kept_until_ = mono_now() + kKept;
  if (!packed_.empty() && !std::exchange(is_expiring_, true)) tasks_.spawn(expire());
}

asio::awaitable<void> NodeBundle::expire() {
  while (!packed_.empty()) {
    if (mono_now() >= kept_until_) give_up();
    timer_.expires_at(kept_until_);
    if (!packed_.empty()) co_await store::wait_for(timer_);
  }
  is_expiring_ = false;
}

void NodeBundle::give_up() {
  timer_.cancel();
  wanted_.reset();
  if (is_wanted_) *is_wanted_ = false;
  packed_ = std::string();
}

asio::awaitable<void> NodeBundle::stop() {
  give_up();
  tasks_.cancel();
  co_await tasks_.join();
}

}  // namespace ddprun::agent
