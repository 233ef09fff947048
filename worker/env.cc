// SPDX-License-Identifier: BSD-3-Clause
#include "worker/env.h"

#include <limits>

#include "store/base/number.h"

namespace ddprun::worker {
namespace {

// Reads variables one after the other and keeps the first failure, so that the reader below is a
// plain list.
class Reader {
 public:
  explicit Reader(const Lookup& lookup) : lookup_(lookup) {}

  int required_int(const char* name, int min, int max) {
    std::optional<std::string> text = lookup_(name);
    if (!text) {
      fail(std::string(name) +
           " is not set: start this program with ddprun, torchrun or another "
           "launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
      return min;
    }
    return parse_int(name, *text, min, max);
  }

  int optional_int(const char* name, int fallback, int min, int max) {
    std::optional<std::string> text = lookup_(name);
    return text ? parse_int(name, *text, min, max) : fallback;
  }

  std::string required_text(const char* name) {
    std::optional<std::string> text = lookup_(name);
    if (!text || text->empty()) fail(std::string(name) + " is not set or empty");
    return text.value_or("");
  }

  std::string optional_text(const char* name, std::string fallback) {
    return lookup_(name).value_or(std::move(fallback));
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  int parse_int(const char* name, const std::string& text, int min, int max) {
    std::optional<int> value = number_in<int>(text);
    if (!value || *value < min || *value > max) {
      std::string range = max == kAny
                              ? "of " + std::to_string(min) + " or more"
                              : "from " + std::to_string(min) + " to " + std::to_string(max);
      fail(std::string(name) + "='" + text + "' is not a whole number " + range);
      return min;
    }
    return *value;
  }

  void fail(std::string text) {
    if (!error_) error_ = Error{Errc::InvalidInput, std::move(text)};
  }

 public:
  static constexpr int kAny = std::numeric_limits<int>::max();

 private:
  const Lookup& lookup_;
  std::optional<Error> error_;
};

}  // namespace

std::vector<Variable> to_variables(const WorkerEnv& env, const Lookup& inherited) {
  std::vector<Variable> variables = {
      {"RANK", std::to_string(env.rank)},
      {"WORLD_SIZE", std::to_string(env.world_size)},
      {"LOCAL_RANK", std::to_string(env.local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(env.local_world_size)},
      {"GROUP_RANK", std::to_string(env.group_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(env.group_world_size)},
      {"ROLE_RANK", std::to_string(env.role_rank)},
      {"ROLE_WORLD_SIZE", std::to_string(env.role_world_size)},
      {"ROLE_NAME", env.role},
      {"MASTER_ADDR", env.master.host},
      {"MASTER_PORT", std::to_string(env.master.port)},
      {"TORCHELASTIC_USE_AGENT_STORE", env.use_agent_store ? "True" : "False"},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(env.restart_count)},
      {"DDPRUN_ROUND", std::to_string(env.round)},
      {"DDPRUN_RUN_UUID", env.run_uuid},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(env.max_restarts)},
      {"TORCHELASTIC_RUN_ID", env.run_id},
      {"TORCHELASTIC_ERROR_FILE", env.error_file},
      {"DDPRUN_JOB_ID", env.job_id.empty() ? env.run_id : env.job_id},
      {"DDPRUN_REQUEUE_COUNT", std::to_string(env.requeue_count)},
      {"DDPRUN_STOP_REASON_FILE", env.stop_file},
  };
  if (!inherited("TORCH_NCCL_ASYNC_ERROR_HANDLING")) {
    variables.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  }
  if (!inherited("OMP_NUM_THREADS") && env.local_world_size > 1) {
    variables.emplace_back("OMP_NUM_THREADS", "1");
  }
  return variables;
}

Result<WorkerEnv> worker_env_from(const Lookup& lookup) {
  constexpr int kAny = Reader::kAny;
  Reader read(lookup);
  WorkerEnv env;
  env.world_size = read.required_int("WORLD_SIZE", 1, kAny);
  env.rank = read.required_int("RANK", 0, env.world_size - 1);
  env.local_world_size =
      read.optional_int("LOCAL_WORLD_SIZE", env.local_world_size, 1, env.world_size);
  env.local_rank = read.optional_int("LOCAL_RANK", env.local_rank, 0, kAny);
  env.group_world_size = read.optional_int("GROUP_WORLD_SIZE", env.group_world_size, 1, kAny);
  env.group_rank = read.optional_int("GROUP_RANK", env.group_rank, 0, env.group_world_size - 1);
  env.role_world_size = read.optional_int("ROLE_WORLD_SIZE", env.world_size, 1, kAny);
  env.role_rank = read.optional_int("ROLE_RANK", env.rank, 0, env.role_world_size - 1);
  env.role = read.optional_text("ROLE_NAME", env.role);
  env.master.host = read.required_text("MASTER_ADDR");
  env.master.port = static_cast<std::uint16_t>(read.required_int("MASTER_PORT", 1, 65535));
  // Python compares with this very spelling; "1" and "true" mean no.
  env.use_agent_store = lookup("TORCHELASTIC_USE_AGENT_STORE") == "True";
  env.restart_count = read.optional_int("TORCHELASTIC_RESTART_COUNT", 0, 0, kAny);
  env.round = read.optional_int("DDPRUN_ROUND", 0, 0, kAny);
  env.run_uuid = read.optional_text("DDPRUN_RUN_UUID", "");
  env.max_restarts = read.optional_int("TORCHELASTIC_MAX_RESTARTS", 0, 0, kAny);
  env.run_id = read.optional_text("TORCHELASTIC_RUN_ID", env.run_id);
  env.error_file = read.optional_text("TORCHELASTIC_ERROR_FILE", "");
  env.job_id = read.optional_text("DDPRUN_JOB_ID", env.run_id);
  env.requeue_count = read.optional_int("DDPRUN_REQUEUE_COUNT", 0, 0, kAny);
  env.stop_file = read.optional_text("DDPRUN_STOP_REASON_FILE", "");
  if (read.error()) return *read.error();
  return env;
}

}  // namespace ddprun::worker
