// SPDX-License-Identifier: BSD-3-Clause
//
// A round that began under another coordinator, which is gone: its nodes go on with it, or it is
// stopped.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/decide/admission.h"
#include "rendezvous/decide/outgoing.h"
#include "rendezvous/decide/requests.h"
#include "rendezvous/decide/rounds.h"
#include "rendezvous/decide/run_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

// What it is given outlives it.
class Takeover {
 public:
  Takeover(State& state, Outgoing& out, MonoTime now, Rounds& rounds, Admission& admission,
           Requests& requests)
      : state_(state),
        out_(out),
        now_(now),
        rounds_(rounds),
        admission_(admission),
        requests_(requests) {}

  // A node that is not one of the run's wants to go on where it was.
  void node_resumed(const std::string& id, const request::Resume& resume, std::uint64_t connection);

  // The guardian of a node that is not one of the run's says so: the node was in the round under
  // the host before, and was maybe that host itself.
  void node_left(const std::string& id, const request::Left& left);

  // The leases of those that have not come back are over.
  void give_up_if_due();

 private:
  bool can_adopt(const request::Resume& resume) const;
  bool is_alone_now();
  void adopt(const std::string& id, const request::Resume& resume, std::uint64_t connection);

  State& state_;
  Outgoing& out_;
  MonoTime now_;
  Rounds& rounds_;
  Admission& admission_;
  Requests& requests_;
};

}  // namespace ddprun::rendezvous::coordinator
