// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/single_node.h"

#include <unistd.h>

#include <utility>

#include "rendezvous/page_port.h"
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
                             .pid = ::getpid(),
                             .participant = config_.self,
                             .policy = {.max_restarts = config_.max_restarts},
                             .store_port = master.port,
                             .run_uuid = random_name(),
                             .is_host = true,
                             .gives_bundle = true,
                             .says_up = true});
}

std::string SingleNodeHandler::meeting_place() const {
  if (!page_port_) return "";
  Endpoint at = page_port_->endpoint();
  if (at.host == "0.0.0.0" || at.host == "::") at.host = config_.host;
  return "page=http://" + to_string(at) + "/";
}

void SingleNodeHandler::workers_started(const Round& round, std::vector<StartedWorker> workers) {
  send_request(request::Heartbeat{.up = round.number});
  open_pages();
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

Handler::VitalsUse SingleNodeHandler::vitals_use() const {
  if (config_.page) return VitalsUse::Everything;
  return config_.self.local_world_size > 1 ? VitalsUse::Progress : VitalsUse::Nothing;
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
  const coordinator::State* known = run();
  if (known == nullptr) return;
  const RunsSource seen = source();
  Pace pace = pace_of(pace_, *known, seen.vitals, seen.waits, mono_now());
  for (std::string& line : pace_lines_.of(round_, pace))
    notices_.push(notice::Info{std::move(line)});
  if (pace != known->pace) step(runs::event::PaceSeen{.run = config_.run, .pace = std::move(pace)});
}

void SingleNodeHandler::open_pages() {
  if (!config_.page || std::exchange(has_opened_pages_, true)) return;
  auto log = [this](const std::string& line) { notices_.push(notice::Info{line}); };
  auto opened = open_page_port(executor_, *config_.page, pages_, log);
  if (!opened) return log("this run has no page: " + to_string(opened.error()));
  page_port_ = std::move(*opened);
}

void SingleNodeHandler::hear_itself() {
  auto known = runs_.runs.find(config_.run);
  if (known == runs_.runs.end()) return;
  for (auto& [id, node] : known->second.nodes) node.seen = mono_now();
}

RunsSource SingleNodeHandler::source() const {
  return {.state = &runs_,
          .chronicle = &chronicle_,
          .tracer = &tracer_,
          .vitals = [this](const std::string&) { return vitals_; },
          .waits =
              [this](const std::string&) {
                return worker_store_ ? waits_text(*worker_store_, round_) : std::string();
              },
          .stacks = [this](const std::string&) { return stacks_; }};
}

std::optional<std::string> SingleNodeHandler::stacks_page(const StacksTarget& target,
                                                          bool is_wanted) {
  if (is_wanted && target.run == config_.run)
    step(runs::event::StacksWanted{.run = target.run, .rank = target.rank});
  return stacks_json(runs_, target.run, source().stacks, mono_now());
}

std::optional<std::string> SingleNodeHandler::bundle_page(const BundleTarget& target,
                                                          bool is_wanted) {
  const std::uint64_t number_before = bundle_number(runs_, target.run);
  if (is_wanted && target.run == config_.run) step(runs::event::BundleWanted{target});
  auto text = [this](const std::string&) { return bundle_; };
  if (target.kind == BundleTarget::Kind::Piece) return bundle_piece_text(runs_, target, text);
  return bundle_json(runs_, target.run, number_before, text, mono_now());
}

// The workers may still save together, which needs their store.
void SingleNodeHandler::leave(std::string, int) {
  is_open_ = false;
  notices_.close();
}

asio::awaitable<void> SingleNodeHandler::finish() {
  close();
  co_await tasks_.join();
  if (page_port_) co_await page_port_->stop();
}

void SingleNodeHandler::close() {
  is_open_ = false;
  notices_.close();
  announcement_.withdraw();
  tasks_.cancel();
  if (page_port_) page_port_->close();
  if (worker_store_) worker_store_->close();
  worker_store_.reset();
}

void SingleNodeHandler::send_request(Request request) {
  step(runs::event::Arrived{
      Message{.run = config_.run, .node = kSingleNode, .request = std::move(request)}});
}

const coordinator::State* SingleNodeHandler::run() const {
  auto found = runs_.runs.find(config_.run);
  return found == runs_.runs.end() ? nullptr : &found->second;
}

void SingleNodeHandler::step(const runs::Event& happened) {
  const Now now = read_clocks();
  runs::Step next = runs::step(std::move(runs_), happened, now);
  runs_ = std::move(next.state);
  if (auto run = runs_.runs.find(config_.run); run != runs_.runs.end())
    run->second.only_host = config_.host;
  note(happened, now);
  for (runs::Action& action : next.actions) {
    auto* send = std::get_if<runs::action::Send>(&action);
    if (send == nullptr) continue;
    Command& command = send->command;
    if (auto* round = std::get_if<command::Round>(&command)) {
      round_ = round->number;
      notices_.push(*round);
    } else if (auto* stop = std::get_if<command::Stop>(&command)) {
      notices_.push(std::move(*stop));
    } else if (auto* inspect = std::get_if<command::Inspect>(&command)) {
      notices_.push(std::move(*inspect));
    } else if (auto* stacks = std::get_if<command::TakeStacks>(&command)) {
      notices_.push(*stacks);
    } else if (auto* bundle = std::get_if<command::TakeBundle>(&command)) {
      notices_.push(*bundle);
    } else if (auto* end = std::get_if<command::End>(&command)) {
      notices_.push(std::move(*end));
    }
  }
}

// For the pages and the timeline.
void SingleNodeHandler::note(const runs::Event& happened, Now now) {
  if (const auto* arrived = std::get_if<runs::event::Arrived>(&happened)) {
    chronicle_.heard(arrived->message, run(), now);
  } else {
    chronicle_.look(config_.run, run(), now);
  }
  tracer_.look(config_.run, run(), kSingleNode, now.wall,
               [this](const std::string&, const TraceEvent& event) {
                 if (trace_) trace_(event);
               });
}

}  // namespace ddprun::rendezvous
