// SPDX-License-Identifier: BSD-3-Clause
#include "cli/options/help.h"

#include <sstream>
#include <string_view>

#include "cli/options/option_table.h"

namespace ddprun::cli {
namespace {

constexpr std::string_view kPrologue =
    "Starts, watches and restarts distributed PyTorch training: a drop-in for torchrun.\n"
    "Usage: ddprun [OPTIONS] SCRIPT [ARGUMENTS...]\n"
    "\n"
    "Options:\n";

constexpr std::string_view kEpilogue =
    "\n"
    "Options come before SCRIPT; what follows it is the script's own. Each is also spelled with\n"
    "underscores (--nproc_per_node) and read from PET_<NAME> (PET_NPROC_PER_NODE).\n"
    "Exit codes: 0 all workers succeeded; 2 bad usage, or no such script, program, GPU or log\n"
    "folder; 80 the rendezvous failed; 81 no processes, memory or descriptors to start a worker\n"
    "with; 82 all of --max-restarts are spent; 126 the program cannot be executed; 127 there is "
    "no\n"
    "such program; 128+n stopped by signal n; else the code of the worker that failed first "
    "(128+n\n"
    "when signal n killed it).\n"
    "\n";

constexpr std::size_t kNameColumns = 36;
constexpr std::size_t kHelpColumns = 100;

// One entry: the names, and the text beside them, broken at blanks.  Names that are too long have a
// line of their own.
std::string entry(std::string names, const std::string& text) {
  const std::string margin(kNameColumns, ' ');
  std::string result = "  " + std::move(names);
  result += result.size() < kNameColumns ? margin.substr(result.size()) : "\n" + margin;
  std::size_t column = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > 0 && column + 1 + word.size() > kHelpColumns - kNameColumns) {
      result += "\n" + margin;
      column = 0;
    }
    if (column > 0) result += ' ';
    result += word;
    column += word.size() + 1;
  }
  return result + "\n";
}

std::string entry(const OptionSpec& spec) {
  std::string names = spec.short_name != 0 ? "-" + std::string(1, spec.short_name) + "," : "";
  names += "--" + std::string(spec.name);
  if (spec.value_name != nullptr) names += " " + std::string(spec.value_name);
  return entry(std::move(names), spec.help);
}

}  // namespace

std::string help_text() {
  std::string text(kPrologue);
  text += entry("-h,--help", "Print this and exit");
  text += entry("--version", "Print the version and exit");
  std::string_view group;
  for (const OptionSpec& spec : option_specs()) {
    if (group != spec.group) text += "\n\n" + std::string(spec.group) + ":\n";
    group = spec.group;
    text += entry(spec);
  }
  return text + std::string(kEpilogue);
}

}  // namespace ddprun::cli
