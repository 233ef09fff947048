// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/gradient_mute.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <memory>
#include <unordered_set>

namespace ddprun::ddp {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

at::Tensor sparse_zero(const at::Tensor& leaf) {
  std::vector<std::int64_t> sizes = leaf.sizes().vec();
  sizes[0] = 0;
  return at::sparse_coo_tensor(at::empty({1, 0}, leaf.options().dtype(at::kLong)),
                               at::empty(sizes, leaf.options()), leaf.sizes());
}

// Takes a loss and the leaves of its graph.  Its backward gives an undefined gradient to the loss:
// LibTorch's operations pass it on as such, where they would multiply a zero by what may be NaN.
struct Mute : torch::autograd::Function<Mute> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& loss,
                            at::TensorList leaves, std::vector<bool> is_sparse) {
    std::vector<at::Tensor> values;
    for (const at::Tensor& leaf : leaves) values.push_back(leaf.detach());
    context->saved_data["leaves"] = std::move(values);
    c10::List<bool> flags;
    for (const bool flag : is_sparse) flags.push_back(flag);
    context->saved_data["is_sparse"] = std::move(flags);
    return at::zeros_like(loss);
  }
  static variable_list backward(torch::autograd::AutogradContext* context, variable_list) {
    const std::vector<at::Tensor> leaves = context->saved_data["leaves"].toTensorVector();
    const c10::List<bool> is_sparse = context->saved_data["is_sparse"].toBoolList();
    variable_list gradients(1);  // of the loss
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      gradients.push_back(is_sparse.get(i) ? sparse_zero(leaves[i]) : at::zeros_like(leaves[i]));
    }
    gradients.emplace_back();  // of is_sparse
    return gradients;
  }
};

// A function that the program has written itself gets zeros for undefined gradients, and computes.
variable_list pass_undefined(const variable_list& outputs, const variable_list& inputs) {
  const bool is_undefined =
      std::ranges::none_of(inputs, [](const at::Tensor& gradient) { return gradient.defined(); });
  return is_undefined ? variable_list(outputs.size()) : outputs;
}

// The leaves of the graph.  Its other nodes come to pass undefined gradients on.
std::vector<at::Tensor> prepare_graph(const at::Tensor& loss) {
  std::vector<at::Tensor> leaves;
  std::vector<Node*> open{loss.grad_fn().get()};
  std::unordered_set<Node*> seen(open.begin(), open.end());
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
      if (leaf->variable.requires_grad()) leaves.push_back(leaf->variable);
      continue;
    }
    node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(pass_undefined));
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (edge.is_valid() && seen.insert(edge.function.get()).second) {
        open.push_back(edge.function.get());
      }
    }
  }
  return leaves;
}

}  // namespace

at::Tensor muted(const at::Tensor& loss, const std::vector<at::Tensor>& sparse) {
  if (!loss.grad_fn() || !at::GradMode::is_enabled()) return at::zeros_like(loss.detach());
  const std::vector<at::Tensor> leaves = prepare_graph(loss);
  std::vector<bool> is_sparse;
  for (const at::Tensor& leaf : leaves) {
    is_sparse.push_back(std::ranges::any_of(
        sparse, [&](const at::Tensor& parameter) { return parameter.is_same(leaf); }));
  }
  return Mute::apply(loss, at::TensorList(leaves), is_sparse);
}

}  // namespace ddprun::ddp
