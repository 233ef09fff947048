// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/host.h"

#include <algorithm>
#include <vector>

#include "tests/sim/node.h"

namespace ddprun::sim {

using namespace rendezvous;

std::string Host::pulse() const {
  return process_.name + " " + std::to_string(world_.time.now() / std::chrono::milliseconds(250));
}

void Host::pop(const Wire& wire) {
  if (!wire->is_served) return;
  auto mailbox = mailboxes_.find(wire->node);
  if (mailbox == mailboxes_.end()) {
    waiting_[wire->node] = wire;
    return;
  }
  std::string order = std::move(mailbox->second.front());
  mailbox->second.pop_front();
  if (mailbox->second.empty()) mailboxes_.erase(mailbox);
  world_.send_down(wire, [wire, order] { wire->client->heard(wire, order); });
}

void Host::lost(const Wire& wire) {
  if (!wire->is_served) return;
  wire->is_served = false;
  auto waits = waiting_.find(wire->node);
  if (waits != waiting_.end() && waits->second == wire) waiting_.erase(waits);
  if (!wire->has_will) return;
  std::string run = wire->client->plan().run;
  take(encode(Letter{run, wire->node, request::Lost{}}));
}

void Host::leave(const std::string& why) {
  std::vector<std::string> names;
  for (const auto& [name, run] : runs_) names.push_back(name);
  for (const std::string& name : names) step(name, coordinator::event::HostLeaves{why});
}

void Host::take(const std::string& text) {
  auto letter = decode_letter(text);
  if (!letter) world_.violate("a letter that cannot be read: " + to_string(letter.error()));
  if (encode(*letter) != text) world_.violate("a letter that changes when it is read: " + text);
  bool is_new_run = !runs_.contains(letter->run);
  if (is_new_run && !std::holds_alternative<request::Join>(letter->request)) return;
  world_.oracle.heard(*this, *letter);
  if (world_.is_traced && !std::holds_alternative<request::Beat>(letter->request)) {
    world_.trace(process_.name, "takes " + text);
  }
  step(letter->run, coordinator::event::Arrived{letter->node, letter->request});
}

void Host::step(const std::string& run, const coordinator::Event& event) {
  coordinator::State& state = runs_[run];
  auto next = coordinator::step(std::move(state), event, world_.now(process_.machine));
  state = std::move(next.state);
  world_.oracle.stepped(*this, run, state, next.actions);
  for (const coordinator::Action& action : next.actions) {
    if (const auto* forget = std::get_if<coordinator::action::Forget>(&action)) {
      mailboxes_.erase(forget->node);
      continue;
    }
    const auto& send = std::get<coordinator::action::Send>(action);
    deliver(send.node, send.order);
  }
  if (coordinator::is_over(state)) {
    runs_.erase(run);
    world_.oracle.forget(*this, run);
  }
  set_alarm();
}

void Host::deliver(const std::string& node, const Order& order) {
  std::string text = encode(order);
  ++world_.oracle.messages;
  if (world_.is_traced) world_.trace(process_.name, "tells " + node + " " + text);
  mailboxes_[node].push_back(std::move(text));
  auto waits = waiting_.find(node);
  if (waits == waiting_.end()) return;
  Wire wire = waits->second;
  waiting_.erase(waits);
  pop(wire);
}

void Host::set_alarm() {
  MonoTime due = MonoTime::max();
  for (const auto& [name, run] : runs_)
    due = std::min(due, coordinator::deadline(run).value_or(due));
  if (due == alarm_) return;
  alarm_ = due;
  std::uint64_t number = ++alarms_;
  if (due == MonoTime::max()) return;
  world_.time.to(process_, due - world_.now(0).mono, [this, number] {
    if (number == alarms_) ring();
  });
}

void Host::ring() {
  MonoTime now = world_.now(0).mono;
  std::vector<std::string> due;
  for (const auto& [name, run] : runs_) {
    if (coordinator::deadline(run).value_or(MonoTime::max()) <= now) due.push_back(name);
  }
  alarm_ = MonoTime::max();
  for (const std::string& name : due) step(name, coordinator::event::Tick{});
  set_alarm();
}

}  // namespace ddprun::sim
