// SPDX-License-Identifier: BSD-3-Clause
//
// Lets templates learn: looks now and then at what the workers have imported that the template has
// not, and has a next template made, which has (worker/process/template.h).  The workers are read
// from outside and know nothing of it.  A library that is imported in the tenth step is found by
// the look after it.
#pragma once

#include <sys/types.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/base/time.h"
#include "worker/process/reaper.h"
#include "worker/process/template.h"

namespace ddprun::agent {

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper.  After destruction no callback runs; a template that is being made
// ends by itself.
class WarmLearning {
 public:
  struct Parts {
    std::function<std::vector<pid_t>()> workers;        // that run
    std::function<process::Template*()> idle_template;  // ready, and not forking; nullptr for none
    // It is ready and takes the idle one's place.
    std::function<void(std::unique_ptr<process::Template>, pid_t, const std::string& text)> on_next;
    std::function<void(const std::string& why)> on_refused;  // and there will be no more looks
    std::function<void(pid_t, process::ExitStatus)> on_end;  // of a process that was on_next's
  };
  WarmLearning(boost::asio::any_io_executor executor, process::Reaper& reaper, Parts parts);

  // Workers run and the template is ready: looks after `pause`, then after kPause and after twice
  // as long each time, for 20 minutes.  A next template that is ready takes its place.
  void begin(Duration pause);

  static constexpr Duration kPause = std::chrono::seconds(5);

  // No more looks until begin(); kills the next template.
  void stop();

 private:
  void look();
  void look_after(Duration pause);
  void replace();
  void raise_priority_later();
  void made(std::unique_ptr<process::Template> next);
  void ended(pid_t pid, process::ExitStatus status);

  process::Reaper& reaper_;
  Parts parts_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer priority_timer_;
  int looks_ = 0;                            // since begin()
  std::string text_;                         // of next_, which is ready; "" until then
  bool is_off_ = false;                      // refused
  std::unique_ptr<process::Template> next_;  // that is being made; nullptr for none
  pid_t pid_ = 0;                            // its process
  MonoTime made_at_{};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::agent
