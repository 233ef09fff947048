// SPDX-License-Identifier: BSD-3-Clause
//
// The victim of kill_during_save_test.py and disk_faults_test.py.
//
//   checkpoint_writer write DIR    saves checkpoints with rising steps until it is killed, and
//                                  prints each step when it is saved; exit code 1 when one fails
//   checkpoint_writer verify DIR   prints the steps that are there, newest first; exit code 1 when
//                                  one of them is damaged
#include <algorithm>
#include <iostream>

#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/staging.h"

namespace {

namespace ddp = ddprun::ddp;

int write(const std::string& directory) {
  ddp::sweep_unfinished(directory);
  std::vector<std::filesystem::path> written;
  constexpr std::size_t kStagedBytes = 300'001;
  ddp::Staging staging;
  if (!staging.reserve(kStagedBytes)) return 1;
  std::vector<ddp::FoundCheckpoint> found = ddp::list_checkpoints(directory);
  const std::int64_t first = found.empty() ? 1 : found.front().step;
  for (std::int64_t i = 0;; ++i) {
    const std::int64_t step =
        first + i / 2;  // each twice, so that replacing one is interrupted too
    const std::string content(200'000, static_cast<char>('a' + step % 26));
    std::fill_n(staging.data(), kStagedBytes, content.front());
    ddprun::Result<std::filesystem::path> place = ddp::publish_checkpoint(
        directory, {.step = step, .world_size = 1, .torch_version = "", .files = {}},
        {{"model", {{staging.data(), kStagedBytes}}, /*is_staged=*/true},
         {"optimizer", {content, content}},
         {"state", {"{}"}}});
    if (!place) std::cerr << to_string(place.error()) << std::endl;
    if (!place) return 1;
    if (written.empty() || written.back() != *place) written.push_back(*place);
    if (!ddp::prune_checkpoints(directory, {.keep_last = 2}, written)) return 1;
    std::cout << step << std::endl;
  }
}

int verify(const std::string& directory) {
  ddp::put_back_replaced(directory);
  bool are_good = true;
  for (const ddp::FoundCheckpoint& checkpoint : ddp::list_checkpoints(directory)) {
    ddprun::Result<ddp::Manifest> manifest = ddp::verify_checkpoint(checkpoint.path);
    if (!manifest) std::cerr << to_string(manifest.error()) << std::endl;
    are_good = are_good && manifest.has_value();
    std::cout << checkpoint.step << std::endl;
  }
  return are_good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return std::string(argv[1]) == "write" ? write(argv[2]) : verify(argv[2]);
}
