// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/optimizer_state.h"

#include <ATen/ATen.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <unordered_map>

namespace ddprun::ddp {
namespace {

Error invalid(std::string sentence) {
  return Error{Errc::InvalidInput, std::move(sentence)};
}

// The parameters of the optimizer with their names in the module.
Result<std::vector<NamedTensor>> named_parameters_of(const torch::optim::Optimizer& optimizer,
                                                     const torch::nn::Module& module) {
  std::unordered_map<c10::TensorImpl*, std::string> names;
  for (const auto& item : module.named_parameters()) {
    names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
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

// The fields of one parameter's state that are tensors, under the names they are saved with.
using Fields = std::vector<NamedTensor>;

Fields fields_of(const torch::optim::SGDParamState& state) {
  return {{"momentum_buffer", state.momentum_buffer()}};
}
template <class State>
Fields adam_fields_of(const State& state) {
  return {{"step", at::scalar_tensor(state.step(), at::kLong)},
          {"exp_avg", state.exp_avg()},
          {"exp_avg_sq", state.exp_avg_sq()},
          {"max_exp_avg_sq", state.max_exp_avg_sq()}};
}

enum class Kind : std::uint8_t { Sgd, Adam, AdamW };

Result<Kind> kind_of_optimizer(const torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer)) return Kind::Sgd;
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer)) return Kind::Adam;
  if (dynamic_cast<const torch::optim::AdamW*>(&optimizer)) return Kind::AdamW;
  return Error{Errc::NotSupported,
               "the state of this kind of optimizer cannot be saved yet: SGD, Adam and AdamW can"};
}

Fields fields_of(Kind kind, const torch::optim::OptimizerParamState& state) {
  switch (kind) {
    case Kind::Sgd:
      return fields_of(static_cast<const torch::optim::SGDParamState&>(state));
    case Kind::Adam:
      return adam_fields_of(static_cast<const torch::optim::AdamParamState&>(state));
    case Kind::AdamW:
      return adam_fields_of(static_cast<const torch::optim::AdamWParamState&>(state));
  }
  return {};
}

std::string rate_name(std::size_t group) {
  return "group" + std::to_string(group) + ".lr";
}

// Takes tensors by name, in the shape of their parameter, and remembers the first that is wrong.
class Source {
 public:
  explicit Source(const std::map<std::string, at::Tensor>& tensors) : tensors_(tensors) {}

  bool has_any(const std::string& parameter) const {
    auto next = tensors_.lower_bound(parameter + "/");
    return next != tensors_.end() && next->first.starts_with(parameter + "/");
  }

  // A copy of its own for the optimizer, where the parameter is; undefined when not saved.
  at::Tensor tensor(const NamedTensor& parameter, const std::string& field) {
    auto found = tensors_.find(parameter.name + "/" + field);
    if (found == tensors_.end()) return {};
    ++taken_;
    if (found->second.sizes() != parameter.tensor.sizes()) {
      error_ = invalid("the optimizer's '" + found->first + "' is " + kind_of(found->second) +
                       " in the checkpoint, and its parameter is " + kind_of(parameter.tensor));
    }
    return found->second.to(parameter.tensor.device(), found->second.scalar_type(), false, true);
  }

  template <class T>
  std::optional<T> number(const std::string& name) {
    auto found = tensors_.find(name);
    if (found == tensors_.end()) return std::nullopt;
    ++taken_;
    if (found->second.numel() != 1) {
      error_ = invalid("the optimizer's '" + name + "' is not one number in the checkpoint");
      return std::nullopt;
    }
    return found->second.item<T>();
  }

  Result<void> finish() const {
    if (error_) return *error_;
    if (taken_ != tensors_.size()) {
      return invalid("the checkpoint has " + std::to_string(tensors_.size()) +
                     " values of an optimizer, and this one can take " + std::to_string(taken_) +
                     ": it is of another kind or has other parameters");
    }
    return {};
  }

 private:
  const std::map<std::string, at::Tensor>& tensors_;
  std::size_t taken_ = 0;
  std::optional<Error> error_;
};

template <class State>
std::unique_ptr<State> adam_state(Source& source, const NamedTensor& parameter) {
  auto state = std::make_unique<State>();
  state->step(source.number<std::int64_t>(parameter.name + "/step").value_or(0));
  state->exp_avg(source.tensor(parameter, "exp_avg"));
  state->exp_avg_sq(source.tensor(parameter, "exp_avg_sq"));
  state->max_exp_avg_sq(source.tensor(parameter, "max_exp_avg_sq"));
  return state;
}

std::unique_ptr<torch::optim::OptimizerParamState> make_state(Kind kind, Source& source,
                                                              const NamedTensor& parameter) {
  switch (kind) {
    case Kind::Sgd: {
      auto state = std::make_unique<torch::optim::SGDParamState>();
      state->momentum_buffer(source.tensor(parameter, "momentum_buffer"));
      return state;
    }
    case Kind::Adam:
      return adam_state<torch::optim::AdamParamState>(source, parameter);
    case Kind::AdamW:
      return adam_state<torch::optim::AdamWParamState>(source, parameter);
  }
  return nullptr;
}

}  // namespace

Result<std::vector<NamedTensor>> optimizer_tensors(const torch::optim::Optimizer& optimizer,
                                                   const torch::nn::Module& module) {
  Result<Kind> kind = kind_of_optimizer(optimizer);
  if (!kind) return kind.error();
  Result<std::vector<NamedTensor>> parameters = named_parameters_of(optimizer, module);
  if (!parameters) return parameters.error();

  std::vector<NamedTensor> tensors;
  for (const NamedTensor& parameter : *parameters) {
    auto found = optimizer.state().find(parameter.tensor.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;  // no step has touched it yet
    for (const NamedTensor& field : fields_of(*kind, *found->second)) {
      if (!field.tensor.defined()) continue;
      tensors.push_back({parameter.name + "/" + field.name, field.tensor});
    }
  }
  for (std::size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    double rate = optimizer.param_groups()[i].options().get_lr();
    tensors.push_back({rate_name(i), at::scalar_tensor(rate, at::kDouble)});
  }
  return tensors;
}

std::uint64_t most_fields(const torch::optim::Optimizer& optimizer) {
  Result<Kind> kind = kind_of_optimizer(optimizer);
  if (!kind || *kind == Kind::Sgd) return 1;
  return 2;  // and a third with amsgrad, whose memory is then touched at the first save
}

Result<void> restore_optimizer(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                               const std::map<std::string, at::Tensor>& tensors) {
  Result<Kind> kind = kind_of_optimizer(optimizer);
  if (!kind) return kind.error();
  Result<std::vector<NamedTensor>> parameters = named_parameters_of(optimizer, module);
  if (!parameters) return parameters.error();

  Source source(tensors);
  optimizer.state().clear();
  for (const NamedTensor& parameter : *parameters) {
    if (!source.has_any(parameter.name)) continue;
    optimizer.state()[parameter.tensor.unsafeGetTensorImpl()] =
        make_state(*kind, source, parameter);
  }
  for (std::size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    std::optional<double> rate = source.number<double>(rate_name(i));
    if (rate) optimizer.param_groups()[i].options().set_lr(*rate);
  }
  return source.finish();
}

}  // namespace ddprun::ddp
