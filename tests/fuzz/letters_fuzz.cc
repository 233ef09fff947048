// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer's bytes as letters of a few nodes to the coordinators of two runs: nodes that come, go,
// lie and contradict themselves, in any order.  scripts/fuzz builds and runs it.
//
//  1. Each letter is written and read as on its way.
//  2. At the end all are silent, and after a while no node is left, nor anything to be waited for.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/runs.h"
#include "store/base/check.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

// What the input says next; 0 when it is over.
class Draw {
 public:
  explicit Draw(std::string_view input) : input_(input) {}

  bool is_over() const { return input_.empty(); }
  std::uint64_t below(std::uint64_t count) {
    if (input_.empty()) return 0;
    auto byte = static_cast<unsigned char>(input_.front());
    input_.remove_prefix(1);
    return byte % count;
  }
  int small(std::uint64_t count) { return static_cast<int>(below(count)); }
  bool one_in(std::uint64_t count) { return below(count) == count - 1; }

 private:
  std::string_view input_;
};

class Place {
 public:
  explicit Place(Draw& draw) : draw_(draw) {
    if (draw_.one_in(2)) step(runs::event::Begun{.files = {}, .name = "host@g", .order = 0});
  }

  void play() {
    while (!draw_.is_over()) {
      // From a moment to longer than any lease here.
      if (draw_.one_in(3)) pass(std::chrono::milliseconds(1 << draw_.below(14)));
      say(Message{
          .run = run(), .node = node(), .request = request(), .connection = draw_.below(3)});
    }
  }

  void end() {
    constexpr int kEnough = 100'000;  // steps, for a day of silence
    MonoTime end = now_ + std::chrono::hours(24);
    int steps = 0;
    for (auto due = runs::deadline(state_); due && *due < end; due = runs::deadline(state_)) {
      check(++steps < kEnough, "it wakes again and again, for nothing");
      now_ = std::max(now_, *due);
      step(runs::event::Tick{});
    }
    for (const auto& [name, run] : state_.runs)
      check(run.nodes.empty() && run.contenders.empty(), "a silent node is in a run for ever");
  }

 private:
  void say(const Message& message) {
    auto read = decode_message(encode(message));
    if (read) step(runs::event::Arrived{std::move(*read)});
  }

  // What the coordinators put into their own inbox is read at once.
  void step(const runs::Event& event) {
    auto next = runs::step(std::move(state_), event, {.mono = now_, .wall = {}});
    state_ = std::move(next.state);
    std::vector<runs::action::Mark> marks;
    for (const auto& action : next.actions) {
      if (const auto* mark = std::get_if<runs::action::Mark>(&action)) marks.push_back(*mark);
      const auto* send = std::get_if<runs::action::Send>(&action);
      if (send == nullptr) continue;
      // Nodes that lie of rounds may hear that one without a coordinator's name is settled.
      bool can_be_read = std::holds_alternative<command::Settled>(send->command) ||
                         decode_command(encode(send->command)).has_value();
      check(can_be_read, "a command cannot be read");
      if (const auto* round = std::get_if<command::Round>(&send->command)) uuid_ = round->run_uuid;
    }
    for (const auto& mark : marks) step(runs::event::MarkRead{mark.run, mark.number});
  }

  // All that is due meanwhile happens at its time.
  void pass(Duration time) {
    MonoTime end = now_ + time;
    for (auto due = runs::deadline(state_); due && *due < end; due = runs::deadline(state_)) {
      now_ = std::max(now_, *due);
      step(runs::event::Tick{});
    }
    now_ = end;
    step(runs::event::Tick{});
  }

  std::string run() { return draw_.one_in(8) ? "s" : "r"; }
  std::string node() {
    std::string name = "n" + std::to_string(draw_.below(5));
    return draw_.one_in(8) ? name : name + "." + std::to_string(draw_.below(3));
  }
  std::string coordinator() {
    static const std::string kNames[] = {"", "host@g", "other@g", "third@g"};
    return kNames[draw_.below(4)];
  }
  std::uint64_t round() { return draw_.one_in(8) ? (1ULL << 52) - draw_.below(2) : draw_.below(5); }

  std::vector<Unsettled> unsettled() {
    std::vector<Unsettled> after;
    for (std::uint64_t left = draw_.below(3); left > 0; --left)
      after.push_back({.id = {.number = round(), .by = coordinator()},
                       .nodes = draw_.small(6),
                       .was_in = draw_.one_in(2)});
    return after;
  }

  request::Join join() {
    request::Join join{
        .host = "h" + std::to_string(draw_.below(3)),
        .address = "10.0.0.7",
        .pid = 7,
        .participant = {},
        .settings = {.min_nodes = 1 + draw_.small(2), .max_nodes = 2 + draw_.small(3)},
        .policy = {},
        .store_port = 4000};
    join.policy.max_restarts = draw_.small(3);
    join.policy.join_timeout = std::chrono::seconds(1 + draw_.below(200));
    join.policy.last_call_timeout = std::chrono::seconds(draw_.below(3));
    join.policy.quorum = draw_.one_in(8) ? 1 : 0;
    if (draw_.one_in(4)) join.node_rank = draw_.small(6);
    if (draw_.one_in(4)) join.previous_rank = draw_.small(6);
    if (draw_.one_in(3)) {
      join.next_round = round();
      join.run_uuid = draw_.one_in(3) ? "another" : uuid_;
      join.previous_nodes = draw_.small(6);
      join.restart_count = draw_.small(4);
      join.round_by = coordinator();
      join.after = unsettled();
    }
    join.is_back = draw_.one_in(3);
    join.was_in_round = draw_.one_in(3);
    if (draw_.one_in(8)) join.preflight_failure = "no script";
    join.stand_in_port = static_cast<std::uint16_t>(draw_.below(3));
    join.is_host = draw_.one_in(4);
    if (draw_.one_in(4)) join.seen_age = std::chrono::milliseconds(draw_.below(200) * 50);
    join.seen_of = coordinator();
    join.died = died();
    return join;
  }

  std::vector<Died> died() {
    std::vector<Died> all;
    for (std::uint64_t left = draw_.below(3); left > 0; --left)
      all.push_back({.name = "n" + std::to_string(draw_.below(5)),
                     .knows = {.number = round(), .by = coordinator()},
                     .nodes = draw_.small(6),
                     .after = unsettled(),
                     .seen_of = coordinator()});
    return all;
  }

  std::int64_t pulse() {
    return draw_.one_in(2) ? now_.time_since_epoch().count() : draw_.small(200);
  }

  request::Failed failed() {
    request::Failed failed{.round = round(), .failure = {}, .is_final = draw_.one_in(4)};
    failed.failure.message = "forged";
    return failed;
  }

  request::Left left() {
    request::Left left{.why = "was lost"};
    if (draw_.one_in(2)) left.round = round();
    left.knows = {.number = round(), .by = coordinator()};
    left.nodes = draw_.small(6);
    left.after = unsettled();
    left.seen_of = coordinator();
    return left;
  }

  request::Resume resume() {
    request::Resume resume{.join = join(), .workers = Workers(draw_.below(4)), .failed = {}};
    if (draw_.one_in(4)) resume.failed = failed();
    return resume;
  }

  Request request() {
    switch (draw_.below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return join();
      case 4:
        return request::Ready{.round = round(), .store_port = 4001};
      case 5:
        return failed();
      case 6:
        return request::Succeeded{.round = round()};
      case 7:
        return request::Leaving{.why = "was stopped",
                                .signal = draw_.one_in(2) ? 15 : 0,
                                .grace = std::chrono::seconds(draw_.below(20))};
      case 8:
        return left();
      case 9:
      case 10:
        return resume();
      case 11:
      case 12:
      case 13: {
        request::Heartbeat heartbeat{.pulse = pulse()};
        if (draw_.one_in(2)) heartbeat.round = round();
        if (draw_.one_in(8)) heartbeat.died = died();
        return heartbeat;
      }
      case 14:
        return request::Lost{};
      default:
        return request::Knock{.from = {.host = "10.0.0.8", .port = 1},
                              .to = {.host = "10.0.0.9", .port = 2},
                              .has_round = draw_.one_in(2),
                              .formed = round(),
                              .order = draw_.below(3)};
    }
  }

  Draw& draw_;
  runs::State state_;
  MonoTime now_{std::chrono::hours(1)};
  std::string uuid_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Draw draw({reinterpret_cast<const char*>(data), size});
  Place place(draw);
  place.play();
  place.end();
  return 0;
}
