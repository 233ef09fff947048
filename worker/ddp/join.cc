// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/join.h"

#include <algorithm>
#include <string>

#include "worker/ddp/module_states.h"
#include "worker/shm/decide/format.h"

namespace ddprun::ddp {
namespace {

struct Agreement {
  std::vector<int> active;  // ranks that take the step
  bool is_synchronised = false;
};

// Every rank calls this once for each step of the ranks that have inputs left.
Agreement agree(ProcessGroup& group, bool is_active, bool is_synchronised) {
  const std::int64_t world_size = group.world_size();
  at::Tensor votes = at::zeros({world_size + 1}, at::kLong);
  votes[group.rank()].fill_(is_active ? 1 : 0);
  votes[world_size].fill_(is_synchronised ? 1 : 0);
  group.all_reduce(votes);
  Agreement agreement;
  const std::int64_t* counts = votes.const_data_ptr<std::int64_t>();
  for (int rank = 0; rank < world_size; ++rank) {
    if (counts[rank] > 0) agreement.active.push_back(rank);
  }
  agreement.is_synchronised = counts[world_size] > 0;
  return agreement;
}

}  // namespace

void check_join(const DataParallelOptions& own, const JoinOptions& options) {
  if (own.lazy_bucket_allocation) {
    throw DdpError("join() and lazy_bucket_allocation exclude each other");
  }
  if (!options.divide_by_initial_world_size &&
      (own.comm_hook || own.compression != Compression::None)) {
    throw DdpError(
        "join() without divide_by_initial_world_size excludes comm_hook and compression, which "
        "divide by the number of all ranks");
  }
}

Join::Join(ProcessGroup group, SyncedModule module, GradientReducer& reducer, BufferSync& buffers,
           const JoinOptions& options)
    : group_(std::move(group)),
      module_(std::move(module)),
      reducer_(reducer),
      buffers_(buffers),
      options_(options) {}

Join::~Join() {
  reducer_.reset_active_ranks();
}

void Join::check_early_end(const std::vector<int>& active, bool is_synchronised) const {
  std::vector<int> done;
  for (int rank = 0; rank < group_.world_size(); ++rank) {
    if (std::find(active.begin(), active.end(), rank) == active.end()) done.push_back(rank);
  }
  if (done.empty()) return;
  if (options_.throw_on_early_end) {
    throw DdpError(format_ranks(done) + " of " + std::to_string(group_.world_size()) +
                   " ran out of inputs before " + format_ranks(active));
  }
  if (is_synchronised && reducer_.awaits_first_step()) {
    throw DdpError(
        "the first step of a static graph, which every rank learns, needs inputs on all: " +
        format_ranks(done) + " of " + std::to_string(group_.world_size()) +
        " had none in this join()");
  }
}

int Join::announce_step(bool is_synchronised) {
  Agreement agreement = agree(group_, true, is_synchronised);
  check_early_end(agreement.active, agreement.is_synchronised);
  last_active_ = agreement.active;
  reducer_.set_active_ranks(agreement.active.size(), options_.divide_by_initial_world_size);
  return agreement.active.back();
}

void Join::shadow_step(bool is_synchronised) {
  reducer_.rebuild_buckets();
  buffers_.before_forward(last_active_.back());
  buffers_.after_forward(is_synchronised);
  if (is_synchronised) reducer_.reduce_zeros();
}

void Join::finish() {
  for (;;) {
    Agreement agreement = agree(group_, false, false);
    if (agreement.active.empty()) break;
    check_early_end(agreement.active, agreement.is_synchronised);
    last_active_ = agreement.active;
    shadow_step(agreement.is_synchronised);
  }
  if (last_active_.empty()) return;  // no rank took a step
  // A rank that has joined early has missed the optimizer steps since.
  broadcast_module_states(group_, module_, last_active_.back());
}

}  // namespace ddprun::ddp
