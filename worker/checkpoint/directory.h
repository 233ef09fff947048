// SPDX-License-Identifier: BSD-3-Clause
//
// Checkpoints as folders: how one becomes visible whole or not at all, which ones there are, which
// are good, and when one may go.  What the files in them mean is not known here.
//
// A checkpoint is written to a hidden folder beside its place, each file synced to disk, the
// manifest last; then the folder is synced, renamed to step-<number>, and the parent synced.  A
// crash at any moment leaves the old ones untouched and at most a hidden folder to sweep.  Where
// the file system cannot exchange two names, the checkpoint that is replaced waits under a hidden
// name, and put_back_replaced() restores it if the new one never came.
//
// One run writes to a directory at a time, from one process.  Where another one does nevertheless,
// neither removes what the other has (other_runs.h), but they replace each other's of the same
// step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"
#include "worker/checkpoint/formats/manifest.h"
#include "worker/checkpoint/mapped_file.h"

namespace ddprun::ddp {

inline constexpr char kManifestName[] = "manifest.json";

// A file to write: its bytes in pieces, which must stay where they are during the call.
struct FileContent {
  std::string name;
  std::vector<std::string_view> pieces;

  // It is one piece, in memory as write_past_cache() wants it.
  bool is_staged = false;
};

struct FoundCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path path;
};

// Makes `files` the checkpoint of `manifest.step` in `directory`, which is created when missing;
// manifest.files is filled in here.  An older checkpoint of the same step is replaced.  Returns the
// checkpoint's folder.  Fails with the system's code and the file; nothing is visible then.  Fails
// with Errc::Refused when a later round of the same run has written to `directory`: this process is
// then left over from an earlier round, and must not get in the way of its successor.
Result<std::filesystem::path> publish_checkpoint(const std::filesystem::path& directory,
                                                 Manifest manifest,
                                                 const std::vector<FileContent>& files);

// The same in two steps, for files that several processes write: makes a hidden folder in
// `directory`, where the files are to be written.  Fails as publish_checkpoint() does.
Result<std::filesystem::path> begin_checkpoint(const std::filesystem::path& directory,
                                               std::int64_t step, const Generation& generation);

// Adds `files` to those of the `hidden` folder, which manifest.files lists, and makes it the
// checkpoint.  On failure the hidden folder is removed.
Result<std::filesystem::path> finish_checkpoint(const std::filesystem::path& directory,
                                                const std::filesystem::path& hidden,
                                                Manifest manifest,
                                                const std::vector<FileContent>& files);

// The folders in `directory` that are named as checkpoints, "step-" and 12 digits or more, newest
// first, good or not.  A missing directory has none.
std::vector<FoundCheckpoint> list_checkpoints(const std::filesystem::path& directory);

// The manifest of the checkpoint at `path`, when all of its files are there in full length.
// Fails with Errc::Protocol and what is wrong, with Errc::NotSupported for one of a newer format.
// Reads no other file.
Result<Manifest> inspect_checkpoint(const std::filesystem::path& path);

// As inspect_checkpoint(), and reads every file through to compare its checksum.
Result<Manifest> verify_checkpoint(const std::filesystem::path& path);

// One file of a checkpoint, compared with its length and checksum.
Result<MappedFile> map_checkpoint_file(const std::filesystem::path& path, const FileEntry& entry);

// Which of the metrics that a program gives its checkpoints is the best.
enum class Best : std::uint8_t { Lowest, Highest };

// The whole checkpoints in `directory` that have a metric, best first; of equal ones the one of the
// higher step first.
std::vector<FoundCheckpoint> list_by_metric(const std::filesystem::path& directory, Best best);

// Which checkpoints stay.
struct Retention {
  int keep_last = 3;                // the newest so many
  std::int64_t keep_every = 0;      // those whose step is a multiple of it; 0: none
  std::optional<Best> keep_best{};  // the one with the best metric
};

// Removes complete checkpoints that nothing in `retention` keeps; at least one stays.  `written`
// are the folders that this process has published, oldest first: the last one is the newest,
// whatever its step, and those of this process come before all others.  Damaged checkpoints are not
// counted.  Checkpoints with higher steps than the last one written are neither counted nor
// removed, nor are those that are `spared` (other_runs.h).  With nothing written the highest step
// is the newest.  Fails with the first that cannot be removed.
Result<void> prune_checkpoints(const std::filesystem::path& directory, const Retention& retention,
                               const std::vector<std::filesystem::path>& written,
                               const std::vector<std::filesystem::path>& spared = {});

// Renames a damaged checkpoint to ".damaged-step-<number>", or to a name with a number after it
// where that is taken.  Returns the new path.
Result<std::filesystem::path> set_aside(const std::filesystem::path& checkpoint);

// A hidden folder for process `pid` of this host to write a checkpoint to; another one with each
// call, since two may be under way.
std::string unfinished_name(std::int64_t step, int pid);

// Removes what writers left that died during a save, and completes replacements that they began.  A
// folder stays while its process lives on this host, or may live on another one, unless nothing in
// it has changed for an hour.
void sweep_unfinished(const std::filesystem::path& directory);

// Only completes replacements: puts a checkpoint back whose replacement never came, and removes one
// whose replacement stands.
void put_back_replaced(const std::filesystem::path& directory);

// Makes a new, empty folder below `base` for the checkpoints of one run, "<run id>-<number>", when
// `is_restart` is false; else returns the newest one that was so made for that run id, or a new one
// when there is none.  So a run that starts anew never takes up, nor touches, an older run's.
Result<std::filesystem::path> run_directory(const std::filesystem::path& base,
                                            const std::string& run_id, bool is_restart);

}  // namespace ddprun::ddp
