// SPDX-License-Identifier: BSD-3-Clause
//
// What step() of member.h consists of: what happens to a node (member.cc), and what the coordinator
// tells it (member_commands.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/decide/connector.h"
#include "rendezvous/decide/member.h"
#include "rendezvous/decide/member_places.h"
#include "rendezvous/decide/member_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::member {

// What is told to people is told again after this, and a place that was tried in vain so long ago
// may be there by now.
inline constexpr Duration kRepeat = std::chrono::seconds(20);

// One step: the state being changed and the actions being collected.
class MemberTransition {
 public:
  MemberTransition(State state, Now now, const Config& config)
      : state_(std::move(state)), now_(now.mono), config_(config) {}
  MemberTransition(const MemberTransition&) = delete;
  MemberTransition& operator=(const MemberTransition&) = delete;

  // Having stood still, it may have been given up; or everybody stood still.  It asks before
  // anything else, whatever has happened.
  void notice_standstill();

  Step result() &&;

  void operator()(const event::RoundWanted& event);
  void operator()(const event::WorkerFailed& event);
  void operator()(const event::WorkersInspected& event);
  void operator()(const event::WorkersUp& event);
  void operator()(const event::WorkersSucceeded&);
  void operator()(const event::Leaving& event);
  void operator()(const event::WorkersGone&);
  void operator()(const event::Finished&);
  void operator()(const event::Formed& event);
  void operator()(const event::Connected& event);
  void operator()(const event::ConnectFailed& event);
  void operator()(const event::ConnectionLost& event);
  void operator()(const event::HostFailed& event);
  void operator()(const event::Heard& event);
  void operator()(const event::PulseSeen& event);
  void operator()(const event::DiedSeen& event);
  void operator()(const event::Tick& event);

 private:
  bool is_unreached(const std::optional<Endpoint>& place) const;

  // Where a run goes on whose first host's machine is gone, nothing that a new node can reach says.
  std::string elsewhere_hint(Duration waited) const;

  // It has just been there in vain.
  bool is_sent_back(const Endpoint& to) const;

  void note_unreached(const std::string& why);

  void look_at_host();

  void give_up(std::string why);
  void give_up_unheard();

  // Its own coordinator goes on as long as this agent does; its workers only as long as enough
  // other nodes see that.
  void note_heard(MonoTime heard_at);

  void note_pulse(const std::string& pulse, MonoTime asked_at);

  // One at a time, so that it is known when the one began that is answered.
  void look();

  // A host looks whether the run is elsewhere as well.
  void knock_if_due();

  Contact contact() const { return {.at = now_, .of = state_.coordinator}; }
  void note_contact() { state_.seen.note(contact(), config_.may_move()); }

  template <class OneAction>
  void want(OneAction action) {
    actions_.emplace_back(std::move(action));
  }

  std::string where() const { return member::where(state_, config_); }
  std::string meeting() const { return meeting_text(state_, config_); }

  // The lease of its workers is over: it has stood still itself, or has heard nothing.
  void cut_off_by_lease();

  Message message(Request request) const;
  void post(Request request) { want(action::Post{message(std::move(request))}); }

  // Once after each contact: an agent that is always late must stop its workers all the same.
  void note_late_tick();

  void join();

  // Without contact it may be the end of the lease, or of a peer, that ended the worker: it waits
  // until the run is known to go on with this node.
  void post_failure();

  // What the workers did when the failure came is not known any more.
  void resume();

  void resume_later(const event::ConnectFailed& event);

  // The coordinator has given this node up, or will have when its lease is over: its workers must
  // end before that, and it comes back as another node.
  void cut_off(LossKind loss, const std::string& why,
               std::optional<MonoTime> kill_by = std::nullopt, Duration after = {});

  // A node without workers may go to and fro between places where nobody lets it in.
  void tell_of_cut(const std::string& why);

  // Where the lease of the workers ends now, if that has changed.
  void renew_lease();

  void heard(const command::Round& round);
  void heard(const command::Inspect& inspect);
  void heard(const command::TakeStacks& take);
  void heard(const command::TakeBundle& take);
  void heard(const command::Stop& stop);
  void heard(const command::Waiting& waiting);
  void heard(const command::End& end);
  void heard(const command::Refuse& refuse);
  void heard(const command::Standby& standby);
  void heard(const command::Info& info);
  void heard(const command::KeepAlive& keep_alive);
  void heard(const command::Continue&);
  void heard(const command::Moved& moved);
  void heard(const command::StandIns& told);
  void heard(const command::Settled& settled);
  void heard(const command::Dropped& dropped);

  // The run is not where an agent of this machine knew it.
  void leave_known_place(const std::string& why);
  // It is as it was before it came here.
  void take_back_join();
  // With workers, which go on.
  void follow(const Endpoint& to, const std::string& why, Duration after);
  void note_stand_ins(const std::vector<StandIn>& stand_ins, const std::string& run_uuid);

  State state_;
  MonoTime now_;
  const Config& config_;
  std::vector<Action> actions_;
  Connector connector_{state_, actions_, now_, config_};
};

}  // namespace ddprun::rendezvous::member
