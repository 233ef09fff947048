// SPDX-License-Identifier: BSD-3-Clause
//
// Plays seeds.  `sim --seed 17` shows one with all that happens in it; `sim --seeds 0:2000` plays
// so many and says how fast; `--file regressions.txt` plays those listed there, with `--of NAME`
// only those of that mutation; `--nodes 1000` makes each that large; `--expect-violation` succeeds
// as soon as one fails (for tests/sim/mutations).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/sim/host.h"
#include "tests/sim/node.h"
#include "tests/sim/world.h"

namespace {

struct Options {
  std::vector<std::uint64_t> seeds;
  int nodes = 0;
  bool is_traced = false;
  bool expects_violation = false;
};

struct Totals {
  std::uint64_t seeds = 0;
  std::uint64_t steps = 0;
  std::uint64_t messages = 0;
  std::uint64_t rounds = 0;
};

// A seed, the name of a mutation, and words, a line.
bool read_list(const std::string& path, const std::string& mutation, Options& options) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::uint64_t seed = 0;
    std::string name;
    if (!(words >> seed >> name)) continue;
    if (mutation.empty() || name == mutation) options.seeds.push_back(seed);
  }
  return !options.seeds.empty();
}

std::optional<Options> read(int count, char** words) {
  Options options;
  std::string file;
  std::string mutation;
  for (int i = 1; i < count; ++i) {
    std::string word = words[i];
    if (word == "--expect-violation") {
      options.expects_violation = true;
      continue;
    }
    if (++i >= count) return std::nullopt;
    if (word == "--file" || word == "--of") {
      (word == "--file" ? file : mutation) = words[i];
      continue;
    }
    char* rest = nullptr;
    std::uint64_t number = std::strtoull(words[i], &rest, 10);
    if (rest == words[i]) return std::nullopt;
    if (word == "--seed") {
      options.seeds = {number};
      options.is_traced = true;
    } else if (word == "--seeds" && *rest == ':') {
      std::uint64_t end = std::strtoull(rest + 1, nullptr, 10);
      for (std::uint64_t seed = number; seed < end; ++seed) options.seeds.push_back(seed);
    } else if (word == "--nodes") {
      options.nodes = static_cast<int>(number);
    } else {
      return std::nullopt;
    }
  }
  if (!file.empty() && !read_list(file, mutation, options)) return std::nullopt;
  return options;
}

// What did not hold, if anything.
std::string play(std::uint64_t seed, const Options& options, Totals& totals) {
  using namespace ddprun::sim;
  World world(make_scenario(seed, options.nodes), options.is_traced);
  std::string violation;
  try {
    world.run();
  } catch (const Violation& what) {
    violation = what.what();
  }
  ++totals.seeds;
  totals.steps += world.time.steps();
  totals.messages += world.oracle.messages;
  totals.rounds += world.oracle.rounds_count();
  return violation;
}

}  // namespace

int main(int count, char** words) {
  auto options = read(count, words);
  if (!options || options->seeds.empty()) {
    std::fprintf(stderr,
                 "usage: sim [--seed N | --seeds FIRST:END | --file LIST [--of NAME]] [--nodes N] "
                 "[--expect-violation]\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  Totals totals;
  int violations = 0;
  auto began = std::chrono::steady_clock::now();
  for (std::uint64_t seed : options->seeds) {
    std::string violation = play(seed, *options, totals);
    if (violation.empty()) continue;
    std::string nodes = options->nodes > 0 ? " --nodes " + std::to_string(options->nodes) : "";
    std::printf("seed %llu: %s\n  to see it: sim --seed %llu%s\n",
                static_cast<unsigned long long>(seed), violation.c_str(),
                static_cast<unsigned long long>(seed), nodes.c_str());
    if (options->expects_violation) return 0;
    if (++violations >= 10) break;
  }
  double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf("%llu seeds (%.0f a second): %llu events, %llu messages, %llu rounds; %d failed\n",
              static_cast<unsigned long long>(totals.seeds),
              static_cast<double>(totals.seeds) / took,
              static_cast<unsigned long long>(totals.steps),
              static_cast<unsigned long long>(totals.messages),
              static_cast<unsigned long long>(totals.rounds), violations);
  return violations > 0 || options->expects_violation ? 1 : 0;
}
