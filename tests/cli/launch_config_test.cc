// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/launch_config.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <csignal>

using namespace ddprun;
using namespace ddprun::cli;
using namespace std::chrono_literals;

namespace {

// A machine with 8 CPUs, python3, and the files train.py and train (a native program).
struct Launch {
  std::map<std::string, std::string, std::less<>> environment;
  int gpus = 0;
  std::string own_python;
  std::string own_address = "10.0.0.9";

  Machine machine() const {
    return {.cpu_count = [] { return 8; },
            .gpu_count = [gpus = gpus] { return gpus; },
            .topology = []() -> Result<Topology> {
              return Topology{.cpus = {{0, {}}, {1, {}}, {2, {.node = 1}}, {3, {.node = 1}}},
                              .gpus = {{.pci = "a", .node = 0}, {.pci = "b", .node = 1}}};
            },
            .hostname = [] { return "node7"; },
            .resolves = [](const std::string& host) { return host != "nowhere"; },
            .is_here =
                [](const std::string& host) {
                  return host == "node7" || host.starts_with("10.0.0.") || is_loopback_host(host);
                },
            .can_listen = [](const std::string& host) -> Result<void> {
              if (host != "203.0.113.9") return {};
              return system_error(EADDRNOTAVAIL, "bind " + host);
            },
            .own_address = [address = own_address] { return address; },
            .host_folder = [](const std::string& path) -> Result<void> {
              if (path == "/shared/run1") return {};
              if (path == "/shared/away")
                return Error{Errc::Closed, "the folder " + path + " does not exist"};
              return Error{Errc::InvalidInput, "the folder " + path + " is not good"};
            },
            .random_id = [] { return "random"; },
            .file_kind =
                [](const std::string& path) {
                  if (path == "train") return FileKind::Native;
                  if (path == "/data") return FileKind::Folder;
                  return path == "train.py" ? FileKind::Other : FileKind::Missing;
                },
            .file_text = [](const std::string& path) -> std::optional<std::string> {
              return path.ends_with(".pem") ? std::optional<std::string>("PEM") : std::nullopt;
            },
            .secret_file = [](const std::string& path,
                              const std::string& what) -> Result<store::Secret> {
              if (path == "secret") return store::Secret::from_text("a secret of the run");
              return Error{Errc::InvalidInput, what + "=" + path + ": other users may use it"};
            },
            .password_file = [](const std::string& path,
                                const std::string& what) -> Result<std::string> {
              if (path == "/password") return "a password";
              return Error{Errc::InvalidInput, what + "=" + path + ": other users may use it"};
            },
            .find_program = [](const std::string& name) -> Result<std::string> {
              if (name == "missing")
                return Error{Errc::InvalidInput, "program 'missing' was not found in PATH"};
              return name.find('/') == std::string::npos ? "/usr/bin/" + name : name;
            },
            .own_python = [own = own_python] { return own; }};
  }

  Result<LaunchConfig> with(const std::vector<std::string>& arguments) const {
    auto parsed = parse_options(arguments, [](std::string_view) { return std::nullopt; });
    REQUIRE(parsed.has_value());
    return launch_config(std::get<Options>(*parsed), environment, machine());
  }
  LaunchConfig accepted(const std::vector<std::string>& arguments) const {
    auto config = with(arguments);
    if (!config) FAIL(to_string(config.error()));
    return *config;
  }
  std::string why_not(const std::vector<std::string>& arguments) const {
    auto config = with(arguments);
    return config ? "accepted" : to_string(config.error());
  }
  std::string command(const std::vector<std::string>& arguments) const {
    std::string text;
    for (const std::string& word : accepted(arguments).agent.workers.command)
      text += (text.empty() ? "" : " ") + word;
    return text;
  }
};

}  // namespace

TEST_SUITE("cli/config/launch_config") {
  TEST_CASE_FIXTURE(Launch,
                    "the defaults are torchrun's, with a free port and loopback on one node") {
    LaunchConfig config = accepted({"train.py"});
    CHECK(config.agent.core.local_world_size == 1);
    CHECK(config.max_restarts == 0);
    CHECK(config.agent.core.stop_grace == 30s);
    CHECK(config.agent.stop_signals == std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT});
    CHECK(config.agent.workers.run_id == "random");
    CHECK(accepted({"--master-port=1", "train.py"}).agent.workers.run_id == "none");
    CHECK(accepted({"--rdzv-id=7", "train.py"}).agent.workers.run_id == "7");
    CHECK(config.master == Endpoint{"127.0.0.1", 0});
    CHECK(config.notes.empty());
  }

  TEST_CASE_FIXTURE(Launch,
                    "one node shows itself at loopback, for its user, or where it is told") {
    auto page = [this](const std::string& given) {
      return accepted({"--page=" + given, "--allow=10.0.0.0/8", "train.py"}).page;
    };
    REQUIRE(accepted({"train.py"}).page);
    CHECK(accepted({"train.py"}).page->listen == Endpoint{"127.0.0.1", 0});
    CHECK(accepted({"train.py"}).page->is_for_user_only);
    CHECK(page("9400")->listen == Endpoint{"127.0.0.1", 9400});
    CHECK(page("9400")->is_for_user_only);
    CHECK(page("9400")->allow.empty());
    CHECK(page("0.0.0.0:9400")->listen == Endpoint{"0.0.0.0", 9400});
    CHECK_FALSE(page("0.0.0.0:9400")->is_for_user_only);
    CHECK(page("[::1]:9400")->listen == Endpoint{"::1", 9400});
    CHECK_FALSE(page("0.0.0.0:9400")->allow.empty());
    CHECK_FALSE(page("none"));
    for (const char* bad : {"", "x", "here:80", "1.2.3.4:x", "99999", "-1", "0x10"}) {
      CHECK(why_not({std::string("--page=") + bad, "train.py"}) ==
            "--page='" + std::string(bad) +
                "' is not a port, a numeric address and a port, or none");
    }
  }

  TEST_CASE_FIXTURE(Launch,
                    "a secret and a list of addresses are for a page that others can reach") {
    const std::string secret = "--rdzv-secret-file=secret";
    CHECK(accepted({secret, "--page=127.0.0.1:0", "train.py"}).page->secret);
    CHECK(accepted({secret, "--page=127.0.0.1:0", "train.py"}).notes.empty());
    CHECK(accepted({secret, "--allow=10.0.0.0/8", "train.py"}).notes ==
          std::vector<std::string>{"--allow has no effect with one node",
                                   "--rdzv-secret-file has no effect with one node"});
    CHECK(accepted({"--nnodes=2", "--rdzv-backend=c10d", "--page=1", "train.py"}).notes.front() ==
          "--page has no effect with several nodes, whose host shows the run where they meet");
  }

  TEST_CASE_FIXTURE(Launch, "what is run, and through what") {
    CHECK(command({"train.py", "--lr", "1"}) == "/usr/bin/python3 -u train.py --lr 1");
    CHECK(command({"-m", "pkg.train"}) == "/usr/bin/python3 -u -m pkg.train");
    CHECK(command({"--no-python", "hostname", "-f"}) == "/usr/bin/hostname -f");
    CHECK(command({"train", "x"}) == "./train x");
    CHECK(accepted({"train"}).notes.front().starts_with(
        "train is a native program, so it is run directly"));
    own_python = "/home/me/env/bin/python3";
    CHECK(command({"train.py"}) == "/home/me/env/bin/python3 -u train.py");
    environment["VIRTUAL_ENV"] = "/venv";
    CHECK(command({"train.py"}) == "/venv/bin/python3 -u train.py");
    environment["PYTHON_EXEC"] = "/opt/python";
    CHECK(command({"train.py"}) == "/opt/python -u train.py");
  }

  TEST_CASE_FIXTURE(Launch, "--run-path goes through runpy, and wins over the other ways") {
    auto words = accepted({"--run-path", "train.py", "--lr", "1"}).agent.workers.command;
    REQUIRE(words.size() == 7);
    CHECK(words[2] == "-c");
    CHECK(words[3].find("runpy.run_path(sys.argv[0], run_name=\"__main__\")") != std::string::npos);
    CHECK(words[3].find('$') == std::string::npos);  // arguments have their macros replaced
    CHECK(words[4] == "train.py");
    LaunchConfig config = accepted({"--run-path", "--no-python", "train.py"});
    CHECK(config.agent.workers.command.size() == 5);
    CHECK(config.notes.front() == "--no-python has no effect with --run-path");
    CHECK(why_not({"--run-path", "tain.py"}) == "script 'tain.py' does not exist");
  }

  TEST_CASE_FIXTURE(Launch, "--virtual-local-rank gives each worker one GPU as number 0") {
    auto devices = [&](const std::vector<std::string>& arguments) {
      std::string text;
      for (auto& placement : accepted(arguments).agent.workers.placements) {
        for (const auto& [name, value] : placement.environment) text += name + "=" + value + " ";
        text += "| ";
      }
      return text;
    };
    CHECK(devices({"--nproc-per-node=2", "train.py"}) == "| | ");
    const std::vector<std::string> two = {"--virtual-local-rank", "--nproc-per-node=2", "train.py"};
    CHECK(devices(two) ==
          "CUDA_VISIBLE_DEVICES=0 LOCAL_RANK=0 | CUDA_VISIBLE_DEVICES=1 LOCAL_RANK=0 | ");
    environment["CUDA_VISIBLE_DEVICES"] = "5, 3";
    CHECK(devices(two) ==
          "CUDA_VISIBLE_DEVICES=5 LOCAL_RANK=0 | CUDA_VISIBLE_DEVICES=3 LOCAL_RANK=0 | ");
    environment["HIP_VISIBLE_DEVICES"] = "7";
    CHECK(why_not(two) ==
          "--virtual-local-rank: HIP_VISIBLE_DEVICES='7' has 1 entries for 2 workers");
    environment["HIP_VISIBLE_DEVICES"] = "7,6";
    CHECK(devices(two) ==
          "CUDA_VISIBLE_DEVICES=7 HIP_VISIBLE_DEVICES=7 LOCAL_RANK=0 | "
          "CUDA_VISIBLE_DEVICES=6 HIP_VISIBLE_DEVICES=6 LOCAL_RANK=0 | ");
  }

  TEST_CASE_FIXTURE(Launch, "--numa-binding gives each worker the CPUs near its GPU") {
    auto placements = accepted({"--numa-binding=node", "--nproc-per-node=2", "train.py"})
                          .agent.workers.placements;
    REQUIRE(placements.size() == 2);
    CHECK(placements[0].cpus == std::vector<int>{0, 1});
    CHECK(placements[1].cpus == std::vector<int>{2, 3});
    CHECK(why_not({"--numa-binding=near", "train.py"}) ==
          "--numa-binding='near' is not node, socket, exclusive or core-complex");
    CHECK(why_not({"--numa-binding=exclusive", "--nproc-per-node=3", "train.py"}) ==
          "--numa-binding=exclusive: local rank 2 has no GPU, of which 2 are visible");
  }

  TEST_CASE_FIXTURE(Launch, "what cannot be run is refused") {
    CHECK(why_not({}) == "no script or program to run; see ddprun --help");
    CHECK(why_not({"tain.py"}) == "script 'tain.py' does not exist");
    CHECK(why_not({"--no-python", "missing"}) == "program 'missing' was not found in PATH");
    CHECK(why_not({"--nproc-per-node=2", "-"})
              .starts_with("the script '-' is read from stdin, which only one worker can read: "));
    CHECK(why_not({"-m", "train.py"}).starts_with("-m 'train.py' is a file: "));
    CHECK(why_not({"-m", "--no-python", "x"}) == "--module and --no-python exclude each other");
  }

  TEST_CASE_FIXTURE(Launch, "the number of workers") {
    CHECK(accepted({"--nproc-per-node=cpu", "train.py"}).agent.core.local_world_size == 8);
    CHECK(accepted({"--nproc-per-node=auto", "train.py"}).agent.core.local_world_size == 8);
    CHECK(why_not({"--nproc-per-node=gpu", "train.py"}) ==
          "--nproc-per-node=gpu: no GPU is visible on this machine; give a number, or 'cpu' or "
          "'auto'");
    gpus = 4;
    CHECK(accepted({"--nproc-per-node=auto", "train.py"}).agent.core.local_world_size == 4);
    CHECK(why_not({"--nproc-per-node=0", "train.py"}) ==
          "--nproc-per-node='0' is not a number of workers from 1 to 65536, or auto, gpu or cpu");
  }

  TEST_CASE_FIXTURE(Launch, "where the workers meet") {
    CHECK(accepted({"--standalone", "train.py"}).agent.workers.run_id == "random");
    CHECK(accepted({"--standalone", "--rdzv-backend=etcd", "train.py"}).master ==
          Endpoint{"127.0.0.1", 0});
    CHECK(accepted({"--master-port=29511", "train.py"}).master == Endpoint{"127.0.0.1", 29511});
    CHECK(accepted({"--master-addr=node7", "--master-port=1", "train.py"}).master ==
          Endpoint{"node7", 1});
    CHECK(accepted({"--master-addr=[::1]", "train.py"}).master == Endpoint{"::1", 0});
    CHECK(accepted({"--standalone", "--local-addr=[::1]", "train.py"}).master.host == "::1");
    CHECK(accepted({"--rdzv-endpoint=node7", "train.py"}).master == Endpoint{"node7", 29500});
    LaunchConfig c10d = accepted(
        {"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29400", "--rdzv-id=100", "train.py"});
    CHECK(c10d.master == Endpoint{"127.0.0.1", 0});
    CHECK(c10d.agent.workers.run_id == "100");
    CHECK(accepted({"--rdzv-backend=c10d", "--local-addr=node7", "train.py"}).master ==
          Endpoint{"node7", 0});
    CHECK(
        why_not({"--rdzv-endpoint=node0:x", "train.py"}) ==
        "--rdzv-endpoint='node0:x' is not host:port: 'x' is not a port (a number from 0 to 65535)");
    CHECK(why_not({"--master-port=70000", "train.py"}) ==
          "--master-port='70000' is not a port (a number from 0 to 65535)");
    // The nodes would not find each other: what comes from the wire is quoted.
    CHECK(why_not({"--nnodes=2", "--rdzv-endpoint=node0:1", "--rdzv-id=a\tb", "train.py"})
              .ends_with(" is not a printable name of 1 to 256 bytes"));
  }

  TEST_CASE_FIXTURE(Launch, "options that the rendezvous leaves without effect are named") {
    auto only_note = [&](const std::vector<std::string>& arguments) {
      LaunchConfig config = accepted(arguments);
      REQUIRE(config.notes.size() == 1);
      return config.notes.front();
    };
    CHECK(only_note({"--standalone", "--rdzv-id=7", "train.py"}) ==
          "--rdzv-id has no effect with --standalone");
    CHECK(only_note({"--rdzv-backend=c10d", "--master-port=1", "train.py"}) ==
          "--master-port has no effect with the c10d backend");
    CHECK(only_note({"--local-addr=node7", "train.py"}) ==
          "--local-addr has no effect with the static backend");
    const char* unknown =
        "--local-addr='nowhere': this machine cannot resolve that host into an address";
    CHECK(why_not({"--standalone", "--local-addr=nowhere", "train.py"}) == unknown);
    CHECK(why_not({"--rdzv-backend=c10d", "--local-addr=nowhere", "train.py"}) == unknown);
    CHECK(why_not({"--rdzv-backend=c10d", "--nnodes=2", "--local-addr=nowhere", "train.py"}) ==
          unknown);
    // Behind NAT the others know another address than the interfaces have.
    for (const char* nodes : {"--nnodes=1", "--nnodes=2"}) {
      LaunchConfig config =
          accepted({nodes, "--rdzv-backend=c10d", "--local-addr=203.0.113.9", "train.py"});
      REQUIRE(config.warnings.size() == 1);
      CHECK(config.warnings.front().starts_with("--local-addr=203.0.113.9: the "));
    }
    CHECK(accepted({"--standalone", "--local-addr=10.0.0.7", "train.py"}).warnings.empty());
    CHECK(accepted({"--standalone", "--local-addr=", "train.py"}).master.host == "127.0.0.1");
    CHECK(accepted({"--standalone", "--local-addr=node7", "train.py"}).master ==
          Endpoint{"node7", 0});
  }

  TEST_CASE_FIXTURE(Launch, "several nodes join at the endpoint, each with what it brings") {
    LaunchConfig config = accepted({"--nnodes=2:4", "--nproc-per-node=3", "--role=trainer",
                                    "--rdzv-backend=c10d", "--rdzv-endpoint=node0", "--rdzv-id=r1",
                                    "--max-restarts=5", "--local-addr=10.0.0.7", "train.py"});
    REQUIRE(config.network);
    CHECK(config.network->endpoint == Endpoint{"node0", 29400});
    CHECK_FALSE(config.network->is_host.has_value());
    CHECK(config.network->member.run == "r1");
    CHECK(config.network->member.name == "node7-random");
    const rendezvous::member::NodeConfig& node = config.network->member.node;
    CHECK(node.host == "node7");
    CHECK(node.address == "10.0.0.7");
    CHECK(node.participant.local_world_size == 3);
    CHECK(node.participant.role == "trainer");
    CHECK(node.settings ==
          rendezvous::Settings{.min_nodes = 2, .max_nodes = 4, .master = std::nullopt});
    CHECK(node.policy.max_restarts == 5);
    CHECK_FALSE(node.node_rank.has_value());
  }

  TEST_CASE_FIXTURE(Launch, "several endpoints name a ddpd each") {
    const std::vector<std::string> given = {"--nnodes=2", "--rdzv-backend=c10d",
                                            "--rdzv-endpoint=d1,d2:7", "train.py"};
    LaunchConfig config = accepted(given);
    REQUIRE(config.network);
    CHECK(config.network->endpoint == Endpoint{"d1", 29400});
    CHECK(config.network->member.node.settings.endpoints ==
          std::vector<Endpoint>{{"d1", 29400}, {"d2", 7}});
    CHECK(config.network->member.endpoint == "d1:29400,d2:7");
    CHECK(config.network->is_host == false);
    CHECK_FALSE(config.network->may_stand_in);

    auto why_not_at = [&](const std::string& endpoints, const std::string& conf = "is_host=0") {
      return why_not({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoints,
                      "--rdzv-conf=" + conf, "train.py"});
    };
    CHECK(why_not_at("d1,d2") == "accepted");
    CHECK(why_not_at("d1,d2", "is_host=1") ==
          "is_host=1 does not go with several endpoints: a ddpd is to be at each of them; name one "
          "endpoint where an agent is to host");
    CHECK(why_not_at("d1,d1:29400") == "--rdzv-endpoint=d1,d1:29400: d1:29400 is there twice");
    CHECK(why_not_at("d1,d2:0") ==
          "--rdzv-endpoint='d2:0' is not host:port: '0' is not a port (a number from 1 to 65535)");
    CHECK(why_not_at("d1,0.0.0.0").starts_with("0.0.0.0:29400 is no address to connect to"));
    CHECK(why_not_at("d1,").starts_with("--rdzv-endpoint=d1,: endpoint 2 of 2 is empty;"));
    CHECK(why_not_at("1,2,3,4,5,6,7,8,9") ==
          "--rdzv-endpoint=1,2,3,4,5,6,7,8,9: 9 endpoints; at most 8 are tried");
    CHECK(why_not({"--nnodes=2", "--rdzv-endpoint=d1,d2", "train.py"}) ==
          "--rdzv-endpoint=d1,d2: the workers of the static backend meet at one place; several go "
          "with --rdzv-backend=c10d");
    CHECK(accepted({"--rdzv-backend=c10d", "--rdzv-endpoint=d1,d2", "train.py"}).network ==
          std::nullopt);
  }

  TEST_CASE_FIXTURE(Launch, "the static backend has one address for nodes and workers") {
    LaunchConfig config = accepted(
        {"--nnodes=2", "--node-rank=1", "--master-addr=node0", "--master-port=1234", "train.py"});
    REQUIRE(config.network);
    CHECK(config.network->endpoint == Endpoint{"node0", 1234});
    CHECK(config.network->member.node.settings.master == Endpoint{"node0", 1234});
    CHECK(config.network->member.node.node_rank == 1);
    CHECK(why_not({"--nnodes=2:4", "train.py"}) ==
          "--nnodes=2:4: the static backend has a fixed number of nodes; use --rdzv-backend=c10d "
          "for a range");
    // With one node, port 0 is any that is free.
    CHECK(accepted({"--master-port=0", "train.py"}).master.port == 0);
    CHECK(accepted({"--rdzv-endpoint=node0:0", "train.py"}).master == Endpoint{"node0", 0});
    for (const char* port : {"0", "70000"}) {
      const std::string why =
          "'" + std::string(port) + "' is not a port (a number from 1 to 65535)";
      const std::string place = "node0:" + std::string(port);
      CHECK(why_not({"--nnodes=2", "--master-port=" + std::string(port), "train.py"}) ==
            "--master-port=" + why);
      CHECK(why_not({"--nnodes=2", "--rdzv-endpoint=" + place, "train.py"}) ==
            "--rdzv-endpoint='" + place + "' is not host:port: " + why);
    }
    CHECK(why_not({"--nnodes=2", "--node-rank=2", "train.py"}) ==
          "--node-rank=2: with at most 2 nodes it is 0..1");
    for (const char* nodes : {"--nnodes=1", "--nnodes=2"})
      CHECK(why_not({nodes, "--master-addr=", "train.py"}) == "--master-addr='' is not a host");
    CHECK(
        why_not({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=[::]:1", "train.py"}) ==
        "[::]:1 is no address to connect to: it stands for all addresses of a machine; name one of "
        "them, or its host name");
    CHECK(accepted({"--nnodes=2", "--master-addr=node0", "train.py"}).notes.front() ==
          "no --node-rank is given, so this is node 0 of 2");
    CHECK(why_not({"--nnodes=2", "--standalone", "train.py"}) ==
          "--standalone is for one node; it does not go with --nnodes=2");
    CHECK(why_not({"--nnodes=2:4", "--standalone", "train.py"}) ==
          "--standalone is for one node; it does not go with --nnodes=2:4");
    LaunchConfig one = accepted({"--nnodes=1:4", "--standalone", "train.py"});
    CHECK(one.notes.front() ==
          "--nnodes=1:4: no other node finds a --standalone run, so it begins with this one");
    CHECK_FALSE(one.network);
  }

  TEST_CASE_FIXTURE(Launch, "the settings of the rendezvous are torchelastic's") {
    auto conf = [this](const std::string& text) {
      return accepted({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf=" + text, "train.py"});
    };
    rendezvous::Policy policy =
        conf("join_timeout=60,last_call_timeout=2.5,keep_alive_interval=2,keep_alive_max_attempt=3")
            .network->member.node.policy;
    CHECK(policy.join_timeout == std::chrono::seconds(60));
    CHECK(policy.last_call_timeout == std::chrono::milliseconds(2500));
    CHECK(policy.silence_limit() == std::chrono::seconds(6));
    CHECK(conf("is_host=True,read_timeout=7").network->is_host == true);
    CHECK(conf("is_host=0").network->is_host == false);
    policy = conf(" join_timeout = 60, last_call_timeout=2.5 ").network->member.node.policy;
    CHECK(policy.join_timeout == std::chrono::seconds(60));
    CHECK(policy.last_call_timeout == std::chrono::milliseconds(2500));
    auto why = [this](const std::string& text) {
      return why_not({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf=" + text, "train.py"});
    };
    // More nodes than there can be never come; with one node there is no rendezvous.
    CHECK(conf("quorum=2").network->member.node.policy.quorum == 2);
    CHECK(why("quorum=3") == "--rdzv-conf: quorum=3: with at most 2 nodes it is 1..2");
    CHECK(why("quorum=0") == "--rdzv-conf: quorum='0' is not a whole number from 1 to 1000000");
    CHECK(why_not({"--rdzv-backend=c10d", "--rdzv-conf=quorum=3", "train.py"}) == "accepted");
    CHECK(why("is_host=maybe") == "--rdzv-conf: is_host='maybe' is not true or false");
    CHECK(why("join_timeout=0").starts_with("--rdzv-conf: join_timeout='0' is not"));
    CHECK(why("store_type=hash") ==
          "--rdzv-conf: store_type=hash is not supported: tcp and file are");
    CHECK(why("store_type=file") ==
          "--rdzv-conf: store_type=file needs a folder that all nodes "
          "share: --rdzv-endpoint=file:/PATH");
  }

  TEST_CASE_FIXTURE(Launch, "a shared folder says who hosts, in torchrun's spelling as well") {
    auto by = [this](const std::string& endpoint, const std::string& option = "--max-restarts=1") {
      return accepted(
          {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint, option, "train.py"});
    };
    for (const char* endpoint : {"file:/shared/run1", "file:///shared/run1", "file:/shared/run1/"})
      CHECK(by(endpoint).network->host_folder == "/shared/run1");
    LaunchConfig config = by("/shared/run1", "--rdzv-conf=store_type=file");
    CHECK(config.network->host_folder == "/shared/run1");
    CHECK(config.network->may_stand_in);
    CHECK(config.network->member.has_registry);
    CHECK(config.network->member.endpoint == "file:/shared/run1");
    CHECK(config.network->endpoint == Endpoint{.host = "10.0.0.9", .port = 0});
    CHECK_FALSE(by("file:/shared/run1", "--rdzv-conf=is_host=0").network->may_stand_in);
    // What the others are told of this node.
    auto told = [&](const std::string& option) {
      return by("file:/shared/run1", option).network->endpoint.host;
    };
    CHECK(told("--bind=10.0.0.7") == "10.0.0.7");
    CHECK(told("--bind=0.0.0.0") == "10.0.0.9");
    CHECK(told("--local-addr=node7") == "node7");
    own_address = "127.0.0.1";
    CHECK(by("file:/shared/run1").notes.front().find("all nodes must be on this machine") !=
          std::string::npos);

    auto why = [this](const std::string& endpoint) {
      return why_not(
          {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint, "train.py"});
    };
    CHECK(why("file:shared/run1") ==
          "--rdzv-endpoint=file:shared/run1: the path of a folder that all nodes share begins "
          "with /");
    CHECK(why("file://host/run1").find("begins with /") != std::string::npos);
    CHECK(why("file:").find("begins with /") != std::string::npos);
    CHECK(why("file:/elsewhere") ==
          "--rdzv-endpoint=file:/elsewhere: the folder /elsewhere is not good");
    CHECK(why_not({"--nnodes=2", "--rdzv-backend=static", "--rdzv-endpoint=file:/shared/run1",
                   "train.py"}) ==
          "--rdzv-endpoint=file:/shared/run1: a folder goes with --rdzv-backend=c10d");
    // One that may come back is looked for.
    own_address = "10.0.0.9";
    LaunchConfig away = by("file:/shared/away", "--rdzv-conf=read_timeout=8");
    CHECK(away.network->host_folder == "/shared/away");
    CHECK(away.notes.front() ==
          "the folder /shared/away does not exist; the host is looked for there for at most 8.0 s");
    // One node asks nobody.
    LaunchConfig one = accepted(
        {"--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=file:/elsewhere", "train.py"});
    CHECK(one.notes.front().find("is not read") != std::string::npos);
  }

  TEST_CASE_FIXTURE(Launch, "who hosts can say where it listens and to whom") {
    LaunchConfig config = accepted(
        {"--nnodes=2", "--rdzv-backend=c10d", "--bind=10.0.0.7", "--allow=10.0.0.0/8", "train.py"});
    CHECK(config.network->bind == "10.0.0.7");
    CHECK(config.network->allow.admits("10.1.2.3"));
    CHECK_FALSE(config.network->allow.admits("11.1.2.3"));
    for (const char* address : {"", "node0", "10.0.0.0/8"}) {
      CHECK(why_not({"--nnodes=2", "--bind=" + std::string(address), "train.py"}) ==
            "--bind='" + std::string(address) + "' is not a numeric address, or localhost");
    }
    CHECK(why_not({"--nnodes=2", "--allow=here", "train.py"}).starts_with("--allow=here"));
    for (const char* backend : {"static", "c10d", "etcd"}) {
      CHECK(why_not({"--nnodes=2", "--rdzv-backend=" + std::string(backend), "--bind=203.0.113.9",
                     "train.py"})
                .starts_with("--bind=203.0.113.9: no interface of this machine has this address"));
    }
    for (const char* endpoint : {"node0", "node0,node1"}) {
      CHECK(
          why_not({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + std::string(endpoint),
                   "--bind=203.0.113.9", "train.py"}) == "accepted");
    }
  }

  TEST_CASE_FIXTURE(Launch, "the workers' store admits more machines and users, if asked to") {
    for (const char* nodes : {"--nnodes=1", "--nnodes=2"}) {
      auto as_before = accepted({nodes, "--rdzv-backend=c10d", "train.py"}).worker_store;
      CHECK(as_before.machines.empty());
      CHECK_FALSE(as_before.any_machine);
      CHECK_FALSE(as_before.any_user);
      auto some = accepted({nodes, "--worker-store-allow=10.0.0.0/8,fd00::7", "train.py"});
      CHECK(some.worker_store.machines.lists("10.1.2.3"));
      CHECK_FALSE(some.worker_store.machines.lists("11.1.2.3"));
      CHECK_FALSE(some.worker_store.any_machine);
      auto all = accepted({nodes, "--worker-store-allow=any", "--allow-users", "train.py"});
      CHECK(all.worker_store.any_machine);
      CHECK(all.worker_store.any_user);
    }
    CHECK(why_not({"--worker-store-allow=all", "train.py"}) ==
          "--worker-store-allow=all: 'all' is not a range of addresses: 'all' is not a numeric "
          "address");
  }

  TEST_CASE_FIXTURE(Launch, "etcd says who hosts: its members, and how they are reached") {
    LaunchConfig config = accepted({"--nnodes=2", "--rdzv-backend=etcd", "--local-addr=node7",
                                    "--rdzv-endpoint=h1,h2:1234,[::1]:5", "--rdzv-id=a",
                                    "--rdzv-conf=protocol=https,cacert=ca.pem,cert=c.pem,key=k.pem,"
                                    "user=me,password_file=/password,etcd_prefix=/x/,timeout=7",
                                    "train.py"});
    REQUIRE(config.network);
    const rendezvous::NetworkConfig& network = *config.network;
    REQUIRE(network.etcd);
    CHECK(network.etcd->members == std::vector<Endpoint>{{"h1", 2379}, {"h2", 1234}, {"::1", 5}});
    CHECK(network.etcd->uses_tls);
    CHECK(network.etcd->ca == "ca.pem");
    CHECK(network.etcd->certificate == "c.pem");
    CHECK(network.etcd->key == "k.pem");
    CHECK(network.etcd->user == "me");
    CHECK(network.etcd->password == "a password");
    CHECK(network.etcd->prefix == "/x");
    CHECK(network.member.node.policy.join_timeout == 7s);
    CHECK(network.endpoint == Endpoint{"node7", 0});
    CHECK(network.may_stand_in);
    CHECK(network.member.has_registry);
    CHECK(network.member.endpoint == "etcd at h1:2379,h2:1234,[::1]:5");

    config =
        accepted({"--nnodes=2", "--rdzv-backend=etcd-v2", "--local-addr=node7",
                  "--rdzv-conf=protocol=HTTPS,ca_cert=ca.pem,ssl_cert=c.pem,ssl_cert_key=k.pem,"
                  "is_host=0",
                  "train.py"});
    REQUIRE(config.network->etcd);
    CHECK(config.network->etcd->members == std::vector<Endpoint>{{"localhost", 2379}});
    CHECK(config.network->etcd->ca == "ca.pem");
    CHECK(config.network->etcd->certificate == "c.pem");
    CHECK(config.network->etcd->key == "k.pem");
    CHECK(config.network->etcd->user.empty());
    CHECK(config.network->etcd->prefix == "/ddprun");
    CHECK_FALSE(config.network->may_stand_in);

    config = accepted({"--rdzv-backend=etcd", "--rdzv-endpoint=h1,h2", "train.py"});
    CHECK_FALSE(config.network);
    CHECK(config.notes == std::vector<std::string>{"one node needs no rendezvous: etcd at "
                                                   "h1:2379,h2:2379 is not contacted"});
  }

  TEST_CASE_FIXTURE(Launch, "what is wrong with etcd's settings is one line") {
    auto refusal = [&](const std::string& conf, const std::string& endpoint = "h1") {
      return why_not({"--nnodes=2", "--rdzv-backend=etcd", "--local-addr=node7",
                      "--rdzv-endpoint=" + endpoint, "--rdzv-conf=" + conf, "train.py"});
    };
    CHECK(refusal("protocol=http") == "accepted");
    CHECK(refusal("protocol=ftp") == "--rdzv-conf: protocol='ftp' is not http or https");
    CHECK(refusal("protocol=https,cacert=/nowhere") ==
          "--rdzv-conf: cacert=/nowhere: this file cannot be read");
    CHECK(refusal("protocol=https,key=k.pem") ==
          "--rdzv-conf: key needs the certificate that it is the key of (cert=PATH)");
    CHECK(refusal("user=me") == "--rdzv-conf: user needs password_file=PATH");
    CHECK(refusal("password_file=/password") == "--rdzv-conf: password_file needs user=NAME");
    CHECK(refusal("user=me,password_file=/other") ==
          "--rdzv-conf: password_file=/other: other users may use it");
    CHECK(refusal("user=me,password=x") ==
          "--rdzv-conf: password: every user of this machine can read a command line; "
          "password_file=PATH names a file that has the password");
    CHECK(refusal("etcd_prefix=x") ==
          "--rdzv-conf: etcd_prefix='x' is not a path that begins with / and has a name in it");
    CHECK(refusal("etcd_prefix=//") ==
          "--rdzv-conf: etcd_prefix='//' is not a path that begins with / and has a name in it");
    CHECK(refusal("join_timeout=9", "h1,:2379") ==
          "--rdzv-endpoint=':2379' is not host:port: the host is empty");
    CHECK(refusal("join_timeout=9", "h1,h2:0") ==
          "--rdzv-endpoint='h2:0' is not host:port: '0' is not a port (a number from 1 to 65535)");
    CHECK(refusal("join_timeout=9", "h1,,h2").find(": endpoint 2 of 3 is empty;") !=
          std::string::npos);
    CHECK(refusal("join_timeout=9", "http://h1:2379") ==
          "--rdzv-endpoint='http://h1:2379' is not host:port: a host contains no '/'");
    LaunchConfig config = accepted({"--nnodes=2", "--rdzv-backend=etcd", "--local-addr=node7",
                                    "--rdzv-conf=cacert=ca.pem", "train.py"});
    CHECK(config.notes ==
          std::vector<std::string>{"--rdzv-conf: cacert has no effect without protocol=https"});
    CHECK(why_not({"--rdzv-backend=zookeeper", "train.py"}) ==
          "--rdzv-backend='zookeeper' is not static, c10d, etcd or etcd-v2");
  }

  TEST_CASE_FIXTURE(Launch, "what is not built yet is refused, not ignored") {
    CHECK(why_not({"--logs-specs=x", "train.py"}) ==
          "--logs-specs='x' is not default: any other names a class in a Python package, and "
          "ddprun runs no Python of its own");
    CHECK(why_not({"--logs-specs=default", "train.py"}) == "accepted");
    CHECK(why_not({"--event-log-handler=other", "train.py"}) ==
          "--event-log-handler='other' is not null, console or jsonl:PATH");
    CHECK(why_not({"--event-log-handler=null", "train.py"}) == "accepted");
  }

  TEST_CASE_FIXTURE(Launch, "what this machine lacks is no reason to keep other nodes waiting") {
    LaunchConfig config = accepted({"--nnodes=2", "--rdzv-backend=c10d", "other.py"});
    CHECK(config.preflight_failure == "script 'other.py' does not exist");
    CHECK(config.network);
    CHECK(accepted({"--nnodes=2", "--nproc-per-node=gpu", "train.py"})
              .preflight_failure.starts_with("--nproc-per-node=gpu: no GPU is visible"));
    CHECK(why_not({"other.py"}) == "script 'other.py' does not exist");
    CHECK(why_not({"/data"}) == "script '/data' is a folder, and has no __main__.py");
    CHECK(why_not({"-m", ""}) == "no script or program to run; see ddprun --help");
    CHECK(why_not({"--nnodes=2", "--dry-run", "other.py"}) == "script 'other.py' does not exist");
    CHECK(why_not({"--nnodes=2", "--tee=9", "other.py"}).starts_with("--tee='9' is not"));
    CHECK(accepted({"--nnodes=2", "train.py"}).preflight_failure.empty());
  }

  TEST_CASE_FIXTURE(Launch,
                    "a node of a step that would be a second node 0 of the static backend") {
    auto failure = [this](const char* node, std::vector<std::string> more) {
      environment = {{"SLURM_JOB_ID", "12"},
                     {"SLURM_STEP_ID", "0"},
                     {"SLURM_STEP_NODELIST", "node[0-1]"},
                     {"SLURM_STEP_NUM_TASKS", "2"},
                     {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                     {"SLURM_NODEID", node}};
      more.insert(more.end(), {"--nnodes=2", "--rdzv-endpoint=node0:29400", "train.py"});
      return accepted(more).preflight_failure;
    };
    CHECK(failure("1", {}) ==
          "on several nodes the static backend needs --node-rank (srun bash -c 'ddprun "
          "--node-rank=$SLURM_NODEID ...'); --rdzv-backend=c10d needs none");
    CHECK(failure("0", {}).empty());
    CHECK(failure("1", {"--node-rank=0"}).empty());
    CHECK(failure("1", {"--rdzv-conf=rank=1"}).empty());
    CHECK(failure("1", {"--rdzv-backend=c10d"}).empty());
  }

  TEST_CASE_FIXTURE(Launch, "bad values are named with what is accepted") {
    CHECK(why_not({"--nnodes=0", "train.py"}) ==
          "--nnodes='0' is not a number of nodes N, or MIN:MAX with 1 <= MIN <= MAX <= 1000000");
    CHECK(why_not({"--nnodes=3:2", "train.py"}) ==
          "--nnodes='3:2' is not a number of nodes N, or MIN:MAX with 1 <= MIN <= MAX <= 1000000");
    CHECK(why_not({"--nnodes=1:1000001", "train.py"}).starts_with("--nnodes='1:1000001' is not"));
    CHECK(why_not({"--max-restarts=-1", "train.py"}) ==
          "--max-restarts='-1' is not a whole number of 0 or more");
    CHECK(why_not({"--max-restarts=99999999999", "train.py"}) ==
          "--max-restarts='99999999999' is not a whole number from 0 to 2147483647");
    CHECK(why_not({"--hang-timeout=1e10", "train.py"}) ==
          "--hang-timeout='1e10' is not 0 (never) or a number of seconds up to 1000000000");
    CHECK(why_not({"--shutdown-timeout=", "train.py"}) ==
          "--shutdown-timeout='' is not a whole number from 0 to 1000000");
    CHECK(why_not({"--nproc-per-node=xpu", "train.py"}) ==
          "--nproc-per-node='xpu' is not supported: Intel's GPUs are not counted; give their "
          "number");
    CHECK(why_not({"--master-addr=nowhere", "train.py"}) ==
          "--master-addr='nowhere': this machine cannot resolve that host into an address");
    CHECK(why_not({"--rdzv-endpoint=nowhere:1", "train.py"}) ==
          "--rdzv-endpoint='nowhere:1': this machine cannot resolve that host into an address");
    CHECK(why_not({"--rdzv-backend=zookeeper", "train.py"}) ==
          "--rdzv-backend='zookeeper' is not static, c10d, etcd or etcd-v2");
    CHECK(why_not({"--monitor-interval=0", "train.py"}) ==
          "--monitor-interval='0' is not a number of seconds above 0");
    CHECK(why_not({"--start-method=thread", "train.py"}) ==
          "--start-method='thread' is not spawn, fork or forkserver");
    CHECK(why_not({"--tee=4", "train.py"}) ==
          "--tee='4' is not 0, 1, 2 or 3 (none, stdout, stderr, both), or LOCAL_RANK:VALUE,...");
    CHECK(why_not({"--tee=0:3,1", "train.py"}).starts_with("--tee='0:3,1' is not"));
    CHECK(why_not({"--signals-to-handle=SIGKILL", "train.py"}) ==
          "--signals-to-handle='SIGKILL' is not a list of signals that can be handled, such as "
          "SIGTERM,SIGINT");
    CHECK(why_not({"--rdzv-conf=timeout", "train.py"}) ==
          "--rdzv-conf='timeout' is not of the form KEY=VALUE,KEY=VALUE");
    CHECK(accepted({"--node-rank=1", "train.py"}).notes ==
          std::vector<std::string>{
              "--node-rank=1 has no effect: this is a run of one node (--nnodes)"});
    CHECK(accepted({"--nproc-per-node= 4 ", "--local-ranks-filter=0, 2", "--nnodes= 1 : 1 ",
                    "--max-restarts= 1", "--signals-to-handle=SIGTERM, SIGINT", "train.py"})
              .agent.workers.local_world_size == 4);
    CHECK(why_not({"--local-ranks-filter=a", "train.py"}) ==
          "--local-ranks-filter='a' is not a list of local ranks such as 0,1");
  }

  TEST_CASE_FIXTURE(Launch,
                    "workers have folders from the start where logs or stacks may go there") {
    auto is_late = [this](std::vector<std::string> words) {
      words.push_back("train.py");
      return accepted(std::move(words)).agent.workers.has_late_folders;
    };
    CHECK(is_late({}));
    CHECK(is_late({"--nproc-per-node=2"}));
    CHECK_FALSE(is_late({"--log-dir=logs"}));
    CHECK_FALSE(is_late({"--log-dir=/dev/null"}));
    CHECK_FALSE(is_late({"--nproc-per-node=2", "--tee=1:1"}));
    CHECK_FALSE(is_late({"--nproc-per-node=2", "--redirects=1:2"}));
    CHECK_FALSE(is_late({"--hang-timeout=60"}));
    environment["TORCHELASTIC_ENABLE_FILE_TIMER"] = "1";
    CHECK_FALSE(is_late({}));
  }

  TEST_CASE_FIXTURE(Launch, "the streams of each worker go where redirects, tee and filter say") {
    using agent::StreamRoute;
    auto routes = accepted({"--nproc-per-node=12", "--redirects=1", "--tee=0:2,11:3", "train.py"})
                      .agent.workers.routes;
    REQUIRE(routes.size() == 12);
    CHECK(routes[0].out == StreamRoute::File);
    CHECK(routes[0].err == StreamRoute::FileAndConsole);
    CHECK(routes[1].err == StreamRoute::Inherit);
    CHECK(routes[11].out == StreamRoute::FileAndConsole);

    routes = accepted({"--nproc-per-node=2", "--tee=1", "--local-ranks-filter=1", "train.py"})
                 .agent.workers.routes;
    CHECK(routes[0].out == StreamRoute::File);
    CHECK(routes[0].err == StreamRoute::Discard);
    CHECK(routes[1].out == StreamRoute::FileAndConsole);
    CHECK(routes[1].err == StreamRoute::Inherit);

    LaunchConfig no_files = accepted({"--log-dir=/dev/null", "--redirects=3", "train.py"});
    CHECK_FALSE(no_files.agent.workers.has_log_dir);
    CHECK(no_files.agent.workers.routes[0].out == StreamRoute::Inherit);
    CHECK(accepted({"--tee=5:3", "train.py"}).notes.front() ==
          "--tee names local rank 5, which this node does not have");
    CHECK(accepted({"--local-ranks-filter=0,5", "train.py"}).notes ==
          std::vector<std::string>{
              "--local-ranks-filter names local rank 5, which this node does not have"});
  }

  TEST_CASE_FIXTURE(Launch, "lines that are duplicated") {
    LaunchConfig config = accepted({"--tee=1", "--duplicate-stdout-filters=loss,a,,b", "train.py"});
    CHECK(config.agent.workers.stdout_filters == std::vector<std::string>{"loss", "a,b"});
    CHECK(config.agent.workers.stderr_filters.empty());
    CHECK(config.notes.empty());
    CHECK(accepted({"--tee=1", "--duplicate-stderr-filters=x", "train.py"}).notes.front() ==
          "--duplicate-stderr-filters finds nothing: it looks through streams under --tee only");
    CHECK(why_not({"--log-dir=/dev/null", "--duplicate-stdout-filters=x", "train.py"}) ==
          "--duplicate-stdout-filters copies lines to a file in the log folder, and --log-dir is "
          "/dev/null");
    CHECK(
        accepted({"--duplicate-stdout-filters=", "train.py"}).agent.workers.stdout_filters.empty());
  }

  TEST_CASE_FIXTURE(Launch, "the grace comes from the option, else the variable, else 30 s") {
    environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "7";
    CHECK(accepted({"train.py"}).agent.core.stop_grace == 7s);
    CHECK(accepted({"--shutdown-timeout=0", "train.py"}).agent.core.stop_grace == 0s);
    environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "soon";
    CHECK(why_not({"train.py"}) ==
          "TORCH_ELASTIC_SHUTDOWN_TIMEOUT='soon' is not a whole number from 0 to 1000000");
  }

  TEST_CASE_FIXTURE(Launch, "LOGLEVEL sets the level of the agent's own log") {
    CHECK(accepted({"train.py"}).log_level == "info");
    environment["LOGLEVEL"] = "WARNING";
    CHECK(accepted({"train.py"}).log_level == "warning");
    environment["LOGLEVEL"] = "loud";
    CHECK(accepted({"train.py"}).notes.size() == 1);
  }

  TEST_CASE("how nodes know each other is what the user says, and what he says must be so") {
    Launch launch;
    auto with = [&](std::vector<std::string> options) {
      options.insert(options.begin(), "--nnodes=2");
      options.push_back("train.py");
      return launch.with(options);
    };
    auto why_not = [&](const std::vector<std::string>& options) {
      auto config = with(options);
      return config ? "accepted" : to_string(config.error());
    };
    CHECK_FALSE(with({}).value().network->secret);
    CHECK_FALSE(with({}).value().network->munge);
    CHECK(with({"--rdzv-secret-file=secret"}).value().network->secret);
    CHECK(with({"--rdzv-auth=secret", "--rdzv-secret-file=secret", "--rdzv-encrypt"})
              .value()
              .network->secret);
    CHECK(with({"--rdzv-auth=munge"}).value().network->munge->is_required);
    CHECK(why_not({"--rdzv-secret-file=open"}) ==
          "--rdzv-secret-file=open: other users may use it");
    CHECK(why_not({"--rdzv-auth=secret"}) ==
          "--rdzv-auth=secret needs a secret: --rdzv-secret-file=PATH or DDPRUN_SECRET (ddprun "
          "--new-secret makes one)");
    CHECK(why_not({"--rdzv-encrypt"}).starts_with("--rdzv-encrypt needs a secret: "));
    CHECK(why_not({"--rdzv-auth=none", "--rdzv-encrypt"}) ==
          "--rdzv-encrypt does not go with --rdzv-auth=none");
    CHECK(why_not({"--rdzv-auth=munge", "--rdzv-secret-file=secret"}) ==
          "--rdzv-secret-file does not go with --rdzv-auth=munge");
    launch.environment["DDPRUN_SECRET"] = "a secret of the run";
    LaunchConfig inherited = with({}).value();
    CHECK(inherited.network->secret);
    CHECK_FALSE(inherited.agent.workers.environment.contains("DDPRUN_SECRET"));
    CHECK_FALSE(with({"--rdzv-auth=none"}).value().network->secret);
    LaunchConfig alone = launch.with({"train.py"}).value();
    CHECK_FALSE(alone.agent.workers.environment.contains("DDPRUN_SECRET"));
    launch.environment["DDPRUN_SECRET"] = "short";
    CHECK(why_not({}).starts_with("DDPRUN_SECRET: a secret of 5 bytes"));
  }
}
