// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/optimizer_state.h"

#include <ATen/ATen.h>

#include <deque>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "worker/ddp/optimizer_kinds.h"
#include "worker/ddp/zero_optimizer.h"

namespace ddprun::ddp {
namespace {

Error invalid(std::string sentence) {
  return Error{Errc::InvalidInput, std::move(sentence)};
}

// A field of a parameter's state is saved as "<parameter>/<field>".
Result<void> check_names(const std::unordered_map<c10::TensorImpl*, std::string>& names) {
  std::unordered_set<std::string_view> all;
  for (const auto& [tensor, name] : names) all.insert(name);
  for (std::string_view name : all) {
    for (std::size_t slash = name.find('/'); slash != std::string_view::npos;
         slash = name.find('/', slash + 1)) {
      if (!all.contains(name.substr(0, slash))) continue;
      return invalid("the state of the parameter '" + std::string(name) +
                     "' could not be told from that of '" + std::string(name.substr(0, slash)) +
                     "': give one of them a name without '/'");
    }
  }
  return {};
}

// The parameters of the optimizer with their names in the module.
Result<std::vector<NamedTensor>> named_parameters_of(const torch::optim::Optimizer& optimizer,
                                                     const torch::nn::Module& module) {
  std::unordered_map<c10::TensorImpl*, std::string> names;
  for (const auto& item : module.named_parameters()) {
    names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  if (Result<void> clear = check_names(names); !clear) return clear.error();
  std::vector<NamedTensor> parameters;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      auto found = names.find(parameter.unsafeGetTensorImpl());
      if (found == names.end()) {
        return invalid("the optimizer has a parameter of " + kind_of(parameter) +
                       " that the module has not: its state cannot be named");
      }
      parameters.push_back({found->second, parameter});
    }
  }
  return parameters;
}

// Of a parameter's state, the tensors under the names they are saved with; numbers become tensors.
class Collector {
 public:
  Collector(const std::string& parameter, std::vector<NamedTensor>& tensors)
      : parameter_(parameter), tensors_(tensors) {}

  void operator()(const std::string& field, const at::Tensor& tensor) {
    if (tensor.defined()) tensors_.push_back({parameter_ + "/" + field, tensor});
  }
  void operator()(const std::string& field, std::int64_t number) {
    (*this)(field, at::scalar_tensor(number, at::kLong));
  }
  void operator()(const std::string& field, double number) {
    (*this)(field, at::scalar_tensor(number, at::kDouble));
  }
  void operator()(const std::string& field, const std::deque<at::Tensor>& list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      (*this)(field + "." + std::to_string(i), list[i]);
    }
  }

 private:
  const std::string& parameter_;
  std::vector<NamedTensor>& tensors_;
};

std::string rate_name(std::size_t group) {
  return "group" + std::to_string(group) + ".lr";
}

void append_rates(const torch::optim::Optimizer& optimizer, std::vector<NamedTensor>& tensors) {
  for (std::size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    double rate = optimizer.param_groups()[i].options().get_lr();
    tensors.push_back({rate_name(i), at::scalar_tensor(rate, at::kDouble)});
  }
}

// Takes tensors by name, each once, and remembers the first that is wrong.
class Source {
 public:
  explicit Source(const std::map<std::string, at::Tensor>& tensors) : left_(tensors) {}

  bool has_any(const std::string& parameter) const {
    auto next = left_.lower_bound(parameter + "/");
    return next != left_.end() && next->first.starts_with(parameter + "/");
  }

  // Undefined when it was not saved.
  at::Tensor take(const std::string& name) {
    auto found = left_.find(name);
    if (found == left_.end()) return {};
    at::Tensor tensor = found->second;
    left_.erase(found);
    return tensor;
  }

  // Leaves out what was saved of `parameter`.
  void pass_over(const std::string& parameter) {
    while (has_any(parameter)) left_.erase(left_.lower_bound(parameter + "/"));
  }

  template <class T>
  void take_number(const std::string& name, T& number) {
    at::Tensor tensor = take(name);
    if (!tensor.defined()) return;
    if (tensor.numel() != 1) {
      refuse("the optimizer's '" + name + "' is not one number in the checkpoint");
    } else {
      number = tensor.item<T>();
    }
  }

  void refuse(std::string sentence) {
    if (!error_) error_ = invalid(std::move(sentence));
  }

  Result<void> finish() const {
    if (error_) return *error_;
    if (left_.empty()) return {};
    return invalid(
        "the checkpoint has '" + left_.begin()->first +
        "', which this optimizer has not: it is of another kind or has other parameters");
  }

 private:
  std::map<std::string, at::Tensor> left_;
  std::optional<Error> error_;
};

// Gives the fields of a parameter's state what was saved; of what was not, they keep what they
// have.
class Restorer {
 public:
  // `elements`: of a tensor that is not in the shape of its parameter.
  Restorer(Source& source, const NamedTensor& parameter, std::optional<std::int64_t> elements)
      : source_(source), parameter_(parameter), elements_(elements) {}

  void operator()(const std::string& field, at::Tensor& tensor) {
    const std::string name = parameter_.name + "/" + field;
    at::Tensor saved = source_.take(name);
    if (!saved.defined()) return;
    const bool fits = elements_ ? saved.numel() == *elements_ || saved.numel() == 1
                                : saved.sizes() == parameter_.tensor.sizes();
    if (!fits) {
      source_.refuse("the optimizer's '" + name + "' is " + kind_of(saved) +
                     " in the checkpoint, and its parameter is " + kind_of(parameter_.tensor));
    }
    // A copy of its own for the optimizer, where the parameter is, and of its dtype, as in Python.
    const bool is_floating = parameter_.tensor.is_floating_point() && saved.is_floating_point();
    const at::ScalarType dtype =
        is_floating ? parameter_.tensor.scalar_type() : saved.scalar_type();
    tensor = saved.to(parameter_.tensor.device(), dtype, false, true);
  }
  template <class T>
  void operator()(const std::string& field, T& number) {
    source_.take_number(parameter_.name + "/" + field, number);
  }
  void operator()(const std::string& field, std::deque<at::Tensor>& list) {
    list.clear();
    for (;;) {
      at::Tensor next;
      (*this)(field + "." + std::to_string(list.size()), next);
      if (!next.defined()) return;
      list.push_back(next);
    }
  }

 private:
  Source& source_;
  const NamedTensor& parameter_;
  std::optional<std::int64_t> elements_;
};

}  // namespace

Result<std::vector<NamedTensor>> optimizer_tensors(const torch::optim::Optimizer& optimizer,
                                                   const torch::nn::Module& module) {
  Result<OptimizerKind> kind = kind_of_optimizer(optimizer);
  if (!kind) return kind.error();
  Result<std::vector<NamedTensor>> parameters = named_parameters_of(optimizer, module);
  if (!parameters) return parameters.error();

  if (const auto* sharded = dynamic_cast<const ShardedOptimizer*>(&optimizer);
      sharded && !sharded->has_consolidated_state()) {
    return invalid(
        "this rank has the optimizer's state of its own parameters only: call consolidate_state() "
        "on all ranks first");
  }
  Result<std::vector<NamedTensor>> tensors = parameter_states(optimizer, *parameters);
  if (tensors) append_rates(optimizer, *tensors);
  return tensors;
}

Result<std::vector<NamedTensor>> own_optimizer_tensors(const ShardedOptimizer& optimizer,
                                                       const torch::nn::Module& module,
                                                       bool with_rates) {
  Result<std::vector<NamedTensor>> parameters = named_parameters_of(optimizer.local(), module);
  if (!parameters) return parameters.error();
  Result<std::vector<NamedTensor>> tensors = parameter_states(optimizer.local(), *parameters);
  if (tensors && with_rates) append_rates(optimizer, *tensors);
  return tensors;
}

Result<std::vector<NamedTensor>> parameter_states(const torch::optim::Optimizer& optimizer,
                                                  const std::vector<NamedTensor>& parameters) {
  Result<OptimizerKind> kind = kind_of_optimizer(optimizer);
  if (!kind) return kind.error();
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& parameter : parameters) {
    auto found = optimizer.state().find(parameter.tensor.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;  // no step has touched it yet
    Collector collector(parameter.name, tensors);
    if (!each_field(*kind, *found->second, collector)) {
      return Error{Errc::NotSupported, "the optimizer keeps a state of its own for '" +
                                           parameter.name + "', which cannot be known"};
    }
  }
  return tensors;
}

std::string describe_optimizer(const torch::optim::Optimizer& optimizer) {
  Result<OptimizerKind> kind = kind_of_optimizer(optimizer);
  if (!kind) return "";
  const auto& groups = optimizer.param_groups();
  std::string text = name_of(*kind);
  if (!groups.empty() && has_amsgrad(*kind, groups.front().options())) text += ", amsgrad";
  if (groups.size() != 1) text += ", " + std::to_string(groups.size()) + " groups of parameters";
  return text;
}

std::uint64_t expected_bytes(const torch::optim::Optimizer& optimizer) {
  Result<OptimizerKind> kind = kind_of_optimizer(optimizer);
  if (!kind) return 0;
  std::uint64_t bytes = 0;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    const auto fields = static_cast<std::uint64_t>(expected_fields(*kind, group.options()));
    for (const at::Tensor& parameter : group.params()) bytes += fields * parameter.nbytes();
  }
  return bytes;
}

namespace {

void take_states(Source& source, torch::optim::Optimizer& optimizer, OptimizerKind kind,
                 const std::vector<NamedTensor>& parameters) {
  std::optional<std::int64_t> elements;
  if (kind == OptimizerKind::Lbfgs) {
    elements = 0;
    for (const NamedTensor& parameter : parameters) *elements += parameter.tensor.numel();
  }
  optimizer.state().clear();
  for (const NamedTensor& parameter : parameters) {
    if (!source.has_any(parameter.name)) continue;
    std::unique_ptr<torch::optim::OptimizerParamState> state = new_state(kind);
    Restorer restorer(source, parameter, elements);
    each_field(kind, *state, restorer);
    optimizer.state()[parameter.tensor.unsafeGetTensorImpl()] = std::move(state);
  }
}

}  // namespace

Result<void> restore_parameter_states(torch::optim::Optimizer& optimizer,
                                      const std::vector<NamedTensor>& parameters,
                                      const std::map<std::string, at::Tensor>& tensors) {
  Result<OptimizerKind> kind = kind_of_optimizer(optimizer);
  if (!kind) return kind.error();
  Source source(tensors);
  take_states(source, optimizer, *kind, parameters);
  return source.finish();
}

Result<void> restore_optimizer(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                               const std::map<std::string, at::Tensor>& tensors) {
  Result<OptimizerKind> kind = kind_of_optimizer(optimizer);
  if (!kind) return kind.error();
  Result<std::vector<NamedTensor>> parameters = named_parameters_of(optimizer, module);
  if (!parameters) return parameters.error();

  Source source(tensors);
  auto* sharded = dynamic_cast<ShardedOptimizer*>(&optimizer);
  if (sharded) {
    std::erase_if(*parameters, [&](const NamedTensor& parameter) {
      if (sharded->is_own(parameter.tensor)) return false;
      source.pass_over(parameter.name);
      return true;
    });
  }
  take_states(source, optimizer, *kind, *parameters);
  for (std::size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    torch::optim::OptimizerOptions& options = optimizer.param_groups()[i].options();
    double rate = options.get_lr();
    source.take_number(rate_name(i), rate);
    options.set_lr(rate);
  }
  if (sharded) sharded->keep_own_state();
  return source.finish();
}

}  // namespace ddprun::ddp
