// SPDX-License-Identifier: BSD-3-Clause
//
// Our side of scripts/bench/checkpoint: a model of many tensors, saved or loaded once.
//
//   checkpoint_load save FOLDER MEGABYTES FORMAT     prints "<ms blocked> <ms until durable> <ms
//                                                    that the first save, 2 s after resume(),
//                                                    blocked>"
//   checkpoint_load copy MEGABYTES                   prints "<ms>": the copy within save(), alone
//   checkpoint_load load FOLDER MEGABYTES            prints "<ms>": resume() into a model
//   checkpoint_load read FILE                        prints "<ms>": load_tensors(), every byte used
//   checkpoint_load grace FOLDER MEGABYTES           says "ready", waits for SIGTERM, saves, prints
//                                                    "<ms until durable>"
#include <torch/torch.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "worker/ddp/checkpointer.h"
#include "worker/ddp/tensor_file.h"

namespace {

namespace ddp = ddprun::ddp;

// 62 tensors of equal size, as those of a ResNet in number.
struct Weights : torch::nn::Module {
  explicit Weights(std::int64_t megabytes) {
    constexpr std::int64_t kTensors = 62;
    const std::int64_t count = megabytes * 1'000'000 / 4 / kTensors;
    for (std::int64_t i = 0; i < kTensors; ++i) {
      register_parameter("weight" + std::to_string(i), torch::rand({count}));
    }
  }
};

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

int run(const std::string& what, const std::string& path, std::int64_t megabytes,
        const std::string& format) {
  if (what == "read") {
    auto start = std::chrono::steady_clock::now();
    double sum = 0;
    for (const auto& [name, tensor] : ddp::load_tensors(path))
      sum += tensor.clone()[0].item<float>();
    std::cout << ms_since(start) << " " << sum << std::endl;
    return 0;
  }
  if (what == "copy") {
    Weights weights(std::stoll(path));
    ddp::TensorImage image;
    std::chrono::steady_clock::time_point start;
    for (int i = 0; i < 3; ++i) {
      start = std::chrono::steady_clock::now();
      if (!image.take(ddp::TensorFormat::Safetensors, ddp::model_tensors(weights), {})) return 1;
    }
    std::cout << ms_since(start) << std::endl;
    return 0;
  }
  Weights weights(megabytes);
  ddp::Progress progress;
  ddp::TrainingState state{.model = weights, .progress = &progress};
  ddp::Checkpointer checkpointer(
      {.directory = path,
       .format = format == "pt" ? ddp::TensorFormat::Pt : ddp::TensorFormat::Safetensors,
       .keep_last = 1});
  auto start = std::chrono::steady_clock::now();
  checkpointer.resume(state);
  if (what == "load") {
    std::cout << ms_since(start) << std::endl;
    return 0;
  }
  if (what == "grace") {
    ddp::StopRequests stops;
    std::cout << "ready" << std::endl;
    while (!stops.should_stop()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  double first = 0;
  if (what == "save") {
    std::this_thread::sleep_for(std::chrono::seconds(2));  // the first steps of training
    start = std::chrono::steady_clock::now();
    checkpointer.save(state);
    first = ms_since(start);
    checkpointer.wait();
  }
  ++progress.step;
  start = std::chrono::steady_clock::now();
  checkpointer.save(state);
  const double blocked = ms_since(start);
  checkpointer.wait();
  std::cout << blocked << " " << ms_since(start) << " " << first << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    return run(argv[1], argv[2], argc > 3 ? std::stoll(argv[3]) : 500, argc > 4 ? argv[4] : "");
  } catch (const std::exception& error) {
    std::cerr << "checkpoint_load: " << error.what() << std::endl;
    return 1;
  }
}
