// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/network.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rendezvous/decide/store_keys.h"
#include "rendezvous/worker_store.h"
#include "store/base/variant.h"
#include "store/clock.h"
#include "store/event.h"
#include "store/socket.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds kLatePatience(10);
constexpr Duration kFlushPatience = std::chrono::seconds(2);
constexpr Duration kStayOn = std::chrono::seconds(1);

// A round that nothing has gone wrong in: its workers have their grace together.
bool lets_workers_save(const command::Stop& stop) {
  return stop.cause == RoundEndCause::NodeJoined || stop.signal != 0;
}

}  // namespace

NetworkHandler::NetworkHandler(asio::any_io_executor executor, NetworkConfig config,
                               RunFilePlace run_files, LeaseHolder holder,
                               std::unique_ptr<HostRegistry> registry)
    : executor_(executor),
      config_(std::move(config)),
      notices_(executor),
      words_(executor, [this](const std::string& text) { notices_.push(notice::Info{text}); }),
      holder_(std::move(holder)),
      endpoint_(
          executor, config_,
          {.run_files = std::move(run_files),
           .log = [this](const std::string& text) { notices_.push(notice::Info{text}); },
           .host_failed = [this](const std::string& why) { step(member::event::HostFailed{why}); },
           .formed = [this](const command::Round& round) { step(member::event::Formed{round}); },
           .search_ends =
               [this] {
                 return state_.connecting_since + config_.member.patience(state_.last.has_value());
               },
           .registry = std::move(registry)}),
      node_files_(config_.may_stand_in || config_.member.may_move() ? config_.node_files : "",
                  config_.member.run, config_.member.name),
      ticker_(executor),
      reached_(executor),
      announcement_(executor),
      pause_(executor),
      tasks_(executor) {
  config_.member.node.pid = ::getpid();
  config_.member.stand_in_port = endpoint_.stand_in_port();
  if (!node_files_.problem().empty()) notices_.push(notice::Info{node_files_.problem()});
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

std::string NetworkHandler::meeting_place() const {
  std::string place = endpoint_.name_of(state_.place);
  return place.empty() ? "" : "rendezvous=" + place;
}

void NetworkHandler::join() {
  announcement_.withdraw();
  if (others_save_) {
    former_worker_store_ = std::move(worker_store_);
  } else {
    close_worker_stores();
  }
  std::uint16_t port = 0;
  if (!is_static()) {
    auto listening = listen_for_workers({.host = workers_meet_at()});
    auto bound = listening ? store::local_port(listening->get()) : listening.error();
    if (!bound) return notices_.push(notice::Failed{"worker store: " + to_string(bound.error())});
    worker_listener_ = std::move(*listening);
    port = *bound;
  }
  RunPlaces known;
  if (!state_.last && !state_.has_joined) known = node_files_.places();
  step(member::event::RoundWanted{port, std::move(known)});
}

void NetworkHandler::workers_started(const Round& round, std::vector<StartedWorker> workers) {
  step(member::event::WorkersUp{round.number});
  auto unreachable = [this](const std::string& why) {
    notices_.push(notice::Info{why + "; the workers here cannot join the others"});
  };
  tasks_.spawn(announcement_.make(round.master, round.ranks.world_size, std::move(workers),
                                  std::move(unreachable)));
}

void NetworkHandler::report_failure(Failure failure, bool is_final,
                                    const std::optional<TimedOutWait>& wait) {
  step(member::event::WorkerFailed{std::move(failure), is_final, wait});
}

void NetworkHandler::report_findings(Findings findings) {
  if (worker_store_) findings.unconnected = unconnected_workers(*worker_store_);
  step(member::event::WorkersInspected{std::move(findings)});
}

std::optional<MonoTime> NetworkHandler::workers_connected() {
  return worker_store_ ? worker_store_->all_connected_at() : std::nullopt;
}

void NetworkHandler::report_success() {
  step(member::event::WorkersSucceeded{});
}

// On torch's own server there are no pages.
void NetworkHandler::say_vitals(std::string text) {
  if (!link_ || !link_->client().has_extensions()) return;
  link_->post_vitals(std::move(text));
  if (worker_store_) link_->post_waits(waits_text(*worker_store_, worker_store_round_));
}

void NetworkHandler::say_stacks(std::string text) {
  if (link_ && link_->client().has_extensions()) link_->post_stacks(std::move(text));
}

void NetworkHandler::say_bundle(std::string text) {
  if (link_ && link_->client().has_extensions()) link_->post_bundle(std::move(text));
}

void NetworkHandler::say_slices(std::string text) {
  if (link_ && link_->client().has_extensions()) link_->post_slices(std::move(text));
}

void NetworkHandler::leave(std::string why, int signal) {
  was_stopped_ = others_save_ = true;
  endpoint_.host_leaves(config_.member.node.host + ", which hosts the rendezvous, " + why, signal);
  step(member::event::Leaving{std::move(why), signal});
}

void NetworkHandler::workers_gone() {
  step(member::event::WorkersGone{});
}

asio::awaitable<void> NetworkHandler::finish() {
  pause_.cancel();
  announcement_.withdraw();
  if (!others_save_) close_worker_stores();
  const bool leaves_to_others = endpoint_.leaves_to_others();
  auto unsaid =
      member::unsaid_left(state_, config_.member, mono_now(), /*host_goes=*/leaves_to_others);
  step(member::event::Finished{});
  if (member::may_forget(state_)) {
    node_files_.drop();
  } else {
    node_files_.leave(state_.leaving ? state_.leaving->why : "has ended");
  }
  is_finishing_ = true;
  endpoint_.close_if_left();
  if (std::shared_ptr<Link> link = link_) co_await Link::flush(link, mono_now() + kFlushPatience);
  if (unsaid && !leaves_to_others) co_await say(std::move(*unsaid));
  for (CoordinatorService* coordinator : endpoint_.coordinators()) {
    // Usually the others leave at the same time.  A person is told only of those who stay.
    asio::steady_timer patience(executor_, std::chrono::seconds(1));
    patience.async_wait([this, coordinator](boost::system::error_code cancelled) {
      if (cancelled || !is_open_) return;
      notices_.push(
          notice::Info{"the run is over here; staying for nodes that have not ended yet: " +
                       coordinator->who_is_here()});
    });
    if (config_.patience_with_others)
      tasks_.spawn(leave_others(*config_.patience_with_others, *coordinator));
    co_await coordinator->idle();
    if (!was_stopped_) co_await meet_missing(*coordinator);
  }
  // Where nobody goes on, only the host of a new start would hear it, and wait for the others.
  const bool is_handed_over = leaves_to_others && endpoint_.has_successor();
  if (!is_handed_over) co_await endpoint_.give_up();
  co_await endpoint_.settle_files();
  close();
  // The next host opens when this one has gone.
  if (unsaid && is_handed_over) co_await say(std::move(*unsaid));
  tasks_.cancel();  // a connect may wait for a name server
  co_await tasks_.join();
  co_await endpoint_.stop();
}

asio::awaitable<void> NetworkHandler::say(member::UnsaidLeft left) {
  co_await endpoint_.tell(std::move(left.places), encode(left.message),
                          mono_now() + kFlushPatience);
}

// A node that is slow to start, and finds no other, would look for the host of a short run in vain.
asio::awaitable<void> NetworkHandler::meet_missing(CoordinatorService& coordinator) {
  std::size_t missing = coordinator.missing(config_.expected_nodes);
  if (missing == 0) co_return;
  notices_.push(
      notice::Info{"the run is over; staying for at most " + std::to_string(kLatePatience.count()) +
                   " s, for " + std::to_string(missing) + " of " +
                   std::to_string(config_.expected_nodes) + " nodes that have not come yet"});
  co_await coordinator.meet_missing(config_.expected_nodes, kLatePatience);
}

// Again and again: a run that only gathers its nodes has no other host yet.
asio::awaitable<void> NetworkHandler::leave_others(Duration patience,
                                                   CoordinatorService& coordinator) {
  asio::steady_timer timer(executor_);
  bool has_left = false;
  while (is_open_) {
    timer.expires_after(patience);
    co_await store::wait_for(timer);
    if (!is_open_) co_return;
    coordinator.hand_over(
        config_.member.run,
        config_.member.node.host + ", which hosts the rendezvous, has ended with its own run");
    if (std::exchange(has_left, coordinator.leaves_to_others()) || !has_left) continue;
    notices_.push(notice::Info{"leaving the other runs here to a host of their own: " +
                               coordinator.who_is_here()});
  }
}

void NetworkHandler::close() {
  is_open_ = false;
  announcement_.withdraw();
  words_.close();
  notices_.close();
  pause_.cancel();
  ticker_.cancel();
  reached_.notify();
  disconnect();
  close_worker_stores();
  endpoint_.close();
}

// The member's decisions.

void NetworkHandler::step(const member::Event& event) {
  if (!is_open_) return;
  member::Step next = member::step(std::move(state_), event, read_clocks(), config_.member);
  state_ = std::move(next.state);
  keep_memory();
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
                 [this](const member::action::Knock& wanted) {
                   for (const auto& place : wanted.places) tasks_.spawn(endpoint_.knock(place));
                 },
                 [this](const member::action::Disconnect&) { disconnect(); },
                 [this](const member::action::Post& wanted) {
                   if (link_) link_->post(encode(wanted.message));
                 },
                 [this](const member::action::Heartbeat& wanted) {
                   if (link_) link_->post_heartbeat(encode(wanted.message));
                 },
                 [this](const member::action::NotifyRound& told) {
                   open_worker_store(told.round);
                   notices_.push(told.round);
                 },
                 [this](const member::action::NotifyInspect& told) { notices_.push(told.inspect); },
                 [this](const member::action::NotifyTakeStacks& told) { notices_.push(told.take); },
                 [this](const member::action::NotifyTakeBundle& told) { notices_.push(told.take); },
                 [this](const member::action::NotifyStop& told) {
                   if (told.kill_by) notices_.push(notice::LeaseEnding{*told.kill_by});
                   others_save_ = others_save_ || lets_workers_save(told.stop);
                   notices_.push(told.stop);
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
                   if (told.kill_by) notices_.push(notice::LeaseEnding{*told.kill_by});
                   notices_.push(notice::Failed{told.why});
                 },
                 [this](const member::action::NotifyUser& told) { words_.line(told.text); },
             },
             action);
}

// The workers' store.

// It is bound since the node joined, and no client is served before it is known which may be.
void NetworkHandler::open_worker_store(const Round& round) {
  close_former_worker_store();
  others_save_ = was_stopped_;
  Fd listener = std::move(worker_listener_);
  if (!listener || round.ranks.group_rank != 0) return;
  auto log = [this](const std::string& line) { notices_.push(notice::Info{line}); };
  auto serving =
      serve_workers(executor_, std::move(listener), config_.worker_store, round.peers, log);
  if (!serving) return notices_.push(notice::Failed{"worker store: " + to_string(serving.error())});
  worker_store_ = std::move(*serving);
  worker_store_round_ = round.number;
}

void NetworkHandler::close_worker_stores() {
  close_former_worker_store();
  worker_listener_ = Fd();
  if (worker_store_) worker_store_->close();
  worker_store_.reset();
}

void NetworkHandler::close_former_worker_store() {
  if (former_worker_store_) former_worker_store_->close();
  former_worker_store_.reset();
}

// From where workers of this node may connect to another one: the address by which it reaches the
// host comes first.
std::vector<std::string> NetworkHandler::own_addresses(const store::Client& client) const {
  std::vector<std::string> addresses;
  auto add = [&](std::string address) {
    address = address.substr(0, address.find('%'));
    bool is_of_use = is_address_of_machine(address) && addresses.size() < kMaxAddresses;
    if (is_of_use && std::ranges::find(addresses, address) == addresses.end())
      addresses.push_back(std::move(address));
  };
  // The host's own connection stays in its process.
  if (!endpoint_.is_hosting()) add(client.local_address());
  add(config_.member.node.address);
  for (std::string& address : store::own_addresses()) add(std::move(address));
  return addresses;
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
    std::error_code code = link.error().code;
    step(member::event::ConnectFailed{
        .why = "cannot meet the other nodes at " + endpoint_.name_of(wanted.place) + ": " +
               to_string(link.error()),
        // Of a run that it is or was in, one answer is not enough: anybody could have given it.
        .is_final = (code == Errc::Protocol || code == Errc::InvalidInput) && !state_.is_joined &&
                    !state_.last && (!wanted.place || config_.member.may_move()),
        .is_refused = code == Errc::Refused});
    co_return;
  }
  link_ = std::move(*link);
  const store::Client& client = link_->client();
  Endpoint store = endpoint_.from_here(client);
  if (!wanted.place) at_endpoint_ = store;
  last_word_ = {.address = store.host,
                .port = store.port,
                .has_extensions = client.has_extensions(),
                .secret_key = config_.secret ? config_.secret->key_text() : "",
                .uses_munge = endpoint_.uses_munge(),
                .munge_socket = config_.munge ? config_.munge->socket : "",
                .others = {},
                .message = {}};
  tasks_.spawn(Link::send(link_));
  tasks_.spawn(Link::receive(link_));
  step(member::event::Connected{.address = endpoint_.own_address(client),
                                .coordinator = keys::name_of_coordinator(link_->record()),
                                .is_at_daemon = keys::is_at_daemon(link_->record()),
                                .is_own_host = endpoint_.is_hosting(),
                                .addresses = own_addresses(client),
                                .died = node_files_.died(),
                                .host_at = endpoint_.registered_at()});
}

store::Async<std::shared_ptr<Link>> NetworkHandler::reach(const member::action::Connect& wanted) {
  // A ddpd that is started again finds its port free, and its runs alive: also those whose workers
  // had to be stopped meanwhile.
  bool is_daemon_awaited =
      state_.is_at_daemon &&
      (state_.is_joined || mono_now() < state_.connecting_since + config_.member.read_timeout);
  RunEndpoint::Place place{.at = wanted.place,
                           .of = wanted.of,
                           .may_host = !is_daemon_awaited,
                           .stand_in = wanted.stand_in,
                           .timeout = wanted.timeout,
                           .is_back = state_.is_joined,
                           .has_round = state_.last.has_value(),
                           .has_turn = member::has_turn(state_, config_.member)};
  auto contact = co_await endpoint_.reach(place);
  // Those who are there are told where the run is, and others may still come to ask.
  if (endpoint_.is_left()) tasks_.spawn(close_what_is_left());
  if (!contact) co_return contact.error();
  bool has_wills = contact->sender->has_extensions();
  Link::Parts parts{.sender = std::move(contact->sender),
                    .receiver = std::move(contact->receiver),
                    .record = std::move(contact->record),
                    .run = config_.member.run,
                    .node = wanted.node,
                    .connection = wanted.connection};
  auto link = std::make_shared<Link>(executor_, std::move(parts), link_listener());
  if (has_wills) {
    std::string will = encode(Message{.run = config_.member.run,
                                      .node = wanted.node,
                                      .request = request::Lost{},
                                      .connection = wanted.connection});
    auto set = co_await link->set_last_will(std::move(will));
    if (!set) co_return set.error();
  }
  co_return link;
}

Link::Listener NetworkHandler::link_listener() {
  return {
      .heard = [this](Command command) { step(member::event::Heard{std::move(command)}); },
      .pulse_seen = [this](std::string pulse) { step(member::event::PulseSeen{std::move(pulse)}); },
      .lost =
          [this](const Error& error) {
            bool is_closed = error.code == Errc::Closed;
            step(member::event::ConnectionLost{
                .why = is_closed ? "it closed the connection" : error.code.message(),
                .is_reset = error.code == std::errc::connection_reset});
          }};
}

// Should the agent be killed, its guardian says so where the nodes meet.  Of a host that is killed
// it says so to the one that takes its place.
void NetworkHandler::leave_last_word() {
  bool is_known = !last_word_.address.empty();
  if (!holder_.leave_last_word || !is_known) return;
  last_word_.others.clear();
  for (const StandIn& stand_in : state_.stand_ins) last_word_.others.push_back(stand_in.at);
  // A node that has found its run elsewhere may never have reached the endpoint.
  bool has_endpoint = at_endpoint_.port != 0;
  if (!last_word_.others.empty() && has_endpoint) last_word_.others.push_back(at_endpoint_);
  for (const Endpoint& endpoint : config_.member.node.settings.endpoints)
    last_word_.others.push_back(endpoint);
  std::string why =
      "was lost (its agent, pid " + std::to_string(config_.member.node.pid) + ", was killed)";
  last_word_.message = encode(member::last_message(state_, config_.member, why));
  last_word_.keep_at = node_files_.last_word_path();
  last_word_.why = std::move(why);
  std::string text = to_text(last_word_);
  if (text == last_text_) return;
  last_text_ = text;
  holder_.leave_last_word(std::move(text));
}

// Before anybody hears from this node that it knows more than it did.
void NetworkHandler::keep_memory() {
  if (is_finishing_) return;
  auto kept = node_files_.keep(member::memory(state_, config_.member),
                               member::run_places(state_, config_.member));
  bool lacked = std::exchange(lacks_memory_, !kept.has_value());
  if (lacked == lacks_memory_) return;
  notices_.push(notice::Info{
      kept ? "what this node knows of the run is kept for a later agent again"
           : "what this node knows of the run is lost if its agent is killed now, and a run whose "
             "agents are all killed may not begin again before join_timeout: " +
                 to_string(kept.error())});
}

// While it waits, others that were ending here may have ended.
void NetworkHandler::look_for_died() {
  if (member::waits_for_round(state_) && node_files_.are_few())
    step(member::event::DiedSeen{node_files_.died()});
}

asio::awaitable<void> NetworkHandler::keep_time() {
  while (is_open_) {
    tick_due_ = member::next_tick(state_, config_.member);
    if (mono_now() >= tick_due_) {
      look_for_died();
      step(member::event::Tick{link_ ? endpoint_.heard_at() : std::nullopt});
    } else {
      ticker_.expires_at(tick_due_);
      co_await store::wait_for(ticker_);
    }
  }
}

asio::awaitable<void> NetworkHandler::close_what_is_left() {
  if (std::exchange(is_closing_, true)) co_return;
  asio::steady_timer timer(executor_, kStayOn);
  co_await store::wait_for(timer);
  is_closing_ = false;
  if (is_open_ && !is_finishing_) endpoint_.close_if_left();
}

void NetworkHandler::disconnect() {
  if (link_) link_->close();
  link_.reset();
}

}  // namespace ddprun::rendezvous
