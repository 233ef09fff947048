// SPDX-License-Identifier: BSD-3-Clause
//
// Plays the stories in tests/agent/scenarios through the core.  A line is an event, " -> ", and
// what the agent wants done about it; prose begins with '#'.  The events:
//
//   agent WORKERS GRACE            the first line; GRACE in seconds
//   round RESTARTS                 a round was joined
//   exit LOCAL_RANK CODE           a worker has ended; CODE 0, 9, or a signal: SIGKILL
//   hung LOCAL_RANK                it was ended for it
//   waited LOCAL_RANK CODE         a worker has ended since others did not come in time
//   inspect                        the rendezvous wants to know what the workers do
//   inspected                      that is known
//   cannot-start STARTED CODE      of the workers only so many could be started
//   swept | stop | signal SIGNAL | end CODE | rendezvous-fails
//   after SECONDS                  so much time passes, and the deadline if it falls into it
//   is PHASE                       no event: the phase is this one
#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "agent/decide/core.h"

#include "tests/support/worker_exits.h"

using namespace ddprun;
using namespace ddprun::agent;

namespace {

int signal_of(const std::string& name) {
  static const std::map<std::string, int> kNumbers = {
      {"SIGTERM", SIGTERM}, {"SIGINT", SIGINT}, {"SIGKILL", SIGKILL}, {"SIGSEGV", SIGSEGV}};
  auto found = kNumbers.find(name);
  return found == kNumbers.end() ? 0 : found->second;
}

process::ExitStatus status_of(const std::string& text) {
  if (int signal = signal_of(text)) return {.signal = signal};
  return {.exit_code = std::stoi(text)};
}

class Player {
 public:
  // What the agent wants done; "?" for a line that is none.
  std::string play(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    std::string first;
    std::string second;
    words >> verb >> first >> second;
    if (verb == "agent") return begin(std::stoi(first), std::stoi(second));
    if (verb == "after") return pass(std::chrono::seconds(std::stoi(first)));
    if (verb == "is") return to_string(state_.phase);
    if (verb == "round") return on(event::RoundJoined{std::stoi(first)});
    if (verb == "exit") return on(test::worker_exited(std::stoi(first), status_of(second)));
    if (verb == "hung") {
      auto hung = test::worker_exited(std::stoi(first), {.signal = SIGABRT});
      hung.is_hang = true;
      return on(hung);
    }
    if (verb == "waited") {
      auto waited = test::worker_exited(std::stoi(first), status_of(second));
      waited.wait = rendezvous::TimedOutWait{.in = "all_reduce"};
      return on(waited);
    }
    if (verb == "inspect") return on(event::InspectOrdered{{.in = "all_reduce"}});
    if (verb == "inspected") return on(event::Inspected{});
    if (verb == "cannot-start") return on(test::start_failed(std::stoi(first), std::stoi(second)));
    if (verb == "swept") return on(event::Swept{});
    if (verb == "stop") return on(event::StopOrdered{});
    if (verb == "signal") return on(event::ShutdownRequested{signal_of(first)});
    if (verb == "end") return on(event::RunEnded{std::stoi(first)});
    if (verb == "rendezvous-fails") return on(event::RendezvousFailed{"host gone"});
    return "?";
  }

 private:
  std::string begin(int workers, int grace) {
    config_ = {.local_world_size = workers, .stop_grace = std::chrono::seconds(grace)};
    Step first = agent::begin();
    state_ = std::move(first.state);
    return to_string(first.actions);
  }
  std::string pass(Duration duration) {
    now_.mono += duration;
    if (!state_.deadline || now_.mono < *state_.deadline) return "nothing";
    return on(event::DeadlineReached{});
  }
  std::string on(const Event& event) {
    Step next = step(std::move(state_), event, now_, config_);
    state_ = std::move(next.state);
    return to_string(next.actions);
  }

  Config config_;
  Now now_{};
  State state_;
};

}  // namespace

TEST_CASE("agent/decide/core: the stories in tests/agent/scenarios") {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DDPRUN_SCENARIOS)) {
    if (entry.path().extension() != ".txt") continue;
    ++count;
    std::ifstream file(entry.path());
    Player player;
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (line.empty() || line[0] == '#') continue;
      CAPTURE(entry.path().filename().string());
      CAPTURE(number);
      CAPTURE(line);
      auto arrow = line.find(" -> ");
      REQUIRE(arrow != std::string::npos);
      std::string event = line.substr(0, line.find_last_not_of(' ', arrow) + 1);
      CHECK(player.play(event) == line.substr(arrow + 4));
    }
    CHECK(number > 0);
  }
  CHECK(count >= 6);
}
