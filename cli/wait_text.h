// SPDX-License-Identifier: BSD-3-Clause
//
// Who waits at a store, and who has not come there, as lines for a terminal.
#pragma once

#include <string_view>

#include "cli/page_text.h"

namespace ddprun::cli {

// `store`: the fields `expected` and `waiting` of a store's page (store/PROTOCOL.md).  A line for
// all that wait for the same: "ranks 0-38: 'key' for 12 s; not come: rank 39 (node7, pid 71)".
// `page` has the workers of the runs of that name, by which ranks are known, and which of them have
// ended.  Who has not come is only said where most ranks of one run wait, and all are known.
Lines store_wait_lines(const Json& store, const Json& page, std::string_view run);

}  // namespace ddprun::cli
