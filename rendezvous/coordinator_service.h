// SPDX-License-Identifier: BSD-3-Clause
//
// The shell of runs.h, the coordinators of all runs that meet in one store: it reads the inbox,
// asks runs::step(), and puts the commands into the nodes' queues.  It is a client of the store
// like any other, so the store may be in this process or be torch's own server elsewhere.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/decide/chronicle.h"
#include "rendezvous/decide/drawn_slices.h"
#include "rendezvous/decide/pace.h"
#include "rendezvous/decide/run_view.h"
#include "rendezvous/decide/runs.h"
#include "rendezvous/decide/runs_text.h"
#include "rendezvous/decide/tracer.h"
#include "store/client.h"
#include "store/clock.h"
#include "store/event.h"
#include "store/limited_log.h"
#include "store/task_group.h"

namespace ddprun::rendezvous {

struct ServiceConfig {
  std::string record;  // keys::kCoordinator's value

  std::string only_run{};  // see runs::State

  // Where the hosts of the runs here may change: keys::name_of_coordinator(), and which of the
  // places where they may be this is (request::Knock::order).
  std::string name{};
  std::uint64_t order = 0;
  // Of a daemon (runs::State::is_daemon), and how it speaks to the daemons at the other endpoints
  // of a run: see Knocker::ask().
  bool is_daemon = false;
  std::function<store::Async<std::optional<command::Moved>>(Endpoint place, std::string message,
                                                            std::string mailbox)>
      knock{};
  // Of an agent: knocks at this place, as from this host; what comes of it goes to answered() or
  // unreached().
  std::function<boost::asio::awaitable<void>(Endpoint place)> look_back{};

  // The node of this agent, where the hosts of the runs here may change, and who is told of each of
  // its rounds before any node is (member::event::Formed).
  std::string node{};
  std::function<void(const command::Round&)> on_own_round = [](const command::Round&) {};

  // Called before the commands of a round of the static backend go out: the workers' store, which
  // is the common space of this one, is to be emptied, and is for the workers at these addresses.
  std::function<void(const std::vector<std::string>& peers)> renew_common_space =
      [](const std::vector<std::string>&) {};

  // The run files: what the process before this one has left, and where this one's are kept.
  std::vector<RunFile> found_files{};
  std::function<void(RunFile)> keep_file = [](RunFile) {};
  std::function<void(const std::string& run)> drop_file = [](const std::string&) {};

  // Asked when the first round of `guarded_run` is about to begin, of which this would be the run
  // file; meanwhile nothing is said to the nodes.  False: it does not begin, since another host may
  // have begun the run; on_superseded is called.  Empty: it always does.
  std::string guarded_run{};
  std::function<boost::asio::awaitable<bool>(RunFile)> may_begin{};
  std::function<void()> on_superseded = [] {};

  // Whether the store says of each message where it comes from (Server::stamp_queues()), and
  // whether nodes are believed what addresses they have: see decide/shown_address.h.
  bool has_stamps = false;
  bool believes_nodes = true;

  // The text of a node's vitals; empty where there is none.  Empty: nothing is known of them.
  std::function<std::string(const std::string& node)> vitals{};
  // Likewise of what it says of the workers' store.
  std::function<std::string(const std::string& node)> waits{};
  // Likewise of the stacks that it has taken last.
  std::function<std::string(const std::string& node)> stacks{};
  // Likewise of what its workers have drawn, for `trace`.
  std::function<std::string(const std::string& node)> slices{};

  // Gets what happens to the runs here, as it does.  Empty: it is kept for the pages only.
  Tracer::Sink trace{};

  // Told, in a sentence, of what is wrong.
  std::function<void(const std::string&)> log = [](const std::string&) {};

  // Told once, in a sentence, if the coordinator cannot go on; it has closed itself by then.
  std::function<void(const std::string& why)> on_failed = [](const std::string&) {};
};

// Threads: used from the executor's only thread.  Lifetime: stop() must have completed before the
// destructor runs.
class CoordinatorService {
 public:
  // Begins to coordinate what meets in the store that `in` and `out` are connected to, in the space
  // keys::kNamespace, and writes the record where `is_claimed` is not set.
  static store::Async<std::unique_ptr<CoordinatorService>> start(
      boost::asio::any_io_executor executor, ServiceConfig config,
      std::unique_ptr<store::Client> in, std::unique_ptr<store::Client> out, bool is_claimed);

  ~CoordinatorService();

  // Each run ends, for this reason and signal, and no other node is let in, or another node is to
  // host it; see coordinator::event::HostLeaves.
  void host_leaves(const std::string& why, int signal);
  // The runs of others go on elsewhere, where that can be; see coordinator::event::HandOver.
  void hand_over(const std::string& own_run, const std::string& why);
  // A person wants to see what the workers do; see decide/stack_inquiry.h.
  void stacks_wanted(const std::string& run, std::optional<int> rank);
  // Likewise for the files of the nodes (decide/bundle_inquiry.h).
  void bundle_wanted(const BundleTarget& target);
  // Whether one is left to another node.
  bool leaves_to_others() const { return runs::leaves_to_others(state_); }
  // And whether that is still there: the others may have been told to stop, too.
  bool has_successor() const;

  // Completes when no run has a node that needs this host, or after close().
  boost::asio::awaitable<void> idle();
  // How many of the `nodes` that were to take part in the only run have not come, now that it is
  // over; 0 where it is not.
  std::size_t missing(std::size_t nodes) const;
  // Completes when none is missing, when the patience is over, or after host_leaves() or close().
  boost::asio::awaitable<void> meet_missing(std::size_t nodes, Duration patience);
  // See runs.h.
  std::string who_is_here() const { return runs::who_is_here(state_); }
  MonoTime heard_at(const std::string& run) const;
  bool holds(const std::string& run) const;
  // For the pages.  Valid as long as this object.
  RunsSource source() const {
    return {.state = &state_,
            .chronicle = &chronicle_,
            .tracer = &tracer_,
            .vitals = config_.vitals,
            .waits = config_.waits,
            .stacks = config_.stacks};
  }

  // What this place says to another one where the run may be, as a message of the node `from_node`
  // on the connection `number`: see runs::knock().  The answer goes to answered().
  std::optional<std::string> knock(const std::string& run, const Endpoint& from, const Endpoint& to,
                                   const std::string& from_node, std::uint64_t number) const;
  void answered(const std::string& run, command::Moved moved);
  // Nobody is there.
  void unreached(const std::string& run, const Endpoint& at);
  // Whether it stood still, and asks the endpoint whether the run was begun anew there; and that it
  // was not.
  bool is_in_doubt(const std::string& run) const;
  void endpoint_is_clear(const std::string& run);

  // Ends what is going on, and lets idle() complete.
  void close();
  boost::asio::awaitable<void> stop();

 private:
  CoordinatorService(boost::asio::any_io_executor executor, ServiceConfig config,
                     std::unique_ptr<store::Client> in, std::unique_ptr<store::Client> out);

  boost::asio::awaitable<void> receive();
  boost::asio::awaitable<void> send();
  boost::asio::awaitable<void> keep_time();
  boost::asio::awaitable<void> beat();
  boost::asio::awaitable<void> watch_pace();
  void look_at_pace();
  void look_at_slices();
  void look_at_slices(const std::string& run, const std::string& node, const std::string& host);
  std::string next_pulse(std::uint64_t count);  // notes what it says of those alone
  void beat_if_not_alone(MonoTime now);
  boost::asio::awaitable<void> knock_there(runs::action::Knock wanted);
  void take(std::string text);
  void check_addresses(Message& message, const std::string& shown);
  void step(const runs::Event& event);
  void note_in_chronicle(const runs::Event& event, const std::vector<std::string>& changed,
                         Now now);
  void failed(const std::string& why);
  void cannot(const std::string& what, const Error& error);

  struct StoreCall {
    enum class Kind : std::uint8_t { Push, Forget, SetKey, DeleteKey, Begin };
    Kind kind;
    std::string name;                 // of a queue, or a key
    std::string text{};               // to be pushed
    std::optional<RunFile> file{};    // for may_begin
    std::vector<std::string> keys{};  // to be forgotten with the queue
  };
  store::Async<void> perform(StoreCall next);
  store::Async<void> push(StoreCall first);
  store::Async<void> forget(StoreCall first);
  std::optional<StoreCall> next_like(StoreCall::Kind kind);
  void hold_for_begin(std::vector<runs::Action>& actions);
  store::Async<void> begin(RunFile file);

  ServiceConfig config_;
  store::LimitedLog strangers_;         // what is no message, or not to be believed
  std::unique_ptr<store::Client> in_;   // waits for messages
  std::unique_ptr<store::Client> out_;  // everything else
  runs::State state_;
  std::vector<std::string> own_addresses_;  // of this machine
  MonoTime own_addresses_until_ = MonoTime::min();
  Chronicle chronicle_;
  Tracer tracer_;
  std::deque<StoreCall> outgoing_;
  bool is_sending_ = false;          // what was first there
  std::set<std::string> knocks_at_;  // places and runs where one is under way
  std::uint64_t knocks_ = 0;
  bool is_open_ = true;
  bool has_begun_ = false;           // the guarded run, in that may_begin was asked
  boost::asio::steady_timer alarm_;  // of the earliest deadline
  store::Event has_mail_;            // there is something to send
  store::Event has_sent_;            // some of it
  store::Event has_emptied_;         // the last node has gone, or everything is sent
  boost::asio::steady_timer pulse_timer_;
  std::size_t told_alone_ = 0;  // runs, in the last pulse
  boost::asio::steady_timer pace_timer_;
  std::map<std::string, PaceWatch> paces_;  // by run uuid
  SliceWatch slices_;
  store::TaskGroup tasks_;
};

}  // namespace ddprun::rendezvous
