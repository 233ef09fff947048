// SPDX-License-Identifier: BSD-3-Clause
//
// Who comes into a run: nodes that join, those that want a --node-rank which is taken, and those
// that came after the end and wait for the next run of this id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/losses.h"
#include "rendezvous/decide/outgoing.h"
#include "rendezvous/decide/rounds.h"
#include "rendezvous/decide/run_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

// What it is given outlives it.
class Admission {
 public:
  Admission(State& state, Outgoing& out, MonoTime now, Rounds& rounds, Losses& losses)
      : state_(state), out_(out), now_(now), rounds_(rounds), losses_(losses) {}

  void node_joined(const std::string& id, const request::Join& join, std::uint64_t connection);

  // A node joins when its workers are dead, those of its earlier incarnations included.
  void lose_earlier_incarnations(const std::string& id);

  // A node of the run is lost, and who wanted its --node-rank is admitted.
  void lose(std::string id, LossKind kind, const std::string& why, int signal = 0,
            std::optional<MonoTime> since = std::nullopt);
  void judge_silent_nodes(std::uint64_t mark);

  // Refuses the node that has this --node-rank, if there is one: it is that of `owner`.
  void clear_rank(int rank, const request::Join& owner);
  // `rival` is alive: the others that want its --node-rank, or have other settings, are refused.
  void refuse_contenders_of(const std::string& rival);
  // And those that wait for one that is no node any more, for whatever reason, are admitted.
  void admit_orphans();
  // One that waits is gone: it has left, or the connection of its last message is lost.
  void drop_waiting(const std::string& id, std::uint64_t connection, bool has_left);
  // It says what has died on its machine.
  void note_died(const std::string& id, const std::vector<Died>& died);

  // The nodes that came after the end begin the next run.
  void begin_next_run();
  // They wait until this host has ended, for `why`, and begin theirs at the next one.
  void forget_next_run(const std::string& why);

 private:
  void consider(const std::string& id, const request::Join& join, std::uint64_t connection);
  std::vector<std::string> incarnations_of(const std::string& id) const;
  bool is_outdated(const std::string& id) const;
  void forget_waiting(const std::string& id);
  bool has_same_settings(const std::string& id, const request::Join& join,
                         std::uint64_t connection);
  void refuse_difference(const std::string& id, const request::Join& join,
                         std::uint64_t connection);
  bool is_rank_free(const std::string& id, const request::Join& join, std::uint64_t connection);
  bool has_precedence(const request::Join& join) const;
  void admit(const std::string& id, const request::Join& join, std::uint64_t connection);
  void place(const std::string& id, Node& node);
  void admit_contenders_of(const std::string& rival);

  State& state_;
  Outgoing& out_;
  MonoTime now_;
  Rounds& rounds_;
  Losses& losses_;
};

}  // namespace ddprun::rendezvous::coordinator
