// SPDX-License-Identifier: BSD-3-Clause
//
// Uneven inputs.  Each forward begins with one small all-reduce in which every rank says whether it
// still has inputs; a rank that has none answers for every step of the others with gradients of
// zero, in the order in which c10d::Reducer sends its buckets.
#include <algorithm>
#include <string>

#include "worker/ddp/data_parallel_impl.h"
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

void throw_if_early(const ProcessGroup& group, const Joining& joining,
                    const std::vector<int>& active) {
  auto world_size = static_cast<std::size_t>(group.world_size());
  if (!joining.options.throw_on_early_end || active.size() == world_size) return;
  std::vector<int> done;
  for (int rank = 0; rank < group.world_size(); ++rank) {
    if (std::find(active.begin(), active.end(), rank) == active.end()) done.push_back(rank);
  }
  throw DdpError(format_ranks(done) + " of " + std::to_string(world_size) +
                 " ran out of inputs before " + format_ranks(active));
}

}  // namespace

int DataParallelEngine::Impl::announce_step() {
  Agreement agreement = agree(group, true, sync);
  throw_if_early(group, *joining, agreement.active);
  joining->last_active = agreement.active;
  reducer.set_active_ranks(agreement.active.size(), joining->options.divide_by_initial_world_size);
  return agreement.active.back();
}

void DataParallelEngine::Impl::shadow_step(bool is_synchronised) {
  reducer.rebuild_buckets();
  buffers.before_forward(joining->last_active.back());
  buffers.after_forward(is_synchronised);
  if (is_synchronised) reducer.reduce_zeros();
}

void DataParallelEngine::enter_join(const JoinOptions& options) {
  const DataParallelOptions& own = impl_->options;
  if (impl_->joining) throw DdpError("join() is called within another one of the same module");
  if (own.static_graph || own.lazy_bucket_allocation) {
    throw DdpError(std::string("join() and ") +
                   (own.static_graph ? "static_graph" : "lazy_bucket_allocation") +
                   " exclude each other");
  }
  if (!options.divide_by_initial_world_size &&
      (own.comm_hook || own.compression != Compression::None)) {
    throw DdpError(
        "join() without divide_by_initial_world_size excludes comm_hook and compression, which "
        "divide by the number of all ranks");
  }
  impl_->joining.emplace(Joining{.options = options, .last_active = {}});
}

void DataParallelEngine::leave_join() {
  impl_->joining.reset();
  impl_->reducer.reset_active_ranks();
}

void DataParallelEngine::finish_join() {
  for (;;) {
    Agreement agreement = agree(impl_->group, false, false);
    if (agreement.active.empty()) break;
    throw_if_early(impl_->group, *impl_->joining, agreement.active);
    impl_->joining->last_active = agreement.active;
    impl_->shadow_step(agreement.is_synchronised);
  }
  if (impl_->joining->last_active.empty()) return;  // nobody took a step
  // Whoever has joined early has missed the optimizer steps since.
  broadcast_module_states(impl_->group, *impl_->module, impl_->joining->last_active.back());
}

}  // namespace ddprun::ddp
