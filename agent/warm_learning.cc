// SPDX-License-Identifier: BSD-3-Clause
#include "agent/warm_learning.h"

#include <sys/resource.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "agent/decide/warm_priority.h"
#include "store/clock.h"

namespace ddprun::agent {
namespace {

constexpr int kMostLooks = 9;  // 5, 10, ... 640 s apart

}  // namespace

WarmLearning::WarmLearning(boost::asio::any_io_executor executor, process::Reaper& reaper,
                           Parts parts)
    : reaper_(reaper),
      parts_(std::move(parts)),
      timer_(executor),
      priority_timer_(std::move(executor)) {}

void WarmLearning::begin(Duration pause) {
  looks_ = 0;
  replace();
  look_after(pause);
}

void WarmLearning::replace() {
  if (!next_ || text_.empty() || parts_.idle_template() == nullptr) return;
  parts_.on_next(std::move(next_), std::exchange(pid_, 0), std::exchange(text_, {}));
}

// On a busy node it would import for ever, as the first template would.
void WarmLearning::raise_priority_later() {
  priority_timer_.expires_after(kPriorityStep);
  priority_timer_.async_wait([this, pid = pid_, alive = std::weak_ptr(alive_)](auto cancelled) {
    if (cancelled || alive.expired() || !next_ || pid_ != pid || !text_.empty()) return;
    const int own = ::getpriority(PRIO_PROCESS, 0);
    const int nice = template_nice(mono_now() - made_at_, own);
    process::raise_priority(pid, nice);
    if (nice > own) raise_priority_later();
  });
}

void WarmLearning::stop() {
  timer_.cancel();
  priority_timer_.cancel();
  looks_ = kMostLooks;
  next_.reset();
  text_.clear();
  if (pid_ != 0)
    process::kill_template(pid_);  // its number is its own until the reaper has told its end
}

void WarmLearning::look_after(Duration pause) {
  if (is_off_ || looks_ >= kMostLooks) return;
  timer_.expires_after(pause);
  timer_.async_wait([this, alive = std::weak_ptr(alive_)](boost::system::error_code cancelled) {
    if (!cancelled && !alive.expired()) look();
  });
}

void WarmLearning::look() {
  if (is_off_ || looks_ >= kMostLooks) return;
  look_after(kPause * (1 << looks_++));
  process::Template* now = parts_.idle_template();
  if (now == nullptr || next_ || pid_ != 0) return;
  process::Template::Listener listener;
  // A template must not be destroyed by its own callback.
  listener.on_ready = [this](const std::string& text) {
    boost::asio::post(timer_.get_executor(), [this, text, alive = std::weak_ptr(alive_)] {
      if (alive.expired() || !next_) return;
      text_ = text;
      replace();  // or when the restart that is under way has its workers
    });
  };
  listener.on_refused = [this](const std::string& why) {
    if (why.empty()) return;  // it ends
    is_off_ = true;
    parts_.on_refused(why);
  };
  now->learn(parts_.workers(), std::move(listener),
             [this, alive = std::weak_ptr(alive_)](std::unique_ptr<process::Template> next) {
               if (!alive.expired()) made(std::move(next));
             });
}

void WarmLearning::made(std::unique_ptr<process::Template> next) {
  next_ = std::move(next);
  process::Process process = next_->take_process();
  pid_ = process.pid;
  made_at_ = mono_now();
  raise_priority_later();
  reaper_.watch(std::move(process),
                [this, pid = pid_, alive = std::weak_ptr(alive_)](process::ExitStatus status) {
                  if (!alive.expired()) ended(pid, status);
                });
}

void WarmLearning::ended(pid_t pid, process::ExitStatus status) {
  if (pid != pid_) return parts_.on_end(pid, status);
  pid_ = 0;
  if (!next_) return;  // killed
  next_->ended();      // hears why
  next_.reset();
  if (status.is_success() || is_off_) return;
  is_off_ = true;
  parts_.on_refused("to import what they have, " + process::to_string(status));
}

}  // namespace ddprun::agent
