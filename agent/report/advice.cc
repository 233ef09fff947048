// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/advice.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/decide/rank_text.h"
#include "agent/report/job_report.h"
#include "rendezvous/decide/findings.h"
#include "store/base/text.h"

namespace ddprun::agent {
namespace {

// All that a failed worker said, in which the advice looks for its words.
std::string words_of(const rendezvous::Failure& failure) {
  return failure.message + "\n" + failure.traceback + "\n" + failure.stderr_tail;
}

struct Advice {
  std::string_view words;  // the first entry whose words occur is taken
  std::string_view text;
  std::string_view also = "";  // these have to occur, too
  // Where other ranks had ended with exit code 0 before, the text is "see why rank 1 ended first,
  // with exit code 0: " and this.
  std::string_view after_others = "";
  // Also said in passing, of what harms nothing: looked for in the cause alone, where one is known.
  bool is_common = false;
};

constexpr Advice common(std::string_view words, std::string_view text) {
  return {.words = words, .text = text, .is_common = true};
}

constexpr Advice peer_left(std::string_view words) {
  return {
      .words = words,
      .text = "see which rank left first, perhaps with exit code 0: this one still waited for it",
      .after_others = "this one still waited for it"};
}

constexpr std::string_view kMoreSharedMemory =
    "make /dev/shm larger (of a container: --shm-size, --ipc=host), or use fewer data-loader "
    "workers";

// error_line() of faulthandler's dump.
constexpr std::string_view kFromFaulthandler = "Segmentation fault in ";

constexpr std::string_view kMoreThreads =
    "allow more threads and processes (ulimit -u, the pids limit of its container or cgroup) or "
    "more memory (ulimit -v)";

// From the certain to the vague: an exception's name says more than a signal.
constexpr std::array kByWords = {
    Advice{"not even by SIGKILL",
           "the kernel holds that process: see what it waits for (a dead file server?), and take "
           "the node out of service"},
    Advice{"OOM killer",
           "give the job more memory, or use less: smaller batches, fewer data-loader workers"},
    Advice{"which of them holds up the rest is not known",
           "look at the stacks in the log folders: which rank does not do what the others do?"},
    Advice{"hung: ", "see why it stands there: the stacks of all workers are in the log folders",
           "", "the others may wait for it; their stacks are in the log folders"},
    // Gloo's words, to one that only received what another rank sent.
    Advice{
        "Received data size doesn't match",
        "the ranks' tensors differ in size in that collective, or they are in different ones: "
        "print the shapes before it on each rank (TORCH_DISTRIBUTED_DEBUG=DETAIL names them where "
        "no DistributedDataParallel over Gloo is used: torch 2.15 crashes in it then; in a C++ "
        "program always)"},
    Advice{"the ranks do not call the same",
           "correct the rank whose collective differs: its last words above name both"},
    Advice{"Detected mismatch between collectives",
           "correct the rank whose collective differs: its last words above name both"},
    Advice{"as the module name.", "give -m the module's name as Python says, or leave out -m"},
    common("ModuleNotFoundError",
           "install the module for the Python that runs the workers, or set PYTHONPATH"),
    common("No module named",
           "install the module for the Python that runs the workers, or set PYTHONPATH"),
    Advice{".sh\", line ",
           "that is no Python script; with --no-python its #! line says what runs it"},
    Advice{"null bytes", "that is no Python script; a program is run with --no-python"},
    Advice{"SyntaxError", "correct the script; the Python that runs it may be an older one"},
    Advice{"IndentationError", "correct the script's indentation"},
    Advice{"CUDA out of memory", "use less GPU memory: smaller batches, or see who else uses it"},
    Advice{"OutOfMemoryError", "use less GPU memory: smaller batches, or see who else uses it"},
    // CUDA's and NCCL's words.
    Advice{
        "device-side assert triggered",
        "see the line with \"Assertion\" in its stderr: an index or a value is out of range; with "
        "CUDA_LAUNCH_BLOCKING=1 the traceback shows where"},
    Advice{"an illegal memory access was encountered",
           "run again with CUDA_LAUNCH_BLOCKING=1: the traceback then shows where"},
    Advice{"invalid device ordinal",
           "start no more workers on a node than it has GPUs: --nproc-per-node=gpu"},
    Advice{"Duplicate GPU detected",
           "give each worker a GPU of its own, before it makes any tensor: "
           "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])), and start no more of them than "
           "there are GPUs: --nproc-per-node=gpu"},
    // torch's and NCCL's words for a full /dev/shm.
    Advice{"No space left on device", kMoreSharedMemory, "allocate shared memory"},
    Advice{"No space left on device", kMoreSharedMemory, "/dev/shm/"},
    Advice{"No space left on device", kMoreSharedMemory, "</torch_"},
    common("No space left on device",
           "make room on the disk that it wrote to: df -h; another one for logs: --log-dir"),
    // A thread or a process that could not be made, in C's, Python's and OpenMP's words.
    Advice{"Resource temporarily unavailable", kMoreThreads},
    Advice{"can't start new thread", kMoreThreads},
    Advice{"libgomp: Thread creation failed", kMoreThreads},
    common("Bus error", kMoreSharedMemory),
    Advice{"DataLoader worker (pid",
           "the kernel or somebody else has killed a data loader's process: see dmesg (OOM "
           "killer); fewer data-loader workers need less memory",
           "is killed by signal: Killed"},
    Advice{"DataLoader worker (pid",
           "run with num_workers=0 to see the error in the data set's own code"},
    common("can't open file", "correct the path of the script; it is looked up on each node"),
    common("Permission denied", "give this user access to the file that is named above"),
    Advice{"Watchdog caught collective operation timeout",  // NCCL's, before it aborts
           "see what each rank did then, in the logs of all nodes: one did not come to that "
           "collective; while it hangs, ddpctl stacks shows which"},
    peer_left("Connection closed by peer ["),  // Gloo's words
    peer_left("Read error ["),
    peer_left("ncclRemoteError"),
};

// For a worker that could not be started, by the kernel's words.
constexpr std::array kByRefusal = {
    Advice{"Too many open files", "allow more open files: ulimit -n, or the service's LimitNOFILE"},
    Advice{"Resource temporarily unavailable",
           "allow more processes: ulimit -u, or the pids limit of its container or cgroup"},
    Advice{"Cannot allocate memory", "free memory on that node, or give the job more"},
    Advice{"Argument list too long", "pass fewer arguments, or a smaller environment"},
    Advice{
        "Exec format error",
        "give the script a first line as #!/bin/sh, or see that the program is for this machine"},
    Advice{"Permission denied", "see that it is a program and that this user may execute it"},
    Advice{"No such file or directory",
           "see that it is there on that node, and, if it is a script, the program that its first "
           "line names"},
};

constexpr const char* kSameSecret =
    "give all nodes of the run, and its ddpd, the same secret, or none";

constexpr std::string_view kReadOnlyFolder =
    "see why the file system of that folder is read-only on this node: mount, dmesg";
constexpr std::string_view kNoFolder =
    "make that folder (mkdir -m 700), or see that its file system is mounted, on each node";

constexpr const char* kSameAuth =
    "start all nodes with the same --rdzv-auth, secret file and DDPRUN_SECRET";

// What a host says to one that it does not let in: nothing.
constexpr std::string_view kClosedAtOnce =
    "look at the host's log: it says whether it refuses this node's address (--allow) or is full; "
    "else see that the endpoint names the first node and no other program answers there";
constexpr std::string_view kNotMet = "cannot meet the other nodes";

// For a node that is not let in, be it at the first time or when it comes back.
constexpr std::array kByRefusedProof = {
    Advice{"uses MUNGE, and this node has a secret", kSameAuth},
    Advice{"does not use MUNGE, and this node does", kSameAuth},
    Advice{"asks for the secret of the run", kSameSecret},
    Advice{"has another secret than this node", kSameSecret},
    Advice{"does not know this node's secret", kSameSecret},
    Advice{"asks for no secret, and this node has one", kSameSecret},
};

// For a job that no worker has ended.
constexpr std::array kByError = {
    Advice{"no further thread can be started", kMoreThreads},
    Advice{"database space exceeded",
           "etcd is full: compact and defragment it or raise its quota (--quota-backend-bytes), "
           "then etcdctl alarm disarm"},
    Advice{"no member of etcd can be used",
           "see that etcd runs, and that --rdzv-endpoint names its members: etcdctl --endpoints "
           "HOST:PORT endpoint health"},
    Advice{"is no entry of this version",
           "move it away if it is not this run's: another program, or another version of ddprun, "
           "has written it"},
    Advice{"at file:", "make room on the disk of that folder: df -h", "No space left on device"},
    Advice{"at file:", "make room for this user on the disk of that folder: quota",
           "Disk quota exceeded"},
    Advice{"at file:", "see that this user may write in that folder, on each node",
           "Permission denied"},
    Advice{"at file:", "see that this user may write in that folder, on each node", "by this user"},
    Advice{"at file:", kReadOnlyFolder, "Read-only file system"},
    Advice{"at file:", kReadOnlyFolder, "read-only file system"},
    Advice{"at file:", kNoFolder, "does not exist"},
    Advice{"at file:",
           "see why that folder does not answer on this node: its file server, its mount (stat "
           "FOLDER)",
           "the disk stands still"},
    Advice{
        "at file:", "see that all nodes name the same folder, and that no firewall is between them",
        kNotMet},
    Advice{"Address already in use",
           "choose another port, or end the process that has this one: ss -ltnp shows it"},
    kByRefusal[0],
    Advice{"Network is unreachable",
           "see that this machine has a route there; for 127.0.0.1: ip link set lo up"},
    Advice{"another run", "give each run an --rdzv-id or an endpoint of its own"},
    Advice{"--rdzv-id=", "give each run an --rdzv-id or an endpoint of its own"},
    Advice{"this node was refused",
           "the run that was there had ended: start all nodes for another one",
           ": the run is over"},
    Advice{"this node was refused", "start all nodes with the same options; correct this one's"},
    Advice{"the name service does not answer",
           "see why names are not looked up on this machine: getent hosts NAME; or give the "
           "endpoint as an address"},
    Advice{"Host not found", "correct the host's name in the endpoint, or the name service"},
    Advice{"of the cluster (MUNGE)",
           "start all nodes of a run as the same user, or give the run an endpoint of its own"},
    Advice{
        "MUNGE: ",
        "see that munged runs on all nodes, with the same key and clock (munge -n | unmunge), or "
        "give the run a secret: --rdzv-secret-file"},
    Advice{"cannot start its workers", "mend that on that node, and start all nodes again"},
    Advice{
        "the server does not answer",
        "see what listens there, since it accepts connections and says nothing: ss -ltnp, on the "
        "host that the endpoint names"},
    Advice{"Connection refused",
           "start the node that the endpoint names, unless its run is over, and see that the port "
           "is the same everywhere"},
    Advice{"closed the connection at once", kClosedAtOnce, kNotMet},
    Advice{"Connection reset by peer", kClosedAtOnce, kNotMet},
    Advice{"Broken pipe", kClosedAtOnce, kNotMet},
    Advice{"End of file", kClosedAtOnce, kNotMet},
    Advice{kNotMet,
           "see that the endpoint names the first node, with the same port everywhere, and that "
           "no firewall is between and no other program answers there"},
    Advice{"hosts the rendezvous",
           "look at that node: its log says why it went.  Where none is stable, let a ddpd host"},
    Advice{"was lost", "look at that node: its log and dmesg say why it went"},
    Advice{"nodes came",
           "see why the other nodes did not start, and that all have the same "
           "endpoint, --rdzv-id and --nnodes"},
};
constexpr std::string_view kOtherError = "look at the lines above, and at the other nodes' logs";

// The first entry whose words are in `said`, or in `cause` where they are common; nullptr for none.
const Advice* find_words(std::span<const Advice> advices, std::string_view said,
                         std::string_view cause) {
  auto found = std::ranges::find_if(advices, [&](const Advice& advice) {
    std::string_view where = advice.is_common ? cause : said;
    return where.find(advice.words) != std::string_view::npos &&
           where.find(advice.also) != std::string_view::npos;
  });
  return found == advices.end() ? nullptr : &*found;
}

const Advice* find_words(std::span<const Advice> advices, std::string_view said) {
  return find_words(advices, said, said);
}

// What std::terminate() says of a thread that is cut off in its middle.  Under any launcher torch
// 2.15's Gloo does it in every second run of four ranks: its thread lets go of the last
// collective's tensor while Python ends.  After a barrier it holds none of Python's.
constexpr std::string_view kThreadAtExit = "terminate called without an active exception";

std::string by_signal(const rendezvous::Failure& failure) {
  switch (failure.status.signal) {
    case SIGBUS:
      return "see whether /dev/shm, or the disk of a mapped file, was full (df -h /dev/shm); else "
             "run again with PYTHONFAULTHANDLER=1 for a Python stack";
    case SIGSEGV:
    case SIGFPE:
    case SIGILL:
      if (failure.message.starts_with(kFromFaulthandler))
        return "correct what the Python line above calls; 'ulimit -c unlimited' gives a core file "
               "for the C++ part";
      return "run again with PYTHONFAULTHANDLER=1 for a Python stack, or with 'ulimit -c "
             "unlimited' for a core file";
    case SIGABRT:
      if (failure.message.find(kThreadAtExit) != std::string::npos) {
        return "a thread still ran when the program ended: call torch.distributed.barrier(), then "
               "destroy_process_group(), at the end of the script";
      }
      return "the program ended itself: what it says before abort() is in its stderr";
    case SIGINT:
      return "its own code has raised KeyboardInterrupt, or somebody sent SIGINT to it alone";
    case SIGXFSZ:
      return "a file that it wrote has grown past the limit: ulimit -f";
    case SIGXCPU:
      return "it has used up its CPU time: ulimit -t, or the job's limit";
    case SIGKILL:
      return "somebody else sent SIGKILL: look at dmesg, the scheduler's log, and the job's limits "
             "of memory and CPU time (ulimit -t)";
    default:
      return "somebody sent that signal: look at the scheduler's log";
  }
}

// What a worker says that waited is of little use: the others are to be looked at.
std::string by_suspects(const rendezvous::Failure& failure) {
  const rendezvous::Suspect& first = failure.suspects.front();
  const bool had_ended = first.doing == rendezvous::kHadEnded;
  const std::string on = first.node.empty() ? "" : " on " + first.node;
  if (first.doing.starts_with("is stopped")) {
    return "see who has stopped rank " + std::to_string(first.rank) + " (SIGSTOP, a debugger)" +
           on + "; kill -CONT " + std::to_string(first.pid) + " would have continued it";
  }
  if (first.doing.starts_with("waits in ") || first.doing.starts_with("waited in ")) {
    return "see why not all ranks run the same collective there: rank " +
           std::to_string(failure.rank) + " was in " + failure.waited_in + ", and rank " +
           std::to_string(first.rank) + on + " was not";
  }
  std::string text = "see why rank " + std::to_string(first.rank) +
                     (had_ended ? " ended before the others" : " did not come");
  if (!first.node.empty()) text += ", on " + first.node;
  bool has_place = first.doing.find('(') != std::string::npos;
  bool has_said = first.doing.starts_with("exited ") || first.doing.starts_with("was killed ");
  if (has_said) return "correct what rank " + std::to_string(first.rank) + on + " says above";
  return has_place || had_ended || first.pid == 0
             ? text
             : text + "; where py-spy and eu-stack are installed, its stack is shown here";
}

// Where nothing that is known has been said.
std::string by_end(const rendezvous::Failure& failure, const JobReport& report) {
  if (failure.status.signal != 0) return by_signal(failure);
  if (failure.status.exit_code == 126 || failure.status.exit_code == 127)
    return "a command was not found or may not be executed; look at PATH on that node";
  const bool has_said_nothing = failure.traceback.empty() && failure.stderr_tail.empty();
  if (has_said_nothing && report.log_loss.is_on_console)
    return "it said nothing on stderr: look at its lines on the console, since its log files miss "
           "some, or put torch's @record on the main function";
  if (has_said_nothing && !report.log_loss.empty())
    return "what it said is lost: make room on the disk of the logs (df -h), or name another one: "
           "--log-dir";
  if (has_said_nothing) {
    bool has_logs = report.keeps_output && !failure.log_path.empty();
    std::string again = has_logs ? "" : "run again with --redirects=3 and ";
    return "it said nothing on stderr: " + again +
           "look at its logs, or put torch's @record on the main function";
  }
  if (failure.message.empty()) {
    return "its last words above are no error: see what ends it with code " +
           std::to_string(failure.status.exit_code) +
           " (sys.exit?), or put torch's @record on the main function";
  }
  return "correct what its last words above say, on " +
         (failure.node.empty() ? "that node" : failure.node);
}

// As argparse, getopt programs and the like say it before they end with 2.
bool has_usage(const rendezvous::Failure& failure) {
  if (failure.status.exit_code != 2) return false;
  return std::ranges::any_of(lines_of(failure.message + "\n" + failure.stderr_tail),
                             [](const std::string& line) {
                               return line.starts_with("usage: ") || line.starts_with("Usage: ");
                             });
}

std::string by_failure(const JobReport& report) {
  const rendezvous::Failure& failure = report.failures.back();
  if (!failure.suspects.empty()) return by_suspects(failure);
  const std::string words = words_of(failure);
  const std::string cause = failure.message + "\n" + failure.traceback;
  const Advice* advice = failure.pid == 0 ? find_words(kByRefusal, words) : nullptr;
  if (advice == nullptr)
    advice = find_words(kByWords, words, failure.message.empty() ? words : cause);
  if (advice == nullptr && has_usage(failure))
    return "correct the arguments behind the script's name";
  const bool was_passed_on = report.outside && failure.status.signal != 0 &&
                             process::signal_name(failure.status.signal) == report.outside->signal;
  if (advice == nullptr && was_passed_on)
    return report.outside->signal +
           " came to ddprun and was passed on: give the script a handler, before it imports torch, "
           "or name other signals in --signals-to-forward";
  if (advice == nullptr) return by_end(failure, report);
  const std::vector<int> finished = ended_before(report);
  if (finished.empty() || advice->after_others.empty()) return std::string(advice->text);
  return "see why " + name_ranks(finished) +
         " ended first, with exit code 0: " + std::string(advice->after_others);
}

}  // namespace

std::string step_after_loss(const std::string& loss) {
  if (loss.starts_with("this node ") || loss.find(" given this node up") != std::string::npos)
    return "look at this node: whether it was paused, its network was down, or it had too little "
           "of a processor; dmesg; start ddprun here again";
  if (loss.find(", where the nodes meet, ") != std::string::npos)
    return "look at what hosts the endpoint, the first node's ddprun or a ddpd: whether it is up "
           "and reached, and the end of its log; then start the run again";
  std::string node = loss.substr(0, loss.find(" was lost"));
  bool is_named = node != loss && !node.empty() && node.find(' ') == std::string::npos;
  return "look at " + (is_named ? node : "the node that was lost") +
         ": whether it is up and reached, the end of its ddprun's log, and dmesg (OOM killer, GPU "
         "errors); start ddprun there again";
}

std::string next_step(const JobReport& report) {
  if (report.exit_code == 0) return "";
  if (is_by_worker(report)) return by_failure(report);
  if (report.had_succeeded_here)
    return "see on the other nodes whether the run has ended well; if so, only this node's exit "
           "code is wrong";
  const Advice* advice = find_words(kByRefusedProof, report.error);
  if (advice == nullptr && !report.loss.empty()) return step_after_loss(report.loss);
  if (advice == nullptr) advice = find_words(kByError, report.error);
  return std::string(advice == nullptr ? kOtherError : advice->text);
}

}  // namespace ddprun::agent
