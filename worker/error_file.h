// SPDX-License-Identifier: BSD-3-Clause
//
// A worker's last words: the file named by TORCHELASTIC_ERROR_FILE, in torch's own form, as
// torch.distributed.elastic's `record` decorator writes it (torch 2.15) and as we do.
//
//   {"message": {"message": "ValueError: no such file",
//                "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1763733600"}}}
//
// A flat form, with "message" a string, is read too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun::worker {

struct ErrorReport {
  std::string message;         // "Type: text"; may have several lines
  std::string traceback;       // empty where there is none
  std::int64_t timestamp = 0;  // seconds since 1970; 0: not said
};

// Reads an error file's text.  nullopt when it is none: a worker may have died while writing it.
std::optional<ErrorReport> parse_error_file(std::string_view text);

// Writes the nested form; `exit_code`, where given, becomes torch's "errorCode".
std::string to_error_file(const ErrorReport& report, std::optional<int> exit_code);

}  // namespace ddprun::worker
