// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/ranks.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kCoalesceBytes = std::size_t{250} << 20;  // as Python's DDP sends its state

// Runs a collective, and turns LibTorch's exceptions into ours, without their stack traces.
template <class Action>
auto explained(Action action) {
  try {
    return action();
  } catch (const c10::Error& error) {
    throw DdpError(std::string("checkpoint: ") + error.what_without_backtrace());
  } catch (const DdpError&) {
    throw;
  } catch (const std::exception& error) {
    throw DdpError(std::string("checkpoint: ") + error.what());
  }
}

}  // namespace

Ranks::Ranks(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {
  if (!group_) return;
  rank_ = group_->getRank();
  world_size_ = group_->getSize();
}

Ranks::~Ranks() = default;
Ranks::Ranks(const Ranks&) = default;
Ranks& Ranks::operator=(const Ranks&) = default;

std::string Ranks::broadcast_text(const std::string& text) const {
  return broadcast_text(text, 0);
}

std::string Ranks::broadcast_text(const std::string& text, int root) const {
  if (world_size_ == 1) return text;
  return explained([&] {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> size{at::tensor(static_cast<std::int64_t>(text.size()), at::kLong)};
    group_->broadcast(size, options)->wait();
    std::vector<at::Tensor> bytes{at::empty({size[0].item<std::int64_t>()}, at::kByte)};
    if (bytes[0].numel() == 0) return std::string();
    char* data = reinterpret_cast<char*>(bytes[0].data_ptr<std::uint8_t>());
    if (rank_ == root) text.copy(data, text.size());
    group_->broadcast(bytes, options)->wait();
    return std::string(data, static_cast<std::size_t>(bytes[0].numel()));
  });
}

void Ranks::broadcast(std::map<std::string, at::Tensor>& tensors) const {
  if (world_size_ == 1) return;
  Json mine = Json::array();
  if (rank_ == 0) {
    for (const auto& [name, tensor] : tensors) {
      mine.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
    }
  }
  std::vector<at::Tensor> values;
  for (const Json& entry : Json::parse(broadcast_text(mine.dump()))) {
    auto name = entry[0].get<std::string>();
    if (rank_ != 0) {
      tensors[name] = at::empty(entry[2].get<std::vector<std::int64_t>>(),
                                static_cast<at::ScalarType>(entry[1].get<int>()));
    }
    values.push_back(tensors[name]);
  }
  if (values.empty()) return;
  explained([&] { c10d::broadcast_coalesced(group_, values, kCoalesceBytes, 0); });
}

std::vector<at::Tensor> Ranks::all_gather(const at::Tensor& tensor) const {
  if (world_size_ == 1) return {tensor};
  return explained([&] {
    std::vector<at::Tensor> input{tensor.contiguous()};
    std::vector<std::vector<at::Tensor>> output(1);
    for (int i = 0; i < world_size_; ++i) output[0].push_back(at::empty_like(input[0]));
    group_->allgather(output, input)->wait();
    return std::move(output[0]);
  });
}

c10::intrusive_ptr<c10d::Work> Ranks::begin_maximum(at::Tensor number) const {
  if (world_size_ == 1) return {};
  return explained([&] {
    std::vector<at::Tensor> tensors{std::move(number)};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    return group_->allreduce(tensors, options);
  });
}

void Ranks::throw_first_problem(const std::string& problem) const {
  std::vector<at::Tensor> flags =
      all_gather(at::tensor(std::int64_t{problem.empty() ? 0 : 1}, at::kLong));
  for (int rank = 0; rank < world_size_; ++rank) {
    if (flags[static_cast<std::size_t>(rank)].item<std::int64_t>() == 0) continue;
    throw DdpError(broadcast_text(problem, rank));
  }
}

}  // namespace ddprun::ddp
