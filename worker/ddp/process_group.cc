// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/process_group.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <csignal>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "store/base/number.h"
#include "worker/ddp/call_check.h"
#include "worker/ddp/collectives.h"
#include "worker/ddp/diagnosing_group.h"
#include "worker/ddp/dropped_messages.h"
#include "worker/ddp/environment.h"
#include "worker/ddp/group_connections.h"
#include "worker/ddp/liveness.h"
#include "worker/ddp/nccl_backend.h"
#include "worker/ddp/peer_failures.h"
#include "worker/ddp/shm_backend.h"
#include "worker/ddp/store_barrier.h"
#include "worker/ddp/text_collectives.h"
#include "worker/ddp/torch_check.h"

namespace ddprun::ddp {
namespace {

constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(30);

// Parses the whole of `text` as a number from 1 to `max`.
std::optional<int> parse_count(const std::string& text, int max) {
  auto value = number_in<int>(text);
  return value && *value >= 1 && *value <= max ? value : std::nullopt;
}

// Gloo sends with writev(), which ends a program with SIGPIPE, and without a word, when the peer is
// gone.  Python ignores the signal for its programs; here a handler that the program has is kept.
void ignore_broken_pipes() {
  struct sigaction current {};
  if (::sigaction(SIGPIPE, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) return;
  std::signal(SIGPIPE, SIG_IGN);
}

std::chrono::milliseconds timeout_of(const std::optional<std::chrono::milliseconds>& asked) {
  if (asked) return *asked;
  std::optional<std::string> text = environment_variable("DDPRUN_TIMEOUT");
  if (!text) return kDefaultTimeout;
  constexpr int kMaxSeconds = 1'000'000;
  std::optional<int> seconds = parse_count(*text, kMaxSeconds);
  if (!seconds) {
    throw DdpError("DDPRUN_TIMEOUT='" + *text + "' is not a number of seconds from 1 to " +
                   std::to_string(kMaxSeconds));
  }
  return std::chrono::seconds(*seconds);
}

bool checks_collectives(const std::optional<bool>& asked) {
  return asked.value_or(CallCheck::is_asked_for(environment_variable("TORCH_DISTRIBUTED_DEBUG")));
}

std::string known_backend(const std::string& backend) {
  for (const char* known : {"auto", "shm", "gloo", "nccl"}) {
    if (backend == known) return backend;
  }
  throw DdpError("the backend '" + backend +
                 "' is not known: 'auto', 'shm', 'gloo' and 'nccl' are accepted");
}

// Runs `action`, and turns LibTorch's exceptions into ours, without their stack traces.
template <class Action>
auto guarded(const char* what, Action action) {
  try {
    return action();
  } catch (const std::exception&) {
    throw DdpError(std::string(what) + ": " + message_of(std::current_exception()));
  }
}

// The same for a collective: throws first if this rank owes the others another one, and adds what
// the ranks know about a failure.
template <class Action>
auto diagnosed(const char* what, PeerFailures& peer_failures, Action action) {
  return guarded(what, [&] {
    peer_failures.check_collective();
    try {
      return action();
    } catch (const DdpError&) {
      throw;
    } catch (const std::exception&) {
      throw DdpError(peer_failures.diagnose(message_of(std::current_exception())));
    }
  });
}

}  // namespace

struct ProcessGroup::Impl {
  GroupPlan plan;  // of an adopted group only what it says of the ranks, and the time-out
  c10::intrusive_ptr<c10d::Store> host;  // the store of the group that this one was made from
  GroupConnections connections;
  at::Device device = at::kCPU;
  std::uint64_t barrier_count = 0;
  std::uint64_t subgroup_count = 0;
  std::unique_ptr<CallCheck> call_check;  // null unless the ranks' calls are compared

  // Once `connections` has a store of the group's own.
  void connect() {
    if (plan.check_collectives) CallCheck::ask(*connections.store);
    connect_group(connections, plan);
    if (!connections.gpus.empty()) device = connections.gpus[0];
    agree_on_call_check();
  }

  // When all ranks have asked, or not.
  void agree_on_call_check() {
    call_check = CallCheck::agreed(connections.store, plan.env.rank, plan.env.world_size,
                                   plan.timeout, connections.peer_failures);
  }

  c10d::ProcessGroup& group() const { return *connections.group; }
  PeerFailures& peer_failures() const { return *connections.peer_failures; }

  // Throws unless all ranks are about to call `name` with such arguments, where that is compared.
  template <class... Args>
  void compare(const char* name, const Args&... args) const {
    if (!call_check) return;
    diagnosed(name, peer_failures(), [&] { call_check->compare(call_of(name, args...)); });
  }

  // Starts a collective, whose handle calls it `name`.
  template <class Start>
  AsyncWork begin(const char* name, Start start,
                  const std::shared_ptr<DroppedMessages>& keeper = nullptr) const {
    return diagnosed(name, peer_failures(), [&] {
      Started started = start(group());
      return make_async_work(name, std::move(started.work), std::move(started.results),
                             std::move(started.finish), connections.peer_failures, keeper);
    });
  }

  // The same for a message that carries `tensor`.  NCCL's go on without their handles.
  template <class Start>
  AsyncWork begin_message(const char* name, const at::Tensor& tensor, Start start) const {
    const bool is_of_cpu = tensor.defined() && tensor.is_cpu();
    return begin(name, start, is_of_cpu ? connections.dropped : nullptr);
  }

  // Runs one to its end.
  template <class Start>
  std::vector<at::Tensor> complete(const char* name, Start start) const {
    return diagnosed(name, peer_failures(), [&] { return ddp::complete(start(group())); });
  }

  // For what the class does over the bare group.
  template <class Action>
  auto run(const char* name, Action action) const {
    return diagnosed(name, peer_failures(), [&] { return action(group()); });
  }
};

namespace {

// A template, so that a LibTorch without ProcessGroup::getStore() compiles it.
template <class Group>
c10::intrusive_ptr<c10d::Store> store_of(const c10::intrusive_ptr<Group>& group) {
  if constexpr (requires { group->getStore(); }) {
    return group->getStore();
  } else {
    return nullptr;
  }
}

bool has_backend_for_cpu(const c10d::ProcessGroup& group) {
  for (const c10::Device& device : group.getDeviceTypes()) {
    if (device.is_cpu()) return true;
  }
  return false;
}

// `ranks` in their order.  Every rank of `group` throws the same DdpError when one gives numbers
// that are no ranks, or others than rank 0.
std::vector<int> agreed_members(ProcessGroup& group, std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string problem = ranks.empty() ? "no rank" : "";
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::string number = std::to_string(ranks[i]);
    text += number + ' ';
    if (ranks[i] < 0 || ranks[i] >= group.world_size()) {
      problem = number + ", and the ranks are 0 to " + std::to_string(group.world_size() - 1);
    } else if (i > 0 && ranks[i] == ranks[i - 1]) {
      problem = "rank " + number + " twice";
    }
  }
  const std::string here = "new_group: rank " + std::to_string(group.rank()) + " gives ";
  group.throw_first_problem(problem.empty() ? "" : here + problem);
  const std::string wanted = group.broadcast_text(text);
  group.throw_first_problem(text == wanted ? ""
                                           : here + "the ranks " + text + "and rank 0 " + wanted);
  return ranks;
}

// How many of `members` are on this rank's node; 1 where that is not known.
int ranks_of_node(ProcessGroup& group, const std::vector<int>& members) {
  const worker::WorkerEnv& env = group.env();
  const std::vector<at::Tensor> nodes = group.all_gather(at::tensor(env.group_rank, at::kLong));
  if (env.local_world_size == env.world_size) return static_cast<int>(members.size());
  if (env.group_world_size == 1) return 1;
  return static_cast<int>(std::count_if(members.begin(), members.end(), [&](int member) {
    return nodes[static_cast<std::size_t>(member)].item<std::int64_t>() == env.group_rank;
  }));
}

// A template, so that a LibTorch without Backend::abort() compiles it.
template <class Backend>
void abort_backend(Backend& backend) {
  if constexpr (requires { backend.abort(); }) {
    backend.abort();
  } else {
    throw DdpError("NCCL needs torch 2.9 or newer for it; end the process instead");
  }
}

}  // namespace

ProcessGroup::Impl& ProcessGroup::alive() const {
  if (!impl_) {
    throw DdpError("this ProcessGroup was moved to another variable: use that one, or copy it");
  }
  return *impl_;
}

const worker::WorkerEnv& ProcessGroup::env() const {
  return alive().plan.env;
}
const c10::intrusive_ptr<c10d::ProcessGroup>& ProcessGroup::c10d() const {
  return alive().connections.group;
}
const c10::intrusive_ptr<c10d::Store>& ProcessGroup::store() const {
  return alive().connections.store;
}
at::Device ProcessGroup::device() const {
  return alive().device;
}
const std::string& ProcessGroup::cpu_backend() const {
  return alive().connections.cpu_backend;
}
PeerFailures& ProcessGroup::peer_failures() const {
  return alive().peer_failures();
}

void ProcessGroup::barrier() {
  Impl& group = alive();
  std::string prefix = "barrier/" + std::to_string(group.barrier_count);
  c10d::Store& store = *group.connections.store;
  group.compare("barrier");
  guarded("barrier", [&] {
    group.peer_failures().check_collective();
    store_barrier(store, prefix, rank(), world_size(), group.plan.timeout);
    // A rank that is here has left the barrier before this one, so that one's keys can go.
    if (group.barrier_count > 0) {
      clear_store_barrier(store, "barrier/" + std::to_string(group.barrier_count - 1), rank());
    }
  });
  ++group.barrier_count;
}

void ProcessGroup::all_reduce(at::Tensor tensor, ReduceOp op) {
  alive().compare("all_reduce", tensor, op);
  alive().complete("all_reduce", [&](c10d::ProcessGroup& group) {
    return start_all_reduce(group, tensor, op, Caller::Waits);
  });
}
AsyncWork ProcessGroup::all_reduce_async(at::Tensor tensor, ReduceOp op) {
  alive().compare("all_reduce", tensor, op);
  return alive().begin("all_reduce", [&](c10d::ProcessGroup& group) {
    return start_all_reduce(group, tensor, op, Caller::GoesOn);
  });
}
void ProcessGroup::reduce(at::Tensor tensor, int root, ReduceOp op) {
  alive().compare("reduce", tensor, op, root);
  alive().complete("reduce", [&](c10d::ProcessGroup& group) {
    return start_reduce(group, tensor, root, op, Caller::Waits);
  });
}
AsyncWork ProcessGroup::reduce_async(at::Tensor tensor, int root, ReduceOp op) {
  alive().compare("reduce", tensor, op, root);
  return alive().begin("reduce", [&](c10d::ProcessGroup& group) {
    return start_reduce(group, tensor, root, op, Caller::GoesOn);
  });
}
void ProcessGroup::broadcast(at::Tensor tensor, int root) {
  alive().compare("broadcast", tensor, std::nullopt, root);
  alive().complete("broadcast", [&](c10d::ProcessGroup& group) {
    return start_broadcast(group, tensor, root, Caller::Waits);
  });
}
AsyncWork ProcessGroup::broadcast_async(at::Tensor tensor, int root) {
  alive().compare("broadcast", tensor, std::nullopt, root);
  return alive().begin("broadcast", [&](c10d::ProcessGroup& group) {
    return start_broadcast(group, tensor, root, Caller::GoesOn);
  });
}
void ProcessGroup::broadcast(std::vector<at::Tensor> tensors, int root) {
  if (tensors.empty() || world_size() == 1) return;
  Impl& group = alive();
  for (at::Tensor& tensor : tensors) {
    if (tensor.defined()) tensor = tensor.detach();  // a parameter cannot be written in place
  }
  group.compare("broadcast", tensors, root);
  group.run("broadcast", [&](c10d::ProcessGroup&) {
    c10d::broadcast_coalesced(group.connections.group, tensors, kCoalesceBytes, root);
  });
}
std::vector<at::Tensor> ProcessGroup::all_gather(const at::Tensor& tensor) {
  alive().compare("all_gather", tensor);
  return alive().complete("all_gather", [&](c10d::ProcessGroup& group) {
    return start_all_gather(group, tensor, Caller::Waits);
  });
}
AsyncWork ProcessGroup::all_gather_async(const at::Tensor& tensor) {
  alive().compare("all_gather", tensor);
  return alive().begin("all_gather", [&](c10d::ProcessGroup& group) {
    return start_all_gather(group, tensor, Caller::GoesOn);
  });
}
std::vector<at::Tensor> ProcessGroup::gather(const at::Tensor& tensor, int root) {
  alive().compare("gather", tensor, std::nullopt, root);
  return alive().complete("gather", [&](c10d::ProcessGroup& group) {
    return start_gather(group, tensor, root, Caller::Waits);
  });
}
AsyncWork ProcessGroup::gather_async(const at::Tensor& tensor, int root) {
  alive().compare("gather", tensor, std::nullopt, root);
  return alive().begin("gather", [&](c10d::ProcessGroup& group) {
    return start_gather(group, tensor, root, Caller::GoesOn);
  });
}
void ProcessGroup::scatter(at::Tensor output, const std::vector<at::Tensor>& inputs, int root) {
  alive().compare("scatter", output, std::nullopt, root);
  alive().complete("scatter", [&](c10d::ProcessGroup& group) {
    return start_scatter(group, output, inputs, root, Caller::Waits);
  });
}
AsyncWork ProcessGroup::scatter_async(at::Tensor output, const std::vector<at::Tensor>& inputs,
                                      int root) {
  alive().compare("scatter", output, std::nullopt, root);
  return alive().begin("scatter", [&](c10d::ProcessGroup& group) {
    return start_scatter(group, output, inputs, root, Caller::GoesOn);
  });
}
void ProcessGroup::reduce_scatter(at::Tensor output, const std::vector<at::Tensor>& inputs,
                                  ReduceOp op) {
  alive().compare("reduce_scatter", output, op);
  alive().complete("reduce_scatter", [&](c10d::ProcessGroup& group) {
    return start_reduce_scatter(group, output, inputs, op, Caller::Waits);
  });
}
AsyncWork ProcessGroup::reduce_scatter_async(at::Tensor output,
                                             const std::vector<at::Tensor>& inputs, ReduceOp op) {
  alive().compare("reduce_scatter", output, op);
  return alive().begin("reduce_scatter", [&](c10d::ProcessGroup& group) {
    return start_reduce_scatter(group, output, inputs, op, Caller::GoesOn);
  });
}
void ProcessGroup::all_to_all(std::vector<at::Tensor> outputs,
                              const std::vector<at::Tensor>& inputs) {
  alive().compare("all_to_all", outputs, inputs);
  alive().complete("all_to_all", [&](c10d::ProcessGroup& group) {
    return start_all_to_all(group, outputs, inputs, Caller::Waits);
  });
}
AsyncWork ProcessGroup::all_to_all_async(std::vector<at::Tensor> outputs,
                                         const std::vector<at::Tensor>& inputs) {
  alive().compare("all_to_all", outputs, inputs);
  return alive().begin("all_to_all", [&](c10d::ProcessGroup& group) {
    return start_all_to_all(group, outputs, inputs, Caller::GoesOn);
  });
}
void ProcessGroup::send(const at::Tensor& tensor, int to, int tag) {
  alive().complete("send",
                   [&](c10d::ProcessGroup& group) { return start_send(group, tensor, to, tag); });
}
AsyncWork ProcessGroup::send_async(const at::Tensor& tensor, int to, int tag) {
  return alive().begin_message("send", tensor, [&](c10d::ProcessGroup& group) {
    return start_send(group, tensor, to, tag);
  });
}
void ProcessGroup::recv(at::Tensor tensor, int from, int tag) {
  alive().complete("recv",
                   [&](c10d::ProcessGroup& group) { return start_recv(group, tensor, from, tag); });
}
AsyncWork ProcessGroup::recv_async(at::Tensor tensor, int from, int tag) {
  return alive().begin_message("recv", tensor, [&](c10d::ProcessGroup& group) {
    return start_recv(group, tensor, from, tag);
  });
}

std::string ProcessGroup::broadcast_text(const std::string& text, int root) {
  if (world_size() == 1) return text;
  alive().compare("broadcast_text", root);
  return alive().run("broadcast",
                     [&](auto& group) { return ddp::broadcast_text(group, text, root); });
}
std::vector<std::string> ProcessGroup::all_gather_text(const std::string& text) {
  alive().compare("all_gather_text");
  return alive().run("all_gather", [&](auto& group) { return ddp::all_gather_text(group, text); });
}
std::vector<std::string> ProcessGroup::gather_text(const std::string& text, int root) {
  alive().compare("gather_text", root);
  return alive().run("gather", [&](auto& group) { return ddp::gather_text(group, text, root); });
}
std::string ProcessGroup::scatter_text(const std::vector<std::string>& texts, int root) {
  alive().compare("scatter_text", root);
  return alive().run("scatter", [&](auto& group) { return ddp::scatter_text(group, texts, root); });
}
void ProcessGroup::send_text(const std::string& text, int to, int tag) {
  alive().run("send", [&](auto& group) { ddp::send_text(group, text, to, tag); });
}
std::string ProcessGroup::recv_text(int from, int tag) {
  return alive().run("recv", [&](auto& group) { return ddp::recv_text(group, from, tag); });
}

void ProcessGroup::compare_call(const char* words) const {
  alive().compare(words);
}

void ProcessGroup::abort() {
  guarded("abort", [&] {
    const GroupConnections& connections = alive().connections;
    if (connections.shm) connections.shm->abort();
    if (connections.nccl) abort_backend(*connections.nccl);
    if (connections.shm || connections.nccl) return;
    throw DdpError("Gloo cannot end what is under way; end the process, which its peers hear of");
  });
}

void ProcessGroup::throw_first_problem(const std::string& problem) {
  alive().compare("throw_first_problem");
  const std::string first = alive().run("throw_first_problem", [&](c10d::ProcessGroup& group) {
    return first_problem(group, problem);
  });
  if (!first.empty()) throw DdpError(first);
}

ProcessGroup init_process_group(const ProcessGroupOptions& options) {
  worker::WorkerEnv env = value_or_throw(worker::worker_env_from(environment_variable));
  // LibTorch's own pools do not all follow the variable.
  if (auto threads = environment_variable("OMP_NUM_THREADS")) {
    if (std::optional<int> count = parse_count(*threads, 4096)) at::set_num_threads(*count);
  }
  return init_process_group(options, env);
}

int gpu_count() {
  return why_no_gpu().empty() ? load_nccl().gpu_count() : 0;
}

std::vector<at::Device> gpus_of_worker(int count) {
  const worker::WorkerEnv env = value_or_throw(worker::worker_env_from(environment_variable));
  return gpus_for_each(count, env.local_rank, env.local_world_size, gpu_count());
}

ProcessGroup init_process_group(const ProcessGroupOptions& options, const worker::WorkerEnv& env) {
  check_loaded_torch();
  auto impl = std::make_shared<ProcessGroup::Impl>();
  impl->plan = {.env = env,
                .backend = known_backend(options.backend.value_or(
                    environment_variable("DDPRUN_BACKEND").value_or("auto"))),
                .devices = options.devices,
                .timeout = timeout_of(options.timeout),
                .name = options.name,
                .variable = environment_variable,
                .check_collectives = checks_collectives(options.check_collectives)};
  ignore_broken_pipes();
  if (!options.devices.empty() && impl->plan.backend != "nccl") {
    throw DdpError("devices are for the backend 'nccl', and this one is '" + impl->plan.backend +
                   "'");
  }
  GroupConnections& connections = impl->connections;
  guarded("init_process_group", [&] {
    // A prefix for each attempt, because torchrun keeps its store over a restart, and one for each
    // group that takes the name again, so that none finds the keys of an earlier one.
    auto store = c10::make_intrusive<c10d::PrefixStore>(
        "ddprun/attempt_" + std::to_string(env.restart_count) + "/" + options.name,
        connect_store(env, impl->plan.timeout));
    connections.liveness = open_liveness_socket(env);
    connections.store = c10::make_intrusive<c10d::PrefixStore>(
        join_generation(*store, env.rank, env.world_size, impl->plan.timeout), store);
    impl->connect();
  });
  return ProcessGroup(std::move(impl));
}

std::optional<ProcessGroup> ProcessGroup::new_group(const std::vector<int>& ranks,
                                                    const SubgroupOptions& options) {
  const std::vector<int> members = agreed_members(*this, ranks);
  const std::uint64_t number = alive().subgroup_count++;
  auto impl = std::make_shared<Impl>();
  impl->plan = alive().plan;
  impl->plan.env.local_world_size = ranks_of_node(*this, members);
  const auto place = std::find(members.begin(), members.end(), rank());
  if (place == members.end()) return std::nullopt;

  impl->plan.env.rank = static_cast<int>(place - members.begin());
  impl->plan.env.world_size = static_cast<int>(members.size());
  impl->plan.name += "/subgroup_" + std::to_string(number);
  if (options.backend) impl->plan.backend = known_backend(*options.backend);
  if (options.timeout) impl->plan.timeout = *options.timeout;
  impl->device = device();
  impl->host = store();
  GroupConnections& connections = impl->connections;
  guarded("new_group", [&] {
    connections.store = c10::make_intrusive<c10d::PrefixStore>("subgroup_" + std::to_string(number),
                                                               another_connection(store()));
    connections.liveness = open_liveness_socket(env());
    impl->connect();
  });
  return ProcessGroup(std::move(impl));
}

ProcessGroup adopt_process_group(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                 const AdoptOptions& options) {
  check_loaded_torch();
  if (!group) throw DdpError("adopt_process_group needs a group, and was given none");
  auto impl = std::make_shared<ProcessGroup::Impl>();
  GroupPlan& plan = impl->plan;
  plan.env.rank = group->getRank();
  plan.env.world_size = group->getSize();
  plan.backend = "auto";
  plan.timeout = timeout_of(options.timeout);
  plan.name = "adopted";
  plan.variable = environment_variable;
  plan.check_collectives = checks_collectives(std::nullopt);
  impl->device = options.device;
  GroupConnections& connections = impl->connections;
  guarded("adopt_process_group", [&] {
    const c10::intrusive_ptr<c10d::Store> given = options.store ? options.store : store_of(group);
    if (!given) throw DdpError("the group has no store of its own: give one, in AdoptOptions");
    if (!has_backend_for_cpu(*group)) throw DdpError("the group has no backend for CPU tensors");
    const auto store = c10::make_intrusive<c10d::PrefixStore>("ddprun", given);
    connections.store = c10::make_intrusive<c10d::PrefixStore>(
        join_generation(*store, plan.env.rank, plan.env.world_size, plan.timeout), store);
    connections.peer_failures = std::make_shared<PeerFailures>(connections.store, plan.env.rank,
                                                               plan.env.world_size, plan.timeout);
    connections.cpu_backend = group->getBackend(c10::DeviceType::CPU)->getBackendName();
    connections.group = std::move(group);
    if (plan.check_collectives) CallCheck::ask(*connections.store);
    store_barrier(*connections.store, "adopted", plan.env.rank, plan.env.world_size, plan.timeout);
    impl->agree_on_call_check();
  });
  return ProcessGroup(std::move(impl));
}

}  // namespace ddprun::ddp
