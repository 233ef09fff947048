// SPDX-License-Identifier: BSD-3-Clause
//
// Every option of torch 2.15's torchrun, and our own, in one table.  Parsing, the variables, --help
// and shell completion follow from it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddprun::cli {

struct OptionSpec {
  const char* name;        // torchrun's, with dashes and without the leading two
  char short_name;         // 0: none
  const char* value_name;  // what --help calls the value; nullptr: a flag
  bool has_variable;       // whether torchrun reads PET_<NAME>
  const char* group;       // under which heading --help lists it
  const char* help;
  // The words that are a value, or are among them, separated by '|', for completion; "<file>" and
  // "<dir>" are paths.  Empty: none are known.
  std::string_view choices = {};
  bool is_ours = false;  // torchrun has no such option
};

std::span<const OptionSpec> option_specs();

// "--nproc_per_node" for "nproc-per-node"; the same as with dashes where there is nothing to
// replace.
std::string with_underscores(std::string name);

// "PET_NPROC_PER_NODE".
std::string variable_of(const OptionSpec& spec);

}  // namespace ddprun::cli
