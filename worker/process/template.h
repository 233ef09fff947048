// SPDX-License-Identifier: BSD-3-Clause
//
// A Python interpreter that has imported what the workers import, and of which workers are forked,
// so that they begin with the first line of their script.  worker/process/template.py is its other
// half, and says how the two talk.
//
// A fork is this process's own child (this process must be a subreaper) and has all that spawn()
// gives: a session, a pidfd, the parent-death signal, a cgroup, CPUs, and no descriptor beyond 0,
// 1, 2.  The template's own limits, umask, folder and stdin are those that any worker inherits.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/base/error.h"
#include "store/base/fd.h"
#include "store/base/time.h"
#include "worker/process/spawn.h"

namespace ddprun::process {

struct TemplateSpec {
  ProcessSpec worker;                  // any of the workers: its command line and environment
  std::vector<std::string> imports;    // modules, beside those that the program's sources name
  std::vector<std::string> variables;  // names of those that are different in each worker
  bool is_urgent = false;              // workers wait for it: it imports at its own priority
};

// Why `worker` cannot be forked from a template of that specification; "" if it can.
std::string obstacle_to_fork(const TemplateSpec& spec, const ProcessSpec& worker);

// Why forks of a template would lack what the program of `worker` gives its processes; "" where
// nothing speaks against it.
std::string obstacle_to_template(const ProcessSpec& worker);

// A process that waits to become a worker.  One that is destroyed instead ends by itself.  Until
// then it is in the template's session.
struct Fork {
  Process process;
  Fd socket;
};

// Makes a worker of `fork`.  Never waits.  To be ended as what begin_spawn(spec) returns, by
// report_of_fork().  Fails with the system's code; the fork has then ended, or will.
Result<StartingProcess> begin_spawn(Fork fork, const ProcessSpec& spec);

// Raises the priority of a template that imports, which lowered it itself, to this nice value; and
// that of its session's group, where the kernel makes such groups.  What is not allowed is left.
void raise_priority(pid_t template_pid, int nice);

// Kills a template.  At the lowest priority, as on a busy node, it would take long to end.
void kill_template(pid_t template_pid);

// Threads: used from the executor's only thread.
// Lifetime: after destruction no callback runs.  The process ends when it is destroyed, but belongs
// to the caller, who watches it.
class Template {
 public:
  struct Listener {
    std::function<void(const std::string& text)> on_ready;      // the text is for a log
    std::function<void(const std::string& why)> on_refused;     // no workers can be forked; it ends
    std::function<void(const std::string& what)> on_missing{};  // of TemplateSpec::imports, and why
  };

  // Starts one, which imports at the lowest priority, unless it is urgent.  Fails with the system's
  // code.
  static Result<std::unique_ptr<Template>> start(boost::asio::any_io_executor executor,
                                                 const TemplateSpec& spec, Listener listener);

  // To be watched by a reaper, once.
  Process take_process() { return std::move(process_); }

  // Why its program could not be run, once its process has ended.
  Result<void> exec_result() const;

  // What it has printed last, as one line; "" for nothing.
  std::string last_words() const;

  // Forks `count` processes and calls `then` once, perhaps before it returns: with all of them, or
  // with the reason why there are none; the template is of no use then.  One call at a time, of a
  // template that is ready.
  void fork(int count, std::function<void(Result<std::vector<Fork>>)> then);

  bool is_forking() const { return then_ != nullptr; }

  // Forks `count` processes beforehand, and calls `then`, perhaps before it returns, once they
  // wait, or with the reason why they do not.  The next fork() of as many has only to ask whether
  // files have changed since.  Does nothing where fork() or park() is under way.
  using OnParked = std::function<void(Result<void>)>;
  void park(int count, OnParked then = nullptr);

  // Asks that beforehand: that they have not holds for a second.
  void check_files();
  bool is_checked() const;
  int parked() const { return static_cast<int>(parked_.size()); }

  // Makes the next template, a fork of this one, in its session: it imports what these processes
  // have imported and this one has not, at the lowest priority, and then calls `listener`; refused
  // with "": there is nothing to import.  `on_next` gets it before that.  This one goes on as
  // before, and the next one does not need it.  Processes that cannot be read are passed over.  If
  // a fork() or learn() is under way, or no process can be read, nothing happens.
  using OnNext = std::function<void(std::unique_ptr<Template>)>;
  void learn(const std::vector<pid_t>& workers, Listener listener, OnNext on_next);

  // Those that wait, killed.  They are this process's children until it has collected them.
  std::vector<Process> kill_parked();

  // Its process has ended: hears what it has said before; a fork() under way fails then.
  void ended();

  // Why it forks no more, as it has said itself; "" for nothing.
  const std::string& why_ended() const { return why_ended_; }

 private:
  Template(boost::asio::any_io_executor executor, Listener listener, Process process, Fd control,
           Fd text);
  void listen();
  enum class Heard : std::uint8_t { Message, Nothing, End };
  Heard hear();
  bool hear_all();
  void heard(std::string_view message);
  void ask();
  Result<void> ask_for_check();
  Result<void> send_sockets(int count);
  void fail_soon(Duration after, Error error);
  void forked(Result<std::vector<Fork>> forks);
  void settle(Result<std::vector<Fork>> forks);
  void next_forked(std::string_view pid);
  bool has_parked(int count) const;

  Listener listener_;
  Process process_;
  Fd exec_report_;  // none of a fork of another template
  std::string exec_context_;
  boost::asio::posix::stream_descriptor control_;
  Fd text_;  // a file with all that it has printed
  boost::asio::steady_timer patience_;
  std::vector<Fd> sockets_;   // of the forks under way
  std::vector<Fork> parked_;  // they wait
  std::function<void(Result<std::vector<Fork>>)>
      then_;                        // of the fork() under way; nullptr for none
  int wanted_ = 0;                  // by it
  Fd next_socket_;                  // of the next template, until it is forked
  std::function<void(Fork)> next_;  // what then happens; nullptr for none
  bool is_parking_ = false;         // the forks under way are to wait
  OnParked parked_then_;            // what then happens; nullptr for nothing
  bool is_checking_ = false;        // whether files have changed
  MonoTime checked_at_{};           // when they had not
  std::string why_ended_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::process
