// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/call_check.h"

#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/ddp/ranks.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/process_group.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;
using namespace std::chrono_literals;
using Act = std::function<void(ProcessGroup&)>;

const std::string kSaid = "the ranks do not call the same: ";

// Runs `act` of each rank and then a sum, over shared memory and over Gloo; what went wrong, by
// rank, which is the same over both.
std::vector<std::string> compared(const std::vector<Act>& acts, bool goes_on = true) {
  std::vector<std::vector<std::string>> said;
  for (const char* backend : {"shm", "gloo"}) {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < acts.size(); ++rank) ranks.push_back(static_cast<int>(rank));
    ProcessGroupOptions options{.backend = backend, .timeout = 60s, .check_collectives = true};
    said.push_back(
        run_ranks(ranks, static_cast<int>(acts.size()), options, [&](ProcessGroup group) {
          const std::string problem =
              problem_of([&] { acts[static_cast<std::size_t>(group.rank())](group); });
          if (goes_on) {
            torch::Tensor sum = torch::ones({2});
            group.all_reduce(sum);
            expect(sum[1].item<int>() == group.world_size(), "the group goes on");
          }
          throw DdpError(problem);
        }));
  }
  CHECK(said[0] == said[1]);
  return said[0];
}

std::vector<std::string> both(const std::string& name, const std::string& difference) {
  return {name + ": " + kSaid + difference, name + ": " + kSaid + difference};
}

Act sum_of(torch::IntArrayRef shape, torch::Dtype dtype = torch::kFloat) {
  return [shape = shape.vec(), dtype](ProcessGroup& group) {
    group.all_reduce(torch::ones(shape, dtype));
  };
}

}  // namespace

TEST_SUITE("worker/ddp/call_check") {
  TEST_CASE("tensors of other shapes or dtypes are named with their ranks, and the group goes on") {
    CHECK(compared({sum_of({2, 3}), sum_of({3, 2})}) ==
          both("all_reduce",
               "rank 0 called all_reduce (sum) of Float [2, 3]; rank 1 called all_reduce (sum) of "
               "Float [3, 2]"));
    CHECK(compared({sum_of({2}), sum_of({2}, torch::kDouble), sum_of({2})})[1] ==
          "all_reduce: " + kSaid +
              "ranks 0 and 2 called all_reduce (sum) of Float [2]; rank 1 called all_reduce (sum) "
              "of Double [2]");
    const Act gather_3 = [](ProcessGroup& group) {
      group.all_gather_async(torch::ones({3})).wait();
    };
    const Act gather_4 = [](ProcessGroup& group) { group.all_gather(torch::ones({4})); };
    CHECK(compared({gather_3, gather_4}) ==
          both("all_gather",
               "rank 0 called all_gather of Float [3]; rank 1 called all_gather of Float [4]"));
  }

  TEST_CASE("so are other collectives, operations and roots") {
    const Act barrier = [](ProcessGroup& group) { group.barrier(); };
    const std::vector<std::string> said = compared({sum_of({}), barrier});
    CHECK(said[0] == "all_reduce: " + kSaid +
                         "rank 0 called all_reduce (sum) of Float []; rank 1 called barrier");
    CHECK(said[1] == "barrier: " + kSaid +
                         "rank 0 called all_reduce (sum) of Float []; rank 1 called barrier");
    const Act from_itself = [](ProcessGroup& group) {
      group.broadcast(torch::ones({2}), group.rank());
    };
    CHECK(compared({from_itself, from_itself}) ==
          both("broadcast",
               "rank 0 called broadcast of Float [2], root 0; rank 1 called broadcast of Float "
               "[2], root 1"));
    const Act largest = [](ProcessGroup& group) {
      group.all_reduce(torch::ones({1}), ReduceOp::Max);
    };
    CHECK(compared({largest, sum_of({1})})[0].find("all_reduce (max) of Float [1]; rank 1") !=
          std::string::npos);
    const Act text = [](ProcessGroup& group) { group.all_gather_text("a"); };
    CHECK(compared({text, sum_of({1})})[0].find("rank 0 called all_gather_text; rank 1") !=
          std::string::npos);
  }

  TEST_CASE("of many tensors the first that differs is named") {
    const auto of_many = [](std::int64_t last) -> Act {
      return [last](ProcessGroup& group) {
        group.broadcast({torch::ones({2}), torch::ones({last})});
      };
    };
    CHECK(compared({of_many(3), of_many(4)}) ==
          both("broadcast",
               "rank 0 called broadcast of 2 tensors, root 0, of which number 1 is Float [3]; rank "
               "1 called broadcast of 2 tensors, root 0, of which number 1 is Float [4]"));
  }

  TEST_CASE("in an exchange what one rank gives is what the other takes") {
    const auto exchange = [](std::int64_t taken) -> Act {
      return [taken](ProcessGroup& group) {
        group.all_to_all({torch::ones({1}), torch::ones({taken})},
                         {torch::ones({1}), torch::ones({2})});
      };
    };
    CHECK(compared({exchange(3), exchange(2)})[1] ==
          "all_to_all: rank 0 gives rank 1 Float [2], and that one takes Float [1]");
    const Act fits = [](ProcessGroup& group) {
      std::vector<torch::Tensor> parts{torch::ones({group.rank() + 1}),
                                       torch::ones({group.rank() + 1})};
      group.all_to_all(parts, {torch::ones({1}), torch::ones({2})});
    };
    CHECK(compared({fits, fits}) == std::vector<std::string>(2));
  }

  TEST_CASE("a rank that goes forward while the other sums is told so") {
    const Act forward = [](ProcessGroup& group) {
      torch::nn::Linear net(2, 2);
      DDP<torch::nn::Linear> model(net, group);
      if (group.rank() == 1) return group.all_reduce(torch::ones({1}));
      model(torch::ones({1, 2}));
    };
    CHECK(compared({forward, forward})[0] ==
          "the forward of a DistributedDataParallel: " + kSaid +
              "rank 0 called the forward of a DistributedDataParallel; rank 1 called all_reduce "
              "(sum) of Float [1]");
  }

  TEST_CASE("a rank that does not come is named with what it is to come to") {
    std::promise<void> gave_up;
    const ProcessGroupOptions options{.timeout = 5s, .check_collectives = true};
    const std::vector<std::string> said = run_ranks({0, 1}, 2, options, [&](ProcessGroup group) {
      if (group.rank() == 1) return gave_up.get_future().wait();
      const std::string problem = problem_of([&] { sum_of({2})(group); });
      gave_up.set_value();
      throw DdpError(problem);
    });
    CHECK(said[0] ==
          "all_reduce: rank 1 of 2 did not come within 5 s to all_reduce (sum) of Float [2]");
  }

  TEST_CASE("a rank that has ended is named long before the time is over") {
    const Act nothing = [](ProcessGroup&) {};
    CHECK(compared({sum_of({2}), nothing}, /*goes_on=*/false)[0] ==
          "all_reduce: rank 1 of 2 has ended or left the group while others wait for it in "
          "all_reduce (sum) of Float [2]");
  }

  TEST_CASE("one rank that asks is enough, and its subgroups compare, too") {
    StoreHost host;
    std::vector<std::string> problems(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        problems[static_cast<std::size_t>(rank)] = problem_of([&] {
          ProcessGroup group = init_process_group({.timeout = 60s, .check_collectives = rank == 1},
                                                  env_of(rank, 2, host.port()));
          group.new_group({0, 1})->all_reduce(torch::ones({rank + 1}));
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(problems == both("all_reduce",
                           "rank 0 called all_reduce (sum) of Float [1]; rank 1 called all_reduce "
                           "(sum) of Float [2]"));
  }

  TEST_CASE("a level of TORCH_DISTRIBUTED_DEBUG asks for it, or not") {
    CHECK(CallCheck::is_asked_for("DETAIL"));
    CHECK(CallCheck::is_asked_for("detail"));
    CHECK_FALSE(CallCheck::is_asked_for("INFO"));
    CHECK_FALSE(CallCheck::is_asked_for(std::nullopt));
  }
}
