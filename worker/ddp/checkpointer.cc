// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpointer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <iostream>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "worker/checkpoint/directory.h"
#include "worker/ddp/environment.h"
#include "worker/ddp/error.h"
#include "worker/ddp/optimizer_state.h"
#include "worker/ddp/random_streams.h"
#include "worker/ddp/rank_tensors.h"
#include "worker/ddp/saved_checkpoint.h"
#include "worker/ddp/sharded_save.h"
#include "worker/ddp/snapshot.h"
#include "worker/ddp/state_json.h"
#include "worker/ddp/stateful_tensors.h"
#include "worker/ddp/timeline_note.h"
#include "worker/ddp/zero_optimizer.h"

namespace ddprun::ddp {
namespace {

namespace fs = std::filesystem;

// Puts a checkpoint that is complete on this rank into the program's objects.
Result<void> apply(const TrainingState& state, const SavedCheckpoint& saved, const Ranks& ranks) {
  TensorMap model = saved.part(kModelPart);
  TensorMap optimizer = saved.part(kOptimizerPart);
  take_rank_tensors(saved.part(kRanksPart), ranks.rank(), model, optimizer);
  Result<void> done = check_optimizer(state, saved.state_json);
  if (done) done = restore_model(state.model, model);
  if (done && state.optimizer && saved.has(kOptimizerPart)) {
    done = restore_optimizer(*state.optimizer, state.model, optimizer);
  }
  if (done) done = restore_json(state, saved.state_json);
  if (!done) return done;
  if (state.tensors && saved.has(kOwnPart)) {
    state.tensors->clear();
    for (const auto& [name, tensor] : saved.part(kOwnPart)) {
      (*state.tensors)[name] = tensor.clone();  // of its own, and not the file's
    }
  }
  if (!state.stateful.empty() && saved.has(kStatefulPart)) {
    done = restore_stateful(state.stateful, saved.part(kStatefulPart), ranks);
    if (!done) return done;
  }
  if (!state.random_numbers || !saved.has(kRandomPart)) return {};
  const TensorMap& random = saved.part(kRandomPart);
  const std::vector<at::Device> devices = generator_devices(state.model);
  const bool is_same_world = random.contains(random_name(0, ranks.world_size() - 1)) &&
                             !random.contains(random_name(0, ranks.world_size()));
  // A state for each device, or else a stream of this rank's own where there is none.
  if (!is_same_world || !random.contains(random_name(devices.size() - 1, ranks.rank()))) {
    start_random_stream(seed_in(saved.state_json), ranks.rank(), saved.step);
  }
  return is_same_world ? restore_random_states(random, ranks.rank(), devices) : Result<void>();
}

// The states of all ranks' generators, by device and rank; of as many devices as every rank has.
std::vector<std::vector<at::Tensor>> gather_random_states(const torch::nn::Module& module,
                                                          const Ranks& ranks) {
  const std::vector<at::Tensor> own = random_states(generator_devices(module));
  auto places = static_cast<std::int64_t>(own.size());
  for (const at::Tensor& count : ranks.all_gather(at::full({1}, places, at::kLong))) {
    places = std::min(places, count.item<std::int64_t>());
  }
  std::vector<std::vector<at::Tensor>> all;
  for (std::int64_t place = 0; place < places; ++place) {
    all.push_back(ranks.all_gather(own[static_cast<std::size_t>(place)]));
  }
  return all;
}

// Its state is on rank 0 while one of these lives.
class Consolidated {
 public:
  explicit Consolidated(torch::optim::Optimizer* optimizer)
      : optimizer_(dynamic_cast<ShardedOptimizer*>(optimizer)) {
    if (optimizer_) optimizer_->consolidate_state();
  }
  ~Consolidated() {
    if (optimizer_) optimizer_->drop_consolidated_state();
  }
  Consolidated(const Consolidated&) = delete;
  Consolidated& operator=(const Consolidated&) = delete;

 private:
  ShardedOptimizer* optimizer_;
};

// A save, as the timeline of the run shows it.
struct DrawnSave {
  std::string file;  // of the timeline; empty: nowhere
  WallTime begin{};
  std::int64_t step = 0;
  std::int64_t epoch = 0;

  static DrawnSave begun(std::string file, const TrainingState& state) {
    DrawnSave save{.file = std::move(file), .begin = std::chrono::system_clock::now()};
    if (!state.progress) return save;
    save.step = state.progress->step;
    save.epoch = state.progress->epoch;
    return save;
  }

  void draw(const SnapshotTaker::Outcome& outcome) const noexcept {
    if (file.empty()) return;
    try {
      note_in_timeline(file, slice(outcome));
    } catch (const std::exception&) {  // no memory
    }
  }

 private:
  worker::TimelineSlice slice(const SnapshotTaker::Outcome& outcome) const {
    const bool is_saved = outcome.problem.empty();
    worker::TimelineSlice slice{
        .name = is_saved ? "checkpoint" : "failed checkpoint",
        .begin = begin,
        // The clock may have been set.
        .end = std::max(begin, WallTime(std::chrono::system_clock::now())),
        .facts = {{"step", std::to_string(step)}, {"epoch", std::to_string(epoch)}}};
    if (is_saved) {
      slice.facts.emplace_back("folder", outcome.place.string());
      slice.facts.emplace_back("bytes", std::to_string(outcome.bytes));
    } else {
      slice.facts.emplace_back("problem", outcome.problem);
    }
    return slice;
  }
};

void print(const std::string& sentence) {
  std::cerr << sentence << std::endl;
}

// What `action` returns; exceptions of LibTorch and others (no memory) become a failure, so that a
// rank does not leave the others waiting.
template <class Action>
auto without_throwing(const std::string& what, Action action) -> decltype(action()) {
  try {
    return action();
  } catch (const c10::Error& error) {
    return Error{Errc::LimitExceeded, what + ": " + error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return Error{Errc::LimitExceeded, what + ": " + error.what()};
  }
}

// On the other ranks than rank 0, which has compared the checksums.
void read_with_the_others(std::optional<SavedCheckpoint>& saved, const std::string& path,
                          std::string& problem) {
  auto read = without_throwing("read " + path, [&] { return read_verified_checkpoint(path); });
  if (read) {
    saved = std::move(*read);
  } else {
    problem = "resume: every rank must see a sharded checkpoint: " + to_string(read.error());
  }
}

// Puts what was read for a program of one process into its objects; throws DdpError when nothing
// was, which `none` says.
Resumed restored(const TrainingState& state, const Result<std::optional<SavedCheckpoint>>& loaded,
                 const std::string& none) {
  if (!loaded) throw DdpError("load a checkpoint: " + to_string(loaded.error()));
  if (!*loaded) throw DdpError("load a checkpoint: " + none);
  const SavedCheckpoint& saved = **loaded;
  Result<void> done =
      without_throwing("restore the state", [&] { return apply(state, saved, Ranks(nullptr)); });
  if (!done) throw DdpError("load " + saved.path.string() + ": " + to_string(done.error()));
  Resumed resumed{.path = saved.path, .progress = {}};
  if (state.progress) resumed.progress = *state.progress;
  return resumed;
}

}  // namespace

// Rank 0's part of a save.
struct Checkpointer::Writer {
  explicit Writer(TensorFormat format) : taker(format) {}

  const std::string timeline = timeline_file_in_environment();

  SnapshotTaker taker;
  std::future<SnapshotTaker::Outcome> under_way;
  bool is_prepared = false;  // the directory, for this run's saves
  bool has_begun = false;    // this Checkpointer has saved or resumed: what comes is no restart

  // The outcome of the save under way, when there is one; waits for it.
  SnapshotTaker::Outcome finish() {
    return under_way.valid() ? under_way.get() : SnapshotTaker::Outcome{};
  }
};

Checkpointer::Checkpointer(const ProcessGroup& group, CheckpointerOptions options)
    : Checkpointer(Ranks(group.c10d()),
                   {.run_uuid = group.env().run_uuid, .round = group.env().round},
                   std::move(options)) {}

Checkpointer::Checkpointer(c10::intrusive_ptr<c10d::ProcessGroup> group,
                           CheckpointerOptions options)
    : Checkpointer(Ranks(std::move(group)), generation_in_environment(), std::move(options)) {}

Checkpointer::Checkpointer(CheckpointerOptions options)
    : Checkpointer(Ranks(nullptr), generation_in_environment(), std::move(options)) {}

Checkpointer::Checkpointer(Ranks ranks, Generation generation, CheckpointerOptions options)
    : ranks_(std::move(ranks)), generation_(std::move(generation)), options_(std::move(options)) {
  if (!options_.notify) {
    options_.notify = print;
  }
  if (options_.sharded) {
    shard_writer_ =
        std::make_unique<ShardWriter>(options_.format, ranks_.rank(), ranks_.world_size());
  }
  if (ranks_.rank() != 0) return;
  writer_ = std::make_unique<Writer>(options_.format);
}

Checkpointer::~Checkpointer() {
  if (!writer_) return;
  for (const std::string& sentence : writer_->finish().sentences()) options_.notify(sentence);
}

// Before the first save, which makes this program the directory's writer.
void Checkpointer::prepare_directory(const TrainingState& state) {
  if (writer_->is_prepared) return;
  sweep_unfinished(options_.directory);
  const std::int64_t step = state.progress ? state.progress->step : 0;
  const std::vector<FoundCheckpoint> found = list_checkpoints(options_.directory);
  writer_->is_prepared = true;
  writer_->has_begun = true;
  if (found.empty() || found.front().step <= step) return;
  options_.notify(options_.directory.string() + " has a checkpoint of step " +
                  std::to_string(found.front().step) + ", ahead of this run's step " +
                  std::to_string(step) +
                  ": it stays, and resume() will take it rather than this run's; give this run a "
                  "directory of its own, or move the others away");
}

Manifest Checkpointer::about(std::optional<double> metric) const {
  if (metric && !std::isfinite(*metric)) metric.reset();
  return {.world_size = ranks_.world_size(),
          .torch_version = {},
          .generation = generation_,
          .metric = metric,
          .files = {}};
}

Retention Checkpointer::retention() const {
  return {.keep_last = options_.keep_last,
          .keep_every = options_.keep_every,
          .keep_best = options_.keep_best};
}

void Checkpointer::save(const TrainingState& state, std::optional<double> metric) {
  if (state.progress && state.progress->step < 0) {
    throw DdpError("save a checkpoint: its step is " + std::to_string(state.progress->step) +
                   ": steps are counted from 0");
  }
  wait();
  check_same_models(state.model, ranks_);
  std::vector<std::vector<at::Tensor>> random_states;
  if (state.random_numbers) random_states = gather_random_states(state.model, ranks_);
  if (options_.sharded) return save_sharded(state, metric, random_states);
  const std::vector<NamedTensor> stateful = gather_stateful_tensors(state.stateful, ranks_);
  const std::vector<NamedTensor> of_ranks = gather_rank_tensors(state, ranks_);
  const Consolidated consolidated(state.optimizer);
  std::string problem;
  if (writer_) {
    Result<void> looked = without_throwing("look at the directory", [&] {
      prepare_directory(state);
      return Result<void>();
    });
    if (!looked && options_.tolerate_failures) options_.notify(to_string(looked.error()));
    if (!looked && !options_.tolerate_failures) problem = kSaving + to_string(looked.error());
    auto drawn = DrawnSave::begun(writer_->timeline, state);
    // What a program gets wrong, such as an optimizer whose state cannot be saved, is not
    // tolerated.
    Result<void> taken = without_throwing("copy the state", [&] {
      return writer_->taker.take(state, about(metric), random_states, stateful, of_ranks);
    });
    if (taken && problem.empty()) {
      writer_->under_way =
          std::async(std::launch::async, [taker = &writer_->taker, directory = options_.directory,
                                          kept = retention(), drawn = std::move(drawn)] {
            SnapshotTaker::Outcome outcome = taker->write(directory, kept);
            drawn.draw(outcome);
            return outcome;
          });
    } else if (!taken) {
      problem = kSaving + to_string(taken.error());
    }
  }
  ranks_.throw_first_problem(problem);
  if (!options_.asynchronous) wait();
}

// Whether no rank has a `problem`; else the `begun` folder, if there is one, is removed, and the
// problem thrown or, where that is tolerated, told.
bool Checkpointer::is_settled(const std::string& problem, const std::string& begun) {
  const std::string first = ranks_.first_problem(problem);
  if (first.empty()) return true;
  std::error_code ignored;
  if (writer_ && !begun.empty()) fs::remove_all(begun, ignored);
  if (!options_.tolerate_failures) throw DdpError(first);
  if (writer_) options_.notify(first);
  return false;
}

// Rank 0 makes the folder, all write into it, and rank 0 adds the rest and makes it a checkpoint.
void Checkpointer::save_sharded(const TrainingState& state, std::optional<double> metric,
                                const std::vector<std::vector<at::Tensor>>& random_states) {
  const std::vector<NamedTensor> stateful = own_stateful_tensors(state.stateful, ranks_);
  const std::vector<NamedTensor> of_rank = own_rank_tensors(state, ranks_);
  const auto drawn = DrawnSave::begun(writer_ ? writer_->timeline : "", state);
  std::string folder;
  std::string problem;
  auto ask = [&](const std::string& what, auto action) {
    auto result = without_throwing(what, action);
    if (!result) problem = kSaving + to_string(result.error());
    return result;
  };
  if (writer_) {
    const std::int64_t step = state.progress ? state.progress->step : 0;
    auto begun = ask("begin", [&] {
      prepare_directory(state);
      return begin_checkpoint(options_.directory, step, generation_);
    });
    if (begun) folder = fs::absolute(*begun).string();
  }
  if (!is_settled(problem, folder)) return;
  folder = ranks_.broadcast_text(folder);
  auto own =
      ask("write a part", [&] { return shard_writer_->write(state, folder, stateful, of_rank); });
  if (!is_settled(problem, folder)) return;
  const std::vector<std::string> texts = ranks_.gather_text(to_text(*own));
  if (writer_) {
    auto written = ask("put the parts together", [&] { return merge(texts); });
    if (written) {
      auto taken = ask("copy the state", [&] {
        return writer_->taker.take_rest(state, about(metric), random_states);
      });
      if (taken) {
        SnapshotTaker::Outcome outcome =
            writer_->taker.finish(options_.directory, folder, *written, retention());
        drawn.draw(outcome);
        problem = std::exchange(outcome.problem, "");
        for (const std::string& sentence : outcome.sentences()) options_.notify(sentence);
      }
    }
  }
  is_settled(problem, folder);
}

bool Checkpointer::save_if_asked(const TrainingState& state, StopRequests& stops) {
  const StopRequests::Asked asked = stops.poll();
  if (asked == StopRequests::Asked::Nothing) return false;
  save(state);
  if (asked == StopRequests::Asked::Save) return false;
  wait();
  return true;
}

void Checkpointer::wait() {
  std::string problem;
  if (writer_) {
    SnapshotTaker::Outcome outcome = writer_->finish();
    if (!options_.tolerate_failures) problem = std::exchange(outcome.problem, "");
    for (const std::string& sentence : outcome.sentences()) options_.notify(sentence);
  }
  ranks_.throw_first_problem(problem);
}

std::optional<Resumed> Checkpointer::resume(const TrainingState& state,
                                            const ResumeOptions& options) {
  wait();
  std::optional<SavedCheckpoint> saved;
  std::string problem;
  if (writer_) {
    auto loaded = without_throwing("read " + options_.directory.string(), [&] {
      put_back_replaced(options_.directory);
      writer_->taker.begin_run(options_.directory);
      return load_to_resume(options_.directory,
                            {.step = options.step,
                             .run_uuid = generation_.run_uuid,
                             .is_restart = !writer_->has_begun},
                            options_.notify);
    });
    if (loaded) {
      saved = std::move(*loaded);
    } else {
      problem = "resume: " + to_string(loaded.error());
    }
  }
  ranks_.throw_first_problem(problem);
  std::string path = ranks_.broadcast_text(saved ? saved->path.string() : "");
  if (!path.empty()) {
    const std::string seen_by_all =
        ranks_.broadcast_text(saved && saved->is_sharded ? fs::absolute(saved->path).string() : "");
    if (!seen_by_all.empty()) {
      if (!saved) read_with_the_others(saved, seen_by_all, problem);
      ranks_.throw_first_problem(problem);
    } else {
      if (!saved) saved.emplace();
      share(ranks_, *saved);
    }
    Result<void> done =
        without_throwing("restore the state", [&] { return apply(state, *saved, ranks_); });
    ranks_.throw_first_problem(done ? "" : "resume from " + path + ": " + to_string(done.error()));
  }
  if (writer_) {
    writer_->has_begun = true;
    writer_->is_prepared = false;  // the next save may be behind what is there
  }
  if (writer_ && !options_.sharded) writer_->taker.prepare(state);
  if (path.empty()) return std::nullopt;

  Resumed resumed{.path = path, .progress = {}};
  if (state.progress) resumed.progress = *state.progress;
  return resumed;
}

Resumed load_checkpoint(const TrainingState& state, const fs::path& path) {
  auto loaded = without_throwing("read " + path.string(), [&] {
    return fs::exists(path / kManifestName) ? load_one_checkpoint(path)
                                            : load_newest_checkpoint(path, print);
  });
  return restored(state, loaded, path.string() + " has none");
}

Resumed load_best(const TrainingState& state, const fs::path& directory, Best best) {
  auto loaded = without_throwing("read " + directory.string(),
                                 [&] { return load_best_checkpoint(directory, best, print); });
  return restored(state, loaded, directory.string() + " has none that was saved with a metric");
}

fs::path choose_run_directory(ProcessGroup& group, const fs::path& base) {
  Ranks ranks(group.c10d());
  std::string folder;
  std::string problem;
  if (group.rank() == 0) {
    // A round after a lost or a joining node is no failure restart, but no start either.
    const worker::WorkerEnv& env = group.env();
    bool is_restart = env.restart_count > 0 || env.round > 0 || env.requeue_count > 0;
    const std::string& name = env.job_id.empty() ? env.run_id : env.job_id;
    Result<fs::path> chosen = run_directory(base, name, is_restart);
    if (chosen) {
      folder = chosen->string();
    } else {
      problem = to_string(chosen.error());
    }
  }
  ranks.throw_first_problem(problem);
  return ranks.broadcast_text(folder);
}

}  // namespace ddprun::ddp
