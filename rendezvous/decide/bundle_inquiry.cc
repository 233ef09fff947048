// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/bundle_inquiry.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "rendezvous/decide/bundle_piece.h"
#include "rendezvous/decide/outgoing.h"
#include "rendezvous/decide/run_state.h"
#include "rendezvous/decide/runs.h"
#include "store/base/number.h"
#include "store/base/percent.h"

namespace ddprun::rendezvous {
namespace coordinator {
namespace {

// Empty: it can be asked for its files.
std::string why_not_asked(const Node& node) {
  if (node.away_at) return "its connection is lost";
  if (!node.join.gives_bundle) return "its ddprun is an older one, which gives no files";
  return "";
}

void send(Outgoing& out, const BundleInquiry& inquiry, const std::string& node,
          std::uint64_t most_bytes, std::uint64_t piece) {
  out.send(node,
           command::TakeBundle{.number = inquiry.number, .most_bytes = most_bytes, .piece = piece});
}

}  // namespace

void ask_for_bundle(State& state, Outgoing& out, std::uint64_t most_bytes, MonoTime now) {
  BundleInquiry& last = state.bundle_inquiry;
  if (!last.is_over && now - last.at < kBundlePeriod) return;
  BundleInquiry next{.number = last.number + 1, .at = now, .is_over = false};
  for (const auto& [id, node] : state.nodes)
    if (why_not_asked(node).empty()) next.nodes.insert(id);
  if (next.nodes.empty()) return;
  next.node_bytes = std::clamp(most_bytes / next.nodes.size(), kLeastNodeBundle, kMostNodeBundle);
  last = std::move(next);
  for (const std::string& id : last.nodes) send(out, last, id, last.node_bytes, 0);
}

void ask_for_bundle_piece(State& state, Outgoing& out, std::uint64_t number,
                          const std::string& node, std::uint64_t piece, MonoTime now) {
  BundleInquiry& last = state.bundle_inquiry;
  bool is_of_last = number == last.number && !last.is_over && last.nodes.contains(node);
  if (!is_of_last || !state.nodes.contains(node)) return;
  last.at = now;
  send(out, last, node, last.node_bytes, piece);
}

void end_bundle(State& state, Outgoing& out, std::uint64_t number) {
  BundleInquiry& last = state.bundle_inquiry;
  if (number != last.number || std::exchange(last.is_over, true)) return;
  for (const std::string& id : last.nodes)
    if (state.nodes.contains(id)) send(out, last, id, 0, 0);
}

void ask(State& state, Outgoing& out, const BundleTarget& target, MonoTime now) {
  switch (target.kind) {
    case BundleTarget::Kind::Overview:
      return;
    case BundleTarget::Kind::Begin:
      return ask_for_bundle(state, out, target.most_bytes, now);
    case BundleTarget::Kind::Over:
      return end_bundle(state, out, target.number);
    case BundleTarget::Kind::Piece:
      return ask_for_bundle_piece(state, out, target.number, target.node, target.piece, now);
  }
}

}  // namespace coordinator

namespace {

using Json = nlohmann::ordered_json;
using coordinator::Node;

constexpr std::string_view kBundlePage = "/bundle/";
constexpr std::string_view kOver = "over";

const coordinator::State* run_of(const runs::State& state, const std::string& run) {
  auto found = state.runs.find(run);
  return found == state.runs.end() ? nullptr : &found->second;
}

Json to_json(const std::string& id, const Node& node, const coordinator::State& run,
             const BundleTexts& texts) {
  const coordinator::BundleInquiry& inquiry = run.bundle_inquiry;
  bool was_asked = inquiry.nodes.contains(id);
  std::optional<BundlePiece> said;
  if (was_asked) said = decode_bundle_piece(texts(id));
  bool has_answered = said && said->number == inquiry.number;
  std::string why = was_asked ? "" : coordinator::why_not_asked(node);
  if (!was_asked && why.empty()) why = "it has come after the question";
  return {{"node", id},
          {"host", coordinator::host_of(run, node)},
          {"group_rank", node.last_rank ? Json(*node.last_rank) : Json()},
          {"was_asked", was_asked},
          {"why_not", why.empty() ? Json() : Json(why)},
          {"has_answered", has_answered},
          {"bytes", has_answered ? Json(said->bytes) : Json()}};
}

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  for (;;) {
    auto slash = path.find('/');
    parts.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

std::string to_string(const BundleTarget& target) {
  std::string text = std::string(kBundlePage) + percent_encoded(target.run);
  switch (target.kind) {
    case BundleTarget::Kind::Overview:
      return text;
    case BundleTarget::Kind::Begin:
      return text + '/' + std::to_string(target.most_bytes);
    case BundleTarget::Kind::Over:
      return text + '/' + std::to_string(target.number) + '/' + std::string(kOver);
    case BundleTarget::Kind::Piece:
      break;
  }
  return text + '/' + std::to_string(target.number) + '/' + percent_encoded(target.node) + '/' +
         std::to_string(target.piece);
}

std::optional<BundleTarget> bundle_target_of(std::string_view target) {
  if (!target.starts_with(kBundlePage)) return std::nullopt;
  std::vector<std::string_view> parts = parts_of(target.substr(kBundlePage.size()));
  auto run = percent_decoded(parts.front());
  if (!run || parts.size() > 4) return std::nullopt;
  BundleTarget wanted{.run = std::move(*run)};
  if (parts.size() == 1) return wanted;
  auto number = number_in<std::uint64_t>(parts[1]);
  if (!number) return std::nullopt;
  if (parts.size() == 2) {
    wanted.kind = BundleTarget::Kind::Begin;
    wanted.most_bytes = *number;
    return wanted;
  }
  wanted.number = *number;
  if (parts.size() == 3) {
    wanted.kind = BundleTarget::Kind::Over;
    return parts[2] == kOver ? std::optional(wanted) : std::nullopt;
  }
  auto node = percent_decoded(parts[2]);
  auto piece = number_in<std::uint64_t>(parts[3]);
  bool is_piece = piece && *piece > 0 && *piece <= bundle_pieces(kMostNodeBundle);
  if (!node || !is_piece) return std::nullopt;
  wanted.kind = BundleTarget::Kind::Piece;
  wanted.node = std::move(*node);
  wanted.piece = *piece;
  return wanted;
}

std::uint64_t bundle_number(const runs::State& state, const std::string& run) {
  const coordinator::State* it = run_of(state, run);
  return it ? it->bundle_inquiry.number : 0;
}

std::optional<std::string> bundle_json(const runs::State& state, const std::string& run,
                                       std::uint64_t number_before, const BundleTexts& texts,
                                       MonoTime now) {
  const coordinator::State* it = run_of(state, run);
  if (it == nullptr) return std::nullopt;
  const coordinator::BundleInquiry& last = it->bundle_inquiry;
  Duration left = last.is_over ? Duration::zero() : last.at + coordinator::kBundlePeriod - now;
  Json json = {
      {"run", run},
      {"number", last.number},
      {"has_begun", last.number != number_before},
      {"next_in_ms",
       std::chrono::ceil<std::chrono::milliseconds>(std::max(left, Duration::zero())).count()},
      {"node_bytes", last.node_bytes},
      {"nodes", Json::array()}};
  std::map<std::pair<int, std::string>, const Node*> by_rank;
  for (const auto& [id, node] : it->nodes)
    by_rank[{node.last_rank.value_or(kMaxCount), id}] = &node;
  for (const auto& [place, node] : by_rank)
    json["nodes"].push_back(to_json(place.second, *node, *it, texts));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::string> bundle_piece_text(const runs::State& state, const BundleTarget& target,
                                             const BundleTexts& texts) {
  const coordinator::State* it = run_of(state, target.run);
  if (it == nullptr) return std::nullopt;
  const coordinator::BundleInquiry& last = it->bundle_inquiry;
  bool is_there = last.number == target.number && !last.is_over &&
                  last.nodes.contains(target.node) && it->nodes.contains(target.node);
  if (!is_there) return std::nullopt;
  std::string text = texts(target.node);
  auto piece = decode_bundle_piece(text);
  bool is_wanted = piece && piece->number == target.number && piece->piece == target.piece;
  return is_wanted ? text : std::string();
}

}  // namespace ddprun::rendezvous
