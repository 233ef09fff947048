// SPDX-License-Identifier: BSD-3-Clause
//
// What the commands of ddpctl have in common where they say a page of runs in lines.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::cli {

using Json = nlohmann::ordered_json;
using Lines = std::vector<std::string>;

// Each with its end.
std::string text_of(const Lines& lines);

// "4.2 s", "3 min"; of what no page says in earnest the nearest that can be said.
std::string for_seconds(double seconds);

// "14:03:12", of a time in seconds since 1970, by this machine's clock and zone.
std::string clock_text(double time);

// "rank 1 on node2 was killed by SIGKILL", without its message.
std::string failure_head(const Json& failure);

// "exit code 3" of a run that is over; "no exit code" where nobody has said how it ended.
std::string exit_code_text(const Json& run);

// Whether `run`, one of a page, has this name; any has an empty one.
bool is_named(const Json& run, std::string_view name);

// Whether the worker of these vitals is no process any more.
bool has_ended(const Json& vitals);

}  // namespace ddprun::cli
