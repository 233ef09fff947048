// SPDX-License-Identifier: BSD-3-Clause
//
// ddpd's command line, judged.
#pragma once

#include <string>
#include <variant>

#include "store/base/error.h"
#include "store/server.h"

namespace ddprun::cli {

struct DdpdOptions {
  store::ServerConfig server;  // without its log
  bool has_listen = false;     // the address was given and is not the default one
  std::string port_file;       // empty for none
  std::string state_dir;       // of the run files; empty: as run_file_place() chooses
};

// What --help and --version print.
struct DdpdText {
  std::string text;
};

// Reads the arguments, the program's name first.  Fails with Errc::InvalidInput and one line that
// names the option, its value and what is accepted.
Result<std::variant<DdpdOptions, DdpdText>> read_ddpd_options(int argc, const char* const* argv);

}  // namespace ddprun::cli
