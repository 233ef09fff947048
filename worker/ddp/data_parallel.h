// SPDX-License-Identifier: BSD-3-Clause
//
// DistributedDataParallel for C++ modules: every rank holds the same parameters, computes the
// gradient of its own share of the data, and after loss.backward() holds the mean over all ranks.
// The reduction runs bucket by bucket while the backward pass is still going on.  The engine is
// LibTorch's own c10d::Reducer, the one under Python's DistributedDataParallel, so options and
// behaviour are Python's where nothing else is said.
//
//   auto group = ddprun::ddp::init_process_group();
//   ddprun::ddp::DistributedDataParallel<Net> model(Net(), group);
//   torch::optim::SGD optimizer(model.parameters(), 0.01);
//   for (...) {
//     optimizer.zero_grad();
//     loss(model(input), target).backward();
//     optimizer.step();
//   }
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker/ddp/bucket_layout.h"
#include "worker/ddp/data_parallel_options.h"
#include "worker/ddp/outputs.h"
#include "worker/ddp/process_group.h"

namespace ddprun::ddp {

// What DistributedDataParallel does that does not depend on the module's type.
class DataParallelEngine {
 public:
  DataParallelEngine(std::shared_ptr<torch::nn::Module> module, ProcessGroup group,
                     const DataParallelOptions& options);
  ~DataParallelEngine();
  DataParallelEngine(const DataParallelEngine&) = delete;
  DataParallelEngine& operator=(const DataParallelEngine&) = delete;

  // Whether backward passes reduce gradients, which no_sync() turns off for a while.
  bool sync() const;
  void set_sync(bool on);

  void before_forward();

  // `tensor` as forward() is to see it; null: as it is.  Until after_forward().
  at::Tensor* input(const at::Tensor& tensor);

  // `outputs` are the tensors of the result; they may be replaced by equal ones.
  void after_forward(std::vector<at::Tensor>& outputs);

  // In the place of after_forward(), when the module's forward has thrown.
  void abandon_forward();

  // join() in its parts; leave_join() belongs after either end of the body.
  void enter_join(const JoinOptions& options);
  void finish_join();
  void leave_join();

  // Throws DdpError if to(device, dtype) would change a tensor of the module; unset: as they are.
  void check_move(std::optional<at::Device> device, std::optional<at::ScalarType> dtype) const;

  double clip_grad_norm(double max_norm, double norm_type);
  void zero_grad(bool set_to_none);
  std::vector<std::int64_t> bucket_sizes() const;
  BucketLayout bucket_layout();
  void sync_buffers();
  at::Tensor weighted(const at::Tensor& loss, double weight);

 private:
  void meet_before_forward();

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// While one of these lives, backward passes add up gradients locally and nothing is sent; the first
// forward and backward after it reduces the sum.  The forward belongs inside as well.  Guards nest,
// and can be moved; one that was moved away ends nothing.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(DataParallelEngine& engine) : engine_(&engine), was_on_(engine.sync()) {
    engine.set_sync(false);
  }
  ~NoSync() {
    if (engine_ != nullptr) engine_->set_sync(was_on_);
  }
  NoSync(NoSync&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), was_on_(other.was_on_) {}
  NoSync& operator=(NoSync&&) = delete;

 private:
  DataParallelEngine* engine_;  // null in one that was moved away
  bool was_on_;
};

// Wraps a module so that its gradients are the mean over the ranks of `group`.
//
// `Wrapped` is a module holder (torch::nn::Sequential, or a Net made by TORCH_MODULE) or a
// std::shared_ptr of a module; its forward() may take and return what it likes, as long as the
// tensors in the result can be found (outputs.h).
//
// It is itself a module, of which the wrapped one is a part by the name "module", as in Python:
// parameters(), named_parameters(), train(), eval(), save() and printing reach the wrapped module,
// and a std::shared_ptr of it can be registered as a part of another module.  It has the mode
// (train or eval) of the wrapped module at construction.  to() must come before the wrapping:
// afterwards it throws DdpError, unless everything is there already; as in Python, a dtype of
// floating-point numbers leaves integers as they are.  A parameter that is converted or unfrozen
// through the wrapped module makes the next forward throw.  clone() throws.
//
// Threads: used from one thread; hooks on gradients may run on autograd's.  Lifetime: holds the
// module and the group; optimizers are made from parameters() as without DDP.
//
// Shapes: what forward() takes and returns is the module's affair; ranks may have batches of
// different sizes, and the mean over ranks then weighs each rank alike (Share::weight in sampler.h
// makes up for that).
//
// Errors: what the reduction meets comes out of backward() as DdpError or c10::Error.  A parameter
// that a backward pass leaves out is an error, on this rank at its next forward or collective, on
// the others where they wait for it, and all name the rank and the parameters.
//
// A forward under torch::NoGradGuard talks to no other rank, so that one rank may evaluate alone;
// each rank then uses its own buffers (sync_buffers() makes them rank 0's).
template <class Wrapped>
class DistributedDataParallel : public torch::nn::Module {
 public:
  // All ranks construct together.  Their modules are compared first (options, and names, shapes and
  // dtypes of parameters and buffers in order, and the strides of parameters): when they differ,
  // every rank throws the same DdpError, which names the first difference.  Also throws when
  // nothing in the module is trainable, and for complex parameters with Compression, which would
  // lose their imaginary part.  The module must be on its device by now.
  explicit DistributedDataParallel(Wrapped module, ProcessGroup group,
                                   const DataParallelOptions& options = {})
      : torch::nn::Module("DistributedDataParallel"),
        module_(std::move(module)),
        engine_(
            std::make_unique<DataParallelEngine>(pointer_to(module_), std::move(group), options)) {
    const std::shared_ptr<torch::nn::Module> wrapped = pointer_to(module_);
    if (!wrapped->is_training()) eval();  // of this module alone, which has no parts yet
    register_module("module", wrapped);
  }

  template <class... Args>
  auto forward(Args&&... args) {
    engine_->before_forward();
    struct Abandoning {
      DataParallelEngine& engine;
      bool has_result = false;
      ~Abandoning() {
        if (!has_result) engine.abandon_forward();
      }
    } abandoning{*engine_};
    std::vector<at::Tensor> tensors;
    if constexpr (std::is_void_v<decltype(module_->forward(std::forward<Args>(args)...))>) {
      module_->forward(input<Args>(args)...);
      abandoning.has_result = true;
      engine_->after_forward(tensors);
    } else {
      auto output = module_->forward(input<Args>(args)...);
      abandoning.has_result = true;
      visit_tensors(output, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
      engine_->after_forward(tensors);
      auto next = tensors.begin();
      visit_tensors(output, [&](at::Tensor& tensor) { tensor = *next++; });
      return output;
    }
  }

  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  Wrapped& module() { return module_; }
  const Wrapped& module() const { return module_; }

  // For gradient accumulation: { auto guard = model.no_sync(); loss(...).backward(); }
  NoSync no_sync() { return NoSync(*engine_); }

  // One optimizer step's gradients from several forwards and backwards: calls loss_of(0) to
  // loss_of(passes - 1), runs the backward of each, and reduces once, in the last.  The gradients
  // are those of the mean of the losses, which is returned, without its graph.  The same `passes`,
  // 1 or more, on all ranks.
  template <class LossOf>
  at::Tensor accumulate(int passes, LossOf&& loss_of) {
    if (passes < 1) throw DdpError("accumulate() needs 1 pass or more");
    at::Tensor sum;
    for (int pass = 0; pass < passes; ++pass) {
      std::optional<NoSync> guard;
      if (pass + 1 < passes) guard.emplace(*engine_);
      at::Tensor loss = loss_of(pass) / passes;
      loss.backward();
      sum = pass == 0 ? loss.detach() : sum + loss.detach();
    }
    return sum;
  }

  // `loss` times `weight`, for Share::weight.  With weight 0 what this loss brings is exactly zero,
  // also where the loss or its gradients are NaN or infinite: 0 times those would be NaN, on every
  // rank.  Other losses may be added to it before backward().  BatchNorm's running statistics do
  // see the sample; unless broadcast_buffers is off, rank 0's count, which always has a sample of
  // its own.  `loss` is a scalar of forward()'s graph.  With weight 0 every leaf of that graph gets
  // a gradient of zero, and hooks on tensors between them get undefined ones.
  at::Tensor weighted(const at::Tensor& loss, double weight) {
    return engine_->weighted(loss, weight);
  }

  // For ranks with different numbers of inputs: runs `body`, a training loop over this module, and
  // when it returns takes part in the others' steps with gradients of zero until all have come
  // here.  In the end every rank has the parameters and buffers of the rank that went on longest
  // (the highest of several); optimizers' state stays as it is.  As Python's join().
  //
  // With static_graph every rank needs an input in the first step of all, which learns the graph.
  // All ranks call it.  Each step of the body is one forward with gradients and its backward; what
  // else the body asks of the group (an all_reduce of the loss) no rank would answer.  An exception
  // out of the body passes through, and the others are left waiting for this rank.
  template <class Body>
  void join(Body&& body, const JoinOptions& options = {}) {
    engine_->enter_join(options);
    struct Leaving {
      DataParallelEngine& engine;
      ~Leaving() { engine.leave_join(); }
    } leaving{*engine_};
    body();
    engine_->finish_join();
  }

  // Scales the gradients down where their norm, over all of them as one vector, is above
  // `max_norm`; returns the norm before.  They are the mean over the ranks by then, so that every
  // rank does the same without a word; those of ignored parameters are left out.  `norm_type` is p
  // of the p-norm, infinity for the maximum.  Throws inside no_sync.
  double clip_grad_norm(double max_norm, double norm_type = 2) {
    return engine_->clip_grad_norm(max_norm, norm_type);
  }

  // Forgets the gradients, or sets them to zero in place when `set_to_none` is false.  With
  // gradient_as_bucket_view, false saves a copy per parameter and step; a parameter that a later
  // step leaves out then has a zero gradient rather than none, and optimizers with momentum move
  // it.
  void zero_grad(bool set_to_none = true) override { engine_->zero_grad(set_to_none); }

  void to(torch::Device device, torch::Dtype dtype, bool /*non_blocking*/ = false) override {
    engine_->check_move(device, dtype);
  }
  void to(torch::Dtype dtype, bool /*non_blocking*/ = false) override {
    engine_->check_move(std::nullopt, dtype);
  }
  void to(torch::Device device, bool /*non_blocking*/ = false) override {
    engine_->check_move(device, std::nullopt);
  }

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& /*device*/ = std::nullopt) const override {
    throw DdpError("a wrapped module cannot be cloned: clone module(), and wrap that on all ranks");
  }

  // The sizes of the buckets now in use, in the order in which they are reduced.  Bytes.
  std::vector<std::int64_t> bucket_sizes() const { return engine_->bucket_sizes(); }

  // Gives every rank rank 0's buffers now, before an evaluation on several ranks: Python's DDP does
  // so in the first forward after training.  All ranks call it.
  void sync_buffers() { engine_->sync_buffers(); }

  // The buckets of the next step, for a checkpoint.  All ranks call it together, between two steps:
  // after the first, it is what settles them.  Throws with lazy_bucket_allocation.
  BucketLayout bucket_layout() { return engine_->bucket_layout(); }

 private:
  // `arg`, or a cast or moved one, in the same form.
  template <class Arg>
  Arg&& input(std::remove_reference_t<Arg>& arg) {
    if constexpr (std::is_same_v<std::remove_cvref_t<Arg>, at::Tensor>) {
      if (at::Tensor* cast = engine_->input(arg)) return static_cast<Arg&&>(*cast);
    }
    return static_cast<Arg&&>(arg);
  }

  template <class T>
  static std::shared_ptr<torch::nn::Module> pointer_to(const std::shared_ptr<T>& module) {
    return module;
  }
  template <class T>
  static std::shared_ptr<torch::nn::Module> pointer_to(const torch::nn::ModuleHolder<T>& module) {
    return module.ptr();
  }

  Wrapped module_;
  std::unique_ptr<DataParallelEngine> engine_;
};

// The name that the tutorials give it.
template <class Wrapped>
using DDP = DistributedDataParallel<Wrapped>;

}  // namespace ddprun::ddp
