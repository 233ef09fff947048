// SPDX-License-Identifier: BSD-3-Clause
#include "cli/bundle_nodes.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "agent/bundle/archive.h"
#include "agent/decide/bundle_plan.h"
#include "cli/json_fields.h"
#include "rendezvous/decide/bundle_inquiry.h"
#include "rendezvous/decide/bundle_piece.h"

namespace ddprun::cli {
namespace {

using rendezvous::BundlePiece;
using rendezvous::BundleTarget;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Kind = BundleTarget::Kind;

constexpr std::chrono::seconds kPackPatience(10);  // a node takes 6 s at most
constexpr std::chrono::seconds kPiecePatience(10);
constexpr milliseconds kShortestPause(2);
constexpr milliseconds kLongestPause(100);
constexpr int kMostRequests = 4;                                 // while others ask, too
constexpr std::uint64_t kMostUnpacked = std::uint64_t{1} << 30;  // of one node

// A node as the page has it.
struct Node {
  std::string id;
  std::string who;  // "node1 (group rank 1)"
  std::string folder;
  std::string why_not;  // it was not asked
  bool has_answered = false;
};

// Waits longer each time.
class Pauses {
 public:
  explicit Pauses(std::chrono::seconds patience) : until_(steady_clock::now() + patience) {}
  // False: the time is over.
  bool wait() {
    if (steady_clock::now() >= until_) return false;
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, kLongestPause);
    return true;
  }

 private:
  steady_clock::time_point until_;
  milliseconds pause_ = kShortestPause;
};

std::vector<Node> nodes_in(const Json& page) {
  std::vector<Node> nodes;
  std::set<std::string> folders;
  for (const Json& each : field(page, "nodes")) {
    std::string host = text(each, "host");
    auto rank = number(each, "group_rank");
    std::string place = rank ? std::to_string(count(each, "group_rank")) : "standby";
    const Json& id = field(each, "node");
    Node node{.id = id.is_string() ? id.get<std::string>() : "",
              .who = host + (rank ? " (group rank " + place + ")" : " (standing by)"),
              .folder = place + "-" + agent::as_folder_name(host),
              .why_not = is_set(each, "was_asked") ? "" : text(each, "why_not"),
              .has_answered = is_set(each, "has_answered")};
    if (!is_set(each, "was_asked") && node.why_not.empty()) node.why_not = "it was not asked";
    std::string folder = node.folder;
    for (int copy = 2; !folders.insert(node.folder).second; ++copy)
      node.folder = folder + "-" + std::to_string(copy);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

class NodesTalk {
 public:
  NodesTalk(const NodesQuestion& question, const agent::AddEntry& add,
            const std::function<void(const std::string&)>& complain)
      : question_(question), add_(add), complain_(complain) {}

  Result<void> run() {
    auto begun = begin();
    if (!begun) {
      complain_("no files of the nodes: " + to_string(begun.error()));
      return {};
    }
    std::vector<Node> nodes = await_nodes(std::move(*begun));
    Result<void> added;
    for (const Node& node : nodes) {
      if (added) added = take(node);
    }
    // What is not said is given up by the nodes themselves, some time later.
    (void)page({.kind = Kind::Over, .run = question_.run, .number = number_}, "PUT");
    return added;
  }

 private:
  Result<Json> page(const BundleTarget& target, const std::string& method = "GET") const {
    return fetch(question_.access, to_string(target), method);
  }

  // The page once the nodes pack for this request.
  Result<Json> begin() {
    BundleTarget target{
        .kind = Kind::Begin, .run = question_.run, .most_bytes = question_.most_bytes};
    for (int request = 0; request < kMostRequests; ++request) {
      Result<Json> now = page(target, "PUT");
      if (!now && to_string(now.error()).find(" says 405") != std::string::npos)
        return Error{Errc::InvalidInput, "the host of the run is an older one, which asks none"};
      if (!now) return now;
      number_ = static_cast<std::uint64_t>(std::max<std::int64_t>(count(*now, "number"), 0));
      double wait = number(*now, "next_in_ms").value_or(0);
      if (is_set(*now, "has_begun")) return now;
      if (wait <= 0) return Error{Errc::InvalidInput, why_none(*now)};
      std::cerr << "ddpctl: others have just asked for the nodes' files; asking in "
                << static_cast<int>(wait / 1000) + 1 << " s" << std::endl;
      std::this_thread::sleep_for(milliseconds(static_cast<int>(std::min(wait, 60'000.0)) + 1));
    }
    return Error{Errc::TimedOut, "others ask for them again and again"};
  }

  static std::string why_none(const Json& page) {
    std::string text = "none of them can be asked";
    for (const Node& node : nodes_in(page)) text += "; " + node.who + ": " + node.why_not;
    return text;
  }

  std::vector<Node> await_nodes(Json page_now) {
    Pauses pauses(kPackPatience);
    for (;;) {
      std::vector<Node> nodes = nodes_in(page_now);
      bool are_all_there = std::ranges::all_of(
          nodes, [](const Node& each) { return each.has_answered || !each.why_not.empty(); });
      if (are_all_there || !pauses.wait()) return nodes;
      // Without a host the nodes are named that had not answered when it was there.
      Result<Json> next = page({.kind = Kind::Overview, .run = question_.run});
      if (next && count(*next, "number") == static_cast<std::int64_t>(number_))
        page_now = std::move(*next);
    }
  }

  // Fails as `add` does; all else is a complaint.
  Result<void> take(const Node& node) {
    auto lacks = [&](const std::string& why) {
      complain_("no files of " + node.who + ": " + why);
      return Result<void>();
    };
    if (!node.why_not.empty()) return lacks(node.why_not);
    if (!node.has_answered)
      return lacks("it has not answered within " + std::to_string(kPackPatience.count()) + " s");
    Result<Fd> packed = fetch_all(node);
    if (!packed) return lacks(to_string(packed.error()));
    Result<void> added;
    std::uint64_t unpacked = 0;
    auto take_entry = [&](const agent::TarEntry& entry, const std::string& text) -> Result<void> {
      unpacked += text.size();
      if (!agent::is_plain_path(entry.name) || unpacked > kMostUnpacked)
        return Error{Errc::Protocol, "what it has sent is no bundle of a node"};
      added = add_(question_.prefix + '/' + node.folder + '/' + entry.name, text, entry.mtime, "");
      return added;
    };
    auto read = agent::read_archive(std::move(*packed), "what it has sent",
                                    {.text = agent::kMaxEntryBytes, .entry = agent::kMaxEntryBytes},
                                    take_entry);
    if (!added) return added;
    return read ? Result<void>() : lacks(to_string(read.error()));
  }

  // All pieces, in memory.
  Result<Fd> fetch_all(const Node& node) const {
    Fd file(::memfd_create("ddprun-bundle", MFD_CLOEXEC));
    if (!file) return system_error(errno, "make a file in memory");
    std::uint64_t pieces = 1;
    for (std::uint64_t piece = 1; piece <= pieces; ++piece) {
      Result<BundlePiece> now = fetch_piece(node, piece);
      if (!now) return now.error();
      if (piece == 1) pieces = rendezvous::bundle_pieces(now->bytes);
      bool is_last = piece >= pieces;
      bool is_whole = is_last || now->data.size() == rendezvous::kBundlePieceBytes;
      if (!is_whole || rendezvous::bundle_pieces(now->bytes) != pieces)
        return Error{Errc::Protocol, "it has given up what it had packed"};
      auto written = ::write(file.get(), now->data.data(), now->data.size());
      if (written != static_cast<ssize_t>(now->data.size()))
        return system_error(written < 0 ? errno : ENOSPC, "write a file in memory");
    }
    if (::lseek(file.get(), 0, SEEK_SET) != 0) return system_error(errno, "read a file in memory");
    return file;
  }

  Result<BundlePiece> fetch_piece(const Node& node, std::uint64_t piece) const {
    const std::string path = to_string(BundleTarget{.kind = Kind::Piece,
                                                    .run = question_.run,
                                                    .number = number_,
                                                    .node = node.id,
                                                    .piece = piece});
    Pauses pauses(kPiecePatience);
    Result<std::string> text = text_of_page(question_.access, path, "PUT");
    while (text && text->empty()) {
      if (!pauses.wait())
        return Error{Errc::TimedOut, "it has not said piece " + std::to_string(piece) + " within " +
                                         std::to_string(kPiecePatience.count()) + " s"};
      text = text_of_page(question_.access, path);
    }
    if (!text) return text.error();
    auto decoded = rendezvous::decode_bundle_piece(*text);
    if (!decoded) return Error{Errc::Protocol, "what the host has sent is no piece of a bundle"};
    return std::move(*decoded);
  }

  const NodesQuestion& question_;
  const agent::AddEntry& add_;
  const std::function<void(const std::string&)>& complain_;
  std::uint64_t number_ = 0;
};

}  // namespace

Result<void> add_nodes(const NodesQuestion& question, const agent::AddEntry& add,
                       const std::function<void(const std::string&)>& complain) {
  return NodesTalk(question, add, complain).run();
}

}  // namespace ddprun::cli
