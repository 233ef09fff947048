// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/defaults.h"

#include <doctest/doctest.h>

#include "store/base/endpoint.h"

using namespace ddprun;
using namespace ddprun::cli;

namespace {

using Environment = std::map<std::string, std::string, std::less<>>;

// What a task of `srun -N4 --ntasks-per-node=1 --gpus-per-node=4` finds on node `node` of Slurm
// 22.05.
Environment on_node(int node) {
  return {{"SLURM_JOB_ID", "12"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", "node[0-3]"},
          {"SLURM_STEP_NUM_NODES", "4"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x4)"},
          {"SLURM_NODEID", std::to_string(node)},
          {"SLURM_PROCID", std::to_string(node)},
          {"SLURM_LOCALID", "0"},
          {"SLURM_JOB_NODELIST", "node[0-7]"},
          {"SLURM_NNODES", "4"},
          {"SLURMD_NODENAME", "node" + std::to_string(node)},
          {"SLURM_CPUS_ON_NODE", "8"},
          {"SLURM_GPUS_ON_NODE", "4"},
          {"CUDA_VISIBLE_DEVICES", "0,1,2,3"}};
}

Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) {
    if (value == "-") {
      environment.erase(name);
    } else {
      environment[name] = value;
    }
  }
  return environment;
}

Result<SlurmDefaults> defaults_of(const std::vector<std::string>& arguments,
                                  const Environment& environment) {
  std::vector<std::string> all = arguments;
  all.emplace_back("train.py");
  auto parsed = parse_options(all, [](std::string_view) { return std::nullopt; });
  REQUIRE(parsed.has_value());
  return slurm_defaults(std::get<Options>(*parsed), environment, "login.site");
}

// The options after the step has filled them in, without those that were given; then the rest.
std::string filled(const std::vector<std::string>& arguments, const Environment& environment) {
  auto result = defaults_of(arguments, environment);
  if (!result) return "! " + to_string(result.error());
  std::string text;
  for (const auto& [name, value] : result->options.values) {
    if (!value.origin.starts_with("--")) text += name + "=" + value.text + " ";
  }
  if (result->rendezvous) text += result->rendezvous->is_host ? "host " : "guest ";
  for (const std::string& note : result->notes) text += "note: " + note + " ";
  if (!text.empty()) text.pop_back();
  return text;
}

std::string origin(const std::string& name, const Environment& environment) {
  auto result = defaults_of({}, environment);
  REQUIRE(result.has_value());
  return result->options.values.at(name).origin;
}

}  // namespace

TEST_SUITE("cli/slurm/defaults") {
  TEST_CASE("srun ddprun train.py: everything comes from the step") {
    CHECK(filled({}, on_node(0)) ==
          "nnodes=4 node-rank=0 nproc-per-node=4 rdzv-backend=c10d rdzv-endpoint=node0:20096 "
          "rdzv-id=slurm-12.0-r0 host");
    CHECK(filled({}, on_node(3)) ==
          "nnodes=4 node-rank=3 nproc-per-node=4 rdzv-backend=c10d rdzv-endpoint=node0:20096 "
          "rdzv-id=slurm-12.0-r0 guest");
    CHECK(origin("nnodes", on_node(0)) == "SLURM_STEP_NUM_NODES");
    CHECK(origin("node-rank", on_node(0)) == "SLURM_NODEID");
    CHECK(origin("nproc-per-node", on_node(0)) == "CUDA_VISIBLE_DEVICES");
    CHECK(origin("rdzv-endpoint", on_node(0)) ==
          "SLURM_STEP_NODELIST, SLURM_JOB_ID, SLURM_STEP_ID");
    CHECK(origin("rdzv-id", on_node(0)) == "SLURM_JOB_ID, SLURM_STEP_ID, SLURM_RESTART_COUNT");
    CHECK(defaults_of({}, on_node(2))->node_name == "node2");
  }

  TEST_CASE("outside a step nothing is touched") {
    CHECK(filled({}, {}) == "");
    CHECK(filled({}, {{"SLURM_CONF", "/etc/slurm/slurm.conf"}}) == "");
    CHECK(filled({"--nnodes=2"}, {}) == "");
  }

  TEST_CASE("a step of one node meets nobody") {
    Environment alone = with(on_node(0), {{"SLURM_STEP_NODELIST", "node0"},
                                          {"SLURM_STEP_NUM_NODES", "1"},
                                          {"SLURM_STEP_NUM_TASKS", "1"},
                                          {"SLURM_STEP_TASKS_PER_NODE", "1"}});
    CHECK(filled({}, alone).starts_with("nnodes=1 "));
    CHECK(!defaults_of({}, alone)->rendezvous);
  }

  TEST_CASE("the run id is another in each life and in each step of a job") {
    CHECK(filled({}, with(on_node(1), {{"SLURM_RESTART_COUNT", "2"}}))
              .ends_with("slurm-12.0-r2 guest"));
    CHECK(filled({}, with(on_node(1), {{"SLURM_STEP_ID", "7"}})).ends_with("slurm-12.7-r0 guest"));
  }

  TEST_CASE("GPUs are those that the workers will see") {
    auto workers = [](const Environment& changes) {
      return defaults_of({}, with(on_node(0), changes))->options.values.at("nproc-per-node").text;
    };
    CHECK(workers({{"CUDA_VISIBLE_DEVICES", "0,1"}}) == "2");
    CHECK(workers({{"CUDA_VISIBLE_DEVICES", "-"}}) == "4");
    CHECK(workers({{"CUDA_VISIBLE_DEVICES", "-"}, {"SLURM_GPUS_ON_NODE", "-"}}) == "1");
    CHECK(workers({{"CUDA_VISIBLE_DEVICES", "NoDevFiles"}, {"SLURM_GPUS_ON_NODE", "-"}}) == "1");
    CHECK(workers({{"CUDA_VISIBLE_DEVICES", "-"}, {"ROCR_VISIBLE_DEVICES", "0,1,2"}}) == "3");
    CHECK(workers({{"CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2"}}) == "2");
    CHECK(filled({}, with(on_node(0), {{"CUDA_VISIBLE_DEVICES", "0"}}))
              .ends_with("note: this task sees 1 GPU (CUDA_VISIBLE_DEVICES) of the 4 that the step "
                         "has here; --gpus-per-node instead of --gpus-per-task gives it all"));
    CHECK(filled({"--nproc-per-node=2"}, on_node(0)).find("nproc") == std::string::npos);
  }

  TEST_CASE("the user's options win, one by one") {
    CHECK(filled({"--standalone"}, on_node(2)) == "");
    CHECK(filled({"--nnodes=1"}, on_node(2)).ends_with("each of them trains alone"));
    CHECK(filled({"--nnodes=4", "--rdzv-endpoint=node0:29500"}, on_node(2)) == "");
    CHECK(filled({"--nnodes=4", "--master-addr=node0"}, on_node(2)) == "");
    CHECK(filled({"--rdzv-endpoint=ddpd:29500"}, on_node(2)) ==
          "nnodes=4 node-rank=2 nproc-per-node=4 rdzv-backend=c10d rdzv-id=slurm-12.0-r0");
    // Who hosts is written down in etcd, so the step names no node that does.
    CHECK(filled({"--rdzv-backend=etcd"}, on_node(2)) ==
          "nnodes=4 node-rank=2 nproc-per-node=4 rdzv-id=slurm-12.0-r0");
    CHECK(filled({"--rdzv-backend=etcd-v2", "--rdzv-endpoint=e1,e2"}, on_node(2)) ==
          "nnodes=4 node-rank=2 nproc-per-node=4 rdzv-id=slurm-12.0-r0");
    CHECK(filled({"--rdzv-id=mine", "--nnodes=2:4", "--nproc-per-node=1"}, on_node(2)) ==
          "node-rank=2 rdzv-backend=c10d rdzv-endpoint=node0:20096 guest");
    CHECK(filled({"--rdzv-backend=static"}, on_node(2)) ==
          "master-addr=node0 master-port=20096 nnodes=4 node-rank=2 nproc-per-node=4 "
          "rdzv-id=slurm-12.0-r0 guest");
    CHECK(defaults_of({"--rdzv-backend=static"}, on_node(2))->rendezvous->ports.size() == 1);
    CHECK(defaults_of({"--nnodes=2"}, on_node(2))->rendezvous->expected_nodes == 4);
    CHECK(defaults_of({"--rdzv-id=mine"}, on_node(2))->rendezvous->expected_nodes == 0);
    CHECK(filled({"--master-port=1234"}, on_node(0)) ==
          "master-addr=node0 nnodes=4 node-rank=0 nproc-per-node=4 rdzv-id=slurm-12.0-r0 host");
    CHECK(filled({"--node-rank=0"}, on_node(3)).find("note: --node-rank=0, and this is node 3") !=
          std::string::npos);
  }

  TEST_CASE("nodes beyond the most that take part are spares, without a rank of their own") {
    CHECK(filled({"--nnodes=2:3"}, on_node(2)).find("node-rank=2") != std::string::npos);
    CHECK(filled({"--nnodes=2:3"}, on_node(3)).find("node-rank") == std::string::npos);
    CHECK(!defaults_of({"--nnodes=2:3"}, on_node(2))->rendezvous->is_spare);
    CHECK(defaults_of({"--nnodes=2:3"}, on_node(3))->rendezvous->is_spare);
    CHECK(!defaults_of({"--nnodes=2:3", "--node-rank=2"}, on_node(3))->rendezvous->is_spare);
  }

  TEST_CASE("what cannot be in this step is refused") {
    CHECK(filled({"--nnodes=5"}, on_node(0)) ==
          "! --nnodes=5: this step has only 4 nodes (SLURM_STEP_NODELIST=node[0-3]); others can "
          "only come to an --rdzv-endpoint that they know");
    CHECK(filled({"--nnodes=5", "--rdzv-id=1"}, on_node(0)).starts_with("! --nnodes=5: "));
    CHECK(filled({"--nnodes=x"}, on_node(0)).starts_with("! --nnodes='x' is not "));
    CHECK(filled({"--nnodes=2:8"}, on_node(0)).starts_with("node-rank=0 "));
  }

  TEST_CASE("one launcher a node") {
    Environment four =
        with(on_node(0), {{"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_STEP_TASKS_PER_NODE", "4(x4)"}});
    CHECK(filled({}, four) ==
          "! this step does not have one task on each node (SLURM_STEP_TASKS_PER_NODE=4(x4) on "
          "node[0-3]), and ddprun starts the workers of a node itself: srun --ntasks-per-node=1 "
          "ddprun ..., which starts one worker for each GPU (--gpus-per-node=4)");
    CHECK(filled({"--standalone"}, four) == "");
    CHECK(filled({"--nnodes=16", "--rdzv-endpoint=a:1"}, four) == "");
    CHECK(filled({"--nnodes=4", "--rdzv-endpoint=a:1"}, four) ==
          "note: this step starts ddprun 16 times (SLURM_STEP_NUM_TASKS), and with --nnodes=4 12 "
          "of them will stand by: ddprun starts the workers of a node itself (srun "
          "--ntasks-per-node=1 ddprun ...)");
    CHECK(filled({"--nnodes=1"}, on_node(1)) ==
          "note: this step starts ddprun 4 times (SLURM_STEP_NUM_TASKS), and with --nnodes=1 each "
          "of them trains alone");
    CHECK(filled({"--nnodes=2", "--rdzv-endpoint=a:1"}, on_node(1)) == "");
    Environment uneven =
        with(on_node(0), {{"SLURM_STEP_NUM_TASKS", "5"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x3),2"}});
    CHECK(filled({}, uneven).starts_with("! this step does not have one task on each node"));
    Environment first =
        with(on_node(0), {{"SLURM_STEP_NUM_TASKS", "-"}, {"SLURM_STEP_TASKS_PER_NODE", "2,1(x3)"}});
    CHECK(filled({}, first).starts_with("! this step does not have one task on each node"));
    Environment many = with(on_node(0), {{"SLURM_STEP_TASKS_PER_NODE", "1,1(x2),1"}});
    CHECK(filled({}, many).starts_with("nnodes=4 "));
  }

  TEST_CASE("a batch script is no step, although its variables look like one") {
    Environment batch = {{"SLURM_JOB_ID", "12"}, {"SLURM_NNODES", "4"},
                         {"SLURM_NODEID", "0"},  {"SLURM_PROCID", "0"},
                         {"SLURM_LOCALID", "0"}, {"SLURM_JOB_NODELIST", "node[0-3]"},
                         {"SLURM_NTASKS", "4"},  {"SLURM_TASKS_PER_NODE", "1(x4)"}};
    CHECK(filled({}, batch) ==
          "! job 12 has 4 nodes, and ddprun was started on one of them: only srun starts it on all "
          "(srun --ntasks-per-node=1 ddprun ...); --standalone trains on this node alone");
    for (const char* step : {"4294967291", "4294967292", "4294967290", "batch", ""}) {
      CAPTURE(step);
      CHECK(filled({}, with(batch, {{"SLURM_STEP_ID", step}})).starts_with("! job 12 has 4 nodes"));
    }
    CHECK(filled({"--standalone"}, batch) == "");
    CHECK(filled({"--nnodes=1"}, batch) == "");
    CHECK(filled({"--nnodes=4", "--node-rank=0", "--master-addr=node0"}, batch) == "");
    CHECK(filled({}, with(batch, {{"SLURM_NNODES", "1"}, {"SLURMD_NODENAME", "node0"}})) == "");
  }

  TEST_CASE("a shell of salloc that is on none of the job's nodes") {
    Environment shell = {{"SLURM_JOB_ID", "12"},
                         {"SLURM_NNODES", "1"},
                         {"SLURM_JOB_NODELIST", "node3"},
                         {"SLURM_GPUS_ON_NODE", "4"}};
    CHECK(filled({}, shell) ==
          "! job 12 is on node3, and ddprun was started on login.site: only srun starts it there "
          "(srun --ntasks-per-node=1 ddprun ...); --standalone trains on this machine");
    CHECK(filled({"--standalone"}, shell) == "");
    CHECK(filled({"--nnodes=1"}, shell) == "");
    Environment without_gpus = with(shell, {{"SLURM_GPUS_ON_NODE", "-"}});
    CHECK(filled({}, with(without_gpus, {{"SLURM_JOB_NODELIST", "login"}})) == "");
    CHECK(filled({}, with(without_gpus, {{"SLURM_JOB_NODELIST", "-"}})) == "");
    CHECK(filled({}, with(without_gpus, {{"SLURMD_NODENAME", "node3"}})) == "");
  }

  TEST_CASE("one worker for several GPUs of a batch script is told") {
    Environment batch = {{"SLURM_JOB_ID", "12"},          {"SLURM_NNODES", "1"},
                         {"SLURM_JOB_NODELIST", "node3"}, {"SLURMD_NODENAME", "node3"},
                         {"SLURM_GPUS_ON_NODE", "4"},     {"CUDA_VISIBLE_DEVICES", "0,1,2,3"}};
    const std::string told =
        "note: this node has 4 GPUs (CUDA_VISIBLE_DEVICES), and ddprun starts 1 worker, since "
        "neither srun nor --nproc-per-node is there; srun --ntasks-per-node=1 ddprun ... starts "
        "one for each GPU";
    CHECK(filled({}, batch) == told);
    CHECK(filled({"--standalone"}, batch) == told);
    CHECK(filled({"--nproc-per-node=1"}, batch) == "");
    CHECK(filled({}, with(batch, {{"CUDA_VISIBLE_DEVICES", "0"}})) == "");
    CHECK(filled({}, with(batch, {{"CUDA_VISIBLE_DEVICES", "-"}, {"SLURM_GPUS_ON_NODE", "-"}})) ==
          "");
  }

  // Seen: of `srun --het-group=0,1` with the parts node3 and node[0-1], the nodes' SLURM_NODEID are
  // 0 on node3, 1 and 2 on the others, and the list is sorted.
  TEST_CASE("in a step over parts of a heterogeneous job the list counts, not SLURM_NODEID") {
    auto part = [](const char* name, const char* id) {
      return with(on_node(0), {{"SLURM_HET_SIZE", "2"},
                               {"SLURM_STEP_NODELIST", "node[0-1,3]"},
                               {"SLURM_STEP_NUM_NODES", "3"},
                               {"SLURM_STEP_NUM_TASKS", "3"},
                               {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
                               {"SLURMD_NODENAME", name},
                               {"SLURM_NODEID", id}});
    };
    CHECK(filled({}, part("node3", "0")).find("node-rank=2 ") != std::string::npos);
    CHECK(filled({}, part("node3", "0")).ends_with(" guest"));
    CHECK(filled({}, part("node0", "1")).ends_with(" host"));
    CHECK(origin("node-rank", part("node0", "1")) == "SLURMD_NODENAME in SLURM_STEP_NODELIST");
  }

  // Seen: SLURM_HOSTFILE with node2, node0, node1 gives node2 SLURM_PROCID 0 and SLURM_NODEID 2.
  TEST_CASE("under -m arbitrary the node's number counts, not the task's") {
    Environment node2 = with(on_node(2), {{"SLURM_PROCID", "0"}});
    CHECK(filled({}, node2).find("node-rank=2 ") != std::string::npos);
    CHECK(filled({}, node2).ends_with(" guest"));
  }

  TEST_CASE("without its name a node goes by its number, and a number that cannot be is named") {
    CHECK(filled({}, with(on_node(1), {{"SLURMD_NODENAME", "-"}})).find("node-rank=1") !=
          std::string::npos);
    CHECK(filled({}, with(on_node(1), {{"SLURMD_NODENAME", "other"}})).find("node-rank=1") !=
          std::string::npos);
    CHECK(filled({}, with(on_node(1), {{"SLURMD_NODENAME", "-"}, {"SLURM_NODEID", "4"}})) ==
          "! SLURM_NODEID='4' is not a number from 0 to 3; ddprun does not know its place in the "
          "step");
  }

  TEST_CASE("variables of a step that are missing or wrong are named") {
    auto refusal = [](const char* name, const char* value) {
      return filled({}, with(on_node(0), {{name, value}}));
    };
    CHECK(
        refusal("SLURM_STEP_NODELIST", "-").starts_with("! SLURM_STEP_NODELIST='' is not a list"));
    CHECK(refusal("SLURM_STEP_NODELIST", "node[0-") ==
          "! SLURM_STEP_NODELIST: node list 'node[0-': a bracket is not closed");
    CHECK(refusal("SLURM_STEP_NUM_NODES", "3") ==
          "! SLURM_STEP_NUM_NODES='3', but SLURM_STEP_NODELIST='node[0-3]' names 4 nodes");
    CHECK(refusal("SLURM_JOB_ID", "x").starts_with("! SLURM_JOB_ID='x' is not a number"));
    CHECK(refusal("SLURM_RESTART_COUNT", "x")
              .starts_with("! SLURM_RESTART_COUNT='x' is not a count"));
    Environment no_tasks =
        with(on_node(0), {{"SLURM_STEP_NUM_TASKS", "-"}, {"SLURM_STEP_TASKS_PER_NODE", "-"}});
    CHECK(filled({}, no_tasks).starts_with("! SLURM_STEP_TASKS_PER_NODE='' is not a list"));
  }

  TEST_CASE("the place is the first node of the step, by the address that Slurm knows") {
    auto place = [](const Environment& changes) {
      return defaults_of({}, with(on_node(1), changes))->options.values.at("rdzv-endpoint").text;
    };
    CHECK(place({{"SLURM_STEP_NODELIST", "gpu[03-06]"}, {"SLURMD_NODENAME", "gpu04"}}) ==
          "gpu03:20096");
    CHECK(place({{"SLURM_NODE_ALIASES", "(null)"}}) == "node0:20096");
    CHECK(place({{"SLURM_NODE_ALIASES", "node0:10.0.0.7:h0,node1:10.0.0.8:h1"}}) ==
          "10.0.0.7:20096");
    CHECK(place({{"SLURM_NODE_ALIASES", "node0:[fd00::7]:h0"}}) == "[fd00::7]:20096");
  }

  TEST_CASE("ports: neighbours have others, and none is in the range of outgoing connections") {
    auto ports = [](const std::string& job, const std::string& step) {
      auto result =
          defaults_of({}, with(on_node(0), {{"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", step}}));
      REQUIRE(result.has_value());
      return result->rendezvous->ports;
    };
    CHECK(ports("12", "0") ==
          std::vector<std::uint16_t>{20096, 20097, 20098, 20099, 20100, 20101, 20102, 20103});
    CHECK(ports("12", "9").front() == 20097);
    CHECK(ports("13", "0").front() == 20104);
    for (const char* job : {"1", "1169", "1170", "4294967295"}) {
      for (const char* step : {"0", "7", "4294967279"}) {
        for (unsigned port : ports(job, step)) {
          CHECK(port >= 20000);
          CHECK(port < 29400);
        }
      }
    }
  }

  TEST_CASE("the CPUs of the step count whatever the user has given") {
    Environment step = with(on_node(0), {{"SLURM_CPUS_PER_TASK", "8"}});
    const std::vector<std::vector<std::string>> given = {
        {}, {"--standalone"}, {"--nnodes=1"}, {"--nnodes=4", "--rdzv-endpoint=a:1"}};
    for (const std::vector<std::string>& options : given) {
      CAPTURE(options.size());
      auto result = defaults_of(options, step);
      REQUIRE(result.has_value());
      REQUIRE(result->share);
      CHECK(result->share->cpus == 8);
      CHECK(result->share->cpus_per_task == 8);
    }
    // Of several launchers on a node each has a part that nobody tells it.
    auto several = defaults_of({"--nnodes=4", "--rdzv-endpoint=a:1"},
                               with(step, {{"SLURM_STEP_TASKS_PER_NODE", "4(x4)"}}));
    REQUIRE(several.has_value());
    CHECK(!several->share);
  }

  TEST_CASE("threads are the worker's part of the CPUs that are really allowed") {
    CHECK(threads_of_worker({.cpus = 8}, 64, 4) == 2);
    CHECK(threads_of_worker({.cpus = 64}, 8, 4) == 2);
    CHECK(threads_of_worker({}, 8, 1) == 8);
    CHECK(threads_of_worker({}, 1, 4) == 1);
    CHECK(cpu_warning({.cpus = 8}, 8, 4) == "");
    CHECK(cpu_warning({}, 1, 1) == "");
    CHECK(
        cpu_warning({.cpus_per_task = 8}, 1, 4) ==
        "4 workers of this node may use 1 CPU, and the job asked for 8 a task: srun does not take "
        "--cpus-per-task over from sbatch; export SRUN_CPUS_PER_TASK=8 or give it to srun");
    CHECK(cpu_warning({}, 2, 4) ==
          "4 workers of this node may use only 2 CPUs: ask for more, as with srun "
          "--cpus-per-task=4");
  }
}
