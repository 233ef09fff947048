// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/stop_requests.h"

#include <ATen/ATen.h>

#include <atomic>
#include <csignal>
#include <exception>
#include <fstream>
#include <iterator>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace {

// All that a signal handler may touch.
std::atomic<bool> must_stop{false};
std::atomic<bool> must_save{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void note_signal(int signal) {
  (signal == SIGTERM ? must_stop : must_save) = true;
}

}  // namespace

// Takes the signals while any StopRequests lives.
class StopRequests::Listening {
 public:
  Listening() {
    std::lock_guard lock(mutex());
    if (count()++ > 0) return;
    must_stop = must_save = false;
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGTERM, &action, &old_term());
    ::sigaction(SIGUSR1, &action, &old_usr1());
  }
  ~Listening() {
    std::lock_guard lock(mutex());
    if (--count() > 0) return;
    ::sigaction(SIGTERM, &old_term(), nullptr);
    ::sigaction(SIGUSR1, &old_usr1(), nullptr);
  }
  Listening(const Listening&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static int& count() {
    static int count = 0;
    return count;
  }
  static struct sigaction& old_term() {
    static struct sigaction action;
    return action;
  }
  static struct sigaction& old_usr1() {
    static struct sigaction action;
    return action;
  }
};

struct StopRequests::Exchange {
  Ranks ranks;
  at::Tensor number = at::zeros({1}, at::kLong);
  c10::intrusive_ptr<c10d::Work> under_way;
  bool has_begun = false;
  bool has_stopped = false;
  Listening listening;

  explicit Exchange(Ranks all) : ranks(std::move(all)) {}

  ~Exchange() {
    // After an error the others may never come, and the process ends.
    if (!under_way || std::uncaught_exceptions() > 0) return;
    try {
      under_way->wait();
    } catch (const std::exception&) {  // the answer is not asked for any more
    }
  }

  void begin() {
    number[0] = static_cast<std::int64_t>(must_stop                   ? Asked::Stop
                                          : must_save.exchange(false) ? Asked::Save
                                                                      : Asked::Nothing);
    under_way = ranks.begin_maximum(number);
    has_begun = true;
  }

  Asked finish() {
    if (under_way) {
      try {
        under_way->wait();
      } catch (const c10::Error& error) {
        throw DdpError(std::string("asking the ranks: ") + error.what_without_backtrace());
      } catch (const std::exception& error) {
        throw DdpError(std::string("asking the ranks: ") + error.what());
      }
      under_way.reset();
    }
    return static_cast<Asked>(number[0].item<std::int64_t>());
  }
};

StopRequests::StopRequests(Ranks ranks) : exchange_(new Exchange(std::move(ranks))) {}
StopRequests::StopRequests(const ProcessGroup& group) : StopRequests(Ranks(group.c10d())) {}
StopRequests::StopRequests(c10::intrusive_ptr<c10d::ProcessGroup> group)
    : StopRequests(Ranks(std::move(group))) {}
StopRequests::StopRequests() : StopRequests(Ranks(nullptr)) {}
StopRequests::~StopRequests() = default;

StopRequests::Asked StopRequests::poll() {
  if (exchange_->has_stopped) return Asked::Stop;
  const Asked asked = exchange_->has_begun ? exchange_->finish() : Asked::Nothing;
  if (asked == Asked::Stop) {
    exchange_->has_stopped = true;
  } else {
    exchange_->begin();
  }
  return asked;
}

std::optional<worker::StopReason> stop_reason(const ProcessGroup& group) {
  std::ifstream file(group.env().stop_file);
  return worker::parse_stop_file(std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace ddprun::ddp
