// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/peer_failures.h"

#include <atomic>
#include <future>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <type_traits>
#include <vector>

#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"
#include "worker/ddp/data_parallel.h"
#include "worker/shm/decide/format.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;
using namespace std::chrono_literals;

// A layer that may be left out.
struct SkippingImpl : torch::nn::Module {
  SkippingImpl() {
    register_module("first", first);
    register_module("extra", extra);
    register_module("last", last);
  }
  torch::Tensor forward(torch::Tensor x, bool skip) {
    x = torch::relu(first(x));
    return last(skip ? x : extra(x));
  }
  torch::nn::Linear first{6, 5};
  torch::nn::Linear extra{5, 5};
  torch::nn::Linear last{5, 2};
};
TORCH_MODULE(Skipping);

const std::string kRemedy =
    ": the backward pass gave no gradient there; every step must use the same parameters on all "
    "ranks, or find_unused_parameters be set";
const std::string kExtra = "the parameters extra.weight and extra.bias";

std::vector<Skipping> make_nets(int count) {
  std::vector<Skipping> nets(static_cast<std::size_t>(count));
  return nets;
}

// Trains two steps on `world_size` ranks; in the second, the ranks `skips` names leave a layer out.
// After each, `then` is called.
std::vector<std::string> train(int world_size, const std::function<bool(int rank)>& skips,
                               const DataParallelOptions& options,
                               const std::function<void(ProcessGroup&)>& then) {
  std::vector<Skipping> nets = make_nets(world_size);
  return run_ranks(world_size, [&](ProcessGroup group) {
    DistributedDataParallel<Skipping> model(nets[static_cast<std::size_t>(group.rank())], group,
                                            options);
    for (int step = 0; step < 3; ++step) {
      bool skip = step == 1 && skips(group.rank());
      model(inputs(group.rank(), step, {4, 6}), skip).sum().backward();
      then(group);
    }
  });
}

// What `run` returns for each of `cases`, all of them at once: they mostly wait.
template <class Case, class Run>
auto at_once(const std::vector<Case>& cases, const Run& run) {
  std::vector<std::future<std::invoke_result_t<Run, const Case&>>> running;
  for (const Case& one : cases) {
    running.push_back(std::async(std::launch::async, [&run, &one] { return run(one); }));
  }
  std::vector<std::invoke_result_t<Run, const Case&>> results;
  for (auto& one : running) results.push_back(one.get());
  return results;
}

void sum_losses(ProcessGroup& group) {
  group.all_reduce(torch::ones({1}));
}
void nothing(ProcessGroup&) {}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("ddp/peer_failures") {
  TEST_CASE("a rank that leaves parameters out is named with them on every rank") {
    struct Case {
      DataParallelOptions options;
      void (*then)(ProcessGroup&);
    };
    std::vector<Case> cases;
    for (const auto& options : {DataParallelOptions{}, DataParallelOptions{.bucket_cap_bytes = 64},
                                DataParallelOptions{.gradient_as_bucket_view = true},
                                DataParallelOptions{.static_graph = true}}) {
      for (const auto& then : {sum_losses, nothing}) cases.push_back({options, then});
    }
    for (int world_size = 2; world_size <= 4; ++world_size) {
      auto found = at_once(cases, [&](const Case& one) {
        return train(
            world_size, [](int rank) { return rank == 1; }, one.options, one.then);
      });
      for (std::size_t i = 0; i < found.size(); ++i) {
        REQUIRE(found[i].size() == static_cast<std::size_t>(world_size));
        for (const std::string& problem : found[i]) {
          CAPTURE(world_size);
          CAPTURE(i);
          CAPTURE(problem);
          CHECK(contains(problem, "rank 1 left out " + kExtra + kRemedy));
        }
      }
    }
  }

  TEST_CASE("where all ranks leave the same parameters out, each says so") {
    auto problems = train(
        2, [](int) { return true; }, {}, nothing);
    for (int rank = 0; rank < 2; ++rank) {
      CAPTURE(problems[static_cast<std::size_t>(rank)]);
      CHECK(contains(problems[static_cast<std::size_t>(rank)],
                     "rank " + std::to_string(rank) + " left out " + kExtra));
    }
  }

  TEST_CASE("a barrier does not hide what was left out") {
    auto problems = train(
        2, [](int rank) { return rank == 0; }, {}, [](ProcessGroup& group) { group.barrier(); });
    CHECK(problems[0] == "barrier: rank 0 left out " + kExtra + kRemedy);
    CHECK(contains(problems[1], "rank 0 left out " + kExtra));
  }

  TEST_CASE("with find_unused_parameters ranks may leave out what they like") {
    auto problems = train(
        3, [](int rank) { return rank == 1; }, {.find_unused_parameters = true}, sum_losses);
    CHECK(problems == std::vector<std::string>(3));
  }

  TEST_CASE("one forward may have its backward in two passes") {
    std::vector<Skipping> nets = make_nets(2);
    on_ranks(2, [&](ProcessGroup group) {
      Skipping net = nets[static_cast<std::size_t>(group.rank())];
      DistributedDataParallel<Skipping> model(net, group);
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        torch::Tensor x = inputs(group.rank(), step, {4, 6});
        torch::Tensor result = model(x, false);
        auto late = std::vector<at::Tensor>{net->first->weight, net->first->bias};
        auto early = std::vector<at::Tensor>{net->extra->weight, net->extra->bias,
                                             net->last->weight, net->last->bias};
        result.sum().backward({}, /*retain_graph=*/true, false, early);
        result.sum().backward({}, false, false, late);
        group.barrier();
        expect(net->first->weight.grad().defined(), "the second pass brought the rest");
      }
    });
  }

  // Trains with collectives after each backward pass, of which there are two for each forward on
  // the ranks that `splits` names.
  std::vector<std::string> split_backward(const DataParallelOptions& options,
                                          const std::function<bool(int rank)>& splits) {
    std::vector<Skipping> nets = make_nets(2);
    return run_ranks(
        {0, 1}, 2,
        [&](ProcessGroup group) {
          Skipping net = nets[static_cast<std::size_t>(group.rank())];
          DistributedDataParallel<Skipping> model(net, group, options);
          for (int step = 0; step < 3; ++step) {
            model.zero_grad();
            torch::Tensor result = model(inputs(group.rank(), step, {4, 6}), false);
            auto late = std::vector<at::Tensor>{net->first->weight, net->first->bias};
            auto early = std::vector<at::Tensor>{net->extra->weight, net->extra->bias,
                                                 net->last->weight, net->last->bias};
            if (splits(group.rank())) {
              result.sum().backward({}, /*retain_graph=*/true, false, early);
              torch::Tensor sum = torch::ones({1});
              group.all_reduce(sum);
              group.barrier();
              expect(sum.item<float>() == 2, "the collective is its own");
              result.sum().backward({}, false, false, late);
            } else {
              result.sum().backward();
              group.all_reduce(torch::ones({1}));
              group.barrier();
            }
            std::vector<at::Tensor> all = group.all_gather(net->first->weight.grad());
            expect(torch::equal(all[0], all[1]), "the gradients are equal");
          }
        },
        /*timeout=*/6s);
  }

  TEST_CASE("between two passes of one backward ranks may call collectives, if they say so") {
    for (const std::int64_t bucket : {0, 64}) {
      auto problems = split_backward({.bucket_cap_bytes = bucket, .split_backward = true},
                                     [](int) { return true; });
      CHECK(problems == std::vector<std::string>{"", ""});
    }
  }

  TEST_CASE("without saying so, or where one rank does not, they are refused") {
    const std::string kFirst = " left out the parameters first.weight and first.bias" + kRemedy;
    auto problems = at_once(std::vector<int>{0, 1}, [](int allowed) {
      return split_backward({.split_backward = allowed == 1},
                            [allowed](int rank) { return rank == 1 || allowed == 0; });
    });
    for (const std::string& problem : problems[0]) CHECK(contains(problem, kFirst));
    for (const std::string& problem : problems[1]) {
      CAPTURE(problem);
      CHECK(contains(problem, "rank 1" + kFirst));
    }
  }

  // Counts what a rank asks of the store.
  class CountingStore : public c10d::HashStore {
   public:
    bool check(const std::vector<std::string>& keys) override {
      ++requests;
      return HashStore::check(keys);
    }
    void wait(const std::vector<std::string>& keys,
              const std::chrono::milliseconds& timeout) override {
      ++requests;
      HashStore::wait(keys, timeout);
    }
    std::vector<std::uint8_t> compareSet(const std::string& key,
                                         const std::vector<std::uint8_t>& expected,
                                         const std::vector<std::uint8_t>& desired) override {
      ++looks_for_the_dead;
      return HashStore::compareSet(key, expected, desired);
    }
    int requests = 0;
    int looks_for_the_dead = 0;
  };

  TEST_CASE(
      "ranks that are gone are looked for only where they can be seen, and after a broken "
      "connection") {
    const std::string broken = "Connection closed by peer [127.0.0.1]:1";
    auto store = c10::make_intrusive<CountingStore>();
    // Over shared memory the channel itself knows who has died.
    PeerFailures by_memory(store, 0, 2, 2s);
    CHECK(by_memory.diagnose(broken) == broken);
    CHECK(store->looks_for_the_dead == 0);
    // Over Gloo a mistake of this rank's says nothing of the others.
    PeerFailures by_gloo(store, 0, 2, 2s);
    by_gloo.use_liveness(nullptr);
    CHECK(by_gloo.diagnose("Invalid scalar type") == "Invalid scalar type");
    CHECK(store->looks_for_the_dead == 0);
    CHECK(by_gloo.diagnose(broken) == broken);
    CHECK(store->looks_for_the_dead > 0);
  }

  TEST_CASE("a rank that gave up asks the store little, since all others ask as well") {
    constexpr int kRanks = 64;
    auto store = c10::make_intrusive<CountingStore>();
    PeerFailures failures(store, 0, kRanks, 2s);
    for (int rank = 1; rank < kRanks - 1; ++rank) {
      store->set("incident/gave_up/" + std::to_string(rank), std::vector<std::uint8_t>{'1'});
    }
    CHECK(failures.diagnose("Timed out waiting") ==
          "rank 63 of 64 did not come within 2 s (Timed out waiting)");
    CHECK(store->requests < 5 * kRanks);
  }

  // Ranks 0 and 2 reduce, and give up before rank 1 comes, which then reduces as well.
  std::vector<std::string> come_too_late(const std::string& backend) {
    std::vector<Skipping> nets = make_nets(3);
    std::promise<void> others_gave_up;
    std::atomic<int> given_up = 0;
    return run_ranks(
        {0, 1, 2}, 3,
        [&](ProcessGroup group) {
          DistributedDataParallel<Skipping> model(nets[static_cast<std::size_t>(group.rank())],
                                                  group);
          torch::Tensor loss = model(inputs(group.rank(), 0, {4, 6}), false).sum();
          if (group.rank() == 1) {
            others_gave_up.get_future().wait();
            loss.backward();
            group.barrier();
            return;
          }
          try {
            loss.backward();
          } catch (const std::exception&) {
            if (++given_up == 2) others_gave_up.set_value();
            throw;
          }
        },
        /*timeout=*/5s, backend);
  }

  TEST_CASE("a rank that does not come to a reduction is named when the time is over") {
    std::vector<std::string> problems = come_too_late("gloo");
    for (int rank : {0, 2}) {
      CAPTURE(problems[static_cast<std::size_t>(rank)]);
      CHECK(contains(problems[static_cast<std::size_t>(rank)],
                     "rank 1 of 3 did not come within 5 s ("));
    }
    CAPTURE(problems[1]);
    CHECK(contains(problems[1], "ranks 0 and 2 of 3 gave up after 5 s"));
  }

  TEST_CASE("likewise over shared memory") {
    std::vector<std::string> problems = come_too_late("shm");
    for (const std::string& problem : problems) {
      CAPTURE(problem);
      CHECK(problem.starts_with("rank 1 of 3 did not come to all_reduce"));
    }
  }

  // The same for the other collectives: ranks 0 and 2 give up before rank 1 comes.
  TEST_CASE("whatever collective a rank does not come to, all that wait for it name it") {
    struct Case {
      const char* name;
      std::function<void(ProcessGroup&)> call;
    };
    const Case cases[] = {
        {"broadcast", [](ProcessGroup& group) { group.broadcast(torch::ones({10}), 1); }},
        {"broadcast",
         [](ProcessGroup& group) {
           group.broadcast(std::vector<at::Tensor>{torch::ones({10}), torch::ones({3})}, 1);
         }},
        {"broadcast", [](ProcessGroup& group) { group.broadcast_text("text", 1); }},
        {"all_gather", [](ProcessGroup& group) { group.all_gather(torch::ones({10})); }},
        {"throw_first_problem", [](ProcessGroup& group) { group.throw_first_problem(""); }},
        {"", [](ProcessGroup& group) { group.c10d()->barrier()->wait(); }},
    };
    const std::vector<std::string> backends{"gloo", "shm"};
    for (const Case& one : cases) {
      auto found = at_once(backends, [&](const std::string& backend) {
        std::promise<void> others_gave_up;
        std::atomic<int> given_up = 0;
        return run_ranks(
            {0, 1, 2}, 3,
            [&](ProcessGroup group) {
              if (group.rank() == 1) {
                others_gave_up.get_future().wait();
                if (backend == "shm") one.call(group);
                return;
              }
              try {
                one.call(group);
              } catch (const DdpError&) {
                if (++given_up == 2) others_gave_up.set_value();
                throw;
              }
            },
            /*timeout=*/4s, backend);  // in which the ranks must have met, on a busy machine, too
      });
      for (std::size_t i = 0; i < backends.size(); ++i) {
        CAPTURE(backends[i]);
        CAPTURE(one.name);
        for (std::size_t rank = 0; rank < 3; ++rank) {
          if (rank == 1 && backends[i] == "gloo") continue;
          CAPTURE(rank);
          CAPTURE(found[i][rank]);
          CHECK(found[i][rank].starts_with(one.name));
          CHECK(contains(found[i][rank], "rank 1 of 3 did not come"));
        }
      }
    }
  }

  TEST_CASE("a rank that never wraps its module is named") {
    std::vector<Skipping> nets = make_nets(2);
    std::promise<void> gave_up;
    auto problems = run_ranks(
        {0, 1}, 2,
        [&](ProcessGroup group) {
          if (group.rank() == 1) return gave_up.get_future().wait();
          try {
            DistributedDataParallel<Skipping> model(nets[0], group);
          } catch (const DdpError&) {
            gave_up.set_value();
            throw;
          }
        },
        /*timeout=*/4s);
    CHECK(problems[0] == "barrier: rank 1 of 2 did not come within 4 s");
  }

  TEST_CASE("in words") {
    CHECK(format_parameters({"a"}) == "parameter a");
    CHECK(format_parameters({"a", "b"}) == "parameters a and b");
    CHECK(format_parameters({"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}) ==
          "parameters 1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
    CHECK(left_out_sentence({{0, "parameter a"}, {3, "parameters b and c"}}) ==
          "rank 0 left out the parameter a, rank 3 left out the parameters b and c" + kRemedy);
  }
}
