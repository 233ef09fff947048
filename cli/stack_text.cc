// SPDX-License-Identifier: BSD-3-Clause
#include "cli/stack_text.h"

#include <algorithm>
#include <map>

#include "cli/json_fields.h"
#include "store/base/count.h"

namespace ddprun::cli {
namespace {

constexpr std::size_t kShownRanges = 12;
constexpr std::size_t kShownNotes = 16;

// "load (data.py:40)": "load", "data.py:40".
std::pair<std::string, std::string> parts_of(const std::string& frame) {
  auto open = frame.rfind(" (");
  if (open == std::string::npos || !frame.ends_with(')')) return {frame, ""};
  return {frame.substr(0, open), frame.substr(open + 2, frame.size() - open - 3)};
}

std::string native_place(const Json& worker) {
  const Json& frames = field(worker, "frames");
  if (!frames.is_array() || frames.empty() || !frames.front().is_string()) return "";
  std::string frame = printable(frames.front().get_ref<const std::string&>());
  return (is_set(worker, "waits") ? "waits for its peers, in " : "in ") + frame;
}

// "a and 2 other nodes"; "a" where all are of that name.
std::string hosts_text(const std::vector<std::string>& hosts) {
  auto others = static_cast<std::size_t>(
      std::ranges::count_if(hosts, [&](const auto& host) { return host != hosts.front(); }));
  return others == 0 ? hosts.front() : hosts.front() + " and " + count_of(others, "other node");
}

bool has_no_tools(const Json& node) {
  const Json& tools = field(node, "tools");
  return tools.is_array() && tools.empty();
}

// What a node with tools says where it has no stacks.
std::string lack_of(const Json& node) {
  for (const Json& worker : field(node, "stacks")) {
    std::string problem = text(worker, "problem");
    if (!problem.empty())
      return text(node, "host") + ": no stack of rank " + std::to_string(count(worker, "rank")) +
             ": " + problem;
  }
  return "";
}

std::string unanswered(const Json& node) {
  std::string line = text(node, "host") + " has not answered";
  std::int64_t workers = count(node, "workers");
  auto first = number(node, "base_rank");
  if (!first || workers <= 0) return line;
  std::vector<std::int64_t> ranks;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(workers, 4096); ++i)
    ranks.push_back(count(node, "base_rank") + i);
  return line + " (" + ranks_text(ranks) + ")";
}

}  // namespace

std::string where_of(const Json& worker) {
  auto [function, line] = parts_of(text(worker, "place"));
  std::string in = text(worker, "in");
  if (!in.empty()) return line.empty() ? in : in + " at " + line;
  if (!function.empty()) {
    if (line.empty()) return function;
    return function == "<module>" ? line : function + "() at " + line;
  }
  std::string native = native_place(worker);
  if (!native.empty()) return native;
  std::string doing = text(worker, "doing");
  return doing.empty() ? "not known" : doing;
}

std::string ranks_text(const std::vector<std::int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t ranges = 0;
  for (std::size_t i = 0; i < ranks.size(); ++ranges) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (ranges == kShownRanges) return text + " and " + count_of(ranks.size() - i, "other");
    text += (ranges > 0 ? ", " : "") + std::to_string(ranks[i]);
    if (end > i + 1) text += '-' + std::to_string(ranks[end - 1]);
    i = end;
  }
  return text;
}

Lines stack_lines(const Json& page, std::optional<int> rank) {
  std::map<std::string, std::vector<std::int64_t>> by_place;
  Lines frames;
  Lines notes;
  std::vector<std::string> without_tools;
  for (const Json& node : field(page, "nodes")) {
    if (!is_set(node, "has_answered")) {
      notes.push_back(unanswered(node));
      continue;
    }
    for (const Json& worker : field(node, "stacks")) {
      std::int64_t own = count(worker, "rank");
      if (rank && own != *rank) continue;
      by_place[where_of(worker)].push_back(own);
      if (!rank) continue;
      frames.push_back("pid " + std::to_string(count(worker, "pid")) + " on " + text(node, "host") +
                       ", by the kernel: " + text(worker, "doing"));
      for (const Json& frame : field(worker, "frames"))
        if (frame.is_string())
          frames.push_back("  " + printable(frame.get_ref<const std::string&>()));
    }
    if (has_no_tools(node)) {
      without_tools.push_back(text(node, "host"));
    } else if (std::string lack = lack_of(node); !lack.empty()) {
      notes.push_back(lack);
    }
  }
  if (notes.size() > kShownNotes) {
    std::size_t more = notes.size() - kShownNotes;
    notes.resize(kShownNotes);
    notes.push_back("and " + count_of(more, "other node") + " likewise");
  }
  if (!without_tools.empty())
    notes.push_back("no py-spy and no eu-stack on " + hosts_text(without_tools) +
                    ": their lines are what the kernel says");
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> groups(by_place.begin(),
                                                                        by_place.end());
  for (auto& [place, ranks] : groups) std::ranges::sort(ranks);
  std::ranges::sort(groups, [](const auto& one, const auto& other) {
    if (one.second.size() != other.second.size()) return one.second.size() > other.second.size();
    return one.second.front() < other.second.front();
  });
  Lines lines;
  for (const auto& [place, ranks] : groups) lines.push_back(ranks_text(ranks) + ": " + place);
  lines.insert(lines.end(), frames.begin(), frames.end());
  lines.insert(lines.end(), notes.begin(), notes.end());
  constexpr double kNow = 1500;  // ms: younger ones are called nothing
  if (double age = number(page, "age_ms").value_or(0); age > kNow && !lines.empty())
    lines.push_back("as it was " + std::to_string(static_cast<int>(age / 1000 + 0.5)) + " s ago");
  return lines;
}

StackAnswer answer_in(const Json& page, std::optional<int> rank) {
  auto asked_rank = number(page, "rank");
  bool is_ours = count(page, "number") > 0 && is_set(page, "is_current") &&
                 (!asked_rank || (rank && static_cast<int>(*asked_rank) == *rank));
  // An older one is not repeated without a request, so what is there then was asked for before.
  if (!is_ours || number(page, "next_in_ms").value_or(0) <= 0) return StackAnswer::Other;
  for (const Json& node : field(page, "nodes"))
    if (!is_set(node, "has_answered")) return StackAnswer::Awaited;
  return StackAnswer::Complete;
}

}  // namespace ddprun::cli
