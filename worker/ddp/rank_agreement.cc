// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/rank_agreement.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "worker/ddp/error.h"
#include "worker/ddp/text_collectives.h"

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;

// Runs a collective, and turns LibTorch's exceptions into ours, without their stack traces.
template <class Action>
auto with_plain_errors(Action action) {
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
  if (world_size_ == 1) return text;
  return with_plain_errors([&] { return ddp::broadcast_text(*group_, text, 0); });
}

std::vector<std::string> Ranks::gather_text(const std::string& text) const {
  if (world_size_ == 1) return {text};
  return with_plain_errors([&] { return ddp::gather_text(*group_, text, 0); });
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
  with_plain_errors([&] { c10d::broadcast_coalesced(group_, values, kCoalesceBytes, 0); });
}

std::vector<at::Tensor> Ranks::all_gather(const at::Tensor& tensor) const {
  if (world_size_ == 1) return {tensor};
  return with_plain_errors([&] { return ddp::all_gather(*group_, tensor); });
}

c10::intrusive_ptr<c10d::Work> Ranks::begin_maximum(at::Tensor number) const {
  if (world_size_ == 1) return {};
  return with_plain_errors([&] {
    std::vector<at::Tensor> tensors{std::move(number)};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    return group_->allreduce(tensors, options);
  });
}

std::string Ranks::first_problem(const std::string& problem) const {
  if (world_size_ == 1) return problem;
  return with_plain_errors([&] { return ddp::first_problem(*group_, problem); });
}

void Ranks::throw_first_problem(const std::string& problem) const {
  const std::string first = first_problem(problem);
  if (!first.empty()) throw DdpError(first);
}

}  // namespace ddprun::ddp
