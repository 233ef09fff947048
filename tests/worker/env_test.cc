// SPDX-License-Identifier: BSD-3-Clause
#include "worker/env.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

using namespace ddprun::worker;

namespace {

using Environment = std::map<std::string, std::string, std::less<>>;

Lookup lookup_in(const Environment& environment) {
  return [&environment](std::string_view name) -> std::optional<std::string> {
    auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
}

Environment minimal() {
  return {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};
}

std::string why_not(const Environment& environment) {
  auto env = worker_env_from(lookup_in(environment));
  return env ? "accepted" : to_string(env.error());
}

Environment written(const WorkerEnv& env, const Environment& inherited = {}) {
  Environment environment;
  for (auto& [name, value] : to_variables(env, lookup_in(inherited))) environment[name] = value;
  return environment;
}

}  // namespace

TEST_SUITE("worker/env") {
  TEST_CASE("what the agent writes, the worker reads back") {
    WorkerEnv env{.rank = 5,
                  .world_size = 8,
                  .local_rank = 1,
                  .local_world_size = 4,
                  .group_rank = 1,
                  .group_world_size = 2,
                  .role_rank = 5,
                  .role_world_size = 8,
                  .role = "trainer",
                  .master = {"::1", 41234},
                  .use_agent_store = true,
                  .restart_count = 2,
                  .round = 5,
                  .run_uuid = "node0-7f3.1",
                  .max_restarts = 3,
                  .run_id = "run1",
                  .error_file = "/tmp/e/error.json",
                  .job_id = "run",
                  .requeue_count = 4,
                  .stop_file = "/tmp/e/stop_reason"};
    Environment environment = written(env);
    auto read = worker_env_from(lookup_in(environment));
    REQUIRE(read.has_value());
    CHECK(written(*read) == environment);
    CHECK(read->master == env.master);
    CHECK(read->use_agent_store);
    CHECK(read->requeue_count == 4);
    CHECK(read->run_uuid == "node0-7f3.1");
  }

  TEST_CASE("the run id is the job id where none is set") {
    Environment environment = written({.master = {"node0", 29500}, .run_id = "run1"});
    CHECK(worker_env_from(lookup_in(environment))->job_id == "run1");
    environment.erase("DDPRUN_JOB_ID");
    CHECK(worker_env_from(lookup_in(environment))->job_id == "run1");
  }

  TEST_CASE("every variable of torchrun's contract is written") {
    Environment environment = written(WorkerEnv{.master = {"127.0.0.1", 29500}});
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
          "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
          "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
          "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "TORCH_NCCL_ASYNC_ERROR_HANDLING"}) {
      CAPTURE(name);
      CHECK(environment.contains(name));
    }
    CHECK(environment["TORCHELASTIC_USE_AGENT_STORE"] == "False");
  }

  TEST_CASE("OMP_NUM_THREADS is 1 for several workers, and the user's own when set") {
    CHECK(written({.local_world_size = 2})["OMP_NUM_THREADS"] == "1");
    CHECK_FALSE(written({.local_world_size = 1}).contains("OMP_NUM_THREADS"));
    CHECK_FALSE(
        written({.local_world_size = 2}, {{"OMP_NUM_THREADS", "4"}}).contains("OMP_NUM_THREADS"));
    CHECK_FALSE(written({}, {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}})
                    .contains("TORCH_NCCL_ASYNC_ERROR_HANDLING"));
  }

  TEST_CASE("four variables are enough, as with torch's env:// method") {
    auto env = worker_env_from(lookup_in(minimal()));
    REQUIRE(env.has_value());
    CHECK(env->rank == 3);
    CHECK(env->role_rank == 3);
    CHECK(env->role_world_size == 8);
    CHECK(env->local_world_size == 1);
    CHECK_FALSE(env->use_agent_store);
  }

  TEST_CASE("a missing or bad variable is named with its value and what is accepted") {
    Environment environment = minimal();
    environment.erase("RANK");
    CHECK(why_not(environment).starts_with("RANK is not set: start this program with ddprun"));
    environment["RANK"] = "8";
    CHECK(why_not(environment) == "RANK='8' is not a whole number from 0 to 7");
    environment["RANK"] = "1x";
    CHECK(why_not(environment) == "RANK='1x' is not a whole number from 0 to 7");
    environment = minimal();
    environment["MASTER_PORT"] = "0";
    CHECK(why_not(environment) == "MASTER_PORT='0' is not a whole number from 1 to 65535");
    environment = minimal();
    environment["WORLD_SIZE"] = "";
    CHECK(why_not(environment) == "WORLD_SIZE='' is not a whole number of 1 or more");
    environment = minimal();
    environment["MASTER_ADDR"] = "";
    CHECK(why_not(environment) == "MASTER_ADDR is not set or empty");
  }
}
