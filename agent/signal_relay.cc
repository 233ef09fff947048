// SPDX-License-Identifier: BSD-3-Clause
#include "agent/signal_relay.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "store/clock.h"
#include "worker/process/proc_files.h"

namespace ddprun::agent {

namespace asio = boost::asio;

SignalRelay::SignalRelay(asio::any_io_executor executor, std::shared_ptr<Fd> reports,
                         std::string sender, bool is_to_all)
    : reports_(executor), sender_(std::move(sender)), is_to_all_(is_to_all), news_(executor) {
  if (!reports || !*reports) return;
  reports_.assign(reports->release());
  read();
}

// The guardian writes a report at once, or not at all.
void SignalRelay::read() {
  asio::async_read(reports_, asio::buffer(&next_, sizeof next_),
                   [this](boost::system::error_code error, std::size_t) {
                     if (error) return;
                     heard(next_);
                     read();
                   });
}

void SignalRelay::heard(const process::SignalReport& report) {
  // A person can signal all processes of a name, by pkill.  The sender is 0 where it is in another
  // pid namespace, as the scheduler is for a container.
  if (report.sender != 0 && process::program_name_of(report.sender) != sender_) return;
  is_alone_ = false;
  if (int& missed = missed_[report.signal]; missed > 0) {
    --missed;
    return;
  }
  ++heard_[report.signal];
  news_.notify();
}

asio::awaitable<bool> SignalRelay::reached_workers(int signal, std::chrono::milliseconds patience) {
  if (!reports_.is_open()) co_return false;
  auto deadline = mono_now() + (is_to_all_ ? kPatience : patience);
  while (heard_[signal] == 0 && !is_alone_ && mono_now() < deadline) {
    co_await news_.wait_until(deadline);
  }
  if (heard_[signal] > 0) {
    --heard_[signal];
    co_return true;
  }
  ++missed_[signal];
  is_alone_ = !is_to_all_;
  co_return false;
}

void SignalRelay::stop() {
  boost::system::error_code ignored;
  reports_.close(ignored);
  news_.notify();
}

}  // namespace ddprun::agent
