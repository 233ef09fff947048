// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/shm_backend.h"

#include <torch/torch.h>

#include <future>
#include <iostream>
#include <random>
#include <sstream>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"
#include "worker/ddp/data_parallel.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;
using namespace std::chrono_literals;

constexpr auto kTimeout = 60s;

// Runs `body` on the ranks, each in a thread, with a group over shared memory and one over Gloo.
void on_both(int world_size, const std::function<void(ProcessGroup shm, ProcessGroup gloo)>& body) {
  StoreHost host;
  std::vector<std::string> problems(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto env = env_of(rank, world_size, host.port());
        body(init_process_group({.backend = "shm", .timeout = kTimeout, .name = "a"}, env),
             init_process_group({.backend = "gloo", .timeout = kTimeout, .name = "b"}, env));
      } catch (const std::exception& error) {
        problems[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) CHECK(problem == "");
}

void all_reduce(const ProcessGroup& group, torch::Tensor tensor, c10d::ReduceOp operation) {
  std::vector<torch::Tensor> tensors{std::move(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  group.c10d()->allreduce(tensors, options)->wait();
}

// A tensor of `count` elements or somewhat more that lies in memory in one way or another.
torch::Tensor laid_out(std::int64_t count, torch::ScalarType type, std::mt19937_64& shape,
                       torch::Generator& values) {
  auto fill = [&](torch::IntArrayRef sizes) {
    return torch::randint(-4, 5, sizes, values, torch::kDouble).abs().add(0.5).to(type);
  };
  switch (shape() % 4) {
    case 0:
      return fill({count});
    case 1:  // does not begin where its memory does
      return fill({count + 3}).slice(0, 3);
    case 2:  // columns first
      return fill({2, count}).t();
    default:  // every other element
      return fill({2 * count}).slice(0, 0, 2 * count, 2);
  }
}

c10::intrusive_ptr<c10d::Backend> backend_of(const ProcessGroup& group) {
  return group.c10d()->getBackend(c10::DeviceType::CPU);
}

}  // namespace

TEST_SUITE("ddp/shm/backend") {
  TEST_CASE("ranks of one node share memory, unless one of them asks for Gloo") {
    on_ranks(2, [](ProcessGroup group) {
      expect(group.cpu_backend() == "shm", "shared memory is the choice");
      expect(backend_of(group)->getBackendName() == "shm", "and is what c10d sees");
    });
    StoreHost host;
    std::ostringstream said;
    std::streambuf* const stderr_before = std::cerr.rdbuf(said.rdbuf());
    std::vector<std::string> chosen(2);
    std::vector<std::string> refused(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        auto at = static_cast<std::size_t>(rank);
        auto env = env_of(rank, 2, host.port());
        const char* backend = rank == 1 ? "gloo" : "auto";
        chosen[at] =
            init_process_group({.backend = backend, .timeout = kTimeout}, env).cpu_backend();
        try {
          init_process_group(
              {.backend = rank == 1 ? "gloo" : "shm", .timeout = kTimeout, .name = "x"}, env);
        } catch (const DdpError& error) {
          refused[at] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::cerr.rdbuf(stderr_before);
    CHECK(said.str() ==
          "ddprun: no shared memory between the ranks of this node, CPU tensors go over Gloo: rank "
          "1 does not take part in it\n");
    CHECK(chosen == std::vector<std::string>{"gloo", "gloo"});
    CHECK(refused[0] ==
          "init_process_group: the backend 'shm' cannot be had: rank 1 does not take part in it");
    CHECK(refused[1] == "");
  }

  TEST_CASE("all-reduces are Gloo's, for every type, reduction, size and layout") {
    const std::uint64_t seed = std::random_device{}();
    MESSAGE("seed " << seed);
    const torch::ScalarType types[] = {torch::kFloat,    torch::kDouble, torch::kHalf,
                                       torch::kBFloat16, torch::kChar,   torch::kByte,
                                       torch::kInt,      torch::kLong};
    const c10d::ReduceOp operations[] = {c10d::ReduceOp::SUM, c10d::ReduceOp::AVG,
                                         c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN,
                                         c10d::ReduceOp::MAX};
    const std::int64_t sizes[] = {0, 1, 17, 1000, 16'384, 16'385, 100'000, 700'001};
    for (int world_size = 1; world_size <= 4; ++world_size) {
      CAPTURE(world_size);
      on_both(world_size, [&](ProcessGroup shm, ProcessGroup gloo) {
        std::mt19937_64 same(seed + static_cast<std::uint64_t>(world_size));
        auto own = torch::make_generator<torch::CPUGeneratorImpl>(
            seed + static_cast<std::uint64_t>(shm.rank()));
        for (torch::ScalarType type : types) {
          for (c10d::ReduceOp operation : operations) {
            if (operation == c10d::ReduceOp::AVG && !torch::isFloatingType(type)) continue;
            const std::int64_t size = sizes[same() % std::size(sizes)];
            torch::Tensor ours = laid_out(size, type, same, own);
            torch::Tensor theirs = ours.clone();
            all_reduce(shm, ours, operation);
            all_reduce(gloo, theirs, operation);
            const std::string what = std::string(c10::toString(type)) + " reduced by " +
                                     std::to_string(static_cast<int>(operation.op_)) + ", " +
                                     std::to_string(size) + " elements";
            const double tolerance = type == torch::kBFloat16 ? 0.03
                                     : type == torch::kHalf   ? 4e-3
                                                              : 1e-6;
            expect(torch::allclose(ours.to(torch::kDouble), theirs.to(torch::kDouble), tolerance,
                                   tolerance),
                   what + " is Gloo's");
            torch::Tensor first = ours.contiguous().clone();
            gloo.broadcast(first, 0);
            expect(torch::equal(first, ours), what + " is the same on all ranks, bit for bit");
          }
        }
      });
    }
  }

  TEST_CASE("int16, which Gloo has not") {
    on_ranks(3, [](ProcessGroup group) {
      torch::Tensor tensor = torch::full({100}, group.rank() + 1, torch::kShort);
      all_reduce(group, tensor, c10d::ReduceOp::PRODUCT);
      expect(torch::equal(tensor, torch::full({100}, 6, torch::kShort)), "it is multiplied");
    });
  }

  TEST_CASE("broadcasts and all-gathers of any type and layout") {
    const std::uint64_t seed = std::random_device{}();
    MESSAGE("seed " << seed);
    const torch::ScalarType types[] = {torch::kFloat, torch::kBool, torch::kLong,
                                       torch::kComplexFloat, torch::kBFloat16};
    for (int world_size = 1; world_size <= 4; ++world_size) {
      CAPTURE(world_size);
      on_ranks(world_size, [&](ProcessGroup group) {
        std::mt19937_64 same(seed);
        std::vector<torch::Generator> generators;  // every rank knows what each has
        for (int rank = 0; rank < world_size; ++rank) {
          generators.push_back(torch::make_generator<torch::CPUGeneratorImpl>(
              seed + static_cast<std::uint64_t>(rank)));
        }
        for (torch::ScalarType type : types) {
          for (std::int64_t size : {0, 1, 5000, 300'001}) {
            const std::mt19937_64 shape = same;
            std::vector<torch::Tensor> expected;
            for (torch::Generator& generator : generators) {
              same = shape;
              expected.push_back(laid_out(size, type, same, generator));
            }
            torch::Tensor given = expected[static_cast<std::size_t>(group.rank())].clone();
            std::vector<torch::Tensor> all = group.all_gather(given);
            for (std::size_t rank = 0; rank < all.size(); ++rank) {
              expect(torch::equal(all[rank], expected[rank]), "all_gather gives every rank's");
            }
            const int root = static_cast<int>(same() % static_cast<unsigned>(world_size));
            group.broadcast(given, root);
            expect(torch::equal(given, expected[static_cast<std::size_t>(root)]),
                   "broadcast gives the root's");
            torch::Tensor flat = torch::empty({world_size * given.numel()}, type);
            torch::Tensor input = given.contiguous().view(-1);
            backend_of(group)->_allgather_base(flat, input)->wait();
            expect(torch::equal(flat, input.repeat({world_size})), "into one tensor as well");
          }
        }
      });
    }
  }

  TEST_CASE("what it lacks falls to Gloo") {
    on_ranks(2, [](ProcessGroup group) {
      torch::Tensor flag = torch::full({3}, group.rank() == 1, torch::kBool);
      all_reduce(group, flag, c10d::ReduceOp::MAX);
      expect(flag.all().item<bool>(), "booleans are reduced");

      torch::Tensor bits = torch::full({2}, group.rank() + 1, torch::kInt);
      all_reduce(group, bits, c10d::ReduceOp::BOR);
      expect(bits[0].item<int>() == 3, "bits are or-ed");

      torch::Tensor waves = torch::full({2}, c10::complex<float>(1, 2), torch::kComplexFloat);
      all_reduce(group, waves, c10d::ReduceOp::SUM);
      expect(waves[1].item<c10::complex<float>>() == c10::complex<float>(2, 4), "complex sums");

      std::vector<torch::Tensor> message{torch::full({4}, group.rank())};
      if (group.rank() == 0) {
        group.c10d()->send(message, 1, 7)->wait();
      } else {
        group.c10d()->recv(message, 0, 7)->wait();
      }
      expect(message[0][0].item<int>() == 0, "a message arrives");
    });
  }

  TEST_CASE("many groups, with collectives under way on all of them") {
    constexpr int kGroups = 4;
    StoreHost host;
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        std::vector<ProcessGroup> groups;
        for (int i = 0; i < kGroups; ++i) {
          groups.push_back(init_process_group({.timeout = kTimeout, .name = std::to_string(i)},
                                              env_of(rank, 2, host.port())));
        }
        std::vector<torch::Tensor> tensors;
        std::vector<c10::intrusive_ptr<c10d::Work>> works;
        for (int i = 0; i < 5 * kGroups; ++i) {
          tensors.push_back(torch::full({1 << (i % 20)}, i + rank, torch::kLong));
          std::vector<torch::Tensor> one{tensors.back()};
          works.push_back(groups[static_cast<std::size_t>(i % kGroups)].c10d()->allreduce(one));
        }
        // The ranks look at them in different orders, some by their future.
        for (int i = 0; i < 5 * kGroups; ++i) {
          const int which = rank == 0 ? i : 5 * kGroups - 1 - i;
          auto& work = works[static_cast<std::size_t>(which)];
          if (which % 3 == 0) {
            work->getFuture()->wait();
          } else {
            work->wait();
          }
          const torch::Tensor& tensor = tensors[static_cast<std::size_t>(which)];
          wrong += !torch::equal(tensor, torch::full_like(tensor, 2 * which + 1));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
  }

  TEST_CASE("the Reducer's gradients are Gloo's, bit for bit on two ranks") {
    for (std::int64_t bucket_cap_bytes : {std::int64_t{0}, std::int64_t{64}}) {
      std::vector<Mixed> nets;
      for (int i = 0; i < 4; ++i) {
        torch::manual_seed(7);
        nets.emplace_back();
      }
      on_both(2, [&](ProcessGroup shm, ProcessGroup gloo) {
        auto rank = static_cast<std::size_t>(shm.rank());
        DataParallelOptions options{.bucket_cap_bytes = bucket_cap_bytes};
        DistributedDataParallel<Mixed> ours(nets[2 * rank], shm, options);
        DistributedDataParallel<Mixed> theirs(nets[2 * rank + 1], gloo, options);
        for (int step = 0; step < 4; ++step) {
          for (auto* model : {&ours, &theirs}) {
            model->zero_grad();
            (*model)(inputs(shm.rank(), step, {4, 6})).square().mean().backward();
          }
          auto expected = nets[2 * rank + 1]->named_parameters();
          for (const auto& item : nets[2 * rank]->named_parameters()) {
            if (!item.value().grad().defined()) continue;
            expect(torch::equal(item.value().grad(), expected[item.key()].grad()),
                   "the gradient of " + item.key() + " is Gloo's");
          }
        }
      });
    }
  }

  TEST_CASE("a backward pass whose peer is late ends with its name") {
    std::vector<Mixed> nets(2);
    std::promise<void> is_over;
    std::string problem;
    std::vector<std::string> problems = run_ranks(
        {0, 1}, 2,
        [&](ProcessGroup group) {
          auto rank = static_cast<std::size_t>(group.rank());
          DistributedDataParallel<Mixed> model(nets[rank], group);
          torch::Tensor loss = model(inputs(group.rank(), 0, {4, 6})).square().mean();
          if (rank == 1) return is_over.get_future().wait();
          try {
            loss.backward();
          } catch (const std::exception& error) {
            problem = error.what();
          }
          is_over.set_value();
        },
        /*timeout=*/4s);
    CAPTURE(problem);
    CHECK(problem.starts_with("rank 1 of 2 did not come to all_reduce (sum) of "));
    CHECK(problem.ends_with(" within 4 s"));
    CHECK(problems == std::vector<std::string>{"", ""});
  }

  TEST_CASE("an abort ends a collective under way, on both sides of it") {
    std::promise<void> has_begun;
    std::string problem;
    std::vector<std::string> problems = run_ranks({0, 1}, 2, [&](ProcessGroup group) {
      if (group.rank() == 1) {
        has_begun.get_future().wait();
        group.all_reduce(torch::ones({1'000'000}));
        return;
      }
      std::vector<torch::Tensor> tensors{torch::ones({1'000'000})};
      auto work = group.c10d()->allreduce(tensors);
      static_cast<shm::Backend&>(*backend_of(group)).abort();
      has_begun.set_value();
      try {
        work->wait();
      } catch (const DdpError& error) {
        problem = error.what();
      }
    });
    CHECK(problem == "rank 0 of 2 has aborted the group");
    CHECK(problems[0] == "");
    CHECK(problems[1] == "all_reduce: rank 0 of 2 has aborted the group");
  }
}
