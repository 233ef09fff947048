// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/plateau_state.h"

namespace ddprun::ddp {
namespace {

using Scheduler = torch::optim::ReduceLROnPlateauScheduler;

// The language lets an explicit instantiation name a private member, and hand it on by a friend.
template <class Tag, auto kMember>
struct Grant {
  friend typename Tag::Type& granted(Tag, Scheduler& scheduler) { return scheduler.*kMember; }
};

template <int kNumber, class Member>
struct Tag {
  using Type = Member;
};
using Best = Tag<0, float>;
using CooldownCounter = Tag<1, int>;
using LastEpoch = Tag<2, int>;
using NumBadEpochs = Tag<3, int>;

float& granted(Best, Scheduler& scheduler);
int& granted(CooldownCounter, Scheduler& scheduler);
int& granted(LastEpoch, Scheduler& scheduler);
int& granted(NumBadEpochs, Scheduler& scheduler);

template struct Grant<Best, &Scheduler::best>;
template struct Grant<CooldownCounter, &Scheduler::cooldown_counter>;
template struct Grant<LastEpoch, &Scheduler::last_epoch>;
template struct Grant<NumBadEpochs, &Scheduler::num_bad_epochs>;

}  // namespace

PlateauState state_of(Scheduler& scheduler) {
  return {.best = granted(Best{}, scheduler),
          .cooldown_counter = granted(CooldownCounter{}, scheduler),
          .last_epoch = granted(LastEpoch{}, scheduler),
          .num_bad_epochs = granted(NumBadEpochs{}, scheduler)};
}

}  // namespace ddprun::ddp
