// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/restarts.h"

#include <string_view>
#include <utility>

#include "store/base/text.h"

namespace ddprun::rendezvous::coordinator {
namespace {

// The words of so many failures are kept in full.
constexpr std::size_t kMaxFailures = 32;
constexpr std::size_t kMaxOldMessage = 200;

}  // namespace

void Restarts::record(const Failure& failure) {
  for (Failure& earlier : failures) {
    earlier.message = std::string(beginning_of(earlier.message, kMaxOldMessage));
    forget_output(earlier);
  }
  if (failures.size() >= kMaxFailures) failures.erase(failures.begin() + kMaxFailures / 2);
  failures.push_back(failure);
}

void Restarts::spend(const std::string& node, MonoTime now) {
  ++count;
  failed_at = now;
  failed_on = node;
}

void Restarts::end_unless_lost(const std::string& node, MonoTime now, command::End verdict) {
  end_in_doubt = std::move(verdict);
  failed_at = now;
  failed_on = node;
}

void Restarts::take_back() {
  failed_at.reset();
  failures.pop_back();
  if (!std::exchange(end_in_doubt, std::nullopt)) --count;
}

}  // namespace ddprun::rendezvous::coordinator
