// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/replica_check.h"

#include <ATen/ATen.h>

#include <bit>
#include <cstring>

#include "worker/shm/decide/format.h"

namespace ddprun::ddp {

// Eight bytes at a time, since a parameter may have gigabytes.
std::uint64_t hash_of(const at::Tensor& tensor) {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15;
  const at::Tensor dense = tensor.detach().to(at::kCPU).contiguous();
  const auto* bytes = static_cast<const std::byte*>(dense.const_data_ptr());
  const std::size_t size = dense.nbytes();
  std::uint64_t hash = size * kFactor;
  for (std::size_t begin = 0; begin < size; begin += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + begin, std::min(sizeof word, size - begin));
    hash = std::rotl(hash ^ word, 27) * kFactor;
  }
  return hash ^ (hash >> 32);
}

void check_replicas(ProcessGroup& group, const std::vector<NamedTensor>& parameters) {
  at::Tensor hashes = at::empty({static_cast<std::int64_t>(parameters.size())}, at::kLong);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    hashes.mutable_data_ptr<std::int64_t>()[i] =
        static_cast<std::int64_t>(hash_of(parameters[i].tensor));
  }
  const std::vector<at::Tensor> all = group.all_gather(hashes);
  std::size_t count = 0;
  std::string first;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<int> ranks;
    for (int rank = 1; rank < group.world_size(); ++rank) {
      const at::Tensor& theirs = all[static_cast<std::size_t>(rank)];
      if (theirs.const_data_ptr<std::int64_t>()[i] != all[0].const_data_ptr<std::int64_t>()[i]) {
        ranks.push_back(rank);
      }
    }
    if (!ranks.empty() && ++count == 1) {
      first = parameters[i].name + " on " + format_ranks(ranks) + " is not that of rank 0";
    }
  }
  if (count == 0) return;
  throw DdpError("the replicas have drifted apart: " + first + " (" + std::to_string(count) +
                 " of " + std::to_string(parameters.size()) +
                 " parameters differ); every rank must change its parameters alike");
}

void ReplicaCheck::before_forward() {
  if (every_ <= 0 || ++forwards_ % every_ != 0) return;
  check_replicas(group_, module_.parameters());
}

}  // namespace ddprun::ddp
