// SPDX-License-Identifier: BSD-3-Clause
#include "cli/explain_text.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>

#include "cli/json_fields.h"
#include "rendezvous/decide/failure.h"
#include "store/base/count.h"

namespace ddprun::cli {
namespace {

constexpr std::size_t kShownEvents = 7;
constexpr std::size_t kLineBytes = 240;

// With milliseconds.
std::string exact_clock_text(double time) {
  time = std::clamp(time, 0.0, 1e12);
  auto seconds = static_cast<std::time_t>(time);
  char text[16];
  std::snprintf(text, sizeof text, ".%03d", static_cast<int>((time - seconds) * 1000));
  return clock_text(time) + text;
}

double time_of(const Json& event) {
  return number(event, "time").value_or(0);
}

// What a stop or an end was, between the round before and the one after; a field is null where
// there is none.
struct Turn {
  Json stop;  // of history: "stop", or "end"
  Json round;
  Json next;
  std::vector<Json> events;  // of nodes, since the round before began
};

Turn last_turn(const Json& run) {
  Turn turn;
  for (const Json& event : field(run, "history")) {
    std::string what = text(event, "what");
    if (what == "round") {
      (turn.stop.is_null() ? turn.round : turn.next) = event;
      continue;
    }
    // The stop behind an end that says no reason has led to no round.
    if (!turn.next.is_null()) turn = {.stop = {}, .round = turn.next, .next = {}, .events = {}};
    bool says_why = !text(event, "why").empty() || turn.stop.is_null();
    if (what == "stop" || says_why) turn.stop = event;
  }
  double from = turn.stop.is_null() ? 0 : time_of(turn.round);
  double to = turn.next.is_null() ? 1e18 : time_of(turn.next);
  for (const Json& event : field(run, "events"))
    if (time_of(event) > from && time_of(event) <= to) turn.events.push_back(event);
  // Of many, those that say why.
  bool is_stop = !turn.stop.is_null() && text(turn.stop, "cause") != "joined";
  if (is_stop && turn.events.size() > kShownEvents)
    std::erase_if(turn.events, [](const Json& event) { return text(event, "what") == "joined"; });
  return turn;
}

std::string failure_text(const Json& failure) {
  std::string message = text(failure, "message");
  return failure_head(failure) + (message.empty() ? "" : ": " + message);
}

// That of this stop: the last one, unless it was for another reason.
const Json* failure_of(const Json& run, const Turn& turn) {
  const Json& failures = field(run, "failures");
  bool is_failure = text(turn.stop, "cause") == "failed" || text(turn.stop, "what") == "end" ||
                    turn.stop.is_null();
  return is_failure && failures.is_array() && !failures.empty() ? &failures.back() : nullptr;
}

std::string meaning_of(const std::string& cause) {
  if (cause == "failed") return "a worker failed, which costs one restart";
  if (cause == "lost") return "a node was lost, which costs no restart";
  if (cause == "left") return "a node was told to stop and left, which costs no restart";
  if (cause == "cut_off") return "a node was cut off from the others, which costs no restart";
  if (cause == "rendezvous") return "the rendezvous was lost, which costs no restart";
  if (cause == "joined") return "a node joined, which costs no restart";
  return cause;
}

std::string round_text(const Json& round) {
  return "round " + std::to_string(count(round, "round"));
}

std::string size_text(const Json& round) {
  return count_of(static_cast<std::size_t>(std::max<std::int64_t>(count(round, "workers"), 0)),
                  "worker") +
         " on " +
         count_of(static_cast<std::size_t>(std::max<std::int64_t>(count(round, "nodes"), 0)),
                  "node");
}

std::string title(const Json& run) {
  std::string line = text(run, "run") + ": ";
  if (run.contains("exit_code")) {
    line += "over for " + for_seconds(number(run, "ago_s").value_or(0)) + ", with " +
            exit_code_text(run);
    if (field(run, "restart_count").is_null()) return line;
    auto restarts = std::max<std::int64_t>(count(run, "restart_count"), 0);
    return line + ", after " + count_of(static_cast<std::size_t>(restarts), "restart");
  }
  return line + text(run, "state") + " for " + for_seconds(number(run, "in_state_s").value_or(0)) +
         ", restart " + std::to_string(count(run, "restart_count")) + " of " +
         std::to_string(count(run, "max_restarts"));
}

void add_cause(const Json& run, const Turn& turn, Lines& lines) {
  const Json* failure = failure_of(run, turn);
  std::string why = text(turn.stop, "why");
  auto add_why = [&] {
    const std::string suspects = failure == nullptr ? "" : text(*failure, "suspects");
    if (!suspects.empty()) lines.push_back("why: " + suspects);
    if (!why.empty()) lines.push_back((suspects.empty() ? "why: " : "so: ") + why);
  };
  if (text(turn.stop, "what") == "stop") {
    std::string after = turn.round.is_null()
                            ? ""
                            : ", after " + for_seconds(time_of(turn.stop) - time_of(turn.round));
    lines.push_back(round_text(turn.stop) + " was stopped at " +
                    exact_clock_text(time_of(turn.stop)) + after + ": " +
                    meaning_of(text(turn.stop, "cause")));
    add_why();
  } else if (!turn.stop.is_null()) {
    lines.push_back("the run ended at " + exact_clock_text(time_of(turn.stop)));
    if (why.empty() && failure != nullptr) why = failure_text(*failure);
    add_why();
  } else if (run.contains("exit_code")) {  // nothing is known but the verdict
    why = text(run, "why");
    if (why.empty() && failure != nullptr) why = failure_text(*failure);
    add_why();
  }
  if (failure == nullptr) return;
  if (std::string logs = text(*failure, "log_path"); !logs.empty())
    lines.push_back("its logs: " + logs);
}

void add_events(const Turn& turn, Lines& lines) {
  if (turn.events.empty()) return;
  std::size_t shown = std::min(turn.events.size(), kShownEvents);
  lines.push_back("what the host heard from the nodes" +
                  (shown < turn.events.size() ? " (the first " + std::to_string(shown) + " of " +
                                                    std::to_string(turn.events.size()) + ")"
                                              : std::string()) +
                  ":");
  for (std::size_t i = 0; i < shown; ++i) {
    std::string host = text(turn.events[i], "host");
    lines.push_back("  " + exact_clock_text(time_of(turn.events[i])) + "  " +
                    (host.empty() ? "" : host + " ") + text(turn.events[i], "text"));
  }
}

void add_since(const Json& run, const Turn& turn, Lines& lines) {
  if (!turn.next.is_null()) {
    lines.push_back(round_text(turn.next) + " began " +
                    for_seconds(time_of(turn.next) - time_of(turn.stop)) + " later, with " +
                    size_text(turn.next));
  }
  if (std::string waits = text(run, "waiting_for"); !waits.empty())
    lines.push_back("since then: " + waits);
}

int whole(const Json& json, const char* name) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::clamp<std::int64_t>(count(json, name), 0, kMost));
}

// "rank 1 (node2, pid 7) did not come to all_reduce: it sleeps in load (data.py:40)", of a failure
// of report.json; empty: nobody is suspected.
std::string suspects_text(const Json& json) {
  rendezvous::Failure failure{.waited_in = text(json, "waited_in"),
                              .suspect_count = whole(json, "suspect_count")};
  if (failure.waited_in.empty()) failure.waited_in = "what the others waited for";
  for (const Json& suspect : field(json, "suspects")) {
    failure.suspects.push_back({.rank = whole(suspect, "rank"),
                                .pid = whole(suspect, "pid"),
                                .node = text(suspect, "node"),
                                .has_come = is_set(suspect, "has_come"),
                                .doing = text(suspect, "doing")});
  }
  return failure.suspects.empty() ? "" : rendezvous::describe_suspects(failure);
}

// With who is suspected, and its last words.
std::string reported_failure(const Json& failure) {
  std::string suspects = suspects_text(failure);
  std::string words = text(failure, "message");
  if (words.empty()) words = text(failure, "cause");
  return (suspects.empty() ? "" : suspects + "; so ") + failure_head(failure) +
         (words.empty() ? "" : ": " + words);
}

std::string report_title(const Json& report) {
  std::string line = text(report, "run_id") + ": over, with " + exit_code_text(report);
  const Json& time = field(report, "time");
  double up = number(time, "up").value_or(0);
  if (up <= 0) return line;
  char part[32];
  std::snprintf(part, sizeof part, "%.1f %%", 100 * number(time, "training").value_or(0) / up);
  return line + ", after " + for_seconds(up) + ", " + part + " of it training";
}

// "3 restarts: 2 x failed on node7 (41 s), ..."
std::string restarts_text(const Json& report) {
  std::int64_t restarts = 0;
  std::string causes;
  for (const Json& each : field(field(report, "time"), "restarts")) {
    restarts += count(each, "count");
    std::string node = text(each, "node");
    causes += (causes.empty() ? "" : ", ") + std::to_string(count(each, "count")) + " x " +
              text(each, "cause") + (node.empty() ? "" : " on " + node) + " (" +
              for_seconds(number(each, "cost").value_or(0)) + ")";
  }
  return restarts > 0 ? count_of(restarts, "restart") + ": " + causes : "";
}

void add_earlier_failures(const Json& failures, bool has_root_cause, Lines& lines) {
  constexpr std::size_t kShownFailures = 5;
  std::size_t earlier = failures.size() - (has_root_cause && !failures.empty() ? 1 : 0);
  std::size_t first = earlier > kShownFailures ? earlier - kShownFailures : 0;
  if (earlier > 0)
    lines.push_back(first == 0 ? "failures before, each followed by a restart:"
                               : "the last of " + std::to_string(earlier) + " failures before:");
  for (std::size_t i = first; i < earlier; ++i) {
    const Json& failure = failures[i];
    auto at = number(failure, "time");
    lines.push_back("  " + (at ? exact_clock_text(*at) + "  " : std::string()) + "attempt " +
                    std::to_string(count(failure, "attempt")) + ": " + reported_failure(failure));
  }
}

}  // namespace

Lines explain_report_lines(const Json& report, const std::string& path) {
  Lines lines{report_title(report)};
  const Json& root = field(report, "root_cause");
  std::string error = text(report, "error");
  if (root.is_object()) lines.push_back("why: " + reported_failure(root));
  if (!error.empty()) lines.push_back((root.is_object() ? "so: " : "why: ") + error);
  if (auto at = number(root, "time")) lines.push_back("when: " + exact_clock_text(*at));
  if (std::string words = text(field(report, "signalled"), "words"); !words.empty())
    lines.push_back("from outside: " + words);
  if (std::string logs = text(root, "log_path"); !logs.empty())
    lines.push_back("its logs: " + logs);
  if (std::string restarts = restarts_text(report); !restarts.empty()) lines.push_back(restarts);
  const Json& failures = field(report, "failures");
  if (failures.is_array()) add_earlier_failures(failures, root.is_object(), lines);
  if (std::string slowest = text(report, "slowest"); !slowest.empty()) lines.push_back(slowest);
  if (std::string next = text(report, "next_step"); !next.empty()) lines.push_back("next: " + next);
  lines.push_back("by " + printable(path) + " of " + text(report, "node") +
                  "; other nodes have their own");
  for (std::string& line : lines) line = cut(line, kLineBytes);
  return lines;
}

Lines explain_lines(const Json& run) {
  Lines lines{title(run)};
  Turn turn = last_turn(run);
  bool is_over = run.contains("exit_code");
  if (turn.stop.is_null() && !is_over) {
    auto is_taking_over = [](const Json& event) { return text(event, "what") == "took_over"; };
    // What was before that, this host does not know.
    const bool is_taken_over = std::ranges::any_of(turn.events, is_taking_over);
    lines.push_back(turn.round.is_null()
                        ? "no round has begun yet"
                        : std::string("nothing has stopped it ") +
                              (is_taken_over ? "since this host has it: " : "yet: ") +
                              round_text(turn.round) + " began at " +
                              exact_clock_text(time_of(turn.round)) + ", with " +
                              size_text(turn.round));
  }
  add_cause(run, turn, lines);
  add_events(turn, lines);
  add_since(run, turn, lines);
  if (lines.size() > kMostExplained) lines.resize(kMostExplained);
  for (std::string& line : lines) line = cut(line, kLineBytes);
  return lines;
}

Json explain_json(const Json& run) {
  Turn turn = last_turn(run);
  const Json* failure = failure_of(run, turn);
  Json json = {{"run", field(run, "run")},
               {"state", run.contains("exit_code") ? Json("ended") : field(run, "state")},
               {"exit_code", field(run, "exit_code")},
               {"stop", turn.stop},
               {"round", turn.round},
               {"next", turn.next},
               {"waiting_for", field(run, "waiting_for")},
               {"failure", failure != nullptr ? *failure : Json()},
               {"events", Json::array()}};
  for (const Json& event : turn.events) json["events"].push_back(event);
  return json;
}

std::vector<Json> explained_runs(const Json& page, std::string_view run) {
  std::vector<Json> found;
  for (const Json& each : field(page, "runs"))
    if (is_named(each, run)) found.push_back(each);
  if (!found.empty()) return found;
  for (const Json& each : field(page, "ended"))
    if (is_named(each, run)) found.assign(1, each);
  return found;
}

}  // namespace ddprun::cli
