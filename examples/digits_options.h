// SPDX-License-Identifier: BSD-3-Clause
//
// The command line of 06_train_digits.
//
// A run that is started anew trains from the beginning, with its checkpoints in a new folder
// <checkpoint-dir>/<run id>-<number>; a restart in the same run goes on from its newest checkpoint.
// --resume FOLDER goes on in the folder of an older run.  Folders of older runs are never touched.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>

namespace digits {

struct Options {
  std::string data = "build/data/digits.csv";
  std::int64_t epochs = 8;
  std::int64_t batch_size = 32;  // samples per step, over all ranks
  double lr = 0.05;
  std::uint64_t seed = 1;
  std::string checkpoint_dir = "build/checkpoints/train_digits";
  std::string resume;
  double step_seconds = 0;
  int kill_rank = -1;
  int kill_epoch = 0;
};

inline void add_options(CLI::App& app, Options& options) {
  const CLI::Range kCount(1, 1000000);
  app.add_option("--data", options.data,
                 "The digits: 64 pixels of 0 to 16 and the label, a line each")
      ->capture_default_str();
  app.add_option("--epochs", options.epochs)->check(kCount)->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Samples per step, over all ranks")
      ->check(kCount)
      ->capture_default_str();
  app.add_option("--lr", options.lr)->check(CLI::Range(1e-9, 1e3))->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--checkpoint-dir", options.checkpoint_dir, "A folder for each run is made in it")
      ->capture_default_str();
  app.add_option("--resume", options.resume, "Go on in this folder of an older run");
  app.add_option("--step-seconds", options.step_seconds,
                 "Makes each step last that long at least, so that one can watch")
      ->check(CLI::Range(0.0, 60.0));
  auto* kill_rank = app.add_option("--kill-rank", options.kill_rank,
                                   "This rank kills itself, in the first attempt only")
                        ->check(CLI::Range(0, 1000000));
  auto* kill_epoch =
      app.add_option("--kill-epoch", options.kill_epoch, "In the middle of this epoch")
          ->check(kCount);
  kill_rank->needs(kill_epoch);
  kill_epoch->needs(kill_rank);
}

// Reads the command line into `options`; else the code to exit with.
inline std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app("Trains a small conv net on handwritten digits, with all the ranks of a run");
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    std::cerr << "train_digits: " << error.what() << " (--help lists the options)" << std::endl;
    return 2;
  }
  return std::nullopt;
}

}  // namespace digits
