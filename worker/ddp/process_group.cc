// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/process_group.h"

#include <ATen/Parallel.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "store/base/number.h"
#include "worker/ddp/dense_copy.h"
#include "worker/ddp/diagnosing_group.h"
#include "worker/ddp/liveness.h"
#include "worker/ddp/local_address.h"
#include "worker/ddp/nccl_backend.h"
#include "worker/ddp/peer_failures.h"
#include "worker/ddp/shm_backend.h"
#include "worker/ddp/shm_connect.h"
#include "worker/ddp/store_barrier.h"
#include "worker/ddp/text_collectives.h"
#include "worker/ddp/torch_check.h"

namespace ddprun::ddp {
namespace {

constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(30);

// Ranks of one launcher start within this of each other, if they start at all.
constexpr std::chrono::milliseconds kStartOfRankZero = std::chrono::seconds(5);

std::optional<std::string> variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

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

std::chrono::milliseconds timeout_of(const ProcessGroupOptions& options) {
  if (options.timeout) return *options.timeout;
  std::optional<std::string> text = variable("DDPRUN_TIMEOUT");
  if (!text) return kDefaultTimeout;
  constexpr int kMaxSeconds = 1'000'000;
  std::optional<int> seconds = parse_count(*text, kMaxSeconds);
  if (!seconds) {
    throw DdpError("DDPRUN_TIMEOUT='" + *text + "' is not a number of seconds from 1 to " +
                   std::to_string(kMaxSeconds));
  }
  return std::chrono::seconds(*seconds);
}

std::string backend_of(const ProcessGroupOptions& options) {
  const std::string backend = options.backend.value_or(variable("DDPRUN_BACKEND").value_or("auto"));
  for (const char* known : {"auto", "shm", "gloo", "nccl"}) {
    if (backend == known) return backend;
  }
  throw DdpError("the backend '" + backend +
                 "' is not known: 'auto', 'shm', 'gloo' and 'nccl' are accepted");
}

// Shared memory where all ranks can have it and want it; nullptr where Gloo stands alone.
c10::intrusive_ptr<shm::Backend> make_shm_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const worker::WorkerEnv& env,
                                                  const std::string& backend,
                                                  c10::intrusive_ptr<c10d::Backend> gloo,
                                                  std::chrono::milliseconds timeout) {
  const bool wants_shm = backend == "auto" || backend == "shm";
  shm::Connection connection = shm::connect(*store, env.rank, env.world_size, wants_shm, timeout);
  if (connection.channel) {
    return c10::make_intrusive<shm::Backend>(std::move(connection.channel), std::move(gloo),
                                             timeout);
  }
  if (backend == "auto" && env.rank == 0 && env.local_world_size == env.world_size) {
    std::cerr
        << "ddprun: no shared memory between the ranks of this node, CPU tensors go over Gloo: "
        << connection.refusal << std::endl;
  }
  if (backend != "shm") return nullptr;
  throw DdpError("the backend 'shm' cannot be had: " + connection.refusal);
}

// The worker store: the agent's where it hosts one, else rank 0's own.
c10::intrusive_ptr<c10d::Store> connect_store(const worker::WorkerEnv& env,
                                              std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = env.master.port;
  options.isServer = env.rank == 0 && !env.use_agent_store;
  options.waitWorkers = false;  // join_generation() waits, and can name the missing ranks
  options.multiTenant = options.isServer;
  options.timeout = timeout;
  // c10d's client, once refused, pauses for up to a second.  If the listener does not come up in
  // time, that client reports it: it knows the time-out.
  if (!options.isServer && !env.use_agent_store) {
    wait_for_listener(env.master.host, env.master.port, std::min(timeout, kStartOfRankZero));
  }
  return c10::make_intrusive<c10d::TCPStore>(env.master.host, options);
}

// The interfaces that the user names; else the one that leads to the master, which the other ranks
// reach as well; else, where that would be loopback though ranks are on other machines, what the
// machine's own name resolves to.
std::vector<std::shared_ptr<gloo::transport::Device>> gloo_devices(const worker::WorkerEnv& env) {
  using c10d::ProcessGroupGloo;
  std::vector<std::shared_ptr<gloo::transport::Device>> devices;
  std::string names = variable("GLOO_SOCKET_IFNAME").value_or("");
  for (std::size_t begin = 0; begin < names.size();) {
    std::size_t end = std::min(names.find(',', begin), names.size());
    if (end > begin) {
      devices.push_back(
          ProcessGroupGloo::createDeviceForInterface(names.substr(begin, end - begin)));
    }
    begin = end + 1;
  }
  if (!devices.empty()) return devices;
  std::string address = local_address_towards(env.master.host, env.master.port);
  bool is_one_machine = env.local_world_size == env.world_size;
  if (address.empty() ||
      (is_loopback_host(address) && !is_one_machine && !is_loopback_host(env.master.host))) {
    return {ProcessGroupGloo::createDefaultDevice()};
  }
  return {ProcessGroupGloo::createDeviceForHostname(address)};
}

// The liveness socket at the address that the other ranks reach; nullptr if it cannot be opened.
std::unique_ptr<LivenessSocket> open_liveness_socket(const worker::WorkerEnv& env) {
  Result<std::unique_ptr<LivenessSocket>> opened =
      LivenessSocket::open(local_address_towards(env.master.host, env.master.port));
  return opened ? std::move(*opened) : nullptr;
}

// This rank's GPUs.  If they cannot be had on one rank, or the ranks have different numbers of
// them, every rank throws: NCCL would wait for the others until the time-out.
std::vector<at::Device> agreed_gpus(c10d::ProcessGroup& group, const ProcessGroupOptions& options,
                                    const worker::WorkerEnv& env) {
  std::vector<at::Device> gpus;
  std::string problem;
  try {
    const std::optional<std::string> visible = variable("CUDA_VISIBLE_DEVICES");
    require_gpu(visible);
    gpus = gpus_of(options.devices, env.local_rank, load_nccl().gpu_count(), visible);
  } catch (const DdpError& error) {
    problem = error.what();
  }
  const std::string count = std::to_string(gpus.size());
  const std::string wanted = broadcast_text(group, count, 0);
  if (problem.empty() && count != wanted) {
    problem = "rank " + std::to_string(env.rank) + " has " + count + " devices and rank 0 " +
              wanted + ": each rank must have as many";
  }
  problem = first_problem(group, problem);
  if (!problem.empty()) throw DdpError(problem);
  return gpus;
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
  worker::WorkerEnv env;
  std::chrono::milliseconds timeout;
  c10::intrusive_ptr<c10d::Store> store;  // this round's and this group's part of the worker store
  std::shared_ptr<PeerFailures> peer_failures;
  std::string cpu_backend;
  c10::intrusive_ptr<shm::Backend> shm;    // null where Gloo stands alone
  c10::intrusive_ptr<c10d::Backend> nccl;  // null without it
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  // Before Gloo's connections in the order of closing: here as the last member, and at the end of
  // the process, which closes files in the order of their numbers, as the first to be opened.
  std::unique_ptr<LivenessSocket> liveness;
  at::Device device = at::kCPU;
  std::uint64_t barrier_count = 0;
};

namespace {

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

const worker::WorkerEnv& ProcessGroup::env() const {
  return impl_->env;
}
const c10::intrusive_ptr<c10d::ProcessGroup>& ProcessGroup::c10d() const {
  return impl_->group;
}
const c10::intrusive_ptr<c10d::Store>& ProcessGroup::store() const {
  return impl_->store;
}

at::Device ProcessGroup::device() const {
  return impl_->device;
}
const std::string& ProcessGroup::cpu_backend() const {
  return impl_->cpu_backend;
}
PeerFailures& ProcessGroup::peer_failures() const {
  return *impl_->peer_failures;
}

void ProcessGroup::barrier() {
  std::string prefix = "barrier/" + std::to_string(impl_->barrier_count);
  guarded("barrier", [&] {
    impl_->peer_failures->check_collective();
    store_barrier(*impl_->store, prefix, rank(), world_size(), impl_->timeout);
    // A rank that is here has left the barrier before this one, so that one's keys can go.
    if (impl_->barrier_count > 0) {
      clear_store_barrier(*impl_->store, "barrier/" + std::to_string(impl_->barrier_count - 1),
                          rank());
    }
  });
  ++impl_->barrier_count;
}

void ProcessGroup::all_reduce(at::Tensor tensor) {
  diagnosed("all_reduce", *impl_->peer_failures, [&] {
    std::vector<at::Tensor> tensors{dense_of(tensor)};
    impl_->group->allreduce(tensors, waited_for<c10d::AllreduceOptions>())->wait();
    copy_back(tensors[0], tensor);
  });
}

void ProcessGroup::broadcast(at::Tensor tensor, int root) {
  diagnosed("broadcast", *impl_->peer_failures, [&] {
    std::vector<at::Tensor> tensors{dense_of(tensor)};
    auto options = waited_for<c10d::BroadcastOptions>();
    options.rootRank = root;
    impl_->group->broadcast(tensors, options)->wait();
    if (root != rank()) copy_back(tensors[0], tensor);
  });
}

void ProcessGroup::broadcast(std::vector<at::Tensor> tensors, int root) {
  if (tensors.empty() || world_size() == 1) return;
  diagnosed("broadcast", *impl_->peer_failures,
            [&] { c10d::broadcast_coalesced(impl_->group, tensors, kCoalesceBytes, root); });
}

std::vector<at::Tensor> ProcessGroup::all_gather(const at::Tensor& tensor) {
  return diagnosed("all_gather", *impl_->peer_failures,
                   [&] { return ddp::all_gather(*impl_->group, tensor); });
}

std::string ProcessGroup::broadcast_text(const std::string& text, int root) {
  if (world_size() == 1) return text;
  return diagnosed("broadcast", *impl_->peer_failures,
                   [&] { return ddp::broadcast_text(*impl_->group, text, root); });
}

void ProcessGroup::abort() {
  guarded("abort", [&] {
    if (impl_->shm) impl_->shm->abort();
    if (impl_->nccl) abort_backend(*impl_->nccl);
    if (impl_->shm || impl_->nccl) return;
    throw DdpError("Gloo cannot end what is under way; end the process, which its peers hear of");
  });
}

void ProcessGroup::throw_first_problem(const std::string& problem) {
  const std::string first = diagnosed("throw_first_problem", *impl_->peer_failures,
                                      [&] { return first_problem(*impl_->group, problem); });
  if (!first.empty()) throw DdpError(first);
}

ProcessGroup init_process_group(const ProcessGroupOptions& options) {
  worker::WorkerEnv env = value_or_throw(worker::worker_env_from(variable));
  // LibTorch's own pools do not all follow the variable.
  if (auto threads = variable("OMP_NUM_THREADS")) {
    if (std::optional<int> count = parse_count(*threads, 4096)) at::set_num_threads(*count);
  }
  return init_process_group(options, env);
}

int gpu_count() {
  return why_no_gpu().empty() ? load_nccl().gpu_count() : 0;
}

std::vector<at::Device> gpus_of_worker(int count) {
  const worker::WorkerEnv env = value_or_throw(worker::worker_env_from(variable));
  return gpus_for_each(count, env.local_rank, env.local_world_size, gpu_count());
}

ProcessGroup init_process_group(const ProcessGroupOptions& options, const worker::WorkerEnv& env) {
  check_loaded_torch();
  const std::string backend = backend_of(options);
  ignore_broken_pipes();
  auto impl = std::make_shared<ProcessGroup::Impl>();
  impl->env = env;
  impl->timeout = timeout_of(options);
  if (!options.devices.empty() && backend != "nccl") {
    throw DdpError("devices are for the backend 'nccl', and this one is '" + backend + "'");
  }
  guarded("init_process_group", [&] {
    // A prefix for each attempt, because torchrun keeps its store over a restart, and one for each
    // group that takes the name again, so that none finds the keys of an earlier one.
    auto store = c10::make_intrusive<c10d::PrefixStore>(
        "ddprun/attempt_" + std::to_string(env.restart_count) + "/" + options.name,
        connect_store(env, impl->timeout));
    impl->liveness = open_liveness_socket(env);
    impl->store = c10::make_intrusive<c10d::PrefixStore>(
        join_generation(*store, env.rank, env.world_size, impl->timeout), store);
    impl->peer_failures =
        std::make_shared<PeerFailures>(impl->store, env.rank, env.world_size, impl->timeout);

    auto gloo_options = c10d::ProcessGroupGloo::Options::create(impl->timeout);
    gloo_options->devices = gloo_devices(env);
    c10::intrusive_ptr<c10d::Backend> gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", impl->store), env.rank, env.world_size,
        gloo_options);
    impl->group = make_diagnosing_group(impl->store, impl->peer_failures, env.rank, env.world_size);
    impl->shm = make_shm_backend(c10::make_intrusive<c10d::PrefixStore>("shm", impl->store), env,
                                 backend, gloo, impl->timeout);
    const auto type =
        impl->shm ? c10d::ProcessGroup::BackendType::CUSTOM : c10d::ProcessGroup::BackendType::GLOO;
    impl->cpu_backend = impl->shm ? "shm" : "gloo";
    impl->group->setDefaultBackend(type);
    if (impl->shm) {
      impl->group->setBackend(c10::DeviceType::CPU, type, impl->shm);
      impl->liveness = nullptr;  // shared memory has a watch of its own
    } else {
      impl->group->setBackend(c10::DeviceType::CPU, type, gloo);
      impl->peer_failures->use_liveness(impl->liveness ? &impl->liveness->endpoint() : nullptr);
    }
    if (backend == "nccl") {
      const std::vector<at::Device> gpus = agreed_gpus(*impl->group, options, env);
      impl->nccl = make_nccl_backend(load_nccl(),
                                     c10::make_intrusive<c10d::PrefixStore>("nccl", impl->store),
                                     env.rank, env.world_size, gpus, impl->timeout);
      impl->device = gpus[0];
      impl->group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL,
                              impl->nccl);
    }
    impl->group->setGroupName(options.name);
  });
  return ProcessGroup(std::move(impl));
}

}  // namespace ddprun::ddp
