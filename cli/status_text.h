// SPDX-License-Identifier: BSD-3-Clause
//
// The page /status (store/PROTOCOL.md) as lines for a terminal.  What a server says is only shown:
// controls are quoted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/page_text.h"

namespace ddprun::cli {

// What is wanted of a page; empty `run`: all runs.
// Where runs go on that another host has, as it has said there.
Lines elsewhere_lines(const Json& page, std::string_view run);
Lines status_lines(const Json& page, std::string_view run);
Lines node_lines(const Json& page, std::string_view run);
Lines rank_lines(const Json& page, std::string_view run);
Lines report_lines(const Json& page, std::string_view run);
// For which nodes is waited; wait_text.h has who waits at a store.
Lines wait_lines(const Json& page, std::string_view run);

// One screen: the status, and below it as many ranks as fit, those with something wrong first.
Lines screen(const Json& page, std::string_view run, std::size_t columns, std::size_t rows);

// The same as JSON.
Json status_json(const Json& page, std::string_view run);
Json node_json(const Json& page, std::string_view run);
Json rank_json(const Json& page, std::string_view run);
Json report_json(const Json& page, std::string_view run);
// With "workers_store", which has who waits there; null where the host does not know it.
Json wait_json(const Json& page, std::string_view run);

}  // namespace ddprun::cli
