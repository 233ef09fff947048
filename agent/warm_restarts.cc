// SPDX-License-Identifier: BSD-3-Clause
#include "agent/warm_restarts.h"

#include <signal.h>
#include <sys/resource.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

#include "agent/decide/warm_priority.h"
#include "store/base/count.h"
#include "store/base/seconds.h"
#include "store/clock.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;

// So many are made in a run: one that ends at once must not be made again for ever.
constexpr int kMostTemplates = 10;

// The workers of a first attempt wait so long for their template, and from the first of these on a
// line says so.
constexpr Duration kSlowImports = std::chrono::seconds(10);
constexpr Duration kMostImports = std::chrono::seconds(120);

// How long the end of the run waits for the template's.
constexpr auto kEndPatience = std::chrono::seconds(2);

}  // namespace

WarmRestarts::WarmRestarts(asio::any_io_executor executor, process::Reaper& reaper, Parts parts)
    : executor_(std::move(executor)),
      reaper_(reaper),
      parts_(std::move(parts)),
      priority_timer_(executor_),
      first_timer_(executor_),
      learning_(
          executor_, reaper_,
          {.workers = parts_.workers,
           .idle_template = [this] { return idle_template(); },
           .on_next = [this](auto next, pid_t pid,
                             const std::string& text) { learned(std::move(next), pid, text); },
           .on_refused =
               [this](const std::string& why) {
                 parts_.on_info("warm restarts learn nothing more from the workers: " + why);
               },
           .on_end = [this](pid_t pid, process::ExitStatus status) { ended(pid, status); }}) {}

void WarmRestarts::workers_run(const std::vector<process::ProcessSpec>& specs) {
  workers_ = static_cast<int>(specs.size());
  look_at_session();
  if (state_ == State::Ready) {
    learning_.begin(WarmLearning::kPause);
    return park();
  }
  if (state_ == State::None && pid_ == 0 && !is_ending_ && starts_ < kMostTemplates) make(specs);
}

void WarmRestarts::make(const std::vector<process::ProcessSpec>& specs) {
  ++starts_;
  spec_ = {.worker = specs.at(0),
           .imports = parts_.imports,
           .variables = parts_.variables,
           .is_urgent = waiting_ != nullptr};
  spec_.worker.cpus.clear();
  std::string obstacle = process::obstacle_to_template(spec_.worker);
  for (const process::ProcessSpec& spec : specs)
    if (obstacle.empty()) obstacle = process::obstacle_to_fork(spec_, spec);
  if (!obstacle.empty()) return refused(obstacle);
  process::Template::Listener listener;
  listener.on_ready = [this](const std::string& text) {
    state_ = State::Ready;
    ready_text_ = text;
    if (waiting_) return fork_waiting();
    park();
    learning_.begin(Duration::zero());
  };
  listener.on_refused = [this](const std::string& why) { refused(why); };
  listener.on_missing = [this](const std::string& what) {
    if (starts_ == 1) parts_.on_warning("--warm-imports: " + what);
  };
  auto started = process::Template::start(executor_, spec_, std::move(listener));
  if (!started) return refused(to_string(started.error()));
  template_ = std::move(*started);
  state_ = State::Importing;
  why_none_.clear();
  process::Process process = template_->take_process();
  session_ = pid_ = process.pid;
  made_at_ = mono_now();
  if (!spec_.is_urgent) raise_priority_later();
  reaper_.watch(std::move(process),
                [this, pid = pid_, alive = std::weak_ptr(alive_)](process::ExitStatus status) {
                  if (!alive.expired()) ended(pid, status);
                });
}

// A restart before they wait would have to make them first.
void WarmRestarts::park() {
  template_->park(workers_, [this](Result<void> parked) {
    if (!parked)
      return parts_.on_warning("no forks wait for the restart: " + to_string(parked.error()));
    std::string text = std::exchange(ready_text_, "");
    if (!text.empty()) parts_.on_info("warm restarts are ready: " + text);
  });
}

// On a busy node a template of the lowest priority may import for ever.
void WarmRestarts::raise_priority_later() {
  priority_timer_.expires_after(kPriorityStep);
  priority_timer_.async_wait([this, pid = pid_, alive = std::weak_ptr(alive_)](auto cancelled) {
    if (cancelled || alive.expired() || state_ != State::Importing || pid_ != pid) return;
    const int own = ::getpriority(PRIO_PROCESS, 0);
    const int nice = template_nice(mono_now() - made_at_, own);
    process::raise_priority(pid, nice);
    if (nice > own) raise_priority_later();
  });
}

void WarmRestarts::expect_restart() {
  if (state_ == State::Ready) template_->check_files();
}

// It has been forked from the one that it replaces, which serves until now.
void WarmRestarts::learned(std::unique_ptr<process::Template> next, pid_t pid,
                           const std::string& text) {
  template_->kill_parked();
  ::kill(std::exchange(pid_, pid), SIGKILL);
  template_ = std::move(next);
  parts_.on_info("warm restarts have learned from the workers: " + text);
  park();
}

process::Template* WarmRestarts::idle_template() const {
  return state_ == State::Ready && !is_ending_ && !template_->is_forking() ? template_.get()
                                                                           : nullptr;
}

void WarmRestarts::refused(const std::string& why) {
  state_ = State::Off;
  parts_.on_warning("no warm restarts: " + why);
  fork_waiting();
}

void WarmRestarts::rule_out(const std::string& why) {
  if (state_ == State::Off) return;
  refused(why);
  kill_unwatched();
}

void WarmRestarts::ended(pid_t pid, process::ExitStatus status) {
  if (pid != pid_) return;  // another one is in its place
  pid_ = 0;
  const State before = state_;
  if (state_ != State::Off) state_ = State::None;
  if (on_end_) on_end_();
  look_at_session();
  if (is_ending_ || !template_) return;
  template_->ended();  // a fork() under way says what it means for the restart
  why_none_ = template_->why_ended();
  std::string words = template_->last_words();
  Result<void> could_run = template_->exec_result();
  kill_unwatched();
  bool has_said_why = before != State::Off && state_ == State::Off;
  if (before == State::Ready && !why_none_.empty()) has_said_why = true;  // at the next restart
  if (has_said_why) return;
  if (!could_run) return refused(to_string(could_run.error()));
  std::string how = "the template of warm restarts (pid " + std::to_string(pid) + ") " +
                    process::to_string(status) + (words.empty() ? "" : ": " + words);
  if (before == State::Ready) {
    parts_.on_warning(how + "; another one is made when the workers run again");
  } else if (before == State::Importing) {
    refused(how + " before it was ready");
  }
}

void WarmRestarts::cold(const std::string& why) {
  parts_.on_warning("this restart is cold: " + why);
}

// Returns the forks that waited, which may take a moment to end.
std::vector<process::Process> WarmRestarts::kill() {
  std::vector<process::Process> parked;
  learning_.stop();
  if (template_) parked = template_->kill_parked();
  template_.reset();
  if (pid_ != 0)
    process::kill_template(pid_);  // its number is its own until the reaper has told its end
  if (state_ != State::Off) state_ = State::None;
  return parked;
}

// Nobody waits for their ends.
void WarmRestarts::kill_unwatched() {
  for (process::Process& parked : kill()) {
    reaper_.watch(std::move(parked), [this, alive = std::weak_ptr(alive_)](process::ExitStatus) {
      if (!alive.expired()) look_at_session();
    });
  }
}

// All that is in it is in its first process group, too.  When the last of it has been collected,
// its number may become that of a process that no sweep is to spare.
void WarmRestarts::look_at_session() {
  if (session_ == 0 || pid_ != 0) return;
  if (::kill(-session_, 0) != 0 && errno == ESRCH) session_ = 0;
}

void WarmRestarts::fork(const std::vector<process::ProcessSpec>& specs, Then then) {
  bool is_first = parts_.has_first_attempt && starts_ == 0;
  if (!is_first && !waiting_) return fork_now(specs, std::move(then));
  waiting_specs_ = specs;
  waiting_ = std::move(then);
  if (is_first) make(specs);
  if (is_first && waiting_) watch_first(kSlowImports);
}

// An import that stands still would keep the first attempt for ever.
void WarmRestarts::watch_first(Duration passed) {
  first_timer_.expires_at(made_at_ + passed);
  first_timer_.async_wait(
      [this, passed, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
        if (error || alive.expired() || !waiting_ || is_ending_) return;
        std::string what = "its template has imported for " + seconds_text(passed);
        if (passed >= kMostImports) return rule_out(what);
        parts_.on_warning("the first attempt waits: " + what + " (pid " + std::to_string(pid_) +
                          "); it starts cold after " + seconds_text(kMostImports));
        watch_first(kMostImports);
      });
}

void WarmRestarts::fork_waiting() {
  if (auto then = std::exchange(waiting_, nullptr)) fork_now(waiting_specs_, std::move(then));
}

void WarmRestarts::fork_now(const std::vector<process::ProcessSpec>& specs, Then then) {
  if (state_ == State::Off) return then({});
  std::string obstacle;
  if (state_ == State::None) obstacle = why_none_.empty() ? "there is no template" : why_none_;
  if (state_ == State::Importing) obstacle = "the template is not ready yet";
  for (const process::ProcessSpec& spec : specs)
    if (obstacle.empty()) obstacle = process::obstacle_to_fork(spec_, spec);
  if (!obstacle.empty()) {
    cold(obstacle);
    return then({});
  }
  const MonoTime began = mono_now();
  auto forked = [this, began, then = std::move(then)](Result<std::vector<process::Fork>> forks) {
    if (!forks) {
      cold(to_string(forks.error()));
      asio::post(executor_, [this, alive = std::weak_ptr(alive_)] {
        if (!alive.expired()) kill_unwatched();
      });
      return then({});
    }
    auto took = std::chrono::duration<double, std::milli>(mono_now() - began);
    auto tenths = static_cast<long>(took.count() * 10);
    parts_.on_info(
        "forked " + count_of(static_cast<int>(forks->size()), "worker") + " from the template" +
        (tenths == 0
             ? ", ahead of time"
             : " in " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " ms"));
    then(std::move(*forks));
  };
  template_->fork(static_cast<int>(specs.size()), std::move(forked));
}

asio::awaitable<void> WarmRestarts::end() {
  is_ending_ = true;
  // The callbacks may outlive this coroutine.
  auto timer = std::make_shared<asio::steady_timer>(executor_, mono_now() + kEndPatience);
  auto living = std::make_shared<int>(0);
  auto on_end = [timer, living] {
    if (--*living == 0) timer->cancel();
  };
  for (process::Process& parked : kill()) {
    ++*living;
    reaper_.watch(std::move(parked), [on_end](process::ExitStatus) { on_end(); });
  }
  if (pid_ != 0) {
    ++*living;
    on_end_ = on_end;
  }
  if (*living != 0) co_await timer->async_wait(asio::as_tuple(asio::use_awaitable));
  on_end_ = nullptr;
}

}  // namespace ddprun::agent
