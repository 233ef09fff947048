// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/failure.h"

#include <algorithm>

#include "store/base/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMessageBytes = 200;  // of a message, in a sentence

std::string on_node(const Failure& failure) {
  return failure.node.empty() ? "" : " on " + failure.node;
}

// "exited with code 1: ValueError: boom".
std::string how_it_ended(const Failure& failure) {
  std::string text = process::to_string(failure.status);
  std::string first_line = failure.message.substr(0, failure.message.find('\n'));
  if (first_line.empty()) return text;
  return text + (failure.status.signal != 0 ? "; " : ": ") + cut(first_line, kMessageBytes);
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
    return rank + on_node(failure) + " could not be started: " + failure.message;
  return rank + " (local rank " + std::to_string(failure.local_rank) + ", pid " +
         std::to_string(failure.pid) + ")" + on_node(failure) + " " + how_it_ended(failure);
}

std::string describe_briefly(const Failure& failure) {
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
