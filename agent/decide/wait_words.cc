// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/wait_words.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <system_error>

namespace ddprun::agent {
namespace {

using rendezvous::TimedOutWait;

// The module of torch whose outermost function is the one that the program has called.
constexpr std::string_view kModule = "distributed_c10d.py\", line ";

// Each says by itself that a time was over.
constexpr std::array<std::string_view, 11> kTimeOuts = {
    "wait timeout after ",              // a key of the store
    "seconds waiting for clients. ",    // "Timed out after 4 seconds waiting for clients. 2/3 ..."
    "Timed out waiting ",               // Gloo: "Timed out waiting 3000ms for recv operation"
    "failed to pass monitoredBarrier",  // the ranks are before it
    // Rank 0 has found out, and closes its connections.
    "successfully reached monitoredBarrier, but received errors",
    "Application timeout caused pair closure",       // Gloo, of a wait before
    " timed out in monitoredBarrier ",               //
    "Watchdog caught collective operation timeout",  // NCCL
    "Timeout waiting for key: ",                     // a store in a file
    " did not come to ",                             // worker/shm, worker/ddp
    " did not come within ",                         // worker/ddp
};

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// What was raised last, and what stands before it where there was no exception.
std::string_view last_traceback(std::string_view text) {
  auto begin = text.rfind("Traceback (most recent call last)");
  return begin == std::string_view::npos ? text : text.substr(begin);
}

std::optional<int> number_at(std::string_view text, std::size_t at) {
  int number = 0;
  auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
  return error == std::errc() && number >= 0 ? std::optional(number) : std::nullopt;
}

// "1, 3..5": the numbers from `at` on.
std::vector<int> numbers_at(std::string_view text, std::size_t at) {
  std::vector<int> numbers;
  while (numbers.size() < TimedOutWait::kMaxNamed) {
    auto number = number_at(text, at);
    if (!number) break;
    int first = numbers.empty() ? *number : numbers.back() + 1;
    bool is_range = at >= 2 && text.substr(at - 2, 2) == "..";
    for (int one = is_range ? first : *number;
         one <= *number && numbers.size() < TimedOutWait::kMaxNamed; ++one)
      numbers.push_back(one);
    at = std::min(text.find_first_not_of("0123456789", at), text.size());
    std::string_view rest = text.substr(at);
    if (!rest.starts_with(", ") && !rest.starts_with("..")) break;
    at += 2;
  }
  return numbers;
}

// The ranks that stand last before `at`: "[Rank 0]: Ranks 1, 3 failed to pass ...".
std::vector<int> ranks_before(std::string_view text, std::size_t at) {
  std::string_view before = text.substr(0, at);
  before.remove_prefix(before.rfind('\n') + 1);
  for (std::string_view word : {"Ranks ", "ranks ", "Rank ", "rank "}) {
    auto found = before.rfind(word);
    if (found != std::string_view::npos) return numbers_at(before, found + word.size());
  }
  return {};
}

// "wait timeout after 3000ms, keys: /default_pg/0//cpu//0/1": Gloo waits for the addresses of rank
// 1.  In other groups than the first one that is no rank of the run.
std::vector<int> rank_of_key(std::string_view text) {
  auto keys = text.rfind("keys: /default_pg/0//");
  if (keys == std::string_view::npos) return {};
  std::string_view key = text.substr(keys);
  key = key.substr(0, key.find_first_of(", \n", std::string_view("keys: ").size()));
  auto slash = key.rfind('/');
  // Behind the device: "cpu//0/1".  In a group made later there is its number before it.
  bool is_address = key.ends_with("/0/" + std::string(key.substr(slash + 1))) &&
                    std::ranges::count(key, '/') == 7;
  auto rank = is_address ? number_at(key, slash + 1) : std::nullopt;
  return rank ? std::vector<int>{*rank} : std::vector<int>();
}

// NCCL: "... retrieving ncclUniqueId from [0] via c10d key-value store by key '0'".
std::vector<int> rank_of_unique_id(std::string_view text) {
  constexpr std::string_view kFrom = "ncclUniqueId from [";
  auto found = text.rfind(kFrom);
  if (found == std::string_view::npos) return {};
  auto rank = number_at(text, found + kFrom.size());
  return rank ? std::vector<int>{*rank} : std::vector<int>();
}

std::vector<int> ranks_named(std::string_view text) {
  for (std::string_view words :
       {" failed to pass monitoredBarrier", " timed out in monitoredBarrier "}) {
    if (auto at = text.rfind(words); at != std::string_view::npos) return ranks_before(text, at);
  }
  for (std::string_view words : {" did not come to ", " did not come within "}) {
    if (auto at = text.rfind(words); at != std::string_view::npos) return ranks_before(text, at);
  }
  if (auto ranks = rank_of_unique_id(text); !ranks.empty()) return ranks;
  return rank_of_key(text);
}

// "File ".../distributed_c10d.py", line 4181, in all_reduce".
std::string called_function(std::string_view traceback) {
  auto frame = traceback.find(kModule);
  if (frame == std::string_view::npos) return "";
  auto in = traceback.find(", in ", frame);
  if (in == std::string_view::npos || in > traceback.find('\n', frame)) return "";
  std::string_view name = traceback.substr(in + 5);
  return std::string(name.substr(0, name.find_first_of("\n\r ")));
}

// NCCL's watchdog has no frames of Python: "OpType=ALLREDUCE".
std::string operation_of_watchdog(std::string_view text) {
  constexpr std::string_view kType = "OpType=";
  auto found = text.rfind(kType);
  if (found == std::string_view::npos) return "";
  std::string_view name = text.substr(found + kType.size());
  return std::string(name.substr(0, name.find_first_of(",) \n")));
}

std::optional<TimedOutWait> wait_in(std::string_view text) {
  std::string_view last = last_traceback(text);
  auto is_in = [&last](std::string_view words) {
    return last.find(words) != std::string_view::npos;
  };
  if (std::ranges::none_of(kTimeOuts, is_in)) return std::nullopt;
  TimedOutWait wait{.in = called_function(last),
                    .is_idle = is_in("Timed out waiting "),  // Gloo's
                    .missing = ranks_named(last)};
  if (wait.in.empty() && is_in("Watchdog caught")) wait.in = operation_of_watchdog(last);
  return wait;
}

std::optional<TimedOutWait> peer_lost_in(std::string_view text) {
  std::string_view last = last_traceback(text);
  bool is_closed = last.find("Connection closed by peer") != std::string_view::npos ||
                   last.find("Connection reset by peer") != std::string_view::npos;
  if (!is_closed) return std::nullopt;
  return TimedOutWait{.in = called_function(last), .has_lost_peer = true};
}

}  // namespace

std::optional<TimedOutWait> timed_out_wait(const std::vector<std::string>& stderr_lines) {
  return wait_in(joined(stderr_lines));
}

std::optional<TimedOutWait> timed_out_wait(const WorkerExit& exit) {
  if (exit.status.is_success()) return std::nullopt;
  if (!exit.report.message.empty() || !exit.report.traceback.empty()) {
    auto wait = wait_in(exit.report.traceback + "\n" + exit.report.message);
    if (wait) return wait;
  }
  return timed_out_wait(exit.stderr_lines);
}

std::optional<TimedOutWait> lost_peer(const WorkerExit& exit) {
  if (exit.status.is_success()) return std::nullopt;
  return peer_lost_in(exit.report.traceback + "\n" + exit.report.message + "\n" +
                      joined(exit.stderr_lines));
}

std::optional<TimedOutWait> lost_peer(const std::vector<std::string>& stderr_lines) {
  return peer_lost_in(joined(stderr_lines));
}

}  // namespace ddprun::agent
