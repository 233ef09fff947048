// SPDX-License-Identifier: BSD-3-Clause
//
// One rank of dying_ranks_test.py: rank 1 ends, or aborts the group, in the middle of something,
// and the others say what they hear of it.
//
//   dying_ranks shm|gloo all_reduce|broadcast|backward|waiting|abort
//
// Exit code 3: this rank has had a DdpError, and has written it.
#include <signal.h>
#include <sys/syscall.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "worker/ddp/data_parallel.h"

namespace {

namespace ddp = ddprun::ddp;

constexpr std::int64_t kManyChunks = std::int64_t{16} << 20;  // 64 MiB, 256 chunks
constexpr int kVictim = 1;

void die() {
  ::kill(::getpid(), SIGKILL);
}

// Calls `action` on a thread of its own as soon as `condition` holds, unless the program ends
// first.
void when(std::function<bool()> condition, std::function<void()> action) {
  std::thread([condition = std::move(condition), action = std::move(action)] {
    while (!condition()) std::this_thread::yield();
    action();
  }).detach();
}

// Whether the thread sleeps, as the kernel tells it.
bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string pid, name, state;
  file >> pid >> name >> state;
  return state == "S";
}

// Sums, or sends from rank 0, over and over, and calls `action` on the victim once the first
// elements of its result are there, and the last are not.
void lose_in_the_middle(ddp::ProcessGroup group, bool is_sum, const std::function<void()>& action) {
  torch::Tensor tensor = torch::full({kManyChunks}, group.rank() + 1.0F);
  const volatile float* first = tensor.data_ptr<float>();
  if (group.rank() == kVictim) when([first] { return *first != kVictim + 1.0F; }, action);
  while (true) is_sum ? group.all_reduce(tensor) : group.broadcast(tensor);
}

// In the third step the victim ends between the reductions of two layers.
void lose_in_backward(ddp::ProcessGroup group) {
  torch::manual_seed(1);
  torch::nn::Linear first(512, 512), last(512, 512);
  torch::nn::Sequential net(first, last);
  ddp::DistributedDataParallel<torch::nn::Sequential> model(net, group,
                                                            {.bucket_cap_bytes = 1 << 20});
  for (int step = 0;; ++step) {
    torch::Tensor result = model(torch::randn({8, 512}));
    if (step == 2 && group.rank() == kVictim) {
      first->weight.register_hook([](const torch::Tensor&) { die(); });
    }
    model.zero_grad();
    result.sum().backward();
  }
}

// The victim ends while it and rank 0 wait for rank 2, which comes when rank 0 has given up.
void lose_while_waiting(ddp::ProcessGroup group) {
  constexpr auto kLimit = std::chrono::minutes(1);
  torch::Tensor tensor = torch::ones({10});
  group.all_reduce(tensor);
  if (group.rank() == 2) {
    group.store()->wait({"given_up"}, kLimit);
    try {
      group.all_reduce(tensor);
    } catch (const ddp::DdpError&) {
      group.store()->set("heard", "");
      throw;
    }
    return;
  }
  if (group.rank() == kVictim) {
    when([thread = static_cast<pid_t>(::syscall(SYS_gettid))] { return is_asleep(thread); }, die);
  }
  try {
    group.all_reduce(tensor);
  } catch (const ddp::DdpError&) {
    group.store()->set("given_up", "");
    group.store()->wait({"heard"}, kLimit);  // the store is rank 0's
    throw;
  }
}

void run(const std::string& backend, const std::string& what) {
  // Far longer than the test waits: nobody hears of an end by the time-out.
  ddp::ProcessGroup group =
      ddp::init_process_group({.backend = backend, .timeout = std::chrono::minutes(20)});
  if (what == "all_reduce") return lose_in_the_middle(group, true, die);
  if (what == "broadcast") return lose_in_the_middle(group, false, die);
  if (what == "abort") {
    return lose_in_the_middle(group, true, [group]() mutable { group.abort(); });
  }
  if (what == "backward") return lose_in_backward(group);
  if (what == "waiting") return lose_while_waiting(group);
  throw std::invalid_argument("there is no case '" + what + "'");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    run(argv[1], argv[2]);
    return 0;
  } catch (const ddp::DdpError& error) {
    std::cerr << error.what() << std::endl;
    return 3;
  } catch (const std::exception& error) {
    std::cerr << "dying_ranks: " << error.what() << std::endl;
    return 1;
  }
}
