// SPDX-License-Identifier: BSD-3-Clause
//
// Compiles if every public option struct can be given one member and no other (AdoptOptions: its
// store and one other), also by programs that are compiled with -Wextra -Werror, where a member
// without an initialiser is an error.
#include <torch/nn/modules/linear.h>

#include "worker/ddp/ddprun.h"

namespace ddprun::ddp {

void use_option_structs(torch::nn::Linear& net, std::vector<at::Tensor> tensors) {
  using std::chrono::seconds;
  const auto use = [](const auto&...) {};
  use(ProcessGroupOptions{.backend = "gloo"}, ProcessGroupOptions{.devices = {at::kCPU}},
      ProcessGroupOptions{.timeout = seconds(1)}, ProcessGroupOptions{.name = "second"},
      ProcessGroupOptions{.check_collectives = true});
  use(SubgroupOptions{.backend = "gloo"}, SubgroupOptions{.timeout = seconds(1)});
  use(AdoptOptions{.store = nullptr}, AdoptOptions{.store = nullptr, .device = at::kCPU},
      AdoptOptions{.store = nullptr, .timeout = seconds(1)});
  use(DataParallelOptions{.device_ids = {at::kCPU}}, DataParallelOptions{.static_graph = true},
      DataParallelOptions{.ignored = {"bias"}}, DataParallelOptions{.bucket_layout = {{0}}},
      DataParallelOptions{.comm_hook = bfloat16_hook()},
      DataParallelOptions{.mixed_precision = MixedPrecision{.param_dtype = at::kHalf}},
      DataParallelOptions{.lazy_bucket_allocation = true});
  use(JoinOptions{.throw_on_early_end = true});
  use(CheckpointerOptions{.directory = "saved"}, CheckpointerOptions{.keep_last = 2},
      CheckpointerOptions{.notify = [](const std::string&) {}});
  use(ResumeOptions{.step = 1});
  use(Progress{.step = 1}, Progress{.values = {{"loss", 1}}}, Progress{.texts = {{"a", "b"}}});
  use(TrainingState{.model = *net});
  use(LoadOptions{.allow_partial = true}, LoadOptions{.name_in_file = nullptr});
  use(StateDict{.common = {{"a", tensors.at(0)}}}, StateDict{.own = {{"a", tensors.at(0)}}});
  use(PowerSgdOptions{.start_iteration = 2});
  use(PostLocalSgdOptions{.start_iteration = 2});
  use(BatchOptions{.global_batch = 8}, BatchPlan{.passes = 2});
  use(SamplerOptions{.sample_count = 8}, SamplerState{.epoch = 1}, Share{.weight = 0});
  use(worker::WorkerEnv{.rank = 1}, worker::StopReason{.words = "time"});
}

}  // namespace ddprun::ddp
