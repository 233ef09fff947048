// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/comm_hooks.h"

#include <torch/csrc/distributed/c10d/comm.hpp>

#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace {

class AdaptedHook : public c10d::CppCommHookInterface<ProcessGroup> {
 public:
  AdaptedHook(CommHook hook, ProcessGroup group)
      : CppCommHookInterface(std::move(group)), hook_(std::move(hook)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    auto future = hook_(state_, bucket);
    if (!future) throw DdpError("the comm_hook has returned no future for a bucket of gradients");
    return future;
  }

 private:
  CommHook hook_;
};

}  // namespace

c10::intrusive_ptr<c10::ivalue::Future> mean_of(ProcessGroup& group, const at::Tensor& buffer) {
  std::vector<at::Tensor> sent{at::Tensor(buffer).div_(group.world_size())};
  return group.c10d()->allreduce(sent)->getFuture()->then(
      [buffer](c10::ivalue::Future& future) {
        future.value();  // throws what went wrong
        return c10::IValue(buffer);
      },
      c10::TensorType::get());
}

CommHook bfloat16_hook() {
  return [](ProcessGroup& group, c10d::GradBucket& bucket) {
    at::Tensor buffer = bucket.getBuffer();
    // Divided before it is sent, as c10d's own Float16 hook does.
    std::vector<at::Tensor> sent{buffer.to(at::kBFloat16).div_(group.world_size())};
    auto reduced = group.c10d()->allreduce(sent)->getFuture();
    return reduced->then(
        [buffer, sent](c10::ivalue::Future& future) {
          future.value();  // throws what went wrong
          at::NoGradGuard no_grad;
          at::Tensor(buffer).copy_(sent[0]);
          return c10::IValue(buffer);
        },
        c10::TensorType::get());
  };
}

std::unique_ptr<c10d::CommHookInterface> adapt(CommHook hook, ProcessGroup group) {
  return std::make_unique<AdaptedHook>(std::move(hook), std::move(group));
}

}  // namespace ddprun::ddp
