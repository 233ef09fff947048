// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/run_endpoint.h"

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/store_keys.h"
#include "rendezvous/host_server.h"
#include "rendezvous/worker_store.h"
#include "store/clock.h"
#include "store/event.h"
#include "store/socket.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr int kClaims = 5;  // in one attempt to reach the host

// A place is asked once at a time, also where who asks is ended meanwhile.
class UnderWay {
 public:
  UnderWay(std::set<std::string>& places, std::string place)
      : places_(places), place_(std::move(place)), is_only_one_(places_.insert(place_).second) {}
  ~UnderWay() {
    if (is_only_one_) places_.erase(place_);
  }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

  bool is_only_one() const { return is_only_one_; }

 private:
  std::set<std::string>& places_;
  std::string place_;
  bool is_only_one_;
};

}  // namespace

RunEndpoint::RunEndpoint(asio::any_io_executor executor, NetworkConfig config, Parts parts)
    : executor_(executor),
      config_(std::move(config)),
      parts_(std::move(parts)),
      security_(executor, config_),
      dialer_(executor, {.config = config_,
                         .security = security_,
                         .search_ends = parts_.search_ends,
                         .log = parts_.log}),
      at_store_(executor, {.host = config_.member.node.host,
                           .is_static = config_.member.node.settings.master.has_value(),
                           .log = parts_.log,
                           .connect = [this] { return connect(config_.endpoint); }}) {
  if (parts_.registry) {
    registered_ = std::make_unique<RegisteredHost>(
        executor_, RegisteredHost::Parts{.registry = std::move(parts_.registry),
                                         .node = config_.member.name,
                                         .log = parts_.log});
  }
  messenger_ = std::make_unique<HostMessenger>(
      executor_,
      HostMessenger::Parts{.dialer = dialer_, .config = config_, .registered = registered_.get()});
  if (!config_.may_stand_in) return;
  auto port = StandInPort::take(listening_host(config_));
  if (port) {
    port_ = std::move(*port);
  } else {
    parts_.log("this node cannot stand in for the run's host: " + to_string(port.error()));
  }
}

RunEndpoint::~RunEndpoint() = default;

store::Async<RunEndpoint::Contact> RunEndpoint::reach(const Place& place) {
  dialer_.begin(place.timeout);
  auto prepared = co_await security_.prepare();
  if (!prepared) co_return prepared.error();
  if (!place.at && registered_) co_return co_await reach_registered(place);
  if (!place.at) co_return co_await reach_endpoint(place.may_host);
  if (place.stand_in != 0 && !stand_in_) {
    auto opened = co_await stand_in(*place.at, place.stand_in);
    if (!opened) co_return opened.error();
  }
  here_ = own_host(place.at);
  co_return co_await meet_in_time(*place.at, place.of);
}

store::Async<RunEndpoint::Contact> RunEndpoint::reach_endpoint(bool may_host) {
  if (may_host && !host_) {
    auto hosting = co_await host_if_possible();
    if (!hosting) co_return hosting.error();
  }
  here_ = host_.get();
  if (!host_ && !config_.other_ports.empty()) {
    auto found = co_await dialer_.find_port();
    if (!found) co_return found.error();
  }
  co_return co_await meet_in_time(config_.endpoint);
}

// A node of a round goes back to the host that it had, whatever stands in the registry meanwhile.
store::Async<RunEndpoint::Contact> RunEndpoint::reach_registered(const Place& place) {
  if (stand_in_ && here_ == stand_in_.get()) co_return co_await meet_in_time(stand_in_at_);
  here_ = nullptr;
  if (place.is_back && registered_at_) co_return co_await meet_in_time(*registered_at_);
  registered_at_.reset();
  const host_search::Searcher searcher{.node = config_.member.name,
                                       .may_host = port_.has_value(),
                                       .has_round = place.has_round,
                                       .has_turn = place.has_turn,
                                       .lease = config_.member.node.policy.lease()};
  // Of nodes that claim at one time all but one find the one that has.
  for (int attempt = 0; attempt < kClaims; ++attempt) {
    auto newest = co_await newest_in_time();
    if (!newest) co_return newest.error();
    Error error{Errc::Closed, "no host has come yet"};
    host_search::Next next = host_search::on_entry(search_, *newest, searcher, mono_now());
    if (next == host_search::Next::Reach) {
      auto contact = co_await reach_entry(*newest);
      if (contact) search_ = {};
      if (contact) co_return contact;
      error = contact.error();
      next = host_search::on_failure(search_, *newest, error.code == Errc::Refused, searcher,
                                     mono_now());
    }
    if (next != host_search::Next::Claim) co_return error;
    auto claimed = co_await host_by_claim(newest->generation + 1);
    if (!claimed) co_return claimed.error();
    if (!*claimed) continue;
    search_ = {};
    co_return co_await meet_in_time(stand_in_at_);
  }
  co_return Error{Errc::Closed, "other nodes take the host's place again and again"};
}

// What listens at a host's port when that is gone is another program, or another run's host.
store::Async<RunEndpoint::Contact> RunEndpoint::reach_entry(const HostEntry& entry) {
  if (entry.node == config_.member.name) {
    co_return Error{Errc::Refused, "this node hosts no more"};
  }
  registered_at_ = entry.at;
  co_return co_await meet_in_time(entry.at, entry.node);
}

// It listens first, so that a host that stands in the registry never refuses while it lives.
store::Async<bool> RunEndpoint::host_by_claim(std::uint64_t generation) {
  close_if_left();
  const Endpoint at{.host = config_.endpoint.host, .port = port_->port()};
  auto prepared = prepare_stand_in(at, host_search::order_of(generation), true);
  if (!prepared) co_return prepared.error();
  auto claimed = co_await registered_->claim(generation, at);
  Result<HostEntry> newest = Error{Errc::Closed, "another node was first"};
  if (claimed && *claimed) newest = co_await registered_->newest();
  bool is_ours = newest && newest->node == config_.member.name;
  if (!is_ours) {
    registered_->leave();
    co_await drop_opening();
    if (!claimed) co_return claimed.error();
    if (*claimed && !newest) co_return newest.error();
    co_return false;
  }
  if (newest->file && newest->file->run == config_.member.run) {
    std::vector<RunFile> files(1, *newest->file);
    opening_->take_over(std::move(files));
  }
  auto opened = co_await open_stand_in(at);
  if (!opened) {
    registered_->leave();
    co_return opened.error();
  }
  here_ = stand_in_.get();
  registered_at_ = at;
  parts_.log("this node hosts the run at " + to_string(at) + ", written down in " +
             registered_->name());
  co_return true;
}

// Another node has claimed before the first round was written down, so it may begin the run.
void RunEndpoint::superseded() {
  parts_.log("another node hosts the run by " + registered_->name() + "; joining it there");
  registered_->leave();
  if (!stand_in_) return opening_->close();
  if (here_ == stand_in_.get()) here_ = nullptr;
  stand_in_->close();
  closed_.push_back(std::move(stand_in_));
}

// A registry that stands still does not hold up the search either.
store::Async<HostEntry> RunEndpoint::newest_in_time() {
  using namespace asio::experimental::awaitable_operators;
  asio::steady_timer timer(executor_, dialer_.deadline());
  auto outcome = co_await (registered_->newest() || store::wait_for(timer));
  if (outcome.index() == 0) co_return std::get<0>(std::move(outcome));
  co_return Error{Errc::TimedOut, registered_->name() + " has not answered"};
}

// A host that stands still does not hold up the search at other places.  One that answers has the
// whole time for each of its answers, since it may be far away.
store::Async<RunEndpoint::Contact> RunEndpoint::meet_in_time(Endpoint at, std::string of) {
  using namespace asio::experimental::awaitable_operators;
  if (here_ != nullptr || dialer_.deadline() == MonoTime::max())
    co_return co_await meet(std::move(at), std::move(of));
  const std::string name = to_string(at);
  auto outcome = co_await (meet(std::move(at), std::move(of)) || dialer_.until_deadline());
  if (outcome.index() == 0) co_return std::get<0>(std::move(outcome));
  co_return Error{Errc::TimedOut, name + " has not answered"};
}

store::Async<std::unique_ptr<store::Client>> RunEndpoint::connect(Endpoint at) {
  if (here_ != nullptr) co_return co_await here_->connect();
  co_return co_await dialer_.connect(std::move(at));
}

// `of`: at the port of a host that is gone another run's may listen, or another program's store, at
// which no node of this run must coordinate.
store::Async<RunEndpoint::Contact> RunEndpoint::meet(Endpoint at, std::string of) {
  const Error is_another{Errc::Refused, to_string(at) + " is another host's by now"};
  auto sender = co_await connect(at);
  if (!sender) co_return sender.error();
  if (!of.empty() && !(*sender)->has_extensions()) co_return is_another;
  dialer_.has_answered();
  auto receiver = co_await connect(at);
  if (!receiver) co_return receiver.error();
  dialer_.has_answered();
  Contact contact;
  contact.sender = std::move(*sender);
  contact.receiver = std::move(*receiver);
  auto record = co_await at_store_.find(*contact.sender);
  if (!record) co_return record.error();
  contact.record = std::move(*record);
  const std::string coordinator = keys::name_of_coordinator(contact.record);
  if (!of.empty() && !coordinator.starts_with(of + '@')) co_return is_another;
  auto is_fit = check_for_several(contact.record);
  if (!is_fit) co_return is_fit.error();
  co_return contact;
}

// An agent hosts at one endpoint only, and a stock server has no coordinator that could give way.
Result<void> RunEndpoint::check_for_several(const std::string& record) const {
  if (!config_.member.may_move()) return {};
  bool is_daemon = keys::is_at_daemon(record);
  bool has_name = keys::name_of_coordinator(record) != record;
  if (is_daemon && has_name) return {};
  std::string what = is_daemon ? "an older ddpd, which does not" : "no ddpd, and only ddpd does";
  return Error{Errc::InvalidInput,
               "--rdzv-endpoint names several places, and one of them is " + what +
                   " share a run with others; name one place, or start ddpd at each"};
}

std::vector<CoordinatorService*> RunEndpoint::coordinators() {
  std::vector<CoordinatorService*> all;
  for (Host* host : {host_.get(), stand_in_.get()}) {
    if (host != nullptr && host->coordinator() != nullptr) all.push_back(host->coordinator());
  }
  if (at_store_.service() != nullptr) all.push_back(at_store_.service());
  return all;
}

std::string RunEndpoint::name_of(const std::optional<Endpoint>& place) const {
  if (place) return to_string(*place);
  if (!registered_) return to_string(config_.endpoint);
  std::string name = registered_->name();
  return registered_at_ ? to_string(*registered_at_) + " (by " + name + ")" : name;
}

std::optional<MonoTime> RunEndpoint::heard_at() const {
  if (here_ == nullptr) return std::nullopt;
  return here_->coordinator()->heard_at(config_.member.run);
}

// The one there, if it is of this process.
Host* RunEndpoint::own_host(const std::optional<Endpoint>& at) const {
  if (stand_in_ && at == stand_in_at_) return stand_in_.get();
  return !at || at == config_.endpoint ? host_.get() : nullptr;
}

// As the other nodes know it.
Endpoint RunEndpoint::place_of(const Host& host) const {
  return &host == stand_in_.get() ? stand_in_at_ : config_.endpoint;
}

bool RunEndpoint::is_hosted(const Host* host) const {
  return host != nullptr && (host == host_.get() || host == stand_in_.get());
}

void RunEndpoint::close_if_left() {
  if (!is_left()) return;
  if (registered_) registered_->leave();
  stand_in_->close();
  closed_.push_back(std::move(stand_in_));
}

asio::awaitable<void> RunEndpoint::knock(std::optional<Endpoint> place) {
  if (here_ != nullptr) co_await knock_from(*here_, std::move(place));
}

asio::awaitable<void> RunEndpoint::look_back(std::unique_ptr<Host> RunEndpoint::*which,
                                             Endpoint place) {
  Host* host = (this->*which).get();
  if (host != nullptr) co_await knock_from(*host, std::move(place));
}

asio::awaitable<void> RunEndpoint::knock_from(Host& host, std::optional<Endpoint> place) {
  const Endpoint from = place_of(host);
  bool is_by_registry = !place && registered_;
  if (!is_by_registry && place.value_or(config_.endpoint) == from) co_return;
  // What was asked before the standstill says nothing of now.
  const bool asks = !place && !registered_ && host.coordinator()->is_in_doubt(config_.member.run);
  const UnderWay under_way(knocks_at_, place ? to_string(*place) : "");
  if (!under_way.is_only_one()) co_return;
  if (is_by_registry) {
    auto newest = co_await registered_->newest();
    bool is_elsewhere = newest && newest->node != config_.member.name;
    if (is_elsewhere && !newest->is_over) place = newest->at;
    if (is_elsewhere && here_ == &host) confirm_if_here(host);
    if (!place) co_return;
  }
  auto answer = co_await messenger_->ask(place, *host.coordinator(), from);
  // Meanwhile this node may host no more.
  if (!is_hosted(&host)) co_return;
  CoordinatorService& coordinator = *host.coordinator();
  bool is_unreached = !answer || answer->is_unreached;  // or another program answers there
  if (is_unreached && place) coordinator.unreached(config_.member.run, *place);
  if (!answer) co_return;
  if (answer->moved) co_return coordinator.answered(config_.member.run, std::move(*answer->moved));
  if (answer->is_clear && asks) coordinator.endpoint_is_clear(config_.member.run);
}

// Nodes that look for the run are to find it.
void RunEndpoint::confirm_if_here(Host& host) {
  if (host.coordinator()->holds(config_.member.run)) registered_->confirm();
}

asio::awaitable<void> RunEndpoint::tell(std::vector<std::optional<Endpoint>> places,
                                        std::string message, MonoTime end) {
  return messenger_->tell(std::move(places), std::move(message), end);
}

void RunEndpoint::host_leaves(const std::string& why, int signal) {
  leave_ = {why, signal};
  for (Host* host : {host_.get(), stand_in_.get()}) {
    if (host != nullptr) host->coordinator()->host_leaves(why, signal);
  }
}

bool RunEndpoint::leaves_to_others() {
  return std::ranges::any_of(coordinators(), &CoordinatorService::leaves_to_others);
}

bool RunEndpoint::has_successor() {
  return std::ranges::any_of(coordinators(), &CoordinatorService::has_successor);
}

asio::awaitable<void> RunEndpoint::give_up() {
  if (registered_) co_await registered_->give_up();
}

asio::awaitable<void> RunEndpoint::settle_files() {
  if (host_) co_await host_->settle_files();
  if (stand_in_) co_await stand_in_->settle_files();
}

void RunEndpoint::close() {
  if (registered_) registered_->close();
  at_store_.close();
  for (auto* host : {&host_, &opening_, &stand_in_}) {
    if (*host) (*host)->close();
  }
}

asio::awaitable<void> RunEndpoint::stop() {
  co_await at_store_.stop();
  if (host_) co_await host_->stop();
  if (opening_) co_await opening_->stop();
  if (stand_in_) co_await stand_in_->stop();
  for (auto& host : closed_) co_await host->stop();
  if (registered_) co_await registered_->stop();
}

// Whether this process has the store now.  Decided by binding, never by comparing names.
store::Async<bool> RunEndpoint::host_if_possible() {
  if (config_.is_host && !*config_.is_host) co_return false;
  bool must_host = config_.is_host && *config_.is_host;
  if (!must_host) {
    auto here = co_await dialer_.is_here();
    if (!here) co_return here.error();
    if (!*here) co_return false;
    const bool may_begin = co_await dialer_.may_begin_here();
    if (!may_begin) co_return false;
  }
  auto listening = listen();
  if (!listening) {
    bool is_taken = listening.error().code == std::errc::address_in_use;
    if (is_taken && !must_host) co_return false;  // another agent here was first
    if (must_host) {
      co_return Error{Errc::InvalidInput,
                      "this node is to be the host, and " + to_string(listening.error())};
    }
    co_return listening.error();
  }
  say_exposure((*listening)->endpoint());
  auto opened = co_await open_host(std::move(*listening));
  if (!opened) co_return opened.error();
  co_return true;
}

void RunEndpoint::say_exposure(const Endpoint& listening) {
  std::string exposure = security_.exposure(listening);
  // Once, though a node that stands in opens its port again and again.
  if (!exposure.empty() && !std::exchange(has_said_exposure_, true)) parts_.log(exposure);
}

// `which`: what is to become of it.
HostConfig RunEndpoint::host_config(std::unique_ptr<Host> RunEndpoint::*which) {
  HostConfig hosting;
  hosting.name = config_.member.node.host;
  if (config_.may_stand_in) hosting.node = config_.member.name;
  hosting.on_own_round = parts_.formed;
  hosting.log = parts_.log;
  hosting.trace = [this](const std::string& run, const TraceEvent& event) {
    if (trace_ && run == config_.member.run) trace_(event);
  };
  hosting.look_back = [this, which](Endpoint place) { return look_back(which, std::move(place)); };
  hosting.on_failed = [this, which](const std::string& why) { failed(this->*which, why); };
  return hosting;
}

// One that the run has left is of no more use: it opens anew if the run comes back to it.
void RunEndpoint::failed(std::unique_ptr<Host>& host, const std::string& why) {
  bool is_left = host && host.get() != here_;
  if (!is_left) return parts_.host_failed(why);
  parts_.log("this node hosted the run before, and what was left of that has failed: " + why);
  closed_.push_back(std::move(host));
}

asio::awaitable<void> RunEndpoint::drop_opening() {
  opening_->close();
  co_await opening_->stop();
  opening_.reset();
}

// Listens at this node's own port: what comes waits until it is opened.
Result<void> RunEndpoint::prepare_stand_in(const Endpoint& at, std::uint64_t order,
                                           bool is_claimed) {
  auto socket = port_ ? port_->listen() : Error{Errc::InvalidInput, "no port to stand in on"};
  if (!socket) return socket.error();
  auto serving = store::Server::serve(executor_, std::move(*socket),
                                      server_config_of(config_, security_, parts_.log));
  if (!serving) return serving.error();
  HostConfig hosting = host_config(&RunEndpoint::stand_in_);
  hosting.order = order;
  if (registered_) {
    hosting.run_file_elsewhere = files_by_registry(at, is_claimed);
  }
  opening_ = std::make_unique<Host>(executor_, std::move(*serving), std::move(hosting));
  return {};
}

// Other runs may come to this port by mistake; they have no entry.
HostConfig::Elsewhere RunEndpoint::files_by_registry(const Endpoint& at, bool is_claimed) {
  HostConfig::Elsewhere files;
  files.keep = [this, at](RunFile file) {
    if (file.run == config_.member.run) registered_->keep(at, std::move(file));
  };
  files.drop = [this](const std::string& run) {
    if (run == config_.member.run) registered_->drop();
  };
  if (is_claimed) {
    files.run = config_.member.run;
    files.may_begin = [this](RunFile file) { return registered_->may_begin(std::move(file)); };
    files.superseded = [this] { superseded(); };
  }
  return files;
}

// Lets those in who come; what this node knows of the run, its member brings there.
store::Async<void> RunEndpoint::open_stand_in(const Endpoint& at) {
  auto opened = co_await opening_->open();
  if (opened && !opening_->is_open()) opened = Error{Errc::Closed, "this node hosts no more"};
  if (!opened) {
    co_await drop_opening();
    co_return opened;
  }
  stand_in_ = std::move(opening_);
  stand_in_at_ = at;
  say_exposure(stand_in_->endpoint());
  if (leave_) stand_in_->coordinator()->host_leaves(leave_->why, leave_->signal);
  co_return opened;
}

store::Async<void> RunEndpoint::stand_in(const Endpoint& at, std::uint64_t number) {
  auto prepared = prepare_stand_in(at, number, false);
  if (!prepared) co_return prepared;
  auto opened = co_await open_stand_in(at);
  if (opened)
    parts_.log("this node hosts the run at " + to_string(at) + " if enough of its nodes come");
  co_return opened;
}

// This node may be told to stop meanwhile, or at its end.
store::Async<void> RunEndpoint::open_host(std::unique_ptr<store::Server> server) {
  HostConfig hosting = host_config(&RunEndpoint::host_);
  hosting.run_files = parts_.run_files;
  opening_ = std::make_unique<Host>(executor_, std::move(server), std::move(hosting));
  opening_->guard_common_namespace(config_.worker_store);
  std::string only_run = config_.expected_nodes > 0 ? config_.member.run : "";
  auto opened = co_await opening_->open(std::move(only_run));
  if (opened && !config_.other_ports.empty()) {
    auto client = co_await opening_->connect();
    if (client) {
      opened = co_await (*client)->set(keys::home(config_.member.run), "");
    } else {
      opened = client.error();
    }
  }
  if (!opened) {
    co_await drop_opening();
    co_return opened;
  }
  host_ = std::move(opening_);
  if (leave_) host_->coordinator()->host_leaves(leave_->why, leave_->signal);
  co_return opened;
}

// Binds, and never looks first whether a port is free.
Result<std::unique_ptr<store::Server>> RunEndpoint::listen() {
  store::ServerConfig server = server_config_of(config_, security_, parts_.log);
  Result<std::unique_ptr<store::Server>> listening = Error{Errc::InvalidInput, "no port"};
  for (std::uint16_t port : dialer_.ports()) {
    server.listen.port = port;
    Result<Fd> socket =
        server.listen.host.empty() ? listen_everywhere(port) : store::listen_on(server.listen);
    listening =
        socket ? store::Server::serve(executor_, std::move(*socket), server) : socket.error();
    if (listening) config_.use_port(port);
    if (listening || listening.error().code != std::errc::address_in_use) break;
  }
  return listening;
}

Endpoint RunEndpoint::from_here(const store::Client& client) const {
  if (here_ == nullptr) {
    asio::ip::tcp::endpoint address = client.remote();
    return {.host = address.address().to_string(), .port = address.port()};
  }
  std::string host = config_.endpoint.host == "::1" ? "::1" : "127.0.0.1";
  return {.host = config_.bind.empty() ? host : config_.bind, .port = place_of(*here_).port};
}

// By the endpoint's name the others reach this machine, if it hosts there; by the address that they
// know, if it stands in; else by the one from which it reaches the host.
std::string RunEndpoint::own_address(const store::Client& client) const {
  const std::string& endpoint = config_.endpoint.host;
  if (here_ != nullptr && here_ == stand_in_.get()) return stand_in_at_.host;
  bool is_endpoints = is_loopback_host(endpoint) || here_ != nullptr;
  if (is_endpoints) return endpoint == "localhost" ? "127.0.0.1" : endpoint;
  const std::string& local = client.local_address();
  return is_loopback_host(local) ? endpoint : local;
}

}  // namespace ddprun::rendezvous
