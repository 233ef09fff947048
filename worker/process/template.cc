// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/template.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "store/base/number.h"
#include "store/base/time.h"
#include "worker/process/pidfd.h"
#include "worker/process/proc_files.h"
#include "worker/process/template_source.h"

namespace ddprun::process {
namespace {

namespace asio = boost::asio;

// The archive as the template has it, its second descriptor of more_fds.
constexpr const char* kArchive = "/proc/self/fd/5";
constexpr const char* kPath = "PYTHONPATH";
constexpr std::size_t kMostMessage = 64 * 1024;
constexpr std::size_t kMostForks = 200;  // one message takes 253 descriptors
constexpr std::size_t kMostRead = 60;    // workers, with two descriptors each
constexpr auto kForkPatience = std::chrono::seconds(2);
constexpr auto kCheckHolds = std::chrono::seconds(1);

std::string_view name_of(std::string_view assignment) {
  return assignment.substr(0, assignment.find('='));
}

std::uint32_t crc32(std::string_view bytes) {
  constexpr std::uint32_t kPolynomial = 0xEDB88320;
  std::uint32_t crc = ~0U;
  for (char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kPolynomial : 0U);
  }
  return ~crc;
}

std::string little(std::uint32_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

struct ArchivedFile {
  std::string_view name;
  std::string_view content;
};

// A zip archive, uncompressed: Python imports from it, and needs no folder.
std::string archive_of(const std::vector<ArchivedFile>& files) {
  constexpr std::uint32_t kFirstOfJanuary1980 = (1 << 5) | 1;
  std::string archive, directory;
  for (const ArchivedFile& file : files) {
    const auto size = static_cast<std::uint32_t>(file.content.size());
    const auto at = static_cast<std::uint32_t>(archive.size());
    // Version, flags, method, time and date; checksum; two sizes; the name's length; no extras.
    std::string head = little(10, 2) + little(0, 2) + little(0, 2) + little(0, 2) +
                       little(kFirstOfJanuary1980, 2) + little(crc32(file.content), 4) +
                       little(size, 4) + little(size, 4) +
                       little(static_cast<std::uint32_t>(file.name.size()), 2) + little(0, 2);
    archive += little(0x04034B50, 4) + head;
    archive.append(file.name).append(file.content);
    directory += little(0x02014B50, 4) + little(10, 2) + head + little(0, 2) + little(0, 2) +
                 little(0, 2) + little(0, 4) + little(at, 4);
    directory.append(file.name);
  }
  const auto directory_at = static_cast<std::uint32_t>(archive.size());
  const auto count = static_cast<std::uint32_t>(files.size());
  archive += directory + little(0x06054B50, 4) + little(0, 2) + little(0, 2) + little(count, 2) +
             little(count, 2) + little(static_cast<std::uint32_t>(directory.size()), 4) +
             little(directory_at, 4) + little(0, 2);
  return archive;
}

// A file without a name.
Result<Fd> file_with(const char* name, std::string_view content) {
  Fd file(::memfd_create(name, MFD_CLOEXEC));
  if (!file) return system_error(errno, "make a file in memory");
  while (!content.empty()) {
    ssize_t count = ::write(file.get(), content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(errno, "write a file in memory");
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  return file;
}

struct Pair {
  Fd ours;
  Fd theirs;
};

Result<Pair> socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error(errno, "make a pair of sockets");
  return Pair{Fd(ends[0]), Fd(ends[1])};
}

// Sends one message with descriptors.
Result<void> send(int socket, std::string_view message, const std::vector<int>& fds = {}) {
  iovec part{.iov_base = const_cast<char*>(message.data()), .iov_len = message.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostForks)> control{};
  if (!fds.empty()) {
    const std::size_t bytes = sizeof(int) * fds.size();
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(first), fds.data(), bytes);
  }
  if (::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    return system_error(errno, "send to the template");
  return {};
}

std::string first_message(const TemplateSpec& spec) {
  std::string message;
  const std::vector<std::string> manner(spec.is_urgent ? 1 : 0, "urgent");
  for (const auto* list : {&spec.worker.argv, &spec.imports, &spec.variables, &manner}) {
    if (!message.empty()) message.push_back('\0');
    message += std::to_string(list->size());
    for (const std::string& field : *list) message.append(1, '\0').append(field);
  }
  return message;
}

std::vector<std::string> template_environment(const TemplateSpec& spec) {
  std::vector<std::string> environment;
  std::string path(kPath);
  path.append(1, '=').append(kArchive);
  for (const std::string& assignment : spec.worker.environment) {
    std::string_view name = name_of(assignment);
    if (std::ranges::find(spec.variables, name) != spec.variables.end()) continue;
    if (name != kPath) {
      environment.push_back(assignment);
    } else if (assignment.size() > name.size() + 1) {
      path.append(1, ':').append(assignment, name.size() + 1, std::string::npos);
    }
  }
  environment.push_back(std::move(path));
  return environment;
}

// Whether it is a child of this process that has not been collected.  `info`: of its end, if it
// has.
bool is_child(const Fd& pidfd, siginfo_t& info) {
  info = {};
  return ::waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

// While it does, its pid is its own: no one else collects children.
bool is_living(const Process& process) {
  siginfo_t info;
  return is_child(process.pidfd, info) && info.si_pid == 0;
}

// A fork that stands still, by SIGSTOP, would not begin.
bool is_ready(const Fork& fork) {
  if (!is_living(fork.process)) return false;
  const char state = stat_of(fork.process.pid).state;
  return state != 'T' && state != 't';
}

Error ended_error() {
  return {Errc::Closed, "the template has ended"};
}

// Those of `sockets`, which their processes have the other ends of.
Result<std::vector<Fork>> forks_of(std::string_view pids, std::vector<Fd>& sockets) {
  std::vector<Fork> forks;
  for (Fd& socket : sockets) {
    pids.remove_prefix(std::min(pids.find_first_not_of(' '), pids.size()));
    auto pid = number_in<pid_t>(pids.substr(0, pids.find(' ')));
    if (!pid) return Error{Errc::Closed, "the template could not fork as often as it was to"};
    pids.remove_prefix(std::min(pids.find(' '), pids.size()));
    Fd pidfd = open_pidfd(*pid);
    if (!pidfd) return system_error(errno, "open the pidfd of a fork");
    siginfo_t info;
    if (!is_child(pidfd, info))
      return Error{Errc::NotSupported, "forks do not become this process's"};
    forks.push_back(
        {.process = {.pid = *pid, .pidfd = std::move(pidfd)}, .socket = std::move(socket)});
  }
  return forks;
}

}  // namespace

std::string obstacle_to_fork(const TemplateSpec& spec, const ProcessSpec& worker) {
  if (worker.argv != spec.worker.argv) return "the workers' command lines are different";
  std::set<std::string_view> both(spec.worker.environment.begin(), spec.worker.environment.end());
  std::set<std::string_view> others(worker.environment.begin(), worker.environment.end());
  for (const auto& [one, other] : {std::pair(&both, &others), std::pair(&others, &both)}) {
    for (std::string_view assignment : *one) {
      std::string name(name_of(assignment));
      if (other->contains(assignment) ||
          std::ranges::find(spec.variables, name) != spec.variables.end())
        continue;
      return name + " is different in the workers";
    }
  }
  bool has_threads = std::ranges::any_of(worker.environment, [](std::string_view assignment) {
    return name_of(assignment) == "OMP_NUM_THREADS";
  });
  // What OpenMP reads when it is loaded.
  if (!worker.cpus.empty() && !has_threads)
    return "a worker that is bound to CPUs needs OMP_NUM_THREADS for it";
  return "";
}

std::string obstacle_to_template(const ProcessSpec& worker) {
  const std::string& program = worker.argv.at(0);
  Fd file(::open(program.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  char mark[2];
  if (!file || ::read(file.get(), mark, sizeof mark) != sizeof mark) return "";
  if (std::string_view(mark, sizeof mark) != "#!") return "";
  return program + " is a script, which forks would not run; PYTHON_EXEC may name Python itself";
}

Result<StartingProcess> begin_spawn(Fork fork, const ProcessSpec& spec) {
  std::string context = "start " + spec.argv.at(0);
  if (!is_living(fork.process)) return Error{Errc::Closed, "the fork that waited has ended"};
  if (!spec.cgroup.empty()) {
    // Whatever it refuses, the worker is as well off as without.
    Fd file(::open((spec.cgroup + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
    std::string pid = std::to_string(fork.process.pid);
    if (file) (void)!::write(file.get(), pid.data(), pid.size());
  }
  if (!spec.cpus.empty()) {
    auto last = static_cast<std::size_t>(std::ranges::max(spec.cpus));
    std::vector<cpu_set_t> mask(last / CPU_SETSIZE + 1);
    const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
    for (int cpu : spec.cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, mask.data());
    if (::sched_setaffinity(fork.process.pid, bytes, mask.data()) != 0)
      return system_error(errno, context);
  }
  std::string variables;
  for (const std::string& assignment : spec.environment)
    variables.append(assignment).append(1, '\0');
  Result<Fd> environment = file_with("environment", variables);
  if (!environment) return environment.error();
  int out = spec.stdout_fd >= 0 ? spec.stdout_fd : STDOUT_FILENO;
  int err = spec.stderr_fd >= 0 ? spec.stderr_fd : STDERR_FILENO;
  Result<void> sent = send(fork.socket.get(), "G", {out, err, environment->get()});
  if (!sent) return sent.error();
  return StartingProcess{.process = std::move(fork.process),
                         .report = std::move(fork.socket),
                         .context = std::move(context),
                         .is_fork = true};
}

void raise_priority(pid_t template_pid, int nice) {
  const auto who = static_cast<id_t>(template_pid);
  errno = 0;
  const int now = ::getpriority(PRIO_PROCESS, who);
  if (errno == 0 && now > nice) (void)::setpriority(PRIO_PROCESS, who, nice);
  Fd group(::open(("/proc/" + std::to_string(template_pid) + "/autogroup").c_str(),
                  O_WRONLY | O_CLOEXEC));
  std::string text = std::to_string(std::max(nice, 0));
  if (group) (void)!::write(group.get(), text.data(), text.size());
}

void kill_template(pid_t template_pid) {
  ::kill(template_pid, SIGKILL);
  raise_priority(template_pid, ::getpriority(PRIO_PROCESS, 0));
}

Result<std::unique_ptr<Template>> Template::start(asio::any_io_executor executor,
                                                  const TemplateSpec& spec, Listener listener) {
  Result<Pair> control = socket_pair();
  if (!control) return control.error();
  Result<Fd> archive =
      file_with("template", archive_of({{"sitecustomize.py", kTemplateSource},
                                        {"ddprun_memory.py", kTemplateMemorySource},
                                        {"ddprun_pages.py", kTemplatePagesSource},
                                        {"ddprun_program.py", kTemplateProgramSource},
                                        {"ddprun_random.py", kTemplateRandomSource}}));
  if (!archive) return archive.error();
  Result<Fd> text = file_with("printed", "");
  if (!text) return text.error();
  Result<void> sent = send(control->ours.get(), first_message(spec));
  if (!sent) return sent.error();

  // It begins with a script that does nothing, and begins again with the workers' command line when
  // it is known that this Python takes the archive in: what does not must not run their script.
  ProcessSpec process{.argv = {spec.worker.argv.at(0), "-u", "-c", "pass"},
                      .environment = template_environment(spec),
                      .stdout_fd = text->get(),
                      .stderr_fd = text->get(),
                      .cpus = {},
                      .cgroup = "",
                      .more_fds = {control->theirs.get(), archive->get()}};
  Result<StartingProcess> starting = begin_spawn(process);
  if (!starting) return starting.error();
  std::unique_ptr<Template> made(new Template(std::move(executor), std::move(listener),
                                              std::move(starting->process),
                                              std::move(control->ours), std::move(*text)));
  made->exec_report_ = std::move(starting->report);
  made->exec_context_ = std::move(starting->context);
  made->listen();
  return made;
}

Result<void> Template::exec_result() const {
  if (!exec_report_) return {};
  return report_of(exec_report_, exec_context_);
}

Template::Template(asio::any_io_executor executor, Listener listener, Process process, Fd control,
                   Fd text)
    : listener_(std::move(listener)),
      process_(std::move(process)),
      control_(executor, control.release()),
      text_(std::move(text)),
      patience_(executor) {}

void Template::listen() {
  control_.async_wait(asio::posix::descriptor_base::wait_read,
                      [this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
                        if (error || alive.expired()) return;
                        const Heard what = hear();
                        if (alive.expired()) return;
                        what == Heard::End ? ended() : listen();
                      });
}

// One message, if there is one now.
Template::Heard Template::hear() {
  std::string message(kMostMessage, '\0');
  ssize_t count = ::recv(control_.native_handle(), message.data(), message.size(), MSG_DONTWAIT);
  if (count > 0) {
    heard(std::string_view(message).substr(0, static_cast<std::size_t>(count)));
    return Heard::Message;
  }
  return count < 0 && (errno == EAGAIN || errno == EINTR) ? Heard::Nothing : Heard::End;
}

// All messages that are there.  False: one of them has led to this object's end.
bool Template::hear_all() {
  const std::weak_ptr alive(alive_);
  while (hear() == Heard::Message) {
    if (alive.expired()) return false;
  }
  return true;
}

void Template::heard(std::string_view message) {
  std::string_view text = message.substr(1);
  switch (message.front()) {
    case 'R':
      return listener_.on_ready(std::string(text));
    case 'W':
      if (listener_.on_missing) listener_.on_missing(std::string(text));
      return;
    case 'N':
      return listener_.on_refused(std::string(text));
    case 'C':
      why_ended_ = text;
      return settle(Error{Errc::Closed, std::string(text)});
    case 'F':
      return forked(forks_of(text, sockets_));
    case 'L':
      return next_forked(text);
    case 'K':
      is_checking_ = false;
      checked_at_ = std::chrono::steady_clock::now();
      if (then_) ask();
      return;
    default:
      return;
  }
}

void Template::ended() {
  if (!hear_all()) return;
  parked_then_ = nullptr;  // who watches the process says how it has ended
  settle(ended_error());
}

void Template::settle(Result<std::vector<Fork>> forks) {
  patience_.cancel();
  sockets_.clear();
  if (!forks && !why_ended_.empty()) forks = Error{Errc::Closed, why_ended_};
  // A fork() under way says it, too.
  auto parked_then = std::exchange(parked_then_, nullptr);
  if (parked_then && !forks && !then_) return parked_then(forks.error());
  if (auto then = std::exchange(then_, nullptr)) then(std::move(forks));
}

// They are there, for the fork() under way or to wait for the next one.
void Template::forked(Result<std::vector<Fork>> forks) {
  sockets_.clear();
  bool is_parking = std::exchange(is_parking_, false);
  if (!forks) return settle(forks.error());
  auto parked_then = std::exchange(parked_then_, nullptr);
  // Those that were to be parked may be older than the files by now.
  if (then_ && !is_parking) return settle(std::move(forks));
  parked_ = std::move(*forks);
  if (parked_then) parked_then({});
  if (then_) ask();
}

void Template::next_forked(std::string_view pid) {
  std::vector<Fd> socket;
  socket.push_back(std::move(next_socket_));
  Result<std::vector<Fork>> forks = forks_of(pid, socket);
  auto next = std::exchange(next_, nullptr);
  if (!next || !forks) return;
  if (send(forks->front().socket.get(), "L")) next(std::move(forks->front()));
}

bool Template::has_parked(int count) const {
  return static_cast<int>(parked_.size()) == count && std::ranges::all_of(parked_, is_ready);
}

void Template::fork(int count, std::function<void(Result<std::vector<Fork>>)> then) {
  then_ = std::move(then);
  wanted_ = count;
  ask();
}

// For what fork() wants, unless the forks under way may be it.
void Template::ask() {
  Result<void> asked;
  if (has_parked(wanted_)) {
    if (is_checked()) return settle(std::exchange(parked_, {}));
    asked = ask_for_check();
  } else if (sockets_.empty()) {
    kill_parked();
    asked = send_sockets(wanted_);
  }
  if (!asked) return fail_soon(Duration::zero(), asked.error());
  fail_soon(kForkPatience, {Errc::TimedOut, "the template does not answer"});
}

Result<void> Template::ask_for_check() {
  if (is_checking_) return {};
  Result<void> asked = send(control_.native_handle(), "K");
  is_checking_ = asked.has_value();
  return asked;
}

bool Template::is_checked() const {
  return std::chrono::steady_clock::now() - checked_at_ < kCheckHolds;
}

void Template::check_files() {
  if (!parked_.empty() && !then_ && !is_checked()) (void)ask_for_check();
}

void Template::fail_soon(Duration after, Error error) {
  patience_.expires_after(after);
  patience_.async_wait([this, error = std::move(error),
                        alive = std::weak_ptr(alive_)](boost::system::error_code cancelled) {
    if (cancelled || alive.expired()) return;
    if (hear_all()) settle(error);  // perhaps it has said why
  });
}

void Template::park(int count, OnParked then) {
  if (then_ || !sockets_.empty()) return;
  Result<void> asked;
  if (!has_parked(count)) {
    kill_parked();
    asked = send_sockets(count);
    is_parking_ = asked.has_value();
    if (is_parking_) {
      parked_then_ = std::move(then);
      return;
    }
    sockets_.clear();
  }
  if (then) then(asked);
}

std::vector<Process> Template::kill_parked() {
  std::vector<Process> killed;
  for (Fork& fork : std::exchange(parked_, {})) {
    if (!is_living(fork.process)) continue;
    ::kill(fork.process.pid, SIGKILL);
    killed.push_back(std::move(fork.process));
  }
  return killed;
}

void Template::learn(const std::vector<pid_t>& workers, Listener listener, OnNext on_next) {
  if (then_ || next_) return;
  Result<Pair> pair = socket_pair();
  Fd text(::fcntl(text_.get(), F_DUPFD_CLOEXEC, 0));
  if (!pair || !text) return;
  std::vector<Fd> files;
  for (pid_t pid : workers) {
    std::string folder = "/proc/" + std::to_string(pid);
    Fd memory(::open((folder + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
    Fd maps(::open((folder + "/maps").c_str(), O_RDONLY | O_CLOEXEC));
    if (!memory || !maps || files.size() >= 2 * kMostRead) continue;
    files.push_back(std::move(memory));
    files.push_back(std::move(maps));
  }
  std::vector<int> fds{pair->theirs.get()};
  for (const Fd& file : files) fds.push_back(file.get());
  if (files.empty() || !send(control_.native_handle(), "L", fds)) return;
  next_socket_ = std::move(pair->ours);
  next_ = [executor = control_.get_executor(), listener = std::move(listener),
           on_next = std::move(on_next), text = std::make_shared<Fd>(std::move(text))](Fork fork) {
    std::unique_ptr<Template> made(new Template(executor, listener, std::move(fork.process),
                                                std::move(fork.socket), std::move(*text)));
    made->listen();
    on_next(std::move(made));
  };
}

// Each of `count` forks gets the other end of one of sockets_.
Result<void> Template::send_sockets(int count) {
  if (static_cast<std::size_t>(count) > kMostForks)
    return Error{Errc::LimitExceeded, "a template forks at most 200 workers"};
  std::vector<Fd> theirs;
  std::vector<int> fds;
  for (int i = 0; i < count; ++i) {
    Result<Pair> pair = socket_pair();
    if (!pair) return pair.error();
    sockets_.push_back(std::move(pair->ours));
    theirs.push_back(std::move(pair->theirs));
    fds.push_back(theirs.back().get());
  }
  return send(control_.native_handle(), "F", fds);
}

std::string Template::last_words() const {
  constexpr off_t kMost = 4096;
  off_t size = ::lseek(text_.get(), 0, SEEK_END);
  std::string text(kMost, '\0');
  ssize_t count = ::pread(text_.get(), text.data(), text.size(), std::max<off_t>(0, size - kMost));
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace ddprun::process
