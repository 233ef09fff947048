// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/failure.h"

#include <algorithm>
#include <string_view>

#include "store/base/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMessageBytes = 200;  // of a message, in a sentence

// What a worker said, in a sentence that goes to logs and terminals.
std::string quoted(std::string_view words) {
  return cut(printable(words), kMessageBytes);
}

std::string on_node(const Failure& failure) {
  return failure.node.empty() ? "" : " on " + failure.node;
}

// "node2, pid 4711".
std::string whereabouts(const Suspect& suspect) {
  std::string text = suspect.node;
  if (suspect.pid != 0) text += (text.empty() ? "pid " : ", pid ") + std::to_string(suspect.pid);
  return text.empty() ? "" : " (" + text + ")";
}

std::string describe(const Suspect& suspect, const std::string& waited_in) {
  std::string text = "rank " + std::to_string(suspect.rank) + whereabouts(suspect);
  text += suspect.has_come ? " did not come to " + waited_in : " never reached " + waited_in;
  if (!suspect.doing.empty()) text += ": it " + quoted(suspect.doing);
  return text;
}

// "exited with code 1: ValueError: boom".
std::string how_it_ended(const Failure& failure) {
  std::string text = process::to_string(failure.status);
  std::string first_line = failure.message.substr(0, failure.message.find('\n'));
  if (first_line.empty()) return text;
  return text + (failure.status.signal != 0 ? "; " : ": ") + quoted(first_line);
}

// The last whole lines of `text` that fit; the end of the last one where that does not fit either.
std::string last_lines(const std::string& text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  std::string end(end_of(text, bytes));
  std::size_t line_end = end.find('\n');
  return line_end + 1 < end.size() ? end.substr(line_end + 1) : end;
}

}  // namespace

std::string describe(const Failure& failure) {
  std::string rank = "rank " + std::to_string(failure.rank);
  if (failure.pid == 0)
    return rank + on_node(failure) + " could not be started: " + printable(failure.message);
  std::string who = rank + " (local rank " + std::to_string(failure.local_rank) + ", pid " +
                    std::to_string(failure.pid) + ")" + on_node(failure) + " ";
  if (failure.suspects.empty()) return who + how_it_ended(failure);
  return describe_suspects(failure) + "; " + who + "waited for " +
         (failure.suspect_count == 1 ? "it" : "them") + " and " + how_it_ended(failure);
}

std::string describe_suspects(const Failure& failure) {
  std::string text;
  constexpr std::size_t kInASentence = 3;
  std::size_t shown = std::min(failure.suspects.size(), kInASentence);
  for (std::size_t i = 0; i < shown; ++i)
    text += (i > 0 ? "; " : "") + describe(failure.suspects[i], failure.waited_in);
  std::size_t count = static_cast<std::size_t>(std::max(failure.suspect_count, 0));
  if (count > shown) text += "; " + std::to_string(count - shown) + " more";
  return text;
}

std::string describe_briefly(const Failure& failure) {
  if (!failure.suspects.empty()) return describe_suspects(failure);
  return "rank " + std::to_string(failure.rank) + on_node(failure) + " " + how_it_ended(failure);
}

int exit_code_of(const Failure& failure) {
  return std::clamp(failure.status.shell_code(), 1, 255);
}

Failure for_other_nodes(Failure failure) {
  if (!failure.traceback.empty()) failure.stderr_tail.clear();
  failure.traceback = last_lines(failure.traceback, kOutputBytes);
  failure.stderr_tail = last_lines(failure.stderr_tail, kOutputBytes);
  return failure;
}

void forget_output(Failure& failure) {
  failure.traceback.clear();
  failure.stderr_tail.clear();
}

}  // namespace ddprun::rendezvous
