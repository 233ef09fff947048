// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/text_collectives.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddprun::ddp {

std::vector<at::Tensor> all_gather(c10d::ProcessGroup& group, const at::Tensor& tensor) {
  std::vector<at::Tensor> input{tensor.contiguous()};
  std::vector<std::vector<at::Tensor>> output(1);
  for (int i = 0; i < group.getSize(); ++i) output[0].push_back(at::empty_like(input[0]));
  group.allgather(output, input, waited_for<c10d::AllgatherOptions>())->wait();
  return std::move(output[0]);
}

std::string broadcast_text(c10d::ProcessGroup& group, const std::string& text, int root) {
  auto options = waited_for<c10d::BroadcastOptions>();
  options.rootRank = root;
  std::vector<at::Tensor> size{at::tensor(static_cast<std::int64_t>(text.size()), at::kLong)};
  group.broadcast(size, options)->wait();
  std::vector<at::Tensor> bytes{at::empty({size[0].item<std::int64_t>()}, at::kByte)};
  if (bytes[0].numel() == 0) return "";
  char* data = reinterpret_cast<char*>(bytes[0].data_ptr<std::uint8_t>());
  if (group.getRank() == root) text.copy(data, text.size());
  group.broadcast(bytes, options)->wait();
  return std::string(data, static_cast<std::size_t>(bytes[0].numel()));
}

std::string first_problem(c10d::ProcessGroup& group, const std::string& problem) {
  const at::Tensor flag = at::tensor(std::int64_t{problem.empty() ? 0 : 1}, at::kLong);
  std::vector<at::Tensor> flags = all_gather(group, flag);
  for (int rank = 0; rank < group.getSize(); ++rank) {
    if (flags[static_cast<std::size_t>(rank)].item<std::int64_t>() == 0) continue;
    return broadcast_text(group, problem, rank);
  }
  return "";
}

}  // namespace ddprun::ddp
