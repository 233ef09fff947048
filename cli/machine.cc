// SPDX-License-Identifier: BSD-3-Clause
#include "cli/machine.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cli/topology.h"
#include "rendezvous/host_files.h"
#include "store/base/count.h"
#include "store/base/endpoint.h"
#include "store/base/fd.h"
#include "store/base/signal_mask.h"
#include "store/base/text.h"
#include "store/detached_call.h"
#include "store/event.h"
#include "store/socket.h"
#include "worker/process/spawn.h"
#include "worker/process/text_file.h"

namespace ddprun::cli {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;

// The affinity mask, so that taskset and a batch system's limits are honoured.
std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  for (std::size_t capacity = 1024; capacity <= 1024 * 1024; capacity *= 2) {
    std::vector<cpu_set_t> mask(capacity / CPU_SETSIZE);
    std::size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, mask.data()) != 0) continue;  // more CPUs than it can hold
    for (std::size_t cpu = 0; cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask.data())) cpus.push_back(static_cast<int>(cpu));
    }
    break;
  }
  return cpus;
}

int cpu_count() {
  return std::max(1, static_cast<int>(allowed_cpus().size()));
}

std::optional<std::string> visible_devices(const Environment& environment) {
  auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  if (visible == environment.end()) return std::nullopt;
  return visible->second;
}

std::string hostname() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  std::string full(name.data());
  std::string host = printable(full.substr(0, full.find('.')));  // other nodes are to read it
  return host.empty() ? "localhost" : host;
}

bool resolves(const std::string& host) {
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  ::freeaddrinfo(found);
  return true;
}

std::string address_instead_of(const std::string& name) {
  if (resolves(name)) return "";
  for (const std::string& address : store::own_addresses()) {
    bool is_local = is_loopback_host(address) || address.starts_with("fe80:");
    if (!is_local) return address;
  }
  return "";
}

// The address from which this machine reaches others by its default route; nothing is sent.
std::string address_of_route() {
  Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(9);
  ::inet_pton(AF_INET, "192.0.2.1", &there.sin_addr);  // of nobody
  sockaddr_in here{};
  socklen_t size = sizeof here;
  char text[INET_ADDRSTRLEN] = {};
  bool is_known =
      socket &&
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0 &&
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &size) == 0 &&
      ::inet_ntop(AF_INET, &here.sin_addr, text, sizeof text) != nullptr;
  return is_known ? text : "";
}

// What a name is resolved into.
std::vector<std::string> addresses_of(const std::string& host) {
  std::vector<std::string> addresses;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    char text[NI_MAXHOST] = {};
    if (::getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof text, nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text);
    }
  }
  ::freeaddrinfo(found);
  return addresses;
}

bool is_here(const std::string& host) {
  const std::vector<std::string> own = store::own_addresses();
  return std::ranges::any_of(addresses_of(host), [&own](std::string address) {
    address.resize(std::min(address.find('%'), address.size()));  // the zone
    return is_loopback_host(address) || std::ranges::find(own, address) != own.end();
  });
}

Result<void> can_listen(const std::string& host) {
  Result<Fd> bound = store::bind_on({.host = host, .port = 0});
  return bound ? Result<void>() : Result<void>(bound.error());
}

std::string own_address() {
  std::vector<std::string> others;  // may reach these
  for (const std::string& address : store::own_addresses()) {
    bool is_local = is_loopback_host(address) || address.starts_with("fe80:");
    if (!is_local) others.push_back(address);
  }
  for (const std::string& address : addresses_of(hostname())) {
    if (std::ranges::find(others, address) != others.end()) return address;
  }
  std::string of_route = address_of_route();
  if (std::ranges::find(others, of_route) != others.end()) return of_route;
  return others.empty() ? "127.0.0.1" : others.front();
}

// A random UUID (version 4), as torchrun gives to a standalone run.
std::string random_id() {
  std::random_device random;
  std::string digits;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) digits += '-';
    unsigned value = random() % 16;
    if (i == 12) value = 4;
    if (i == 16) value = 8 + value % 4;
    digits += "0123456789abcdef"[value];
  }
  return digits;
}

FileKind file_kind(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return FileKind::Missing;
  if (fs::is_directory(path, error) && !fs::exists(path + "/__main__.py", error))
    return FileKind::Folder;
  // What is read of a pipe (`... | ddprun /dev/stdin`) would be missing in the script.
  if (!fs::is_regular_file(path, error)) return FileKind::Other;
  std::array<char, 4> magic{};
  std::ifstream file(path, std::ios::binary);
  file.read(magic.data(), magic.size());
  return file && magic == std::array<char, 4>{'\x7f', 'E', 'L', 'F'} ? FileKind::Native
                                                                     : FileKind::Other;
}

// As torchrun, which is a script of the environment that it is installed in, also where that is not
// activated.
std::string own_python() {
  std::error_code error;
  fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return "";
  for (const char* mark : {"pyvenv.cfg", "conda-meta"}) {
    if (fs::exists(bin.parent_path() / mark, error)) return bin / "python3";
  }
  return "";
}

}  // namespace

Environment read_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string text = *entry;
    auto equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

namespace {

// The agent's descriptors for one stream of a worker: a pipe, a log file.
rlim_t of_stream(agent::StreamRoute route, bool is_kept) {
  switch (route) {
    case agent::StreamRoute::Inherit:
      return is_kept ? 1 : 0;
    case agent::StreamRoute::Discard:
    case agent::StreamRoute::File:
      return 1;
    case agent::StreamRoute::FileAndConsole:
      return 2;
  }
  return 0;
}

// The rendezvous goes on looking where this has no answer, and says so.
constexpr Duration kFolderPatience = std::chrono::seconds(2);

Result<void> check_host_folder(const std::string& path) {
  using namespace asio::experimental::awaitable_operators;
  asio::io_context loop(1);
  Result<void> checked = Error{Errc::TimedOut, "the folder " + path + " does not answer"};
  std::function<Result<void>()> work = [path] { return rendezvous::check_host_folder(path); };
  asio::steady_timer timer(loop, kFolderPatience);
  asio::co_spawn(
      loop, store::call_detached(loop.get_executor(), std::move(work)) || store::wait_for(timer),
      [&](std::exception_ptr error, auto outcome) {
        if (error) std::rethrow_exception(error);  // a bug: nothing of ours throws
        if (outcome.index() == 0) checked = std::get<0>(std::move(outcome));
      });
  loop.run();
  return checked;
}

}  // namespace

Result<void> has_descriptors_for(const agent::WorkerGroupConfig& config) {
  constexpr rlim_t kOwn = 32;      // the loop, the store, the guardian, the logs, the rendezvous
  constexpr rlim_t kOfWorker = 2;  // its pidfd, and the report of its exec
  rlim_t needed = kOwn;
  for (const agent::WorkerRoutes& routes : config.routes) {
    needed += kOfWorker + of_stream(routes.out, false) + of_stream(routes.err, config.keeps_stderr);
  }
  auto workers = config.local_world_size;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return system_error(errno, "getrlimit");
  if (limit.rlim_max >= needed) return {};
  return Error{Errc::LimitExceeded,
               "this process may open no more than " + std::to_string(limit.rlim_max) +
                   " files (ulimit -n), and a run of " + count_of(workers, "worker") + " needs " +
                   std::to_string(needed)};
}

Result<void> has_threads_for_rendezvous() {
  constexpr int kNeeded = 4;  // the guardian, the look-up of a name, a disk, a worker
  std::promise<void> tried;
  std::shared_future<void> has_tried = tried.get_future().share();
  std::vector<std::thread> threads;
  bool is_enough = true;
  try {
    SignalsBlocked blocked;
    for (int i = 0; i < kNeeded; ++i) threads.emplace_back([has_tried] { has_tried.wait(); });
  } catch (const std::system_error&) {  // a limit of the user's
    is_enough = false;
  }
  tried.set_value();
  for (std::thread& thread : threads) thread.join();
  if (is_enough) return {};
  return Error{Errc::LimitExceeded,
               "this user may start " + std::to_string(threads.size()) +
                   " more threads and processes here, and a run of several nodes needs " +
                   std::to_string(kNeeded) +
                   "; allow more: ulimit -u, or the pids limit of the container or cgroup"};
}

Machine this_machine(const Environment& environment) {
  return {.cpu_count = cpu_count,
          .gpu_count =
              [&environment] {
                return static_cast<int>(visible_gpus("", visible_devices(environment)).size());
              },
          .topology =
              [&environment] {
                return read_topology("", allowed_cpus(), visible_devices(environment));
              },
          .hostname = hostname,
          .address_instead_of = address_instead_of,
          .resolves = resolves,
          .is_here = is_here,
          .can_listen = can_listen,
          .own_address = own_address,
          .host_folder = check_host_folder,
          .random_id = random_id,
          .file_kind = file_kind,
          .file_text = process::text_of_file,
          .secret_file = store::Secret::from_file,
          .password_file = store::password_from_file,
          .find_program =
              [&environment](const std::string& name) {
                auto path = environment.find("PATH");
                return process::find_program(
                    name, path == environment.end() ? "/usr/bin:/bin" : path->second);
              },
          .own_python = own_python};
}

}  // namespace ddprun::cli
