// SPDX-License-Identifier: BSD-3-Clause
//
// Finds the tensors in what a forward() returns.  For a result type of your own, write a function
//   void visit_tensors(MyResult&, const ddprun::ddp::TensorVisitor&);
// in the type's namespace; without one, wrapping the module in DistributedDataParallel does not
// compile.  It is called twice for a result, must meet the same tensors in the same order, and
// keeps what the second call has put in their places.
//
// Threads: called within forward(), on its thread.  Lifetime: a visitor is used during the call
// only, and must not keep the references it is given.  Errors: none but the visitor's.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/utils/rnn.h>
#include <torch/ordered_dict.h>

#include <array>
#include <concepts>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ddprun::ddp {

// Called with each tensor, which it may replace.
using TensorVisitor = std::function<void(at::Tensor&)>;

inline void visit_tensors(at::Tensor& tensor, const TensorVisitor& visit) {
  if (tensor.defined()) visit(tensor);
}
inline void visit_tensors(torch::nn::utils::rnn::PackedSequence& sequence,
                          const TensorVisitor& visit) {
  at::Tensor data = sequence.data();
  visit_tensors(data, visit);
  if (data.is_same(sequence.data())) return;
  sequence = torch::nn::utils::rnn::PackedSequence(
      data, sequence.batch_sizes(), sequence.sorted_indices(), sequence.unsorted_indices());
}
template <class T>
requires std::is_arithmetic_v<T> || std::same_as<T, std::string>
void visit_tensors(T&, const TensorVisitor&) {}

// Declared before they are defined, so that they find each other in nested results.
template <class T>
void visit_tensors(std::optional<T>& value, const TensorVisitor& visit);
template <class T>
void visit_tensors(std::vector<T>& values, const TensorVisitor& visit);
template <class T, std::size_t size>
void visit_tensors(std::array<T, size>& values, const TensorVisitor& visit);
template <class Key, class T>
void visit_tensors(torch::OrderedDict<Key, T>& values, const TensorVisitor& visit);
template <class Key, class T>
void visit_tensors(std::map<Key, T>& values, const TensorVisitor& visit);
template <class Key, class T>
void visit_tensors(std::unordered_map<Key, T>& values, const TensorVisitor& visit);
template <class A, class B>
void visit_tensors(std::pair<A, B>& values, const TensorVisitor& visit);
template <class... Ts>
void visit_tensors(std::tuple<Ts...>& values, const TensorVisitor& visit);

template <class T>
void visit_tensors(std::optional<T>& value, const TensorVisitor& visit) {
  if (value) visit_tensors(*value, visit);
}
template <class T>
void visit_tensors(std::vector<T>& values, const TensorVisitor& visit) {
  for (T& value : values) visit_tensors(value, visit);
}
template <class T, std::size_t size>
void visit_tensors(std::array<T, size>& values, const TensorVisitor& visit) {
  for (T& value : values) visit_tensors(value, visit);
}
template <class Key, class T>
void visit_tensors(torch::OrderedDict<Key, T>& values, const TensorVisitor& visit) {
  for (auto& item : values) visit_tensors(item.value(), visit);
}
template <class Key, class T>
void visit_tensors(std::map<Key, T>& values, const TensorVisitor& visit) {
  for (auto& [key, value] : values) visit_tensors(value, visit);
}
template <class Key, class T>
void visit_tensors(std::unordered_map<Key, T>& values, const TensorVisitor& visit) {
  for (auto& [key, value] : values) visit_tensors(value, visit);
}
template <class A, class B>
void visit_tensors(std::pair<A, B>& values, const TensorVisitor& visit) {
  visit_tensors(values.first, visit);
  visit_tensors(values.second, visit);
}
template <class... Ts>
void visit_tensors(std::tuple<Ts...>& values, const TensorVisitor& visit) {
  std::apply([&](Ts&... value) { (visit_tensors(value, visit), ...); }, values);
}

}  // namespace ddprun::ddp
