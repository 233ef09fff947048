// SPDX-License-Identifier: BSD-3-Clause
//
// What the coordinator of one run decides: scenarios in words.  The simulation (tests/sim) plays
// what nobody has thought of.
#include "rendezvous/decide/coordinator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "rendezvous/decide/waiting_text.h"
#include "store/base/variant.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;
using coordinator::kInspectionLimit;
using coordinator::Phase;

namespace {

std::string by(int signal) {
  return signal == 0 ? "" : ", signal " + std::to_string(signal);
}

std::string words(const Command& command) {
  return std::visit(
      Overloaded{
          [](const command::Round& round) {
            return "round " + std::to_string(round.number) + " attempt " +
                   std::to_string(round.restart_count) + " as " +
                   std::to_string(round.ranks.group_rank) + " of " +
                   std::to_string(round.ranks.group_world_size) + " at " + to_string(round.master);
          },
          [](const command::Inspect& inspect) { return "inspect, " + inspect.why; },
          [](const command::TakeStacks& take) {
            return "stacks " + std::to_string(take.number) +
                   (take.rank ? " of rank " + std::to_string(*take.rank) : "");
          },
          [](const command::TakeBundle& take) {
            return "bundle " + std::to_string(take.number) + " piece " + std::to_string(take.piece);
          },
          [](const command::Stop& stop) {
            return "stop " + std::to_string(stop.round) + ", " +
                   (stop.failure ? "failed on " + stop.failure->node : stop.why) + by(stop.signal);
          },
          [](const command::Waiting& waiting) { return "waiting, " + waiting.why; },
          [](const command::End& end) {
            std::string why = end.why.empty() ? "" : ", " + end.why;
            return "end " + std::to_string(end.exit_code) + why + by(end.signal);
          },
          [](const command::Refuse& refuse) { return "refused, " + refuse.why; },
          [](const command::Standby& standby) { return "stand by, " + standby.why; },
          [](const command::Info& info) { return "tell, " + info.text; },
          [](const command::KeepAlive& rules) { return "go by, " + rules.text; },
          [](const command::Continue&) { return std::string("continue"); },
          [](const command::Dropped& dropped) { return "dropped, " + dropped.why; },
          [](const command::Moved& moved) { return "moved to " + to_string(moved.to); },
          [](const command::Settled& settled) {
            return "settled " + std::to_string(settled.round.number);
          },
          [](const command::StandIns& told) {
            return "stand-ins " + std::to_string(told.stand_ins.size());
          },
      },
      command);
}

// Plays what nodes say, and tells what is said to whom.
struct Run {
  coordinator::State state;
  Now now{.mono = MonoTime(1h)};
  Settings settings{.min_nodes = 2, .max_nodes = 3};
  Policy policy{.max_restarts = 1};
  RunFile file;  // the last that it wanted kept
  std::set<std::string> suspects;
  bool reads_marks = true;

  // A mark is read at once, unless `reads_marks` is false.
  std::string on(const coordinator::Event& event) {
    auto next = coordinator::step(std::move(state), event, now);
    state = std::move(next.state);
    std::string text;
    std::optional<std::uint64_t> mark;
    for (const auto& action : next.actions) {
      if (std::holds_alternative<coordinator::action::Over>(action)) continue;
      if (const auto* suspect = std::get_if<coordinator::action::Suspect>(&action)) {
        suspects.insert(suspect->node);
        continue;
      }
      if (const auto* acquit = std::get_if<coordinator::action::Acquit>(&action)) {
        suspects.erase(acquit->node);
        continue;
      }
      if (const auto* put = std::get_if<coordinator::action::Mark>(&action)) {
        mark = put->number;
        continue;
      }
      if (const auto* keep = std::get_if<coordinator::action::KeepRunFile>(&action)) {
        file = keep->file;
        continue;
      }
      if (std::holds_alternative<coordinator::action::EmptyCommonSpace>(action)) continue;
      const auto* send = std::get_if<coordinator::action::Send>(&action);
      text += text.empty() ? "" : "; ";
      text += send != nullptr ? send->node + ": " + words(send->command)
                              : "forget " + std::get<coordinator::action::Forget>(action).node;
    }
    if (mark && reads_marks) {
      std::string more = on(coordinator::event::MarkRead{*mark});
      text += (text.empty() || more.empty() ? "" : "; ") + more;
    }
    return text;
  }
  std::string says(const std::string& id, Request request, std::uint64_t connection = 0) {
    return on(coordinator::event::Arrived{id, std::move(request), connection});
  }
  request::Join join_of(const std::string& id) const {
    return {.host = id,
            .address = id,
            .pid = 7,
            .settings = settings,
            .policy = policy,
            .store_port = 1000};
  }
  std::string joins(const std::string& id) { return says(id, join_of(id)); }
  std::string joins(const std::string& id, int node_rank) {
    auto join = join_of(id);
    join.node_rank = node_rank;
    return says(id, join);
  }
  std::string ready(const std::string& id) {
    return says(id, request::Ready{.round = state.round, .store_port = 2000});
  }
  std::string fails(const std::string& id, bool is_final = false) {
    return says(id, request::Failed{.round = state.round,
                                    .failure = {.status = {.exit_code = 9}},
                                    .is_final = is_final});
  }
  // A worker of rank 0 there has waited in vain for others.
  std::string waits_in_vain(const std::string& id, TimedOutWait wait = {.in = "all_reduce"}) {
    return says(id, request::Failed{.round = state.round,
                                    .failure = {.pid = 30, .status = {.exit_code = 1}},
                                    .wait = std::move(wait)});
  }
  std::string finds(const std::string& id, Findings findings = {}) {
    return says(id, request::Found{state.round, std::move(findings)});
  }
  const Failure& last_failure() const { return state.restarts.failures.back(); }
  std::string succeeds(const std::string& id) { return says(id, request::Succeeded{state.round}); }
  // Its agent was killed, and its guardian says that the workers are swept.
  std::string is_lost(const std::string& id) {
    return says(id, request::Left{"was lost (its agent, pid 7, was killed)"});
  }
  std::string has_left(const std::string& id) { return says(id, request::Left{}); }
  std::string is_stopped(const std::string& id, Duration grace = 30s) {
    return says(id, request::Leaving{"was stopped by SIGTERM", 15, grace});
  }
  std::string resumes(const std::string& id, Workers workers, std::uint64_t connection = 1) {
    return says(id, resume_of(id, workers), connection);
  }
  request::Resume resume_of(const std::string& id, Workers workers) const {
    request::Resume resume{.join = join_of(id), .workers = workers};
    resume.join.next_round = state.round + 1;
    resume.join.is_back = true;
    resume.join.was_in_round = workers != Workers::Down;
    resume.join.store_port = 2000;
    return resume;
  }
  std::string ticks() { return on(coordinator::event::Tick{}); }
  // Time passes; those who live beat.
  std::string pass(Duration duration, const std::vector<std::string>& living) {
    std::string text;
    for (MonoTime end = now.mono + duration; now.mono < end;) {
      now.mono += std::min<Duration>(500ms, end - now.mono);
      for (const std::string& id : living) says(id, request::Heartbeat{});
      std::string said = ticks();
      text += (text.empty() || said.empty() ? "" : "; ") + said;
    }
    return text;
  }
};

struct TwoOfThree : Run {
  TwoOfThree() {
    policy.last_call_timeout = 0s;
    joins("a");
    REQUIRE(joins("b") ==
            "a: round 0 attempt 0 as 0 of 2 at a:1000; b: round 0 attempt 0 as 1 of 2 at a:1000");
  }
};

struct Three : Run {
  Three() {
    joins("a");
    joins("b");
    joins("c");
    REQUIRE(state.phase == Phase::Running);
  }
};

}  // namespace

TEST_CASE("Coordinator: who kept a worker waiting is asked of all nodes, and judged once") {
  Three run;
  CHECK(run.waits_in_vain("a") ==
        "b: inspect, rank 0 on a exited with code 1; c: inspect, rank 0 on a exited with code 1");
  CHECK(run.waits_in_vain("b") == "");  // a victim
  CHECK(run.finds("a") == "");
  CHECK(run.finds("b", {.workers = {{.rank = 1, .pid = 31, .place = Whereabouts::Waits}}}) == "");
  CHECK(run.state.phase == Phase::Running);
  CHECK(run.finds("c", {.workers = {{.rank = 2,
                                     .pid = 32,
                                     .place = Whereabouts::Elsewhere,
                                     .doing = "sleeps"}}}) ==
        "a: stop 0, failed on a; b: stop 0, failed on a; c: stop 0, failed on a");
  CHECK(describe_suspects(run.last_failure()) ==
        "rank 2 (c, pid 32) did not come to all_reduce: it sleeps");
  CHECK(run.last_failure().also_waited == 1);
  CHECK(run.state.restarts.count == 1);
  CHECK(run.finds("c") == "");  // late
}

TEST_CASE("Coordinator: a lost peer whose own wait was over makes all look again") {
  Three run;
  CHECK(run.waits_in_vain("a", {.in = "all_reduce", .has_lost_peer = true}) ==
        "b: inspect, rank 0 on a exited with code 1; c: inspect, rank 0 on a exited with code 1");
  run.finds("a");
  run.finds("c");
  CHECK(run.finds("b", {.workers = {{.rank = 1, .pid = 31, .place = Whereabouts::Waits}}}) ==
        "a: inspect, rank 0 on a exited with code 1; b: inspect, rank 0 on a exited with code 1; "
        "c: inspect, rank 0 on a exited with code 1");
  run.finds("a");
  run.finds("b", {.workers = {{.rank = 1, .pid = 31, .place = Whereabouts::Waits}}});
  run.finds("c", {.workers = {{.rank = 2, .pid = 32, .place = Whereabouts::Unknown}}});
  CHECK(describe_suspects(run.last_failure()) == "rank 2 (c, pid 32) did not come to all_reduce");
}

TEST_CASE("Coordinator: a lost peer that had failed by itself is the cause") {
  Three run;
  run.waits_in_vain("a", {.in = "all_reduce", .has_lost_peer = true});
  run.finds("a");
  run.finds("b");
  run.finds("c", {.workers = {{.rank = 2,
                               .pid = 32,
                               .place = Whereabouts::Elsewhere,
                               .doing = "was killed by SIGSEGV"}}});
  CHECK(describe_suspects(run.last_failure()) ==
        "rank 2 (c, pid 32) did not come to all_reduce: it was killed by SIGSEGV");
}

TEST_CASE("Coordinator: a node that says nothing of its workers is not waited for") {
  Three run;
  run.waits_in_vain("a", {.in = kInit, .missing = {2}});
  run.finds("a");
  run.finds("b");
  CHECK(coordinator::deadline(run.state) <= run.now.mono + kInspectionLimit);
  CHECK(run.pass(kInspectionLimit - 500ms, {"a", "b", "c"}) == "");
  CHECK(run.pass(500ms, {"a", "b", "c"}) ==
        "a: stop 0, failed on a; b: stop 0, failed on a; c: stop 0, failed on a");
  CHECK(describe_suspects(run.last_failure()) == "rank 2 did not come to init_process_group");
}

TEST_CASE("Coordinator: the end of the run waits for it, too") {
  Three run;
  run.policy.max_restarts = 0;
  run.state.policy.max_restarts = 0;
  run.waits_in_vain("a");
  run.finds("a");
  run.finds("b");
  CHECK(run.finds("c") == "a: end 1; b: end 1; c: end 1");
}

TEST_CASE("Coordinator: what stops the round meanwhile is the cause, and costs no restart") {
  Three lost;
  lost.waits_in_vain("a");
  CHECK(lost.is_lost("b").find("stop 0, b was lost") != std::string::npos);
  CHECK(lost.state.restarts.count == 0);
  CHECK(lost.finds("a") == "");
  Three stopped;
  stopped.waits_in_vain("a");
  CHECK(stopped.is_stopped("b").find("stop 0, b was stopped by SIGTERM") != std::string::npos);
  CHECK(stopped.state.restarts.failures.empty());
}

TEST_CASE("Coordinator: a newcomer does not stop a round that is being looked at") {
  TwoOfThree run;
  run.waits_in_vain("a");
  run.joins("c");
  CHECK(run.pass(2s, {"a", "b", "c"}).find("stop") == std::string::npos);
  run.finds("a");
  CHECK(run.finds("b").find("stop 0, failed on a") != std::string::npos);
}

TEST_CASE("Coordinator: as many as --nnodes allows begin at once") {
  Run run;
  CHECK(run.joins("b") == "");
  CHECK(run.joins("c") == "");
  CHECK(run.joins("a") ==
        "a: round 0 attempt 0 as 0 of 3 at a:1000; b: round 0 attempt 0 as 1 of 3 at a:1000; "
        "c: round 0 attempt 0 as 2 of 3 at a:1000");
}

TEST_CASE("Coordinator: fewer wait for a last call") {
  Run run;
  run.joins("a");
  run.joins("b");
  std::string said = run.pass(29s, {"a", "b"});
  CHECK(said.find("round") == std::string::npos);
  CHECK(said.find("waiting for nodes: 2 of 2..3 joined (a, b), 28 s of last call left") !=
        std::string::npos);
  CHECK(run.pass(1s, {"a", "b"}).find("b: round 0 attempt 0 as 1 of 2") != std::string::npos);
}

TEST_CASE("Coordinator: a node that can start no worker ends a run that needs it, once all know") {
  Run run;
  run.settings = {.min_nodes = 2, .max_nodes = 2};
  request::Join join = run.join_of("a");
  join.preflight_failure = "no disk";
  CHECK(run.says("a", join) == "");
  CHECK(run.joins("b") ==
        "a: end 2, a cannot start its workers: no disk; b: end 2, a cannot start its workers: no "
        "disk");
}

TEST_CASE("Coordinator: a node that can start no worker is refused where enough others are") {
  Run run;
  request::Join join = run.join_of("a");
  join.preflight_failure = "no disk";
  join.node_rank = 1;
  run.says("a", join);
  run.joins("b");
  CHECK(run.joins("c") ==
        "a: refused, a cannot start its workers: no disk; b: tell, a cannot start its workers: no "
        "disk; the run goes on without it; c: tell, a cannot start its workers: no disk; the run "
        "goes on without it; b: round 0 attempt 0 as 0 of 2 at b:1000; c: round 0 attempt 0 as 1 "
        "of 2 at b:1000");
  CHECK(run.state.holders.empty());
}

TEST_CASE("Coordinator: a node that can start no worker does not stop a run that has begun") {
  TwoOfThree run;
  request::Join join = run.join_of("c");
  join.preflight_failure = "no disk";
  CHECK(run.says("c", join) == "c: refused, c cannot start its workers: no disk");
}

TEST_CASE("Coordinator: too few end with the reason") {
  Run run;
  run.joins("a");
  std::string said = run.pass(601s, {"a"});
  CHECK(said.find("a: end 80, only 1 of 2..3 nodes came within 600 s (a); start the others sooner, "
                  "or raise join_timeout in --rdzv-conf") != std::string::npos);
  CHECK(run.has_left("a") == "forget a");
  CHECK(coordinator::is_over(run.state));
}

TEST_CASE("Coordinator: who was refused, and who waits beside, is named where too few have come") {
  Run run;
  run.joins("a", 0);
  run.joins("b", 0);
  run.says("a", request::Heartbeat{});
  run.state.beside = "run 'job2' (1 node)";
  std::string said = run.pass(601s, {"a"});
  CHECK(said.find(
            "nodes came within 600 s (a); refused b (pid 7): --node-rank=0 is that of a (pid 7) "
            "already; also waiting here: run 'job2' (1 node); start the others sooner") !=
        std::string::npos);
}

TEST_CASE("Coordinator: a late node makes the world larger, and costs no restart") {
  TwoOfThree run;
  CHECK(run.joins("c") == "");  // more may be on their way
  CHECK(run.pass(900ms, {"a", "b", "c"}) == "");
  CHECK(run.pass(100ms, {"a", "b", "c"}) == "a: stop 0, c has joined; b: stop 0, c has joined");
  CHECK(run.ready("a") == "");
  CHECK(run.ready("b") ==
        "a: round 1 attempt 0 as 0 of 3 at a:2000; b: round 1 attempt 0 as 1 of 3 at a:2000; c: "
        "round 1 attempt 0 as 2 of 3 at a:2000");
}

TEST_CASE("Coordinator: one beyond the most stands by, and is promoted when a node is lost") {
  Three run;
  CHECK(run.joins("d") == "d: stand by, there are 3 nodes, as many as --nnodes allows");
  CHECK(
      run.is_lost("b") ==
      "forget b; a: stop 0, b was lost (its agent, pid 7, was killed); c: stop 0, b was lost (its "
      "agent, pid 7, was killed)");
  run.ready("c");
  CHECK(run.ready("a") ==
        "a: round 1 attempt 0 as 0 of 3 at a:2000; d: round 1 attempt 0 as 1 of 3 at a:2000; c: "
        "round 1 attempt 0 as 2 of 3 at a:2000");
}

TEST_CASE("Coordinator: a standby that came first does not replace a survivor") {
  Three run;
  run.joins("d");
  run.fails("a");
  run.ready("a");
  run.ready("b");
  run.ready("c");
  CHECK(run.state.nodes.at("a").is_member);
  CHECK(!run.state.nodes.at("d").is_member);
}

TEST_CASE("Coordinator: a failure anywhere stops everybody, once, with its cause") {
  Three run;
  CHECK(run.fails("b") == "a: stop 0, failed on b; b: stop 0, failed on b; c: stop 0, failed on b");
  CHECK(run.fails("c") == "");  // a victim
  CHECK(run.state.restarts.count == 1);
  run.ready("a");
  run.ready("c");
  CHECK(run.ready("b").find("a: round 1 attempt 1") == 0);
}

TEST_CASE("Coordinator: a failure tells the nodes whose workers had all ended before") {
  Three run;
  run.succeeds("b");
  run.fails("a");
  CHECK(run.last_failure().ended_before == std::vector<RankRange>{{.first = 1, .count = 1}});
}

TEST_CASE("Coordinator: the budget is the run's, and its end is everybody's") {
  Three run;
  run.joins("d");
  run.fails("a");
  for (const char* id : {"a", "b", "c"}) run.ready(id);
  CHECK(run.fails("b") == "a: end 82; b: end 82; c: end 82; d: end 82");
  CHECK(run.state.restarts.failures.size() == 2);
}

TEST_CASE("Coordinator: only the last failure's own words go on, and a final one keeps its code") {
  Three run;
  auto fails = [&](const char* id, std::uint64_t round, bool is_final) {
    request::Failed failed{
        .round = round, .failure = {.status = {.exit_code = 9}}, .is_final = is_final};
    failed.failure.traceback = "Traceback";
    run.says(id, failed);
  };
  fails("a", 0, false);
  for (const char* id : {"a", "b", "c"}) run.ready(id);
  fails("b", 1, true);
  CHECK(run.state.verdict.exit_code == 9);
  REQUIRE(run.state.verdict.failures.size() == 2);
  CHECK(run.state.verdict.failures[0].traceback.empty());
  CHECK(run.state.verdict.failures[1].traceback == "Traceback");
}

TEST_CASE("Coordinator: a final failure ends the run whatever is left") {
  Three run;
  CHECK(run.fails("a", true) == "a: end 9; b: end 9; c: end 9");
}

TEST_CASE("Coordinator: success of all is the end, of standbys too") {
  Three run;
  run.joins("d");
  CHECK(run.succeeds("a") == "");
  CHECK(run.succeeds("a") == "");  // twice is once
  CHECK(run.succeeds("b") == "");
  CHECK(run.succeeds("c") == "a: end 0; b: end 0; c: end 0; d: end 0");
}

TEST_CASE("Coordinator: who has succeeded may go") {
  Three run;
  run.succeeds("b");
  CHECK(run.is_lost("b") == "forget b");
  run.succeeds("a");
  CHECK(run.succeeds("c") == "a: end 0; c: end 0");
}

TEST_CASE("Coordinator: who has succeeded and was given up stands by, and restarts nobody") {
  Three run;
  run.succeeds("b");
  CHECK(run.pass(6s, {"a", "c"}) == "b: dropped, b was lost (silent for 5.0 s)");
  request::Join join = run.join_of("b2");
  join.next_round = 1;
  CHECK(run.says("b2", join) == "b2: stand by, some of the nodes have finished already");
  CHECK(run.pass(3s, {"a", "b2", "c"}) == "");
  SUBCASE("until the others have succeeded, too") {
    run.succeeds("a");
    CHECK(run.succeeds("c") == "a: end 0; b2: end 0; c: end 0");
  }
  SUBCASE("until a failure, after which all are needed again") {
    run.fails("a");
    run.ready("a");
    CHECK(run.ready("c").find("b2: round 1 attempt 1") != std::string::npos);
    run.is_lost("b2");
    run.ready("a");
    run.ready("c");
    CHECK(run.joins("d") == "");  // with the next round
    CHECK(run.state.newcomers_due.has_value());
  }
}

TEST_CASE("Coordinator: group rank 0 hears from where the workers of the round may come") {
  Run run;
  auto joins_from = [&](const std::string& id, std::vector<std::string> addresses) {
    auto join = run.join_of(id);
    join.addresses = std::move(addresses);
    return run.says(id, join);
  };
  auto peers_of = [&](const std::string& id) { return run.state.nodes.at(id).round->peers; };
  joins_from("a", {"10.0.0.1", "172.17.0.1"});
  joins_from("b", {"10.0.0.2", "172.17.0.1", "fd00::2"});
  joins_from("c", {});
  REQUIRE(run.state.phase == coordinator::Phase::Running);
  CHECK(peers_of("a") == std::vector<std::string>{"10.0.0.1", "10.0.0.2", "172.17.0.1", "fd00::2"});
  CHECK_FALSE(peers_of("b"));
  CHECK_FALSE(peers_of("c"));
}

TEST_CASE("Coordinator: of too many addresses the first of each node are kept") {
  constexpr int kNodes = 4500;
  Run run;
  run.settings = {.min_nodes = kNodes, .max_nodes = kNodes};
  std::string tail(55, 'f');
  for (int i = 0; i < kNodes; ++i) {
    auto join = run.join_of("n" + std::to_string(i));
    for (std::size_t k = 0; k < kMaxAddresses; ++k)
      join.addresses.push_back(std::to_string(k) + ":" + std::to_string(i) + ":" + tail);
    run.says("n" + std::to_string(i), join);
  }
  std::vector<std::string> peers;
  std::size_t bytes = 0;
  for (const auto& [id, node] : run.state.nodes) {
    if (node.round && node.round->peers) peers = *node.round->peers;
  }
  for (const std::string& peer : peers) bytes += peer.size();
  CHECK(bytes < kMaxPeersBytes);
  CHECK(bytes > kMaxPeersBytes * 9 / 10);
  CHECK(peers.size() < kNodes * kMaxAddresses);
  CHECK(std::ranges::count_if(peers, [](auto& peer) { return peer.starts_with("0:"); }) == kNodes);
}

TEST_CASE("Coordinator: group rank 0 has the workers' store, and may go only after all others") {
  Three run;
  run.succeeds("a");
  CHECK(run.is_lost("a") ==
        "forget a; b: stop 0, a was lost (its agent, pid 7, was killed); it had the store of the "
        "workers; c: stop 0, a was lost (its agent, pid 7, was killed); it had the store of the "
        "workers");
  Three other;
  for (const char* id : {"a", "b"}) other.succeeds(id);
  CHECK(other.is_lost("b") == "forget b");
  CHECK(other.succeeds("c") == "a: end 0; c: end 0");
}

TEST_CASE("Coordinator: when some have finished, a late node stands by") {
  TwoOfThree run;
  run.succeeds("a");
  CHECK(run.joins("c") == "c: stand by, some of the nodes have finished already");
}

TEST_CASE("Coordinator: after a failure those who had succeeded have to come back") {
  Three run;
  run.succeeds("a");
  run.fails("b");
  run.ready("b");
  CHECK(run.ready("c") == "");
  CHECK(run.ready("a").find("a: round 1 attempt 1 as 0 of 3") == 0);
}

TEST_CASE("Coordinator: what belongs to another round is ignored") {
  Three run;
  run.fails("a");
  CHECK(run.says("a", request::Ready{.round = 7}) == "");
  CHECK(run.state.up_count == 3);
  for (const char* id : {"a", "b", "c"}) run.ready(id);
  CHECK(run.says("a", request::Failed{.round = 0, .failure = {.status = {.exit_code = 9}}}) == "");
  CHECK(run.says("a", request::Succeeded{.round = 0}) == "");
  CHECK(run.says("a", request::Ready{.round = 0}) == "");
  CHECK(run.state.up_count == 3);
}

TEST_CASE("Coordinator: a silent node is dropped, and the stop does not wait for it") {
  Three run;
  run.now.mono += 300ms;  // between two looks
  run.says("c", request::Heartbeat{});
  CHECK(run.pass(4700ms, {"a", "b"}) == "");
  CHECK(coordinator::deadline(run.state) == run.now.mono + 300ms);
  std::string said = run.pass(300ms, {"a", "b"});
  CHECK(said.find("c: dropped, c was lost (silent for 5.0 s)") != std::string::npos);
  CHECK(said.find("a: stop 0, c was lost (silent for 5.0 s)") != std::string::npos);
  run.ready("a");
  CHECK(run.ready("b").find("a: round 1 attempt 0 as 0 of 2") == 0);
}

TEST_CASE(
    "Coordinator: a node that is heard and hears nothing is given up, and its lease awaited") {
  Three run;
  // c says at every beat how many commands have reached it; they are silent of it otherwise.
  auto beats = [&](int count, std::uint64_t heard) {
    std::string said;
    for (int i = 0; i < count; ++i) {
      run.now.mono += 1s;
      for (const char* other : {"a", "b"}) said += run.says(other, request::Heartbeat{});
      said += run.says("c", request::Heartbeat{.heard = heard});
      said += run.ticks();
    }
    return said;
  };
  const int limit = run.policy.keep_alive_max_attempt + 2;
  SUBCASE("with its next beat it sees that, and the others wait until it is back or silent") {
    CHECK(beats(limit, 0) == "");
    std::string said = beats(1, 0);
    CHECK(said.find("a: tell, c (pid 7) does not hear what it is told here, though its heartbeats "
                    "come, and is given up") == 0);
    CHECK(run.suspects == std::set<std::string>{"c"});
    CHECK(run.state.phase == Phase::Running);
    CHECK(run.pass(4s, {"a", "b"}) == "");
    SUBCASE("silent") {
      CHECK(run.pass(2s, {"a", "b"}).find("c: dropped, c was lost") != std::string::npos);
      CHECK(run.suspects == std::set<std::string>{"c"});  // it may not know yet
    }
    SUBCASE("heard once more") {
      run.says("c", request::Heartbeat{.heard = 0});
      CHECK(run.pass(4s, {"a", "b"}) == "");
      CHECK(run.suspects == std::set<std::string>{"c"});
    }
    SUBCASE("on another connection, which may carry more") {
      run.resumes("c", Workers::Up, 1);
      CHECK(run.suspects.empty());
      CHECK(beats(2 * limit, 1) == "");
    }
  }
  SUBCASE("but not while something new reaches it") {
    beats(limit, 0);
    CHECK(beats(3 * limit, 1) == "");
    CHECK(run.suspects.empty());
  }
  SUBCASE("nor before the commands are known to be out") {
    run.reads_marks = false;
    beats(3 * limit, 0);
    CHECK(run.suspects.empty());
    CHECK(run.on(coordinator::event::MarkRead{run.state.marks}) == "");
    CHECK(beats(limit - 1, 0) == "");
    CHECK(beats(1, 0) != "");
  }
  SUBCASE("nor if it does not say what has reached it, as an older agent") {
    CHECK(run.pass(60s, {"a", "b", "c"}) == "");
    CHECK(run.suspects.empty());
  }
}

TEST_CASE("Coordinator: a node is given up when the inbox has been read, and said to be before") {
  Three run;
  run.reads_marks = false;
  CHECK(run.pass(6s, {"a", "b"}) == "");
  CHECK(run.suspects == std::set<std::string>{"c"});
  SUBCASE("its heartbeat lay there") {
    run.says("c", request::Heartbeat{});
    CHECK(run.on(coordinator::event::MarkRead{1}) == "");
    CHECK(run.suspects.empty());
    run.reads_marks = true;
    CHECK(run.pass(4s, {"a", "b"}) == "");
    CHECK(run.pass(2s, {"a", "b"}).find("c: dropped") != std::string::npos);
  }
  SUBCASE("nothing of it lay there") {
    CHECK(run.on(coordinator::event::MarkRead{1}).find("c: dropped") != std::string::npos);
    // It may not know yet.
    CHECK(run.suspects == std::set<std::string>{"c"});
  }
  SUBCASE("its last word lay there: nobody renews its lease any more") {
    run.has_left("c");
    CHECK(run.suspects.empty());
    CHECK(run.on(coordinator::event::MarkRead{1}) == "");
    CHECK(run.suspects.empty());
  }
  SUBCASE("a mark from before it was suspected says nothing") {
    CHECK(run.on(coordinator::event::MarkRead{0}) == "");
    CHECK(run.state.nodes.contains("c"));
  }
}

TEST_CASE("Coordinator: nodes that fall silent together go together") {
  Three run;
  run.joins("d");
  run.joins("e");
  // Only e, a standby, is left: no round begins with d, which is silent as well.
  std::string said = run.pass(6s, {"e"});
  CHECK(said.find("round") == std::string::npos);
  CHECK(run.state.nodes.size() == 1);
}

TEST_CASE("Coordinator: a process that was stopped itself blames nobody") {
  Three run;
  run.now.mono += 1min;
  CHECK(run.ticks() == "");
  CHECK(run.pass(4s, {"a", "b", "c"}) == "");
}

TEST_CASE("Coordinator: its own pause is no part of a grace, nor of a wait for nodes") {
  Three run;
  run.is_stopped("b", 10s);
  run.ready("a");
  run.ready("c");
  run.now.mono += 1min;
  CHECK(run.ticks() == "");
  CHECK(run.pass(10s, {"a", "b", "c"}).find("round") == std::string::npos);
  TwoOfThree few;
  few.is_lost("b");
  few.ready("a");
  few.now.mono += 601s;
  CHECK(few.ticks() == "");
}

TEST_CASE("Coordinator: a failure that followed from a loss costs no restart") {
  Three run;
  run.pass(4s, {"a", "b"});
  CHECK(run.fails("a").find("failed on a") != std::string::npos);
  CHECK(run.state.restarts.count == 1);
  run.ready("a");
  run.ready("b");
  CHECK(run.pass(2s, {"a", "b"}).find("a: round 1 attempt 0 as 0 of 2") != std::string::npos);
  CHECK(run.state.restarts.failures.empty());
}

TEST_CASE("Coordinator: a restart that was taken back stays so when a node brings what it heard") {
  Three run;
  run.pass(4s, {"a", "b"});
  run.fails("a");
  run.ready("a");
  run.ready("b");
  CHECK(run.pass(2s, {"a", "b"}).find("a: round 1 attempt 0") != std::string::npos);
  request::Join join = run.join_of("c");  // it stood still, and had heard of the first restart
  join.next_round = 1;
  join.restart_count = 1;
  join.run_uuid = run.state.run_uuid;
  run.says("c.1", join);
  run.pass(2s, {"a", "b", "c.1"});
  run.ready("a");
  CHECK(run.ready("b").find("c.1: round 2 attempt 0") != std::string::npos);
}

TEST_CASE("Coordinator: a failure stays one where another node falls silent right after it") {
  Three run;
  run.pass(4s, {"a", "b", "c"});
  run.now.mono += 200ms;
  run.fails("a");
  run.ready("a");
  run.ready("b");
  CHECK(run.pass(6s, {"a", "b"}).find("a: round 1 attempt 1 as 0 of 2") != std::string::npos);
}

TEST_CASE("Coordinator: a failure stays one where its node is lost afterwards") {
  Three run;
  run.fails("c");
  run.is_lost("c");
  run.ready("a");
  CHECK(run.ready("b").find("a: round 1 attempt 1 as 0 of 2") == 0);
}

TEST_CASE("Coordinator: below the least after a loss it waits, then takes whoever comes") {
  TwoOfThree run;
  run.is_lost("a");
  CHECK(run.ready("b") == "b: waiting, a was lost (its agent, pid 7, was killed)");
  CHECK(run.state.phase == Phase::Gathering);
  CHECK(run.joins("c") ==
        "c: round 1 attempt 0 as 0 of 2 at c:1000; b: round 1 attempt 0 as 1 of 2 at c:1000");
}

TEST_CASE("Coordinator: a node that disagrees is refused, on both sides") {
  Run run;
  run.joins("a");
  run.says("a", request::Heartbeat{});
  run.settings.max_nodes = 5;
  CHECK(run.joins("b") ==
        "b: refused, it has --nnodes=2:5, not 2:3 as the other nodes of the run, begun by a (pid "
        "7), have it; a: tell, refused b (pid 7): it has --nnodes=2:5, not 2:3 here");
  CHECK(run.state.nodes.size() == 1);
}

TEST_CASE(
    "Coordinator: one that disagrees with a node of which nothing is heard waits for a sign") {
  Run run;
  run.joins("a");
  run.settings.max_nodes = 5;
  CHECK(run.joins("b") == "");
  CHECK(run.says("a", request::Heartbeat{}) ==
        "b: refused, it has --nnodes=2:5, not 2:3 as the other nodes of the run, begun by a (pid "
        "7), have it; a: tell, refused b (pid 7): it has --nnodes=2:5, not 2:3 here");
  CHECK(run.state.contenders.empty());
}

TEST_CASE("Coordinator: a name that begins a run and is never heard again decides nothing") {
  Run run;
  auto ghost = run.join_of("ghost");
  ghost.settings = {.min_nodes = 7, .max_nodes = 7};
  ghost.policy.join_timeout = 1ms;
  ghost.policy.keep_alive_interval = 24h;
  run.says("ghost", ghost);
  run.joins("a");
  run.joins("b");
  run.joins("c");
  CHECK(run.state.nodes.size() == 1);
  std::string said = run.pass(3min, {"a", "b", "c"});
  CHECK(said.find("ghost: dropped, ghost was lost (silent for ") != std::string::npos);
  CHECK(said.find("a: round 0 attempt 0 as 0 of 3") != std::string::npos);
  CHECK(run.state.policy == run.policy);
}

TEST_CASE("Coordinator: a first node that is gone before the first round decides nothing") {
  Run run;
  auto first = run.join_of("first");
  first.policy.max_restarts = 7;
  first.policy.join_timeout = 1ms;
  run.says("first", first);
  CHECK(run.joins("a").find("a: go by") == 0);
  // It has said nothing since, and might be no more than a name.
  CHECK(run.pass(3s, {"a"}).find("end") == std::string::npos);
  CHECK(run.has_left("first").find("a: go by, the first node is gone, and the run goes by the "
                                   "settings of the next one: --max-restarts=1") !=
        std::string::npos);
  CHECK(run.state.founder == "a");
  CHECK(run.state.policy == run.policy);
}

TEST_CASE(
    "Coordinator: a silence that the first node's settings allow is none under the next ones") {
  Run run;
  run.settings = {.min_nodes = 4, .max_nodes = 4};
  auto first = run.join_of("first");
  first.policy.keep_alive_interval = 5s;
  run.says("first", first);
  run.joins("a");
  run.joins("b");  // with a silence limit of 5 s; until now that was 25 s
  run.says("a", request::Heartbeat{});
  run.says("b", request::Heartbeat{});
  CHECK(run.pass(10s, {"first"}).find("lost") == std::string::npos);
  run.has_left("first");
  CHECK(run.state.policy == run.policy);
  CHECK(run.pass(4s, {"a"}).find("lost") == std::string::npos);
  CHECK(run.state.nodes.size() == 2);
  CHECK(run.pass(2s, {"a"}).find("b: dropped, b was lost (silent for ") != std::string::npos);
  CHECK(run.state.nodes.size() == 1);
}

TEST_CASE("Coordinator: the time to join of a first node that is heard ends the run for all") {
  Run run;
  run.settings.min_nodes = 3;
  run.policy.join_timeout = 2s;
  run.joins("first");
  run.policy.join_timeout = 1h;
  run.joins("a");
  CHECK(run.pass(1s, {"first", "a"}).find("end") == std::string::npos);
  CHECK(run.pass(5s, {"first", "a"}).find("a: end 80") != std::string::npos);
}

TEST_CASE("Coordinator: another policy is told, and has no effect") {
  Run run;
  run.joins("a");
  run.policy.max_restarts = 8;
  CHECK(run.joins("b").find("b: go by, the run goes by the settings of its first node: "
                            "--max-restarts=1, join_timeout 600 s") == 0);
  CHECK(run.state.policy.max_restarts == 1);
}

TEST_CASE("Coordinator: another version is refused") {
  Run run;
  run.joins("a");
  CHECK(run.says("b", request::Foreign{.version = 9}) ==
        "b: refused, it speaks version 9 of the rendezvous protocol, and the run version 1");
}

TEST_CASE("Coordinator: a --node-rank beyond the nodes is refused") {
  Run run;
  CHECK(run.joins("a", 3) == "a: refused, --node-rank=3: with at most 3 nodes it is 0..2");
}

TEST_CASE("Coordinator: of two with one --node-rank the first has it, if it lives") {
  Run run;
  run.joins("a", 0);
  CHECK(run.joins("b", 0) == "");
  CHECK(run.says("a", request::Heartbeat{}) ==
        "b: refused, --node-rank=0 is that of a (pid 7) already; a: tell, refused b (pid 7): "
        "--node-rank=0 is taken by this node");
  CHECK(run.joins("c", 0) == "");
  CHECK(run.is_lost("a") == "forget a");
  CHECK(run.state.nodes.contains("c"));
  CHECK(run.state.holders.at(0) == "c");
}

TEST_CASE("Coordinator: a contender that dies is forgotten") {
  Run run;
  run.joins("a", 0);
  run.joins("b", 0);
  CHECK(run.is_lost("b") == "forget b");
  CHECK(run.state.contenders.empty());
}

TEST_CASE("Coordinator: --node-rank decides the command, and survivors keep theirs") {
  Run run;
  run.joins("z", 0);
  run.joins("b");
  run.joins("a");
  CHECK(run.state.nodes.at("z").last_rank == 0);
  CHECK(run.state.nodes.at("a").last_rank == 1);
  run.is_lost("a");
  run.ready("z");
  run.ready("b");
  CHECK(run.state.nodes.at("b").last_rank == 1);  // 2 is beyond two nodes
}

TEST_CASE("Coordinator: when a node is stopped by a signal, the others hear which") {
  Three run;
  CHECK(run.is_stopped("b") ==
        "a: stop 0, b was stopped by SIGTERM, signal 15; c: stop 0, b was stopped by SIGTERM, "
        "signal 15");
  CHECK(run.is_stopped("b") == "");  // again, on another connection
}

TEST_CASE("Coordinator: nodes that one event stops do not wait for each other") {
  TwoOfThree run;
  CHECK(run.is_stopped("b") == "a: stop 0, b was stopped by SIGTERM, signal 15");
  CHECK(run.ready("a") == "");
  CHECK(run.has_left("b") == "forget b");
  CHECK(run.pass(1900ms, {"a"}) == "");
  CHECK(run.is_stopped("a") == "forget a");
}

TEST_CASE("Coordinator: a run that goes on waiting for a stopped node says so") {
  TwoOfThree run;
  run.is_stopped("b");
  run.has_left("b");
  run.ready("a");
  run.now.mono += 2s - 1ms;
  CHECK(run.says("a", request::Heartbeat{}) == "");
  CHECK(coordinator::deadline(run.state) <= run.now.mono + 1ms);
  run.now.mono += 1ms;
  CHECK(run.ticks().find("a: waiting, b was stopped by SIGTERM") == 0);
  CHECK(run.pass(5s, {"a"}).find("a: waiting, ") == std::string::npos);  // once
}

TEST_CASE("Coordinator: what another signal stops later counts from there") {
  Run run;
  run.policy.last_call_timeout = 0s;
  run.settings = {.min_nodes = 3, .max_nodes = 3};
  for (const char* id : {"a", "b", "c"}) run.joins(id);
  run.is_stopped("c");
  run.has_left("c");
  run.ready("a");
  run.pass(1500ms, {"a", "b"});
  run.is_stopped("b");
  run.has_left("b");
  CHECK(run.pass(1900ms, {"a"}).find("a: waiting, c was stopped") == std::string::npos);
  CHECK(run.pass(200ms, {"a"}).find("a: waiting, c was stopped") != std::string::npos);
}

TEST_CASE("Coordinator: a crash of another node is told as soon as the run waits for it") {
  TwoOfThree run;
  run.is_lost("b");
  CHECK(run.ready("a") == "a: waiting, b was lost (its agent, pid 7, was killed)");
  CHECK(run.joins("c").find("waiting") == std::string::npos);
}

TEST_CASE("Coordinator: too few after a loss end with that loss") {
  TwoOfThree run;
  run.policy.join_timeout = 1s;
  run.state.policy.join_timeout = 1s;
  run.is_stopped("b");
  run.has_left("b");
  run.ready("a");
  CHECK(run.pass(1s, {"a"}).find("a: waiting, b was stopped by SIGTERM; a: end 80, only 1 of") !=
        std::string::npos);
}

TEST_CASE("Coordinator: when the host leaves, everybody hears why") {
  Three run;
  CHECK(run.on(coordinator::event::HostLeaves{"a was stopped", 15}) ==
        "a: end 80, a was stopped, signal 15; b: end 80, a was stopped, signal 15; c: end 80, a "
        "was stopped, signal 15");
  CHECK(run.on(coordinator::event::HostLeaves{"again"}) == "");
}

TEST_CASE("Coordinator: who comes after the end is of the next run") {
  Run run;
  run.settings = {.min_nodes = 1, .max_nodes = 1};
  run.joins("a");
  CHECK(run.succeeds("a") == "a: end 0");
  CHECK(run.joins("b") == "");
  CHECK(run.has_left("a") == "forget a; b: round 0 attempt 0 as 0 of 1 at b:1000");
}

TEST_CASE("Coordinator: who was of the run and only away hears its verdict") {
  Run run;
  run.settings = {.min_nodes = 1, .max_nodes = 1};
  run.joins("a");
  run.succeeds("a");
  auto back = run.join_of("a.1");
  back.next_round = 1;
  CHECK(run.says("a.1", back) == "a.1: end 0");
  CHECK(run.has_left("a") == "forget a");
  CHECK(coordinator::is_over(run.state));
}

TEST_CASE("Coordinator: a join from before a cut takes no place of the node that has come back") {
  Run run;
  SUBCASE("which waits for the next run") {
    run.settings = {.min_nodes = 1, .max_nodes = 1};
    run.joins("a");
    run.succeeds("a");
    run.joins("b.1");
    run.joins("b.0");
    run.is_lost("b.0");
    CHECK(run.has_left("a") == "forget a; b.1: round 0 attempt 0 as 0 of 1 at b.1:1000");
  }
  SUBCASE("which wants the rank of another node") {
    auto ranked = [&](const char* id) {
      auto join = run.join_of(id);
      join.node_rank = 0;
      return join;
    };
    run.says("a", ranked("a"));
    run.says("b.1", ranked("b.1"));
    run.says("b.0", ranked("b.0"));
    run.is_lost("b.0");
    CHECK(run.state.contenders.contains("b.1"));
  }
}

TEST_CASE("Coordinator: the will of an earlier connection does not end a wait for the next run") {
  Three run;
  run.fails("a", true);
  run.says("d", run.join_of("d"), 2);
  CHECK(run.says("d", request::Lost{}, 1) == "forget d");
  CHECK(run.state.next_run.size() == 1);
  CHECK(run.says("d", request::Lost{}, 2) == "forget d");
  CHECK(run.state.next_run.empty());
}

TEST_CASE("Coordinator: who waits for the next run and dies is not of it") {
  Run run;
  run.settings = {.min_nodes = 1, .max_nodes = 1};
  run.joins("a");
  run.succeeds("a");
  run.joins("b");
  run.is_lost("b");
  CHECK(run.has_left("a") == "forget a");
  CHECK(coordinator::is_over(run.state));
}

TEST_CASE("Coordinator: nodes of a host that is gone bring their rounds and failures along") {
  Run run;
  run.policy.last_call_timeout = 0s;
  run.settings.min_nodes = 1;
  CHECK(run.joins("new").find("new: round 0 attempt 0") == 0);
  auto old = run.join_of("old");
  old.next_round = 6;
  old.restart_count = 1;
  old.previous_rank = 0;
  CHECK(run.says("old", old) == "");
  CHECK(run.pass(1s, {"new", "old"}) == "new: stop 0, old has joined");
  CHECK(run.ready("new").find("new: round 6 attempt 1") == 0);
  CHECK(run.fails("new").find("new: end 82") == 0);
}

TEST_CASE("Coordinator: after the loss of a host the last call is short") {
  Run run;
  auto first = run.join_of("a");
  auto second = run.join_of("b");
  first.next_round = second.next_round = 3;
  run.says("a", first);
  run.says("b", second);
  CHECK(run.pass(1s, {"a", "b"}).find("a: round 3 attempt 0 as 0 of 2") == 0);
}

TEST_CASE("Coordinator: after the loss of a host all who survived are enough, once all are known") {
  Run run;
  auto returning = [&](const char* id) {
    auto returns = run.join_of(id);
    returns.next_round = 3;
    returns.previous_nodes = 3;
    returns.is_back = returns.was_in_round = true;
    return returns;
  };
  SUBCASE("the guardian of the third says that its workers are swept") {
    CHECK(run.says("a.1", returning("a")) == "");
    CHECK(run.says("a.2", returning("a")) == "forget a.1");  // one node, twice
    CHECK(run.says("b.1", returning("b")) == "");
    CHECK(run.says("c.0", request::Left{.why = "was killed", .round = 1}) == "forget c.0");
    CHECK(run.says("c.0", request::Left{.why = "was killed", .round = 2})
              .find("forget c.0; a.2: round 3 attempt 0 as 0 of 2") == 0);
  }
  SUBCASE("or the lease of the third is over") {
    run.says("a.1", returning("a"));
    run.says("b.1", returning("b"));
    std::string said = run.pass(4900ms, {"a.1", "b.1"});
    CHECK(said.find("round 3") == std::string::npos);
    CHECK(said.find("waiting for 1 node of the last start to come back") != std::string::npos);
    CHECK(run.pass(2s, {"a.1", "b.1"}).find("a.1: round 3 attempt 0 as 0 of 2") !=
          std::string::npos);
  }
}

// When a round may begin.

TEST_CASE("Coordinator: the next round begins when the workers of a leaving node have gone") {
  Three run;
  CHECK(run.is_stopped("b").find("a: stop 0") == 0);
  run.ready("a");
  CHECK(run.ready("c") == "");
  CHECK(run.pass(20s, {"a", "b", "c"}).find("round") == std::string::npos);
  CHECK(run.has_left("b").find("forget b; a: round 1 attempt 0 as 0 of 2") == 0);
}

TEST_CASE("Coordinator: the grace that a leaving node announced is kept, and no more") {
  Three run;
  run.is_stopped("b", 10s);
  run.ready("a");
  run.ready("c");
  CHECK(run.pass(10s + kLeaveMargin - 500ms, {"a", "b", "c"}).find("round") == std::string::npos);
  std::string said = run.pass(1s, {"a", "b", "c"});
  CHECK(said.find("b: dropped, b has not ended its workers within the grace that it announced") !=
        std::string::npos);
  CHECK(said.find("a: round 1 attempt 0 as 0 of 2") != std::string::npos);
}

TEST_CASE("Coordinator: a leaving node that falls silent is dead with its lease") {
  Three run;
  run.is_stopped("b", 60s);
  run.ready("a");
  run.ready("c");
  CHECK(run.pass(4900ms, {"a", "c"}).find("round") == std::string::npos);
  CHECK(run.pass(600ms, {"a", "c"}).find("a: round 1 attempt 0 as 0 of 2") != std::string::npos);
}

TEST_CASE("Coordinator: a broken connection is no proof, and stops nobody") {
  Three run;
  CHECK(run.says("b", request::Lost{}) == "");
  CHECK(run.pass(4s, {"a", "c"}) == "");
  CHECK(run.resumes("b", Workers::Up) == "forget b; b: continue");
  CHECK(run.pass(4s, {"a", "c"}) == "");
  CHECK(run.state.phase == Phase::Running);
}

TEST_CASE("Coordinator: a node that waits and has gone is forgotten soon, whatever it asked for") {
  Run run;
  run.settings = {.min_nodes = 2, .max_nodes = 2};
  request::Join join = run.join_of("x");
  join.policy.keep_alive_interval = std::chrono::hours(8760);
  run.says("x", join);
  run.says("x", request::Heartbeat{});
  run.says("x", request::Lost{});
  run.now.mono += 59s;
  run.ticks();
  CHECK(run.state.nodes.contains("x"));
  run.now.mono += 1s;
  CHECK(coordinator::deadline(run.state) <= run.now.mono);
  run.ticks();
  CHECK(run.state.nodes.empty());
}

TEST_CASE("Coordinator: no round begins with a node that is away") {
  TwoOfThree run;
  run.fails("a");
  run.ready("a");
  run.ready("b");
  run.fails("a", true);
  Three three;
  three.fails("a");
  three.ready("a");
  three.ready("b");
  three.says("b", request::Lost{});
  CHECK(three.ready("c") == "");
  SUBCASE("it comes back") {
    CHECK(three.resumes("b", Workers::Down).find("forget b; b: continue; a: round 1") == 0);
  }
  SUBCASE("or its lease ends") {
    std::string said = three.pass(6s, {"a", "c"});
    CHECK(said.find("b: dropped, b was lost (silent for 5.0 s, its connection broken)") !=
          std::string::npos);
    CHECK(said.find("a: round 1 attempt 1 as 0 of 2") != std::string::npos);
  }
}

TEST_CASE("Coordinator: a lease ends a grace after the silence limit") {
  Run run;
  run.policy.lease_grace = 3s;
  for (const char* id : {"a", "b", "c", "d"}) run.joins(id);
  std::string said = run.pass(5s, {"a", "b"});
  CHECK(said.find("d: dropped, d was lost (silent for 5.0 s)") != std::string::npos);  // no workers
  CHECK(said.find("c: dropped") == std::string::npos);
  CHECK(run.pass(2900ms, {"a", "b"}) == "");
  CHECK(run.pass(200ms, {"a", "b"}).find("c: dropped, c was lost (silent for 8.") !=
        std::string::npos);
}

TEST_CASE("Coordinator: after its own pause a node has the lease that it had before") {
  Three run;
  run.pass(3s, {"a", "b"});
  run.now.mono += 1h;  // it is c that was silent before
  CHECK(run.ticks() == "");
  CHECK(run.pass(1900ms, {"a", "b"}) == "");
  CHECK(run.pass(600ms, {"a", "b"}).find("c: dropped") != std::string::npos);
}

// Who resumes is told what it has missed.

TEST_CASE("Coordinator: a resume is answered by the stop that was missed") {
  Three run;
  run.says("b", request::Lost{});
  run.fails("a");
  CHECK(run.resumes("b", Workers::Up) == "forget b; b: continue; b: stop 0, failed on a");
}

TEST_CASE("Coordinator: a resume is answered by the round that was missed") {
  Three run;
  run.fails("a");
  for (const char* id : {"b", "c", "a"}) run.ready(id);
  request::Resume resume = run.resume_of("b", Workers::Down);
  resume.join.next_round = 1;  // it knows of round 0 only
  CHECK(run.says("b", resume, 1) ==
        "forget b; b: continue; b: round 1 attempt 1 as 1 of 3 at a:2000");
  // Had the round been stopped meanwhile, its workers would be down as they are.
  run.is_stopped("a");
  CHECK(run.says("b", resume, 2) == "forget b; b: continue");
  CHECK(run.state.nodes.at("b").is_down);
}

TEST_CASE("Coordinator: a resume that overtakes the join of a newcomer is a join") {
  Three run;
  run.settings.max_nodes = run.state.settings.max_nodes = 4;
  request::Resume resume{.join = run.join_of("d"), .workers = Workers::Down};
  CHECK(run.says("d", resume, 1) == "");
  REQUIRE(run.state.nodes.contains("d"));
  CHECK(run.joins("d") == "");  // on the connection before
  CHECK(run.pass(1500ms, {"a", "b", "c"}).find("a: stop 0, d has joined") == 0);
}

TEST_CASE("Coordinator: what a node that was dropped has said before is late") {
  Three run;
  run.settings.max_nodes = run.state.settings.max_nodes = 4;
  run.pass(6s, {"a", "b"});
  REQUIRE(!run.state.nodes.contains("c"));
  CHECK(run.joins("c") == "");
  CHECK(run.resumes("c", Workers::Down) == "c: dropped, its lease was over");
  CHECK(!run.state.nodes.contains("c"));
}

TEST_CASE("Coordinator: a resume that a later one has overtaken says nothing") {
  Three run;
  request::Resume resume = run.resume_of("b", Workers::Down);
  resume.join.next_round = 0;  // it has not heard of the round
  CHECK(run.says("b", resume, 2).find("forget b; b: continue; b: round 0") == 0);
  run.fails("a");
  CHECK(run.says("b", resume, 1) == "");  // it has by now
  CHECK(!run.state.nodes.at("b").is_down);
  for (const char* id : {"a", "c"}) CHECK(run.ready(id) == "");
  CHECK(run.ready("b").find("a: round 1") != std::string::npos);
}

TEST_CASE("Coordinator: a resume brings a failure and a success that were not heard") {
  Three run;
  CHECK(run.resumes("b", Workers::Succeeded) == "forget b; b: continue");
  CHECK(run.state.nodes.at("b").has_succeeded);
  request::Resume resume = run.resume_of("c", Workers::Stopping);
  resume.failed = request::Failed{.round = 0, .failure = {.status = {.exit_code = 9}}};
  CHECK(run.says("c", resume, 1) ==
        "forget c; c: continue; a: stop 0, failed on c; b: stop 0, failed on c; c: stop 0, failed "
        "on c; c: stop 0, failed on c");
  CHECK(run.state.restarts.count == 1);
}

TEST_CASE(
    "Coordinator: a resume after the end hears the verdict, and after the lease that it is over") {
  Three run;
  run.pass(6s, {"a", "b"});
  CHECK(run.says("c", run.resume_of("c", Workers::Up), 1) == "c: dropped, its lease was over");
  for (const char* id : {"a", "b"}) run.ready(id);
  run.fails("a", true);
  CHECK(run.resumes("b", Workers::Stopping) == "forget b; b: end 9");
}

TEST_CASE(
    "Coordinator: a failure beyond the budget beside a broken connection waits for its cause") {
  Run run;
  run.policy.max_restarts = 0;
  run.policy.last_call_timeout = 0s;
  run.joins("a.0");
  REQUIRE(run.joins("b.0").find("a.0: round 0") == 0);
  run.settings.min_nodes = run.state.settings.min_nodes = 1;
  CHECK(run.says("b.0", request::Lost{}) == "");
  run.now.mono += 100ms;
  CHECK(run.fails("a.0").find(
            "a.0: stop 0, the connection of b.0 is broken, and a worker failed on a.0") == 0);
  CHECK(run.ready("a.0") == "");
  SUBCASE("the node was lost") {
    CHECK(run.is_lost("b.0").find("a.0: round 1 attempt 0 as 0 of 1") != std::string::npos);
    CHECK(run.state.restarts.failures.empty());
  }
  SUBCASE("its lease runs out") {
    CHECK(run.pass(6s, {"a.0"}).find("a.0: round 1 attempt 0 as 0 of 1") != std::string::npos);
  }
  SUBCASE("the node is back") {
    CHECK(run.resumes("b.0", Workers::Stopping).find("b.0: stop 0") != std::string::npos);
    CHECK(run.ready("b.0") == "a.0: end 9; b.0: end 9");
  }
}

TEST_CASE("Coordinator: a failure beyond the budget beside a silent node waits for its cause") {
  Three run;
  run.state.policy.max_restarts = 0;
  run.pass(3s, {"a", "b"});
  CHECK(run.fails("b").find("b: stop 0, c has been silent for 3.0 s, and a worker failed on b") !=
        std::string::npos);
  for (const char* id : {"a", "b"}) run.ready(id);
  SUBCASE("it was lost") {
    CHECK(run.pass(6s, {"a", "b"}).find("a: round 1 attempt 0") != std::string::npos);
    CHECK(run.state.restarts.failures.empty());
  }
  SUBCASE("it was slow") {
    CHECK(run.ready("c").find("a: end 9") != std::string::npos);
  }
}

TEST_CASE(
    "Coordinator: what follows from the loss of the workers' store is no failure of its own") {
  Three run;
  run.succeeds("a");
  run.says("a", request::Lost{});
  run.now.mono += 5ms;
  SUBCASE("it costs no restart") {
    CHECK(run.fails("b").find("b: stop 0, failed on b") != std::string::npos);
    CHECK(run.is_lost("a") == "forget a");
  }
  SUBCASE("nor the run where there is none") {
    run.state.policy.max_restarts = 0;
    CHECK(run.fails("b").find("b: stop 0, the connection of a, which has the store of the workers, "
                              "is broken, and a worker failed on b") != std::string::npos);
    CHECK(run.is_lost("a") == "forget a");
  }
  run.ready("b");
  CHECK(run.ready("c").find("b: round 1 attempt 0 as 1 of 2") != std::string::npos);
  CHECK(run.state.restarts.failures.empty());
}

TEST_CASE("Coordinator: the last will of a connection that was replaced says nothing") {
  Three run;
  run.resumes("b", Workers::Up);
  CHECK(run.says("b", request::Lost{}, 0) == "");
  CHECK(!run.state.nodes.at("b").away_at);
  run.says("b", request::Lost{}, 1);
  CHECK(run.state.nodes.at("b").away_at);
}

TEST_CASE(
    "Coordinator: a later incarnation proves the earlier one dead, and a stale join is ignored") {
  Run run;
  run.settings = {.min_nodes = 2, .max_nodes = 2};
  run.joins("a.0");
  run.joins("b.0");
  CHECK(run.joins("b.1") == "forget b.0; a.0: stop 0, b.0 was cut off");
  CHECK(run.joins("b.0") == "");
  CHECK(run.state.nodes.size() == 2);
  CHECK(run.says("b.2", request::Left{}) == "forget b.2; forget b.1");
}

TEST_CASE("Coordinator: names without an incarnation are those of different nodes") {
  Run run;
  run.joins("node1");
  run.joins("node2");
  CHECK(run.state.nodes.size() == 2);
}

// A coordinator that is new at a daemon.

namespace {

// Two of the three nodes of round 4 are back at the next coordinator.
struct TakenOver : Run {
  TakenOver() {
    settings = {.min_nodes = 1, .max_nodes = 3};
    policy.last_call_timeout = 0s;
    CHECK(says("a.0", resume("a", 0)) == "a.0: continue");
    CHECK(says("b.0", resume("b", 1)) == "b.0: continue");
    REQUIRE(state.phase == Phase::Running);
    REQUIRE(state.round == 4);
    REQUIRE(state.restarts.count == 1);
  }
  request::Resume resume(const char* host, int rank, Workers workers = Workers::Up) const {
    request::Resume resume{.join = join_of(host), .workers = workers};
    resume.join.next_round = 5;
    resume.join.previous_nodes = 3;
    resume.join.previous_rank = rank;
    resume.join.restart_count = 1;
    resume.join.run_uuid = "first";
    resume.join.is_back = resume.join.was_in_round = true;
    return resume;
  }
};

}  // namespace

TEST_CASE("Coordinator: a round is taken over as it is from the nodes that resume") {
  TakenOver run;
  CHECK(run.state.run_uuid == "first");
  CHECK(run.says("c.0", run.resume("c", 2)) == "c.0: continue");
  CHECK(!run.state.former.awaited);
  CHECK(run.pass(1min, {"a.0", "b.0", "c.0"}) == "");
  CHECK(run.fails("a.0") == "a.0: end 82; b.0: end 82; c.0: end 82");  // the budget is spent
}

TEST_CASE(
    "Coordinator: a node of a taken-over round that does not come back is lost with its lease") {
  TakenOver run;
  std::string said = run.pass(5s, {"a.0", "b.0"});
  CHECK(said.find("a.0: stop 4, 1 node of the round did not come back to the rendezvous") == 0);
  run.ready("a.0");
  CHECK(run.ready("b.0").find("a.0: round 5 attempt 1 as 0 of 2") == 0);
}

TEST_CASE("Coordinator: a taken-over round that has lost a node meanwhile does not go on") {
  TakenOver run;
  SUBCASE("its guardian says so") {
    request::Left left{.why = "was lost (its agent, pid 7, was killed)", .round = 4};
    CHECK(run.says("c.0", left)
              .find("a.0: stop 4, c was lost (its agent, pid 7, was killed); b.0: stop 4") !=
          std::string::npos);
  }
  SUBCASE("it comes as its next incarnation") {
    CHECK(run.says("c.1", run.resume("c", 2).join).find("a.0: stop 4, c was cut off") == 0);
  }
  SUBCASE("the guardian of an earlier round's says nothing of it") {
    CHECK(run.says("c.0", request::Left{.why = "", .round = 3}) == "forget c.0");
  }
}

TEST_CASE("Coordinator: no round follows a taken-over one while one of its nodes is not known of") {
  TakenOver run;
  run.state.policy.max_restarts = 3;
  run.fails("a.0");
  run.ready("a.0");
  CHECK(run.ready("b.0") == "");
  SUBCASE("it comes as its next incarnation") {
    auto join = run.resume("c", 2).join;
    CHECK(run.says("c.1", join).find("a.0: round 5") != std::string::npos);
  }
  SUBCASE("a node that was counted comes as its next incarnation") {
    CHECK(run.says("b.1", run.resume("b", 1).join).find("round") == std::string::npos);
    CHECK(run.pass(4s, {"a.0", "b.1"}).find("round 5") == std::string::npos);
    CHECK(run.pass(2s, {"a.0", "b.1"}).find("a.0: round 5") != std::string::npos);
  }
}

TEST_CASE("Coordinator: a node of another start of the run brings that start's workers along") {
  Run run;
  run.policy.last_call_timeout = 0s;
  run.joins("a.0");
  REQUIRE(run.joins("b.0").find("a.0: round 0") == 0);
  // It was cut off from a round of two nodes; the other one may still work.
  auto join = run.join_of("x");
  join.next_round = 5;
  join.previous_nodes = 2;
  join.previous_rank = 0;
  join.run_uuid = "first";
  join.is_back = join.was_in_round = true;
  run.says("x.1", join);
  CHECK(run.pass(3s, {"a.0", "b.0", "x.1"}).find("stop 0") == std::string::npos);
  CHECK(run.pass(4s, {"a.0", "b.0", "x.1"}).find("a.0: stop 0") != std::string::npos);
  run.ready("a.0");
  CHECK(run.ready("b.0").find("a.0: round ") != std::string::npos);
}

// A coordinator that finds a run file.

namespace {

// The process before was killed in round 4 of a and b, with a silence limit of 5 s and a grace of
// one more.
struct FoundFile : Run {
  FoundFile() {
    policy.last_call_timeout = 0s;
    state.former.awaited = coordinator::former_of(
        {.run = "job", .run_uuid = "first", .round = 4, .lease = 6s, .nodes = {"a", "b"}},
        now.mono);
  }
  request::Join returning(const char* host) const {
    request::Join join = join_of(host);
    join.next_round = 5;
    join.previous_nodes = 2;
    join.run_uuid = "first";
    join.is_back = true;
    return join;
  }
};

}  // namespace

TEST_CASE("Coordinator: a node of a run file that does not come back is named") {
  FoundFile run;
  run.settings = {.min_nodes = 1, .max_nodes = 3};
  const std::set<std::string> names{"a", "b", "c", "d", "e", "f", "g"};
  std::size_t count = 0;
  std::string why;
  SUBCASE("one") {
    count = 2;
    why = "b was lost (it did not come back to the rendezvous)";
  }
  SUBCASE("two") {
    count = 3;
    why = "b, c were lost (they did not come back to the rendezvous)";
  }
  SUBCASE("many") {
    count = 7;
    why = "b, c, d, e and 2 more were lost (they did not come back to the rendezvous)";
  }
  run.state.former.awaited = coordinator::former_of(
      {.run = "job",
       .run_uuid = "first",
       .round = 4,
       .lease = 6s,
       .nodes = {names.begin(), std::next(names.begin(), static_cast<std::ptrdiff_t>(count))}},
      run.now.mono);
  request::Resume resume{.join = run.returning("a"), .workers = Workers::Up};
  resume.join.previous_nodes = static_cast<int>(count);
  resume.join.was_in_round = true;
  CHECK(run.says("a.0", resume) == "a.0: continue");
  CHECK(run.pass(7s, {"a.0"}).find("a.0: stop 4, " + why) == 0);
}

TEST_CASE("Coordinator: fresh nodes wait until the workers of a run file are dead") {
  FoundFile run;
  run.joins("x.0");
  run.joins("y.0");
  SUBCASE("by their lease") {
    std::string said = run.pass(5900ms, {"x.0", "y.0"});
    CHECK(said.find("round 0") == std::string::npos);
    CHECK(said.find("waiting for 2 nodes of the last start") != std::string::npos);
    CHECK(run.pass(500ms, {"x.0", "y.0"}).find("x.0: round 0 attempt 0 as 0 of 2") == 0);
  }
  SUBCASE("by the word of their guardians") {
    CHECK(run.says("a.0", request::Left{.why = "", .round = 4}) == "forget a.0");
    // Its workers were not up, so that it names no round; or of a round before that one.
    CHECK(run.says("b.0", request::Left{}).find("x.0: round 0 attempt 0 as 0 of 2") !=
          std::string::npos);
  }
}

TEST_CASE("Coordinator: nodes of a run file count whatever they come back with") {
  FoundFile run;
  // Its lease was over, so that it does not say that it was in the round.
  CHECK(run.says("a.1", run.returning("a")) == "");
  CHECK(run.says("a.2", run.returning("a")) == "forget a.1");
  CHECK(run.says("b.1", run.returning("b")).find("a.2: round 5 attempt 0 as 0 of 2") == 0);
}

TEST_CASE("Coordinator: the round of a run file goes on where its nodes resume") {
  FoundFile run;
  for (const char* host : {"a", "b"}) {
    request::Resume resume{.join = run.returning(host), .workers = Workers::Up};
    resume.join.was_in_round = true;
    CHECK(run.says(host + std::string(".0"), resume) == host + std::string(".0: continue"));
  }
  CHECK(run.file.nodes == std::set<std::string>{"a", "b"});
  CHECK(run.pass(1min, {"a.0", "b.0"}) == "");
  SUBCASE("an older one does not") {
    FoundFile other;
    request::Resume resume{.join = other.returning("a"), .workers = Workers::Up};
    resume.join.next_round = 4;
    resume.join.was_in_round = true;
    CHECK(other.says("a.0", resume) == "a.0: dropped, its lease was over");
  }
}

TEST_CASE("Coordinator: what is known of rounds before holds for the run that follows at once") {
  FoundFile run;
  run.policy.join_timeout = 2s;
  run.joins("x.0");
  run.state.former.past_rounds["second"] = 9;
  request::Left left{.why = "was lost (its agent, pid 7, was killed)", .round = 4};
  CHECK(run.says("b.0", left) == "forget b.0");
  REQUIRE(run.pass(3s, {"x.0"}).find("x.0: end 80") != std::string::npos);
  CHECK(run.joins("y.0") == "");
  REQUIRE(run.has_left("x.0") == "forget x.0");
  request::Resume resume{.join = run.returning("a"), .workers = Workers::Up};
  resume.join.was_in_round = true;
  SUBCASE("a round that a node has left does not go on") {
    CHECK(run.says("a.0", resume).find("a.0: continue; a.0: stop 4") == 0);
  }
  SUBCASE("nor one that its start had before others") {
    resume.join.run_uuid = "second";
    CHECK(run.says("a.0", resume) == "a.0: dropped, its lease was over");
  }
}

TEST_CASE("Coordinator: without those of a run file a last call is made as ever") {
  FoundFile run;
  run.policy.last_call_timeout = 20s;
  run.joins("x.0");
  run.joins("y.0");
  run.says("a.0", request::Left{});
  CHECK(run.says("b.0", request::Left{}) == "forget b.0");
  CHECK(run.pass(19s, {"x.0", "y.0"}).find("round 0") == std::string::npos);
  CHECK(run.pass(2s, {"x.0", "y.0"}).find("x.0: round 0") != std::string::npos);
}

TEST_CASE("Coordinator: each round is written to the run file") {
  TwoOfThree run;
  CHECK(run.file.nodes == std::set<std::string>{"a", "b"});
  CHECK(run.file.round == 0);
  CHECK(run.file.run_uuid == run.state.run_uuid);
  CHECK(run.file.lease == 5s);
  run.is_lost("b");
  run.joins("c");
  run.ready("a");
  CHECK(run.file.nodes == std::set<std::string>{"a", "c"});
  CHECK(run.file.round == 1);
}

TEST_CASE("Coordinator: a round older than the one taken over is not gone on with") {
  TakenOver run;
  auto resume = run.resume("c", 2);
  resume.join.next_round = 4;
  CHECK(run.says("c.0", resume) == "c.0: dropped, its lease was over");
}

TEST_CASE("Coordinator: all of a taken-over round have succeeded only when none is missing") {
  TakenOver run;
  run.succeeds("a.0");
  CHECK(run.succeeds("b.0") == "");
  CHECK(run.says("c.0", run.resume("c", 2, Workers::Succeeded)) ==
        "c.0: continue; a.0: end 0; b.0: end 0; c.0: end 0");
}

TEST_CASE("Coordinator: a newcomer does not keep the --node-rank of a node that goes on") {
  Run run;
  run.settings = {.min_nodes = 1, .max_nodes = 2};
  run.joins("x.0", 1);
  request::Resume resume = run.resume_of("b", Workers::Up);
  resume.join.next_round = 5;
  resume.join.previous_nodes = 1;
  resume.join.node_rank = 1;
  CHECK(run.says("b.0", resume) ==
        "x.0: refused, --node-rank=1 is that of b (pid 7) already; b.0: continue");
}

// Newcomers and nodes that come and go.

TEST_CASE("Coordinator: newcomers within a second are taken in together") {
  Run run;
  run.settings = {.min_nodes = 1, .max_nodes = 4};
  run.policy.last_call_timeout = 0s;
  run.joins("a");
  CHECK(run.pass(300ms, {"a"}) == "");
  CHECK(run.joins("b") == "");
  CHECK(run.joins("c") == "");
  CHECK(coordinator::deadline(run.state) == run.now.mono + 700ms);
  CHECK(run.pass(700ms, {"a", "b", "c"}) == "a: stop 0, b, c have joined");
  CHECK(run.ready("a").find("a: round 1 attempt 0 as 0 of 3") == 0);
  run.pass(1min, {"a", "b", "c"});
  CHECK(run.joins("d").find("a: stop 1, d has joined") == 0);  // no more can come
}

// Of the node a, for 10 s.
struct OlderRound : Run {
  explicit OlderRound(int max_nodes) {
    settings = {.min_nodes = 1, .max_nodes = max_nodes};
    policy.last_call_timeout = 0s;
    joins("a");
    pass(10s, {"a"});
  }
};

TEST_CASE("Coordinator: newcomers of an older round are taken in together") {
  OlderRound run(6);
  CHECK(run.joins("b") == "");
  run.pass(100ms, {"a", "b"});
  CHECK(run.joins("c") == "");
  run.pass(200ms, {"a", "b", "c"});
  CHECK(run.joins("d") == "");
  CHECK(coordinator::deadline(run.state) == run.now.mono + 200ms);
  CHECK(run.pass(200ms, {"a", "b", "c", "d"}) == "a: stop 0, b, c, d have joined");
}

TEST_CASE("Coordinator: the last node that a run takes is not waited for") {
  OlderRound run(3);
  CHECK(run.joins("b") == "");
  CHECK(run.joins("c") == "a: stop 0, b, c have joined");
}

TEST_CASE("Coordinator: a host that is lost again and again only stands by") {
  Run run;
  run.settings = {.min_nodes = 1, .max_nodes = 2};
  run.policy.last_call_timeout = 0s;
  run.policy.flap_limit = 2;
  run.joins("a");
  auto comes = [&](const std::string& id) {
    request::Join join = run.join_of("bad");
    return run.says(id, join);
  };
  for (const char* id : {"x.0", "y.0"}) {
    comes(id);
    run.pass(2s, {"a", id});
    run.ready("a");
    REQUIRE(run.state.nodes.at(id).is_member);
    run.is_lost(id);
    run.ready("a");
  }
  CHECK(comes("z.0") == "z.0: stand by, it was lost 2 times in 10 minutes (flap_limit)");
  CHECK(run.pass(9min, {"a", "z.0"}) == "");
  run.is_lost("z.0");
  run.pass(1min, {"a"});  // the first loss is older than ten minutes
  CHECK(comes("w.0").find("a: stop") == 0);
}

TEST_CASE("Coordinator: so does one for which a round is stopped again and again, and that dies") {
  Run run;
  run.settings = {.min_nodes = 1, .max_nodes = 2};
  run.policy.last_call_timeout = 0s;
  run.policy.flap_limit = 2;
  run.joins("a");
  for (const char* id : {"x.0", "y.0"}) {
    run.pass(20s, {"a"});
    CHECK(run.says(id, run.join_of("bad")).find("a: stop") == 0);
    run.is_lost(id);
    CHECK(run.ready("a").find("a: round") == 0);
  }
  CHECK(run.says("z.0", run.join_of("bad")) ==
        "z.0: stand by, it was lost 2 times in 10 minutes (flap_limit)");
}

TEST_CASE("Coordinator: rounds that losses cut short have an end") {
  Run run;
  run.settings = {.min_nodes = 1, .max_nodes = 30};
  run.policy.last_call_timeout = 0s;
  run.joins("a");
  std::vector<std::string> living = {"a"};
  for (int i = 0; i < 29; ++i) living.push_back("b" + std::to_string(i));
  for (std::size_t i = 1; i < living.size(); ++i) run.joins(living[i]);
  run.pass(1s, living);
  run.ready("a");
  REQUIRE(run.state.up_count == 30);
  std::string said;
  int losses = 0;
  for (; said.find("end 80") == std::string::npos && living.size() > 1; ++losses) {
    run.pass(15s, living);
    std::string lost = living.back();
    living.pop_back();
    said = run.is_lost(lost);
    for (const std::string& id : living) run.ready(id);
  }
  CHECK(said.find("; losses of nodes have ended 20 rounds in 10 minutes before they were 30 s "
                  "old") != std::string::npos);
  CHECK(losses == 20);
}

TEST_CASE("Coordinator: long rounds and failures are no lack of progress") {
  Run run;
  run.settings = {.min_nodes = 1, .max_nodes = 2};
  run.policy = {.max_restarts = 1000, .last_call_timeout = 0s};
  run.joins("a");
  for (int i = 0; i < 100; ++i) {
    run.fails("a");
    run.ready("a");
  }
  for (int i = 0; i < 70; ++i) {
    run.pass(31s, {"a"});
    std::string id = "b" + std::to_string(i) + ".0";
    run.joins(id);
    run.pass(1s, {"a", id});
    run.is_lost(id);
    run.ready("a");
  }
  CHECK(run.state.phase == Phase::Running);
}

TEST_CASE("Coordinator: nodes that come one by one are no lack of progress, and cost few stops") {
  Run run;
  run.settings = {.min_nodes = 1, .max_nodes = 100};
  run.policy.last_call_timeout = 0s;
  std::vector<std::string> living;
  int stops = 0;
  auto pass = [&](Duration duration) {
    for (MonoTime end = run.now.mono + duration; run.now.mono < end;) {
      run.pass(500ms, living);
      if (run.state.phase != Phase::Stopping) continue;
      ++stops;
      for (const std::string& id : living) {
        if (run.state.phase == Phase::Stopping) run.ready(id);
      }
    }
  };
  for (int i = 0; i < 100; ++i) {
    living.push_back("n" + std::to_string(i));
    run.joins(living.back());
    pass(3s);
  }
  CHECK(stops >= 5);
  CHECK(stops <= 22);  // in 300 s
  pass(16s);
  CHECK(run.state.up_count == 100);
  run.is_lost("n99");
  living.pop_back();
  for (const std::string& id : living) run.ready(id);
  REQUIRE(run.state.up_count == 99);
  pass(5min);
  CHECK(run.joins("n100").find("n0: stop") == 0);  // as at first
}

TEST_CASE("Coordinator: rounds that are lost to silence in a row make the lease longer") {
  Run run;
  run.joins("a");
  run.joins("b");
  run.joins("h.0");
  int incarnation = 0;
  // Until nothing has been heard of h for so long, and it comes back.
  auto loses = [&](Duration silence) {
    std::string id = "h." + std::to_string(incarnation);
    CHECK(run.pass(silence - 500ms, {"a", "b"}).find("dropped") == std::string::npos);
    CHECK(run.pass(1s, {"a", "b"}).find(id + ": dropped") != std::string::npos);
    run.ready("a");
    std::string said = run.ready("b");
    run.joins("h." + std::to_string(++incarnation));
    return said;
  };
  auto grows = [&] {
    std::vector<std::string> all = {"a", "b", "h." + std::to_string(incarnation)};
    for (int i = 0; i < 40 && run.state.phase == Phase::Running; ++i) run.pass(500ms, all);
    run.ready("a");
    std::string said = run.ready("b");
    REQUIRE(run.state.up_count == 3);
    return said;
  };
  CHECK(loses(5s).find("go by") == std::string::npos);  // one machine may have died
  grows();
  CHECK(
      loses(5s).find("b: go by, 2 rounds in a row were lost to silence alone; the keep-alive limit "
                     "of the run is 10.0 s from now on; a: round") != std::string::npos);
  CHECK(run.file.lease == 10s);
  SUBCASE("up to four times") {
    grows();
    CHECK(loses(10s).find("a: go by, 3 rounds") == 0);
    grows();
    CHECK(loses(20s).find("go by") == std::string::npos);
    CHECK(run.state.policy.silence_limit() == 20s);
  }
  SUBCASE("but not beyond a minute") {
    run.state.policy.keep_alive_interval = 4s;  // 40 s at present
    grows();
    CHECK(loses(40s).find("go by") == std::string::npos);
    CHECK(run.state.policy.silence_limit() == 40s);
  }
  SUBCASE("until a round lasts") {
    grows();
    run.pass(5min, {"a", "b", "h.2"});
    run.is_lost("h.2");
    run.ready("a");
    CHECK(run.ready("b").find("a: go by, the keep-alive limit of the run is 5.0 s; b: go by") == 0);
  }
  SUBCASE("until a worker fails") {
    grows();
    run.fails("a");
    run.ready("a");
    run.ready("b");
    CHECK(run.ready("h.2").find("a: go by, the keep-alive limit of the run is 5.0 s; b: go by") ==
          0);
  }
  SUBCASE("and who was silent for longer than what follows is not given up for that") {
    grows();
    run.fails("a");
    run.ready("a");
    run.ready("b");
    run.pass(7s, {"a", "h.2"});
    CHECK(run.ready("h.2").find("a: go by, the keep-alive limit of the run is 5.0 s") == 0);
    CHECK(run.pass(4500ms, {"a", "h.2"}) == "");
    CHECK(run.pass(1s, {"a", "h.2"}).find("b: dropped, b was lost (silent for 5.") == 0);
  }
  SUBCASE("one that has missed it hears of it before its round") {
    request::Resume resume = run.resume_of("a", Workers::Down);
    resume.join.next_round = run.state.round;
    std::string said = run.says("a", resume, 1);
    CHECK(said.find("a: continue; a: go by, 2 rounds") != std::string::npos);
    CHECK(said.find("a: go by") < said.find("a: round"));
  }
  SUBCASE("a failure that the silence has caused does not shorten it") {
    grows();
    run.pass(9s, {"a", "b"});
    run.fails("a");
    CHECK(run.pass(2s, {"a", "b"}).find("h.2: dropped") != std::string::npos);
    run.ready("a");
    CHECK(run.ready("b").find("go by, 3 rounds") != std::string::npos);
  }
}

TEST_CASE("Coordinator: a newcomer hears for what it waits, and a long round sets the wait back") {
  Run run;
  run.settings = {.min_nodes = 1, .max_nodes = 10};
  run.policy.last_call_timeout = 0s;
  run.joins("a");
  CHECK(run.joins("b") == "");  // for a second
  run.pass(1s, {"a", "b"});
  run.ready("a");
  CHECK(run.joins("c") == "c: tell, a round runs; its nodes take in newcomers together, in 2 s");
  CHECK(run.pass(2s, {"a", "b", "c"}).find("a: stop") == 0);
  run.ready("a");
  run.ready("b");
  run.pass(5min, {"a", "b", "c"});
  run.fails("a");  // which ends the long round
  for (const char* id : {"a", "b", "c"}) run.ready(id);
  CHECK(run.joins("d") == "");
  CHECK(run.pass(1s, {"a", "b", "c", "d"}).find("a: stop") == 0);
}

TEST_CASE("Coordinator: one who is waited for is named") {
  Three run;
  run.fails("a");
  run.ready("a");
  std::string said = run.pass(3s, {"a", "b", "c"});
  CHECK(said == "a: tell, waiting for b, c to stop the workers");
}
