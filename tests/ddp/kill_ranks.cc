// SPDX-License-Identifier: BSD-3-Clause
//
// The victim of kill_while_training_test.py: trains a tiny model, saves after each step, and keeps
// a record of what it did.
//
//   ddprun ... kill_ranks CHECKPOINTS RECORDS STEPS [power_sgd]
//
// In RECORDS: pid.<rank>; starts, "<attempt> <step resumed from>" by rank 0; samples.<rank>,
// "<attempt> <step> <epoch> <index>..." of each step before it is saved; end.<rank>, the sums of
// the final parameters and buffers.  Exit code: 0, or 143 after a stop that was asked for.
#include <fcntl.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/torch.h>
#include <unistd.h>

#include <iostream>

#include "worker/checkpoint/formats/crc32c.h"
#include "worker/ddp/checkpointer.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/power_sgd.h"

namespace {

namespace ddp = ddprun::ddp;

constexpr std::int64_t kSamples = 42;  // batch norm needs two on each of three ranks
constexpr std::uint64_t kSeed = 3;

// One write() for each line, so that a kill tears none.
void append(const std::string& path, const std::string& line) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (fd < 0 || ::write(fd, line.data(), line.size()) < 0)
    throw ddp::DdpError("cannot write " + path);
  ::close(fd);
}

torch::nn::Sequential make_model() {
  torch::manual_seed(kSeed);
  torch::nn::Sequential net;
  net->push_back(torch::nn::Linear(8, 16));
  net->push_back(torch::nn::BatchNorm1d(16));
  net->push_back(torch::nn::Dropout(0.2));
  net->push_back(torch::nn::Linear(16, 16));
  net->push_back(torch::nn::Linear(16, 3));
  return net;
}

// Row `i` is the same in every process, and drawn from no generator.
torch::Tensor batch_of(const std::vector<std::int64_t>& indices) {
  torch::Tensor rows = torch::tensor(indices).to(torch::kDouble).unsqueeze(1);
  torch::Tensor columns = torch::arange(1, 9, torch::kDouble).unsqueeze(0);
  return torch::sin(rows * columns * 0.37).to(torch::kFloat);
}

std::string sum_of(const std::vector<torch::Tensor>& tensors) {
  std::uint32_t sum = 0;
  for (const torch::Tensor& tensor : tensors) {
    sum = ddp::crc32c(sum, tensor.const_data_ptr(), tensor.nbytes());
  }
  return std::to_string(sum);
}

int train(const std::string& folder, const std::string& records, std::int64_t steps,
          const std::string& with) {
  const bool with_power_sgd = with == "power_sgd";
  ddp::ProcessGroup group = ddp::init_process_group();
  const std::string rank = std::to_string(group.rank());
  const std::string attempt = std::to_string(group.env().restart_count);
  append(records + "/pid." + rank, std::to_string(::getpid()) + "\n");

  ddp::StopRequests stops(group);
  torch::nn::Sequential net = make_model();
  torch::manual_seed(ddp::stream_seed(kSeed, group.rank(), 0));
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
  torch::optim::StepLR scheduler(optimizer, 30, 0.9);
  auto sampler = ddp::value_or_throw(ddp::ElasticSampler::make(
      {.sample_count = kSamples, .step_size = 6 * group.world_size(), .seed = kSeed}));
  ddp::Progress progress;
  ddp::BucketLayout buckets;
  ddp::TrainingState state{.model = *net,
                           .optimizer = &optimizer,
                           .scheduler = &scheduler,
                           .sampler = &sampler,
                           .progress = &progress,
                           .buckets = &buckets};
  ddp::PowerSgdState power_sgd({.start_iteration = 10});
  if (with_power_sgd) state.stateful = {{"power_sgd", &power_sgd}};
  ddp::Checkpointer checkpointer(
      group, {.directory = folder, .sharded = with == "sharded", .keep_last = 2});
  checkpointer.resume(state);
  if (group.rank() == 0) {
    append(records + "/starts", attempt + " " + std::to_string(progress.step) + "\n");
  }

  // Buckets so small that there are several, and their layout matters.
  ddp::DistributedDataParallel<torch::nn::Sequential> model(
      net, group,
      {.bucket_cap_bytes = 600,
       .bucket_layout = buckets,
       .comm_hook = with_power_sgd ? power_sgd.hook() : nullptr});
  while (progress.step < steps) {
    if (sampler.is_epoch_done()) sampler.next_epoch();
    ddp::Share share = sampler.next(group.rank(), group.world_size());
    model.zero_grad();
    torch::Tensor loss = share.weight * model.forward(batch_of(share.indices)).square().mean();
    loss.backward();
    optimizer.step();
    scheduler.step();
    std::string record = attempt + " " + std::to_string(progress.step + 1) + " " +
                         std::to_string(sampler.state().epoch);
    if (share.weight > 0) {
      for (std::int64_t index : share.indices) record += ' ' + std::to_string(index);
    }
    sampler.commit();
    ++progress.step;
    append(records + "/samples." + rank, record + "\n");
    buckets = model.bucket_layout();
    if (checkpointer.save_if_asked(state, stops)) return ddp::StopRequests::kExitCode;
    checkpointer.save(state);
  }
  append(records + "/end." + rank, sum_of(net->parameters()) + " " + sum_of(net->buffers()) + "\n");
  group.barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string with = argc == 5 ? argv[4] : "";
  if (argc != 4 && with != "power_sgd" && with != "sharded") return 2;
  try {
    return train(argv[1], argv[2], std::stoll(argv[3]), with);
  } catch (const c10::Error& error) {
    std::cerr << "kill_ranks: " << error.what_without_backtrace() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << "kill_ranks: " << error.what() << std::endl;
  }
  return 1;
}
