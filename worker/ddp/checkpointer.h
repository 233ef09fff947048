// SPDX-License-Identifier: BSD-3-Clause
//
// Saves a training program's state so that a crash at any moment, also in the middle of a save,
// costs the steps since the last save and nothing else; and finds the way back.
//
//   StopRequests stops(group);                   // before anything that takes time
//   Checkpointer checkpointer(group, {.directory = "checkpoints"});
//   Progress progress;
//   TrainingState state{.model = *net, .optimizer = &optimizer, .sampler = &sampler,
//                       .progress = &progress};
//   checkpointer.resume(state);                  // before DistributedDataParallel is made
//   while (...) {
//     ...; ++progress.step;
//     if (checkpointer.save_if_asked(state, stops)) return StopRequests::kExitCode;
//     if (progress.step % 100 == 0) checkpointer.save(state);
//   }
//
// A checkpoint is a folder (directory.h) of a few files (CHECKPOINTS.md), which Python reads.  The
// tensors of the model have the module's own names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/formats/file_layout.h"
#include "worker/checkpoint/formats/manifest.h"
#include "worker/ddp/process_group.h"
#include "worker/ddp/rank_agreement.h"
#include "worker/ddp/stop_requests.h"
#include "worker/ddp/training_state.h"

namespace ddprun::ddp {

class ShardWriter;

struct CheckpointerOptions {
  // Where; created when missing.  For this run alone: where another one writes to it at the same
  // time, neither removes the other's checkpoints, and a notice says so.  Only rank 0's machine
  // needs it, unless it is `sharded`.
  std::filesystem::path directory{};

  // What the tensors are written as.  Either is read.
  TensorFormat format = TensorFormat::Safetensors;

  // Lets save() return as soon as the state is copied, and a thread write the copy.  A crash may
  // then also take the save that was under way.  The copy takes rank 0 as much memory as the state.
  bool asynchronous = true;

  // Lets every rank write a part of the model's parameters and of the optimizer's state, so that
  // none needs memory for a copy of all, and of a ZeroRedundancyOptimizer none gathers the state.
  // What the ranks may have in different values, such as buffers, is rank 0's as without it.  The
  // directory must then be one that all ranks see, and save() returns when the checkpoint is on the
  // disk, `asynchronous` or not.  Such a checkpoint is resumed by any number of ranks, each of
  // which reads it, with or without this option.
  bool sharded = false;

  // Makes a save that fails a notice instead of an exception, so that a full disk does not end the
  // training.
  bool tolerate_failures = false;

  // How many complete checkpoints stay.  At least 2 survive the loss of one.
  int keep_last = 3;

  // Beside these, the checkpoints whose step is a multiple of it stay for good.  0: none.
  std::int64_t keep_every = 0;

  // Beside these, the one stays that was saved with the best metric.
  std::optional<Best> keep_best{};

  // Told what a person should know: a damaged checkpoint was passed over, another run writes to the
  // directory.  Called on rank 0, in the training thread.
  // Default: a line on stderr.
  std::function<void(const std::string& sentence)> notify{};
};

struct ResumeOptions {
  // The checkpoint of this step, and no other.  But where this run has saved before a restart, the
  // first resume() of a Checkpointer that has not saved itself goes on from the run's own newest,
  // and a notice says so: a program that asks for a step whenever it starts would else lose its
  // progress with each restart.  A later resume() takes the step: the program goes back to it.  A
  // job that Slurm begins again is another run.  Without an agent a restart cannot be told from a
  // new run, and the step is always taken.
  std::optional<std::int64_t> step{};
};

// What resume() found.
struct Resumed {
  std::filesystem::path path;  // on rank 0's machine
  Progress progress;
};

// Threads: used from the training thread.  All ranks call save(), save_if_asked(), wait() and
// resume() together.  One thread of its own writes on rank 0, while a save is under way.
class Checkpointer {
 public:
  // Touches nothing in the directory: several programs may look into one.
  Checkpointer(const ProcessGroup& group, CheckpointerOptions options);

  // The same over a process group that the program has made itself.
  Checkpointer(c10::intrusive_ptr<c10d::ProcessGroup> group, CheckpointerOptions options);

  // The same for a program of one process.
  explicit Checkpointer(CheckpointerOptions options);

  // Waits for a save that is under way; one that fails here ends in a notice.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Saves the state as it is now; rank 0 writes it.  At most one save is under way: the next waits
  // for it.  Once it is written, a power failure cannot take the checkpoint away, and those older
  // than the newest `keep_last` are removed; never one that this Checkpointer wrote in favour of an
  // older run's, nor one of another run that still writes, nor with the first save one of any other
  // run.  The first save, and one after a resume(), also removes what killed writers left
  // unfinished, and says so when the directory has checkpoints of higher steps than this one.
  // Throws the same DdpError on every rank when it cannot be written (the disk is full), or when
  // the save before it could not; old ones stay whole.  So it does where workers of a later round
  // of this run have saved: these are then left over, and write nothing.  And where the ranks have
  // models of different tensors, but for what DistributedDataParallel ignores
  // (DataParallelOptions::ignored): of that, and of the optimizer's state of it, every rank's is
  // saved, if the module was wrapped before the save.  `metric` says how good the model is, for
  // keep_best and load_best(), and only rank 0's counts; one that is not finite is as none.
  void save(const TrainingState& state, std::optional<double> metric = std::nullopt);

  // For after each committed step: saves when a rank was asked to (SIGUSR1), and when one was asked
  // to stop (SIGTERM), saves, waits until that is on the disk, and returns true: end the program
  // then, on all ranks, with StopRequests::kExitCode.  Throws as save() does.
  bool save_if_asked(const TrainingState& state, StopRequests& stops);

  // Waits until the last save is on the disk.  Throws as save() does.
  void wait();

  // Restores the newest good checkpoint on every rank, from rank 0's copy, and says which; nullopt
  // when there is none.  What DistributedDataParallel ignored comes back to the rank that had it; a
  // rank that was not there takes rank 0's.  A damaged one is passed over, with a notice, for the
  // one before it, and once that has been read it is moved aside: ".damaged-step-<number>", which
  // no program of ours touches.  Throws the same DdpError on every rank when the directory cannot
  // be read, when all that is in it is damaged, and when the checkpoint is of another model,
  // optimizer or data set, and names the first thing that differs; `state` may be half restored
  // then.  So it does when there is no good checkpoint of the step that is asked for.
  std::optional<Resumed> resume(const TrainingState& state, const ResumeOptions& options = {});

 private:
  struct Writer;
  void prepare_directory(const TrainingState& state);
  Manifest about(std::optional<double> metric) const;
  Retention retention() const;
  void save_sharded(const TrainingState& state, std::optional<double> metric,
                    const std::vector<std::vector<at::Tensor>>& random_states);
  bool is_settled(const std::string& problem, const std::string& begun);
  Checkpointer(Ranks ranks, Generation generation, CheckpointerOptions options);

  Ranks ranks_;
  Generation generation_;  // of these workers
  CheckpointerOptions options_;
  std::unique_ptr<Writer> writer_;             // on rank 0
  std::unique_ptr<ShardWriter> shard_writer_;  // with `sharded`
};

// Restores a checkpoint without changing anything on the disk, for a program that evaluates or
// exports, also beside a training that writes there.  `path` is a checkpoint's folder, or a
// directory of them, of which it takes the newest good one.  For a program of one process, or for
// each rank on its own, which must then see the files.  Throws DdpError as Checkpointer::resume()
// does, and when there is none.
Resumed load_checkpoint(const TrainingState& state, const std::filesystem::path& path);

// The same for the checkpoint in `directory` that was saved with the best metric.  One that is
// damaged is passed over, with a line on stderr, for the next best.  Throws DdpError when there is
// none with a metric.
Resumed load_best(const TrainingState& state, const std::filesystem::path& directory, Best best);

// A folder below `base` for the checkpoints of the run at hand, chosen by rank 0 and told to all
// (run_directory() in directory.h): a new one when the run starts, the same one in each later
// round, be it after a failure or because nodes were lost or came, and when Slurm begins the job
// again.
// Throws DdpError when it cannot be made.
std::filesystem::path choose_run_directory(ProcessGroup& group, const std::filesystem::path& base);

}  // namespace ddprun::ddp
