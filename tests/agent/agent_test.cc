// SPDX-License-Identifier: BSD-3-Clause
//
// The agent's shell with workers and a rendezvous that are not there: in which order it signals,
// sweeps, reports and leaves.
#include "agent/agent.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <boost/asio/co_spawn.hpp>
#include <future>

#include "store/clock.h"
#include "store/event.h"
#include "tests/support/event_loop.h"
#include "tests/support/fake_workers.h"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

using Journal = std::vector<std::string>;

class FakeRendezvous : public rendezvous::Handler {
 public:
  explicit FakeRendezvous(Journal& journal) : journal_(journal) {}

  void say(const rendezvous::Notice& notice) { listener_(notice); }
  // The run is over, by the failures that were reported.
  void end(int exit_code) {
    say(rendezvous::command::End{.exit_code = exit_code, .failures = failures});
  }
  std::vector<rendezvous::Failure> failures;

  void listen(Listener listener) override { listener_ = std::move(listener); }
  void join() override { journal_.push_back("join"); }
  void workers_started(const rendezvous::Round& /*round*/,
                       std::vector<rendezvous::StartedWorker> workers) override {
    journal_.push_back(fmt::format("{} run", workers.size()));
  }
  void report_failure(rendezvous::Failure failure, bool is_final,
                      const std::optional<rendezvous::TimedOutWait>& wait) override {
    if (wait) journal_.push_back("its wait was over");
    journal_.push_back(fmt::format("report {}failure of rank {}: {}", is_final ? "final " : "",
                                   failure.rank, failure.status.shell_code()));
    failures.push_back(std::move(failure));
  }
  void report_findings(rendezvous::Findings findings) override {
    journal_.push_back(fmt::format("findings on {} workers", findings.workers.size()));
  }
  void report_success() override { journal_.push_back("report success"); }
  void leave(std::string why, int /*signal*/) override {
    is_leaving_ = true;
    journal_.push_back("leave: " + why);
  }
  void workers_gone() override {
    if (is_leaving_) journal_.push_back("workers gone");
  }
  boost::asio::awaitable<void> finish() override {
    journal_.push_back("left");
    if (until_finished) co_await until_finished();
  }
  std::function<boost::asio::awaitable<void>()> until_finished;
  void close() override { journal_.push_back("close"); }

 private:
  Journal& journal_;
  Listener listener_;
  bool is_leaving_ = false;
};

// Of the log only the closing lines count here, and what is said after a success.
class ClosingLines : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  ClosingLines(Journal& journal, int& stops_told) : journal_(journal), stops_told_(stops_told) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string text(message.payload.begin(), message.payload.end());
    if (text.find("FAILED") != std::string::npos) journal_.push_back("closing report");
    if (text.find("had all succeeded") != std::string::npos) journal_.push_back("all succeeded");
    if (text.find("after 1 restart") != std::string::npos) journal_.push_back("say, " + text);
    if (text.find("have succeeded") != std::string::npos) journal_.push_back("say, " + text);
    if (text.starts_with("received SIGTERM; ")) ++stops_told_;
  }
  void flush_() override {}
  Journal& journal_;
  int& stops_told_;
};

// An agent with two workers.
struct OneNode {
  boost::asio::io_context loop;
  Journal journal;
  int stops_told = 0;  // lines "received SIGTERM; ..."
  test::FakeWorkers workers{journal};
  FakeRendezvous rendezvous{journal};
  process::Reaper reaper{loop.get_executor()};
  process::IoThread disk{loop.get_executor(), [](const process::IoThread::Stall&) {}};
  Duration later{};  // how far the agent's clock is ahead
  store::Event sweep_may_end{loop.get_executor()};
  bool is_sweep_slow = false;
  store::Event may_finish{loop.get_executor()};
  bool is_finish_slow = false;  // it hosts for others
  std::optional<int> exit_code;
  std::unique_ptr<Agent> agent;

  explicit OneNode(Duration grace = 1h, Duration kill_limit = 1h) {
    AgentConfig config;
    config.core = {.local_world_size = 2, .stop_grace = grace, .kill_limit = kill_limit};
    config.workers.local_world_size = 2;
    config.workers.hostname = "node1";
    config.workers.command = {"train"};
    config.stop_signals = {SIGTERM};
    config.forward_signals = {SIGUSR1};
    AgentParts parts{.rendezvous = rendezvous,
                     .workers = workers,
                     .reaper = reaper,
                     .disk = disk,
                     .logger = std::make_shared<spdlog::logger>(
                         "", std::make_shared<ClosingLines>(journal, stops_told)),
                     .sweep = [this](const MonoTime&, process::SweepScope) { return sweep(); },
                     .clock =
                         [this] {
                           Now now = read_clocks();
                           now.mono += later;
                           return now;
                         }};
    rendezvous.until_finished = [this]() -> boost::asio::awaitable<void> {
      while (is_finish_slow) co_await may_finish.wait();
    };
    agent = std::make_unique<Agent>(loop.get_executor(), std::move(config), std::move(parts));
    boost::asio::co_spawn(loop, agent->run(),
                          [this](std::exception_ptr, int code) { exit_code = code; });
  }
  // Whatever a test has asked for, the agent ends before its parts do.
  ~OneNode() {
    if (exit_code) return;
    rendezvous.say(rendezvous::notice::Failed{"the test is over"});
    while (!workers.present.empty()) workers.end(workers.present.front().local_rank, {.signal = 9});
    is_sweep_slow = false;
    sweep_may_end.notify();
    is_finish_slow = false;
    may_finish.notify();
    CHECK(test::run_until(loop, [this] { return exit_code.has_value(); }));
  }

  boost::asio::awaitable<process::SweepResult> sweep() {
    journal.push_back("sweep");
    while (is_sweep_slow) co_await sweep_may_end.wait();
    co_return process::SweepResult{};
  }

  // What has been done since this was asked last, once the loop has nothing more to do.
  std::string done() {
    loop.restart();
    loop.poll();
    std::string text = fmt::format("{}", fmt::join(std::exchange(journal, {}), ", "));
    return text.empty() ? "nothing" : text;
  }
  std::string done_by_the_end() {
    CHECK(test::run_until(loop, [this] { return exit_code.has_value(); }));
    return done();
  }
  std::string start_round(std::uint64_t number = 0, int restart_count = 0) {
    rendezvous::Round round;
    round.number = number;
    round.restart_count = restart_count;
    round.ranks.world_size = 2;
    rendezvous.say(round);
    workers.come_up(2);
    return done();
  }
  std::string signal(int signal) {
    ::raise(signal);
    return done();
  }
  std::string end(int local_rank, process::ExitStatus status) {
    workers.end(local_rank, status);
    return done();
  }
  std::string fail_waiting(int local_rank) {
    workers.end(local_rank, {.exit_code = 1}, {"RuntimeError: Timed out waiting 3000ms for recv"});
    return done();
  }
};

struct Running : OneNode {
  explicit Running(Duration grace = 1h, Duration kill_limit = 1h) : OneNode(grace, kill_limit) {
    CHECK(done() == "join");
    CHECK(start_round() == "start attempt 0, 2 run");
  }
};

}  // namespace

TEST_SUITE("agent/agent") {
  TEST_CASE_FIXTURE(Running, "success: sweep, report, and leave when the run is over") {
    CHECK(end(0, {}) == "nothing");
    CHECK(end(1, {}) == "sweep, finish output, report success");
    rendezvous.end(0);
    CHECK(done_by_the_end() == "left, close");
    CHECK(exit_code == 0);
  }

  TEST_CASE_FIXTURE(Running, "a node that has succeeded and is cut off stops nothing") {
    end(0, {});
    end(1, {});
    rendezvous.say(rendezvous::command::Stop{.round = 0, .why = "the endpoint was silent"});
    CHECK(done() ==
          "say, the endpoint was silent; the workers of this node have succeeded, and start again "
          "only if the others begin another round  round=0 attempt=0, join");
  }

  TEST_CASE_FIXTURE(Running, "what it knows of the run when it cannot come back") {
    rendezvous::command::Stop stop{.round = 0, .why = "the endpoint was silent"};
    bool has_failed = false;
    SUBCASE("its workers had succeeded") {}
    SUBCASE("but one of another node's had not") {
      has_failed = true;
      stop.cause = rendezvous::RoundEndCause::WorkerFailed;
      stop.failure = rendezvous::Failure{.rank = 7, .status = {.exit_code = 9}};
    }
    end(0, {});
    end(1, {});
    rendezvous.say(stop);
    done();
    rendezvous.say(rendezvous::notice::Failed{"nobody is there"});
    std::string said = done_by_the_end();
    CHECK(said.find("closing report") != std::string::npos);
    CHECK((said.find("all succeeded") != std::string::npos) == !has_failed);
  }

  TEST_CASE_FIXTURE(Running,
                    "a cause that the host at the end does not know is told all the same") {
    end(0, {.signal = SIGTERM});
    end(1, {.signal = SIGTERM});
    done();
    rendezvous.say(rendezvous::command::Stop{
        .round = 0,
        .cause = rendezvous::RoundEndCause::WorkerFailed,
        .failure = rendezvous::Failure{.rank = 7, .pid = 9, .status = {.exit_code = 9}},
        .restart_count = 1,
        .max_restarts = 3});
    done();
    start_round(1, 1);
    end(0, {});
    end(1, {});
    std::string by = "rank 7 exited with code 9";
    rendezvous::command::End over{.restart_count = 1};
    SUBCASE("it does not") {}
    SUBCASE("it does") {
      by = "rank 5 exited with code 5";
      over.failures.push_back({.rank = 5, .pid = 4, .status = {.exit_code = 5}});
    }
    rendezvous.say(over);
    CHECK(done_by_the_end().find("finished: 2 workers succeeded after 1 restart (" + by + ")") !=
          std::string::npos);
  }

  TEST_CASE_FIXTURE(Running, "one failure stops the others, and the next round starts afresh") {
    CHECK(end(1, {.exit_code = 9}) ==
          "report failure of rank 1: 9, SIGTERM to all, SIGCONT to all");
    CHECK(end(0, {.signal = SIGTERM}) == "sweep, finish output");
    rendezvous.say(rendezvous::command::Stop{.round = 0, .restart_count = 1, .max_restarts = 3});
    CHECK(done() == "join");
    CHECK(start_round(1, 1) == "start attempt 1, 2 run");
  }

  TEST_CASE_FIXTURE(Running,
                    "before the others of one that waited in vain are stopped, they are seen") {
    CHECK(fail_waiting(1) == "its wait was over, report failure of rank 1: 1");
    CHECK(test::run_until(loop, [this] { return !journal.empty(); }));
    CHECK(done() == "findings on 2 workers");  // with the one that has failed
    rendezvous.say(rendezvous::command::Stop{.round = 0, .restart_count = 1, .max_restarts = 3});
    CHECK(done() == "SIGTERM to all, SIGCONT to all");
  }

  TEST_CASE_FIXTURE(Running,
                    "the rendezvous asks for the same, and a signal does not wait for it") {
    rendezvous.say(rendezvous::command::Inspect{.round = 0, .in = "all_reduce"});
    CHECK(done() == "nothing");
    CHECK(signal(SIGTERM) == "leave: was stopped by SIGTERM, SIGTERM to all, SIGCONT to all");
  }

  TEST_CASE_FIXTURE(Running, "a stop from the rendezvous waits for the sweep before it joins") {
    is_sweep_slow = true;
    rendezvous.say(rendezvous::command::Stop{.round = 0});
    CHECK(done() == "SIGTERM to all, SIGCONT to all");
    end(0, {.signal = SIGTERM});
    CHECK(end(1, {.signal = SIGTERM}) == "sweep");
    is_sweep_slow = false;
    sweep_may_end.notify();
    CHECK(done() == "finish output, join");
  }

  TEST_CASE_FIXTURE(Running, "a signal: leave, signal, sweep, and left only after the sweep") {
    is_sweep_slow = true;
    CHECK(signal(SIGTERM) == "leave: was stopped by SIGTERM, SIGTERM to all, SIGCONT to all");
    CHECK(end(0, {.signal = SIGTERM}) == "nothing");
    CHECK(end(1, {.signal = SIGTERM}) == "sweep");
    is_sweep_slow = false;
    sweep_may_end.notify();
    CHECK(done_by_the_end() == "finish output, workers gone, left, close");
    CHECK(exit_code == 128 + SIGTERM);
    CHECK(agent->shutdown_signal() == SIGTERM);
  }

  TEST_CASE_FIXTURE(Running, "the others hear at once that no worker lives, also of a slow disk") {
    std::promise<void> thaw;
    disk.run("write a log file", [thawed = thaw.get_future().share()] { thawed.wait(); });
    signal(SIGTERM);
    end(0, {.signal = SIGTERM});
    CHECK(end(1, {.signal = SIGTERM}) == "sweep, finish output, workers gone");
    CHECK_FALSE(exit_code);
    thaw.set_value();
    CHECK(done_by_the_end() == "left, close");
  }

  TEST_CASE_FIXTURE(Running, "nor does the next attempt wait until the disk has taken the last") {
    std::promise<void> thaw;
    disk.run("write a log file", [thawed = thaw.get_future().share()] { thawed.wait(); });
    rendezvous.say(rendezvous::command::Stop{.round = 0});
    done();
    end(0, {.signal = SIGTERM});
    CHECK(end(1, {.signal = SIGTERM}) == "sweep, finish output, join");
    thaw.set_value();
  }

  TEST_CASE_FIXTURE(Running, "the second signal ends the grace, the same request twice does not") {
    signal(SIGTERM);
    CHECK(signal(SIGTERM) == "nothing");
    later = 1s;
    CHECK(signal(SIGTERM) == "kill all");
  }

  TEST_CASE("SIGKILL follows when the grace is over, and no sooner") {
    Running node(20ms);
    MonoTime began = mono_now();
    CHECK(node.signal(SIGTERM).ends_with("SIGTERM to all, SIGCONT to all"));
    CHECK(test::run_until(node.loop, [&] { return !node.journal.empty(); }));
    CHECK(mono_now() - began >= 20ms);
    CHECK(node.done() == "kill all");
    node.end(0, {.signal = SIGKILL});
    CHECK(node.end(1, {.signal = SIGKILL}).starts_with("sweep, finish output"));
  }

  TEST_CASE_FIXTURE(Running, "a signal that is passed on stops nothing") {
    CHECK(signal(SIGUSR1) == "SIGUSR1 to each");
    end(0, {});
    CHECK(end(1, {}) == "sweep, finish output, report success");
  }

  TEST_CASE_FIXTURE(Running, "the report comes after the sweep, and before the agent has left") {
    end(0, {.exit_code = 9});
    is_sweep_slow = true;
    CHECK(end(1, {.signal = SIGTERM}) == "sweep");
    rendezvous.end(9);
    CHECK(done() == "nothing");
    is_sweep_slow = false;
    sweep_may_end.notify();
    CHECK(done_by_the_end() == "finish output, closing report, left, close");
    CHECK(exit_code == 9);
  }

  TEST_CASE_FIXTURE(Running, "a run that ends without a reason given ends the agent all the same") {
    rendezvous.say(rendezvous::command::End{.exit_code = 9});
    CHECK(done() == "SIGTERM to all, SIGCONT to all");
    end(0, {.signal = SIGTERM});
    workers.end(1, {.signal = SIGTERM});
    CHECK(done_by_the_end().ends_with("left, close"));
    CHECK(exit_code == 9);
  }

  TEST_CASE_FIXTURE(Running, "a lease that ends shortens the grace") {
    rendezvous.say(rendezvous::notice::LeaseEnding{.kill_by = mono_now() + 50ms});
    rendezvous.say(rendezvous::command::Stop{.round = 0});
    CHECK(done() == "SIGTERM to all");
    CHECK(test::run_until(loop, [this] { return !journal.empty(); }));
    CHECK(done() == "kill all");
  }

  TEST_CASE_FIXTURE(OneNode, "a node that is refused starts nothing, and says why") {
    CHECK(done() == "join");
    rendezvous.say(rendezvous::notice::Failed{"this node was refused"});
    CHECK(done_by_the_end() == "closing report, left, close");
    CHECK(exit_code == 80);
  }

  TEST_CASE_FIXTURE(
      OneNode, "a signal before the first round ends the agent, which waits for no other node") {
    CHECK(done() == "join");
    ::raise(SIGTERM);
    CHECK(done_by_the_end() == "leave: was stopped by SIGTERM, workers gone, left, close");
    CHECK(exit_code == 128 + SIGTERM);
  }

  TEST_CASE_FIXTURE(OneNode,
                    "a signal to all nodes counts where the end by another node was faster") {
    CHECK(done() == "join");
    is_finish_slow = true;
    int other_signal = 0, expected = 80;
    SUBCASE("that was stopped by one") {
      other_signal = SIGTERM, expected = 128 + SIGTERM;
    }
    SUBCASE("that was not") {}
    rendezvous.say(rendezvous::command::End{
        .exit_code = 80, .why = "a, which hosts the rendezvous, ended", .signal = other_signal});
    CHECK(done() == "closing report, left");
    CHECK(signal(SIGTERM) == "leave: was stopped by SIGTERM");
    is_finish_slow = false;
    may_finish.notify();
    done_by_the_end();
    CHECK(exit_code == expected);
  }

  TEST_CASE_FIXTURE(OneNode, "an agent that only hosts tells the others that it is stopped") {
    CHECK(done() == "join");
    is_finish_slow = true;
    SUBCASE("after its own end") {
      rendezvous.end(0);
      CHECK(done() == "left");
      CHECK(signal(SIGTERM) == "leave: was stopped by SIGTERM");
      CHECK(signal(SIGTERM) == "nothing");
      CHECK(stops_told == 1);
    }
    SUBCASE("after a signal") {
      CHECK(signal(SIGTERM) == "leave: was stopped by SIGTERM, workers gone, left");
      CHECK(signal(SIGTERM) == "nothing");
      CHECK(stops_told == 1);
    }
    later = 1s;
    CHECK(signal(SIGTERM) == "close");
    CHECK(stops_told == 2);
    is_finish_slow = false;
    may_finish.notify();
    CHECK(done_by_the_end() == "close");
  }

  TEST_CASE_FIXTURE(OneNode, "workers that cannot be started are a final failure") {
    CHECK(done() == "join");
    rendezvous::Round round;
    round.ranks.world_size = 2;
    rendezvous.say(round);
    workers.come_up(1, Workers::StartFailure{.started = 1, .why = "no such file"});
    CHECK(done() ==
          "start attempt 0, report final failure of rank 1: 127, SIGTERM to all, SIGCONT to all");
    CHECK(end(0, {.signal = SIGTERM}) == "sweep, finish output");
    rendezvous.end(127);
    CHECK(done_by_the_end() == "closing report, left, close");
    CHECK(exit_code == 127);
  }

  TEST_CASE("workers that SIGKILL does not end are abandoned, and the run goes on") {
    Running node(1ms, 1ms);
    // Both limits may be over before the signal is done with.
    std::string done = node.signal(SIGTERM);
    done += ", " + node.done_by_the_end();
    CHECK(done.ends_with(
        "kill all, abandon 0, abandon 1, sweep, finish output, workers gone, left, close"));
    CHECK(node.exit_code == 128 + SIGTERM);
  }

  TEST_CASE("an end that is held back when SIGKILL's limit is over is reported before") {
    Running node(1ms, 1ms);
    node.workers.gone(0);
    node.workers.held_ends = {{.local_rank = 0, .rank = 0, .pid = 1000, .status = {.signal = 9}}};
    std::string done = node.signal(SIGTERM);
    done += ", " + node.done_by_the_end();
    CHECK(node.workers.held_ends.empty());
    CHECK(done.ends_with("kill all, abandon 1, sweep, finish output, workers gone, left, close"));
    CHECK(node.exit_code == 128 + SIGTERM);
  }
}
