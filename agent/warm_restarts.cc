// SPDX-License-Identifier: BSD-3-Clause
#include "agent/warm_restarts.h"

#include <signal.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

#include "store/base/count.h"
#include "store/clock.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;

// So many are made in a run: one that ends at once must not be made again for ever.
constexpr int kMostTemplates = 10;

// How long the end of the run waits for the template's.
constexpr auto kEndPatience = std::chrono::seconds(2);

}  // namespace

WarmRestarts::WarmRestarts(asio::any_io_executor executor, process::Reaper& reaper, Parts parts)
    : executor_(std::move(executor)), reaper_(reaper), parts_(std::move(parts)) {}

void WarmRestarts::workers_run(const std::vector<process::ProcessSpec>& specs) {
  bool is_wanted = state_ == State::None && pid_ == 0 && !is_ending_;
  if (!is_wanted || starts_ == kMostTemplates) return;
  ++starts_;
  spec_ = {.worker = specs.at(0), .imports = parts_.imports, .variables = parts_.variables};
  spec_.worker.cpus.clear();
  for (const process::ProcessSpec& spec : specs) {
    std::string obstacle = process::obstacle_to_fork(spec_, spec);
    if (!obstacle.empty()) return refused(obstacle);
  }
  process::Template::Listener listener;
  listener.on_ready = [this](const std::string& text) {
    state_ = State::Ready;
    parts_.on_info("warm restarts are ready: " + text);
  };
  listener.on_refused = [this](const std::string& why) { refused(why); };
  auto started = process::Template::start(executor_, spec_, std::move(listener));
  if (!started) return refused(to_string(started.error()));
  template_ = std::move(*started);
  state_ = State::Importing;
  process::Process process = template_->take_process();
  pid_ = process.pid;
  reaper_.watch(std::move(process),
                [this, pid = pid_, alive = std::weak_ptr(alive_)](process::ExitStatus status) {
                  if (!alive.expired()) ended(pid, status);
                });
}

void WarmRestarts::refused(const std::string& why) {
  state_ = State::Off;
  parts_.on_warning("no warm restarts: " + why);
}

void WarmRestarts::ended(pid_t pid, process::ExitStatus status) {
  pid_ = 0;
  const State before = state_;
  if (state_ != State::Off) state_ = State::None;
  if (on_end_) on_end_();
  if (is_ending_ || !template_) return;
  std::string words = template_->last_words();
  template_->ended();  // a fork() under way says what it means for the restart
  template_.reset();
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

void WarmRestarts::kill() {
  template_.reset();
  if (pid_ != 0) ::kill(pid_, SIGKILL);  // its number is its own until the reaper has told its end
  if (state_ != State::Off) state_ = State::None;
}

void WarmRestarts::fork(const std::vector<process::ProcessSpec>& specs,
                        std::function<void(std::vector<process::Fork>)> then) {
  if (state_ == State::Off) return then({});
  std::string obstacle;
  if (state_ == State::None) obstacle = "there is no template";
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
        if (!alive.expired()) kill();
      });
      return then({});
    }
    auto took = std::chrono::duration<double, std::milli>(mono_now() - began);
    auto tenths = static_cast<long>(took.count() * 10);
    parts_.on_info("forked " + count_of(static_cast<int>(forks->size()), "worker") +
                   " from the template in " + std::to_string(tenths / 10) + "." +
                   std::to_string(tenths % 10) + " ms");
    then(std::move(*forks));
  };
  template_->fork(static_cast<int>(specs.size()), std::move(forked));
}

asio::awaitable<void> WarmRestarts::end() {
  is_ending_ = true;
  kill();
  if (pid_ == 0) co_return;
  // The callback may outlive this coroutine.
  auto timer = std::make_shared<asio::steady_timer>(executor_, mono_now() + kEndPatience);
  on_end_ = [timer] { timer->cancel(); };
  co_await timer->async_wait(asio::as_tuple(asio::use_awaitable));
  on_end_ = nullptr;
}

}  // namespace ddprun::agent
