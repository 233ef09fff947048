// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/process_group.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <csignal>
#include <future>

#include "tests/ddp/ranks.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/liveness.h"
#include "worker/ddp/local_address.h"
#include "worker/ddp/store_probe.h"
#include "worker/shm/decide/format.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;
using namespace std::chrono_literals;

// The time-out of the groups whose ranks shall give up.  It also bounds a rank's connect to the
// store, and a busy machine whose disk is slow took more than half a second for that.
constexpr auto kGivesUpAfter = 5s;

}  // namespace

TEST_SUITE("ddp/process_group") {
  TEST_CASE("ranks meet and exchange tensors and text") {
    on_ranks(3, [](ProcessGroup group) {
      torch::Tensor sum = torch::tensor({1.0 * group.rank(), 1.0});
      group.all_reduce(sum);
      expect(torch::equal(sum, torch::tensor({3.0, 3.0})), "all_reduce sums");

      torch::Tensor given = torch::full({2}, group.rank());
      group.broadcast(given, 2);
      expect(given[0].item<int>() == 2, "broadcast gives the root's");

      std::vector<torch::Tensor> all = group.all_gather(torch::tensor(group.rank() * 10));
      expect(all.size() == 3 && all[1].item<int>() == 10, "all_gather is ordered by rank");

      std::string text = std::string("zero\0byte", 9);
      expect(group.broadcast_text(group.rank() == 1 ? text : "x", 1) == text, "text arrives whole");
      expect(group.broadcast_text("").empty(), "no text arrives as none");
      for (int i = 0; i < 3; ++i) group.barrier();
    });
  }

  TEST_CASE("a rank that does not come is named by all that wait for it") {
    std::vector<std::string> problems = run_ranks(
        {0, 3}, 4, [](ProcessGroup) {}, kGivesUpAfter);
    for (const std::string& problem : problems) {
      CHECK(problem == "init_process_group: ranks 1 and 2 of 4 did not come within 5 s");
    }
  }

  TEST_CASE("a barrier names the rank that is late, and the group works afterwards") {
    std::string problem;
    std::promise<void> rank_0_gave_up;
    std::vector<std::string> failures = run_ranks(
        {0, 1}, 2,
        [&](ProcessGroup group) {
          group.barrier();
          if (group.rank() == 0) {
            problem = problem_of([&] { group.barrier(); });
            rank_0_gave_up.set_value();
          } else {
            rank_0_gave_up.get_future().wait();
          }
          torch::Tensor sum = torch::ones({1});
          group.all_reduce(sum);
          expect(sum.item<float>() == 2, "all_reduce works after a barrier that failed");
        },
        kGivesUpAfter);
    CHECK(failures == std::vector<std::string>{"", ""});
    CHECK(problem == "barrier: rank 1 of 2 did not come within 5 s");
  }

  TEST_CASE("groups of different names, and of different attempts, share a store") {
    StoreHost host;
    for (int attempt = 0; attempt < 2; ++attempt) {
      for (const char* name : {"default", "second"}) {
        ddprun::worker::WorkerEnv env = env_of(0, 1, host.port());
        env.restart_count = attempt;
        ProcessGroup group = init_process_group({.timeout = 10s, .name = name}, env);
        group.barrier();
      }
    }
  }

  TEST_CASE("over shared memory a callback may drop the last copy of the group") {
    std::promise<void> is_waiting;
    auto problems = run_ranks(
        {0, 1}, 2,
        [&](ProcessGroup group) {
          std::vector<at::Tensor> tensors{torch::ones({3})};
          if (group.rank() == 1) {
            is_waiting.get_future().wait();
            group.c10d()->allreduce(tensors)->wait();
            return;
          }
          auto future = group.c10d()->allreduce(tensors)->getFuture();
          auto last = std::make_shared<std::optional<ProcessGroup>>(std::move(group));
          auto has_dropped = std::make_shared<std::promise<void>>();
          future->addCallback([last, has_dropped](c10::ivalue::Future&) {
            last->reset();
            has_dropped->set_value();
          });
          is_waiting.set_value();
          has_dropped->get_future().wait();
          expect(tensors[0][0].item<float>() == 2, "the sum is there");
        },
        20s, "shm");
    CHECK(problems == std::vector<std::string>{"", ""});
  }

  TEST_CASE("a forked child that ends in order takes nothing from its parent's group") {
    for (const char* backend : {"shm", "gloo"}) {
      CAPTURE(backend);
      auto body = [](ProcessGroup group) {
        if (group.rank() == 1) {
          const pid_t child = ::fork();
          if (child == 0) {
            ::alarm(20);  // were it to wait for anybody
            { const ProcessGroup last = std::move(group); }
            ::_exit(0);
          }
          int status = 0;
          expect(::waitpid(child, &status, 0) == child && status == 0, "the child has ended");
        }
        torch::Tensor sum = torch::ones({3});
        group.all_reduce(sum);
        expect(sum[0].item<double>() == 2, "both ranks take part");
      };
      CHECK(run_ranks({0, 1}, 2, body, 60s, backend) == std::vector<std::string>(2));
    }
  }

  TEST_CASE("a group that was moved away says so") {
    on_ranks(1, [](ProcessGroup group) {
      ProcessGroup other = std::move(group);
      const std::string kMoved =
          "this ProcessGroup was moved to another variable: use that one, or copy it";
      // NOLINTBEGIN(bugprone-use-after-move): that is what is tried
      expect(problem_of([&] { group.rank(); }) == kMoved, "rank() says so");
      expect(problem_of([&] { group.barrier(); }) == kMoved, "and barrier()");
      expect(problem_of([&] { group.all_reduce(torch::ones({1})); }) == kMoved, "a collective");
      expect(problem_of([&] {
               DistributedDataParallel<torch::nn::Linear>(torch::nn::Linear(1, 1), group);
             }) == kMoved,
             "and the wrapper");
      // NOLINTEND(bugprone-use-after-move)
      other.barrier();
    });
  }

  TEST_CASE("a group is made again under its name, many times") {
    for (const char* backend : {"auto", "gloo"}) {
      StoreHost host;
      std::vector<std::string> problems(2);
      std::vector<std::thread> threads;
      for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
          try {
            std::optional<ProcessGroup> kept;
            for (int i = 0; i < 6; ++i) {
              ProcessGroup group = init_process_group({.backend = backend, .timeout = 20s},
                                                      env_of(rank, 2, host.port()));
              torch::Tensor sum = torch::full({3}, i + rank);
              group.all_reduce(sum);
              expect(sum[0].item<int>() == 2 * i + 1, "the sum is this group's");
              if (i % 3 == 2) kept = group;  // two of one name at once, too
              if (kept) kept->barrier();
            }
          } catch (const std::exception& error) {
            problems[static_cast<std::size_t>(rank)] = error.what();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      CHECK(problems == std::vector<std::string>{"", ""});
    }
  }

  TEST_CASE("a program finds nothing of one that died as it joined") {
    StoreHost host;
    for (int lonely : {1, 0, 1}) {
      const std::string problem = problem_of(
          [&] { init_process_group({.timeout = kGivesUpAfter}, env_of(lonely, 2, host.port())); });
      CHECK(problem == "init_process_group: rank " + std::to_string(1 - lonely) +
                           " of 2 did not come within 5 s");
    }
    auto join = [&](int rank) {
      ProcessGroup group = init_process_group({.timeout = 20s}, env_of(rank, 2, host.port()));
      torch::Tensor sum = torch::ones({1});
      group.all_reduce(sum);
      return sum.item<float>();
    };
    auto other = std::async(std::launch::async, [&] { return join(1); });
    CHECK(join(0) == 2);
    CHECK(other.get() == 2);
  }

  TEST_CASE("views with gaps, in other orders and of one element are right over every transport") {
    for (const char* backend : {"shm", "gloo"}) {
      CAPTURE(backend);
      auto problems = run_ranks(
          {0, 1}, 2,
          [](ProcessGroup group) {
            torch::Tensor whole = torch::full({4, 4}, 1.0 + group.rank());
            group.all_reduce(whole.slice(1, 0, 4, 2));
            torch::Tensor expected = torch::full({4, 4}, 1.0 + group.rank());
            expected.slice(1, 0, 4, 2).fill_(3);
            expect(torch::equal(whole, expected), "every other column is summed, and no other");

            whole = torch::full({4, 4}, 1.0 + group.rank());
            group.broadcast(whole.slice(0, 1, 4, 2), 1);
            expected = torch::full({4, 4}, 1.0 + group.rank());
            expected.slice(0, 1, 4, 2).fill_(2);
            expect(torch::equal(whole, expected), "every other row is sent, and no other");

            torch::Tensor counted = torch::arange(6.0).view({2, 3});
            torch::Tensor turned =
                group.rank() == 0 ? counted.clone() : counted.t().contiguous().t();
            group.all_reduce(turned);
            expect(torch::equal(turned, 2 * counted), "strides may differ between ranks");

            torch::Tensor one = torch::full({1}, 1.0 + group.rank());
            group.all_reduce(one.expand({5}));
            expect(one.item<double>() == 3, "an expanded tensor has one sum");

            torch::Tensor inference;
            {
              c10::InferenceMode mode;
              inference = torch::ones({4, 4}).slice(1, 0, 4, 2);
            }
            group.all_reduce(inference);
            expect(inference.sum().item<float>() == 16, "a tensor of inference mode is written");

            group.barrier();
          },
          20s, backend);
      CHECK(problems == std::vector<std::string>{"", ""});
    }
  }

  TEST_CASE("without an agent's store rank 0 hosts one") {
    ddprun::worker::WorkerEnv env;
    std::uint16_t port = StoreHost().port();  // free by now, and not handed out again so soon
    env.master = {.host = "localhost", .port = port};
    ProcessGroup group = init_process_group({.timeout = 10s}, env);
    torch::Tensor sum = torch::ones({1});
    group.all_reduce(sum);
    CHECK(sum.item<float>() == 1);
  }

  TEST_CASE("an abort ends what is under way, and is refused over Gloo") {
    auto abort_on_1 = [](ProcessGroup group) {
      if (group.rank() == 1) return group.abort();
      torch::Tensor sum = torch::ones({1});
      group.all_reduce(sum);
    };
    auto shm = run_ranks({0, 1}, 2, abort_on_1, 60s, "shm");
    CHECK(shm == std::vector<std::string>{"all_reduce: rank 1 of 2 has aborted the group", ""});
    auto gloo = run_ranks(
        {0, 1}, 2, [](ProcessGroup group) { group.abort(); }, 60s, "gloo");
    const std::string refusal =
        "abort: Gloo cannot end what is under way; end the process, which its peers hear of";
    CHECK(gloo == std::vector<std::string>{refusal, refusal});
  }

  TEST_CASE("who is gone refuses a connection, and who is there takes one") {
    std::vector<ddprun::Endpoint> endpoints;
    std::vector<std::unique_ptr<LivenessSocket>> sockets;
    for (int i = 0; i < 300; ++i) {
      sockets.push_back(value_or_throw(LivenessSocket::open("127.0.0.1")));
      endpoints.push_back(sockets.back()->endpoint());
    }
    endpoints[5].host = "";
    CHECK(closed_peers(endpoints, 5s).empty());
    for (std::size_t gone : {5, 7, 299}) sockets[gone] = nullptr;
    CHECK(closed_peers(endpoints, 5s) == std::vector<std::size_t>{7, 299});
    CHECK(!LivenessSocket::open("a name"));
  }

  TEST_CASE("a peer that is gone ends no program by SIGPIPE, and a handler is the program's") {
    const auto before = std::signal(SIGPIPE, SIG_DFL);
    on_ranks(1, [](ProcessGroup) {});
    const auto ignored = std::signal(SIGPIPE, [](int) {});
    CHECK((ignored == SIG_IGN));
    on_ranks(1, [](ProcessGroup) {});
    const auto handler = std::signal(SIGPIPE, before);
    CHECK((handler != SIG_IGN && handler != SIG_DFL));
  }

  TEST_CASE("a backend that is not there is refused") {
    ddprun::worker::WorkerEnv env = env_of(0, 1, 1);
    CHECK(problem_of([&] { init_process_group({.backend = "glue"}, env); }) ==
          "the backend 'glue' is not known: 'auto', 'shm', 'gloo' and 'nccl' are accepted");
  }

  TEST_CASE("the environment's time-out is used, and a wrong one is refused") {
    ddprun::worker::WorkerEnv env = env_of(0, 2, 1);
    ::setenv("DDPRUN_TIMEOUT", "soon", 1);
    CHECK(problem_of([&] { init_process_group({}, env); }) ==
          "DDPRUN_TIMEOUT='soon' is not a number of seconds from 1 to 1000000");
    ::setenv("DDPRUN_TIMEOUT", "5", 1);  // as long as kGivesUpAfter
    StoreHost host;
    env.master.port = host.port();
    CHECK(problem_of([&] { init_process_group({}, env); }) ==
          "init_process_group: rank 1 of 2 did not come within 5 s");
    ::unsetenv("DDPRUN_TIMEOUT");
  }

  TEST_CASE("an interface that the user names is used") {
    ::setenv("GLOO_SOCKET_IFNAME", "no-such-interface", 1);
    std::vector<std::string> problems = run_ranks(1, [](ProcessGroup) {});
    CHECK(problems[0].starts_with("init_process_group: "));
    ::setenv("GLOO_SOCKET_IFNAME", ",lo", 1);
    on_ranks(2, [](ProcessGroup group) { group.all_gather(torch::ones({1})); });
    ::unsetenv("GLOO_SOCKET_IFNAME");
  }

  TEST_CASE("the way to an address starts at one of this machine's") {
    CHECK(local_address_towards("127.0.0.1", 80) == "127.0.0.1");
    CHECK(local_address_towards("localhost", 80) != "");
    CHECK(local_address_towards("no-such-host.invalid", 80) == "");
  }

  TEST_CASE("a store is found when it comes, and not before") {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in here{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof here;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&here), size) == 0);
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) == 0);
    std::uint16_t port = ntohs(here.sin_port);

    CHECK(why_no_store("127.0.0.1", port, 20ms) == "nothing listens there");
    CHECK(why_no_store("no-such-host.invalid", port, 20ms) ==
          "no address of 'no-such-host.invalid' is known");
    auto found =
        std::async(std::launch::async, [port] { return why_no_store("127.0.0.1", port, 60s); });
    CHECK(found.wait_for(20ms) == std::future_status::timeout);  // nobody listens yet
    REQUIRE(::listen(fd, 1) == 0);
    ::close(::accept(fd, nullptr, nullptr));  // as a store that ends
    CHECK(found.get() == "");
    ::close(fd);
  }

  TEST_CASE("without an agent a rank whose rank 0 never listens ends in time, and says so") {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in here{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof here;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&here), size) ==
            0);  // nobody else listens there
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) == 0);
    ddprun::worker::WorkerEnv env = env_of(1, 2, ntohs(here.sin_port));
    env.use_agent_store = false;
    CHECK(problem_of([&] { init_process_group({.timeout = 500ms}, env); }) ==
          "init_process_group: rank 0 did not come within 0.5 s, whose store is at 127.0.0.1:" +
              std::to_string(ntohs(here.sin_port)) + ": nothing listens there");
    ::close(fd);
  }

  TEST_CASE("an address at which another server accepts ends in time, and says so") {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in here{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof here;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&here), size) == 0);
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) == 0);
    REQUIRE(::listen(fd, 8) == 0);  // the kernel accepts, and nothing answers
    ddprun::worker::WorkerEnv env = env_of(1, 2, ntohs(here.sin_port));
    env.use_agent_store = false;
    const auto begin = std::chrono::steady_clock::now();
    const std::string said = problem_of([&] { init_process_group({.timeout = 500ms}, env); });
    CHECK(said ==
          "init_process_group: rank 0 did not come within 0.5 s, whose store is at 127.0.0.1:" +
              std::to_string(ntohs(here.sin_port)) +
              ": no TCPStore answers there, though something accepts connections: is it "
              "another server's port?");
    CHECK(std::chrono::steady_clock::now() - begin < 5s);
    ::close(fd);
  }

  TEST_CASE("a problem of one rank is every rank's") {
    for (int world_size : {1, 3}) {
      auto problems = run_ranks(world_size, [&](ProcessGroup group) {
        group.throw_first_problem("");
        group.throw_first_problem(group.rank() > 0 || world_size == 1
                                      ? "rank " + std::to_string(group.rank()) + " has no data"
                                      : "");
      });
      const std::string expected = world_size == 1 ? "rank 0 has no data" : "rank 1 has no data";
      CHECK(problems == std::vector<std::string>(problems.size(), expected));
    }
  }

  TEST_CASE("ranks in words") {
    CHECK(format_ranks({4}) == "rank 4");
    CHECK(format_ranks({1, 2}) == "ranks 1 and 2");
    CHECK(format_ranks({1, 2, 7}) == "ranks 1, 2 and 7");
    CHECK(format_ranks({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) ==
          "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
  }
}
