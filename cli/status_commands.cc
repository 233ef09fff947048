// SPDX-License-Identifier: BSD-3-Clause
#include "cli/status_commands.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>

#include "cli/json_fields.h"
#include "cli/status_text.h"
#include "cli/wait_text.h"
#include "store/base/time.h"

namespace ddprun::cli {
namespace {

constexpr Duration kWatchPeriod = std::chrono::seconds(2);

template <class ToLines, class ToJson>
Result<void> show(const StatusQuestion& question, std::ostream& out, ToLines to_lines,
                  ToJson to_json) {
  Result<Json> page = page_with_run(question);
  if (!page) return page.error();
  if (question.as_json) {
    out << dump(to_json(*page, question.run), 2) << '\n';
  } else {
    out << text_of(to_lines(*page, question.run));
  }
  return {};
}

// What a terminal shows: 80 x 24 where there is none.
winsize terminal_size() {
  winsize size{};
  bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  if (!is_known) size = {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  return size;
}

// Over what the terminal shows already, so that nothing flickers.
void draw(const Lines& lines, bool is_terminal, std::ostream& out) {
  if (!is_terminal) {
    out << text_of(lines) << std::endl;
    return;
  }
  out << "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i)
    out << lines[i] << "\x1b[K" << (i + 1 < lines.size() ? "\r\n" : "");
  out << "\x1b[J" << std::flush;
}

// Who waits in the store of a run's workers (wait_json()): as the run's host knows it, else as that
// store says.  Null while there are no workers.
Result<Json> store_of(const Json& run) {
  if (const Json& known = field(run, "workers_store"); known.is_object()) return known;
  if (text(run, "state") != "training" || text(run, "master").empty()) return Json();
  Result<Endpoint> at = parse_endpoint(text(run, "master"), 0);
  if (!at) return at.error();
  return fetch({.at = *at, .token = ""}, "/status");
}

// Of a place that has answered before.
Error gone(const StatusQuestion& question, const std::string& seen_last, const Error& error) {
  if (error.code == Errc::InvalidInput) return error;
  return {error.code, question.endpoint +
                          " answers no more: the run may be over, and its host gone (" +
                          to_string(error) + "); seen last: " + seen_last};
}

}  // namespace

Result<void> show_status(const StatusQuestion& question, std::ostream& out) {
  return show(question, out, status_lines, status_json);
}

Result<void> show_nodes(const StatusQuestion& question, std::ostream& out) {
  return show(question, out, node_lines, node_json);
}

Result<void> show_ranks(const StatusQuestion& question, std::ostream& out) {
  return show(question, out, rank_lines, rank_json);
}

Result<void> show_report(const StatusQuestion& question, std::ostream& out) {
  return show(question, out, report_lines, report_json);
}

Result<void> show_waits(const StatusQuestion& question, std::ostream& out) {
  Result<Json> page = page_with_run(question);
  if (!page) return page.error();
  Lines lines = wait_lines(*page, question.run);
  Json json = wait_json(*page, question.run);
  // The store at the rendezvous has the waits of the static backend's workers.
  Lines here = store_wait_lines(*page, *page, question.run);
  lines.insert(lines.end(), here.begin(), here.end());
  for (Json& run : json) {
    Result<Json> store = store_of(run);
    const std::string name = json.size() > 1 ? text(run, "run") + ": " : "";
    run.erase("workers_store");
    if (!store) {
      lines.push_back(name + "who waits in the workers' store is not known here (" +
                      to_string(store.error()) + ")");
      continue;
    }
    const Json& id = field(run, "run");
    for (const std::string& line :
         store_wait_lines(*store, *page, id.is_string() ? id.get<std::string>() : "")) {
      bool is_said = std::ranges::find(lines, line) != lines.end();  // this store is the workers'
      if (!is_said) lines.push_back(name + line);
    }
    if (!store->is_object()) continue;
    run["expected"] = store->value("expected", Json());
    run["waiting"] = store->value("waiting", Json());
    if (store->contains("waiting_count")) run["waiting_count"] = (*store)["waiting_count"];
  }
  if (question.as_json) {
    out << dump(json, 2) << '\n';
  } else {
    out << text_of(lines.empty() ? Lines{"nothing is waited for at a store; where ranks wait for "
                                         "each other in a collective, "
                                         "ddpctl stacks shows it"}
                                 : lines);
  }
  return {};
}

Result<void> watch_status(const StatusQuestion& question, std::ostream& out) {
  std::string seen_last;  // empty: nothing yet
  bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  if (is_terminal && !question.as_json) out << "\x1b[2J";
  while (out) {
    Result<Json> page = page_of(question);
    if (!page) {
      if (is_terminal && !seen_last.empty()) out << std::endl;
      return seen_last.empty() ? page.error() : gone(question, seen_last, page.error());
    }
    seen_last = status_lines(*page, question.run).front();
    if (question.as_json) {
      out << dump(status_json(*page, question.run), -1) << std::endl;
    } else {
      winsize size = terminal_size();
      draw(screen(*page, question.run, size.ws_col, size.ws_row), is_terminal, out);
    }
    std::this_thread::sleep_for(kWatchPeriod);
  }
  return {};
}

}  // namespace ddprun::cli
