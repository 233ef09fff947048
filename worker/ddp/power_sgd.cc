// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/power_sgd.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <vector>

#include "store/base/number.h"
#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace power_sgd {

// The seeds of the random Qs: those of numpy.random.RandomState(seed).randint(1'000'000'000), which
// Python's hook draws.
class SeedStream {
 public:
  explicit SeedStream(std::uint32_t seed) : engine_(seed) {}
  std::uint64_t next() {
    for (;;) {
      const std::uint64_t draw = engine_() & ((1U << 30) - 1);
      if (draw < 1'000'000'000) return draw;
    }
  }

  // Where the stream is, as bytes.
  at::Tensor position() const {
    std::ostringstream text;
    text << engine_;
    const std::string bytes = text.str();
    at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    return tensor;
  }
  // False for what is no position.
  bool go_to(const at::Tensor& position) {
    if (position.scalar_type() != at::kByte || !position.is_contiguous()) return false;
    std::istringstream text(
        std::string(static_cast<const char*>(position.const_data_ptr()), position.nbytes()));
    return static_cast<bool>(text >> engine_);
  }

 private:
  std::mt19937 engine_;
};

// What is kept of a bucket from step to step.
struct Bucket {
  std::vector<std::int64_t> sizes;  // of its gradients
  const void* first = nullptr;      // of its parameters, in this process
  at::Tensor error;
  at::Tensor all_p;
  at::Tensor all_q;
};

}  // namespace power_sgd

// What is kept from step to step.  The hooks of the buckets use it, one after the other; what comes
// later, on other threads, has its own bucket.
struct PowerSgdMemory {
  PowerSgdOptions options;
  power_sgd::SeedStream seeds{options.random_seed};
  std::int64_t iteration = 0;
  std::map<std::size_t, std::shared_ptr<power_sgd::Bucket>> buckets{};  // by their index
};

namespace {

using power_sgd::Bucket;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// Matrices of one shape, [count, rows, columns], and their factors.
struct Matrices {
  at::Tensor values;
  std::vector<at::Tensor> copied_from{};  // gradients to which the values are to be copied back
  at::Tensor p{};
  at::Tensor q{};

  std::int64_t columns_of_factors(std::int64_t wanted) const {
    return std::min({wanted, values.size(1), values.size(2)});
  }
};

// One bucket on its way.
struct Passage {
  PowerSgdOptions options;
  std::shared_ptr<Bucket> kept;
  ProcessGroup group;
  at::Tensor buffer;
  at::Tensor before{};               // a copy of the buffer; with use_error_feedback
  std::vector<at::Tensor> as_are{};  // gradients that are not compressed
  at::Tensor flat_as_are{};
  std::vector<Matrices> compressed{};
};

c10::intrusive_ptr<c10d::Work> begin_sum(ProcessGroup& group, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  return group.c10d()->allreduce(tensors);
}

// Gram and Schmidt's way.
void orthogonalize_by_columns(at::Tensor& matrices, double epsilon) {
  const std::int64_t columns = matrices.size(2);
  for (std::int64_t i = 0; i < columns; ++i) {
    at::Tensor column = matrices.narrow(2, i, 1);
    at::Tensor norm = at::linalg_vector_norm(column, 2, at::IntArrayRef{1}, /*keepdim=*/true);
    norm.add_(epsilon);
    column.div_(norm.masked_fill_(norm == 0, 1));
    if (i + 1 == columns) break;
    at::Tensor rest = matrices.narrow(2, i + 1, columns - i - 1);
    rest.sub_((column * rest).sum(1, /*keepdim=*/true) * column);
  }
}

void orthogonalize(at::Tensor& matrices, double epsilon) {
  const bool is_half =
      matrices.scalar_type() == at::kHalf || matrices.scalar_type() == at::kBFloat16;
  if (matrices.size(2) <= 2 || is_half) {
    orthogonalize_by_columns(matrices, epsilon);
  } else {
    matrices.copy_(std::get<0>(at::linalg_qr(matrices)));
  }
}

// `gradient` as a matrix; a copy where its memory has another order.
Matrices as_matrix(const at::Tensor& gradient) {
  at::Tensor matrix = gradient.reshape({1, gradient.size(0), -1});
  Matrices result{.values = matrix};
  if (!matrix.is_alias_of(gradient)) result.copied_from = {gradient};
  return result;
}

bool is_worth_it(const at::Tensor& gradient, const PowerSgdOptions& options) {
  if (gradient.dim() == 0 || gradient.numel() == 0) return false;
  const std::int64_t rows = gradient.size(0);
  const std::int64_t columns = gradient.numel() / rows;
  const std::int64_t rank = std::min({rows, columns, options.matrix_approximation_rank});
  return static_cast<double>((rows + columns) * rank) * options.min_compression_rate <
         static_cast<double>(rows * columns);
}

// Those of one shape together, in the order in which the shapes appear.
std::vector<Matrices> by_shape(const std::vector<at::Tensor>& gradients, bool as_one) {
  std::vector<std::vector<at::Tensor>> shapes;
  for (const at::Tensor& gradient : gradients) {
    auto same = std::find_if(shapes.begin(), shapes.end(), [&](const auto& others) {
      return others[0].size(0) == gradient.size(0) && others[0].numel() == gradient.numel();
    });
    if (same == shapes.end()) {
      shapes.push_back({gradient});
    } else {
      same->push_back(gradient);
    }
  }
  std::vector<Matrices> result;
  for (const std::vector<at::Tensor>& shape : shapes) {
    if (!as_one || shape.size() == 1) {
      for (const at::Tensor& gradient : shape) result.push_back(as_matrix(gradient));
      continue;
    }
    std::vector<at::Tensor> all;
    for (const at::Tensor& gradient : shape) all.push_back(as_matrix(gradient).values);
    result.push_back({.values = at::cat(all), .copied_from = shape});
  }
  return result;
}

void divide(Passage& passage, const std::vector<at::Tensor>& gradients) {
  const PowerSgdOptions& options = passage.options;
  std::vector<at::Tensor> worth_it;
  std::vector<at::Tensor> flat{at::empty({0}, passage.buffer.options())};
  for (const at::Tensor& gradient : gradients) {
    if (is_worth_it(gradient, options)) {
      worth_it.push_back(gradient);
    } else {
      passage.as_are.push_back(gradient);
      flat.push_back(gradient.reshape(-1));
    }
  }
  passage.flat_as_are = at::cat(flat);
  passage.compressed = by_shape(worth_it, options.batch_tensors_with_same_shape);
}

// Lays the factors into the memory that is sent at once; true if there are no earlier Qs in it.
bool place_factors(Passage& passage) {
  Bucket& kept = *passage.kept;
  std::int64_t p_size = 0;
  std::int64_t q_size = 0;
  for (const Matrices& item : passage.compressed) {
    const std::int64_t rank = item.columns_of_factors(passage.options.matrix_approximation_rank);
    p_size += item.values.size(0) * item.values.size(1) * rank;
    q_size += item.values.size(0) * item.values.size(2) * rank;
  }
  const bool is_new = !passage.options.warm_start || !kept.all_q.defined();
  if (is_new) kept.all_q = at::empty({q_size}, passage.buffer.options());
  if (is_new || !kept.all_p.defined()) {
    kept.all_p = at::empty({p_size}, passage.buffer.options());
  }
  if (kept.all_q.numel() != q_size) {
    throw DdpError(
        "power_sgd_hook: the state that was loaded is of another matrix_approximation_rank or "
        "min_compression_rate");
  }
  std::int64_t p_begin = 0;
  std::int64_t q_begin = 0;
  for (Matrices& item : passage.compressed) {
    const std::int64_t count = item.values.size(0);
    const std::int64_t rank = item.columns_of_factors(passage.options.matrix_approximation_rank);
    const std::int64_t p_length = count * item.values.size(1) * rank;
    const std::int64_t q_length = count * item.values.size(2) * rank;
    item.p = kept.all_p.narrow(0, p_begin, p_length).view({count, -1, rank});
    item.q = kept.all_q.narrow(0, q_begin, q_length).view({count, -1, rank});
    p_begin += p_length;
    q_begin += q_length;
  }
  return is_new;
}

// `generator` makes new ones; without one they are those of the step before.
void begin_qs(Passage& passage, const std::optional<at::Generator>& generator) {
  for (Matrices& item : passage.compressed) {
    if (generator) {
      item.q.copy_(at::randn(item.q.sizes(), generator, item.q.options().device(at::kCPU)));
    }
    orthogonalize(item.q, passage.options.orthogonalization_epsilon);
  }
}

void compute_ps(Passage& passage) {
  for (Matrices& item : passage.compressed) at::bmm_out(item.p, item.values, item.q);
}

void compute_qs(Passage& passage) {
  for (Matrices& item : passage.compressed) {
    orthogonalize(item.p, passage.options.orthogonalization_epsilon);
    at::bmm_out(item.q, item.values.transpose(1, 2), item.p);
  }
}

void take_over_as_are(Passage& passage) {
  passage.flat_as_are.div_(passage.group.world_size());
  std::int64_t begin = 0;
  for (at::Tensor& gradient : passage.as_are) {
    gradient.copy_(passage.flat_as_are.narrow(0, begin, gradient.numel()).view(gradient.sizes()));
    begin += gradient.numel();
  }
}

void decompress(Passage& passage) {
  passage.kept->all_q.div_(passage.group.world_size());
  for (Matrices& item : passage.compressed) {
    at::bmm_out(item.values, item.p, item.q.transpose(1, 2));
    for (std::size_t i = 0; i < item.copied_from.size(); ++i) {
      const at::Tensor& gradient = item.copied_from[i];
      gradient.copy_(item.values[static_cast<std::int64_t>(i)].view(gradient.sizes()));
    }
  }
}

// What is kept is used on another stream in the next step.
void wait_for_device(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return;
  const c10::impl::VirtualGuardImpl device(tensor.device().type());
  device.synchronizeStream(device.getStream(tensor.device()));
}

at::Tensor finish(Passage& passage) {
  decompress(passage);
  if (passage.options.use_error_feedback) passage.kept->error = passage.before - passage.buffer;
  wait_for_device(passage.buffer);
  return passage.buffer;
}

// Else each step begins anew, and the buckets may change between two.
bool keeps_anything(const PowerSgdOptions& options) {
  return options.use_error_feedback || options.warm_start;
}

// Throws DdpError if what is `kept` is of other gradients than those of the bucket; brings what was
// loaded to their device.
void settle(Bucket& kept, const c10d::GradBucket& bucket, const at::Tensor& buffer) {
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& gradient : bucket.getGradients()) sizes.push_back(gradient.numel());
  if (kept.sizes.empty()) kept.sizes = sizes;
  if (kept.sizes != sizes) {
    throw DdpError(
        "power_sgd_hook: bucket " + std::to_string(bucket.getIndex()) +
        " has other gradients than in the step before or in the checkpoint: save bucket_layout() "
        "with the state (TrainingState::buckets), and give it to the DistributedDataParallel that "
        "goes on from it");
  }
  const void* first = bucket.getParameters().at(0).unsafeGetTensorImpl();
  if (kept.first == nullptr) kept.first = first;
  if (kept.first != first) {
    throw DdpError(
        "power_sgd_hook: two DistributedDataParallel have hooks of one PowerSgdState, which would "
        "add up the errors of one to the gradients of the other: give each a state of its own");
  }
  if (kept.error.defined()) kept.error = kept.error.to(buffer.options());
  if (kept.all_q.defined()) kept.all_q = kept.all_q.to(buffer.options());
}

std::shared_ptr<Passage> begin(PowerSgdMemory& state, ProcessGroup& group,
                               c10d::GradBucket& bucket) {
  std::shared_ptr<Bucket>& kept = state.buckets[bucket.getIndex()];
  if (!kept || !keeps_anything(state.options)) kept = std::make_shared<Bucket>();
  settle(*kept, bucket, bucket.getBuffer());
  auto passage = std::make_shared<Passage>(Passage{
      .options = state.options, .kept = kept, .group = group, .buffer = bucket.getBuffer()});
  if (state.options.use_error_feedback) {
    if (kept->error.defined()) passage->buffer.add_(kept->error);
    passage->before = passage->buffer.clone();
  }
  divide(*passage, bucket.getGradients());
  std::optional<at::Generator> generator;
  if (place_factors(*passage)) {
    generator = at::make_generator<at::CPUGeneratorImpl>(state.seeds.next());
  }
  begin_qs(*passage, generator);
  compute_ps(*passage);
  return passage;
}

// The gradients that stay as they are, then the Ps, then the Qs: one all-reduce each.  All begin
// here, in the thread of the backward pass, which waits for the Ps: begun in a callback, the Qs
// would come before the next bucket on one rank and after it on another.
FuturePtr reduce(const std::shared_ptr<Passage>& passage) {
  auto as_are = begin_sum(passage->group, passage->flat_as_are);
  auto ps = begin_sum(passage->group, passage->kept->all_p);
  as_are->wait();
  take_over_as_are(*passage);
  ps->wait();
  compute_qs(*passage);
  return begin_sum(passage->group, passage->kept->all_q)
      ->getFuture()
      ->then(
          [passage](c10::ivalue::Future& future) {
            future.value();  // throws what went wrong
            const at::NoGradGuard no_grad;
            return c10::IValue(finish(*passage));
          },
          c10::TensorType::get());
}

void check(const PowerSgdOptions& options) {
  auto refuse = [](const std::string& name, const std::string& value, const std::string& wanted) {
    throw DdpError("power_sgd_hook: " + name + " " + value + " is not " + wanted);
  };
  if (options.matrix_approximation_rank < 1) {
    refuse("matrix_approximation_rank", std::to_string(options.matrix_approximation_rank),
           "1 or more");
  }
  if (!(options.min_compression_rate > 0)) {  // or is no number
    refuse("min_compression_rate", std::to_string(options.min_compression_rate), "above 0");
  }
  if (!(options.orthogonalization_epsilon >= 0)) {
    refuse("orthogonalization_epsilon", std::to_string(options.orthogonalization_epsilon),
           "0 or more");
  }
  const bool keeps = keeps_anything(options);
  if (options.start_iteration < (keeps ? 2 : 0)) {
    refuse("start_iteration", std::to_string(options.start_iteration),
           keeps ? "2 or more, which use_error_feedback and warm_start need" : "0 or more");
  }
}

// Parts of the state, followed by the number of the bucket.
constexpr char kSizes[] = "sizes";
constexpr char kQ[] = "q";
constexpr char kError[] = "error";

DdpError none_of_this() {
  return DdpError("power_sgd_hook: what was saved is no state of it");
}

}  // namespace

PowerSgdState::PowerSgdState(const PowerSgdOptions& options) {
  check(options);
  memory_ = std::make_shared<PowerSgdMemory>(PowerSgdMemory{.options = options});
}

PowerSgdState::~PowerSgdState() = default;

CommHook PowerSgdState::hook() const {
  return [memory = memory_](ProcessGroup& group, c10d::GradBucket& bucket) {
    const at::NoGradGuard no_grad;
    const bool is_early = memory->iteration < memory->options.start_iteration;
    if (bucket.isLast()) ++memory->iteration;
    return is_early ? mean_of(group, bucket.getBuffer()) : reduce(begin(*memory, group, bucket));
  };
}

StateDict PowerSgdState::state_dict() const {
  StateDict state;
  state.common["iteration"] = at::scalar_tensor(memory_->iteration, at::kLong);
  state.common["seeds"] = memory_->seeds.position();
  for (const auto& [index, kept] : memory_->buckets) {
    const std::string number = std::to_string(index);
    state.common[kSizes + number] = at::tensor(kept->sizes, at::kLong);
    if (memory_->options.warm_start) state.common[kQ + number] = kept->all_q;
    if (memory_->options.use_error_feedback) state.own[kError + number] = kept->error;
  }
  return state;
}

void PowerSgdState::load_state_dict(const StateDict& state) {
  PowerSgdMemory loaded{.options = memory_->options};
  const auto iteration = state.common.find("iteration");
  const auto seeds = state.common.find("seeds");
  if (iteration == state.common.end() || iteration->second.numel() != 1 ||
      seeds == state.common.end() || !loaded.seeds.go_to(seeds->second)) {
    throw none_of_this();
  }
  loaded.iteration = iteration->second.item<std::int64_t>();
  for (const auto& [name, sizes] : state.common) {
    if (!name.starts_with(kSizes)) continue;
    const std::string number = name.substr(std::strlen(kSizes));
    const std::optional<std::size_t> index = ddprun::number_in<std::size_t>(number);
    if (!index || sizes.scalar_type() != at::kLong || sizes.dim() != 1) throw none_of_this();
    auto kept = std::make_shared<Bucket>();
    kept->sizes.assign(sizes.const_data_ptr<std::int64_t>(),
                       sizes.const_data_ptr<std::int64_t>() + sizes.numel());
    const auto q = state.common.find(kQ + number);
    if (q != state.common.end() && loaded.options.warm_start) kept->all_q = q->second;
    const auto error = state.own.find(kError + number);
    if (error != state.own.end() && loaded.options.use_error_feedback) kept->error = error->second;
    loaded.buckets[*index] = std::move(kept);
  }
  *memory_ = std::move(loaded);
}

CommHook power_sgd_hook(const PowerSgdOptions& options) {
  return PowerSgdState(options).hook();
}

}  // namespace ddprun::ddp
