// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator_service.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "rendezvous/decide/node_id.h"
#include "rendezvous/decide/own_round.h"
#include "rendezvous/decide/pulse.h"
#include "rendezvous/decide/shown_address.h"
#include "rendezvous/decide/store_keys.h"
#include "store/base/number.h"
#include "store/base/variant.h"
#include "store/clock.h"
#include "store/decide/stamp.h"
#include "store/socket.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

std::string text_of(std::exception_ptr error) {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const std::exception& failure) {
    return failure.what();
  } catch (...) {
    return "an exception of another kind";
  }
}

constexpr Duration kPulsePeriod = std::chrono::milliseconds(100);
constexpr Duration kPatience = std::chrono::minutes(10);     // of one blocking pop
constexpr Duration kAddressesAge = std::chrono::seconds(1);  // until they are looked up again
constexpr std::size_t kMostKnocks = 256;                     // at one time
constexpr std::size_t kMostRead = 64;                        // messages in one exchange
constexpr std::size_t kMostSent = 64;                        // likewise, to the nodes
constexpr std::size_t kMostSentBytes = 1 << 20;
constexpr std::size_t kMostUnsent = 1024;  // no message is read while there is so much to send

// What the coordinator puts into its own inbox: "mark 17 RUN".
constexpr std::string_view kMark = "mark ";

std::optional<runs::event::MarkRead> decode_mark(std::string_view text) {
  if (!text.starts_with(kMark)) return std::nullopt;
  text.remove_prefix(kMark.size());
  std::size_t end = text.find(' ');
  auto number = number_in<std::uint64_t>(text.substr(0, end));
  if (end == std::string_view::npos || !number) return std::nullopt;
  return runs::event::MarkRead{.run = std::string(text.substr(end + 1)), .number = *number};
}

}  // namespace

CoordinatorService::CoordinatorService(asio::any_io_executor executor, ServiceConfig config,
                                       std::unique_ptr<store::Client> in,
                                       std::unique_ptr<store::Client> out)
    : config_(std::move(config)),
      strangers_(executor, config_.log),
      in_(std::move(in)),
      out_(std::move(out)),
      alarm_(executor, MonoTime::max()),
      has_mail_(executor),
      has_sent_(executor),
      has_emptied_(executor),
      pulse_timer_(executor),
      pace_timer_(executor),
      tasks_(executor, [this](std::exception_ptr error) {
        failed("the coordinator has failed: " + text_of(std::move(error)));
      }) {
  state_.only_run = config_.only_run;
  state_.guarded_run = config_.guarded_run;
}

CoordinatorService::~CoordinatorService() = default;

store::Async<std::unique_ptr<CoordinatorService>> CoordinatorService::start(
    asio::any_io_executor executor, ServiceConfig config, std::unique_ptr<store::Client> in,
    std::unique_ptr<store::Client> out, bool is_claimed) {
  std::unique_ptr<CoordinatorService> service(
      new CoordinatorService(executor, std::move(config), std::move(in), std::move(out)));
  auto set =
      co_await service->out_->set(keys::pulse(service->config_.record), service->next_pulse(0));
  if (set && !is_claimed) {
    set = co_await service->out_->set(keys::kCoordinator, service->config_.record);
  }
  if (!set) co_return set.error();
  service->step(runs::event::Begun{.files = std::move(service->config_.found_files),
                                   .name = service->config_.name,
                                   .order = service->config_.order,
                                   .is_daemon = service->config_.is_daemon});
  service->tasks_.spawn(service->receive());
  service->tasks_.spawn(service->send());
  service->tasks_.spawn(service->keep_time());
  service->tasks_.spawn(service->beat());
  if (service->config_.vitals) service->tasks_.spawn(service->watch_pace());
  co_return service;
}

void CoordinatorService::host_leaves(const std::string& why, int signal) {
  step(runs::event::HostLeaves{why, signal});
}

void CoordinatorService::hand_over(const std::string& own_run, const std::string& why) {
  if (is_open_) step(runs::event::HandOver{.own_run = own_run, .why = why});
}

void CoordinatorService::stacks_wanted(const std::string& run, std::optional<int> rank) {
  if (is_open_) step(runs::event::StacksWanted{.run = run, .rank = rank});
}

void CoordinatorService::bundle_wanted(const BundleTarget& target) {
  if (is_open_) step(runs::event::BundleWanted{target});
}

// One that has failed is seen by no node any more.
MonoTime CoordinatorService::heard_at(const std::string& run) const {
  return is_open_ ? runs::heard_at(state_, run, mono_now()) : MonoTime::min();
}

bool CoordinatorService::holds(const std::string& run) const {
  return is_open_ && runs::holds(state_, run, mono_now());
}

std::optional<std::string> CoordinatorService::knock(const std::string& run, const Endpoint& from,
                                                     const Endpoint& to,
                                                     const std::string& from_node,
                                                     std::uint64_t number) const {
  auto knock = runs::knock(state_, run, from, to, mono_now());
  if (!knock || !is_open_) return std::nullopt;
  return encode(
      Message{.run = run, .node = from_node, .request = std::move(*knock), .connection = number});
}

void CoordinatorService::answered(const std::string& run, command::Moved moved) {
  if (is_open_) step(runs::event::Answered{.run = run, .moved = std::move(moved)});
}

void CoordinatorService::unreached(const std::string& run, const Endpoint& at) {
  if (is_open_) step(runs::event::Unreached{.run = run, .at = at});
}

bool CoordinatorService::is_in_doubt(const std::string& run) const {
  return is_open_ && runs::is_in_doubt(state_, run, mono_now());
}

void CoordinatorService::endpoint_is_clear(const std::string& run) {
  if (is_open_) step(runs::event::EndpointIsClear{run});
}

bool CoordinatorService::has_successor() const {
  return std::ranges::any_of(state_.runs, [](const auto& run) {
    return run.second.is_left_to_others && coordinator::has_successor(run.second);
  });
}

asio::awaitable<void> CoordinatorService::idle() {
  auto is_idle = [&] { return runs::is_idle(state_) && outgoing_.empty() && !is_sending_; };
  while (is_open_ && !is_idle()) co_await has_emptied_.wait();
}

std::size_t CoordinatorService::missing(std::size_t nodes) const {
  if (!runs::has_ended(state_) || state_.gone.size() >= nodes) return 0;
  return nodes - state_.gone.size();
}

asio::awaitable<void> CoordinatorService::meet_missing(std::size_t nodes, Duration patience) {
  MonoTime end = mono_now() + patience;
  auto is_waited_for = [&] { return is_open_ && state_.why_leaving.empty() && missing(nodes) > 0; };
  while (is_waited_for() && mono_now() < end) {
    co_await has_emptied_.wait_until(end);
  }
}

void CoordinatorService::close() {
  is_open_ = false;
  in_->close();
  out_->close();
  strangers_.close();
  for (auto* timer : {&alarm_, &pulse_timer_, &pace_timer_}) timer->cancel();
  for (auto* event : {&has_mail_, &has_sent_, &has_emptied_}) event->notify();
}

asio::awaitable<void> CoordinatorService::stop() {
  close();
  co_await tasks_.join();
}

asio::awaitable<void> CoordinatorService::receive() {
  std::string inbox = keys::inbox(config_.record);
  while (is_open_) {
    while (is_open_ && outgoing_.size() >= kMostUnsent) co_await has_sent_.wait();
    auto messages = co_await in_->queue_pop_some(inbox, kPatience, kMostRead);
    if (!messages && messages.error().code != Errc::TimedOut)
      co_return cannot("read the messages of the nodes", messages.error());
    if (!messages) continue;
    for (std::string& message : *messages) {
      if (is_open_) take(std::move(message));
    }
  }
}

// Only this process itself puts marks there.
void CoordinatorService::take(std::string text) {
  std::optional<std::string> shown;
  if (config_.has_stamps) shown = store::take_stamp(text);
  auto mark = shown ? std::nullopt : decode_mark(text);
  if (mark) return step(std::move(*mark));
  Result<Message> message = decode_message(text);
  if (message && shown && !config_.believes_nodes) check_addresses(*message, *shown);
  if (message) return step(runs::event::Arrived{std::move(*message)});
  std::string problem = to_string(message.error());
  strangers_.line_once("ignored a message to the rendezvous: " + problem);
  if (auto sender = decode_sender(text))
    step(runs::event::Unreadable{std::move(*sender), std::move(problem)});
}

// A node says its addresses when it comes, and when it is back.
void CoordinatorService::check_addresses(Message& message, const std::string& shown) {
  auto* join = std::get_if<request::Join>(&message.request);
  if (auto* resume = std::get_if<request::Resume>(&message.request)) join = &resume->join;
  if (join == nullptr) return;
  if (mono_now() >= own_addresses_until_) {
    own_addresses_ = store::own_addresses();
    own_addresses_until_ = mono_now() + kAddressesAge;
  }
  auto believed = believed_addresses(join->addresses, shown, own_addresses_);
  std::string text = unbelieved_text(*join, shown, believed);
  if (!text.empty()) strangers_.line_once(text);
  join->addresses = std::move(believed);
}

void CoordinatorService::step(const runs::Event& event) {
  Now now = read_clocks();
  runs::Step next = runs::step(std::move(state_), event, now);
  state_ = std::move(next.state);
  note_in_chronicle(event, next.changed, now);
  hold_for_begin(next.actions);
  if (const command::Round* round = runs::own_round(next.actions, config_.node))
    config_.on_own_round(*round);
  for (runs::Action& action : next.actions) {
    std::visit(
        Overloaded{
            [this](runs::action::Send& send) {
              outgoing_.push_back({.kind = StoreCall::Kind::Push,
                                   .name = keys::mailbox(send.node, send.connection),
                                   .text = encode(send.command)});
            },
            [this](runs::action::Forget& forget) {
              std::vector<std::string> keys{keys::vitals(forget.node), keys::waits(forget.node),
                                            keys::stacks(forget.node), keys::bundle(forget.node),
                                            keys::slices(forget.node)};
              slices_.forget(forget.node);
              outgoing_.push_back({.kind = StoreCall::Kind::Forget,
                                   .name = keys::mailbox(forget.node, forget.connection),
                                   .keys = std::move(keys)});
            },
            [this](runs::action::Suspect& suspect) {
              outgoing_.push_back(
                  {.kind = StoreCall::Kind::SetKey, .name = keys::given_up(suspect.node)});
            },
            [this](runs::action::Acquit& acquit) {
              outgoing_.push_back(
                  {.kind = StoreCall::Kind::DeleteKey, .name = keys::given_up(acquit.node)});
            },
            [this](runs::action::Mark& mark) {
              outgoing_.push_back(
                  {.kind = StoreCall::Kind::Push,
                   .name = keys::inbox(config_.record),
                   .text = std::string(kMark) + std::to_string(mark.number) + ' ' + mark.run});
            },
            [this](runs::action::EmptyCommonSpace& empty) {
              config_.renew_common_space(empty.peers);
            },
            [this](runs::action::Knock& knock) { tasks_.spawn(knock_there(std::move(knock))); },
            [this](runs::action::LookBack& look) {
              if (config_.look_back) tasks_.spawn(config_.look_back(std::move(look.at)));
            },
            [this](runs::action::KeepRunFile& keep) { config_.keep_file(std::move(keep.file)); },
            [this](runs::action::DropRunFile& drop) { config_.drop_file(drop.run); },
        },
        action);
  }
  beat_if_not_alone(now.mono);
  if (runs::is_idle(state_)) has_emptied_.notify();
  has_mail_.notify();
  MonoTime due = runs::deadline(state_).value_or(MonoTime::max());
  if (due != alarm_.expiry()) alarm_.expires_at(due);
}

// A message changes its own run only.
void CoordinatorService::note_in_chronicle(const runs::Event& event,
                                           const std::vector<std::string>& changed, Now now) {
  auto state_of = [this](const std::string& name) {
    auto run = state_.runs.find(name);
    return run == state_.runs.end() ? nullptr : &run->second;
  };
  if (const auto* arrived = std::get_if<runs::event::Arrived>(&event)) {
    const auto* state = state_of(arrived->message.run);
    // Its last slices came before its last word, after which their key is deleted.
    bool is_last = std::holds_alternative<request::Left>(arrived->message.request);
    if (is_last) look_at_slices(arrived->message.run, arrived->message.node, "");
    chronicle_.heard(arrived->message, state, now);
    return tracer_.look(arrived->message.run, state, arrived->message.node, now.wall,
                        config_.trace);
  }
  for (const std::string& name : changed) {
    chronicle_.look(name, state_of(name), now);
    tracer_.look(name, state_of(name), "", now.wall, config_.trace);
  }
}

// What is said of the first round waits behind the question whether it may begin.
void CoordinatorService::hold_for_begin(std::vector<runs::Action>& actions) {
  if (!config_.may_begin || has_begun_) return;
  auto keeps = std::ranges::find_if(actions, [this](const runs::Action& action) {
    const auto* keep = std::get_if<runs::action::KeepRunFile>(&action);
    return keep != nullptr && keep->file.run == config_.guarded_run;
  });
  if (keeps == actions.end()) return;
  has_begun_ = true;
  RunFile file = std::move(std::get<runs::action::KeepRunFile>(*keeps).file);
  actions.erase(keeps);
  bool is_first = file.round == 0;
  if (!is_first) return config_.keep_file(std::move(file));
  outgoing_.push_back({.kind = StoreCall::Kind::Begin, .name = {}, .file = std::move(file)});
}

store::Async<void> CoordinatorService::begin(RunFile file) {
  bool may = co_await config_.may_begin(std::move(file));
  if (!may && is_open_) config_.on_superseded();
  if (!may) co_return Error{Errc::Closed, "another host may have begun the run"};
  co_return Result<void>{};
}

asio::awaitable<void> CoordinatorService::send() {
  while (is_open_) {
    while (!outgoing_.empty()) {
      StoreCall next = std::move(outgoing_.front());
      outgoing_.pop_front();
      is_sending_ = true;
      auto performed = co_await perform(std::move(next));
      is_sending_ = false;
      if (!is_open_) co_return;
      has_sent_.notify();
      if (!performed) co_return cannot("speak to the nodes", performed.error());
    }
    has_emptied_.notify();
    co_await has_mail_.wait();
  }
}

store::Async<void> CoordinatorService::perform(StoreCall next) {
  switch (next.kind) {
    case StoreCall::Kind::Push:
      co_return co_await push(std::move(next));
    case StoreCall::Kind::SetKey: {
      // The answer shows that the store has it: set() alone may return earlier.
      auto set = co_await out_->set(next.name, "");
      if (!set) co_return set;
      std::vector<std::string> names(1, next.name);  // not inside co_await: GCC 12
      auto is_there = co_await out_->check(std::move(names));
      if (!is_there) co_return is_there.error();
      co_return Result<void>{};
    }
    case StoreCall::Kind::DeleteKey: {
      auto deleted = co_await out_->delete_key(next.name);
      if (!deleted) co_return deleted.error();
      co_return Result<void>{};
    }
    case StoreCall::Kind::Begin:
      co_return co_await begin(std::move(*next.file));
    case StoreCall::Kind::Forget:
      break;
  }
  co_return co_await forget(std::move(next));
}

// What is to be sent next if it is of this kind.
std::optional<CoordinatorService::StoreCall> CoordinatorService::next_like(StoreCall::Kind kind) {
  if (outgoing_.empty() || outgoing_.front().kind != kind) return std::nullopt;
  StoreCall next = std::move(outgoing_.front());
  outgoing_.pop_front();
  return next;
}

// With what is to be pushed next.
store::Async<void> CoordinatorService::push(StoreCall first) {
  std::vector<store::Client::Pushed> all;
  std::size_t bytes = 0;
  for (std::optional<StoreCall> next = std::move(first); next;) {
    bytes += next->text.size();
    all.push_back({.queue = std::move(next->name), .item = std::move(next->text)});
    bool has_room = all.size() < kMostSent && bytes < kMostSentBytes;
    next = has_room ? next_like(StoreCall::Kind::Push) : std::nullopt;
  }
  return out_->queue_push_all(std::move(all));
}

// With those that are to be forgotten next.
store::Async<void> CoordinatorService::forget(StoreCall first) {
  std::vector<store::Client::Discarded> all;
  for (std::optional<StoreCall> next = std::move(first); next;) {
    all.push_back({.queue = std::move(next->name), .keys = std::move(next->keys)});
    next = all.size() < kMostSent ? next_like(StoreCall::Kind::Forget) : std::nullopt;
  }
  return out_->discard(std::move(all));
}

asio::awaitable<void> CoordinatorService::knock_there(runs::action::Knock wanted) {
  const std::string where = to_string(wanted.knock.to) + " " + wanted.run;
  if (!config_.knock || knocks_at_.size() >= kMostKnocks) co_return;
  if (!knocks_at_.insert(where).second) co_return;
  const std::string node = config_.name + ".knock";
  const std::uint64_t number = ++knocks_;
  bool has_answer = !wanted.knock.has_round && !wanted.knock.is_over;
  std::string mailbox = has_answer ? keys::mailbox(node, number) : "";
  Endpoint place = wanted.knock.to;
  std::string message = encode(Message{
      .run = wanted.run, .node = node, .request = std::move(wanted.knock), .connection = number});
  auto answer = co_await config_.knock(std::move(place), std::move(message), std::move(mailbox));
  knocks_at_.erase(where);
  if (answer && *answer) answered(wanted.run, std::move(**answer));
}

asio::awaitable<void> CoordinatorService::keep_time() {
  while (is_open_) {
    co_await store::wait_for(alarm_);
    if (is_open_ && alarm_.expiry() <= mono_now()) step(runs::event::Tick{});
  }
}

std::string CoordinatorService::next_pulse(std::uint64_t count) {
  if (config_.name.empty()) return std::to_string(count);
  MonoTime now = mono_now();
  std::vector<std::string> alone = runs::alone(state_, now);
  told_alone_ = alone.size();
  return encode_pulse(now, alone);
}

// Nodes whose pulse renews no lease are not to wait for the next beat when it does again.
void CoordinatorService::beat_if_not_alone(MonoTime now) {
  if (told_alone_ > 0 && runs::alone(state_, now).size() < told_alone_) pulse_timer_.cancel();
}

asio::awaitable<void> CoordinatorService::beat() {
  for (std::uint64_t count = 1; is_open_; ++count) {
    auto set = co_await out_->set(keys::pulse(config_.record), next_pulse(count));
    if (!is_open_) co_return;
    if (!set) co_return cannot("say that the coordinator lives", set.error());
    pulse_timer_.expires_after(kPulsePeriod);
    co_await store::wait_for(pulse_timer_);
  }
}

asio::awaitable<void> CoordinatorService::watch_pace() {
  while (is_open_) {
    pace_timer_.expires_after(kPacePeriod);
    co_await store::wait_for(pace_timer_);
    if (!is_open_) co_return;
    look_at_pace();
    look_at_slices();
  }
}

void CoordinatorService::look_at_pace() {
  std::map<std::string, PaceWatch> before = std::exchange(paces_, {});
  std::vector<runs::event::PaceSeen> seen;
  for (const auto& [name, run] : state_.runs) {
    if (run.run_uuid.empty()) continue;
    PaceWatch& watch = paces_[run.run_uuid];
    if (auto known = before.extract(run.run_uuid)) watch = std::move(known.mapped());
    Pace pace = pace_of(watch, run, config_.vitals, config_.waits, mono_now());
    if (pace != run.pace) seen.push_back({.run = name, .pace = std::move(pace)});
  }
  for (const runs::event::PaceSeen& event : seen) step(event);
}

void CoordinatorService::look_at_slices() {
  for (const auto& [name, run] : state_.runs) {
    for (const auto& [id, node] : run.nodes) look_at_slices(name, id, node.join.host);
  }
}

void CoordinatorService::look_at_slices(const std::string& run, const std::string& node,
                                        const std::string& host) {
  if (!config_.trace || !config_.slices) return;
  for (TraceEvent& slice : slices_.news(node, config_.slices(node))) {
    if (slice.kind != TraceEvent::Kind::Slice) slice.at = wall_now();
    slice.node = coordinator::name_of(node);
    slice.host = host;
    config_.trace(run, slice);
  }
}

void CoordinatorService::cannot(const std::string& what, const Error& error) {
  failed("the coordinator cannot " + what + ": " + to_string(error));
}

void CoordinatorService::failed(const std::string& why) {
  if (!is_open_) return;
  close();
  config_.on_failed(why);
}

}  // namespace ddprun::rendezvous
