// SPDX-License-Identifier: BSD-3-Clause
//
// The rendezvous of a run of several nodes: the shell of member.h.  It connects to the store at the
// endpoint, or hosts that store if the endpoint is an address of this machine and no other program
// there does; it carries messages and commands, and keeps the worker store of the rounds in which
// this node has rank 0.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/announce.h"
#include "rendezvous/decide/member.h"
#include "rendezvous/decide/member_messages.h"
#include "rendezvous/decide/network_config.h"
#include "rendezvous/handler.h"
#include "rendezvous/last_word.h"
#include "rendezvous/link.h"
#include "rendezvous/node_files.h"
#include "rendezvous/notice_queue.h"
#include "rendezvous/run_endpoint.h"
#include "store/base/fd.h"
#include "store/event.h"
#include "store/limited_log.h"
#include "store/server.h"
#include "store/task_group.h"

namespace ddprun::rendezvous {

// What holds the workers' lease while the agent stands still, and speaks when it is killed.  Both
// may be empty.
struct LeaseHolder {
  // No worker may live after `end` unless it is renewed; MonoTime::max(): none lives, or nobody
  // counts on their end.  A holder that finds that it has stood still past the end itself holds the
  // workers still for at most `patience`, in which the agent may renew.
  std::function<void(MonoTime end, Duration patience)> renew;
  // For deliver_last_word().
  std::function<void(std::string last_word)> leave_last_word;
};

// Lifetime: finish() must have completed before the destructor runs.
class NetworkHandler final : public Handler {
 public:
  NetworkHandler(boost::asio::any_io_executor executor, NetworkConfig config,
                 RunFilePlace run_files = {}, LeaseHolder holder = {},
                 std::unique_ptr<HostRegistry> registry = nullptr);
  ~NetworkHandler() override;

  void listen(Listener listener) override { notices_.listen(std::move(listener)); }
  void join() override;
  void workers_started(const Round& round, std::vector<StartedWorker> workers) override;
  void report_failure(Failure failure, bool is_final,
                      const std::optional<TimedOutWait>& wait) override;
  void report_findings(Findings findings) override;
  std::optional<MonoTime> workers_connected() override;
  void report_success() override;
  std::string meeting_place() const override;
  VitalsUse vitals_use() const override { return VitalsUse::Everything; }
  void say_vitals(std::string text) override;
  void say_stacks(std::string text) override;
  void say_bundle(std::string text) override;
  void say_slices(std::string text) override;
  void trace_to(std::function<void(const TraceEvent&)> sink) override {
    endpoint_.trace_to(std::move(sink));
  }
  void leave(std::string why, int signal) override;
  void workers_gone() override;
  boost::asio::awaitable<void> finish() override;
  void close() override;

 private:
  std::string workers_meet_at() const;
  void step(const member::Event& event);
  void perform(const member::Action& action);
  bool is_static() const { return config_.member.node.settings.master.has_value(); }

  // Connecting.
  boost::asio::awaitable<void> connect(member::action::Connect wanted, std::uint64_t attempt);
  store::Async<std::shared_ptr<Link>> reach(const member::action::Connect& wanted);
  Link::Listener link_listener();
  void disconnect();
  std::vector<std::string> own_addresses(const store::Client& client) const;
  void open_worker_store(const Round& round);
  void close_worker_stores();
  void close_former_worker_store();
  void leave_last_word();
  void keep_memory();
  void look_for_died();

  boost::asio::awaitable<void> say(member::UnsaidLeft left);
  boost::asio::awaitable<void> close_what_is_left();
  boost::asio::awaitable<void> keep_time();
  boost::asio::awaitable<void> meet_missing(CoordinatorService& coordinator);
  boost::asio::awaitable<void> leave_others(Duration patience, CoordinatorService& coordinator);

  boost::asio::any_io_executor executor_;
  NetworkConfig config_;
  NoticeQueue notices_;
  store::LimitedLog words_;  // for people; the host may say any number
  LeaseHolder holder_;
  RunEndpoint endpoint_;
  NodeFiles node_files_;
  bool lacks_memory_ = false;  // and that has been said
  LastWord last_word_;         // what the guardian says if this process is killed
  Endpoint at_endpoint_;       // numeric; as it was reached last
  std::string last_text_;      // as the holder has it
  member::State state_;
  MonoTime tick_due_ = MonoTime::max();
  boost::asio::steady_timer ticker_;
  bool keeps_time_ = false;
  std::uint64_t attempts_ = 0;  // to connect; the last one counts
  bool is_reaching_ = false;    // an attempt is under way, the last or one before
  store::Event reached_;        // it has ended
  std::shared_ptr<Link> link_;
  Fd worker_listener_;  // of the next round's store, should this node have it
  std::unique_ptr<store::Server> worker_store_;
  std::uint64_t worker_store_round_ = 0;
  // The workers of other nodes may save together for longer than those of this node, and need their
  // store: until the next round, and until no other node needs this one.
  bool others_save_ = false;
  std::unique_ptr<store::Server> former_worker_store_;
  Announcement announcement_;
  bool is_open_ = true;
  bool was_stopped_ = false;
  bool is_finishing_ = false;
  bool is_closing_ = false;          // what this node hosts on its own port, if it is not needed
  boost::asio::steady_timer pause_;  // before the next attempt to connect
  store::TaskGroup tasks_;
};

}  // namespace ddprun::rendezvous
