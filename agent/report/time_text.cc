// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/time_text.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "store/base/count.h"
#include "store/base/duration_text.h"

namespace ddprun::agent {
namespace {

constexpr Duration kShortRun = std::chrono::seconds(5);
constexpr Duration kLittleToConnect = std::chrono::seconds(1);  // a restart

// Of more causes the rest is counted.
constexpr std::size_t kCausesShown = 5;

// A start that took more than this part of the run is said.
constexpr double kSlowStart = 0.05;

int count_of_restarts(const TimeAccount& account) {
  return std::accumulate(account.restarts.begin(), account.restarts.end(), 0,
                         [](int sum, const RestartCost& each) { return sum + each.count; });
}

Duration cost_of_restarts(const TimeAccount& account) {
  return std::accumulate(account.restarts.begin(), account.restarts.end(), Duration::zero(),
                         [](Duration sum, const RestartCost& each) { return sum + each.cost; });
}

// "2 x OOM on node7", "OOM on node7", "1 lost node", "lost rendezvous".
std::string describe(const RestartCost& restarts) {
  const RestartCause& cause = restarts.cause;
  bool counts_nodes =
      cause.kind != RestartCause::Kind::Failure && cause.kind != RestartCause::Kind::RendezvousLost;
  if (counts_nodes) return count_of(restarts.count, name_of(cause));
  return (restarts.count > 1 ? std::to_string(restarts.count) + " x " : "") + name_of(cause) +
         (cause.node.empty() ? "" : " on " + cause.node);
}

std::string causes_of(const TimeAccount& account) {
  std::string text;
  std::size_t shown = std::min(account.restarts.size(), kCausesShown);
  for (std::size_t i = 0; i < shown; ++i)
    text += (i == 0 ? "" : ", ") + describe(account.restarts[i]);
  int more = 0;
  for (std::size_t i = shown; i < account.restarts.size(); ++i) more += account.restarts[i].count;
  return text + (more == 0 ? "" : ", and " + std::to_string(more) + " more");
}

double part_of(Duration part, Duration whole) {
  return whole <= Duration::zero() ? 0 : static_cast<double>(part.count()) / whole.count();
}

// Cut, so that only a run that did nothing else has 100.0 %.
std::string percent(double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", std::floor(part * 1000) / 10);
  return text;
}

}  // namespace

std::string name_of(const RestartCause& cause) {
  switch (cause.kind) {
    case RestartCause::Kind::Failure:
      return cause.what;
    case RestartCause::Kind::NodeLost:
      return "lost node";
    case RestartCause::Kind::NodeLeft:
      return "departed node";
    case RestartCause::Kind::NodeCutOff:
      return "cut-off node";
    case RestartCause::Kind::RendezvousLost:
      return "lost rendezvous";
    case RestartCause::Kind::NodeJoined:
      return "new node";
  }
  return "?";
}

std::string time_line(const TimeAccount& account) {
  std::string line = "up " + duration_text(account.up) + ", ";
  if (!account.until_training) return line + "none of it training";
  line += percent(part_of(account.of(Doing::Training), account.up)) + " of it training";
  if (account.of(Doing::Hanging) > Duration::zero())
    line += ", " + percent(part_of(account.of(Doing::Hanging), account.up)) + " hanging";
  if (part_of(*account.until_training, account.up) > kSlowStart)
    line += "; it began after " + duration_text(*account.until_training);
  int restarts = count_of_restarts(account);
  if (restarts == 0) return line;
  return line + "; " + count_of(restarts, "restart") + " cost " +
         duration_text(cost_of_restarts(account)) + " (" + causes_of(account) + ")";
}

std::string connecting_line(const TimeAccount& account, bool could_be_warm) {
  const TimeToConnect& spent = account.to_connect;
  if (spent.restarts == 0 || spent.spent < spent.restarts * kLittleToConnect) return "";
  return "the new workers of " + count_of(spent.restarts, "restart") + " took " +
         duration_text(spent.spent) + " until all ranks had connected (init_process_group)" +
         (could_be_warm ? "; --warm-restarts would have saved the part of it that is imports" : "");
}

bool is_worth_a_line(const TimeAccount& account) {
  return account.up >= kShortRun || count_of_restarts(account) > 0;
}

}  // namespace ddprun::agent
