// SPDX-License-Identifier: BSD-3-Clause
//
// The rendezvous of a run that has one node: there is no other node to meet, so the coordinator
// sits in the same process and is talked to without a store, and a round is complete at once.  What
// remains is to give each round an empty worker store (torchrun 2.15 keeps one store for all
// rounds; keys of the attempt before make about half of its Gloo restarts fail), and to show the
// run to people.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/announce.h"
#include "rendezvous/decide/chronicle.h"
#include "rendezvous/decide/pace.h"
#include "rendezvous/decide/page_port_config.h"
#include "rendezvous/decide/runs.h"
#include "rendezvous/decide/tracer.h"
#include "rendezvous/decide/worker_store_access.h"
#include "rendezvous/handler.h"
#include "rendezvous/notice_queue.h"
#include "rendezvous/run_pages.h"
#include "store/server.h"
#include "store/task_group.h"

namespace ddprun::rendezvous {

// What this node is called in its own events.
inline constexpr const char* kSingleNode = "self";

struct SingleNodeConfig {
  Participant self;
  int max_restarts = 0;

  // The address workers are told to meet at, and what the store listens on: loopback only when the
  // address can only mean this machine, else all interfaces, as torch's store does.  Port 0 takes a
  // free one each round; any other is used in every round.
  Endpoint master{.host = "127.0.0.1", .port = 0};

  WorkerStoreAccess worker_store{};

  // What the pages call the run and this machine, and where they are; none if not set.
  std::string run = "none";
  std::string host{};
  std::optional<PagePortConfig> page{};
};

// A round fails where the store cannot listen, with the address and the system's reason, and where
// it cannot be reached at the address that the workers are told (a name that does not resolve, an
// address of another machine, no loopback), with what was tried.  The pages are opened when the
// first workers run, so that no start waits for that, and stay until finish(); where they cannot be
// opened, a notice says why, and the run goes on without.
//
// Lifetime: owns the worker store of the current round.  finish() must have completed before the
// destructor runs.
class SingleNodeHandler final : public Handler {
 public:
  SingleNodeHandler(boost::asio::any_io_executor executor, SingleNodeConfig config);
  ~SingleNodeHandler() override;

  void listen(Listener listener) override { notices_.listen(std::move(listener)); }
  std::string meeting_place() const override;
  void join() override;
  void workers_started(const Round& round, std::vector<StartedWorker> workers) override;
  void report_failure(Failure failure, bool is_final,
                      const std::optional<TimedOutWait>& wait) override;
  void report_findings(Findings findings) override;
  std::optional<MonoTime> workers_connected() override;
  void report_success() override;
  // Without pages slow workers are named by a notice, and in the End; one alone is never slow.
  VitalsUse vitals_use() const override;
  void say_vitals(std::string text) override;
  void say_stacks(std::string text) override { stacks_ = std::move(text); }
  void say_bundle(std::string text) override { bundle_ = std::move(text); }
  void trace_to(std::function<void(const TraceEvent&)> sink) override { trace_ = std::move(sink); }
  void leave(std::string why, int signal) override;
  boost::asio::awaitable<void> finish() override;
  void close() override;

 private:
  boost::asio::awaitable<void> open_store();
  boost::asio::awaitable<void> watch_pace();
  void look_at_pace();
  void send_request(Request request);
  void step(const runs::Event& happened);
  void note(const runs::Event& happened, Now now);
  const coordinator::State* run() const;  // nullptr before it has begun
  void open_pages();
  void hear_itself();  // who looks at the run has it from its only node
  RunsSource source() const;
  std::optional<std::string> stacks_page(const StacksTarget& target, bool is_wanted);
  std::optional<std::string> bundle_page(const BundleTarget& target, bool is_wanted);

  boost::asio::any_io_executor executor_;
  SingleNodeConfig config_;
  NoticeQueue notices_;
  runs::State runs_;  // this one
  Chronicle chronicle_;
  Tracer tracer_;
  std::function<void(const TraceEvent&)> trace_;
  bool has_joined_ = false;
  std::uint64_t round_ = 0;
  std::unique_ptr<store::Server> worker_store_;
  Announcement announcement_;
  // What the agent has said last; empty: nothing yet.
  std::string vitals_;
  std::string stacks_;
  std::string bundle_;
  PaceWatch pace_;
  PaceLines pace_lines_;
  boost::asio::steady_timer pace_timer_;
  RunPages pages_{
      [this] {
        hear_itself();
        return std::vector{source()};
      },
      [this](const StacksTarget& target, bool is_wanted) { return stacks_page(target, is_wanted); },
      [this](const BundleTarget& target, bool is_wanted) {
        return bundle_page(target, is_wanted);
      }};
  std::unique_ptr<store::Server> page_port_;
  bool has_opened_pages_ = false;  // or tried to
  bool is_open_ = true;
  store::TaskGroup tasks_;
};

}  // namespace ddprun::rendezvous
