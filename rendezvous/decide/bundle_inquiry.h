// SPDX-License-Identifier: BSD-3-Clause
//
// A person asks for the files of all nodes (`ddpctl bundle`).  Each node packs its own, says how
// much that is, and then says it in pieces, one when it is asked for it: so the host holds no more
// than one piece of a node (bundle_piece.h).
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
struct BundleInquiry {
  std::uint64_t number = 0;       // they are counted; 0: there was none
  std::uint64_t node_bytes = 0;   // that each node may pack
  std::set<std::string> nodes{};  // that were asked
  MonoTime at{};                  // when something of it was asked for last
  bool is_over = true;            // who has asked wants nothing more
};

// How long one that nobody goes on with keeps others waiting.
inline constexpr Duration kBundlePeriod = std::chrono::seconds(15);

// Asks all nodes that can be asked to pack their files, into `most_bytes` of all together, unless
// others have asked and are not done.
void ask_for_bundle(State& state, Outgoing& out, std::uint64_t most_bytes, MonoTime now);

// Asks a node of that inquiry for a piece, unless it is not the last inquiry.
void ask_for_bundle_piece(State& state, Outgoing& out, std::uint64_t number,
                          const std::string& node, std::uint64_t piece, MonoTime now);

// Nobody wants more of that inquiry: its nodes give up what they hold.
void end_bundle(State& state, Outgoing& out, std::uint64_t number);

}  // namespace ddprun::rendezvous::coordinator

namespace ddprun::rendezvous {
namespace runs {
struct State;
}

// Where the pages of a bundle are.  RUN and NODE are encoded as store/base/percent.h says.
//   "/bundle/RUN"                     which nodes have packed how much
//   "/bundle/RUN/BYTES"               to begin one, with a PUT: all nodes into so many bytes
//   "/bundle/RUN/NUMBER/over"         to end it, with a PUT
//   "/bundle/RUN/NUMBER/NODE/PIECE"   a piece; it is asked for with a PUT
struct BundleTarget {
  enum class Kind : std::uint8_t { Overview, Begin, Over, Piece };
  Kind kind = Kind::Overview;
  std::string run;
  std::uint64_t most_bytes = 0;  // of Begin
  std::uint64_t number = 0;      // of Over and Piece
  std::string node{};            // of Piece
  std::uint64_t piece = 0;       // likewise, from 1

  friend bool operator==(const BundleTarget&, const BundleTarget&) = default;
};
std::string to_string(const BundleTarget& target);
// nullopt: another page.
std::optional<BundleTarget> bundle_target_of(std::string_view target);

// What is asked of the coordinator of a run by a PUT.
namespace coordinator {
void ask(State& state, Outgoing& out, const BundleTarget& target, MonoTime now);
}

// What a node has said: the text under keys::bundle(), which may be a stranger's; empty: nothing.
using BundleTexts = std::function<std::string(const std::string& node)>;

// The page of one run, in JSON; its fields are in rendezvous/PROTOCOL.md.  `number_before`: of the
// inquiry that there was before this was asked.  nullopt: there is no such run.
std::optional<std::string> bundle_json(const runs::State& state, const std::string& run,
                                       std::uint64_t number_before, const BundleTexts& texts,
                                       MonoTime now);

// The number of the last inquiry of a run.
std::uint64_t bundle_number(const runs::State& state, const std::string& run);

// A piece, as bundle_piece.h writes it; empty: it is not there yet.  nullopt: there is no such
// inquiry or node (any more).
std::optional<std::string> bundle_piece_text(const runs::State& state, const BundleTarget& target,
                                             const BundleTexts& texts);

}  // namespace ddprun::rendezvous
