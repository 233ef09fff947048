// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/network.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rendezvous/decide/store_keys.h"
#include "rendezvous/worker_store.h"
#include "store/base/variant.h"
#include "store/client_connect.h"
#include "store/clock.h"
#include "store/event.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr Duration kPulseWait = std::chrono::seconds(5);  // for its value to be there
constexpr Duration kPopPatience = std::chrono::minutes(10);
constexpr std::chrono::seconds kLatePatience(10);
constexpr Duration kFlushPatience = std::chrono::seconds(2);

}  // namespace

// One connection to the coordinator: two to the store, since a pop that waits keeps a connection
// busy.  Coroutines share it, and end once it is closed.
struct NetworkHandler::Link {
  Link(asio::any_io_executor executor, std::unique_ptr<store::Client> sender_,
       std::unique_ptr<store::Client> receiver_)
      : sender(std::move(sender_)),
        receiver(std::move(receiver_)),
        has_mail(executor),
        has_sent(executor) {}

  void close() {
    is_open = false;
    sender->close();
    receiver->close();
    has_mail.notify();
    has_sent.notify();
  }
  bool is_flushed() const { return !is_open || (!is_sending && outgoing.empty()); }

  std::unique_ptr<store::Client> sender;
  std::unique_ptr<store::Client> receiver;
  std::string node;
  std::uint64_t connection = 0;
  std::string record;
  struct Outgoing {
    std::string message;
    bool is_heartbeat = false;  // followed by a look at the pulse
  };
  std::deque<Outgoing> outgoing;
  bool is_sending = false;
  bool is_open = true;
  store::Event has_mail;  // there is something to send
  store::Event has_sent;  // nothing is left to send
};

NetworkHandler::NetworkHandler(asio::any_io_executor executor, NetworkConfig config,
                               RunFilePlace run_files, LeaseHolder holder)
    : executor_(executor),
      config_(std::move(config)),
      notices_(executor),
      run_files_(std::move(run_files)),
      holder_(std::move(holder)),
      resolver_(executor),
      ticker_(executor),
      reached_(executor),
      announcement_(executor),
      pause_(executor),
      tasks_(executor, [](std::exception_ptr error) { std::rethrow_exception(error); }) {
  config_.member.node.pid = ::getpid();
}

NetworkHandler::~NetworkHandler() = default;

// What the agent says.

// The address that the others are told, should this node be the first; "::" where only the
// connection will show it.
std::string NetworkHandler::workers_meet_at() const {
  const std::string& given = config_.member.node.address;
  if (!given.empty()) return given;
  const std::string& endpoint = config_.endpoint.host;
  if (!is_loopback_host(endpoint)) return "::";
  return endpoint == "localhost" ? "127.0.0.1" : endpoint;
}

void NetworkHandler::join() {
  announcement_.withdraw();
  if (worker_store_) worker_store_->close();
  worker_store_.reset();
  std::uint16_t port = 0;
  if (!is_static()) {
    auto listening = listen_for_workers(executor_, {.host = workers_meet_at()});
    if (!listening) {
      return notices_.push(notice::Failed{"worker store: " + to_string(listening.error())});
    }
    worker_store_ = std::move(*listening);
    port = worker_store_->port();
  }
  step(member::event::RoundWanted{port});
}

void NetworkHandler::workers_started(const Round& round, std::vector<StartedWorker> workers) {
  auto unreachable = [this](const std::string& why) {
    notices_.push(notice::Info{why + "; the workers here cannot join the others"});
  };
  tasks_.spawn(announcement_.make(round.master, round.ranks.world_size, std::move(workers),
                                  std::move(unreachable)));
}

void NetworkHandler::report_failure(Failure failure, bool is_final) {
  step(member::event::WorkerFailed{std::move(failure), is_final});
}

void NetworkHandler::report_success() {
  step(member::event::WorkersSucceeded{});
}

void NetworkHandler::leave(std::string why, int signal) {
  was_stopped_ = true;
  if (host_) {
    host_->coordinator().host_leaves(
        config_.member.node.host + ", which hosts the rendezvous, " + why, signal);
  }
  step(member::event::Leaving{std::move(why), signal});
}

asio::awaitable<void> NetworkHandler::finish() {
  pause_.cancel();
  announcement_.withdraw();
  if (worker_store_) worker_store_->close();
  step(member::event::Finished{});
  co_await flush();
  if (CoordinatorService* coordinator = host_ ? &host_->coordinator() : service_.get()) {
    // Usually the others leave at the same time.  A person is told only of those who stay.
    asio::steady_timer patience(executor_, std::chrono::seconds(1));
    patience.async_wait([this, coordinator](boost::system::error_code cancelled) {
      if (cancelled || !is_open_) return;
      notices_.push(notice::Info{"the run is over; staying for others that meet here: " +
                                 coordinator->who_is_here()});
    });
    co_await coordinator->idle();
    if (!was_stopped_) co_await meet_missing(*coordinator);
  }
  close();
  tasks_.cancel();  // a connect may wait for a name server
  co_await tasks_.join();
  if (service_) co_await service_->stop();
  if (host_) co_await host_->stop();
}

// A node that is slow to start, and finds nobody, would look for the host of a short run in vain.
asio::awaitable<void> NetworkHandler::meet_missing(CoordinatorService& coordinator) {
  std::size_t missing = coordinator.missing(config_.expected_nodes);
  if (missing == 0) co_return;
  notices_.push(
      notice::Info{"the run is over; staying for at most " + std::to_string(kLatePatience.count()) +
                   " s, for " + std::to_string(missing) + " of " +
                   std::to_string(config_.expected_nodes) + " nodes that have not come yet"});
  co_await coordinator.meet_missing(config_.expected_nodes, kLatePatience);
}

void NetworkHandler::close() {
  is_open_ = false;
  announcement_.withdraw();
  notices_.close();
  pause_.cancel();
  ticker_.cancel();
  reached_.notify();
  disconnect();
  if (worker_store_) worker_store_->close();
  if (service_) service_->close();
  if (host_) host_->close();
}

// The member's decisions.

void NetworkHandler::step(const member::Event& event) {
  if (!is_open_) return;
  member::Step next = member::step(std::move(state_), event, read_clocks(), config_.member);
  state_ = std::move(next.state);
  for (const member::Action& action : next.actions) perform(action);
  if (!is_open_) return;
  leave_last_word();
  if (!std::exchange(keeps_time_, true)) tasks_.spawn(keep_time());
  if (member::next_tick(state_, config_.member) < tick_due_) ticker_.cancel();
}

void NetworkHandler::perform(const member::Action& action) {
  std::visit(Overloaded{
                 [this](const member::action::Connect& wanted) {
                   pause_.cancel();
                   tasks_.spawn(connect(wanted, ++attempts_));
                 },
                 // No agent says yet where it would host, so no member looks for other hosts.
                 [](const member::action::Knock&) {},
                 [this](const member::action::Disconnect&) { disconnect(); },
                 [this](const member::action::Post& wanted) { post(wanted.message, false); },
                 [this](const member::action::Heartbeat& wanted) { post(wanted.message, true); },
                 [this](const member::action::NotifyRound& told) {
                   bool has_workers_store = told.round.ranks.group_rank == 0;
                   if (worker_store_ && !has_workers_store) {
                     worker_store_->close();
                     worker_store_.reset();
                   }
                   notices_.push(told.round);
                 },
                 [this](const member::action::NotifyStop& told) {
                   notices_.push(told.stop);
                   if (told.kill_by) notices_.push(notice::LeaseEnding{*told.kill_by});
                 },
                 [this](const member::action::RenewLease& lease) {
                   Duration patience = config_.member.node.policy.silence_limit();
                   if (holder_.renew) holder_.renew(lease.end, patience);
                 },
                 [this](const member::action::NotifyWaiting& told) {
                   notices_.push(command::Waiting{told.why});
                 },
                 [this](const member::action::NotifyEnd& told) { notices_.push(told.end); },
                 [this](const member::action::NotifyFailure& told) {
                   notices_.push(notice::Failed{told.why});
                 },
                 [this](const member::action::NotifyUser& told) {
                   notices_.push(notice::Info{told.text});
                 },
             },
             action);
}

// Connecting.

asio::awaitable<void> NetworkHandler::connect(member::action::Connect wanted,
                                              std::uint64_t attempt) {
  auto is_wanted = [this, attempt] { return is_open_ && !state_.is_over && attempt == attempts_; };
  if (wanted.after > Duration::zero()) {
    asio::steady_timer& pause = pause_;
    pause.expires_after(wanted.after);
    co_await store::wait_for(pause);
  }
  // An attempt that is not wanted any more may still wait for its answer.
  while (is_reaching_ && is_wanted()) co_await reached_.wait();
  if (!is_wanted()) co_return;
  is_reaching_ = true;
  auto link = co_await reach(wanted);
  is_reaching_ = false;
  reached_.notify();
  if (!is_wanted()) co_return;
  if (!link) {
    boost::system::error_code code = link.error().code;
    step(member::event::ConnectFailed{
        .why = "cannot meet the other nodes at " + to_string(config_.endpoint) + ": " +
               to_string(link.error()),
        .is_final = code == Errc::Protocol || code == Errc::InvalidInput,
        .is_refused = code == Errc::Refused});
    co_return;
  }
  link_ = std::move(*link);
  asio::ip::tcp::endpoint address = link_->sender->remote();
  last_word_ = {.address = host_ ? hosts_at() : address.address().to_string(),
                .port = host_ ? config_.endpoint.port : address.port(),
                .has_extensions = link_->sender->has_extensions()};
  tasks_.spawn(send(link_));
  tasks_.spawn(receive(link_));
  step(member::event::Connected{.address = own_address(*link_->sender),
                                .coordinator = link_->record,
                                .is_at_daemon = keys::is_at_daemon(link_->record),
                                .is_own_host = host_ != nullptr});
}

store::Async<std::shared_ptr<NetworkHandler::Link>> NetworkHandler::reach(
    const member::action::Connect& wanted) {
  auto hosting = co_await host_if_possible();
  if (!hosting) co_return hosting.error();
  if (!host_ && !config_.other_ports.empty()) {
    auto found = co_await find_port();
    if (!found) co_return found.error();
  }
  auto sender = co_await connect_once();
  if (!sender) co_return sender.error();
  auto receiver = co_await connect_once();
  if (!receiver) co_return receiver.error();
  auto link = std::make_shared<Link>(executor_, std::move(*sender), std::move(*receiver));
  auto record = co_await coordinator_at(*link->sender);
  if (!record) co_return record.error();
  link->record = std::move(*record);
  link->node = wanted.node;
  link->connection = wanted.connection;
  if (link->sender->has_extensions()) {
    std::string will = encode(Message{.run = config_.member.run,
                                      .node = link->node,
                                      .request = request::Lost{},
                                      .connection = link->connection});
    auto set = co_await link->sender->set_last_will(keys::inbox(link->record), will);
    if (!set) co_return set.error();
  }
  co_return link;
}

// Numeric, for a process of this machine.
std::string NetworkHandler::hosts_at() const {
  if (!config_.bind.empty()) return config_.bind;
  return config_.endpoint.host == "::1" ? "::1" : "127.0.0.1";
}

// Should the agent be killed, its guardian says so where the nodes meet.  Of a host that is killed
// it says so to the one that takes its place.
void NetworkHandler::leave_last_word() {
  bool is_known = !last_word_.address.empty();
  if (!holder_.leave_last_word || !is_known) return;
  std::string why =
      "was lost (its agent, pid " + std::to_string(config_.member.node.pid) + ", was killed)";
  last_word_.message = encode(member::last_message(state_, config_.member, why));
  std::string text = to_text(last_word_);
  if (text == last_text_) return;
  last_text_ = text;
  holder_.leave_last_word(std::move(text));
}

// On a link.

void NetworkHandler::post(const Message& message, bool is_heartbeat) {
  if (!link_) return;
  // A beat that still waits says all that another one could.
  if (is_heartbeat && !link_->outgoing.empty()) return;
  link_->outgoing.push_back({encode(message), is_heartbeat});
  link_->has_mail.notify();
}

asio::awaitable<void> NetworkHandler::send(std::shared_ptr<Link> link) {
  std::string inbox = keys::inbox(link->record);
  std::string pulse_key = keys::pulse(link->record);
  while (link->is_open) {
    while (!link->outgoing.empty()) {
      Link::Outgoing next = std::move(link->outgoing.front());
      link->outgoing.pop_front();
      link->is_sending = true;
      auto pushed = co_await link->sender->queue_push(inbox, std::move(next.message));
      if (!pushed) co_return lost(link, pushed.error());
      if (next.is_heartbeat) {
        auto pulse = co_await link->sender->get(pulse_key, kPulseWait);
        if (!pulse) co_return lost(link, pulse.error());
        if (link->is_open) step(member::event::PulseSeen{*pulse});
      }
      link->is_sending = false;
    }
    if (!link->is_open) co_return;
    link->has_sent.notify();
    co_await link->has_mail.wait();
  }
}

asio::awaitable<void> NetworkHandler::receive(std::shared_ptr<Link> link) {
  std::string mailbox = keys::mailbox(link->node, link->connection);
  while (link->is_open) {
    auto text = co_await link->receiver->queue_pop(mailbox, kPopPatience);
    if (!link->is_open) co_return;
    if (!text) {
      if (text.error().code == Errc::TimedOut) continue;
      co_return lost(link, text.error());
    }
    auto command = decode_command(*text);
    if (!command) {
      notices_.push(
          notice::Info{"ignored a command of the rendezvous: " + to_string(command.error())});
      continue;
    }
    step(member::event::Heard{std::move(*command)});
  }
}

asio::awaitable<void> NetworkHandler::keep_time() {
  while (is_open_) {
    tick_due_ = member::next_tick(state_, config_.member);
    if (mono_now() >= tick_due_) {
      step(member::event::Tick{});
    } else {
      ticker_.expires_at(tick_due_);
      co_await store::wait_for(ticker_);
    }
  }
}

void NetworkHandler::lost(const std::shared_ptr<Link>& link, const Error& error) {
  link->is_sending = false;
  link->has_sent.notify();
  if (!link->is_open) return;
  bool is_closed = error.code == Errc::Closed;
  step(
      member::event::ConnectionLost{is_closed ? "it closed the connection" : error.code.message()});
}

void NetworkHandler::disconnect() {
  if (link_) link_->close();
  link_.reset();
}

// Waits until the last messages are out, the connection is closed, or the time is over.
asio::awaitable<void> NetworkHandler::flush() {
  std::shared_ptr<Link> link = link_;
  if (!link || link->is_flushed()) co_return;
  co_await link->has_sent.wait_until(mono_now() + kFlushPatience);
}

}  // namespace ddprun::rendezvous
