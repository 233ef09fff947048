// SPDX-License-Identifier: BSD-3-Clause
//
// One node with hostile workers, from a seed: the real core, and models of what it is surrounded by
// (workers that ignore SIGTERM, die at odd moments, leave processes behind or cannot be ended at
// all; a rendezvous that counts restarts and orders stops; a user who presses Ctrl-C).  After every
// step the rules below are checked.  `node_sim 0:20000` plays so many; `node_sim 17` shows one;
// `--expect-violation` succeeds as soon as one fails (tests/agent/mutations).
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "agent/decide/core.h"
#include "store/base/variant.h"
#include "tests/sim/random.h"
#include "tests/support/worker_exits.h"

namespace {

using namespace ddprun;
using namespace ddprun::agent;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kSweepLimit = seconds(2);  // of worker/process/sweep, beyond the deadline

// A worker, or something that one has left behind.
struct Process {
  int local_rank = -1;
  bool is_alive = true;
  bool is_deaf = false;   // to SIGTERM
  bool is_stuck = false;  // in D state: to SIGKILL as well
  bool was_asked = false;
  bool is_abandoned = false;
};

class NodeSim {
 public:
  NodeSim(std::uint64_t seed, bool is_traced)
      : random_(seed), wait_random_(~seed), is_traced_(is_traced) {
    config_.local_world_size = random_.number(1, 5);
    config_.stop_grace = random_.duration(milliseconds(0), seconds(5));
    max_restarts_ = random_.number(0, 4);
    hostility_ = random_.number(0, 60);
    int signals = random_.chance(40) ? random_.number(1, 3) : 0;
    for (int i = 0; i < signals; ++i)
      at(random_.duration(seconds(0), seconds(20)), [this] { shut_down(); });
    if (random_.chance(15))
      at(random_.duration(seconds(0), seconds(20)), [this] { rendezvous_fails(); });
    // A worker that hangs for ever is ended by its user.
    at(seconds(600), [this] { shut_down(); });
    int stops = random_.number(0, 2);
    for (int i = 0; i < stops; ++i)
      at(random_.duration(seconds(0), seconds(20)), [this] { order_stop(); });
    if (wait_random_.chance(30))
      at(wait_random_.duration(seconds(0), seconds(20)), [this] { order_inspection(); });
  }

  void play() {
    Step first = begin();
    take(std::move(first));
    while (!agenda_.empty() && state_.phase != Phase::Finished) {
      auto next = agenda_.begin();
      now_ = next->first.first;
      auto deed = std::move(next->second);
      agenda_.erase(next);
      require(++steps_ < 100'000, "the run never ends");
      deed();
    }
    require(state_.phase == Phase::Finished, "the run never ends");
    for (const Process& process : processes_)
      require(!process.is_alive || process.is_stuck, "something lives on after the end");
  }

 private:
  void require(bool holds, const std::string& rule) const {
    if (!holds) throw std::runtime_error(rule);
  }
  void at(Duration delay, std::function<void()> deed) {
    agenda_.emplace(std::pair(now_ + delay, order_++), std::move(deed));
  }
  bool hostile(int percent) { return random_.chance(percent * hostility_ / 100); }

  void on(const Event& event) {
    if (state_.phase == Phase::Finished) return;
    Phase before = state_.phase;
    Step next = step(std::move(state_), event, {now_, WallTime(now_.time_since_epoch())}, config_);
    if (is_traced_) {
      std::printf(
          "%8.3f %s: %s -> %s\n", std::chrono::duration<double>(now_.time_since_epoch()).count(),
          to_string(before).c_str(), to_string(event).c_str(), to_string(next.actions).c_str());
    }
    if (before != Phase::Stopping && next.state.phase == Phase::Stopping) stop_began_ = now_;
    if (before != Phase::Inspecting && next.state.phase == Phase::Inspecting) look_began_ = now_;
    if (before == Phase::Inspecting)
      require(now_ - look_began_ <= config_.inspect_limit, "stacks are taken for too long");
    take(std::move(next));
    if (before == Phase::Stopping && state_.phase != Phase::Stopping) {
      Duration most = config_.stop_grace + config_.kill_limit + kSweepLimit + seconds(1);
      require(now_ - stop_began_ <= most, "a stop takes longer than its limits");
    }
  }

  void take(Step next) {
    state_ = std::move(next.state);
    std::uint64_t number = ++deadlines_;
    if (state_.deadline) {
      bool has_one = state_.phase == Phase::Stopping || state_.phase == Phase::Inspecting;
      require(has_one, "a deadline without a stop");
      at(std::max(*state_.deadline - now_, Duration()), [this, number] {
        if (number == deadlines_) on(event::DeadlineReached{});
      });
    }
    for (const Action& action : next.actions) perform(action);
  }

  void perform(const Action& action) {
    std::visit(
        Overloaded{
            [this](const action::JoinRound&) { join(); },
            [this](const action::StartWorkers& start) { start_workers(start.restart_count); },
            [this](const action::ReportFailure& failed) { failure_reported(failed); },
            [this](const action::TakeStacks&) {
              if (wait_random_.chance(10)) return;  // the disk stands still
              at(wait_random_.duration(milliseconds(0), seconds(2)),
                 [this] { on(event::Inspected{}); });
            },
            [this](const action::ReportFindings&) { findings_reported(); },
            [this](const action::ReportSuccess&) { success_reported(); },
            [this](const action::LeaveRun&) {},
            [this](const action::SignalWorkers&) { ask_workers(); },
            [this](const action::Sweep&) { begin_sweep(); },
            [this](const action::KillNow&) { kill_all(); },
            [this](const action::AbandonWorkers&) { abandon(); },
            [this](const action::Finish& end) { finished(end.exit_code); },
        },
        action);
  }

  // The rendezvous.

  void join() {
    require(shutdowns_ == 0, "another round after a stop signal");
    for (const Process& process : processes_)
      require(!process.is_alive || process.is_stuck, "a round begins while something still lives");
    at(random_.duration(milliseconds(0), milliseconds(50)), [this] {
      if (state_.phase == Phase::Joining) on(event::RoundJoined{restarts_});
    });
  }
  void failure_reported(const action::ReportFailure& failed) {
    require(!has_reported_, "two reports of one round");
    has_reported_ = true;
    if (!failed.is_final) {
      require(state_.failure && first_failed_ == state_.failure->local_rank,
              "not the first failure is reported");
    }
    bool is_end = failed.is_final || restarts_ >= max_restarts_;
    if (!is_end) ++restarts_;
    auto judge = [this, is_end, failed] {
      if (is_end) return end(failed.failure.status.shell_code());
      on(event::StopOrdered{});
    };
    Duration delay = random_.duration(milliseconds(0), seconds(3));
    failed.wait ? judge_when_found(judge) : at(delay, judge);
  }
  // A worker of another node has waited in vain.
  void order_inspection() {
    if (state_.phase != Phase::Running) return;
    judge_when_found([this] { on(event::StopOrdered{}); });
    on(event::InspectOrdered{{.in = "all_reduce"}});
  }
  // It does not wait for long.
  void judge_when_found(std::function<void()> judge) {
    judge_ = std::move(judge);
    at(seconds(3), [this, number = ++judgements_] {
      if (number == judgements_) judge_now();
    });
  }
  void findings_reported() {
    require(judge_ != nullptr, "findings that nobody has asked for");
    at(wait_random_.duration(milliseconds(0), seconds(1)), [this, number = judgements_] {
      if (number == judgements_) judge_now();
    });
  }
  void judge_now() {
    if (auto judge = std::exchange(judge_, nullptr)) judge();
  }
  void success_reported() {
    require(!first_failed_ && succeeded_ == config_.local_world_size, "a success that is none");
    at(random_.duration(milliseconds(0), seconds(1)), [this] { end(0); });
  }
  void end(int code) {
    if (!verdict_) verdict_ = code;
    on(event::RunEnded{code});
  }
  void rendezvous_fails() {
    if (!verdict_) verdict_ = kExitRendezvous;
    on(event::RendezvousFailed{"gone"});
  }
  void order_stop() {
    if (state_.phase == Phase::Running) on(event::StopOrdered{});
  }

  // The user.

  void shut_down() {
    bool was_stopping = state_.phase == Phase::Stopping;
    bool is_second = shutdowns_ > 0;
    if (state_.phase == Phase::Finished) return;
    if (!is_second) asked_at_ = now_;
    bool is_same_request = is_second && now_ - asked_at_ < kOneRequest;
    ++shutdowns_;
    kills_ = 0;
    on(event::ShutdownRequested{SIGTERM});
    if (!was_stopping || !is_second) return;
    if (is_same_request) require(kills_ == 0, "a signal that came twice ends the grace");
    if (!is_same_request) require(kills_ == 1, "a second signal does not end the grace");
  }

  // The workers.

  void start_workers(int restart_count) {
    require(restart_count == restarts_ && restarts_ <= max_restarts_, "more restarts than allowed");
    for (const Process& process : processes_)
      require(!process.is_alive || process.is_stuck, "workers start while something still lives");
    has_reported_ = false;
    first_failed_.reset();
    succeeded_ = 0;
    int count = config_.local_world_size;
    int startable = hostile(10) ? random_.number(0, count - 1) : count;
    for (int rank = 0; rank < startable; ++rank) add(rank);
    if (startable < count) on(test::start_failed(startable));
  }
  void add(int local_rank) {
    processes_.push_back({.local_rank = local_rank,
                          .is_deaf = hostile(30),
                          .is_stuck = local_rank >= 0 && hostile(5)});
    std::size_t self = processes_.size() - 1;
    if (local_rank < 0 || processes_[self].is_stuck) return;
    int code = random_.chance(50) ? random_.number(1, 255) : 0;
    at(random_.duration(milliseconds(0), seconds(random_.chance(30) ? 0 : 6)),
       [this, self, code] { ends(self, {.exit_code = code}); });
  }
  void ends(std::size_t self, process::ExitStatus status) {
    if (!processes_[self].is_alive) return;
    processes_[self].is_alive = false;
    int rank = processes_[self].local_rank;
    if (rank < 0 || processes_[self].is_abandoned) return;
    int leftovers = hostile(40) ? random_.number(1, 3) : 0;
    for (int i = 0; i < leftovers; ++i) add(-1);
    if (!status.is_success() && state_.phase == Phase::Running && !first_failed_)
      first_failed_ = rank;
    if (status.is_success()) ++succeeded_;
    auto exited = test::worker_exited(rank, status);
    if (exited.failure && wait_random_.chance(30)) exited.wait = rendezvous::TimedOutWait{};
    on(exited);
  }
  void later_by(std::size_t self, int signal, Duration most) {
    at(random_.duration(milliseconds(0), most),
       [this, self, signal] { ends(self, {.signal = signal}); });
  }

  // What the agent does to them.

  void ask_workers() {
    require(state_.phase != Phase::Inspecting,
            "workers are signalled while their stacks are taken");
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      Process& process = processes_[i];
      if (!process.is_alive || process.local_rank < 0 || process.is_abandoned) continue;
      process.was_asked = true;
      if (!process.is_deaf && !process.is_stuck) later_by(i, SIGTERM, seconds(1));
    }
  }
  void kill_all() {
    ++kills_;
    bool is_due = shutdowns_ > 1 || now_ - stop_began_ >= config_.stop_grace;
    require(is_due, "SIGKILL before the grace is over");
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      Process& process = processes_[i];
      if (!process.is_alive || process.is_abandoned) continue;
      require(process.local_rank < 0 || process.was_asked,
              "SIGKILL to a worker that was not asked");
      if (!process.is_stuck) later_by(i, SIGKILL, milliseconds(20));
    }
    sweep_deadline_ = now_;
  }
  void abandon() {
    for (Process& process : processes_) {
      if (!process.is_alive || process.local_rank < 0) continue;
      require(process.is_stuck, "a worker is left behind that SIGKILL would end");
      process.is_abandoned = true;
    }
  }
  void begin_sweep() {
    for (const Process& process : processes_)
      require(!process.is_alive || process.local_rank < 0 || process.is_abandoned,
              "a sweep while workers live");
    sweep_deadline_ = state_.deadline.value_or(now_);
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (processes_[i].is_alive && processes_[i].local_rank < 0 && !processes_[i].is_deaf)
        later_by(i, SIGTERM, milliseconds(200));
    }
    look();
  }
  void look() {
    bool is_clear = true;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (!processes_[i].is_alive || processes_[i].local_rank >= 0) continue;
      is_clear = false;
      if (now_ >= sweep_deadline_) later_by(i, SIGKILL, milliseconds(20));
    }
    if (is_clear) return at(Duration(), [this] { on(event::Swept{}); });
    at(milliseconds(100), [this] { look(); });
  }

  void finished(int code) {
    bool is_right = (shutdowns_ > 0 && code == 128 + SIGTERM) || (verdict_ && code == *verdict_);
    require(is_right, "an exit code that nobody gave");
  }

  sim::Random random_;
  sim::Random wait_random_;  // of waits that are over, so that the rest of a seed stays as it is
  bool is_traced_;
  Config config_;
  State state_;
  int max_restarts_ = 0;
  int hostility_ = 0;  // percent
  MonoTime now_{};
  std::map<std::pair<MonoTime, std::uint64_t>, std::function<void()>> agenda_;
  std::uint64_t order_ = 0;
  int steps_ = 0;
  std::uint64_t deadlines_ = 0;
  std::vector<Process> processes_;
  MonoTime stop_began_{};
  MonoTime look_began_{};
  std::function<void()> judge_;  // what the rendezvous does when it has the findings
  std::uint64_t judgements_ = 0;
  MonoTime sweep_deadline_{};
  int restarts_ = 0;
  int shutdowns_ = 0;
  MonoTime asked_at_{};  // when the first of them came
  int kills_ = 0;
  int succeeded_ = 0;
  bool has_reported_ = false;
  std::optional<int> first_failed_;
  std::optional<int> verdict_;
};

}  // namespace

int main(int count, char** words) {
  bool expects_violation = false;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  bool is_one = false;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], "--expect-violation") == 0) {
      expects_violation = true;
      continue;
    }
    char* rest = nullptr;
    first = std::strtoull(words[i], &rest, 10);
    is_one = *rest != ':';
    last = is_one ? first + 1 : std::strtoull(rest + 1, nullptr, 10);
  }
  for (std::uint64_t seed = first; seed < last; ++seed) {
    try {
      NodeSim(seed, is_one).play();
    } catch (const std::runtime_error& violated) {
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), violated.what());
      return expects_violation ? 0 : 1;
    }
  }
  std::printf("%llu seeds, no violation\n", static_cast<unsigned long long>(last - first));
  return expects_violation ? 1 : 0;
}
