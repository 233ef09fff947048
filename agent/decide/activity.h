// SPDX-License-Identifier: BSD-3-Clause
//
// Decides whether workers hang, and which of them.  Pure: samples of all local workers in, a
// verdict out.  agent/hang_monitor takes the samples.
//
// A sign of life is output through the agent's pipes, CPU time of the worker and its descendants,
// bytes that these read or write, or a touch of the heartbeat file.  A worker that has touched that
// file once is judged by it alone: only it knows whether its busy loop gets on.  (NCCL waits with
// the CPU at full speed.)
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/base/time.h"

namespace ddprun::agent {

// What was seen of one worker at one moment.
struct ActivitySample {
  int local_rank = 0;
  std::uint64_t output_bytes = 0;
  bool is_output_seen = true;  // false: it may write more than that
  // Of its process and all that live below it; each may be less when one of these ends.
  Duration cpu_time{};
  std::uint64_t moved_bytes = 0;  // read, written and paged in
  std::int64_t heartbeat_ns = 0;  // the file's mtime; 0: never touched
  std::string doing;              // "sleeping in hrtimer_nanosleep"; two that wait alike say alike
};

struct HangVerdict {
  std::vector<int> hung;               // local ranks that must be ended, the most suspect first
  std::vector<int> silent;             // all that were silent, `hung` among them
  std::map<int, std::string> doing;    // of the silent ones
  std::map<int, MonoTime> alive_at{};  // likewise, the last sign of life
  std::vector<int> busy{};             // those that were not silent
  int base_rank = 0;                   // the rank of local rank 0
  std::string place{};                 // of hung[0]: "load (data.py:40)"; empty: not known
  Duration silence{};                  // of hung[0]
  bool is_heartbeat = false;           // hung[0] was judged by its heartbeat alone
  bool is_output_seen = true;          // that of hung[0]
  bool is_clear = false;  // hung[0] does what the others do not, and waits for none of them

  friend bool operator==(const HangVerdict&, const HangVerdict&) = default;
};

// Less CPU time than this share of the time since the last sign of life is none: threads that
// only look at a clock now and then (a watchdog, a heart-beat of NCCL's) use about that.
inline constexpr double kIdleShare = 0.02;
// Nor is less than this: the kernel counts in ticks of 10 ms, and one of them in a short time would
// look like a lot.
inline constexpr Duration kIdleTime = std::chrono::milliseconds(30);

// So many bytes, and so many for each second since the last sign of life, are one: a worker that
// reads its data or its own program from a slow disk needs little CPU.  What watches the machine
// (a profiler that reads /proc, an event descriptor) moves far less.
inline constexpr std::uint64_t kMovingBytes = 1 << 20;

// How often to look.
Duration look_period(Duration timeout);

// So many periods after the last one a look is late: the time beyond counts for no worker.
inline constexpr int kLateLooks = 5;

class ActivityLog {
 public:
  explicit ActivityLog(Duration timeout) : timeout_(timeout) {}

  // Takes one sample of each worker that runs, all of the same moment.  A verdict comes when one of
  // them has been silent for the timeout.  Workers that wait for a hung one are silent as well:
  // those silent for half the timeout at that moment are looked at together, and where a minority
  // does something else than the rest, it is the minority that hangs.  With no such difference all
  // of them are named.
  std::optional<HangVerdict> look(const std::vector<ActivitySample>& samples, MonoTime now);

 private:
  struct Activity {
    ActivitySample last;
    MonoTime alive_at{};            // the last sign of life
    Duration cpu_time{};            // then, or the least since
    std::uint64_t moved_bytes = 0;  // likewise
  };
  void note(const ActivitySample& sample, MonoTime now);
  void forgive_own_silence(MonoTime now);

  Duration timeout_;
  std::map<int, Activity> activities_;
  std::optional<MonoTime> last_look_;
};

// The verdict once it is known who waits inside a collective, by local rank, as far as their stacks
// tell: where some do and some do not, only the latter are hung, and the text says what the others
// wait in.  Where all do, the one that keeps them waiting is not among them.
HangVerdict without_waiting(HangVerdict verdict, const std::map<int, bool>& waits);

// "hung: no output, CPU time or heartbeat for 60 s; it was sleeping in hrtimer_nanosleep, in load
// (data.py:40), while ranks 4..6 were sleeping in futex_wait".  Of a worker whose output is not
// seen it says so.
std::string describe(const HangVerdict& verdict);

}  // namespace ddprun::agent
