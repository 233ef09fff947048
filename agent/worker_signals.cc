// SPDX-License-Identifier: BSD-3-Clause
#include "agent/worker_signals.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "store/base/count.h"

namespace ddprun::agent {

namespace asio = boost::asio;

WorkerSignals::WorkerSignals(const asio::any_io_executor& executor, const AgentConfig& config,
                             Parts parts)
    : parts_(std::move(parts)),
      has_reports_(config.signal_reports != nullptr),
      scheduler_name_(config.scheduler ? config.scheduler->name : ""),
      relay_(executor, config.signal_reports, config.scheduler ? config.scheduler->sender : "",
             config.scheduler && config.scheduler->reach == SignalReach::EveryProcess) {}

void WorkerSignals::forward(int signal, std::function<int()> running) {
  parts_.tasks.spawn(forward_unless_sent(signal, std::move(running)));
}

asio::awaitable<void> WorkerSignals::forward_unless_sent(int signal, std::function<int()> running) {
  std::string name = process::signal_name(signal);
  bool have_it = co_await relay_.reached_workers(signal, SignalRelay::kPatience);
  if (have_it) {
    parts_.logger->info("received {}, which {} has sent to the workers itself", name,
                        scheduler_name_);
    co_return;
  }
  parts_.logger->info("received {}; passing it on to {}", name, count_of(running(), "worker"));
  parts_.workers.signal_each(signal);
}

void WorkerSignals::stop(const Stop& wanted, std::function<bool()> is_wanted) {
  bool may_have_it = wanted.is_from_outside && has_reports_;
  if (!may_have_it && !parts_.stop_file.is_writing()) return send(wanted, false);
  parts_.tasks.spawn(stop_unless_sent(wanted, may_have_it, std::move(is_wanted)));
}

void WorkerSignals::send(const Stop& wanted, bool have_it) const {
  if (!have_it) parts_.workers.signal_all(wanted.signal);
  if (wanted.continues) parts_.workers.signal_all(SIGCONT);
}

asio::awaitable<void> WorkerSignals::stop_unless_sent(Stop wanted, bool may_have_it,
                                                      std::function<bool()> is_wanted) {
  co_await parts_.stop_file.written();
  bool have_it =
      may_have_it && co_await relay_.reached_workers(wanted.signal, SignalRelay::kPatienceOfStop);
  if (is_wanted()) send(wanted, have_it);
}

}  // namespace ddprun::agent
