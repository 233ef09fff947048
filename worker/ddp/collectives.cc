// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/collectives.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <functional>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "worker/ddp/dense_copy.h"
#include "worker/ddp/error.h"
#include "worker/ddp/shm_backend.h"

namespace ddprun::ddp {
namespace {

using Tensors = std::vector<at::Tensor>;

// `options` that say whether the caller waits at once; older LibTorch has no such option.
template <class Options>
Options options_for(Caller caller) {
  Options options;
  if constexpr (requires { options.asyncOp; }) options.asyncOp = caller == Caller::GoesOn;
  return options;
}

void check_rank(const c10d::ProcessGroup& group, const char* what, int rank) {
  if (rank >= 0 && rank < group.getSize()) return;
  throw DdpError(std::string(what) + " " + std::to_string(rank) + " is not one of the " +
                 std::to_string(group.getSize()) + " ranks of this group, which begin at 0");
}

void check_peer(const c10d::ProcessGroup& group, const char* what, int rank) {
  check_rank(group, what, rank);
  if (rank == group.getRank()) {
    throw DdpError(std::string(what) + " " + std::to_string(rank) + " is this rank itself");
  }
}

void check_defined(const at::Tensor& tensor) {
  if (!tensor.defined()) throw DdpError("the tensor is undefined");
  if (tensor.is_quantized()) throw DdpError("a quantized tensor cannot be sent: dequantize() it");
}

// What is moved as bytes.
void check_movable(const at::Tensor& tensor) {
  check_defined(tensor);
  if (tensor.layout() == at::kStrided) return;
  throw DdpError(c10::str("a tensor of the layout ", tensor.layout(),
                          " has no bytes to send: to_dense() it, or all_reduce it"));
}

std::string in_words(const at::Tensor& tensor) {
  return c10::str(tensor.scalar_type(), " ", tensor.sizes());
}

// One for each rank, and each like `like`.
void check_inputs(const c10d::ProcessGroup& group, const Tensors& inputs, const at::Tensor& like) {
  const auto world_size = static_cast<std::size_t>(group.getSize());
  if (inputs.size() != world_size) {
    throw DdpError("there are " + std::to_string(inputs.size()) + " tensors for " +
                   std::to_string(world_size) + " ranks");
  }
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    check_movable(inputs[rank]);
    if (inputs[rank].scalar_type() == like.scalar_type() && inputs[rank].sizes() == like.sizes()) {
      continue;
    }
    throw DdpError("the tensor for rank " + std::to_string(rank) + " is " + in_words(inputs[rank]) +
                   ", and the output is " + in_words(like));
  }
}

bool goes_over_shm(c10d::ProcessGroup& group, const at::Tensor& tensor) {
  return tensor.is_cpu() && group.getBackend(c10::DeviceType::CPU)->getBackendName() == "shm";
}

bool has_own_mean(c10d::ProcessGroup& group, const at::Tensor& tensor) {
  return !tensor.is_cpu() || (goes_over_shm(group, tensor) && tensor.is_floating_point());
}

c10d::ReduceOp native(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::Mean:
      return c10d::ReduceOp::AVG;
    case ReduceOp::Product:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::Min:
      return c10d::ReduceOp::MIN;
    case ReduceOp::Max:
      return c10d::ReduceOp::MAX;
  }
  return c10d::ReduceOp::SUM;
}

// How the transport reduces, and by what the result is divided after it, or 1.
struct Reduction {
  c10d::ReduceOp op;
  int divisor = 1;
};

Reduction reduction_for(c10d::ProcessGroup& group, const at::Tensor& tensor, ReduceOp op) {
  if (op == ReduceOp::Mean && !tensor.is_floating_point() && !tensor.is_complex()) {
    throw DdpError(c10::str("the mean of ", tensor.scalar_type(),
                            " tensors would be rounded: "
                            "take the sum"));
  }
  if (tensor.is_complex() && (op == ReduceOp::Min || op == ReduceOp::Max)) {
    throw DdpError("complex numbers have no order: there is no minimum or maximum of them");
  }
  if (tensor.is_complex() && op == ReduceOp::Product)
    throw DdpError("no transport multiplies complex numbers");
  if (op != ReduceOp::Mean || has_own_mean(group, tensor)) return {native(op)};
  return {c10d::ReduceOp::SUM, group.getSize()};
}

void divide(at::Tensor tensor, int divisor) {
  if (divisor == 1) return;
  at::NoGradGuard no_grad;
  std::optional<c10::InferenceMode> mode;  // outside it such a tensor cannot be written
  if (tensor.is_inference()) mode.emplace();
  tensor.div_(divisor);
}

// The values of a tensor as bytes in row-major order: every transport moves bytes.  Shares memory
// with `dense`.
at::Tensor bytes_of(const at::Tensor& dense) {
  // Not reshape(), which keeps the stride of a single element.
  return dense.detach().as_strided({dense.numel()}, {1}).view(at::kByte);
}

// A row-major copy of `tensor`, or itself, whose memory holds its values.
at::Tensor values_of(const at::Tensor& tensor) {
  return dense_of(tensor.detach());
}

// A tensor that a collective fills: the memory to fill, and the way back from it.
struct Filled {
  explicit Filled(const at::Tensor& given) : tensor(given), dense(dense_for(given)) {}
  void finish() const {
    if (!dense.is_same(tensor)) copy_back(dense, tensor);
  }

  at::Tensor tensor;
  at::Tensor dense;

 private:
  static at::Tensor dense_for(const at::Tensor& given) {
    const bool is_plain = given.is_contiguous() && !given.is_conj() && !given.is_neg();
    return is_plain ? given : at::empty(given.sizes(), given.options());
  }
};

// Templates, so that LibTorch compiles them before and after it renamed these two (2.15).
template <class Group>
c10::intrusive_ptr<c10d::Work> reduce_scatter_of(Group& group, at::Tensor& output,
                                                 at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& options) {
  if constexpr (requires { group.reduce_scatter_single(output, input, options); }) {
    return group.reduce_scatter_single(output, input, options);
  } else {
    return group._reduce_scatter_base(output, input, options);
  }
}
template <class Group, class Sizes>
c10::intrusive_ptr<c10d::Work> all_to_all_of(Group& group, at::Tensor& output, at::Tensor& input,
                                             Sizes& output_sizes, Sizes& input_sizes,
                                             const c10d::AllToAllOptions& options) {
  if constexpr (requires {
                  group.all_to_all_single(output, input, output_sizes, input_sizes, options);
                }) {
    return group.all_to_all_single(output, input, output_sizes, input_sizes, options);
  } else {
    return group.alltoall_base(output, input, output_sizes, input_sizes, options);
  }
}

// What is done with a reduced tensor once it is there.
std::function<void()> finish_of(const at::Tensor& reduced, const at::Tensor& into, int divisor) {
  return [reduced, into, divisor] {
    divide(reduced, divisor);
    copy_back(reduced, into);
  };
}

// A tensor like `given` for each rank of the group, and the bytes of each for it to fill.
std::pair<Tensors, Tensors> tensors_and_bytes(const c10d::ProcessGroup& group,
                                              const at::Tensor& given) {
  std::pair<Tensors, Tensors> made;
  for (int rank = 0; rank < group.getSize(); ++rank) {
    made.first.push_back(at::empty(given.sizes(), given.options()));
    made.second.push_back(bytes_of(made.first.back()));
  }
  return made;
}

}  // namespace

std::vector<at::Tensor> complete(Started started) {
  if (started.work) started.work->wait();
  if (started.finish) started.finish();
  return std::move(started.results);
}

Started start_all_reduce(c10d::ProcessGroup& group, const at::Tensor& tensor, ReduceOp op,
                         Caller caller) {
  check_defined(tensor);
  const Reduction reduction = reduction_for(group, tensor, op);
  auto options = options_for<c10d::AllreduceOptions>(caller);
  options.reduceOp = reduction.op;
  Tensors dense{dense_of(tensor)};
  auto work = group.allreduce(dense, options);
  if (reduction.divisor == 1 && dense[0].is_same(tensor)) {
    return {.work = std::move(work), .results = std::move(dense), .finish = nullptr};
  }
  return {.work = std::move(work),
          .results = {tensor},
          .finish = finish_of(dense[0], tensor, reduction.divisor)};
}

Started start_reduce(c10d::ProcessGroup& group, const at::Tensor& tensor, int root, ReduceOp op,
                     Caller caller) {
  check_defined(tensor);
  check_rank(group, "root", root);
  const Reduction reduction = reduction_for(group, tensor, op);
  auto options = options_for<c10d::ReduceOptions>(caller);
  options.reduceOp = reduction.op;
  options.rootRank = root;
  const bool is_root = group.getRank() == root;
  // Gloo adds up in the tensors of all ranks.
  const bool is_by_shm = goes_over_shm(group, tensor) && shm::reduces(tensor.scalar_type());
  const bool is_kept = is_root || !tensor.is_cpu() || is_by_shm;
  const at::Tensor dense = dense_of(tensor);
  Tensors given{is_kept ? dense : dense.detach().clone()};
  auto work = group.reduce(given, options);
  if (!is_root) return {.work = std::move(work), .results = {}, .finish = nullptr};
  return {.work = std::move(work),
          .results = {tensor},
          .finish = finish_of(dense, tensor, reduction.divisor)};
}

Started start_broadcast(c10d::ProcessGroup& group, const at::Tensor& tensor, int root,
                        Caller caller) {
  check_movable(tensor);
  check_rank(group, "root", root);
  auto options = options_for<c10d::BroadcastOptions>(caller);
  options.rootRank = root;
  const bool is_root = group.getRank() == root;
  const at::Tensor dense = is_root ? values_of(tensor) : Filled(tensor).dense;
  Tensors bytes{bytes_of(dense)};
  auto work = group.broadcast(bytes, options);
  return {.work = std::move(work), .results = {tensor}, .finish = [dense, tensor, is_root] {
            if (!is_root) copy_back(dense, tensor);
          }};
}

Started start_all_gather(c10d::ProcessGroup& group, const at::Tensor& tensor, Caller caller) {
  check_movable(tensor);
  const at::Tensor given = values_of(tensor);
  Tensors input{bytes_of(given)};
  auto [results, bytes] = tensors_and_bytes(group, given);
  std::vector<Tensors> outputs{std::move(bytes)};
  auto work = group.allgather(outputs, input, options_for<c10d::AllgatherOptions>(caller));
  return {.work = std::move(work), .results = std::move(results), .finish = nullptr};
}

Started start_gather(c10d::ProcessGroup& group, const at::Tensor& tensor, int root, Caller caller) {
  check_movable(tensor);
  check_rank(group, "root", root);
  auto options = options_for<c10d::GatherOptions>(caller);
  options.rootRank = root;
  const at::Tensor given = values_of(tensor);
  Tensors input{bytes_of(given)};
  Tensors results;
  std::vector<Tensors> outputs;
  if (group.getRank() == root) {
    std::tie(results, outputs.emplace_back()) = tensors_and_bytes(group, given);
  }
  auto work = group.gather(outputs, input, options);
  return {.work = std::move(work), .results = std::move(results), .finish = nullptr};
}

Started start_scatter(c10d::ProcessGroup& group, const at::Tensor& output, const Tensors& inputs,
                      int root, Caller caller) {
  check_movable(output);
  check_rank(group, "root", root);
  auto options = options_for<c10d::ScatterOptions>(caller);
  options.rootRank = root;
  std::vector<Tensors> given;
  if (group.getRank() == root) {
    check_inputs(group, inputs, output);
    given.emplace_back();
    for (const at::Tensor& input : inputs) given[0].push_back(bytes_of(values_of(input)));
  }
  const Filled filled(output);
  Tensors bytes{bytes_of(filled.dense)};
  auto work = group.scatter(bytes, given, options);
  return {.work = std::move(work), .results = {output}, .finish = [filled] { filled.finish(); }};
}

Started start_reduce_scatter(c10d::ProcessGroup& group, const at::Tensor& output,
                             const Tensors& inputs, ReduceOp op, Caller caller) {
  check_movable(output);
  check_inputs(group, inputs, output);
  const Reduction reduction = reduction_for(group, output, op);
  Tensors rows;
  for (const at::Tensor& input : inputs) rows.push_back(input.detach().reshape({-1}));
  at::Tensor all = at::stack(rows);  // a row for each rank
  if (output.is_cpu()) {
    auto options = options_for<c10d::AllreduceOptions>(caller);
    options.reduceOp = reduction.op;
    Tensors reduced{all};
    auto work = group.allreduce(reduced, options);
    const at::Tensor row = all[group.getRank()].view(output.sizes());
    return {.work = std::move(work),
            .results = {output},
            .finish = finish_of(row, output, reduction.divisor)};
  }
  auto options = options_for<c10d::ReduceScatterOptions>(caller);
  options.reduceOp = reduction.op;
  const Filled filled(output);
  at::Tensor flat = filled.dense.view({-1});
  auto work = reduce_scatter_of(group, flat, all, options);
  return {.work = std::move(work), .results = {output}, .finish = [filled] { filled.finish(); }};
}

Started start_all_to_all(c10d::ProcessGroup& group, const Tensors& outputs, const Tensors& inputs,
                         Caller caller) {
  const auto world_size = static_cast<std::size_t>(group.getSize());
  if (inputs.size() != world_size || outputs.size() != world_size) {
    throw DdpError("there are " + std::to_string(inputs.size()) + " inputs and " +
                   std::to_string(outputs.size()) + " outputs for " + std::to_string(world_size) +
                   " ranks");
  }
  Tensors pieces;
  std::vector<std::int64_t> input_bytes;
  std::vector<std::int64_t> output_bytes;
  for (const Tensors* tensors : {&inputs, &outputs}) {
    for (const at::Tensor& tensor : *tensors) check_movable(tensor);
  }
  for (const at::Tensor& input : inputs) {
    pieces.push_back(bytes_of(values_of(input)));
    input_bytes.push_back(pieces.back().numel());
  }
  std::int64_t total = 0;
  for (const at::Tensor& output : outputs) {
    output_bytes.push_back(static_cast<std::int64_t>(output.nbytes()));
    total += output_bytes.back();
  }
  at::Tensor from = at::cat(pieces);
  at::Tensor to = at::empty({total}, from.options());
  auto work = all_to_all_of(group, to, from, output_bytes, input_bytes,
                            options_for<c10d::AllToAllOptions>(caller));
  return {.work = std::move(work), .results = outputs, .finish = [to, from, outputs] {
            std::int64_t begin = 0;
            for (const at::Tensor& output : outputs) {
              const auto size = static_cast<std::int64_t>(output.nbytes());
              // A copy begins at an address that fits the dtype.
              const at::Tensor piece = to.narrow(0, begin, size).clone();
              copy_back(piece.view(output.scalar_type()).view(output.sizes()), output);
              begin += size;
            }
          }};
}

Started start_send(c10d::ProcessGroup& group, const at::Tensor& tensor, int to, int tag) {
  check_movable(tensor);
  check_peer(group, "the receiver", to);
  Tensors bytes{bytes_of(values_of(tensor))};
  auto work = group.send(bytes, to, tag);
  return {.work = std::move(work), .results = {}, .finish = [bytes] {}};
}

Started start_recv(c10d::ProcessGroup& group, const at::Tensor& tensor, int from, int tag) {
  check_movable(tensor);
  check_peer(group, "the sender", from);
  const Filled filled(tensor);
  Tensors bytes{bytes_of(filled.dense)};
  auto work = group.recv(bytes, from, tag);
  return {.work = std::move(work), .results = {tensor}, .finish = [filled] { filled.finish(); }};
}

}  // namespace ddprun::ddp
