// SPDX-License-Identifier: BSD-3-Clause
//
// What is written is read again; what strangers write is refused in a sentence, or read as one of
// the messages, and never anything else.
#include "rendezvous/decide/messages.h"

#include <doctest/doctest.h>

#include <random>

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

Failure sample_failure() {
  return {.rank = 5,
          .local_rank = 1,
          .pid = 4711,
          .node = "node7",
          .status = {.signal = 11, .core_dumped = true},
          .message = "ValueError: \"boom\"\n",
          .log_path = "/tmp/logs/0",
          .restart_count = 2,
          .at = WallTime(std::chrono::milliseconds(1'763'733'600'123)),
          .traceback = "Traceback\nValueError\n"};
}

Failure suspected_failure() {
  Failure failure = sample_failure();
  failure.waited_in = "all_reduce";
  failure.suspects = {{.rank = 1,
                       .pid = 31,
                       .node = "node2",
                       .has_come = false,
                       .doing = "sleeps in load (data.py:40)"},
                      {.rank = 9}};
  failure.suspect_count = 12;
  failure.also_waited = 3;
  failure.hung_for = std::chrono::milliseconds(61'234);
  failure.ended_before = {{.first = 8, .count = 8}};
  return failure;
}

std::vector<Message> messages() {
  request::Join join{.host = "node1",
                     .address = "fe80::1",
                     .pid = 12,
                     .participant = {.local_world_size = 8, .role = "trainer"},
                     .settings = {.min_nodes = 2, .max_nodes = 4, .master = Endpoint{"m", 1}},
                     .store_port = 65535,
                     .node_rank = 3,
                     .previous_rank = 0,
                     .restart_count = 1,
                     .next_round = 9,
                     .run_uuid = "node0-1.0",
                     .previous_nodes = 4,
                     .is_back = true,
                     .was_in_round = true,
                     .preflight_failure = "no log folder",
                     .addresses = {"10.0.0.7", "fd00::7"}};
  std::vector<Message> all;
  for (const Request& request : std::initializer_list<Request>{
           join,
           request::Join{.host = "h", .address = "a"},
           request::Ready{7, 1000},
           request::Failed{7, sample_failure(), true},
           request::Failed{
               7, suspected_failure(), false,
               TimedOutWait{
                   .in = "all_reduce", .is_idle = true, .has_lost_peer = true, .missing = {1, 5}}},
           request::Found{7,
                          {.workers = {{.rank = 1,
                                      .pid = 31,
                                      .place = Whereabouts::Elsewhere,
                                      .doing = "sleeps in load (data.py:40)"},
                                       {.rank = 2, .pid = 32}},
                          .unconnected = {{.rank = 1, .pid = 31}}}},
           request::Succeeded{7},
           request::Leaving{"was stopped by SIGTERM", 15, std::chrono::seconds(30)},
           request::Left{},
           request::Left{.why = "was killed", .round = 7},
           request::Left{.knows = {.number = 7, .by = "node0-1@2"}, .nodes = 4},
           request::Left{.knows = {.number = 7, .by = "node0-1@2"},
           .nodes = 4,
           .after = {{.id = {.number = 6, .by = "a@1"}, .nodes = 5, .was_in = true}}},
           request::Join{.host = "h",
           .address = "a",
           .policy = {.quorum = 2},
           .stand_in_port = 7,
           .is_host = true,
           .round_by = "node0-1@2",
           .seen_age = std::chrono::seconds(1),
           .seen_of = "node0-1@2"},
           request::Join{.host = "h",
           .address = "a",
           .died = {{.name = "h-2",
                   .knows = {.number = 7, .by = "node0-1@2"},
                   .nodes = 4,
                   .after = {{.id = {.number = 6, .by = "a@1"}, .nodes = 5, .was_in = true}},
                   .seen_of = "a@1",
                   .left = "was stopped by SIGTERM"},
                    {.name = "h-3", .knows = {.number = 6, .by = "a@1"}, .nodes = 1}}},
           request::Join{.host = "h",
           .address = "a",
           .settings = {.endpoints = {{"d1", 1}, {"d2", 2}}},
           .endpoint = 1,
           .unreached = 1},
           request::Join{.host = "h", .address = "a", .gives_bundle = true, .says_up = true},
           request::Left{.why = "was stopped by SIGTERM", .loss = LossKind::Left},
           request::Resume{.join = {.host = "h", .address = "a"},
           .workers = Workers::Stopping,
           .why = "node8 was cut off",
           .loss = LossKind::CutOff},
           request::Heartbeat{.up = 7},
           request::Join{.host = "h", .address = "a", .looks_for = "h-1.0"},
           request::Heartbeat{.pulse = 5, .round = 7, .heard = 3},
           request::Heartbeat{.died = std::vector<Died>{}},
           request::Heartbeat{
               .died = {{{.name = "node0-7", .knows = {.number = 3, .by = "a@1"}, .nodes = 4}}}},
           request::Knock{.from = {"node2", 7},
           .to = {"node0", 1},
           .has_round = true,
           .formed = 5,
           .order = 2},
           request::Knock{.from = {"d2", 2},
           .to = {"d1", 1},
           .order = 1,
           .run_uuid = "h-1.0",
           .is_over = true,
           .begins = true},
           request::Knock{
               .from = {"node2", 7}, .to = {"node0", 1}, .run_uuid = "h-1.0", .asks = true},
           request::Knock{.from = {"d2", 2},
           .to = {"d1", 1},
           .run_uuid = "h-1.0",
           .lacks = {.number = 6, .by = "d1@0"},
           .here = 2,
           .stuck = 1},
           request::Resume{.join = join},
           request::Resume{.join = join,
           .workers = Workers::Stopping,
           .failed = request::Failed{7, sample_failure(), true}},
           request::Resume{.join = join, .workers = Workers::Succeeded},
           request::Resume{.join = join,
           .workers = Workers::Stopping,
           .failed = {},
           .leaving = request::Leaving{"was stopped by SIGTERM", 15, std::chrono::seconds(30)},
           .why = "node2 was lost (it was silent)"},
           request::Heartbeat{},
           request::Lost{}}) {
    all.push_back({.run = "job", .node = "node1-12.0", .request = request, .connection = 3});
  }
  return all;
}

std::vector<Command> commands() {
  return {
      command::Round{.number = 3,
                     .run_uuid = "node0-1.0",
                     .ranks = {.group_rank = 1, .group_world_size = 2},
                     .master = {"m", 9}},
      command::Inspect{.round = 3,
                       .in = "all_reduce",
                       .is_idle = true,
                       .has_lost_peer = true,
                       .why = "rank 0 exited with code 1"},
      command::TakeStacks{.round = 3, .number = 7},
      command::TakeStacks{.round = 3, .number = 8, .rank = 5},
      command::TakeBundle{.number = 3, .most_bytes = 1 << 20, .piece = 2},
      command::End{.exit_code = 1, .failures = {suspected_failure()}},
      command::Round{.number = 3,
                     .master = {"m", 9},
                     .by = "node0-1@2",
                     .stand_ins = {{.name = "node1-2", .at = {"node1", 7}}}},
      command::Round{
          .number = 4,
          .master = {"m", 9},
          .by = "node0-1@2",
          .after = {{.id = {.number = 3, .by = "node1-2@1"}, .nodes = 4},
                    {.id = {.number = 3, .by = "node0-1@2"}, .nodes = 3, .was_in = true}}},
      command::Moved{.to = {"node1", 7}, .why = "the run has another host"},
      command::Moved{.to = {"node0", 1}, .why = "x", .is_other_start = true},
      command::Moved{.to = {"node0", 1}, .why = "x", .is_unreached = true},
      command::Settled{{.number = 4, .by = "node0-1@2"}},
      command::StandIns{{{.name = "node1-2", .at = {"node1", 7}}}},
      command::StandIns{{{.name = "node1-2", .at = {"node1", 7}}}, "node0-1.0"},
      command::StandIns{},
      command::Round{.number = 3,
                     .ranks = {.group_world_size = 2},
                     .master = {"m", 9},
                     .peers = std::vector<std::string>{"10.0.0.7", "fd00::7"}},
      command::Round{.master = {"m", 9}, .peers = std::vector<std::string>{}},
      command::Stop{.round = 3, .cause = RoundEndCause::WorkerFailed, .failure = sample_failure()},
      command::Stop{.round = 3, .cause = RoundEndCause::NodeJoined, .why = "node8 has joined"},
      command::Stop{
          .round = 3, .loss = LossKind::Left, .why = "node8 was stopped by SIGUSR2", .signal = 12},
      command::Stop{.round = 3, .loss = LossKind::Rendezvous, .why = "x"},
      command::Waiting{"node8 was lost"},
      command::End{.exit_code = 80, .why = "node0 was stopped by SIGTERM", .signal = 15},
      command::End{.slowest = "rank 7 (node2) was the slowest: behind for 20 s of 40 s"},
      command::End{.exit_code = 9, .failures = {sample_failure(), sample_failure()}},
      command::Refuse{"no"},
      command::Standby{"enough"},
      command::Standby{.why = "its host ends", .is_outside = true},
      command::Info{"waiting"},
      command::KeepAlive{.keep_alive_interval = std::chrono::milliseconds(200),
                         .keep_alive_max_attempt = 5,
                         .lease_grace = std::chrono::seconds(20),
                         .text = "as the first node"},
      command::Continue{},
      command::Dropped{"silent"}};
}

std::string problem(std::string_view text) {
  auto message = decode_message(text);
  return message ? "read" : to_string(message.error());
}
bool is_refused(std::string_view text, std::string_view reason) {
  return problem(text).find(reason) != std::string::npos;
}

}  // namespace

TEST_CASE("Messages: what is written is read again") {
  for (const Message& message : messages()) {
    std::string text = encode(message);
    CAPTURE(text);
    auto read = decode_message(text);
    REQUIRE(read.has_value());
    CHECK(read->request.index() == message.request.index());
    CHECK(encode(*read) == text);
  }
  for (const Command& command : commands()) {
    std::string text = encode(command);
    CAPTURE(text);
    auto read = decode_command(text);
    REQUIRE(read.has_value());
    CHECK(read->index() == command.index());
    CHECK(encode(*read) == text);
  }
}

TEST_CASE("Messages: what is no message is refused with what is wrong") {
  std::string head = R"({"v":1,"run":"r","node":"n","type":)";
  CHECK(is_refused("", "no JSON object"));
  CHECK(is_refused("[]", "no JSON object"));
  CHECK(is_refused("{", "no JSON object"));
  CHECK(is_refused("{}", "'v'"));
  CHECK(is_refused(R"({"v":1})", "'run'"));
  CHECK(is_refused(R"({"v":1,"run":"","node":"n","type":"heartbeat"})", "'run' is"));
  CHECK(is_refused(R"({"v":"1","run":"r","node":"n","type":"heartbeat"})", "'v'"));
  CHECK(is_refused(head + R"("nonsense"})", "none of this protocol's"));
  CHECK(is_refused(head + R"("ready"})", "'round'"));
  CHECK(is_refused(head + R"("ready","round":-1,"store_port":1})", "out of range"));
  CHECK(is_refused(head + R"("ready","round":1e300,"store_port":1})", "no whole number"));
  CHECK(is_refused(head + R"("ready","round":18446744073709551615,"store_port":65536})",
                   "out of range"));
  CHECK(is_refused(head + R"("ready","round":99999999999999999999999,"store_port":1})", "'round'"));
  CHECK(is_refused(head + R"("heartbeat","x":)" + std::string(1 << 20, '1') + "}", "bytes"));
  CHECK(is_refused(std::string(60000, '['), "no JSON object"));
  CHECK(is_refused(head + "\"be\xff\"}", "no JSON object"));
  CHECK(is_refused(
      R"({"v":1,"run":")" + std::string(300, 'r') + R"(","node":"n","type":"heartbeat"})", "256"));
  CHECK(problem(head + R"("heartbeat","unknown":[1,2]})") == "read");
}

TEST_CASE("Messages: a join is checked field by field") {
  std::string text = encode(messages()[0]);
  auto with = [&](const std::string& before, const std::string& after) {
    std::string changed = text;
    changed.replace(changed.find(before), before.size(), after);
    return problem(changed);
  };
  CHECK(with("\"workers\":8", "\"workers\":0").find("'workers'") != std::string::npos);
  CHECK(with("\"workers\":8", "\"workers\":65537").find("'workers'") != std::string::npos);
  CHECK(with("\"node_rank\":3", "\"node_rank\":-1").find("'node_rank'") != std::string::npos);
  CHECK(with("\"min_nodes\":2", "\"min_nodes\":5").find("more than max_nodes") !=
        std::string::npos);
  CHECK(with("\"heartbeat_ms\":1000", "\"heartbeat_ms\":0").find("'heartbeat_ms'") !=
        std::string::npos);
  CHECK(with("\"store_port\":65535", "\"store_port\":65536").find("'store_port'") !=
        std::string::npos);
  CHECK(with("\"host\":\"node1\"", "\"host\":\"\"").find("'host'") != std::string::npos);
}

TEST_CASE("Messages: an agent that does not say which signal stopped it is understood") {
  auto message =
      decode_message(R"({"v":1,"run":"r","node":"n","type":"leaving","why":"left","grace_ms":0})");
  REQUIRE(message.has_value());
  CHECK(std::get<request::Leaving>(message->request).signal == 0);
  auto stop = decode_command(
      R"({"v":1,"type":"stop","round":1,"cause":"lost","why":"a was stopped by SIGTERM",)"
      R"("restart_count":0,"max_restarts":0})");
  REQUIRE(stop.has_value());
  CHECK(std::get<command::Stop>(*stop).signal == 0);
  auto end = decode_command(
      R"({"v":1,"type":"end","exit_code":80,"why":"w","failures":[],"restart_count":0,)"
      R"("max_restarts":0})");
  REQUIRE(end.has_value());
  CHECK(std::get<command::End>(*end).signal == 0);
}

TEST_CASE("Messages: a kind of loss that is not said, or not known here, is another one") {
  auto loss = [](const std::string& field) {
    auto stop = decode_command(R"({"v":1,"type":"stop","round":1,"cause":"lost","why":"a left",)" +
                               field + R"("restart_count":0,"max_restarts":0})");
    REQUIRE(stop.has_value());
    return std::get<command::Stop>(*stop).loss;
  };
  CHECK(loss("") == LossKind::Other);
  CHECK(loss(R"("loss":"swallowed",)") == LossKind::Other);
  CHECK(loss(R"("loss":"lost",)") == LossKind::Lost);
  CHECK(loss(R"("loss":"cut_off",)") == LossKind::CutOff);
}

TEST_CASE("Messages: numbers out of range are refused, not clamped") {
  std::string head = R"({"v":1,"run":"r","node":"n","type":)";
  auto refuses = [&](const std::string& rest, const std::string& field) {
    return is_refused(head + rest, "'" + field + "' is out of range");
  };
  // A round beyond 2^53 is no number that a next one could follow.
  CHECK(refuses(R"("ready","round":9223372036854775807,"store_port":1})", "round"));
  CHECK(refuses(R"("succeeded","round":9007199254740993})", "round"));
  CHECK(refuses(R"("left","why":"","round":-1})", "round"));
  CHECK(refuses(R"("leaving","why":"","grace_ms":-1})", "grace_ms"));
  CHECK(refuses(R"("leaving","why":"","grace_ms":1000000000001})", "grace_ms"));
  CHECK(refuses(R"("heartbeat","connection":-1})", "connection"));
  std::string join = encode(messages()[0]);
  auto with = [&](const std::string& before, const std::string& after) {
    std::string changed = join;
    changed.replace(changed.find(before), before.size(), after);
    return problem(changed);
  };
  CHECK(with("\"next_round\":9", "\"next_round\":9223372036854775807")
            .find("'next_round' is out of range") != std::string::npos);
  CHECK(with("\"lease_grace_ms\":0", "\"lease_grace_ms\":-5")
            .find("'lease_grace_ms' is out of range") != std::string::npos);
}

TEST_CASE("Messages: a resume that says nothing of its workers is refused") {
  Message resume{
      .run = "r", .node = "n", .request = request::Resume{.join = {.host = "h", .address = "a"}}};
  std::string text = encode(resume);
  REQUIRE(text.find("\"state\":\"down\"") != std::string::npos);
  text.replace(text.find("\"down\""), 6, "\"away\"");
  CHECK(is_refused(text, "'state'"));
}

TEST_CASE("Messages: a knock that names a round says how many nodes there are") {
  const std::string head =
      R"({"v":1,"run":"r","node":"n","type":"knock","from":{"host":"a","port":1},)"
      R"("to":{"host":"b","port":1},"has_round":false,"formed":0,"order":0)";
  REQUIRE(problem(head + "}") == "read");
  CHECK(problem(head + R"(,"lacks_by":"d@0","lacks_round":3,"here":2})") == "read");
  CHECK(is_refused(head + R"(,"lacks_by":"d@0","here":2})", "'lacks_round'"));
  CHECK(is_refused(head + R"(,"lacks_by":"d@0","lacks_round":3})", "'here'"));
  CHECK(is_refused(head + R"(,"lacks_by":"","lacks_round":3,"here":2})", "'lacks_by'"));
  CHECK(is_refused(head + R"(,"lacks_by":"d@0","lacks_round":3,"here":-1})", "'here'"));
}

TEST_CASE("Messages: a silence limit of any factors is no overflow") {
  Policy policy{.keep_alive_interval = std::chrono::milliseconds(1'000'000'000),
                .keep_alive_max_attempt = 1'000'000};
  CHECK(policy.silence_limit() == Policy::kLongest);
  CHECK(policy.lease() >= Policy::kLongest);
  policy = {.keep_alive_interval = std::chrono::seconds(1), .keep_alive_max_attempt = 5};
  CHECK(policy.silence_limit() == std::chrono::seconds(5));
  policy.lease_grace = std::chrono::seconds(20);
  CHECK(policy.lease() == std::chrono::seconds(25));
}

TEST_CASE("Messages: of another version only the sender is read") {
  auto message = decode_message(R"({"v":2,"run":"r","node":"n","type":"from the future"})");
  REQUIRE(message.has_value());
  REQUIRE(std::holds_alternative<request::Foreign>(message->request));
  CHECK(std::get<request::Foreign>(message->request).version == 2);
  CHECK(decode_command(R"({"v":2,"type":"info","text":"x"})").has_error());
}

TEST_CASE("Messages: a worker's last words always fit, whatever they are made of") {
  for (std::string character : {"x", "\x01", "\xff", "\"", "\xe2\x82\xac"}) {
    std::string words;
    while (words.size() < 100'000) words += character;
    Failure failure = sample_failure();
    failure.message = words;
    failure.log_path = std::string(4096, '\x02');
    failure.traceback = words;
    CHECK(
        decode_message(encode(Message{"r", "n", request::Failed{1, failure, false}})).has_value());
    CHECK(
        decode_command(encode(Command(command::Stop{.round = 1, .failure = failure}))).has_value());
    command::End end{.exit_code = 1, .failures = {failure}};
    Failure old = failure;
    old.message.resize(200);
    forget_output(old);
    for (int i = 0; i < 31; ++i) end.failures.insert(end.failures.begin(), old);
    CHECK(decode_command(encode(Command(end))).has_value());
  }
}

TEST_CASE("Messages: of a text that is too long the end is kept, in whole characters") {
  Failure failure = sample_failure();
  failure.message.clear();
  while (failure.message.size() < 100'000) failure.message += "\xe2\x82\xac";
  for (int shift = 0; shift < 3; ++shift) {
    auto message = decode_message(encode(Message{"r", "n", request::Failed{1, failure, false}}));
    REQUIRE(message.has_value());
    std::string read = std::get<request::Failed>(message->request).failure.message;
    CHECK(read.starts_with("...\xe2\x82\xac"));
    failure.message += "x";
  }
}

TEST_CASE("Messages: a time by a clock that is far off is left out") {
  for (auto at : {std::chrono::hours(-1), std::chrono::hours(24 * 365 * 200)}) {
    Failure failure = sample_failure();
    failure.at = WallTime(at);
    auto message = decode_message(encode(Message{"r", "n", request::Failed{1, failure, false}}));
    REQUIRE(message.has_value());
    CHECK(std::get<request::Failed>(message->request).failure.at == WallTime{});
  }
}

TEST_CASE("Messages: bytes turned and cut at random are refused or read, and no more") {
  std::mt19937 random(5);
  std::vector<std::string> seeds;
  for (const Message& message : messages()) seeds.push_back(encode(message));
  for (const Command& command : commands()) seeds.push_back(encode(command));
  std::size_t read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = seeds[random() % seeds.size()];
    for (unsigned changes = 1 + random() % 3; changes > 0 && !text.empty(); --changes) {
      std::size_t place = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[place] = static_cast<char>(random());
          break;
        case 1:
          text.erase(place, random() % 8);
          break;
        case 2:
          text.insert(place, seeds[random() % seeds.size()].substr(0, random() % 40));
          break;
        default:
          text[place] = "0123456789-{}[]\",:"[random() % 18];
      }
    }
    if (auto message = decode_message(text)) {
      ++read;
      CHECK(decode_message(encode(*message)).has_value() !=
            std::holds_alternative<request::Foreign>(message->request));
    }
    if (auto command = decode_command(text)) {
      ++read;
      CHECK(decode_command(encode(*command)).has_value());
    }
  }
  CHECK(read > 100);
}

TEST_CASE("Messages: what a terminal would obey is quoted, and lines stay where they are wanted") {
  std::string evil = "x\x1b[2J\nddprun 12:00:00.000 error   forged";
  request::Join join{.host = evil, .address = evil, .preflight_failure = evil};
  auto read = decode_message(encode(Message{.run = evil, .node = evil, .request = join}));
  REQUIRE(read.has_value());
  std::string quoted = "x\\x1b[2J\\x0addprun 12:00:00.000 error   forged";
  CHECK(read->run == quoted);
  CHECK(std::get<request::Join>(read->request).host == quoted);
  CHECK(std::get<request::Join>(read->request).preflight_failure == quoted);
  // What is kept of a node's words is not long.
  join = {.host = "n", .address = "n", .preflight_failure = std::string(50'000, 'x')};
  read = decode_message(encode(Message{.run = "r", .node = "n.0", .request = join}));
  REQUIRE(read.has_value());
  CHECK(std::get<request::Join>(read->request).preflight_failure.size() == 4096);
  Failure failure = sample_failure();
  failure.node = failure.log_path = failure.message = failure.traceback = evil;
  auto told = decode_command(encode(Command{command::End{.why = evil, .failures = {failure}}}));
  REQUIRE(told.has_value());
  const auto& end = std::get<command::End>(*told);
  CHECK(end.why == quoted);
  CHECK(end.failures[0].node == quoted);
  CHECK(end.failures[0].log_path == quoted);
  CHECK(end.failures[0].traceback == "x\\x1b[2J\nddprun 12:00:00.000 error   forged");
  CHECK(end.failures[0].message == end.failures[0].traceback);
  CHECK(problem(R"({"v":1,"run":"r","node":"n","type":"\u001b[2J\nddprun error"})")
            .find("'\\x1b[2J\\x0addprun error'") != std::string::npos);
}

TEST_CASE("Messages: the next round leaves room for those that follow") {
  auto said = [](std::uint64_t next_round) {
    request::Join join{.host = "h", .address = "a"};
    join.next_round = next_round;
    return encode(Message{"r", "n", join, 7});
  };
  std::uint64_t most = std::uint64_t{1} << 52U;
  CHECK(decode_message(said(most)).has_value());
  CHECK_FALSE(decode_message(said(most + 1)).has_value());
  auto sender = decode_sender(said(most + 1));
  REQUIRE(sender.has_value());
  CHECK(sender->run == "r");
  CHECK(sender->node == "n");
  CHECK(sender->connection == 7);
  CHECK_FALSE(decode_sender(R"({"v":1,"run":"r","type":"join"})").has_value());
}
