// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/host.h"

#include <utility>

#include "rendezvous/decide/own_round.h"
#include "rendezvous/decide/pulse.h"
#include "rendezvous/decide/store_keys.h"
#include "tests/sim/node.h"

namespace ddprun::sim {

using namespace rendezvous;

namespace {

// What a join or a round may take, whatever the number of nodes.
constexpr std::size_t kMaxBytes = 1024;
constexpr std::size_t kMaxDiedBytes = 512;      // more, for each agent that has died
constexpr std::size_t kMaxStandInBytes = 1024;  // more, of a round that names its stand-ins

// The run of all nodes, where its host may change.
constexpr const char* kRun = "job";

}  // namespace

void Host::begin() {
  runs::event::Begun begun;
  if (world_.scenario.has_stand_ins) {
    begun.name = name();
    begun.order = order_;
    begun.is_daemon = world_.scenario.daemons > 0;
  }
  if (world_.scenario.has_registry) state_.guarded_run = kRun;
  for (const RunFile& file : found) {
    found_starts.insert(file.run_uuid);
    begun.files.push_back(file);
  }
  if (port_ != kEndpointPort) return step(begun);
  for (const auto& [run, text] : world_.run_files[process_.machine]) {
    auto file = decode_run_file(text);
    if (!file || encode(*file) != text) world_.violate("a run file that cannot be read: " + text);
    found_starts.insert(file->run_uuid);
    begun.files.push_back(std::move(*file));
  }
  step(begun);
}

std::string Host::name() const {
  if (!world_.scenario.has_stand_ins) return process_.name;
  return process_.name + "@" + std::to_string(number_);
}

// A time of its own clock: the last tenth of a second.
std::string Host::pulse(const std::string& run) const {
  if (!world_.scenario.has_stand_ins) {
    return process_.name + " " + std::to_string(world_.time.now() / std::chrono::milliseconds(100));
  }
  MonoTime now = world_.now(process_.machine).mono;
  Duration since = now.time_since_epoch();
  since -= since % std::chrono::milliseconds(100);
  std::vector<std::string> alone = runs::alone(state_, now);
  return pulse_for(run, encode_pulse(MonoTime(since), alone));
}

MonoTime Host::heard_at(const std::string& run) const {
  return runs::heard_at(state_, run, world_.now(process_.machine).mono);
}

std::optional<std::string> Host::knock(const Endpoint& to) {
  Endpoint from{.host = "10.0.0." + std::to_string(process_.machine), .port = port_};
  auto knock = runs::knock(state_, kRun, from, to, world_.now(process_.machine).mono);
  if (!knock) return std::nullopt;
  return encode(Message{kRun, process_.name + ".knock", *knock, ++knocks_});
}

std::optional<std::string> Host::knock(const std::string& run, const request::Knock& knock) {
  if (is_closed) return std::nullopt;
  return encode(Message{run, name() + ".knock", knock, ++knocks_});
}

std::optional<std::string> Host::answer(const std::string& knock) {
  std::uint64_t number = decode_message(knock)->connection;
  std::string box = keys::mailbox(decode_message(knock)->node, number);
  take(knock);
  auto mailbox = mailboxes_.extract(box);
  if (mailbox.empty()) return std::nullopt;
  return mailbox.mapped().front();
}

void Host::answered(const std::string& answer) {
  auto command = decode_command(answer);
  if (!command || encode(*command) != answer) world_.violate("an answer that cannot be read");
  if (std::holds_alternative<command::Continue>(*command)) return endpoint_is_clear();
  step(runs::event::Answered{kRun, std::get<command::Moved>(*command)});
}

void Host::unreached(const Endpoint& at) {
  step(runs::event::Unreached{kRun, at});
}

void Host::endpoint_is_clear() {
  step(runs::event::EndpointIsClear{kRun});
}

bool Host::is_in_doubt() const {
  return runs::is_in_doubt(state_, kRun, world_.now(process_.machine).mono);
}

void Host::pop(const Wire& wire) {
  if (!wire->is_served) return;
  std::string name = keys::mailbox(wire->node, wire->number);
  auto mailbox = mailboxes_.find(name);
  if (mailbox == mailboxes_.end()) {
    waiting_[name] = wire;
    return;
  }
  std::string command = std::move(mailbox->second.front());
  mailbox->second.pop_front();
  if (mailbox->second.empty()) mailboxes_.erase(mailbox);
  world_.send_down(wire, [wire, command] { wire->client->heard(wire, command); });
}

void Host::lost(const Wire& wire) {
  if (!wire->is_served) return;
  wire->is_served = false;
  auto waits = waiting_.find(keys::mailbox(wire->node, wire->number));
  if (waits != waiting_.end() && waits->second == wire) waiting_.erase(waits);
  if (!wire->has_will) return;
  std::string run = wire->client->plan().run;
  take(encode(Message{run, wire->node, request::Lost{}, wire->number}));
}

void Host::leave(const std::string& why) {
  step(runs::event::HostLeaves{why});
}

void Host::take(const std::string& text) {
  auto message = decode_message(text);
  if (!message) world_.violate("a message that cannot be read: " + to_string(message.error()));
  if (encode(*message) != text) world_.violate("a message that changes when it is read: " + text);
  const auto* join = std::get_if<request::Join>(&message->request);
  if (join != nullptr && text.size() > kMaxBytes + kMaxDiedBytes * join->died.size())
    world_.violate("a join of many bytes: " + text);
  world_.oracle.heard(*this, *message);
  if (world_.is_traced && !std::holds_alternative<request::Heartbeat>(message->request)) {
    world_.trace(process_.name, "takes " + text);
  }
  step(runs::event::Arrived{std::move(*message)});
}

void Host::step(const runs::Event& event) {
  auto next = runs::step(std::move(state_), event, world_.now(process_.machine));
  state_ = std::move(next.state);
  bool is_agent = on_own_round && world_.scenario.has_stand_ins;
  const auto* round = is_agent ? runs::own_round(next.actions, process_.name) : nullptr;
  if (round != nullptr) on_own_round(*round);
  if (!holds_back(next.actions)) {
    world_.oracle.stepped(*this, state_, next.actions);
    perform(next.actions);
  }
  set_alarm();
}

// CoordinatorService::hold_for_begin().
bool Host::holds_back(const std::vector<runs::Action>& actions) {
  for (const runs::Action& action : actions) {
    const auto* keeps = std::get_if<runs::action::KeepRunFile>(&action);
    if (keeps == nullptr || !may_begin || std::exchange(has_begun_, true)) continue;
    if (keeps->file.round > 0) continue;
    is_held_ = true;
    may_begin(keeps->file, [this](bool may) {
      if (!may || is_closed) return;
      is_held_ = false;
      world_.is_late = true;
      for (const Held& held : std::exchange(held_, {})) {
        world_.oracle.stepped(*this, held.state, held.actions);
        perform(held.actions);
      }
      world_.is_late = false;
      process_.thawed_at = world_.time.now();  // it has given nobody up meanwhile
    });
  }
  if (is_held_) held_.push_back({.state = state_, .actions = actions});
  return is_held_;
}

void Host::perform(const std::vector<runs::Action>& actions) {
  for (const runs::Action& action : actions) {
    if (const auto* forget = std::get_if<runs::action::Forget>(&action)) {
      mailboxes_.erase(keys::mailbox(forget->node, forget->connection));
    } else if (const auto* suspect = std::get_if<runs::action::Suspect>(&action)) {
      given_up_.insert(suspect->node);
    } else if (const auto* acquit = std::get_if<runs::action::Acquit>(&action)) {
      given_up_.erase(acquit->node);
    } else if (const auto* mark = std::get_if<runs::action::Mark>(&action)) {
      // After what has reached the inbox by now.
      Duration read = std::chrono::milliseconds(mark->number * 37 % 200);
      world_.time.to(process_, read, [this, put = *mark] {
        step(runs::event::MarkRead{.run = put.run, .number = put.number});
      });
    } else if (const auto* knocks = std::get_if<runs::action::Knock>(&action)) {
      world_.knock(*this, knocks->knock.to, knock(knocks->run, knocks->knock));
    } else if (const auto* look = std::get_if<runs::action::LookBack>(&action)) {
      world_.knock(*this, look->at);
    } else if (const auto* send = std::get_if<runs::action::Send>(&action)) {
      deliver(keys::mailbox(send->node, send->connection), send->command);
    } else if (const auto* kept = std::get_if<runs::action::KeepRunFile>(&action)) {
      if (port_ == kEndpointPort)
        world_.run_files[process_.machine][kept->file.run] = encode(kept->file);
      if (keep) keep(kept->file);
    } else if (const auto* dropped = std::get_if<runs::action::DropRunFile>(&action)) {
      bool is_there =
          port_ != kEndpointPort || world_.run_files[process_.machine].erase(dropped->run) > 0;
      if (!is_there && !world_.scenario.has_stand_ins)
        world_.violate("a run file is dropped that is not there");
      if (drop) drop();
    }
  }
}

bool Host::holds_run() const {
  return runs::holds(state_, kRun, world_.now(process_.machine).mono);
}

void Host::deliver(const std::string& mailbox, const Command& command) {
  std::string text = encode(command);
  bool is_round = std::holds_alternative<command::Round>(command);
  std::size_t most = kMaxBytes + (world_.scenario.has_stand_ins ? kMaxStandInBytes : 0);
  if (is_round) world_.last_host = this;
  if (is_round && text.size() > most) world_.violate("a round of many bytes: " + text);
  ++world_.oracle.messages;
  if (world_.is_traced) world_.trace(process_.name, "tells " + mailbox + " " + text);
  mailboxes_[mailbox].push_back(std::move(text));
  auto waits = waiting_.find(mailbox);
  if (waits == waiting_.end()) return;
  Wire wire = waits->second;
  waiting_.erase(waits);
  pop(wire);
}

void Host::set_alarm() {
  MonoTime due = runs::deadline(state_).value_or(MonoTime::max());
  if (due == alarm_) return;
  alarm_ = due;
  std::uint64_t number = ++alarms_;
  if (due == MonoTime::max()) return;
  Duration left = world_.as_measured(process_.machine, due - world_.mono(process_.machine));
  world_.time.to(process_, left, [this, number] {
    if (number == alarms_ && !is_closed) ring();
  });
}

void Host::ring() {
  alarm_ = MonoTime::max();
  step(runs::event::Tick{});
}

}  // namespace ddprun::sim
