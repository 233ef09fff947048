// SPDX-License-Identifier: BSD-3-Clause
//
// One rank of gpu_test.py, on its GPU:
//
//   gpu_ranks train        trains beside a bare copy whose gradients are averaged one by one
//   gpu_ranks collectives  asks for each collective
//   gpu_ranks hang         rank 1 does not come to the third all_reduce
//   gpu_ranks die          rank 1 kills itself before the third all_reduce
//
// Rank 0 says "done" when all has been right.  Exit code 3: this rank has had a DdpError, and has
// written it.
#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>

#include "worker/ddp/data_parallel.h"

namespace {

namespace ddp = ddprun::ddp;

constexpr int kSteps = 5;

torch::nn::Sequential make_net(at::Device device) {
  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Linear(6, 40), torch::nn::ReLU(), torch::nn::Linear(40, 3));
  net->to(device);
  return net;
}

void train(ddp::ProcessGroup group) {
  const at::Device device = group.device();
  for (bool views : {false, true}) {
    torch::nn::Sequential net = make_net(device), reference = make_net(device);
    ddp::DistributedDataParallel<torch::nn::Sequential> model(
        net, group,
        {.device_ids = {device}, .gradient_as_bucket_view = views, .bucket_cap_bytes = 256});
    torch::optim::SGD optimizer(net->parameters(), 0.1), other(reference->parameters(), 0.1);
    for (int step = 0; step < kSteps; ++step) {
      torch::Tensor x = torch::full({4, 6}, 0.1 * (group.rank() + 1) + step, device);
      model.zero_grad();
      reference->zero_grad();
      model(x.cpu()).square().mean().backward();  // device_ids brings it back
      reference->forward(x).square().mean().backward();
      for (std::size_t i = 0; i < net->parameters().size(); ++i) {
        torch::Tensor mean = reference->parameters()[i].grad();
        group.all_reduce(mean);
        mean.div_(group.world_size());
        if (!torch::allclose(net->parameters()[i].grad(), mean, 1e-4, 1e-6)) {
          throw ddp::DdpError("the gradients differ in step " + std::to_string(step));
        }
      }
      optimizer.step();
      other.step();
    }
  }
}

// Throws unless `tensor` is on this rank's GPU and has `values`.
void expect(const std::string& what, const ddp::ProcessGroup& group, const torch::Tensor& tensor,
            const std::vector<float>& values) {
  if (tensor.device() != group.device()) {
    throw std::runtime_error(what + " gives a tensor on " + tensor.device().str());
  }
  if (!tensor.cpu().to(torch::kFloat).flatten().equal(torch::tensor(values))) {
    std::cerr << what << " gives " << tensor << std::endl;
    throw std::runtime_error(what + " gives other values than " +
                             (std::ostringstream() << torch::tensor(values)).str());
  }
}

torch::Tensor number(const ddp::ProcessGroup& group, double value) {
  return torch::full({3}, value, group.device());
}

// Two ranks.  Rank r has r + 1, unless something else is said.
void reductions(ddp::ProcessGroup group) {
  const std::vector<std::pair<ddp::ReduceOp, float>> ops = {{ddp::ReduceOp::Sum, 3},
                                                            {ddp::ReduceOp::Mean, 1.5},
                                                            {ddp::ReduceOp::Product, 2},
                                                            {ddp::ReduceOp::Min, 1},
                                                            {ddp::ReduceOp::Max, 2}};
  const float own = static_cast<float>(group.rank() + 1);
  for (auto [op, result] : ops) {
    torch::Tensor tensor = number(group, own);
    group.all_reduce(tensor, op);
    expect("all_reduce", group, tensor, {result, result, result});
    torch::Tensor at_root = number(group, own);
    group.reduce(at_root, 1, op);
    if (group.rank() == 1) expect("reduce", group, at_root, {result, result, result});
    torch::Tensor part = number(group, 0);
    group.reduce_scatter(part, {number(group, own), number(group, 10 * own)}, op);
    const float other = op == ddp::ReduceOp::Product ? 100 * result : 10 * result;
    const float mine = group.rank() == 0 ? result : other;
    expect("reduce_scatter", group, part, {mine, mine, mine});
  }
  torch::Tensor with_gaps = torch::zeros({3, 2}, group.device()).select(1, 0);
  with_gaps.fill_(own);
  group.all_reduce(with_gaps);
  expect("all_reduce of a view", group, with_gaps, {3, 3, 3});
  torch::Tensor half = number(group, own).to(torch::kBFloat16);
  group.all_reduce(half);
  expect("all_reduce of bfloat16", group, half, {3, 3, 3});
}

void exchanges(ddp::ProcessGroup group) {
  const int rank = group.rank(), other = 1 - rank;
  const float own = static_cast<float>(rank + 1);
  torch::Tensor tensor = number(group, own);
  group.broadcast(tensor, 1);
  expect("broadcast", group, tensor, {2, 2, 2});
  std::vector<torch::Tensor> all = group.all_gather(number(group, own));
  expect("all_gather", group, torch::cat(all), {1, 1, 1, 2, 2, 2});
  std::vector<torch::Tensor> gathered = group.gather(number(group, own), 1);
  if (rank == 1) expect("gather", group, torch::cat(gathered), {1, 1, 1, 2, 2, 2});
  torch::Tensor share = number(group, 0);
  std::vector<torch::Tensor> shares;
  if (rank == 1) shares = {number(group, 7), number(group, 8)};
  group.scatter(share, shares, 1);
  const float dealt = 7.0F + static_cast<float>(rank);
  expect("scatter", group, share, {dealt, dealt, dealt});
  std::vector<torch::Tensor> taken = {torch::zeros({rank + 1}, group.device()),
                                      torch::zeros({rank + 1}, group.device())};
  group.all_to_all(taken,
                   {torch::full({1}, own, group.device()), torch::full({2}, own, group.device())});
  expect("all_to_all", group, torch::cat(taken),
         rank == 0 ? std::vector<float>{1, 2} : std::vector<float>{1, 1, 2, 2});
  torch::Tensor message = number(group, own);
  rank == 0 ? group.send(message, other) : group.recv(message, other);
  expect("send and recv", group, message, {1, 1, 1});
  ddp::AsyncWork work = group.all_reduce_async(message);
  work.wait();
  expect("all_reduce_async", group, message, {2, 2, 2});
  for (const std::string& text : group.all_gather_text("a text")) {
    if (text != "a text") throw std::runtime_error("all_gather_text gives " + text);
  }
  torch::Tensor on_cpu = torch::ones({3});
  group.all_reduce(on_cpu);
  if (on_cpu[0].item<float>() != 2) throw std::runtime_error("all_reduce of the CPU's tensors");
  auto subgroup = group.new_group({1});
  if (subgroup) {
    torch::Tensor alone = number(group, 5);
    subgroup->all_reduce(alone);
    expect("all_reduce of a subgroup", group, alone, {5, 5, 5});
  }
}

// Sums, and before the third sum rank 1 calls `fails`.
void lose_rank_1(ddp::ProcessGroup group, const std::function<void()>& fails) {
  torch::Tensor tensor = number(group, 1);
  for (int i = 0; i < 3; ++i) {
    if (i == 2 && group.rank() == 1) fails();
    group.all_reduce(tensor);
    std::cout << "rank " << group.rank() << " has " << tensor[0].item<float>() << std::endl;
  }
}

void run(const std::string& what) {
  using namespace std::chrono_literals;
  ddp::ProcessGroupOptions options{.backend = "nccl"};
  if (what == "hang" || what == "die") options.timeout = 5s;
  ddp::ProcessGroup group = ddp::init_process_group(options);
  const at::Device device = group.device();
  if (!device.is_cuda() || device.index() != group.local_rank()) {
    throw ddp::DdpError("the device of local rank " + std::to_string(group.local_rank()) + " is " +
                        device.str());
  }
  if (what == "train") {
    train(group);
  } else if (what == "collectives") {
    reductions(group);
    exchanges(group);
  } else if (what == "hang") {
    lose_rank_1(group, [] { std::this_thread::sleep_for(1h); });
  } else if (what == "die") {
    lose_rank_1(group, [] { ::raise(SIGKILL); });
  } else {
    throw std::invalid_argument("there is no case '" + what + "'");
  }
  group.barrier();
  if (group.rank() == 0) std::cout << "done on " << group.world_size() << " GPUs" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc == 2 ? argv[1] : "");
    return 0;
  } catch (const ddp::DdpError& error) {
    std::cerr << "gpu_ranks: " << error.what() << std::endl;
    return 3;
  } catch (const std::exception& error) {
    std::cerr << "gpu_ranks: " << error.what() << std::endl;
    return 1;
  }
}
