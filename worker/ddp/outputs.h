// SPDX-License-Identifier: BSD-3-Clause
//
// Finds the tensors in what a forward() returns.  For a result type of your own, write a function
//   void visit_tensors(MyResult&, const ddprun::ddp::TensorVisitor&);
// in the type's namespace; without one, wrapping the module in DistributedDataParallel does not
// compile.
//
// Threads: called within forward(), on its thread.  Lifetime: a visitor is used during the call
// only, and must not keep the references it is given.  Errors: none but the visitor's.
#pragma once

#include <ATen/core/Tensor.h>

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
template <class T>
requires std::is_arithmetic_v<T> || std::same_as<T, std::string>
void visit_tensors(T&, const TensorVisitor&) {}

// Declared before they are defined, so that they find each other in nested results.
template <class T>
void visit_tensors(std::optional<T>& value, const TensorVisitor& visit);
template <class T>
void visit_tensors(std::vector<T>& values, const TensorVisitor& visit);
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
