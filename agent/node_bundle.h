// SPDX-License-Identifier: BSD-3-Clause
//
// Gives this node's files when a person asks for them (`ddpctl bundle`): packs them on a thread of
// its own, says how much that is, and then each piece that is asked for.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/bundle/node_archive.h"
#include "agent/decide/config.h"
#include "rendezvous/handler.h"
#include "store/base/time.h"
#include "store/task_group.h"
#include "worker/process/io_thread.h"

namespace ddprun::agent {

// Of the node of this agent.  `log_folder`: of the run; `round`: the last, if `attempt` is not
// negative.
NodeFiles node_files(const AgentConfig& config, std::string log_folder,
                     const rendezvous::Round& round, int attempt);

// Threads: used from the executor's only thread.
// Lifetime: stop() must have completed before the destructor runs.
class NodeBundle {
 public:
  // What takes longer is left out.
  static constexpr Duration kPackLimit = std::chrono::seconds(6);
  // And what is packed is given up when nobody has asked for a piece for so long.
  static constexpr Duration kKept = std::chrono::minutes(5);

  // `files` says what there is, now; `say` gets the text of a rendezvous::BundlePiece.
  NodeBundle(boost::asio::any_io_executor executor, std::function<NodeFiles()> files,
             std::function<void(std::string)> say);

  // Of several that come while it packs, the last one is answered.
  void heard(const rendezvous::command::TakeBundle& take);

  std::size_t held_bytes() const { return packed_.size(); }

  // What is being packed is given up.
  boost::asio::awaitable<void> stop();

 private:
  boost::asio::awaitable<void> pack();
  boost::asio::awaitable<void> expire();
  void say_piece(std::uint64_t piece);
  void give_up();

  std::function<NodeFiles()> files_;
  std::function<void(std::string)> say_;
  process::IoThread thread_;
  boost::asio::steady_timer timer_;
  MonoTime kept_until_{};
  bool is_expiring_ = false;
  std::uint64_t number_ = 0;  // of what is packed
  std::string packed_;
  std::optional<rendezvous::command::TakeBundle> wanted_;  // to be packed
  bool is_packing_ = false;
  std::shared_ptr<std::atomic<bool>> is_wanted_;  // what is being packed
  store::TaskGroup tasks_;
};

}  // namespace ddprun::agent
