// SPDX-License-Identifier: BSD-3-Clause
//
// Options + environment + machine -> validated configs.  Everything a user can get wrong is found
// here, before anything starts, and refused in one line that names the option, the value and what
// is accepted.  What this version cannot do is refused here, never accepted and ignored.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/decide/config.h"
#include "cli/config/numa.h"
#include "cli/options/options.h"
#include "rendezvous/decide/network_config.h"
#include "rendezvous/decide/page_port_config.h"
#include "rendezvous/decide/ranks.h"
#include "rendezvous/decide/worker_store_access.h"
#include "store/auth/secret.h"
#include "store/base/endpoint.h"
#include "store/base/error.h"

namespace ddprun::cli {

// Folder: one that Python cannot run; Native: an ELF file.
enum class FileKind { Missing, Folder, Native, Other };

// What must be known of the machine, asked only if it matters.
struct Machine {
  std::function<int()> cpu_count;  // CPUs this process may run on
  std::function<int()> gpu_count;  // GPUs visible to it
  // CPUs, caches and NUMA nodes.  Fails with the file that could not be read.
  std::function<Result<Topology>()> topology;
  std::function<std::string()> hostname;
  // The address of an interface at which others reach this machine, if `name`, which they use, is
  // not known here.  Empty if the name is known, or no interface has an address.
  std::function<std::string(const std::string& name)> address_instead_of;
  std::function<bool(const std::string& host)> resolves;  // into an address
  // Whether this address, or what this name is resolved into, is of an interface of this machine.
  std::function<bool(const std::string& host)> is_here;
  // Whether this process can listen at a numeric address, or at localhost; fails with the system's
  // code.
  std::function<Result<void>(const std::string& host)> can_listen;
  // A numeric address by which others reach this machine, as far as can be seen here: that of its
  // name, or of the way to other networks.  127.0.0.1 where there is no other.
  std::function<std::string()> own_address;
  // Whether it can be written down in this folder who hosts a run.  Fails with one sentence: with
  // Errc::InvalidInput where it is the wrong folder, and otherwise where it may be away for a
  // while.
  std::function<Result<void>(const std::string& path)> host_folder;
  std::function<std::string()> random_id;
  std::function<FileKind(const std::string& path)> file_kind;
  // nullopt where it cannot be read.
  std::function<std::optional<std::string>(const std::string& path)> file_text;
  // As Secret::from_file().
  std::function<Result<store::Secret>(const std::string& path, const std::string& what)>
      secret_file;
  // As store::password_from_file().
  std::function<Result<std::string>(const std::string& path, const std::string& what)>
      password_file;
  // Resolves a program's name through PATH.
  std::function<Result<std::string>(const std::string& name)> find_program;
  // The python3 of the environment (venv, conda) that ddprun itself is installed in; empty if it is
  // in none.
  std::function<std::string()> own_python;
};

struct LaunchConfig {
  agent::AgentConfig agent;
  rendezvous::Participant self;
  int max_restarts = 0;  // failures that the run survives
  // The rendezvous of several nodes; not set for one.
  std::optional<rendezvous::NetworkConfig> network{};
  // With one node: MASTER_ADDR and MASTER_PORT of the workers; port 0: a free one each round.
  Endpoint master{};
  rendezvous::WorkerStoreAccess worker_store{};
  // Likewise: where its pages are; none if not set.
  std::optional<rendezvous::PagePortConfig> page{};
  std::string log_level = "info";     // spdlog's names
  std::string event_log;              // "console", "jsonl:PATH", or empty for none
  std::vector<std::string> notes;     // what the user should know, one line each
  std::vector<std::string> warnings;  // likewise, and it is likely to be wrong
  // Why this node of several cannot run workers.  Only the rendezvous is used then, to report it to
  // the other nodes.
  std::string preflight_failure{};
  // With --dry-run: what to print instead of running.
  std::optional<std::string> dry_run{};
};

// Fails with Errc::InvalidInput or Errc::NotSupported and one line.
Result<LaunchConfig> launch_config(const Options& options,
                                   std::map<std::string, std::string, std::less<>> environment,
                                   const Machine& machine);

}  // namespace ddprun::cli
