// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/single_node.h"

#include <utility>

#include "rendezvous/random_name.h"
#include "rendezvous/worker_store.h"
#include "store/client.h"
#include "store/clock.h"
#include "store/event.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

// Long enough for a name service that comes up a little later than this node.
constexpr auto kProbeTimeout = std::chrono::seconds(30);

}  // namespace

SingleNodeHandler::SingleNodeHandler(asio::any_io_executor executor, SingleNodeConfig config)
    : executor_(executor),
      config_(std::move(config)),
      notices_(executor),
      announcement_(executor),
      pace_timer_(executor),
      tasks_(executor) {}

SingleNodeHandler::~SingleNodeHandler() {
  close();
}

void SingleNodeHandler::join() {
  announcement_.withdraw();
  tasks_.spawn(open_store());
}

asio::awaitable<void> SingleNodeHandler::open_store() {
  if (worker_store_) worker_store_->close();
  worker_store_.reset();
  auto listening = listen_for_workers(config_.master);
  if (!listening) {
    notices_.push(notice::Failed{"worker store: " + to_string(listening.error())});
    co_return;
  }
  auto log = [this](const std::string& line) { notices_.push(notice::Info{line}); };
  const std::vector<std::string> no_other_machine;
  auto serving =
      serve_workers(executor_, std::move(*listening), config_.worker_store, no_other_machine, log);
  if (!serving) {
    notices_.push(notice::Failed{"worker store: " + to_string(serving.error())});
    co_return;
  }
  worker_store_ = std::move(*serving);

  // What workers will do, and would try in vain for minutes where it is not possible.
  Endpoint master{.host = config_.master.host, .port = worker_store_->port()};
  auto probe =
      co_await store::Client::connect(executor_, master, {.connect_timeout = kProbeTimeout});
  if (!is_open_) co_return;
  if (!probe) {
    worker_store_->close();
    notices_.push(notice::Failed{"workers could not reach their store at " + to_string(master) +
                                 " from this node: " + to_string(probe.error())});
    co_return;
  }
  if (std::exchange(has_joined_, true)) {
    send_request(request::Ready{.round = round_, .store_port = master.port});
    co_return;
  }
  send_request(request::Join{.address = master.host,
                             .participant = config_.self,
                             .policy = {.max_restarts = config_.max_restarts},
                             .store_port = master.port,
                             .run_uuid = random_name()});
}

void SingleNodeHandler::workers_started(const Round& round, std::vector<StartedWorker> workers) {
  auto ignore = [](const std::string&) {};  // it was reached when it was opened
  tasks_.spawn(
      announcement_.make(round.master, round.ranks.world_size, std::move(workers), ignore));
}

void SingleNodeHandler::report_failure(Failure failure, bool is_final,
                                       const std::optional<TimedOutWait>& wait) {
  send_request(request::Failed{
      .round = round_, .failure = std::move(failure), .is_final = is_final, .wait = wait});
}

void SingleNodeHandler::report_findings(Findings findings) {
  if (worker_store_) findings.unconnected = unconnected_workers(*worker_store_);
  send_request(request::Found{.round = round_, .findings = std::move(findings)});
}

std::optional<MonoTime> SingleNodeHandler::workers_connected() {
  return worker_store_ ? worker_store_->all_connected_at() : std::nullopt;
}

void SingleNodeHandler::report_success() {
  send_request(request::Succeeded{.round = round_});
}

void SingleNodeHandler::say_vitals(std::string text) {
  if (!is_open_) return;
  bool is_first = vitals_.empty();
  vitals_ = std::move(text);
  if (is_first) tasks_.spawn(watch_pace());
}

asio::awaitable<void> SingleNodeHandler::watch_pace() {
  while (is_open_) {
    look_at_pace();
    pace_timer_.expires_after(kPacePeriod);
    co_await store::wait_for(pace_timer_);
  }
}

void SingleNodeHandler::look_at_pace() {
  auto vitals = [this](const std::string&) { return vitals_; };
  auto waits = [this](const std::string&) {
    return worker_store_ ? waits_text(*worker_store_, round_) : std::string();
  };
  Pace pace = pace_of(pace_, coordinator_, vitals, waits, mono_now());
  for (std::string& line : pace_lines_.of(round_, pace))
    notices_.push(notice::Info{std::move(line)});
  if (pace != coordinator_.pace) step(coordinator::event::PaceSeen{std::move(pace)});
}

// The workers may still save together, which needs their store.
void SingleNodeHandler::leave(std::string, int) {
  is_open_ = false;
  notices_.close();
}

asio::awaitable<void> SingleNodeHandler::finish() {
  close();
  co_await tasks_.join();
}

void SingleNodeHandler::close() {
  is_open_ = false;
  notices_.close();
  announcement_.withdraw();
  tasks_.cancel();
  if (worker_store_) worker_store_->close();
  worker_store_.reset();
}

void SingleNodeHandler::send_request(Request request) {
  step(coordinator::event::Arrived{kSingleNode, std::move(request)});
}

void SingleNodeHandler::step(coordinator::Event happened) {
  auto next = coordinator::step(std::move(coordinator_), std::move(happened), read_clocks());
  coordinator_ = std::move(next.state);
  if (trace_) {
    tracer_.look(kSingleNode, &coordinator_, kSingleNode, wall_now(),
                 [this](const std::string&, const TraceEvent& event) { trace_(event); });
  }
  for (coordinator::Action& action : next.actions) {
    auto* send = std::get_if<coordinator::action::Send>(&action);
    if (send == nullptr) continue;
    Command& command = send->command;
    if (auto* round = std::get_if<command::Round>(&command)) {
      round_ = round->number;
      notices_.push(*round);
    } else if (auto* stop = std::get_if<command::Stop>(&command)) {
      notices_.push(std::move(*stop));
    } else if (auto* inspect = std::get_if<command::Inspect>(&command)) {
      notices_.push(std::move(*inspect));
    } else if (auto* end = std::get_if<command::End>(&command)) {
      notices_.push(std::move(*end));
    }
  }
}

}  // namespace ddprun::rendezvous
