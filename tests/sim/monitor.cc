// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/monitor.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "store/base/variant.h"
#include "tests/sim/node.h"

namespace ddprun::sim {

namespace hang = agent::hang;
using std::chrono::milliseconds;
using std::chrono::seconds;

Monitor::Monitor(World& world, Node& node)
    : world_(world), node_(node), config_{.timeout = node.plan().watch.timeout}, state_(config_) {}

bool Monitor::has_python() const {
  return node_.plan().watch.has_python;
}

void Monitor::start() {
  blamed_.clear();
  signalled_.clear();
  held_.clear();
  hung_.clear();
  could_tell_.reset();
  saw_progress();
  if (!is_watching()) return;
  hang::event::Started started{
      .local_ranks = node_.ranks_up(),
      .has_other_nodes = world_.oracle.round(*node_.round()).members.size() > 1};
  on(started);
}

void Monitor::stop() {
  if (!state_.running.empty() || state_.hold) on(hang::event::Stopped{});
}

bool Monitor::take_exit(int local_rank, const process::ExitStatus& status) {
  hang::Event event = hang::event::Exited{local_rank};
  auto actions = hang::step(state_, event, world_.now(node_.plan().machine).mono, config_);
  bool is_held = !held_.empty() || std::ranges::any_of(actions, [](const hang::Action& action) {
    return std::holds_alternative<hang::action::HoldBack>(action);
  });
  if (is_held) held_.push_back({local_rank, status});
  if (status.is_success()) blamed_.erase(local_rank);
  perform(event, actions);
  return is_held;
}

// A worker that only showed its stacks must not be taken for the one that hung, unless that has
// just ended well.
void Monitor::judge_failure(int local_rank) const {
  if (signalled_.contains(local_rank) && !blamed_.contains(local_rank) && !blamed_.empty())
    world_.violate(node_.process().name + " takes a victim of its hang watch for the cause");
}

void Monitor::hang(int local_rank) {
  hung_.insert(local_rank);
  world_.trace(node_.process().name, "worker " + std::to_string(local_rank) + " hangs");
}

void Monitor::hangs_no_more(int local_rank) {
  hung_.erase(local_rank);
}

void Monitor::on(const hang::Event& event) {
  perform(event, hang::step(state_, event, world_.now(node_.plan().machine).mono, config_));
}

void Monitor::perform(const hang::Event& event, const std::vector<hang::Action>& actions) {
  if (world_.is_traced && !actions.empty())
    world_.trace(node_.process().name, "hang watch: " + hang::to_string(actions));
  arm();
  for (const hang::Action& action : actions) {
    std::visit(
        Overloaded{
            [this](const hang::action::NameSilent&) { require_silence("names a silent worker"); },
            [](const hang::action::LeaveToOthers&) {},
            [this](const hang::action::TakeStacks& take) { take_stacks(take.collection); },
            [this, &event](const hang::action::Blame& blamed) { blame(event, blamed.local_rank); },
            [this](const hang::action::Signal& wanted) {
              signal(wanted.local_rank, wanted.signal);
            },
            [this](const hang::action::Kill& kill) { signal(kill.local_rank, SIGKILL); },
            [this](const hang::action::Abandon&) {
              world_.violate(node_.process().name + " abandons a worker that SIGKILL ends");
            },
            [](const hang::action::HoldBack&) {},
            [this](const hang::action::Release& wanted) {
              node_.later(Duration::zero(), [this, first = wanted.first] {
                auto held = std::exchange(held_, {});
                std::ranges::stable_partition(
                    held, [first](const Ended& ended) { return ended.local_rank == first; });
                for (const Ended& ended : held) node_.tell_end(ended.local_rank, ended.status);
              });
            },
        },
        action);
  }
}

// What the tools see at once, and say when they have ended, even if the workers are stopped
// meanwhile.
void Monitor::take_stacks(std::uint64_t collection) {
  if (!could_tell_) could_tell_ = can_tell();
  hang::event::StacksTaken taken{.collection = collection, .waits = {}, .has_python = has_python()};
  if (node_.plan().watch.has_tools) {
    for (int rank : node_.ranks_up()) taken.waits[rank] = !hung_.contains(rank);
  }
  node_.later(node_.plan().watch.stacks, [this, taken] { on(taken); });
}

// A watch that has left the hang to the others for a while must have seen the silence last.
void Monitor::blame(const hang::Event& event, int local_rank) {
  blamed_.insert(local_rank);
  if (std::holds_alternative<hang::event::Looked>(event)) require_silence("blames a worker");
  if (!world_.scenario.are_hangs_judged || hung_.contains(local_rank)) return;
  for (Node* peer : world_.oracle.round(*node_.round()).members) {
    if (!peer->monitor().can_tell()) continue;
    world_.violate(node_.process().name + " blames a worker that waits, and " +
                   peer->process().name + " can tell which one hangs");
  }
}

// Not where all of several hang.
bool Monitor::can_tell() const {
  if (node_.core().phase != agent::Phase::Running) return false;
  if (could_tell_) return *could_tell_;
  std::size_t up = node_.ranks_up().size();
  return !hung_.empty() && (hung_.size() < up || up == 1);
}

void Monitor::signal(int local_rank, int signal) {
  if (node_.core().phase != agent::Phase::Running)
    world_.violate(node_.process().name + "'s hang watch signals workers that are being stopped");
  signalled_.insert(local_rank);
  node_.signal_worker(local_rank, signal);
}

// Between two looks the silence may have begun late.
void Monitor::require_silence(const std::string& what) const {
  Duration silence = world_.time.now() - progress_at_;
  if (silence + 2 * agent::look_period(config_.timeout) < config_.timeout)
    world_.violate(node_.process().name + " " + what + ", and its round has just made progress");
}

void Monitor::arm() {
  std::uint64_t number = ++timers_;
  MonoTime next = std::min(hang::next_tick(state_, config_).value_or(MonoTime::max()),
                           state_.look_at.value_or(MonoTime::max()));
  if (next == MonoTime::max()) return;
  node_.later(next - world_.now(node_.plan().machine).mono, [this, number] {
    if (number == timers_) due();
  });
}

void Monitor::due() {
  MonoTime now = world_.now(node_.plan().machine).mono;
  auto tick = hang::next_tick(state_, config_);
  if (tick && *tick <= now) return on(hang::event::Tick{});
  if (state_.look_at && *state_.look_at <= now) on(hang::event::Looked{samples()});
}

std::vector<agent::ActivitySample> Monitor::samples() {
  // Workers that stood still with the agent have not run yet.
  bool has_just_gone_on = node_.process().thawed_at == world_.time.now();
  if (world_.oracle.is_whole(*node_.round()) && !has_just_gone_on) saw_progress();
  if (std::exchange(seen_progress_, progress_at_) != progress_at_) ++progress_;
  std::vector<agent::ActivitySample> samples;
  for (int rank : node_.ranks_up()) {
    if (!state_.running.contains(rank)) continue;
    bool has_hung = hung_.contains(rank);
    bool looks_alike = world_.scenario.hang_looks_like_waiting;
    // Some backends wait at full speed.
    bool spins = world_.scenario.waits_spin && !has_hung;
    samples.push_back(
        {.local_rank = rank,
         .output_bytes = progress_,
         .cpu_time = spins ? world_.time.now() : Duration::zero(),
         .doing = has_hung && !looks_alike ? "sleeping in nanosleep" : "sleeping in futex_wait"});
  }
  return samples;
}

}  // namespace ddprun::sim
