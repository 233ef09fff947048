// SPDX-License-Identifier: BSD-3-Clause
#include <torch/torch.h>

#include <cmath>
#include <future>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/process_group.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;
using namespace std::chrono_literals;
using Json = nlohmann::json;
using Tensors = std::vector<torch::Tensor>;

constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Product, ReduceOp::Min,
                             ReduceOp::Max};
constexpr torch::ScalarType kDtypes[] = {torch::kFloat, torch::kDouble, torch::kLong};
constexpr torch::ScalarType kMoved[] = {torch::kBool, torch::kShort, torch::kBFloat16,
                                        torch::kComplexFloat};

// Runs `body` over shared memory and over Gloo, in worlds of 1 to 3 ranks.
void on_all_worlds(const std::function<void(ProcessGroup)>& body) {
  for (const char* backend : {"shm", "gloo"}) {
    for (int world_size = 1; world_size <= 3; ++world_size) {
      CAPTURE(backend);
      CAPTURE(world_size);
      std::vector<int> ranks;
      for (int rank = 0; rank < world_size; ++rank) ranks.push_back(rank);
      CHECK(run_ranks(ranks, world_size, body, 60s, backend) ==
            std::vector<std::string>(ranks.size()));
    }
  }
}

// What `rank` gives: small numbers, so that no sum or product is rounded.
torch::Tensor value_of(int rank, torch::ScalarType dtype, torch::IntArrayRef shape = {2, 3}) {
  return (torch::arange(6).view(shape) + rank + 1).to(dtype);
}

torch::Tensor reduced(int world_size, torch::ScalarType dtype, ReduceOp op) {
  Tensors values;
  for (int rank = 0; rank < world_size; ++rank) values.push_back(value_of(rank, dtype));
  const torch::Tensor all = torch::stack(values);
  switch (op) {
    case ReduceOp::Sum:
      return all.sum(0);
    case ReduceOp::Mean:
      return all.mean(0);
    case ReduceOp::Product:
      return all.prod(0);
    case ReduceOp::Min:
      return all.amin(0);
    case ReduceOp::Max:
      return all.amax(0);
  }
  return {};
}

// A view of the same values with gaps between them.
torch::Tensor with_gaps(const torch::Tensor& tensor) {
  return torch::stack({tensor, torch::zeros_like(tensor)}, -1).select(-1, 0);
}

// A group as a program makes it from LibTorch alone.
c10::intrusive_ptr<c10d::ProcessGroup> make_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int world_size, bool has_store) {
  auto options = c10d::ProcessGroupGloo::Options::create(20s);
  options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("mine", store), rank, world_size, options);
  auto group = has_store ? c10::make_intrusive<c10d::ProcessGroup>(store, rank, world_size)
                         : c10::make_intrusive<c10d::ProcessGroup>(rank, world_size);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  return group;
}

void expect_equal(const torch::Tensor& here, const torch::Tensor& expected,
                  const std::string& claim) {
  expect(here.scalar_type() == expected.scalar_type(), claim + ", in its dtype");
  // Sums of three are rounded once over shared memory, and divided once over Gloo.
  expect(here.is_floating_point() ? torch::allclose(here, expected, 1e-6, 0)
                                  : torch::equal(here, expected),
         claim);
}

}  // namespace

TEST_SUITE("ddp/collectives") {
  TEST_CASE("all_reduce, reduce and reduce_scatter, with every operation") {
    on_all_worlds([](ProcessGroup group) {
      const int world_size = group.world_size();
      for (const ReduceOp op : kOps) {
        for (const torch::ScalarType dtype : kDtypes) {
          if (op == ReduceOp::Mean && dtype == torch::kLong) continue;
          const torch::Tensor expected = reduced(world_size, dtype, op);
          const torch::Tensor own = value_of(group.rank(), dtype);

          torch::Tensor everywhere = own.clone();
          group.all_reduce(everywhere, op);
          expect_equal(everywhere, expected, "every rank has the result");
          torch::Tensor view = with_gaps(own);
          group.all_reduce(view, op);
          expect_equal(view, expected, "a view as well");

          for (int root = 0; root < world_size; ++root) {
            torch::Tensor one = root % 2 == 0 ? own.clone() : with_gaps(own);
            group.reduce(one, root, op);
            expect_equal(one, group.rank() == root ? expected : own,
                         "the root has it, and the others what they had");
          }

          Tensors inputs;
          for (int rank = 0; rank < world_size; ++rank) inputs.push_back(own + rank);
          torch::Tensor mine = group.rank() == 0 ? with_gaps(own) : torch::zeros_like(own);
          group.reduce_scatter(mine, inputs, op);
          Tensors given;
          for (int rank = 0; rank < world_size; ++rank) {
            given.push_back(value_of(rank, dtype) + group.rank());
          }
          torch::Tensor sum = torch::stack(given).sum(0);
          if (op == ReduceOp::Sum) expect_equal(mine, sum, "each rank has its sum");
          if (op == ReduceOp::Max) expect_equal(mine, given.back(), "and its maximum");
          if (op == ReduceOp::Mean) expect_equal(mine, sum / world_size, "and its mean");
        }
      }
    });
  }

  TEST_CASE("half types, complex numbers and tensors of inference mode are averaged") {
    on_all_worlds([](ProcessGroup group) {
      for (const torch::ScalarType dtype : {torch::kHalf, torch::kBFloat16, torch::kComplexFloat}) {
        torch::Tensor value = torch::full({3}, 2.0 * group.rank(), dtype);
        group.all_reduce(value, ReduceOp::Mean);
        expect(torch::equal(value, torch::full({3}, group.world_size() - 1.0, dtype)),
               "the mean is there");
      }
      torch::Tensor value;
      {
        c10::InferenceMode mode;
        value = torch::full({3}, 2.0 * group.rank());
      }
      group.all_reduce(value, ReduceOp::Mean);
      expect(value[0].item<double>() == group.world_size() - 1.0, "also in inference mode");
      const c10::complex<float> own(0, 2.0F * static_cast<float>(group.rank()));
      torch::Tensor conjugated = torch::full({3}, own, torch::kComplexFloat).conj();
      group.all_reduce(conjugated, ReduceOp::Mean);
      const c10::complex<float> mean(0, 1.0F - static_cast<float>(group.world_size()));
      expect(torch::equal(conjugated, torch::full({3}, mean, torch::kComplexFloat)),
             "of what is yet to be conjugated as well");
      torch::Tensor leaf = torch::full({3}, 2.0 * group.rank(), torch::requires_grad());
      group.all_reduce(leaf, ReduceOp::Mean);
      expect(leaf[0].item<double>() == group.world_size() - 1.0, "and in a parameter");
    });
  }

  TEST_CASE("a reduction leaves the tensors of the other ranks alone, whatever their dtype") {
    on_all_worlds([](ProcessGroup group) {
      for (const torch::ScalarType dtype : {torch::kBool, torch::kComplexFloat, torch::kInt}) {
        const torch::Tensor own = torch::arange(4).add(group.rank()).remainder(2).to(dtype);
        for (int root = 0; root < group.world_size(); ++root) {
          torch::Tensor tensor = own.clone();
          group.reduce(tensor, root, ReduceOp::Sum);
          expect(group.rank() == root || torch::equal(tensor, own), "it has what it had");
        }
      }
    });
  }

  TEST_CASE("what only moves takes any dtype, shape and stride") {
    on_all_worlds([](ProcessGroup group) {
      const int world_size = group.world_size();
      const int rank = group.rank();
      for (const torch::ScalarType dtype : kMoved) {
        for (const bool has_gaps : {false, true}) {
          auto value = [&](int of) {
            const torch::Tensor dense = (torch::arange(6).view({2, 3}) * (of + 2) % 5).to(dtype);
            return has_gaps ? with_gaps(dense) : dense;
          };
          const Tensors all = group.all_gather(value(rank));
          expect(all.size() == static_cast<std::size_t>(world_size), "one of each rank");
          for (int other = 0; other < world_size; ++other) {
            const auto at = static_cast<std::size_t>(other);
            expect(torch::equal(all[at], value(other)), "all_gather is by rank");

            const Tensors gathered = group.gather(value(rank), other);
            expect(gathered.size() == (rank == other ? all.size() : 0), "gather is the root's");
            for (std::size_t i = 0; i < gathered.size(); ++i) {
              expect(torch::equal(gathered[i], all[i]), "and by rank");
            }

            torch::Tensor output = torch::zeros_like(value(0));
            group.scatter(output, rank == other ? all : Tensors{}, other);
            expect(torch::equal(output, all[static_cast<std::size_t>(rank)]), "scatter is by rank");

            torch::Tensor given = value(rank);
            group.broadcast(given, other);
            expect(torch::equal(given, all[at]), "broadcast is the root's");
          }
        }
      }
      torch::Tensor none = torch::empty({0, 3});
      group.broadcast(none);
      expect(group.all_gather(none)[0].sizes() == torch::IntArrayRef({0, 3}), "nothing is moved");
      expect(group.all_gather(torch::tensor(rank))[0].dim() == 0, "numbers stay numbers");
      const torch::Tensor conjugate = torch::complex(torch::ones({2}), torch::ones({2})).conj();
      expect(torch::equal(group.all_gather(conjugate)[0], conjugate), "of values, not of memory");
    });
  }

  TEST_CASE("all_to_all exchanges tensors of different shapes and dtypes") {
    on_all_worlds([](ProcessGroup group) {
      // From i to j: i + 2j rows.  From 0 to 0 nothing.
      auto piece = [](int from, int to) {
        return (torch::arange((from + 2 * to) * 3).view({-1, 3}) + 10 * from)
            .to(to == 0 ? torch::kShort : torch::kDouble);
      };
      Tensors inputs;
      Tensors outputs;
      for (int rank = 0; rank < group.world_size(); ++rank) {
        inputs.push_back(piece(group.rank(), rank));
        outputs.push_back(torch::zeros_like(piece(rank, group.rank())));
        if (rank == 1) outputs.back() = with_gaps(outputs.back());
      }
      group.all_to_all(outputs, inputs);
      for (int rank = 0; rank < group.world_size(); ++rank) {
        expect(torch::equal(outputs[static_cast<std::size_t>(rank)], piece(rank, group.rank())),
               "each rank has what the others gave for it");
      }
    });
  }

  TEST_CASE("messages go round, in their order for each tag") {
    on_all_worlds([](ProcessGroup group) {
      if (group.world_size() == 1) return;
      const int to = (group.rank() + 1) % group.world_size();
      const int from = (group.rank() + group.world_size() - 1) % group.world_size();
      AsyncWork first = group.send_async(torch::full({3}, group.rank(), torch::kShort), to, 7);
      AsyncWork second = group.send_async(torch::full({2}, 10.0 + group.rank()), to, 8);
      torch::Tensor floats = torch::zeros({2});
      group.recv(floats, from, 8);
      expect(floats[1].item<int>() == 10 + from, "the tag tells messages apart");
      torch::Tensor shorts = with_gaps(torch::zeros({3}, torch::kShort));
      const Tensors received = group.recv_async(shorts, from, 7).wait();
      expect(received.size() == 1 && received[0].is_same(shorts), "a message is filled in");
      expect(torch::equal(shorts, torch::full({3}, from, torch::kShort)), "whole");
      first.wait();
      second.wait();
    });
  }

  TEST_CASE("a message whose handle is dropped arrives, also at the end of the sender's group") {
    for (const char* backend : {"shm", "gloo"}) {
      CAPTURE(backend);
      const std::vector<std::string> problems = run_ranks(
          {0, 1}, 2,
          [](ProcessGroup group) {
            const int other = 1 - group.rank();
            if (group.rank() == 0) {
              static_cast<void>(group.send_async(torch::full({3}, 5.0), other, 1));
              group.barrier();
              group.send(torch::full({2}, 6.0), other, 2);
              group.send(torch::full({2}, 7.0), other, 3);
              static_cast<void>(group.send_async(torch::full({1 << 20}, 8.0), other, 4));
              return;
            }
            torch::Tensor second = torch::zeros({2});
            static_cast<void>(group.recv_async(second, other, 2));
            group.barrier();
            torch::Tensor first = torch::zeros({3}), third = torch::zeros({2});
            group.recv(first, other, 1);
            expect(torch::equal(first, torch::full({3}, 5.0)), "what was sent is there");
            group.recv(third, other, 3);
            expect(torch::equal(second, torch::full({2}, 6.0)), "what was to be received as well");
            torch::Tensor last = torch::zeros({1 << 20});
            group.recv(last, other, 4);
            expect(torch::equal(last, torch::full({1 << 20}, 8.0)), "and what was sent at the end");
          },
          10s, backend);
      CHECK(problems == std::vector<std::string>(2));
    }
  }

  TEST_CASE("parameters of a module are broadcast, one by one and together") {
    on_all_worlds([](ProcessGroup group) {
      torch::nn::Linear net(2, 2);
      {
        torch::NoGradGuard no_grad;
        for (torch::Tensor& parameter : net->parameters()) parameter.fill_(group.rank() + 1.0);
      }
      const int root = group.world_size() - 1;
      group.broadcast(net->weight, root);
      group.broadcast(net->parameters(), root);
      for (const torch::Tensor& parameter : net->parameters()) {
        expect(parameter.requires_grad() && parameter.is_leaf(), "it stays a parameter");
        expect(torch::equal(parameter.detach(), torch::full_like(parameter.detach(), root + 1.0)),
               "it has the root's values");
      }
    });
  }

  TEST_CASE("texts and JSON objects, also empty ones") {
    on_all_worlds([](ProcessGroup group) {
      const int rank = group.rank();
      const int last = group.world_size() - 1;
      auto text_of = [](int of) { return std::string(static_cast<std::size_t>(of), 'x') + "\0"; };
      const std::vector<std::string> all = group.all_gather_text(text_of(rank));
      const std::vector<std::string> gathered = group.gather_text(text_of(rank), last);
      expect(all.size() == static_cast<std::size_t>(last + 1), "one of each rank");
      expect(gathered == (rank == last ? all : std::vector<std::string>{}), "gathered at the root");
      for (int i = 0; i <= last; ++i) {
        expect(all[static_cast<std::size_t>(i)] == text_of(i), "texts are by rank");
      }
      expect(group.scatter_text(rank == last ? all : std::vector<std::string>{}, last) ==
                 text_of(rank),
             "texts are dealt out");
      expect(group.all_gather_text("") == std::vector<std::string>(all.size()), "nothing is sent");
      expect(group.scatter_text(std::vector<std::string>(all.size())).empty(), "nor here");
      expect(group.gather_text("").size() == (rank == 0 ? all.size() : 0), "nor here");

      const Json own = {{"rank", rank}, {"losses", std::vector<double>(3, 0.5)}};
      expect(group.broadcast_object(own, last)["rank"] == last, "an object is the root's");
      expect(group.all_gather_object(own)[0]["losses"][2] == 0.5, "objects are by rank");
      const std::vector<Json> objects = group.gather_object(own, last);
      expect(objects.size() == (rank == last ? all.size() : 0), "objects at the root");
      const Json mine = group.scatter_object(objects, last);
      expect(mine == own, "and back");
      if (last == 0) return;
      if (rank == 0) {
        group.send_object(own, last, 3);
        group.send_text("", last, 3);
      } else if (rank == last) {
        expect(group.recv_object<Json>(0, 3)["rank"] == 0, "an object arrives");
        expect(group.recv_text(0, 3).empty(), "and an empty text");
      }
    });
  }

  TEST_CASE("several collectives are under way at once, and waited for in any order") {
    on_all_worlds([](ProcessGroup group) {
      const int world_size = group.world_size();
      const double sum = world_size * (world_size + 1) / 2.0;
      Tensors tensors;
      std::vector<AsyncWork> works;
      for (int i = 0; i < 20; ++i) {
        tensors.push_back(torch::full({i % 4 == 3 ? 300'000 : 5}, 1.0 + group.rank()));
        if (i % 2 == 1) tensors.back() = with_gaps(tensors.back());
        const int root = i % world_size;
        if (i % 4 == 0) works.push_back(group.broadcast_async(tensors.back(), root));
        if (i % 4 == 1) works.push_back(group.reduce_async(tensors.back(), root, ReduceOp::Mean));
        if (i % 4 == 2) works.push_back(group.all_gather_async(tensors.back()));
        if (i % 4 == 3) works.push_back(group.all_reduce_async(tensors.back()));
      }
      Tensors inputs(static_cast<std::size_t>(world_size), torch::full({2}, 1.0 + group.rank()));
      Tensors outputs(inputs.size());
      for (torch::Tensor& output : outputs) output = torch::zeros({2});
      torch::Tensor part = torch::zeros({2});
      torch::Tensor share = torch::zeros({2});
      works.push_back(group.all_to_all_async(outputs, inputs));
      works.push_back(group.reduce_scatter_async(part, inputs));
      works.push_back(group.scatter_async(share, group.rank() == 0 ? inputs : Tensors{}));
      works.push_back(group.gather_async(part));
      for (std::size_t i = works.size(); i-- > 0;) {
        works[i].wait();
        works[i].wait();  // once more
        expect(works[i].is_completed(), "what has been waited for is complete");
      }
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const int root = static_cast<int>(i) % world_size;
        const double here = tensors[i].max().item<double>();
        expect(tensors[i].min().item<double>() == here, "all of a tensor is treated alike");
        if (i % 4 == 0) expect(here == 1.0 + root, "a broadcast");
        if (i % 4 == 1 && group.rank() == root) {
          expect(std::abs(here - sum / world_size) < 1e-6, "a mean");
        }
        if (i % 4 == 2) {
          expect(works[i].wait().back()[0].item<double>() == world_size, "an all_gather");
        }
        if (i % 4 == 3) expect(here == sum, "a sum");
      }
      expect(outputs.back()[1].item<double>() == world_size, "an all_to_all");
      expect(part[0].item<double>() == sum && share[0].item<double>() == 1, "parts and shares");
    });
  }

  TEST_CASE("what is asked for wrongly is a sentence, and the group goes on") {
    on_all_worlds([](ProcessGroup group) {
      const std::string ranks = std::to_string(group.world_size()) + " ranks";
      torch::Tensor value = torch::ones({2});
      const Tensors too_many(static_cast<std::size_t>(group.world_size() + 1), value);
      const Tensors others(static_cast<std::size_t>(group.world_size()), torch::ones({3}));
      torch::Tensor integers = torch::ones({2}, torch::kLong);
      torch::Tensor complex = torch::ones({2}, torch::kComplexFloat);
      const torch::Tensor sparse = torch::ones({2}).to_sparse();
      const torch::Tensor quantized = torch::quantize_per_tensor(value, 0.1, 0, torch::kQInt8);
      const torch::Tensor none;
      const Tensors nothing(static_cast<std::size_t>(group.world_size()));
      const std::pair<std::string, std::function<void()>> cases[] = {
          {"all_reduce: the tensor is undefined", [&] { group.all_reduce(none); }},
          {"reduce: the tensor is undefined", [&] { group.reduce(none); }},
          {"broadcast: the tensor is undefined", [&] { group.broadcast(none); }},
          {"all_gather: the tensor is undefined", [&] { group.all_gather(none); }},
          {"gather: the tensor is undefined", [&] { group.gather(none); }},
          {"scatter: the tensor is undefined", [&] { group.scatter(none, others); }},
          {"reduce_scatter: the tensor is undefined", [&] { group.reduce_scatter(none, others); }},
          {"all_to_all: the tensor is undefined", [&] { group.all_to_all(others, nothing); }},
          {"send: the tensor is undefined", [&] { group.send(none, 0); }},
          {"recv: the tensor is undefined", [&] { group.recv(none, 0); }},
          {"broadcast: root 7 is not one of the " + ranks + " of this group, which begin at 0",
           [&] { group.broadcast(value, 7); }},
          {"gather: root -1 is not one of the " + ranks + " of this group, which begin at 0",
           [&] { group.gather(value, -1); }},
          {"send: the receiver " + std::to_string(group.rank()) + " is this rank itself",
           [&] { group.send(value, group.rank()); }},
          {"recv: the sender 9 is not one of the " + ranks + " of this group, which begin at 0",
           [&] { group.recv_async(value, 9).wait(); }},
          {"scatter: there are " + std::to_string(group.world_size() + 1) + " tensors for " + ranks,
           [&] { group.scatter(value, too_many, group.rank()); }},
          {"reduce_scatter: the tensor for rank 0 is Float [3], and the output is Float [2]",
           [&] { group.reduce_scatter(value, others); }},
          {"all_to_all: there are " + std::to_string(group.world_size() + 1) + " inputs and " +
               std::to_string(group.world_size()) + " outputs for " + ranks,
           [&] { group.all_to_all(others, too_many); }},
          {"all_reduce: the mean of Long tensors would be rounded: take the sum",
           [&] { group.all_reduce(integers, ReduceOp::Mean); }},
          {"reduce: complex numbers have no order: there is no minimum or maximum of them",
           [&] { group.reduce(complex, 0, ReduceOp::Max); }},
          {"all_reduce: no transport multiplies complex numbers",
           [&] { group.all_reduce(complex, ReduceOp::Product); }},
          {"broadcast: a tensor of the layout Sparse has no bytes to send: to_dense() it, or "
           "all_reduce it",
           [&] { group.broadcast(sparse); }},
          {"all_gather: a quantized tensor cannot be sent: dequantize() it",
           [&] { group.all_gather(quantized); }},
      };
      for (const auto& [sentence, call] : cases) {
        const std::string problem = problem_of(call);
        expect(problem == sentence, "the sentence is '" + sentence + "', not '" + problem + "'");
      }
      group.all_reduce(value);
      expect(value[0].item<int>() == group.world_size(), "the group goes on");
    });
  }

  TEST_CASE("a rank that does not come to a collective is named, whoever carries it") {
    using Call = std::function<void(ProcessGroup&)>;
    const Tensors two{torch::ones({2}), torch::ones({2})};
    const std::pair<std::string, Call> cases[] = {
        {"reduce", [](ProcessGroup& group) { group.reduce(torch::ones({2})); }},
        {"gather", [](ProcessGroup& group) { group.gather(torch::ones({2})); }},
        {"all_to_all", [&](ProcessGroup& group) { group.all_to_all(two, two); }},
        {"reduce_scatter", [&](ProcessGroup& group) { group.reduce_scatter(two[0], two); }},
        {"recv", [](ProcessGroup& group) { group.recv(torch::ones({2}), 1); }},
        {"all_reduce",
         [](ProcessGroup& group) { group.all_reduce_async(torch::ones({2})).wait(); }},
    };
    for (const char* backend : {"shm", "gloo"}) {
      for (const auto& [name, call] : cases) {
        CAPTURE(backend);
        CAPTURE(name);
        std::promise<void> is_over;
        auto problems = run_ranks(
            {0, 1}, 2,
            [&](ProcessGroup group) {
              if (group.rank() == 1) return is_over.get_future().wait();
              struct Ending {
                std::promise<void>& promise;
                ~Ending() { promise.set_value(); }
              } ending{is_over};
              call(group);
            },
            2s, backend);
        CHECK(problems[0].starts_with(name + ": rank 1 of 2 did not come "));
      }
    }
  }

  TEST_CASE("a rank that has ended is named, also where shared memory leaves a call to Gloo") {
    for (const char* backend : {"shm", "gloo"}) {
      CAPTURE(backend);
      auto problems = run_ranks(
          {0, 1}, 2,
          [](ProcessGroup group) {
            if (group.rank() == 1) return;
            const Tensors two{torch::ones({2}), torch::ones({2})};
            group.all_to_all({torch::ones({2}), torch::ones({2})}, two);
          },
          20s, backend);
      CHECK(problems[0].starts_with("all_to_all: rank 1 of 2 has ended or left the group"));
    }
  }

  TEST_CASE("a mistake of one's own is not blamed on a rank that has left") {
    std::promise<void> has_left;
    auto problems = run_ranks(
        {0, 1}, 2,
        [&](ProcessGroup given) {
          auto group = std::make_shared<ProcessGroup>(std::move(given));
          if (group->rank() == 1) {
            group.reset();
            has_left.set_value();
            return;
          }
          has_left.get_future().wait();
          group->all_reduce(torch::ones({2}, torch::kShort));
        },
        20s, "gloo");
    CHECK(problems[0] == "all_reduce: Invalid scalar type");
  }
}

TEST_SUITE("ddp/subgroups") {
  TEST_CASE("ranks form groups of their own, which train and fail by themselves") {
    for (const char* backend : {"shm", "gloo"}) {
      CAPTURE(backend);
      auto problems = run_ranks(
          {0, 1, 2, 3}, 4,
          [](ProcessGroup group) {
            std::optional<ProcessGroup> odd = group.new_group({3, 1});
            std::optional<ProcessGroup> even = group.new_group({0, 2});
            expect(odd.has_value() == (group.rank() % 2 == 1), "members alone have the group");
            expect(even.has_value() != odd.has_value(), "of each");
            ProcessGroup half = odd ? *odd : *even;
            expect(half.rank() == group.rank() / 2 && half.world_size() == 2, "ranks by number");
            expect(half.local_rank() == group.local_rank(), "the local rank stays");
            expect(half.cpu_backend() == group.cpu_backend(), "and what carries tensors");
            expect(half.env().local_world_size == 2, "two of them are on this node");

            torch::Tensor sum = torch::full({2}, group.rank());
            half.all_reduce(sum);
            expect(sum[0].item<int>() == (odd ? 4 : 2), "a sum is the group's");
            half.barrier();

            // One half has other inputs than the other.
            DistributedDataParallel<Mixed> model(Mixed(), half);
            model(inputs(group.rank(), 0, {4, 6})).mean().backward();
            const torch::Tensor own = model.module()->first->weight.grad();
            const Tensors all = group.all_gather(own);
            expect(torch::equal(all[0], all[2]) && torch::equal(all[1], all[3]), "halves agree");
            expect(!torch::equal(all[0], all[1]), "and differ from each other");

            std::optional<ProcessGroup> alone = half.new_group({1});
            expect(alone.has_value() == (half.rank() == 1), "a group of a group");
            if (alone) expect(alone->all_gather_text("x").size() == 1, "works");
            group.barrier();
          },
          30s, backend);
      CHECK(problems == std::vector<std::string>(4));
    }
  }

  TEST_CASE("a group outlives the one that it was made from, and has a time-out of its own") {
    auto problems = run_ranks({0, 1, 2}, 3, [](ProcessGroup whole) {
      auto group = std::make_shared<ProcessGroup>(std::move(whole));
      std::optional<ProcessGroup> pair =
          group->new_group({0, 2}, {.backend = "gloo", .timeout = 2s});
      const int rank = group->rank();
      group.reset();
      if (!pair) return;
      expect(pair->cpu_backend() == "gloo", "the backend is its own");
      expect(pair->all_gather_text(std::to_string(rank)) == std::vector<std::string>{"0", "2"},
             "it works on");
      if (rank == 2) return pair->barrier();
      pair->barrier();
    });
    CHECK(problems == std::vector<std::string>(3));
  }

  TEST_CASE("ranks that are none, are there twice, or differ, are refused by all") {
    const std::pair<std::string, std::vector<int>> cases[] = {
        {"new_group: rank 1 gives 3, and the ranks are 0 to 2", {0, 3}},
        {"new_group: rank 1 gives -1, and the ranks are 0 to 2", {-1, 0}},
        {"new_group: rank 1 gives rank 2 twice", {2, 0, 2}},
        {"new_group: rank 1 gives no rank", {}},
        {"new_group: rank 1 gives the ranks 0 2 and rank 0 0 1 ", {0, 2}},
    };
    for (const auto& [sentence, ranks] : cases) {
      auto problems = run_ranks(3, [&](ProcessGroup group) {
        const std::string problem = problem_of([&] {
          group.new_group(group.rank() == 1 ? ranks : std::vector<int>{0, 1});
        });
        expect(problem == sentence, "it is '" + sentence + "', not '" + problem + "'");
        expect(group.new_group({1, 0}).has_value() == (group.rank() < 2), "the next one is made");
      });
      CHECK(problems == std::vector<std::string>(3));
    }
  }
}

TEST_SUITE("ddp/adopted groups") {
  TEST_CASE("a module is trained over a group that the program made itself") {
    auto store = c10::make_intrusive<c10d::HashStore>();
    std::vector<std::string> problems(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          const bool has_store = rank == 0;
          ProcessGroup group =
              adopt_process_group(make_group(store, rank, 2, has_store),
                                  {.store = has_store ? nullptr : store, .timeout = 20s});
          expect(group.rank() == rank && group.world_size() == 2, "ranks are the group's");
          expect(group.cpu_backend() == "gloo" && group.device() == torch::kCPU, "as it is");

          Mixed net;
          DistributedDataParallel<Mixed> model(net, group);
          Mixed reference;
          for (const auto& item : reference->named_parameters()) {
            item.value().data().copy_(net->named_parameters()[item.key()]);
          }
          model(inputs(rank, 0, {4, 6})).square().mean().backward();
          reference->forward(inputs(rank, 0, {4, 6})).square().mean().backward();
          for (const auto& item : reference->named_parameters()) {
            torch::Tensor mean = item.value().grad();
            if (!mean.defined()) continue;
            group.all_reduce(mean, ReduceOp::Mean);
            expect(torch::allclose(net->named_parameters()[item.key()].grad(), mean, 1e-5, 1e-7),
                   "the gradient of " + item.key() + " is the mean");
          }
          std::optional<ProcessGroup> alone = group.new_group({1});
          if (alone) expect(alone->all_gather_text("x").size() == 1, "it has subgroups");
          expect(problem_of([&] { group.abort(); }).starts_with("abort: "),
                 "it is not ours to end");
          group.barrier();
        } catch (const std::exception& error) {
          problems[static_cast<std::size_t>(rank)] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(problems == std::vector<std::string>(2));
  }

  TEST_CASE("a group that lacks what is needed is refused") {
    auto store = c10::make_intrusive<c10d::HashStore>();
    CHECK(problem_of([] { adopt_process_group(nullptr); }) ==
          "adopt_process_group needs a group, and was given none");
    CHECK(problem_of([&] { adopt_process_group(make_group(store, 0, 1, false)); }) ==
          "adopt_process_group: the group has no store of its own: give one, in AdoptOptions");
    CHECK(problem_of([&] {
            adopt_process_group(c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1));
          }) == "adopt_process_group: the group has no backend for CPU tensors");
  }
}
