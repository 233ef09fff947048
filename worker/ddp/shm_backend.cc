// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/shm_backend.h"

#include <ATen/core/Tensor.h>

#include <exception>

#include "worker/ddp/dense_copy.h"
#include "worker/ddp/shm_work.h"

namespace ddprun::ddp::shm {
namespace {

using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;

constexpr milliseconds kLongest = std::chrono::hours(24 * 365);

std::optional<Element> element_of(at::ScalarType type) {
  if (type == at::kFloat) return Element::Float32;
  if (type == at::kDouble) return Element::Float64;
  if (type == at::kHalf) return Element::Float16;
  if (type == at::kBFloat16) return Element::BFloat16;
  if (type == at::kChar) return Element::Int8;
  if (type == at::kByte) return Element::UInt8;
  if (type == at::kShort) return Element::Int16;
  if (type == at::kInt) return Element::Int32;
  if (type == at::kLong) return Element::Int64;
  return std::nullopt;
}

std::optional<Reduction> reduction_of(const c10d::ReduceOp& operation) {
  if (operation == c10d::ReduceOp::SUM) return Reduction::Sum;
  if (operation == c10d::ReduceOp::AVG) return Reduction::Mean;
  if (operation == c10d::ReduceOp::PRODUCT) return Reduction::Product;
  if (operation == c10d::ReduceOp::MIN) return Reduction::Min;
  if (operation == c10d::ReduceOp::MAX) return Reduction::Max;
  return std::nullopt;
}

// Whether the tensor's bytes are its values.
bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided &&
         !tensor.is_quantized() && !tensor.is_conj() && !tensor.is_neg();
}

bool is_one_plain(const Tensors& tensors) {
  return tensors.size() == 1 && is_plain(tensors[0]);
}

// Whether each of `tensors` can take what `like` holds.
bool are_like(const Tensors& tensors, const at::Tensor& like) {
  for (const at::Tensor& tensor : tensors) {
    const bool is_like = is_plain(tensor) && tensor.scalar_type() == like.scalar_type() &&
                         tensor.numel() == like.numel();
    if (!is_like) return false;
  }
  return true;
}

std::byte* bytes_in(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

// A caller who says that it waits at once spares the background a wake-up; older LibTorch does not
// say.
template <class Options>
Engine::Start start_of(const Options& options) {
  if constexpr (requires { options.asyncOp; }) {
    if (!options.asyncOp) return Engine::Start::ByWaiter;
  }
  return Engine::Start::Now;
}

// The memory to work on, in the place of tensors that are not contiguous, and what brings the
// result back into them.
class Staged {
 public:
  at::Tensor of(const at::Tensor& tensor) {
    at::Tensor dense = dense_of(tensor);
    kept.push_back(dense);
    if (!dense.is_same(tensor)) back_.emplace_back(tensor, dense);
    return dense;
  }

  std::function<void()> copy_back() {
    if (back_.empty()) return nullptr;
    return [back = back_] {
      for (const auto& [tensor, dense] : back) ddp::copy_back(dense, tensor);
    };
  }

  Tensors kept;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;
};

}  // namespace

bool reduces(at::ScalarType type) {
  return element_of(type).has_value();
}

Backend::Backend(std::unique_ptr<Channel> channel, c10::intrusive_ptr<c10d::Backend> others,
                 milliseconds timeout)
    : Forwarding(std::move(others)),
      engine_(std::make_shared<Engine>(std::move(channel))),
      timeout_(timeout) {}

Backend::~Backend() {
  if (std::uncaught_exceptions() > 0) engine_->abort();
  Engine::release(engine_);
}

void Backend::abort() {
  engine_->abort();
}

void Backend::shutdown() {
  Engine::release(engine_);
}

void Backend::setTimeout(milliseconds timeout) {
  timeout_ = timeout;
}

bool Backend::is_rank(std::int64_t root) const {
  return root >= 0 && root < size_;
}

milliseconds Backend::timeout_of(milliseconds asked) const {
  const milliseconds timeout = asked > milliseconds(0) ? asked : timeout_.load();
  return std::min(timeout, kLongest);
}

c10::intrusive_ptr<c10d::Work> Backend::allreduce(Tensors& tensors,
                                                  const c10d::AllreduceOptions& options) {
  const bool is_ours = is_one_plain(tensors);
  auto element = is_ours ? element_of(tensors[0].scalar_type()) : std::nullopt;
  auto reduction = reduction_of(options.reduceOp);
  if (!element || !reduction || !is_supported(*element, *reduction)) {
    return Forwarding::allreduce(tensors, options);
  }
  Staged staged;
  const at::Tensor dense = staged.of(tensors[0]);
  Request request{.fingerprint = {.collective = Collective::AllReduce,
                                  .element = *element,
                                  .reduction = *reduction,
                                  .bytes = dense.nbytes()},
                  .input = bytes_in(dense),
                  .output = bytes_in(dense),
                  .timeout = timeout_of(options.timeout)};
  return Work::start(c10d::OpType::ALLREDUCE, engine_, request, start_of(options), tensors,
                     staged.kept, staged.copy_back());
}

c10::intrusive_ptr<c10d::Work> Backend::reduce(Tensors& tensors,
                                               const c10d::ReduceOptions& options) {
  const bool is_ours = is_one_plain(tensors) && is_rank(options.rootRank);
  auto element = is_ours ? element_of(tensors[0].scalar_type()) : std::nullopt;
  auto reduction = reduction_of(options.reduceOp);
  if (!element || !reduction || !is_supported(*element, *reduction)) {
    return Forwarding::reduce(tensors, options);
  }
  const bool is_root = options.rootRank == rank_;
  Staged staged;
  const at::Tensor dense = staged.of(tensors[0]);
  const at::Tensor output = is_root ? dense : at::empty_like(dense);
  staged.kept.push_back(output);
  Request request{.fingerprint = {.collective = Collective::Reduce,
                                  .element = *element,
                                  .reduction = *reduction,
                                  .root = static_cast<std::int32_t>(options.rootRank),
                                  .bytes = dense.nbytes()},
                  .input = bytes_in(dense),
                  .output = bytes_in(output),
                  .timeout = timeout_of(options.timeout)};
  return Work::start(c10d::OpType::REDUCE, engine_, request, start_of(options), tensors,
                     staged.kept, is_root ? staged.copy_back() : nullptr);
}

c10::intrusive_ptr<c10d::Work> Backend::broadcast(Tensors& tensors,
                                                  const c10d::BroadcastOptions& options) {
  if (!is_one_plain(tensors) || !is_rank(options.rootRank))
    return Forwarding::broadcast(tensors, options);
  Staged staged;
  const at::Tensor dense = staged.of(tensors[0]);
  Request request{.fingerprint = {.collective = Collective::Broadcast,
                                  .root = static_cast<std::int32_t>(options.rootRank),
                                  .bytes = dense.nbytes()},
                  .input = bytes_in(dense),
                  .output = bytes_in(dense),
                  .timeout = timeout_of(options.timeout)};
  return Work::start(c10d::OpType::BROADCAST, engine_, request, start_of(options), tensors,
                     staged.kept, options.rootRank == rank_ ? nullptr : staged.copy_back());
}

c10::intrusive_ptr<c10d::Work> Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  const bool is_ours = is_one_plain(inputs) && outputs.size() == 1 &&
                       outputs[0].size() == static_cast<std::size_t>(size_) &&
                       are_like(outputs[0], inputs[0]);
  if (!is_ours) return Forwarding::allgather(outputs, inputs, options);
  const at::Tensor input = inputs[0].contiguous();
  Staged staged;
  staged.kept.push_back(input);
  Request request{.fingerprint = {.collective = Collective::AllGather, .bytes = input.nbytes()},
                  .input = bytes_in(input),
                  .timeout = timeout_of(options.timeout)};
  for (const at::Tensor& output : outputs[0]) request.parts.push_back(bytes_in(staged.of(output)));
  return Work::start(c10d::OpType::ALLGATHER, engine_, request, start_of(options), outputs[0],
                     staged.kept, staged.copy_back());
}

c10::intrusive_ptr<c10d::Work> Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const c10d::GatherOptions& options) {
  const bool is_root = options.rootRank == rank_;
  const bool has_outputs =
      is_root ? outputs.size() == 1 && outputs[0].size() == static_cast<std::size_t>(size_)
              : outputs.empty();
  const bool is_ours = is_one_plain(inputs) && is_rank(options.rootRank) && has_outputs &&
                       (!is_root || are_like(outputs[0], inputs[0]));
  if (!is_ours) return Forwarding::gather(outputs, inputs, options);
  const at::Tensor input = inputs[0].contiguous();
  Staged staged;
  staged.kept.push_back(input);
  Request request{.fingerprint = {.collective = Collective::Gather,
                                  .root = static_cast<std::int32_t>(options.rootRank),
                                  .bytes = input.nbytes()},
                  .input = bytes_in(input),
                  .timeout = timeout_of(options.timeout)};
  Tensors results = is_root ? outputs[0] : Tensors{};
  for (const at::Tensor& output : results) request.parts.push_back(bytes_in(staged.of(output)));
  return Work::start(c10d::OpType::GATHER, engine_, request, start_of(options), results,
                     staged.kept, staged.copy_back());
}

c10::intrusive_ptr<c10d::Work> Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  const bool is_ours = is_plain(output) && is_plain(input) &&
                       output.scalar_type() == input.scalar_type() &&
                       output.numel() == input.numel() * size_;
  if (!is_ours) return Forwarding::_allgather_base(output, input, options);
  const at::Tensor given = input.contiguous();
  Staged staged;
  staged.kept.push_back(given);
  std::byte* all = bytes_in(staged.of(output));
  Request request{.fingerprint = {.collective = Collective::AllGather, .bytes = given.nbytes()},
                  .input = bytes_in(given),
                  .timeout = timeout_of(options.timeout)};
  for (int rank = 0; rank < size_; ++rank) {
    request.parts.push_back(all + static_cast<std::size_t>(rank) * given.nbytes());
  }
  return Work::start(c10d::OpType::_ALLGATHER_BASE, engine_, request, start_of(options), {output},
                     staged.kept, staged.copy_back());
}

c10::intrusive_ptr<c10d::Work> Backend::barrier(const c10d::BarrierOptions& options) {
  Request request{.fingerprint = {.collective = Collective::Barrier},
                  .timeout = timeout_of(options.timeout)};
  return Work::start(c10d::OpType::BARRIER, engine_, request, start_of(options), {}, {}, nullptr);
}

}  // namespace ddprun::ddp::shm
