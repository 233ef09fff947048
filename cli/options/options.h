// SPDX-License-Identifier: BSD-3-Clause
//
// What the user wrote: torchrun's command line and its PET_* variables, read but not yet judged
// (that is cli/config/launch_config).  One table holds every option; help, parsing and variables
// follow from it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "store/base/error.h"
#include "worker/env.h"

namespace ddprun::cli {

// A value and where it came from: "--nnodes" or "PET_NNODES".  A flag's value is "1" or "0".
struct OptionValue {
  std::string text;
  std::string origin;
};

struct Options {
  // By torchrun's long name with dashes and without the leading two: "nproc-per-node".  Only what
  // was given.
  std::map<std::string, OptionValue, std::less<>> values;

  // The training script or program, then its arguments, untouched.
  std::vector<std::string> command;
};

// A text for stdout and the end of the program with success: --help, --version,
// --print-completion; or --new-secret, whose text this file, which decides, cannot make up.
struct Answer {
  std::string text;
  bool is_new_secret = false;
};

// Reads `arguments` (without the program's name).  Options come before the script; every option has
// a spelling with dashes and one with underscores, and may be shortened while it is unambiguous;
// the command line wins over PET_<NAME>.  Fails with Errc::InvalidInput and one line.
Result<std::variant<Options, Answer>> parse_options(const std::vector<std::string>& arguments,
                                                    const worker::Lookup& environment);

}  // namespace ddprun::cli
