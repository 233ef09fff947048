// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/pace.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/decide/run_state.h"
#include "rendezvous/decide/vitals.h"
#include "rendezvous/decide/worker_waits.h"
#include "store/base/count.h"
#include "store/base/duration_text.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kLooks = 3;      // in a row that show the same, until it is believed
constexpr int kFreshGaps = 5;  // the vitals are so much finer than what is judged by them
constexpr std::size_t kKeptSteps = 1024;
constexpr std::size_t kMaxTotals = 256;

// Of the time in which the run was watched: to be called the slowest at the end.
constexpr double kOften = 0.1;  // with several times
constexpr int kSeveralTimes = 3;
constexpr double kLong = 0.25;

constexpr std::size_t kWrites = 6;  // that show a habit, and that it has ended
constexpr int kHabit = 10;          // as long as its pauses were
constexpr std::size_t kLeastWriters = 3;

constexpr int kLittleCpu = 1;                // percent of a core
constexpr std::int64_t kBeating_ms = 30000;  // an older heartbeat is no sign of life

// A number that does not grow counts no steps.
bool is_counting(const std::optional<std::int64_t>& step, int advances) {
  constexpr int kLeastAdvances = 3;
  return step && advances >= kLeastAdvances;
}

double part_of(Duration part, Duration whole) {
  return whole <= Duration::zero() ? 0 : static_cast<double>(part.count()) / whole.count();
}

Duration longest_pause(const std::deque<MonoTime>& times) {
  Duration longest{};
  for (std::size_t i = 1; i < times.size(); ++i)
    longest = std::max(longest, Duration(times[i] - times[i - 1]));
  return longest;
}

}  // namespace

std::string rank_text(int rank, const std::string& host) {
  std::string text = "rank " + std::to_string(rank);
  return host.empty() ? text : text + " (" + host + ")";
}

std::vector<RankSample> samples_of(const coordinator::State& run,
                                   const std::function<std::string(const std::string&)>& vitals) {
  std::vector<RankSample> samples;
  for (const auto& [id, node] : run.nodes) {
    bool is_here = node.is_member && node.round && node.round->number == run.round && !node.is_down;
    if (!is_here || node.has_succeeded) continue;
    auto most = static_cast<std::size_t>(std::max(node.join.participant.local_world_size, 0));
    std::optional<Vitals> said = decode_vitals(vitals(id), most);
    if (!said || said->round != run.round) continue;
    for (const WorkerVitals& worker : said->workers) {
      bool has_ended = worker.state == '-' || worker.state == 'Z' || worker.state == 'X';
      if (has_ended || worker.local_rank >= node.join.participant.local_world_size) continue;
      samples.push_back({.rank = node.round->ranks.base_rank + worker.local_rank,
                         .pid = worker.pid,
                         .host = node.join.host,
                         .number = said->number,
                         .step = worker.step,
                         .output_bytes = worker.output_bytes.value_or(0),
                         .cpu_percent = worker.cpu_percent,
                         .heartbeat_age_ms = worker.heartbeat_age_ms});
    }
  }
  return samples;
}

StoreWaits store_waits_of(const coordinator::State& run,
                          const std::function<std::string(const std::string&)>& waits) {
  nlohmann::json said = worker_waits(run, waits);
  if (!said.is_object() || said["waiting_count"] != said["waiting"].size()) return {};
  constexpr std::int64_t kLongest = 1'000'000'000'000;  // ms; a stranger may say more
  StoreWaits known;
  for (const auto& [id, node] : run.nodes) {
    if (node.is_member && node.round && node.round->number == run.round)
      known.world_size = node.round->ranks.world_size;
  }
  for (const nlohmann::json& wait : said["waiting"]) {
    if (!wait["pid"].is_number()) continue;
    known.waits.push_back({.pid = wait["pid"].get<int>(),
                           .since = std::chrono::milliseconds(
                               std::min(kLongest, wait["waiting_ms"].get<std::int64_t>()))});
  }
  return known;
}

void PaceWatch::look(std::uint64_t round, const std::vector<RankSample>& samples, MonoTime now,
                     const StoreWaits& waits) {
  if (round_ != round) {
    pause();
    round_ = round;
    reached_.clear();
    longest_gap_ = {};
  }
  Duration passed = looked_at_ ? Duration(now - *looked_at_) : Duration::zero();
  watched_ += passed;
  looked_at_ = now;
  if (update(samples, now)) reached_.clear();
  compare_steps(now);
  judge(now, passed);
  see_waits(samples, waits, now, passed);
}

void PaceWatch::pause() {
  waited_for_.clear();
  looked_at_.reset();
  round_.reset();
  workers_.clear();
}

// Whether the step of one has become less.
bool PaceWatch::update(const std::vector<RankSample>& samples, MonoTime now) {
  std::map<int, Worker> before = std::exchange(workers_, {});
  bool has_reset = false;
  for (const RankSample& sample : samples) {
    auto known = before.extract(sample.rank);
    bool is_new = known.empty();
    Worker worker = is_new ? Worker{.host = sample.host} : std::move(known.mapped());
    if (is_new || worker.number != sample.number) {
      if (!is_new) longest_gap_ = std::max(longest_gap_, Duration(now - worker.seen));
      worker.number = sample.number;
      worker.seen = now;
      bool is_beating = sample.heartbeat_age_ms && *sample.heartbeat_age_ms < kBeating_ms;
      bool is_same = !is_new && worker.pid == sample.pid && worker.step == sample.step &&
                     worker.output_bytes == sample.output_bytes;
      if (!is_same || is_beating || sample.cpu_percent > kLittleCpu) worker.active = now;
      worker.pid = sample.pid;
      bool is_less = worker.step && sample.step && *sample.step < *worker.step;
      if (worker.step && sample.step && *sample.step > *worker.step) ++worker.advances;
      if (is_less) ++worker.resets;
      has_reset |= is_less;
      worker.step = sample.step;
      if (!is_new && sample.output_bytes > worker.output_bytes) worker.writes.push_back(now);
      if (worker.writes.size() > kWrites) worker.writes.pop_front();
      worker.output_bytes = sample.output_bytes;
    }
    workers_.insert_or_assign(sample.rank, std::move(worker));
  }
  return has_reset;
}

// The step that half of the workers have reached; nullopt where they cannot be compared.
std::optional<std::int64_t> PaceWatch::common_step() const {
  std::vector<std::int64_t> steps;
  std::optional<int> resets;
  for (const auto& [rank, worker] : workers_) {
    if (!is_counting(worker.step, worker.advances)) continue;
    if (resets.value_or(worker.resets) != worker.resets) return std::nullopt;
    resets = worker.resets;
    steps.push_back(*worker.step);
  }
  if (steps.size() < 2 || steps.size() * 2 <= workers_.size()) return std::nullopt;
  auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::ranges::nth_element(steps, middle);
  return *middle;
}

void PaceWatch::compare_steps(MonoTime now) {
  std::optional<std::int64_t> step = common_step();
  if (!step) reached_.clear();
  if (step && (reached_.empty() || *step > reached_.back().first))
    reached_.emplace_back(*step, now);
  if (reached_.size() > kKeptSteps) reached_.pop_front();
  for (auto& [rank, worker] : workers_) {
    worker.late = {};
    if (!is_counting(worker.step, worker.advances)) continue;
    auto later = std::ranges::upper_bound(reached_, *worker.step, {},
                                          [](const auto& reached) { return reached.first; });
    if (later != reached_.end()) worker.late = worker.seen - later->second;
  }
}

// Where most are late, those that they were compared with have ended.  Of a worker whose node says
// nothing new, nothing new is known.
void PaceWatch::judge(MonoTime now, Duration passed) {
  const Duration limit = std::max(kBehind, kFreshGaps * longest_gap_);
  auto is_late = [&](const auto& entry) {
    return entry.second.late >= limit && now - entry.second.seen < limit;
  };
  auto with_steps = std::ranges::count_if(workers_, [](const auto& entry) {
    return is_counting(entry.second.step, entry.second.advances);
  });
  bool is_clear = std::ranges::count_if(workers_, is_late) * 2 <= with_steps;
  for (auto& entry : workers_) {
    auto& [rank, worker] = entry;
    if (!is_clear || !is_late(entry)) {
      worker.late_looks = 0;
      worker.is_counted = false;
      continue;
    }
    if (worker.seen == now) ++worker.late_looks;
    if (worker.late_looks >= kLooks) count({rank, worker.host}, worker, passed);
  }
}

void PaceWatch::count(const Who& who, Worker& worker, Duration passed) {
  if (totals_.size() >= kMaxTotals && !totals_.contains(who)) return;
  Total& total = totals_[who];
  bool is_first = !std::exchange(worker.is_counted, true);
  total.times += is_first ? 1 : 0;
  total.late += is_first ? worker.late : passed;
  total.most = std::max(total.most, worker.late);
}

// A process id that two nodes have counts as waiting on both.
void PaceWatch::see_waits(const std::vector<RankSample>& samples, const StoreWaits& waits,
                          MonoTime now, Duration passed) {
  const std::vector<Who> before = std::exchange(waited_for_, {});
  const auto size = samples.size();
  if (size < 2 || static_cast<int>(size) != waits.world_size) return;
  std::map<int, Duration> since;
  for (const StoreWait& wait : waits.waits) since[wait.pid] = std::max(since[wait.pid], wait.since);
  std::vector<Duration> waited;
  std::vector<Who> others;
  for (const RankSample& sample : samples) {
    auto found = since.find(sample.pid);
    if (found != since.end()) {
      waited.push_back(found->second);
    } else {
      others.emplace_back(sample.rank, sample.host);
    }
  }
  const std::size_t most = size == 2 ? 1 : size / 2 + 1;
  if (others.empty() || others.size() > kMostBehind || waited.size() < most) return;
  std::ranges::sort(waited, std::greater());
  const Duration long_wait = waited[most - 1];
  if (std::exchange(waited_, long_wait) != long_wait) waited_changed_ = now;
  // A node that says nothing new may stand still.
  if (long_wait < kBehind || now - waited_changed_ > kBehind) return;
  waiting_ = waited.size();
  waited_for_ = std::move(others);
  for (const Who& who : waited_for_) {
    if (waited_totals_.size() >= kMaxTotals && !waited_totals_.contains(who)) continue;
    bool is_first = std::ranges::find(before, who) == before.end();
    Total& total = waited_totals_[who];
    total.times += is_first ? 1 : 0;
    total.late += is_first ? long_wait : passed;
    total.most = std::max(total.most, long_wait);
  }
}

std::vector<Behind> PaceWatch::waited_for() const {
  std::vector<Behind> behind;
  for (const auto& [rank, host] : waited_for_) {
    behind.push_back({.rank = rank,
                      .host = host,
                      .why = "has kept " + count_of(waiting_, "other rank") +
                             " waiting at the workers' store for " + duration_text(waited_)});
  }
  return behind;
}

std::vector<Behind> PaceWatch::behind_by_steps() const {
  std::vector<std::pair<int, const Worker*>> late;
  for (const auto& [rank, worker] : workers_) {
    if (worker.late_looks >= kLooks) late.emplace_back(rank, &worker);
  }
  std::ranges::stable_sort(late, std::greater(), [](const auto& one) { return one.second->late; });
  if (late.size() > kMostBehind) late.resize(kMostBehind);
  std::vector<Behind> behind;
  for (const auto& [rank, worker] : late) {
    behind.push_back({.rank = rank,
                      .host = worker->host,
                      .why = "is " + duration_text(worker->late) + " behind: it is at step " +
                             std::to_string(*worker->step) + ", the others at " +
                             std::to_string(reached_.back().first)});
  }
  return behind;
}

// One that had written again and again, while the others still do.
std::optional<Behind> PaceWatch::silent_one() const {
  if (!looked_at_) return std::nullopt;
  std::optional<int> silent;
  std::size_t writers = 0;
  for (const auto& [rank, worker] : workers_) {
    if (worker.writes.size() < kWrites) continue;
    Duration silence = *looked_at_ - worker.writes.back();
    Duration habit = std::max(kSilent, kHabit * longest_pause(worker.writes));
    if (silence < habit) {
      ++writers;
      continue;
    }
    if (silent) return std::nullopt;  // several
    silent = rank;
  }
  bool do_others_write = writers >= kLeastWriters && writers * 4 >= (workers_.size() - 1) * 3;
  if (!silent || !do_others_write) return std::nullopt;
  const Worker& worker = workers_.at(*silent);
  for (const auto& [rank, other] : workers_) {
    // The others must have gone on for long, and not only have stopped a little later.
    bool is_writer = other.writes.size() == kWrites && rank != *silent;
    if (is_writer && other.writes.front() <= worker.writes.back()) return std::nullopt;
  }
  return Behind{.rank = *silent,
                .host = worker.host,
                .why = "has written nothing for " +
                       duration_text(*looked_at_ - worker.writes.back()) +
                       ", and the others go on writing"};
}

// Of a worker whose node says nothing new, nothing new is known.
std::map<int, MonoTime> PaceWatch::still_ones() const {
  std::map<int, MonoTime> still;
  if (!looked_at_) return still;
  const Duration fresh = std::max(kStill, kFreshGaps * longest_gap_);
  for (const auto& [rank, worker] : workers_) {
    bool is_known = *looked_at_ - worker.seen < fresh;
    if (is_known && worker.seen - worker.active >= kStill) still.emplace(rank, worker.active);
  }
  return still;
}

std::string PaceWatch::slowest() const {
  auto worst_of = [](const std::map<Who, Total>& totals) {
    const std::pair<const Who, Total>* worst = nullptr;
    for (const auto& entry : totals) {
      if (worst == nullptr || entry.second.late > worst->second.late) worst = &entry;
    }
    return worst;
  };
  const auto* worst = worst_of(totals_);
  const auto* awaited = worst_of(waited_totals_);
  bool is_by_waits =
      awaited != nullptr && (worst == nullptr || awaited->second.late > worst->second.late);
  if (is_by_waits) worst = awaited;
  if (worst == nullptr) return "";
  const auto& [who, total] = *worst;
  double part = part_of(total.late, watched_);
  bool is_clear = part >= kLong || (part >= kOften && total.times >= kSeveralTimes);
  if (!is_clear) return "";
  return rank_text(who.first, who.second) +
         (is_by_waits ? " was the slowest: others waited for it at the workers' store for "
                      : " was the slowest: behind for ") +
         duration_text(total.late) + " of " + duration_text(watched_) + " of training, " +
         (is_by_waits ? "up to " : "by up to ") + duration_text(total.most) +
         (is_by_waits ? " at once" : "");
}

Pace PaceWatch::pace() const {
  Pace pace{.behind = behind_by_steps(), .slowest = slowest(), .still = still_ones()};
  if (pace.behind.empty()) pace.behind = waited_for();
  std::optional<Behind> silent = pace.behind.empty() ? silent_one() : std::nullopt;
  if (!silent) return pace;
  if (pace.slowest.empty()) {
    pace.slowest = rank_text(silent->rank, silent->host) + " was the slowest: it " + silent->why;
  }
  pace.behind.push_back(std::move(*silent));
  return pace;
}

Pace pace_of(PaceWatch& watch, const coordinator::State& run,
             const std::function<std::string(const std::string&)>& vitals,
             const std::function<std::string(const std::string&)>& waits, MonoTime now) {
  if (run.phase == coordinator::Phase::Running) {
    watch.look(run.round, samples_of(run, vitals), now, store_waits_of(run, waits));
  } else {
    watch.pause();
  }
  return watch.pace();
}

std::vector<std::string> PaceLines::of(std::uint64_t round, const Pace& pace) {
  if (std::exchange(round_, round) != round) named_.clear();
  std::vector<std::string> lines;
  for (const Behind& one : pace.behind) {
    if (named_.insert(one.rank).second)
      lines.push_back(rank_text(one.rank, one.host) + " " + one.why);
  }
  return lines;
}

}  // namespace ddprun::rendezvous
