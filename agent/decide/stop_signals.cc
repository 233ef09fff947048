// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/stop_signals.h"

#include "agent/decide/core.h"
#include "rendezvous/decide/messages.h"

namespace ddprun::agent {

StopSignals::Effect StopSignals::heard(int signal, MonoTime now, bool is_finished) {
  const bool is_first = first_ == 0;
  const Duration since_first = now - first_at_;
  Effect effect{.is_told = is_first || signal != first_ || since_first >= kOneSending,
                .leaves = is_finished && is_first,
                .closes = is_finished && !is_first && since_first >= kOneRequest};
  if (is_first) {
    first_ = signal;
    first_at_ = now;
  }
  if (is_finished) late_ = signal;
  return effect;
}

int StopSignals::exit_code(int exit_code, bool are_others_signalled) const {
  const bool is_for_the_signal =
      late_ != 0 && are_others_signalled && exit_code == rendezvous::command::kExitRendezvous;
  return is_for_the_signal ? 128 + late_ : exit_code;
}

}  // namespace ddprun::agent
