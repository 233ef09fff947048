// SPDX-License-Identifier: BSD-3-Clause
#include "cli/status_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/json_fields.h"
#include "store/base/count.h"
#include "store/base/text.h"

namespace ddprun::cli {
namespace {

std::vector<const Json*> runs_of(const Json& page, std::string_view run) {
  std::vector<const Json*> runs;
  for (const Json& each : field(page, "runs")) {
    if (is_named(each, run)) runs.push_back(&each);
  }
  return runs;
}

// Rows of words, each column as wide as its widest.
class Table {
 public:
  explicit Table(std::vector<std::string> titles) { rows_.push_back(std::move(titles)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::size_t size() const { return rows_.size() - 1; }

  Lines lines() const {
    std::vector<std::size_t> widths(rows_.front().size());
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    Lines lines;
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        line += row[i];
        if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      lines.push_back(std::move(line));
    }
    return lines;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

void append(Lines& lines, Lines more) {
  lines.insert(lines.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

std::string bytes_text(double kib) {
  if (kib < 1) return std::to_string(std::llround(kib * 1024)) + "B";
  const char* unit = "K";
  for (const char* next : {"M", "G", "T"}) {
    if (kib < 1000) break;
    kib /= 1024;
    unit = next;
  }
  char out[32];
  std::snprintf(out, sizeof out, kib < 10 ? "%.1f%s" : "%.0f%s", kib, unit);
  return out;
}

constexpr std::size_t kColumns = 80;  // of a terminal that has not been made larger

std::string parts_of_time(const Json& run) {
  const Json& time = field(run, "time");
  double whole = 0;
  constexpr std::array kNames{"training", "waiting", "starting", "stopping"};
  for (const char* name : kNames) whole += number(time, name).value_or(0);
  if (whole <= 0) return "";
  std::string line;
  constexpr double kLeast = 0.05;  // less is 0.0 %
  for (const char* name : kNames) {
    bool is_said = line.empty() || 100 * number(time, name).value_or(0) / whole >= kLeast;
    if (!is_said) continue;
    char part[64];
    std::snprintf(part, sizeof part, "%s%s %.1f %%", line.empty() ? "" : ", ", name,
                  100 * number(time, name).value_or(0) / whole);
    line += part;
  }
  return line;
}

std::string describe(const Json& failure) {
  std::string line = failure_head(failure);
  if (std::string suspects = text(failure, "suspects"); !suspects.empty())
    line = suspects + "; " + line;
  const Json& message = field(failure, "message");
  if (!message.is_string()) return line;
  std::string words = message.get<std::string>();
  return line + ": " + printable(words.substr(0, words.find('\n')));
}

// A page has the first nodes only, and the first runs.
Lines more_nodes_lines(const Json& run) {
  std::int64_t more = count(run, "more_nodes");
  if (more <= 0) return {};
  auto shown = static_cast<std::int64_t>(field(run, "nodes").size());
  return {"  " + count_of(shown, "node") + " of " + std::to_string(shown + more) +
          " on this page; " + std::to_string(more) + " more"};
}
Lines more_runs_lines(const Json& page, std::string_view run) {
  std::int64_t more = count(page, "more_runs");
  if (more <= 0 || !run.empty()) return {};
  auto shown = static_cast<std::int64_t>(field(page, "runs").size());
  return {count_of(shown, "run") + " of " + std::to_string(shown + more) + " on this page; " +
          std::to_string(more) + " more"};
}

Lines run_lines(const Json& run) {
  std::string first = text(run, "run") + ": " + text(run, "state");
  if (auto round = number(run, "round")) first += ", round " + std::to_string(count(run, "round"));
  if (number(run, "world_size")) {
    std::int64_t nodes = 0;
    for (const Json& node : field(run, "nodes")) nodes += number(node, "group_rank") ? 1 : 0;
    first += ", " + count_of(count(run, "world_size"), "worker");
    // Of a round that is being stopped, nodes may have left.
    bool are_all_shown = text(run, "state") == "training" && count(run, "more_nodes") == 0;
    if (are_all_shown) first += " on " + count_of(nodes, "node");
  }
  if (auto since = number(run, "in_state_s")) first += ", for " + for_seconds(*since);
  Lines lines{first};
  std::string restarts = "  restarts " + std::to_string(count(run, "restart_count")) + " of " +
                         std::to_string(count(run, "max_restarts"));
  const std::string parts = parts_of_time(run);
  const std::string together = restarts + (parts.empty() ? "" : "; time: " + parts);
  if (together.size() <= kColumns) {
    lines.push_back(together);
  } else {
    append(lines, {restarts, "  time: " + parts});
  }
  if (std::string waits = text(run, "waiting_for"); !waits.empty()) lines.push_back("  " + waits);
  if (std::string lost = text(run, "lost"); !lost.empty())
    lines.push_back("  too few nodes since: " + lost);
  if (std::int64_t ranks = count(run, "taking_stacks"); ranks > 0)
    lines.push_back("  taking stacks of " + count_of(ranks, "rank"));
  append(lines, more_nodes_lines(run));
  for (const Json& slow : field(run, "slow")) {
    std::string host = text(slow, "host");
    lines.push_back("  slow: rank " + std::to_string(count(slow, "rank")) +
                    (host.empty() ? " " : " (" + host + ") ") + text(slow, "why"));
  }
  const Json& history = field(run, "history");
  for (auto event = history.rbegin(); event != history.rend(); ++event) {
    if (text(*event, "what") != "stop") continue;
    lines.push_back("  last stop: " + clock_text(number(*event, "time").value_or(0)) + " (" +
                    text(*event, "cause") + ") " + text(*event, "why"));
    break;
  }
  return lines;
}

Lines ended_lines(const Json& page, std::string_view run) {
  Lines lines;
  for (const Json& ended : field(page, "ended")) {
    if (!is_named(ended, run)) continue;
    std::string line = text(ended, "run") + ": ended " +
                       for_seconds(number(ended, "ago_s").value_or(0)) + " ago, " +
                       exit_code_text(ended);
    if (count(ended, "restart_count") > 0)
      line += ", after " + count_of(count(ended, "restart_count"), "restart");
    if (std::string why = text(ended, "why"); !why.empty()) line += ": " + why;
    lines.push_back(std::move(line));
    if (std::string slowest = text(ended, "slowest"); !slowest.empty())
      lines.push_back("  " + slowest);
  }
  return lines;
}

Lines none(const Json& page, std::string_view run) {
  Lines lines = elsewhere_lines(page, run);
  if (!run.empty()) append(lines, ended_lines(page, run));
  if (!lines.empty()) return lines;
  if (run.empty()) return {"no run meets here"};
  std::int64_t more = count(page, "more_runs");
  if (more <= 0) return {"no run '" + printable(run) + "' meets here"};
  return {"no run '" + printable(run) + "' is on this page; " + count_of(more, "run") +
          " that meet here are not"};
}

// One worker with what is known of its node.
struct Rank {
  std::int64_t rank = 0;
  const Json* run = nullptr;
  const Json* node = nullptr;
  const Json* worker = nullptr;  // nullptr: no vitals have come
};

std::vector<Rank> ranks_of(const Json& run) {
  std::vector<Rank> ranks;
  for (const Json& node : field(run, "nodes")) {
    if (!number(node, "base_rank")) continue;
    const Json& vitals = field(node, "vitals");
    std::int64_t workers = std::clamp<std::int64_t>(count(node, "workers"), 0, 1'000'000);
    for (std::int64_t local_rank = 0; local_rank < workers; ++local_rank) {
      Rank rank{.rank = count(node, "base_rank") + local_rank, .run = &run, .node = &node};
      for (const Json& worker : vitals) {
        if (count(worker, "local_rank") == local_rank) rank.worker = &worker;
      }
      ranks.push_back(rank);
    }
  }
  return ranks;
}

bool is_slow(const Rank& rank) {
  for (const Json& slow : field(*rank.run, "slow")) {
    if (count(slow, "rank") == rank.rank && text(slow, "host") == text(*rank.node, "host"))
      return true;
  }
  return false;
}

std::string state_text(const Rank& rank) {
  std::string state = text(*rank.node, "state");
  if (rank.worker == nullptr) return state;
  std::string process = text(*rank.worker, "process");
  if (state != "training") return state;
  // At one look any read from a disk is that, so it does not stand for what was seen for long.
  const std::string in_d_state = process == "D" ? "in D state" : "";
  if (process == "T" || process == "t") return "stopped";
  if (has_ended(*rank.worker)) return "ended";
  if (is_slow(rank)) return in_d_state.empty() ? "slow" : "slow, " + in_d_state;
  return in_d_state.empty() ? state : in_d_state;
}

std::string gpu_text(const Json& gpu) {
  const std::string used = bytes_text(number(gpu, "used_mib").value_or(0) * 1024);
  auto busy = number(gpu, "busy_percent");
  return busy ? used + " " + std::to_string(*busy) + "%" : used;
}

std::vector<std::string> row_of(const Rank& rank) {
  std::vector<std::string> row{std::to_string(rank.rank), text(*rank.node, "host"),
                               state_text(rank)};
  if (rank.worker == nullptr) return row;
  const Json& worker = *rank.worker;
  row.push_back(std::to_string(count(worker, "pid")));
  row.push_back(std::to_string(count(worker, "cpu_percent")) + "%");
  row.push_back(bytes_text(number(worker, "rss_kib").value_or(0)));
  auto output = number(worker, "output_bytes");
  row.push_back(output ? bytes_text(*output / 1024) : "-");
  auto age = number(worker, "output_age_ms");
  row.push_back(age ? for_seconds(*age / 1000) : "-");
  row.push_back(number(worker, "step") ? std::to_string(count(worker, "step")) : "-");
  const Json& gpu = field(worker, "gpu");
  row.push_back(gpu.is_object() ? gpu_text(gpu) : "-");
  row.push_back(text(worker, "last_line"));
  return row;
}

Table table_of(const std::vector<Rank>& ranks) {
  Table table(
      {"RANK", "NODE", "STATE", "PID", "CPU", "RSS", "OUT", "SILENT", "STEP", "GPU", "LAST LINE"});
  for (const Rank& rank : ranks) table.add(row_of(rank));
  return table;
}

// Where the logs are, as far as the nodes say it, and say it to this reader.
Lines log_lines(const Json& run) {
  Table table({"NODE", "HOST", "LOGS"});
  for (const Json& node : field(run, "nodes")) {
    std::string folder = text(node, "log_folder");
    if (folder.empty()) continue;
    table.add({std::to_string(count(node, "group_rank")), text(node, "host"), folder});
  }
  if (table.size() == 0) return {};
  Lines lines{""};
  append(lines, table.lines());
  return lines;
}

// What a person wants to see first.
int badness(const Rank& rank) {
  std::string state = state_text(rank);
  if (state == "training") return 2;
  return state == "succeeded" ? 3 : state == "waiting" ? 1 : 0;
}

}  // namespace

Lines elsewhere_lines(const Json& page, std::string_view run) {
  Lines lines;
  for (const Json& each : field(page, "elsewhere")) {
    if (is_named(each, run))
      lines.push_back(text(each, "run") + ": goes on at " + text(each, "at") + "; ask there");
  }
  return lines;
}

Lines status_lines(const Json& page, std::string_view run) {
  Lines lines;
  for (const Json* each : runs_of(page, run)) append(lines, run_lines(*each));
  append(lines, more_runs_lines(page, run));
  append(lines, elsewhere_lines(page, run));
  append(lines, ended_lines(page, run));
  return lines.empty() ? none(page, run) : lines;
}

Lines node_lines(const Json& page, std::string_view run) {
  Lines lines;
  for (const Json* each : runs_of(page, run)) {
    lines.push_back(text(*each, "run") + ":");
    Table table({"NODE", "HOST", "STATE", "RANKS", "AGENT", "HEARD", "CPU", "RSS"});
    for (const Json& node : field(*each, "nodes")) {
      std::string ranks = "-";
      if (auto base = number(node, "base_rank")) {
        std::int64_t first = count(node, "base_rank");
        std::int64_t workers = count(node, "workers");
        ranks = std::to_string(first);
        if (workers > 1) ranks += ".." + std::to_string(first + workers - 1);
      }
      double cpu = 0;
      double rss = 0;
      const Json& vitals = field(node, "vitals");
      for (const Json& worker : vitals) {
        cpu += number(worker, "cpu_percent").value_or(0);
        rss += number(worker, "rss_kib").value_or(0);
      }
      bool is_known = vitals.is_array() && !vitals.empty();
      table.add({number(node, "group_rank") ? std::to_string(count(node, "group_rank")) : "-",
                 text(node, "host") + (is_set(node, "is_host") ? " (host)" : ""),
                 text(node, "state"), ranks, std::to_string(count(node, "agent_pid")),
                 for_seconds(number(node, "silent_s").value_or(0)) + " ago",
                 is_known ? std::to_string(std::llround(cpu)) + "%" : "-",
                 is_known ? bytes_text(rss) : "-"});
    }
    append(lines, table.lines());
    append(lines, more_nodes_lines(*each));
    append(lines, log_lines(*each));
  }
  append(lines, more_runs_lines(page, run));
  return lines.empty() ? none(page, run) : lines;
}

Lines rank_lines(const Json& page, std::string_view run) {
  Lines lines;
  for (const Json* each : runs_of(page, run)) {
    lines.push_back(text(*each, "run") + ":");
    append(lines, table_of(ranks_of(*each)).lines());
    append(lines, more_nodes_lines(*each));
  }
  append(lines, more_runs_lines(page, run));
  return lines.empty() ? none(page, run) : lines;
}

Lines report_lines(const Json& page, std::string_view run) {
  Lines lines;
  auto add = [&](const Json& each) {
    for (const Json& failure : field(each, "failures")) {
      lines.push_back(text(each, "run") + ", attempt " + std::to_string(count(failure, "attempt")) +
                      ": " + describe(failure));
      if (std::string logs = text(failure, "log_path"); !logs.empty())
        lines.push_back("  logs: " + logs);
      const Json& traceback = field(failure, "traceback");
      const Json& words = traceback.is_string() ? traceback : field(failure, "stderr_tail");
      if (!words.is_string()) continue;
      std::string rest = printable(words.get<std::string>(), true);
      while (!rest.empty()) {
        std::size_t end = std::min(rest.find('\n'), rest.size());
        lines.push_back("    " + rest.substr(0, end));
        rest.erase(0, end + 1);
      }
    }
  };
  for (const Json* each : runs_of(page, run)) add(*each);
  for (const Json& ended : field(page, "ended")) {
    if (is_named(ended, run)) add(ended);
  }
  if (!lines.empty()) return lines;
  return {"no worker has failed"};
}

Lines wait_lines(const Json& page, std::string_view run) {
  Lines lines;
  for (const Json* each : runs_of(page, run)) {
    if (std::string waits = text(*each, "waiting_for"); !waits.empty())
      lines.push_back(text(*each, "run") + ": " + waits);
    for (const Json& node : field(*each, "nodes")) {
      std::string state = text(node, "state");
      if (state != "away" && state != "leaving") continue;
      lines.push_back(text(*each, "run") + ": " + text(node, "host") + " is " + state +
                      ", last heard " + for_seconds(number(node, "silent_s").value_or(0)) + " ago");
    }
  }
  return lines;
}

Lines screen(const Json& page, std::string_view run, std::size_t columns, std::size_t rows) {
  Lines lines;
  std::vector<Rank> ranks;
  for (const Json* each : runs_of(page, run)) {
    append(lines, run_lines(*each));
    for (Rank& rank : ranks_of(*each)) ranks.push_back(rank);
  }
  append(lines, more_runs_lines(page, run));
  append(lines, ended_lines(page, run));
  if (lines.empty()) lines = none(page, run);
  std::ranges::stable_sort(ranks, {}, badness);
  std::size_t room = rows > lines.size() + 2 ? rows - lines.size() - 2 : 0;
  std::size_t more = ranks.size() > room ? ranks.size() - room : 0;
  ranks.resize(ranks.size() - more);
  if (!ranks.empty()) append(lines, table_of(ranks).lines());
  if (more > 0) lines.push_back("and " + std::to_string(more) + " more");
  if (lines.size() > rows) lines.resize(rows);
  for (std::string& line : lines) line = std::string(beginning_of(line, columns));
  return lines;
}

namespace {

Json picked(const Json& page, std::string_view run, const std::function<Json(const Json&)>& pick) {
  Json json = Json::array();
  for (const Json* each : runs_of(page, run)) json.push_back(pick(*each));
  return json;
}

}  // namespace

Json status_json(const Json& page, std::string_view run) {
  auto those_of = [&](const char* list) {
    Json found = Json::array();
    for (const Json& each : field(page, list)) {
      if (is_named(each, run)) found.push_back(each);
    }
    return found;
  };
  Json ended = those_of("ended");
  Json elsewhere = those_of("elsewhere");
  return {{"runs", picked(page, run, [](const Json& each) { return each; })},
          {"more_runs", count(page, "more_runs")},
          {"ended", ended},
          {"elsewhere", elsewhere}};
}

Json node_json(const Json& page, std::string_view run) {
  return picked(page, run, [](const Json& each) {
    return Json{{"run", field(each, "run")},
                {"nodes", field(each, "nodes")},
                {"more_nodes", count(each, "more_nodes")}};
  });
}

Json rank_json(const Json& page, std::string_view run) {
  return picked(page, run, [](const Json& each) {
    Json ranks = Json::array();
    for (const Rank& rank : ranks_of(each)) {
      ranks.push_back({{"rank", rank.rank},
                       {"host", field(*rank.node, "host")},
                       {"state", state_text(rank)},
                       {"vitals", rank.worker ? *rank.worker : Json()}});
    }
    return Json{{"run", field(each, "run")},
                {"ranks", std::move(ranks)},
                {"more_nodes", count(each, "more_nodes")}};
  });
}

Json report_json(const Json& page, std::string_view run) {
  Json all = picked(page, run, [](const Json& each) {
    return Json{{"run", field(each, "run")}, {"failures", field(each, "failures")}};
  });
  for (const Json& each : field(page, "ended")) {
    if (is_named(each, run))
      all.push_back({{"run", field(each, "run")}, {"failures", field(each, "failures")}});
  }
  return all;
}

Json wait_json(const Json& page, std::string_view run) {
  return picked(page, run, [](const Json& each) {
    return Json{{"run", field(each, "run")},
                {"state", field(each, "state")},
                {"waiting_for", field(each, "waiting_for")},
                {"master", field(each, "master")},
                {"workers_store", field(each, "workers_store")}};
  });
}

}  // namespace ddprun::cli
