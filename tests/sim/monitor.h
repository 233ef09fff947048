// SPDX-License-Identifier: BSD-3-Clause
//
// A node's watch over its workers: the real hang::step, with models of agent::HangMonitor, of what
// /proc shows of the workers and of the tools that take stacks.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/decide/hang.h"
#include "store/base/exit_status.h"
#include "tests/sim/world.h"

namespace ddprun::sim {

// How a worker hangs.
enum class HangKind : std::uint8_t {
  ForEver,
  GoesOn,  // after a while
  Exits,   // likewise, with an error
};

class Monitor {
 public:
  Monitor(World& world, Node& node);

  void start();  // the node's workers run
  void stop();   // they are being stopped

  // The end of a worker; returns whether the node hears of it later.
  bool take_exit(int local_rank, const process::ExitStatus& status);
  // It is told to the core: what the first failure of an attempt must be.
  void judge_failure(int local_rank) const;
  // Whether the others are to end by SIGABRT after this failure.
  bool is_hang(int local_rank) const { return blamed_.contains(local_rank) && !has_python(); }

  // A worker of the node hangs from now on.
  void hang(int local_rank);
  // It has ended, or goes on.
  void hangs_no_more(int local_rank);
  bool has_hung() const { return !hung_.empty(); }
  bool has_signalled(int local_rank) const { return signalled_.contains(local_rank); }
  // The workers of its round have made progress.
  void saw_progress() { progress_at_ = world_.time.now(); }

  bool is_watching() const { return config_.timeout != Duration::zero(); }
  bool has_python() const;

 private:
  // Whether the stacks of this node's workers show which of them hangs.
  bool can_tell() const;
  struct Ended {
    int local_rank = 0;
    process::ExitStatus status;
  };
  void on(const agent::hang::Event& event);
  void perform(const agent::hang::Event& event, const std::vector<agent::hang::Action>& actions);
  void take_stacks(std::uint64_t collection);
  void blame(const agent::hang::Event& event, int local_rank);
  void signal(int local_rank, int signal);
  void arm();
  void due();
  std::vector<agent::ActivitySample> samples();
  void require_silence(const std::string& what) const;

  World& world_;
  Node& node_;
  agent::hang::Config config_;
  agent::hang::State state_;
  std::uint64_t timers_ = 0;
  std::set<int> hung_;              // local ranks
  std::set<int> blamed_;            // likewise
  std::set<int> signalled_;         // likewise, by the monitor
  std::optional<bool> could_tell_;  // when the first stacks were taken
  std::vector<Ended> held_;
  Duration progress_at_{};
  std::uint64_t progress_ = 0;  // grows while the workers make some
  Duration seen_progress_{};
};

}  // namespace ddprun::sim
