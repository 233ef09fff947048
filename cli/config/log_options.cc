// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/log_options.h"

#include <algorithm>
#include <optional>
#include <set>

#include "cli/options/parse.h"

namespace ddprun::cli {
namespace {

constexpr Duration kVitalsPeriod = std::chrono::seconds(2);
constexpr double kLeastVitalsPeriod = 0.1;  // of what a user may ask for, in seconds

// Other nodes may have more workers.
void note_unknown(ConfigBuilder& builder, const OptionValue& value, int local_rank) {
  builder.note(value.origin + " names local rank " + std::to_string(local_rank) +
               ", which this node does not have");
}

Result<std::vector<Streams>> streams_option(ConfigBuilder& builder, const char* name) {
  const OptionValue* value = builder.given(name);
  OptionValue none{"0", "--" + std::string(name)};
  std::set<int> unknown;
  auto streams =
      parse_streams(value != nullptr ? *value : none, builder.workers().local_world_size, unknown);
  for (int local_rank : unknown) note_unknown(builder, *value, local_rank);
  return streams;
}

// Without a log folder a redirected stream stays on the console, as under torchrun.
agent::StreamRoute route(bool is_redirected, bool is_teed, bool is_shown, bool has_file) {
  if (is_teed && is_shown) return agent::StreamRoute::FileAndConsole;
  if ((is_teed || is_redirected) && has_file) return agent::StreamRoute::File;
  return is_shown ? agent::StreamRoute::Inherit : agent::StreamRoute::Discard;
}

// Which local ranks the console shows; none: all.
Result<std::optional<std::set<int>>> shown_local_ranks(ConfigBuilder& builder) {
  const OptionValue* filter = builder.given("local-ranks-filter");
  if (filter == nullptr || filter->text.empty()) return std::optional<std::set<int>>();
  Result<std::set<int>> parsed = parse_local_ranks(*filter);
  if (!parsed) return parsed.error();
  for (int local_rank : *parsed) {
    if (local_rank >= builder.workers().local_world_size)
      note_unknown(builder, *filter, local_rank);
  }
  return std::optional(std::move(*parsed));
}

Result<void> add_routes(ConfigBuilder& builder) {
  Result<std::vector<Streams>> redirects = streams_option(builder, "redirects");
  if (!redirects) return redirects.error();
  Result<std::vector<Streams>> tee = streams_option(builder, "tee");
  if (!tee) return tee.error();
  Result<std::optional<std::set<int>>> shown = shown_local_ranks(builder);
  if (!shown) return shown.error();
  agent::WorkerGroupConfig& workers = builder.workers();
  for (int local_rank = 0; local_rank < workers.local_world_size; ++local_rank) {
    auto index = static_cast<std::size_t>(local_rank);
    bool is_shown = !*shown || (*shown)->contains(local_rank);
    Streams to_file = (*redirects)[index];
    Streams to_both = (*tee)[index];
    workers.routes.push_back(
        {.out = route(to_file.out, to_both.out, is_shown, workers.has_log_dir),
         .err = route(to_file.err, to_both.err, is_shown, workers.has_log_dir)});
  }
  return {};
}

// The texts of --duplicate-*-filters, for a stream that is on the console by way of the agent.
Result<void> add_filters(ConfigBuilder& builder, const char* name,
                         agent::StreamRoute agent::WorkerRoutes::*stream,
                         std::vector<std::string>& filters) {
  const OptionValue* value = builder.given(name);
  if (value == nullptr || value->text.empty()) return {};
  const agent::WorkerGroupConfig& workers = builder.workers();
  if (!workers.has_log_dir) {
    return invalid(value->origin +
                   " copies lines to a file in the log folder, and --log-dir is "
                   "/dev/null");
  }
  bool is_seen = std::any_of(workers.routes.begin(), workers.routes.end(), [&](const auto& routes) {
    return routes.*stream == agent::StreamRoute::FileAndConsole;
  });
  if (!is_seen)
    builder.note(value->origin + " finds nothing: it looks through streams under --tee only");
  filters = split_texts(value->text);
  return {};
}

// What people who watch the run see of this node's workers.
Result<void> add_vitals(ConfigBuilder& builder) {
  agent::AgentConfig& agent = builder.config.agent;
  agent.vitals_period = kVitalsPeriod;
  agent.shares_last_lines = builder.given("share-last-lines") != nullptr;
  const OptionValue* period = builder.given("vitals");
  if (period == nullptr) return {};
  if (period->text == "0") {
    agent.vitals_period = Duration::zero();
    return {};
  }
  Result<double> seconds = parse_seconds(*period);
  if (!seconds || *seconds < kLeastVitalsPeriod)
    return invalid_value(*period, "0 (never) or a number of seconds from 0.1 on");
  agent.vitals_period =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
  return {};
}

// Whether the workers' folders hold error files at most, in a place that the user did not name.
bool only_error_files(ConfigBuilder& builder) {
  const agent::WorkerGroupConfig& workers = builder.workers();
  auto has_file = [](const agent::WorkerRoutes& routes) {
    auto is_file = [](agent::StreamRoute route) {
      return route == agent::StreamRoute::File || route == agent::StreamRoute::FileAndConsole;
    };
    return is_file(routes.out) || is_file(routes.err);
  };
  return workers.has_log_dir && workers.log_base.empty() && !workers.has_heartbeat &&
         !builder.config.agent.has_timers && !std::ranges::any_of(workers.routes, has_file);
}

}  // namespace

Result<void> add_logs(ConfigBuilder& builder) {
  agent::WorkerGroupConfig& workers = builder.workers();
  workers.hostname = builder.machine.hostname();
  workers.log_base = builder.text_of("log-dir", "");
  workers.has_log_dir = workers.log_base != "/dev/null";
  std::string prefix = builder.text_of("log-line-prefix-template",
                                       builder.inherited("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"));
  if (!prefix.empty()) workers.line_prefix = prefix;
  Result<void> routes = add_routes(builder);
  if (!routes) return routes.error();
  Result<void> filters = add_filters(builder, "duplicate-stdout-filters", &agent::WorkerRoutes::out,
                                     workers.stdout_filters);
  if (!filters) return filters.error();
  filters = add_filters(builder, "duplicate-stderr-filters", &agent::WorkerRoutes::err,
                        workers.stderr_filters);
  if (!filters) return filters.error();
  workers.has_late_folders = only_error_files(builder);
  return add_vitals(builder);
}

}  // namespace ddprun::cli
