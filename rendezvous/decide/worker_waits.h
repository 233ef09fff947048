// SPDX-License-Identifier: BSD-3-Clause
//
// Which workers have not come to the workers' store, and for what the others wait there, as the
// node that has this store says it, for people.  No decision depends on it.  Its text lies under
// keys::waits() in the store of the rendezvous, where the next one replaces it.
// rendezvous/PROTOCOL.md has the form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/decide/run_state.h"
#include "store/decide/pages.h"

namespace ddprun::rendezvous {

// A longer text is not read.  The first of the workers and waits are said, and of a name so many
// bytes.
inline constexpr std::size_t kMaxWaitsBytes = 32 * 1024;
inline constexpr std::size_t kMaxSaidWorkers = 64;
inline constexpr std::size_t kMaxSaidWaits = 256;
inline constexpr std::size_t kMaxSaidNames = 4;
inline constexpr std::size_t kMaxWaitNameBytes = 160;

// Of the store of this round.
std::string encode_waits(std::uint64_t round, const store::JoinProgress& progress,
                         const std::vector<store::Waiter>& waiters);

// `expected` and `waiting` as /status of that store has them (store/PROTOCOL.md), of the run's
// present round, and `waiting_count`, with those that are not said; null where nothing is known.
// `text_of` is what a node has said, which may be a stranger's: texts are quoted and cut.
nlohmann::json worker_waits(const coordinator::State& run,
                            const std::function<std::string(const std::string& node)>& text_of);

}  // namespace ddprun::rendezvous
