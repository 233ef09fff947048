// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/group_connections.h"

#include <exception>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "worker/ddp/diagnosing_group.h"
#include "worker/ddp/dropped_messages.h"
#include "worker/ddp/error.h"
#include "worker/ddp/liveness.h"
#include "worker/ddp/local_address.h"
#include "worker/ddp/nccl_backend.h"
#include "worker/ddp/peer_failures.h"
#include "worker/ddp/shm_backend.h"
#include "worker/ddp/shm_connect.h"
#include "worker/ddp/store_probe.h"
#include "worker/ddp/text_collectives.h"
#include "worker/shm/decide/format.h"

namespace ddprun::ddp {
namespace {

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

// The interfaces that the user names; else the one that leads to the master, which the other ranks
// reach as well; else, where that would be loopback though ranks are on other machines, what the
// machine's own name resolves to.
std::vector<std::shared_ptr<gloo::transport::Device>> gloo_devices(const worker::WorkerEnv& env,
                                                                   const worker::Lookup& variable) {
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

// This rank's GPUs.  If they cannot be had on one rank, or the ranks have different numbers of
// them, every rank throws: NCCL would wait for the others until the time-out.
std::vector<at::Device> agreed_gpus(c10d::ProcessGroup& group, const GroupPlan& plan) {
  const worker::WorkerEnv& env = plan.env;
  std::vector<at::Device> gpus;
  std::string problem;
  try {
    const std::optional<std::string> visible = plan.variable("CUDA_VISIBLE_DEVICES");
    require_gpu(visible);
    gpus = gpus_of(plan.devices, env.local_rank, load_nccl().gpu_count(), visible);
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

// A template, so that a LibTorch without Store::clone() compiles it.
template <class Store>
c10::intrusive_ptr<Store> clone_of(const c10::intrusive_ptr<Store>& store) {
  if constexpr (requires { store->clone(); }) {
    return store->clone();
  } else {
    return store;
  }
}

// The server in rank 0 lasts as long as the process.  Else a rank that makes its next group while
// rank 0 still closes the one before would join it at a server that goes with that one, and rank 0
// would wait for it at the next.
void keep_server(std::uint16_t port, const c10::intrusive_ptr<c10d::Store>& store) {
  static std::mutex mutex;
  static auto& servers = *new std::map<std::uint16_t, c10::intrusive_ptr<c10d::Store>>;
  std::scoped_lock lock(mutex);
  servers.try_emplace(port, store);
}

// Waits for what the GPUs still do, and closes.  A template, so that a LibTorch without
// Backend::shutdown() compiles it.
template <class Backend>
void shut_down(Backend& backend) {
  if constexpr (requires { backend.shutdown(); }) {
    try {
      backend.shutdown();
    } catch (const std::exception&) {
      // An error of the collectives before, which the program has had.
    }
  }
}

}  // namespace

GroupConnections::GroupConnections() : dropped(std::make_shared<DroppedMessages>()) {}
GroupConnections::~GroupConnections() {
  if (::getpid() != owner) {
    // A child that was forked: its end is none of the rank's, and the threads are not here.
    static_cast<void>(new GroupConnections(std::move(*this)));
    return;
  }
  // While an error unwinds the stack, other ranks may not come to what would be waited for.
  if (dropped) dropped->end(/*waits=*/std::uncaught_exceptions() == 0);
  if (nccl && std::uncaught_exceptions() == 0) shut_down(*nccl);
}
GroupConnections::GroupConnections(GroupConnections&&) noexcept = default;
GroupConnections& GroupConnections::operator=(GroupConnections&&) noexcept = default;

c10::intrusive_ptr<c10d::Store> connect_store(const worker::WorkerEnv& env,
                                              std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = env.master.port;
  options.isServer = env.rank == 0 && !env.use_agent_store;
  options.waitWorkers = false;  // join_generation() waits, and can name the missing ranks
  options.multiTenant = options.isServer;
  options.timeout = timeout;
  // c10d's client, once refused, pauses for up to a second, and does not end when its time is over.
  if (!options.isServer && !env.use_agent_store) {
    std::string why = why_no_store(env.master.host, env.master.port, timeout);
    if (!why.empty()) {
      throw DdpError("rank 0 did not come within " + format_seconds(timeout) +
                     ", whose store is at " + to_string(env.master) + ": " + why);
    }
  }
  auto store = c10::make_intrusive<c10d::TCPStore>(env.master.host, options);
  if (options.isServer) keep_server(env.master.port, store);
  return store;
}

std::unique_ptr<LivenessSocket> open_liveness_socket(const worker::WorkerEnv& env) {
  Result<std::unique_ptr<LivenessSocket>> opened =
      LivenessSocket::open(local_address_towards(env.master.host, env.master.port));
  return opened ? std::move(*opened) : nullptr;
}

c10::intrusive_ptr<c10d::Store> another_connection(const c10::intrusive_ptr<c10d::Store>& store) {
  return clone_of(store);
}

void connect_group(GroupConnections& connections, const GroupPlan& plan) {
  const worker::WorkerEnv& env = plan.env;
  const c10::intrusive_ptr<c10d::Store>& store = connections.store;
  connections.peer_failures =
      std::make_shared<PeerFailures>(store, env.rank, env.world_size, plan.timeout);
  connections.peer_failures->use_liveness(connections.liveness ? &connections.liveness->endpoint()
                                                               : nullptr);

  auto gloo_options = c10d::ProcessGroupGloo::Options::create(plan.timeout);
  gloo_options->devices = gloo_devices(env, plan.variable);
  c10::intrusive_ptr<c10d::Backend> gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("gloo", store), env.rank, env.world_size,
      gloo_options);
  connections.group =
      make_diagnosing_group(store, connections.peer_failures, env.rank, env.world_size);
  connections.shm = make_shm_backend(c10::make_intrusive<c10d::PrefixStore>("shm", store), env,
                                     plan.backend, gloo, plan.timeout);
  const auto type = connections.shm ? c10d::ProcessGroup::BackendType::CUSTOM
                                    : c10d::ProcessGroup::BackendType::GLOO;
  connections.cpu_backend = connections.shm ? "shm" : "gloo";
  connections.group->setDefaultBackend(type);
  if (connections.shm) {
    connections.group->setBackend(c10::DeviceType::CPU, type, connections.shm);
  } else {
    connections.group->setBackend(c10::DeviceType::CPU, type, gloo);
  }
  if (plan.backend == "nccl") {
    connections.gpus = agreed_gpus(*connections.group, plan);
    connections.nccl =
        make_nccl_backend(load_nccl(), c10::make_intrusive<c10d::PrefixStore>("nccl", store),
                          env.rank, env.world_size, connections.gpus, plan.timeout);
    connections.group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL,
                                  connections.nccl);
  }
  connections.group->setGroupName(plan.name);
}

}  // namespace ddprun::ddp
