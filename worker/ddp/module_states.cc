// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/module_states.h"

#include <string>
#include <vector>

#include "worker/ddp/error.h"
#include "worker/ddp/memory_order.h"
#include "worker/ddp/named_tensor.h"
#include "worker/ddp/verification.h"

namespace ddprun::ddp {
namespace {

std::string described(const char* kind, const NamedTensor& item) {
  return std::string(kind) + " " + item.name + " " + kind_of(item.tensor) +
         (item.tensor.requires_grad() ? "" : " without gradient");
}

std::string described(const BucketLayout& layout) {
  std::string text;
  for (const std::vector<std::size_t>& bucket : layout) {
    text += '[';
    for (std::size_t index : bucket) text += std::to_string(index) + ' ';
    text += ']';
  }
  return text;
}

std::string described(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text.append(name).append(" ");
  return text;
}

std::string described(const std::optional<MixedPrecision>& options) {
  if (!options) return "none";
  auto name = [](std::optional<at::ScalarType> dtype) -> std::string {
    return dtype ? c10::toString(*dtype) : "as it is";
  };
  return name(options->param_dtype) + ", reduced in " +
         name(options->reduce_dtype.value_or(options->param_dtype)) + ", buffers " +
         name(options->buffer_dtype);
}

std::string described(const DataParallelOptions& options) {
  return "options init_sync=" + std::to_string(options.init_sync) +
         " device_ids=" + std::to_string(options.device_ids.size()) +
         " broadcast_buffers=" + std::to_string(options.broadcast_buffers) +
         " find_unused_parameters=" + std::to_string(options.find_unused_parameters) +
         " static_graph=" + std::to_string(options.static_graph) +
         " compression=" + std::to_string(static_cast<int>(options.compression)) +
         " comm_hook=" + std::to_string(options.comm_hook != nullptr) +
         " mixed_precision=" + described(options.mixed_precision) +
         " gradient_as_bucket_view=" + std::to_string(options.gradient_as_bucket_view) +
         " bucket_cap_bytes=" + std::to_string(options.bucket_cap_bytes) +
         " split_backward=" + std::to_string(options.split_backward) +
         " check_replicas_every=" + std::to_string(options.check_replicas_every) +
         " ignored=" + described(options.ignored) +
         " bucket_layout=" + described(options.bucket_layout);
}

Description describe(const SyncedModule& module, const DataParallelOptions& options) {
  Description lines;
  for (const NamedTensor& item : module.parameters()) {
    lines.push_back(described("parameter", item));
  }
  for (const NamedTensor& item : module.buffers()) {
    lines.push_back(described("buffer", item));
  }
  lines.push_back(described(options));
  return lines;
}

// "" when all of it is on `device`.
std::string elsewhere(const SyncedModule& module, at::Device device) {
  std::vector<NamedTensor> items = module.parameters();
  for (NamedTensor& item : module.buffers()) items.push_back(std::move(item));
  for (const NamedTensor& item : items) {
    if (item.tensor.device() == device) continue;
    return item.name + " is on " + item.tensor.device().str() + ", and not on " + device.str() +
           ": move the module there before it is wrapped";
  }
  return "";
}

void append(std::vector<at::Tensor>& tensors, const std::vector<NamedTensor>& items) {
  for (const NamedTensor& item : items) tensors.push_back(item.tensor.detach());
}

}  // namespace

void verify_same_modules(ProcessGroup& group, const SyncedModule& module,
                         const DataParallelOptions& options) {
  verify_same(group, "modules", describe(module, options));
}

void verify_device(ProcessGroup& group, const SyncedModule& module,
                   const std::vector<at::Device>& device_ids) {
  if (device_ids.empty()) return;
  if (device_ids.size() > 1) {
    throw DdpError("device_ids has " + std::to_string(device_ids.size()) +
                   " devices: give the one of the module, or none if it is on several");
  }
  const std::string problem = elsewhere(module, device_ids[0]);
  group.throw_first_problem(
      problem.empty() ? "" : "device_ids of rank " + std::to_string(group.rank()) + ": " + problem);
}

void init_module_states(ProcessGroup& group, const SyncedModule& module, bool init_sync) {
  std::vector<NamedTensor> trained = module.parameters();
  std::erase_if(trained, [](const NamedTensor& item) { return !item.tensor.requires_grad(); });
  agree_on_memory_order(group, trained, /*may_change=*/init_sync);
  if (init_sync) broadcast_module_states(group, module, 0);
}

void broadcast_module_states(ProcessGroup& group, const SyncedModule& module, int root) {
  std::vector<at::Tensor> state;
  append(state, module.parameters());
  append(state, module.buffers());
  group.broadcast(state, root);
}

void broadcast_buffers(ProcessGroup& group, const SyncedModule& module, int root) {
  std::vector<at::Tensor> buffers;
  append(buffers, module.buffers());
  group.broadcast(buffers, root);
}

void check_that_nothing_moves(const torch::nn::Module& module, std::optional<at::Device> device,
                              std::optional<at::ScalarType> dtype) {
  std::vector<NamedTensor> items = named_parameters(module, false);
  for (NamedTensor& item : named_buffers(module, false)) items.push_back(std::move(item));
  const bool leaves_integers = dtype && (at::isFloatingType(*dtype) || at::isComplexType(*dtype));
  for (const NamedTensor& item : items) {
    const at::Device here = item.tensor.device();
    const bool stays =
        !device || *device == here || (!device->has_index() && device->type() == here.type());
    const bool is_number = item.tensor.is_floating_point() || item.tensor.is_complex();
    const bool keeps_dtype =
        !dtype || *dtype == item.tensor.scalar_type() || (leaves_integers && !is_number);
    if (stays && keeps_dtype) continue;
    std::string wanted = dtype ? c10::toString(*dtype) : "";
    if (device) wanted += (dtype ? " on " : "") + device->str();
    throw DdpError("to() would make " + wanted + " of " + item.name + ", which is " +
                   c10::toString(item.tensor.scalar_type()) + " on " + here.str() +
                   ": call it before the module is wrapped");
  }
}

}  // namespace ddprun::ddp
