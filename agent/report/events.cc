// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/events.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace ddprun::agent {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <class T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json milliseconds(const std::optional<Duration>& duration) {
  if (!duration) return nullptr;
  return std::chrono::duration<double, std::milli>(*duration).count();
}

std::string inner_metadata(const EventContext& context, const EventFacts& facts) {
  Json inner = {{"group_world_size", context.group_world_size},
                {"entry_point", context.entry_point}};
  if (facts.worker) {
    inner["local_rank"] = Json::array({facts.worker->local_rank});
    inner["role_rank"] = Json::array({facts.worker->role_rank});
    inner["role_world_size"] = Json::array({context.role_world_size});
    inner["exit_code"] = Json::array({value_or_null(facts.worker->exit_code)});
    inner["worker_pid"] = Json::array({facts.worker->pid});
  }
  return dump(inner);
}

// A worker's failure is torch's error_file_data, again as text: `{"message": "..."}`.
Json raw_error(const EventFacts& facts) {
  if (!facts.worker) return facts.raw_error.empty() ? Json() : Json(facts.raw_error);
  if (facts.state != "FAILED") return {};
  return dump({{"message", facts.raw_error.empty() ? "<NONE>" : facts.raw_error}});
}

}  // namespace

std::string entry_point(const std::vector<std::string>& command) {
  if (command.empty()) return "";
  std::string program = command[0].substr(command[0].rfind('/') + 1);
  if (!program.starts_with("python")) return command[0];
  auto script = std::find_if(command.begin() + 1, command.end(),
                             [](const std::string& part) { return !part.starts_with('-'); });
  return script == command.end() ? command[0] : *script;
}

std::string to_event_line(const EventContext& context, const EventFacts& facts) {
  Json rank;
  Json worker_id;
  if (facts.worker) {
    rank = facts.worker->rank;
    worker_id = std::to_string(facts.worker->pid);
  }
  auto at = std::chrono::duration_cast<std::chrono::milliseconds>(facts.at.time_since_epoch());
  auto run_time = std::chrono::duration_cast<std::chrono::seconds>(facts.total_run_time);
  Json metadata = {{"run_id", context.run_id},
                   {"global_rank", rank},
                   {"group_rank", context.group_rank},
                   {"worker_id", worker_id},
                   {"role", context.role},
                   {"hostname", context.hostname},
                   {"state", facts.state},
                   {"total_run_time", run_time.count()},
                   {"rdzv_backend", context.rdzv_backend},
                   {"raw_error", raw_error(facts)},
                   {"metadata", inner_metadata(context, facts)},
                   {"agent_restarts", context.restart_count},
                   {"duration_ms", milliseconds(facts.duration)}};
  return dump({{"name", "torchelastic.worker.status." + facts.state},
               {"source", facts.worker ? "WORKER" : "AGENT"},
               {"timestamp", at.count()},
               {"metadata", metadata}}) +
         "\n";
}

}  // namespace ddprun::agent
