// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator_service.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "rendezvous/meeting.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr Duration kPulsePeriod = std::chrono::milliseconds(250);
constexpr Duration kPatience = std::chrono::minutes(10);  // of one blocking pop
constexpr std::size_t kMaxRuns = 4096;

Now now() {
  return {std::chrono::steady_clock::now(), std::chrono::system_clock::now()};
}

asio::awaitable<void> wait(asio::steady_timer& timer) {
  co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

}  // namespace

CoordinatorService::CoordinatorService(asio::any_io_executor executor, ServiceConfig config,
                                       std::unique_ptr<store::Client> in,
                                       std::unique_ptr<store::Client> out)
    : config_(std::move(config)),
      in_(std::move(in)),
      out_(std::move(out)),
      alarm_(executor, MonoTime::max()),
      has_mail_(executor, MonoTime::max()),
      has_emptied_(executor, MonoTime::max()),
      pulse_timer_(executor),
      tasks_(executor, [](std::exception_ptr error) { std::rethrow_exception(error); }) {}

CoordinatorService::~CoordinatorService() = default;

store::Async<std::unique_ptr<CoordinatorService>> CoordinatorService::start(
    asio::any_io_executor executor, ServiceConfig config, std::unique_ptr<store::Client> in,
    std::unique_ptr<store::Client> out, bool is_claimed) {
  std::unique_ptr<CoordinatorService> service(
      new CoordinatorService(executor, std::move(config), std::move(in), std::move(out)));
  auto set = co_await service->out_->set(meeting::pulse(service->config_.record), "0");
  if (set && !is_claimed) {
    set = co_await service->out_->set(meeting::kRecord, service->config_.record);
  }
  if (!set) co_return set.error();
  service->tasks_.spawn(service->receive());
  service->tasks_.spawn(service->send());
  service->tasks_.spawn(service->keep_time());
  service->tasks_.spawn(service->beat());
  co_return service;
}

void CoordinatorService::host_leaves(const std::string& why) {
  why_leaving_ = why;
  std::vector<std::string> names;
  for (const auto& [name, run] : runs_) names.push_back(name);
  for (const std::string& name : names) step(name, coordinator::event::HostLeaves{why});
}

asio::awaitable<void> CoordinatorService::idle() {
  while (is_open_ && !(runs_.empty() && outgoing_.empty())) co_await wait(has_emptied_);
}

std::string CoordinatorService::who_is_here() const {
  std::string text;
  for (const auto& [name, run] : runs_) {
    text += (text.empty() ? "run '" : ", run '") + name + "' (" + std::to_string(run.nodes.size()) +
            (run.nodes.size() == 1 ? " node)" : " nodes)");
  }
  return text;
}

void CoordinatorService::close() {
  is_open_ = false;
  in_->close();
  out_->close();
  for (auto* timer : {&alarm_, &has_mail_, &has_emptied_, &pulse_timer_}) timer->cancel();
}

asio::awaitable<void> CoordinatorService::stop() {
  close();
  co_await tasks_.join();
}

asio::awaitable<void> CoordinatorService::receive() {
  std::string inbox = meeting::inbox(config_.record);
  while (is_open_) {
    auto letter = co_await in_->queue_pop(inbox, kPatience);
    if (!is_open_) co_return;
    if (letter) {
      take(*letter);
    } else if (letter.error().code != Errc::TimedOut) {
      co_return failed("read the letters of the nodes", letter.error());
    }
  }
}

void CoordinatorService::take(const std::string& text) {
  Result<Letter> letter = decode_letter(text);
  if (!letter)
    return config_.log("ignored a letter to the rendezvous: " + to_string(letter.error()));
  if (is_refused(*letter)) return;
  step(letter->run, coordinator::event::Arrived{letter->node, std::move(letter->request)});
}

// What no coordinator of one run can judge: whether there may be another run.
bool CoordinatorService::is_refused(const Letter& letter) {
  const auto* join = std::get_if<request::Join>(&letter.request);
  if (join != nullptr && !why_leaving_.empty()) {
    refuse(letter.node, why_leaving_);
    return true;
  }
  if (runs_.contains(letter.run)) return false;
  if (join == nullptr) return !std::holds_alternative<request::Foreign>(letter.request);
  auto other = join->settings.master
                   ? std::ranges::find_if(runs_,
                                          [](const auto& run) {
                                            return run.second.settings.master.has_value() &&
                                                   !run.second.nodes.empty();
                                          })
                   : runs_.end();
  std::string why;
  if (other != runs_.end()) {
    why = "it has --rdzv-id=" + letter.run + ", not " + other->first +
          ", which is what the nodes have that meet here by the static backend";
  } else if (runs_.size() >= kMaxRuns) {
    why = "there are " + std::to_string(runs_.size()) + " runs here already";
  } else {
    return false;
  }
  refuse(letter.node, why);
  return true;
}

void CoordinatorService::refuse(const std::string& node, const std::string& why) {
  outgoing_.push_back({node, encode(Order(order::Refuse{why}))});
  has_mail_.cancel();
}

void CoordinatorService::step(const std::string& run, const coordinator::Event& event) {
  coordinator::State& state = runs_[run];
  coordinator::Step next = coordinator::step(std::move(state), event, now());
  state = std::move(next.state);
  bool is_renewed = false;
  for (const coordinator::Action& action : next.actions) {
    if (const auto* forget = std::get_if<coordinator::action::Forget>(&action)) {
      outgoing_.push_back({forget->node, ""});
      continue;
    }
    const auto& send = std::get<coordinator::action::Send>(action);
    bool begins_round = std::holds_alternative<order::Round>(send.order);
    if (begins_round && state.settings.master && !std::exchange(is_renewed, true)) {
      config_.renew_common_space();
    }
    outgoing_.push_back({send.node, encode(send.order)});
  }
  forget_if_over(run);
  has_mail_.cancel();
  set_alarm();
}

void CoordinatorService::forget_if_over(const std::string& run) {
  auto found = runs_.find(run);
  if (coordinator::is_over(found->second)) runs_.erase(found);
  if (runs_.empty()) has_emptied_.cancel();
}

asio::awaitable<void> CoordinatorService::send() {
  while (is_open_) {
    while (!outgoing_.empty()) {
      Parcel parcel = std::move(outgoing_.front());
      outgoing_.pop_front();
      std::string mailbox = meeting::mailbox(parcel.node);
      if (parcel.order.empty()) {
        auto item = co_await out_->queue_try_pop(mailbox);
        while (item && item->has_value()) item = co_await out_->queue_try_pop(mailbox);
        if (!is_open_) co_return;
        if (!item) co_return failed("clear a node's orders", item.error());
        continue;
      }
      auto pushed = co_await out_->queue_push(mailbox, std::move(parcel.order));
      if (!is_open_) co_return;
      if (!pushed) co_return failed("give a node its orders", pushed.error());
    }
    has_emptied_.cancel();
    co_await wait(has_mail_);
  }
}

void CoordinatorService::set_alarm() {
  MonoTime due = MonoTime::max();
  for (const auto& [name, run] : runs_)
    due = std::min(due, coordinator::deadline(run).value_or(due));
  if (due != alarm_.expiry()) alarm_.expires_at(due);
}

asio::awaitable<void> CoordinatorService::keep_time() {
  while (is_open_) {
    co_await wait(alarm_);
    std::vector<std::string> due;
    for (const auto& [name, run] : runs_) {
      if (coordinator::deadline(run).value_or(MonoTime::max()) <= now().mono) due.push_back(name);
    }
    for (const std::string& name : due) step(name, coordinator::event::Tick{});
    if (alarm_.expiry() <= now().mono) alarm_.expires_at(MonoTime::max());
    set_alarm();
  }
}

asio::awaitable<void> CoordinatorService::beat() {
  for (std::uint64_t count = 1; is_open_; ++count) {
    auto set = co_await out_->set(meeting::pulse(config_.record), std::to_string(count));
    if (!is_open_) co_return;
    if (!set) co_return failed("say that the coordinator lives", set.error());
    pulse_timer_.expires_after(kPulsePeriod);
    co_await wait(pulse_timer_);
  }
}

void CoordinatorService::failed(const std::string& what, const Error& error) {
  if (!is_open_) return;
  config_.log("the coordinator cannot " + what + ": " + to_string(error));
  close();
}

}  // namespace ddprun::rendezvous
