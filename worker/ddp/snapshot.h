// SPDX-License-Identifier: BSD-3-Clause
//
// A training program's state at one moment, copied so that training can go on while it is written.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/formats/file_layout.h"
#include "worker/checkpoint/formats/manifest.h"
#include "worker/checkpoint/other_runs.h"
#include "worker/ddp/sharded_save.h"
#include "worker/ddp/tensor_file.h"
#include "worker/ddp/training_state.h"

namespace ddprun::ddp {

// The files of a checkpoint, without their endings.
inline constexpr char kModelPart[] = "model";
inline constexpr char kOptimizerPart[] = "optimizer";
inline constexpr char kOwnPart[] = "own";            // the program's own tensors
inline constexpr char kRandomPart[] = "random";      // each rank's generator
inline constexpr char kStatefulPart[] = "stateful";  // of TrainingState::stateful
inline constexpr char kRanksPart[] = "ranks";        // what each rank has of its own in the model
inline constexpr char kStateFile[] = "state.json";
inline const std::string kSaving = "save a checkpoint: ";  // how a failure's sentence begins

// Copies states, always into the same memory (TensorImage).
//
// Threads: take() and write() one after the other, in any threads.
class SnapshotTaker {
 public:
  explicit SnapshotTaker(TensorFormat format) : format_(format) {}
  ~SnapshotTaker() { end_preparation(); }

  // Asks the system for the memory that the states to come of a program like `state` will take, in
  // a thread of its own; what take() comes too early for, it asks for itself.
  void prepare(const TrainingState& state);

  // Copies `state`, the states of the ranks' generators, by their place in generator_devices() and
  // then by rank, the `stateful` tensors of all ranks, and those `of_ranks` (rank_tensors.h). Fails
  // as optimizer_tensors() and TensorImage::take() do.
  // What of `about` a snapshot cannot know stands in it already: all but the step, the version of
  // torch and the files.
  Result<void> take(const TrainingState& state, Manifest about,
                    const std::vector<std::vector<at::Tensor>>& random_states,
                    const std::vector<NamedTensor>& stateful,
                    const std::vector<NamedTensor>& of_ranks);

  // The same without the tensors of the model, the optimizer, the stateful objects, the program and
  // the ranks, which ShardWriters write.
  Result<void> take_rest(const TrainingState& state, Manifest about,
                         const std::vector<std::vector<at::Tensor>>& random_states);

  struct Outcome {
    std::string problem;            // why the checkpoint could not be written; empty when it was
    std::string notice;             // what went wrong afterwards, with the checkpoint written
    std::string of_others{};        // that another run writes into the directory
    std::filesystem::path place{};  // of what was written
    std::uint64_t bytes = 0;        // of its files, without the manifest

    // Those of the three that there are.
    std::vector<std::string> sentences() const;
  };

  // Before the first save in `directory`: what other runs write from now on stays (other_runs.h).
  void begin_run(const std::filesystem::path& directory) { others_.begin(directory); }

  // Makes what was taken last a checkpoint in `directory`, then removes old ones.
  Outcome write(const std::filesystem::path& directory, const Retention& retention);

  // The same for what take_rest() took, beside what all ranks have written to the `hidden` folder.
  Outcome finish(const std::filesystem::path& directory, const std::filesystem::path& hidden,
                 const WrittenShards& written, const Retention& retention);

 private:
  void begin_take(const TrainingState& state, Manifest about);
  Result<void> take_random(const std::vector<std::vector<at::Tensor>>& random_states);
  std::vector<FileContent> taken_files();
  void look_for_others(const std::filesystem::path& directory);
  Outcome conclude(const std::filesystem::path& directory,
                   const Result<std::filesystem::path>& place, const Retention& retention);
  Result<void> take_part(const char* part, const std::vector<NamedTensor>& tensors);
  void end_preparation();

  TensorFormat format_;
  Manifest manifest_;                         // of what was taken last, without its files
  std::map<std::string, TensorImage> parts_;  // kept, so that their memory is
  std::vector<std::string> taken_;            // the parts of what was taken last
  std::string state_json_;
  std::vector<std::filesystem::path> written_;  // that this object has published, oldest first
  OtherRuns others_;
  std::string of_others_;  // still to be said
  std::atomic<bool> must_stop_preparing_ = false;
  std::future<void> preparation_;  // its thread uses the parts
};

}  // namespace ddprun::ddp
