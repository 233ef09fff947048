// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/optimizer_kinds.h"

#include "worker/ddp/zero_optimizer.h"

namespace ddprun::ddp {

Result<OptimizerKind> kind_of_optimizer(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (const auto* sharded = dynamic_cast<const ShardedOptimizer*>(&optimizer)) {
    return kind_of_optimizer(sharded->local());
  }
  if (dynamic_cast<const SGD*>(&optimizer)) return OptimizerKind::Sgd;
  if (dynamic_cast<const Adam*>(&optimizer)) return OptimizerKind::Adam;
  if (dynamic_cast<const AdamW*>(&optimizer)) return OptimizerKind::AdamW;
  if (dynamic_cast<const RMSprop*>(&optimizer)) return OptimizerKind::RmsProp;
  if (dynamic_cast<const Adagrad*>(&optimizer)) return OptimizerKind::Adagrad;
  if (dynamic_cast<const LBFGS*>(&optimizer)) return OptimizerKind::Lbfgs;
  return Error{Errc::NotSupported,
               "the state of an optimizer of the program's own cannot be known: only that of SGD, "
               "Adam, AdamW, RMSprop, Adagrad and LBFGS; leave `optimizer` null and give its "
               "tensors as `tensors`"};
}

const char* name_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::Sgd:
      return "SGD";
    case OptimizerKind::Adam:
      return "Adam";
    case OptimizerKind::AdamW:
      return "AdamW";
    case OptimizerKind::RmsProp:
      return "RMSprop";
    case OptimizerKind::Adagrad:
      return "Adagrad";
    case OptimizerKind::Lbfgs:
      return "LBFGS";
  }
  return "";
}

bool has_amsgrad(OptimizerKind kind, const torch::optim::OptimizerOptions& options) {
  using namespace torch::optim;
  if (kind == OptimizerKind::Adam) return static_cast<const AdamOptions&>(options).amsgrad();
  if (kind == OptimizerKind::AdamW) return static_cast<const AdamWOptions&>(options).amsgrad();
  return false;
}

std::unique_ptr<torch::optim::OptimizerParamState> new_state(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::Sgd:
      return std::make_unique<torch::optim::SGDParamState>();
    case OptimizerKind::Adam:
      return std::make_unique<torch::optim::AdamParamState>();
    case OptimizerKind::AdamW:
      return std::make_unique<torch::optim::AdamWParamState>();
    case OptimizerKind::RmsProp:
      return std::make_unique<torch::optim::RMSpropParamState>();
    case OptimizerKind::Adagrad:
      return std::make_unique<torch::optim::AdagradParamState>();
    case OptimizerKind::Lbfgs:
      return std::make_unique<torch::optim::LBFGSParamState>();
  }
  return nullptr;
}

int expected_fields(OptimizerKind kind, const torch::optim::OptimizerOptions& options) {
  using namespace torch::optim;
  switch (kind) {
    case OptimizerKind::Sgd:
      return static_cast<const SGDOptions&>(options).momentum() != 0 ? 1 : 0;
    case OptimizerKind::Adam:
    case OptimizerKind::AdamW:
      return has_amsgrad(kind, options) ? 3 : 2;
    case OptimizerKind::RmsProp: {
      const auto& of = static_cast<const RMSpropOptions&>(options);
      return 1 + (of.momentum() > 0 ? 1 : 0) + (of.centered() ? 1 : 0);
    }
    case OptimizerKind::Adagrad:
      return 1;
    case OptimizerKind::Lbfgs:
      return 2;  // and what it remembers, step by step
  }
  return 0;
}

}  // namespace ddprun::ddp
