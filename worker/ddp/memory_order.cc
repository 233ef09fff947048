// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/memory_order.h"

#include <ATen/ATen.h>

#include <sstream>

#include "worker/checkpoint/formats/stored_tensor.h"
#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace {

using Order = std::vector<std::int64_t>;

Order without_size_one(Order strides, at::IntArrayRef sizes) {
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (sizes[i] == 1) strides[i] = 1;  // never taken
  }
  return strides;
}

// One line for each parameter.
std::string encode(const std::vector<NamedTensor>& parameters) {
  std::ostringstream text;
  for (const NamedTensor& item : parameters) {
    for (std::int64_t stride : memory_order(item.tensor)) text << stride << ' ';
    text << '\n';
  }
  return text.str();
}

std::vector<Order> decode(const std::string& text) {
  std::vector<Order> orders;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    orders.emplace_back();
    for (std::int64_t stride = 0; numbers >> stride;) orders.back().push_back(stride);
  }
  return orders;
}

std::string described(const Order& order) {
  if (order.empty()) return "row-major";
  std::string text = "of strides [";
  for (std::size_t i = 0; i < order.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(order[i]);
  }
  return text + "]";
}

void reorder(at::Tensor tensor, const Order& order) {
  at::NoGradGuard no_grad;
  at::Tensor data = order.empty() ? at::empty(tensor.sizes(), tensor.options())
                                  : at::empty_strided(tensor.sizes(), order, tensor.options());
  data.copy_(tensor);
  tensor.set_data(data);
}

}  // namespace

Order memory_order(const at::Tensor& tensor) {
  if (!tensor.is_non_overlapping_and_dense()) return {};
  Order strides = without_size_one(tensor.strides().vec(), tensor.sizes());
  const Order row_major = without_size_one(row_major_strides(tensor.sizes().vec()), tensor.sizes());
  return strides == row_major ? Order{} : strides;
}

void agree_on_memory_order(ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                           bool may_change) {
  const std::vector<Order> wanted = decode(group.broadcast_text(encode(parameters)));
  std::string problem;
  for (std::size_t i = 0; i < parameters.size() && problem.empty(); ++i) {
    const NamedTensor& item = parameters[i];
    const Order own = memory_order(item.tensor);
    if (own == wanted.at(i)) continue;
    const bool is_shared = item.tensor.storage().use_count() > 1;
    if (may_change && !is_shared) {
      reorder(item.tensor, wanted[i]);
      continue;
    }
    problem = "the parameters of the ranks differ in memory: " + item.name + " is " +
              described(own) + " on rank " + std::to_string(group.rank()) + " and " +
              described(wanted[i]) + " on rank 0" +
              (may_change ? ", and cannot be changed, since other tensors share its memory"
                          : "; make them alike, or set init_sync");
  }
  group.throw_first_problem(problem);
}

}  // namespace ddprun::ddp
