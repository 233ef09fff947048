// SPDX-License-Identifier: BSD-3-Clause
//
// A person asks for the stacks of the workers now.  The nodes that have them are asked, and say
// them in the store (stacks.h).  Collectors hold workers for a moment, so this may not happen
// often.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

struct State;
class Outgoing;

// The last one of a run.
struct StackInquiry {
  std::uint64_t number = 0;   // they are counted; 0: there was none
  std::optional<int> rank{};  // nullopt: of all
  std::uint64_t round = 0;
  MonoTime at{};
  std::set<std::string> nodes{};  // that were asked
};

// How long the next one waits, if others ask as well.
inline constexpr Duration kStacksPeriod = std::chrono::seconds(10);

// Asks the nodes for the stacks of all workers, or of one, unless they have been asked within
// kStacksPeriod, or no workers run, or those of a failed round are being looked at.
void ask_for_stacks(State& state, Outgoing& out, std::optional<int> rank, MonoTime now);

}  // namespace ddprun::rendezvous::coordinator

namespace ddprun::rendezvous {
namespace runs {
struct State;
}

// Where that page is: "/stacks/RUN", or "/stacks/RUN/RANK" for one rank.  RUN is encoded as
// store/base/percent.h says.
struct StacksTarget {
  std::string run;
  std::optional<int> rank{};
};
std::string to_string(const StacksTarget& target);
// nullopt: another page.
std::optional<StacksTarget> stacks_target_of(std::string_view target);

// The page about the stacks of one run, in JSON; its fields are in rendezvous/PROTOCOL.md.
// `stacks`: the text of a node, which may be a stranger's; empty where there is none.
// nullopt: there is no such run.
std::optional<std::string> stacks_json(const runs::State& state, const std::string& run,
                                       const std::function<std::string(const std::string&)>& stacks,
                                       MonoTime now);

}  // namespace ddprun::rendezvous
