// SPDX-License-Identifier: BSD-3-Clause
#include "cli/options/option_table.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace ddprun::cli {
namespace {

constexpr const char* kNodes = "Nodes and workers";
constexpr const char* kRun = "What to run";
constexpr const char* kRendezvous = "Rendezvous";
constexpr const char* kFailures = "Failures and signals";
constexpr const char* kOutput = "Output and logs";
constexpr const char* kHelp = "Help";
constexpr const char* kNoEffect = "Accepted for torchrun's sake, without effect";
constexpr bool kOurs = true;
constexpr std::string_view kNoChoices;

// Every option of torch 2.15's torchrun, and ours.  The order is that of --help.
constexpr std::array kSpecs = {
    OptionSpec{"nnodes", 0, "N|MIN:MAX", true, kNodes,
               "Number of nodes, or the least and the most (default 1:1)"},
    OptionSpec{"nproc-per-node", 0, "N|auto|gpu|cpu", true, kNodes,
               "Workers on this node (default 1)", "auto|gpu|cpu"},
    OptionSpec{"role", 0, "NAME", true, kNodes,
               "Role of the workers, in ROLE_NAME and the line prefix (default 'default')"},
    OptionSpec{"node-rank", 0, "N", true, kNodes,
               "Rank of this node (static: default 0; c10d: by host name)"},
    OptionSpec{"virtual-local-rank", 0, nullptr, true, kNodes,
               "LOCAL_RANK=0 for every worker, and CUDA_VISIBLE_DEVICES with only its own GPU"},
    OptionSpec{"numa-binding", 0, "MODE", false, kNodes,
               "Binds each worker to CPUs near the GPU of its local rank: node (the GPU's NUMA "
               "node), socket, exclusive (a share of the node's cores), core-complex (the cores of "
               "one last-level cache)",
               "node|socket|exclusive|core-complex"},

    OptionSpec{"module", 'm', nullptr, true, kRun, "Run the script as 'python -u -m SCRIPT'"},
    OptionSpec{"run-path", 0, nullptr, true, kRun,
               "Run the script through runpy.run_path, as torchrun does in its own interpreter; "
               "wins over --module and --no-python"},
    OptionSpec{
        "no-python", 0, nullptr, true, kRun,
        "Run the program itself, not through python. Native programs are recognised without it"},

    OptionSpec{"standalone", 0, nullptr, true, kRendezvous,
               "One node, with a rendezvous of its own on a free port and a random run id"},
    OptionSpec{"rdzv-backend", 0, "static|c10d|etcd|etcd-v2", true, kRendezvous,
               "Rendezvous backend (default static). With etcd, of version 3.4 or newer, any agent "
               "hosts, and writes there who it is; etcd-v2 means the same",
               "static|c10d|etcd|etcd-v2"},
    OptionSpec{
        "rdzv-endpoint", 0, "HOST[:PORT][,...]|file:/PATH", true, kRendezvous,
        "Address of the rendezvous: the first agent there hosts it, or a ddpd runs there; of "
        "several, a ddpd at each, and the others stand in for one that is lost. static "
        "gives it to the workers as MASTER_ADDR and MASTER_PORT. With c10d also a folder that all "
        "nodes share: any agent hosts, and writes there who it is. etcd: its members (default "
        "localhost:2379). One node needs none"},
    OptionSpec{"rdzv-id", 0, "ID", true, kRendezvous,
               "Run id, in TORCHELASTIC_RUN_ID and the log folder (default 'none')"},
    OptionSpec{
        "rdzv-conf", 0, "K=V,...", true, kRendezvous,
        "join_timeout, last_call_timeout, keep_alive_interval, keep_alive_max_attempt, "
        "lease_grace, flap_limit, quorum, read_timeout, is_host; with etcd also protocol, cacert, "
        "cert, key, user, password_file, etcd_prefix; none matters with one node"},
    OptionSpec{"master-addr", 0, "HOST", true, kRendezvous,
               "static: MASTER_ADDR of the workers (default 127.0.0.1)"},
    OptionSpec{
        "master-port", 0, "PORT", true, kRendezvous,
        "static: MASTER_PORT of the workers (default 29500; with one node a free port in each "
        "round)"},
    OptionSpec{
        "local-addr", 0, "HOST", true, kRendezvous,
        "c10d, standalone: the address at which other nodes reach this one, hence MASTER_ADDR "
        "(default: the one that reaches the endpoint; 127.0.0.1 with one node)"},
    OptionSpec{
        "bind", 0, "ADDR", true, kRendezvous,
        "The address to listen on if this node hosts the rendezvous (default: all, or loopback "
        "if the endpoint is on loopback)",
        kNoChoices, kOurs},
    OptionSpec{"allow", 0, "CIDR,...", true, kRendezvous,
               "Whose connections to take if this node hosts the rendezvous (default: all)",
               kNoChoices, kOurs},
    OptionSpec{"rdzv-secret-file", 0, "PATH", true, kRendezvous,
               "A secret that all nodes of the run share: others cannot take part, and what the "
               "nodes send each other is encrypted (also: $DDPRUN_SECRET; default: none)",
               "<file>", kOurs},
    OptionSpec{"rdzv-auth", 0, "auto|secret|munge|none", true, kRendezvous,
               "How nodes know each other. auto (default): by the secret, if there is one, else by "
               "MUNGE where Slurm names the nodes and there is a munged, else not; secret, munge: "
               "there must be one; none: not at all",
               "auto|secret|munge|none", kOurs},
    OptionSpec{"rdzv-encrypt", 0, nullptr, true, kRendezvous,
               "Do not start unless what the nodes send each other is encrypted", kNoChoices,
               kOurs},
    OptionSpec{"worker-store-allow", 0, "CIDR,...|any", true, kRendezvous,
               "Which machines may connect to the workers' store beside the nodes of the round",
               "any", kOurs},
    OptionSpec{"allow-users", 0, nullptr, true, kRendezvous,
               "All users of this machine may connect to the workers' store (default: this user, "
               "root, and those that workers run as)",
               kNoChoices, kOurs},

    OptionSpec{"max-restarts", 0, "N", true, kFailures,
               "How often the workers are started again after a failure (default 0)"},
    OptionSpec{"shutdown-timeout", 0, "SECONDS", true, kFailures,
               "Grace between SIGTERM and SIGKILL, on every path (default "
               "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30)"},
    OptionSpec{
        "signals-to-handle", 0, "SIG,...", true, kFailures,
        "Signals that stop the run and are passed on (default SIGTERM,SIGINT,SIGHUP,SIGQUIT)"},

    OptionSpec{"signals-to-forward", 0, "SIG,...", true, kFailures,
               "Signals that go on to each worker, once, and stop nothing (default "
               "SIGUSR1,SIGUSR2; '' for none)",
               kNoChoices, kOurs},
    OptionSpec{"no-restart-exit-codes", 0, "CODE,...", true, kFailures,
               "A worker that ends with one of these ends the run; 128+n stands for signal n",
               kNoChoices, kOurs},
    OptionSpec{
        "hang-timeout", 0, "SECONDS", true, kFailures,
        "End a worker that shows no output, CPU time or heartbeat for so long, as a failure, "
        "with stacks of all workers in the log folder (default: 0, never)",
        kNoChoices, kOurs},
    OptionSpec{
        "warm-restarts", 0, nullptr, true, kFailures,
        "Fork the Python workers of a restart from an interpreter that has imported their modules",
        kNoChoices, kOurs},
    OptionSpec{"warm-start", 0, nullptr, true, kFailures,
               "--warm-restarts, and fork the workers of the first attempt likewise", kNoChoices,
               kOurs},
    OptionSpec{"warm-imports", 0, "MODULE,...", true, kFailures,
               "Modules to import for that, beside those that the script imports", kNoChoices,
               kOurs},
    OptionSpec{"exit-code", 0, "distinct|worker|torchrun", true, kFailures,
               "distinct: as below (default); worker: the code of the worker that failed first, "
               "also where the restarts are spent; torchrun: 1 for every failure",
               "distinct|worker|torchrun", kOurs},
    OptionSpec{"event-log-handler", 0, "NAME", true, kFailures,
               "Where events go, one JSON object a line: null, console (stderr) or jsonl:PATH "
               "(default null)",
               "null|console|jsonl:"},

    OptionSpec{"log-dir", 0, "DIR", true, kOutput,
               "Base folder of logs (default a fresh one in the place for temporary files; "
               "/dev/null: none)",
               "<dir>"},
    OptionSpec{"redirects", 'r', "0-3|L:V,...", true, kOutput,
               "Workers' streams to log files: 0 none, 1 stdout, 2 stderr, 3 both; or by local "
               "rank, as 0:3,1:1",
               "0|1|2|3"},
    OptionSpec{"tee", 't', "0-3|L:V,...", true, kOutput,
               "The same, and to the console as well, each line with the worker's prefix",
               "0|1|2|3"},
    OptionSpec{"local-ranks-filter", 0, "L,...", true, kOutput,
               "Show only these local ranks on the console"},
    OptionSpec{"log-line-prefix-template", 0, "TEXT", true, kOutput,
               "Prefix of lines under --tee; ${role_name}, ${local_rank}, ${rank}, ${hostname}, "
               "${node}, ${group_rank}, ${restart_count}, ${time} (default "
               "[${role_name}${local_rank}]:)"},
    OptionSpec{"duplicate-stdout-filters", 0, "TEXT,...", true, kOutput,
               "Copy lines of --tee'd stdout that hold one of these texts into filtered_stdout.log "
               "of the attempt; ',,' is a comma"},
    OptionSpec{"duplicate-stderr-filters", 0, "TEXT,...", true, kOutput,
               "The same for stderr, into filtered_stderr.log"},
    OptionSpec{"page", 0, "[ADDR:]PORT|none", true, kOutput,
               "One node: where it shows the run. A port alone is one of loopback, for this user "
               "and root only; an address also for others (default: a free port, named in the log)",
               "none", kOurs},
    OptionSpec{"vitals", 0, "SECONDS", true, kOutput,
               "How often the pages of a run hear how each worker is (default 2; 0: never)",
               kNoChoices, kOurs},
    OptionSpec{"share-last-lines", 0, nullptr, true, kOutput,
               "And with it the last line that each worker has written", kNoChoices, kOurs},

    OptionSpec{"monitor-interval", 0, "SECONDS", true, kNoEffect,
               "torchrun's polling period; here a worker's exit is seen when it happens"},
    OptionSpec{"start-method", 0, "spawn|fork|forkserver", true, kNoEffect,
               "torchrun's way to start --run-path; here it is an interpreter of its own",
               "spawn|fork|forkserver"},
    OptionSpec{
        "logs-specs", 0, "default", false, kNoEffect,
        "torchrun's log routing; a class in a Python package is refused, since ddprun runs no "
        "Python of its own",
        "default"},

    OptionSpec{
        "dry-run", 0, nullptr, false, kHelp,
        "Print what would be run, where the rendezvous would be, and which option or variable "
        "decided it; run nothing",
        kNoChoices, kOurs},
    OptionSpec{"print-completion", 0, "SHELL", false, kHelp,
               "Print a completion script for bash, zsh, fish or tcsh and exit; for bash: "
               "source <(ddprun --print-completion bash)",
               "bash|zsh|fish|tcsh"},
    OptionSpec{"new-secret", 0, nullptr, false, kHelp,
               "Print a random secret for --rdzv-secret-file and exit", kNoChoices, kOurs},
};

}  // namespace

std::span<const OptionSpec> option_specs() {
  return kSpecs;
}

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string variable_of(const OptionSpec& spec) {
  std::string name = "PET_" + with_underscores(spec.name);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return name;
}

}  // namespace ddprun::cli
