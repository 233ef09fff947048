// SPDX-License-Identifier: BSD-3-Clause
//
// What is decided about several runs in one place: scenarios in words.
#include "rendezvous/decide/runs.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "rendezvous/decide/room.h"
#include "rendezvous/decide/runs_text.h"
#include "store/base/variant.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;

namespace {

std::string words(const Command& command) {
  if (const auto* end = std::get_if<command::End>(&command)) {
    return "end " + std::to_string(end->exit_code);
  }
  if (const auto* refuse = std::get_if<command::Refuse>(&command)) return "refused, " + refuse->why;
  if (const auto* info = std::get_if<command::Info>(&command)) return "tell, " + info->text;
  if (const auto* standby = std::get_if<command::Standby>(&command))
    return "standby, " + standby->why;
  if (std::holds_alternative<command::Round>(command)) return "round";
  if (std::holds_alternative<command::Stop>(command)) return "stop";
  if (std::holds_alternative<command::Dropped>(command)) return "dropped";
  if (std::holds_alternative<command::Continue>(command)) return "continue";
  return "?";
}

// Plays messages, and tells what is done about them.
struct Place {
  runs::State state;
  Now now{.mono = MonoTime(1h)};
  std::string run_uuid;                  // of the last round that was begun
  std::map<std::string, RunFile> files;  // of runs

  std::string on(const runs::Event& event) {
    auto next = runs::step(std::move(state), event, now);
    state = std::move(next.state);
    std::string text;
    std::optional<runs::event::MarkRead> mark;
    for (const auto& action : next.actions) {
      if (std::holds_alternative<runs::action::Suspect>(action)) continue;
      if (const auto* put = std::get_if<runs::action::Mark>(&action)) {
        mark = {.run = put->run, .number = put->number};
        continue;
      }
      if (const auto* keep = std::get_if<runs::action::KeepRunFile>(&action)) {
        files[keep->file.run] = keep->file;
        continue;
      }
      if (const auto* drop = std::get_if<runs::action::DropRunFile>(&action)) {
        CHECK(files.erase(drop->run) == 1);
        continue;
      }
      text += text.empty() ? "" : "; ";
      text +=
          std::visit(Overloaded{
                         [&](const runs::action::Send& send) {
                           if (const auto* round = std::get_if<command::Round>(&send.command))
                             run_uuid = round->run_uuid;
                           return send.node + ": " + words(send.command);
                         },
                         [](const runs::action::Forget& forget) { return "forget " + forget.node; },
                         [](const runs::action::Acquit& acquit) { return "acquit " + acquit.node; },
                         [](const runs::action::EmptyCommonSpace&) { return std::string("empty"); },
                         [](const auto&) { return std::string("?"); },
                     },
                     action);
    }
    if (!mark) return text;
    std::string more = on(*mark);
    return text + (text.empty() || more.empty() ? "" : "; ") + more;
  }
  std::string says(const std::string& run, const std::string& node, Request request) {
    return on(runs::event::Arrived{{.run = run, .node = node, .request = std::move(request)}});
  }
  static request::Join join_of(const std::string& node, int nodes = 1) {
    return {.host = node,
            .address = node,
            .settings = {.min_nodes = nodes, .max_nodes = nodes},
            .store_port = 1000};
  }
  std::string joins(const std::string& run, const std::string& node, int nodes = 1) {
    return says(run, node, join_of(node, nodes));
  }
  std::string ticks_after(Duration duration) {
    now.mono += duration;
    return on(runs::event::Tick{});
  }
};

// A run of a and b; b was lost, and a has ended it.
struct Over : Place {
  std::string first;
  Over() {
    request::Join join = join_of("a");
    join.settings.max_nodes = 2;
    join.policy.last_call_timeout = 0s;
    REQUIRE(says("job", "a", join) == "a: round");
    join.host = "b";
    REQUIRE(says("job", "b", join) == "");
    REQUIRE(ticks_after(coordinator::kSettleTime) == "a: stop");
    REQUIRE(says("job", "a", request::Ready{.round = 0, .store_port = 1}) == "a: round; b: round");
    first = run_uuid;
    REQUIRE(says("job", "b", request::Left{}) == "forget b; a: stop");
    REQUIRE(says("job", "a", request::Ready{.round = 1, .store_port = 1}) == "a: round");
    REQUIRE(says("job", "a", request::Succeeded{2}) == "a: end 0");
    REQUIRE(says("job", "a", request::Left{}) == "forget a");
    REQUIRE(state.runs.empty());
  }
  request::Join returning() const {
    request::Join join = join_of("b");
    join.settings.max_nodes = 2;
    join.next_round = 2;
    join.run_uuid = first;
    return join;
  }
};

}  // namespace

TEST_CASE("Runs: each id is a run of its own") {
  Place place;
  CHECK(place.joins("x", "a", 2) == "");
  CHECK(place.joins("y", "b", 2) == "");
  CHECK(runs::who_is_here(place.state) == "run 'x' (1 node), run 'y' (1 node)");
  CHECK(place.joins("x", "c", 2) == "a: round; c: round");
}

TEST_CASE("Runs: who comes too late to a run whose id is nobody else's hears how it ended") {
  Place place;
  place.state.only_run = "job";
  CHECK(place.joins("job", "a.0") == "a.0: round");
  CHECK_FALSE(runs::has_ended(place.state));
  CHECK(place.says("job", "a.0", request::Succeeded{0}) == "a.0: end 0");
  CHECK(place.joins("job", "b.3") == "b.3: end 0");
  CHECK(place.says("job", "a.0", request::Left{}) == "forget a.0");
  CHECK(runs::has_ended(place.state));
  CHECK(place.joins("job", "c.0") == "c.0: end 0");
  CHECK(place.state.gone == std::set<std::string>{"a"});
  CHECK(place.says("job", "b.3", request::Left{}) == "forget b.3");
  CHECK(place.says("job", "c.0", request::Lost{}) == "forget c.0");
  CHECK(place.state.gone == std::set<std::string>{"a", "b", "c"});
  CHECK(place.joins("other", "d.0") == "d.0: round");
}

TEST_CASE("Runs: a static round begins in an empty store, once") {
  Place place;
  request::Join join = place.join_of("a");
  join.settings = {.min_nodes = 2, .max_nodes = 2, .master = Endpoint{"m", 1}};
  CHECK(place.says("job", "a", join) == "");
  CHECK(place.says("job", "b", join) == "empty; a: round; b: round");
  // b has not heard of it; a's workers are in that store.
  CHECK(place.says("job", "b", request::Resume{.join = join}).ends_with("b: round"));
  CHECK(place.says("job", "b", request::Resume{.join = join}).find("empty") == std::string::npos);
}

TEST_CASE("Runs: who was away when its run ended is told so, and does not begin it anew") {
  Over place;
  CHECK(place.says("job", "b.1", place.returning()) == "b.1: end 0");
  CHECK(place.state.runs.empty());
  CHECK(place.says("job", "b.1", request::Left{}) == "forget b.1");
}

TEST_CASE("Runs: nor does it get into a later run of the same id") {
  Over place;
  CHECK(place.joins("job", "c") == "c: round");
  CHECK(place.run_uuid != place.first);
  CHECK(place.says("job", "b.1", place.returning()) == "b.1: end 0");
  CHECK(place.state.runs.at("job").nodes.size() == 1);
}

TEST_CASE("Runs: a verdict is forgotten after its time, and then nothing is left to wait for") {
  Over place;
  CHECK(runs::deadline(place.state) == place.now.mono + runs::kVerdictAge);
  CHECK(place.ticks_after(runs::kVerdictAge) == "");
  CHECK(place.state.verdicts.empty());
  CHECK(!runs::deadline(place.state));
}

TEST_CASE("Runs: no more than so many verdicts are kept") {
  Place place;
  for (std::size_t i = 0; i < runs::kMaxVerdicts + 5; ++i) {
    std::string run = "job" + std::to_string(i);
    place.joins(run, "a");
    place.says(run, "a", request::Succeeded{0});
    place.says(run, "a", request::Left{});
  }
  CHECK(place.state.verdicts.size() == runs::kMaxVerdicts);
  CHECK(place.state.verdicts.front().run == "job5");
}

TEST_CASE("Runs: what a node was told last is thrown away after a minute, or when it is gone") {
  Place place;
  place.joins("job", "a", 2);
  place.says("job", "a", request::Heartbeat{});
  CHECK(place.joins("job", "b", 3).find("b: refused") == 0);
  CHECK(place.joins("job", "c", 3).find("c: refused") == 0);
  CHECK(place.says("job", "c", request::Lost{}) == "forget c");
  CHECK(place.ticks_after(runs::kLastCommandAge).find("forget b") == 0);
}

TEST_CASE("Runs: an outsider's last word clears its mailbox, whatever run it names") {
  Place place;
  CHECK(place.says("nothing", "x", request::Lost{}) == "forget x");
  CHECK(place.says("nothing", "x", request::Heartbeat{}) == "");
  CHECK(place.state.runs.empty());
}

TEST_CASE("Runs: a silent node reads that it was dropped, and its mailbox is cleared later") {
  Place place;
  place.joins("job", "a", 2);
  CHECK(place.ticks_after(1s) == "");
  std::string said;
  for (int i = 0; i < 8 && said.find("dropped") == std::string::npos; ++i) {
    said = place.ticks_after(1s);
  }
  CHECK(said == "a: dropped");
  CHECK(place.state.runs.empty());
  CHECK(place.ticks_after(runs::kLastCommandAge) == "forget a");
  // Until no connection of it can be there any more, the store says that it was given up.
  CHECK(place.ticks_after(runs::kGivenUpAge) == "acquit a");
  CHECK(!runs::deadline(place.state));
}

TEST_CASE("Runs: a Left that overtakes the Join of its agent is remembered") {
  Place place;
  place.joins("job", "b.0", 2);
  CHECK(place.says("job", "a.0", request::Left{"was lost (its agent, pid 7, was killed)"}) ==
        "forget a.0");
  CHECK(place.joins("job", "a.0", 2) == "forget a.0");
  CHECK(place.state.runs.at("job").nodes.size() == 1);
  CHECK(place.joins("job", "a.1", 2) == "a.1: round; b.0: round");  // its agent lives
}

TEST_CASE("Runs: a Left that comes before its run is known counts for it") {
  Place place;
  CHECK(place.says("job", "b.0", request::Left{.why = "was lost", .round = 3}) == "forget b.0");
  request::Join join = Place::join_of("a");
  join.next_round = 4;
  join.previous_nodes = 2;
  join.is_back = join.was_in_round = true;
  CHECK(place.says("job", "a.1", join).find("a.1: round") != std::string::npos);
}

TEST_CASE("Runs: a Left counts only for the round that it names") {
  Place place;
  request::Join join = Place::join_of("a");
  join.next_round = 4;
  join.previous_nodes = 2;
  join.is_back = join.was_in_round = true;
  for (const request::Left& left : {request::Left{}, request::Left{.why = "", .round = 2}}) {
    place.state = {};
    place.says("job", "b.0", left);
    CHECK(place.says("job", "a.1", join).find("round") == std::string::npos);
    // Its lease over, nobody can run any more.
    std::string said;
    for (int i = 0; i < 5; ++i) {
      place.says("job", "a.1", request::Heartbeat{});
      CHECK(said.find("round") == std::string::npos);
      said = place.ticks_after(1s);
    }
    CHECK(said.find("a.1: round") != std::string::npos);
  }
}

TEST_CASE("Runs: there is a run file from the first round to the end of the last worker") {
  Place place;
  place.joins("job", "a.0", 2);
  CHECK(place.files.empty());
  place.joins("job", "b.0", 2);
  CHECK(place.files.at("job").nodes == std::set<std::string>{"a", "b"});
  place.says("job", "a.0", request::Failed{.failure = {.status = {.exit_code = 1}}});
  place.says("job", "a.0", request::Left{});
  CHECK(place.files.size() == 1);  // b has been told, and its workers have their grace
  place.says("job", "b.0", request::Left{});
  CHECK(place.files.empty());
  CHECK(place.state.runs.empty());
}

TEST_CASE("Runs: a process that was killed has left run files to the next one") {
  Place place;
  place.joins("job", "a.0", 2);
  place.joins("job", "b.0", 2);
  place.joins("other", "c.0");
  REQUIRE(place.files.size() == 2);
  runs::event::Begun begun;
  for (const auto& [run, file] : place.files) begun.files.push_back(file);
  place.state = {};
  CHECK(place.on(begun) == "");
  MonoTime begin = place.now.mono;
  CHECK(place.state.formers.at("job").until == begin + 5s);
  CHECK(runs::deadline(place.state) == begin + 1s);  // it looks whether it stands still
  auto pass_a_second = [&] {
    place.now.mono += 1s;
    for (const char* id : {"x.0", "y.0"}) place.says("job", id, request::Heartbeat{});
    return place.on(runs::event::Tick{});
  };
  place.joins("job", "x.0", 2);
  CHECK(place.joins("job", "y.0", 2) == "");
  SUBCASE("its nodes leave again, and the wait is the same for those that follow") {
    place.now.mono += 3s;
    place.says("job", "x.0", request::Left{});
    place.says("job", "y.0", request::Left{});
    CHECK(place.files.size() == 2);
    place.joins("job", "x.1", 2);
    CHECK(place.joins("job", "y.1", 2) == "");
  }
  SUBCASE("a guardian's word that came before counts") {
    place.says("other", "c.0", request::Left{.why = "", .round = 0});
    CHECK(place.joins("other", "z.0") == "forget c.0; z.0: round");
  }
  SUBCASE("its own pause is no part of a lease") {
    place.now.mono += 20s;
    CHECK(pass_a_second().find("round") == std::string::npos);
    CHECK(place.state.formers.at("other").until == begin + 26s);
  }
  SUBCASE("a run that nobody begins again is forgotten with its lease") {
    for (int i = 0; i < 4; ++i) CHECK(pass_a_second().find("round") == std::string::npos);
    CHECK(place.state.formers.size() == 1);
    CHECK(pass_a_second().find("x.0: round") != std::string::npos);
    CHECK(place.state.formers.empty());
    CHECK(place.files.size() == 1);
    CHECK(place.files.at("job").nodes == std::set<std::string>{"x", "y"});
  }
}

TEST_CASE("Runs: what a run file holds is read as it was written, and what is none is refused") {
  RunFile file{
      .run = "a run/\"\\\xc3\xa9", .run_uuid = "u", .round = 7, .lease = 5s, .nodes = {"a", "b"}};
  RunFile read = decode_run_file(encode(file)).value();
  CHECK(read.run == file.run);
  CHECK(read.run_uuid == file.run_uuid);
  CHECK(read.round == 7);
  CHECK(read.lease == 5s);
  CHECK(read.nodes == file.nodes);
  for (const char* text :
       {"", "[]", "{}", "{\"v\":2}",
        R"({"v":1,"run":"r","run_uuid":"u","round":-1,"lease_ms":5,"nodes":[]})",
        R"({"v":1,"run":"r","run_uuid":"u","round":1,"lease_ms":5,"nodes":[3]})"}) {
    CHECK(!decode_run_file(text).has_value());
  }
  CHECK(run_file_name("job").size() == 16);
  CHECK(run_file_name("job") != run_file_name("jbo"));
}

TEST_CASE("Runs: of a start that has lost all its nodes no older round is gone on with") {
  Place place;
  place.joins("job", "a.0");
  std::string uuid = place.run_uuid;
  place.says("job", "a.0", request::Left{"was lost"});  // in round 0
  REQUIRE(place.state.runs.empty());
  request::Resume resume{.join = Place::join_of("b"), .workers = Workers::Up};
  resume.join.next_round = 1;
  resume.join.run_uuid = uuid;
  resume.join.is_back = resume.join.was_in_round = true;
  SUBCASE("the last one is") {
    resume.join.previous_nodes = 1;
    CHECK(place.says("job", "b.0", resume) == "b.0: continue");
  }
  SUBCASE("one before it is not") {
    place.state.pasts.front().round = 1;
    CHECK(place.says("job", "b.0", resume) == "b.0: dropped");
  }
}

TEST_CASE("Runs: a round that one node has left is not gone on with by the next that is back") {
  Place place;  // begun anew, under a round of two nodes
  auto resume_of = [](const std::string& host) {
    request::Resume resume{.join = Place::join_of(host, 2), .workers = Workers::Up};
    resume.join.next_round = 3;
    resume.join.run_uuid = "uuid";
    resume.join.previous_nodes = 2;
    resume.join.is_back = resume.join.was_in_round = true;
    return resume;
  };
  CHECK(place.says("job", "a.0", resume_of("a")) == "a.0: continue");
  CHECK(place.says("job", "a.0", request::Leaving{.why = "was stopped", .grace = 1s}) == "");
  CHECK(place.says("job", "a.0", request::Left{}) == "forget a.0");
  REQUIRE(place.state.runs.empty());
  CHECK(place.says("job", "b.0", resume_of("b")) == "b.0: continue; b.0: stop; b.0: stop");
}

TEST_CASE("Runs: a node that resumes after the end hears the verdict") {
  Over place;
  CHECK(place.says("job", "b.0", request::Resume{.join = place.returning()}) == "b.0: end 0");
}

TEST_CASE("Runs: one that waits hears of others that wait beside it") {
  Place place;
  place.joins("jbo", "a", 2);
  place.joins("job", "b", 2);
  place.joins("other", "c", 3);  // another --nnodes: it is not meant
  place.ticks_after(1s);
  std::string said = place.ticks_after(1500ms);
  CHECK(said.find("a: tell, waiting for nodes: 1 of 2 joined (a), 598 s left for 2 to come; also "
                  "waiting here: run 'job' (1 node)") != std::string::npos);
  CHECK(said.find("b: tell, waiting for nodes: 1 of 2 joined (b), 598 s left for 2 to come; also "
                  "waiting here: run 'jbo' (1 node)") != std::string::npos);
  CHECK(said.find("3 to come;") == std::string::npos);
}

TEST_CASE("Runs: two run ids cannot share a static port, and each round begins in an empty store") {
  Place place;
  request::Join join = Place::join_of("a");
  join.settings.master = Endpoint{.host = "m", .port = 29500};
  CHECK(place.says("x", "a", join) == "empty; a: round");
  CHECK(place.says("y", "b", join) ==
        "b: refused, it has --rdzv-id=y, not x, which is what the nodes have that meet here by the "
        "static backend");
}

TEST_CASE("Runs: a host that leaves ends them all, and lets nobody in") {
  Place place;
  place.joins("x", "a", 2);
  place.joins("y", "b", 2);
  CHECK(place.on(runs::event::HostLeaves{"h was stopped"}) == "a: end 80; b: end 80");
  std::string waits =
      ": standby, h was stopped; this node waits until it has ended, and meets the "
      "others of the next start";
  CHECK(place.joins("z", "c") == "c" + waits);
  CHECK(place.joins("x", "d", 2) == "d" + waits);  // the same command again, while `a` still saves
  // Who was in a round of a run that is not known here has nothing to wait for.
  request::Join join = Place::join_of("e");
  join.next_round = 2;
  join.run_uuid = "u";
  CHECK(place.says("w", "e", join) == "e: refused, h was stopped");
}

TEST_CASE("Runs: a node that is back while the host leaves hears the verdict of its run") {
  Place place;
  place.joins("x", "a");
  place.on(runs::event::HostLeaves{"h was stopped"});
  request::Join join = Place::join_of("a");
  join.next_round = 1;
  CHECK(place.says("x", "a", request::Resume{.join = join}) == "a: end 80");
}

TEST_CASE("Runs: so does one that was in no round of it yet") {
  Place place;
  place.joins("x", "a", 2);
  place.on(runs::event::HostLeaves{"h was stopped"});
  CHECK(place.says("x", "a", request::Resume{.join = Place::join_of("a")}) == "a: end 80");
}

TEST_CASE("Runs: who waits for the next run here meets it at another host when this one leaves") {
  Place place;
  place.joins("x", "a");
  place.says("x", "a", request::Succeeded{.round = 0});
  CHECK(place.joins("x", "b") == "");
  CHECK(place.on(runs::event::HostLeaves{"h was stopped"}) ==
        "b: standby, h was stopped; this node waits until it has ended, and meets the others of "
        "the next start");
  CHECK(place.ticks_after(1s) == "");  // and no run begins here
}

TEST_CASE("Runs: there are no more than so many") {
  Place place;
  for (std::size_t i = 0; i < runs::kMaxRuns; ++i) place.joins("job" + std::to_string(i), "a", 2);
  CHECK(place.joins("one more", "b", 2) == "b: refused, there are 4096 runs here already");
}

TEST_CASE("Runs: a tick is for a part of thousands of runs, and each has its own") {
  Place place;
  constexpr int kRuns = 2000;
  for (int i = 0; i < kRuns; ++i)
    place.joins("job" + std::to_string(i), "node" + std::to_string(i), 2 + i);
  place.now.mono += 1h;
  std::map<std::string, int> ticks;
  int steps = 0;
  for (; runs::deadline(place.state).value_or(MonoTime::max()) <= place.now.mono; ++steps) {
    auto next = runs::step(std::move(place.state), runs::event::Tick{}, place.now);
    place.state = std::move(next.state);
    CHECK(next.changed.size() <= runs::kTickedNodes);
    REQUIRE(!next.changed.empty());
    for (const std::string& name : next.changed) ++ticks[name];
  }
  CHECK(ticks.size() == kRuns);
  CHECK(std::ranges::all_of(ticks, [](const auto& each) { return each.second == 1; }));
  CHECK(steps >= kRuns / static_cast<int>(runs::kTickedNodes));
  CHECK(place.state.due.size() == place.state.due_at.size());
}

TEST_CASE("Runs: a message changes its own run, however many there are") {
  Place place;
  for (int i = 0; i < 100; ++i)
    place.joins("job" + std::to_string(i), "node" + std::to_string(i), 2);
  auto next = runs::step(
      std::move(place.state),
      runs::event::Arrived{{.run = "job7", .node = "node7", .request = request::Heartbeat{}}},
      place.now);
  CHECK(next.changed == std::vector<std::string>{"job7"});
}

TEST_CASE("Runs: of thousands of runs the nearest by name are named beside one that waits") {
  Place place;
  for (int i = 0; i < 1000; ++i)
    place.joins("job" + std::to_string(1000 + i), "node" + std::to_string(i), 3);
  place.joins("run-1", "a", 2);
  place.joins("run-2", "b", 2);
  place.joins("a", "c", 2);  // far away
  std::string said;
  for (Duration passes : {1000ms, 1500ms}) {
    place.now.mono += passes;
    while (runs::deadline(place.state).value_or(MonoTime::max()) <= place.now.mono)
      said += place.on(runs::event::Tick{});
  }
  CHECK(said.find("a: tell, waiting for nodes: 1 of 2 joined (a), 598 s left for 2 to come; also "
                  "waiting here: run 'run-2' (1 node)") != std::string::npos);
}

TEST_CASE("Runs: what the nodes say of themselves is bounded") {
  Place place;
  request::Join large = Place::join_of("large", 60'000);
  large.died.resize(kMaxDied);
  for (Died& died : large.died)
    died.after.resize(kMaxUnsettled, {.id = {.by = std::string(200, 'b')}});
  const std::size_t most = kMaxSaidBytesOfAll / bytes_of(large) + 1;
  auto outcome = [&](const std::string& node, const request::Join& join) {
    return place.says("job", node, join).find("as much of themselves as is kept") ==
           std::string::npos;
  };
  CHECK(outcome("own", Place::join_of("own", 60'000)));
  std::size_t count = 0;
  while (count < most && outcome("ghost" + std::to_string(count), large)) ++count;
  CHECK(count < most);
  CHECK(count > most / 2);
  place.now.mono += 2s;
  CHECK_FALSE(outcome("one more", large));
  request::Resume back{.join = Place::join_of("own", 60'000)};
  CHECK(place.says("job", "own", back).find("kept") == std::string::npos);
  // Room is there again when those have gone.
  for (std::size_t i = 0; i < count; ++i)
    place.says("job", "ghost" + std::to_string(i), request::Left{.why = "went"});
  place.now.mono += 2s;
  CHECK(outcome("one more", large));
}

TEST_CASE("Runs: who says what cannot be read hears of it") {
  Place place;
  runs::event::Unreadable unreadable{{.run = "job", .node = "a.0"}, "field 'pid' is out of range"};
  CHECK(place.on(unreadable) ==
        "a.0: refused, what it says cannot be read: field 'pid' is out of range");
  CHECK(place.state.runs.empty());
  place.now.mono += 61s;
  CHECK(place.on(runs::event::Tick{}) == "forget a.0");
}

TEST_CASE("Runs: a start that has lost all its nodes remembers what silence has cost it") {
  Place place;
  CHECK(place.joins("job", "a.0") == "a.0: round");
  std::string uuid = place.state.runs.at("job").run_uuid;
  for (int i = 0; i < 6; ++i) place.ticks_after(1s);
  REQUIRE(place.state.runs.empty());
  REQUIRE(place.state.pasts.size() == 1);
  request::Join join = Place::join_of("a");
  SUBCASE("for its nodes") {
    join.run_uuid = uuid;
    join.next_round = 1;
    place.says("job", "a.1", join);
    CHECK(place.state.runs.at("job").lost_rounds == 1);
    CHECK(place.state.runs.at("job").churn.losses.size() == 1);
  }
  SUBCASE("and not for another start") {
    place.says("job", "a.1", join);
    CHECK(place.state.runs.at("job").lost_rounds == 0);
  }
}

TEST_CASE("Runs: a node of the run is not ended by a letter that cannot be read") {
  Place place;
  CHECK(place.joins("job", "a.0") == "a.0: round");
  runs::event::Unreadable unreadable{{.run = "job", .node = "a.0"}, "field 'pid' is out of range"};
  CHECK(place.on(unreadable) == "");
  unreadable.sender.run = "other";
  CHECK(place.on(unreadable).find("a.0: refused, what it says cannot be read") == 0);
}
