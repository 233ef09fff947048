// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace ddprun::ddp::shm {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

// FUTEX_WAIT_BITSET, because it takes a point in time, and on the clock of steady_clock.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline) {
  using namespace std::chrono;
  const auto since_boot = duration_cast<nanoseconds>(deadline.time_since_epoch()).count();
  constexpr long long kSecond = 1'000'000'000;
  timespec until{};
  until.tv_sec = static_cast<time_t>(since_boot / kSecond);
  until.tv_nsec = static_cast<long>(since_boot % kSecond);
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, expected, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ddprun::ddp::shm
