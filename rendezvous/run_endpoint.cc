// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/run_endpoint.h"

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
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

// Who knocks here says where this host is to look; a flood of that is not to be one of connections.
constexpr std::size_t kMostKnocks = 64;  // at one time

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
      hosts_(executor,
             {.config = config_,
              .security = security_,
              .log = parts_.log,
              .failed = parts_.host_failed,
              .formed = parts_.formed,
              .look_back = [this](Host& host,
                                  Endpoint at) { return knock_from(host, std::move(at)); }}),
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
  if (place.stand_in != 0 && hosts_.standing_in() == nullptr) {
    auto opened = co_await stand_in(*place.at, place.stand_in);
    if (!opened) co_return opened.error();
  }
  hosts_.use(hosts_.at(place.at));
  co_return co_await meet_in_time(*place.at, place.of);
}

store::Async<RunEndpoint::Contact> RunEndpoint::reach_endpoint(bool may_host) {
  if (may_host && hosts_.at_endpoint() == nullptr) {
    auto hosting = co_await host_if_possible();
    if (!hosting) co_return hosting.error();
  }
  hosts_.use(hosts_.at_endpoint());
  if (hosts_.in_use() == nullptr && !config_.other_ports.empty()) {
    auto found = co_await dialer_.find_port();
    if (!found) co_return found.error();
  }
  co_return co_await meet_in_time(config_.endpoint);
}

// A node of a round goes back to the host that it had, whatever stands in the registry meanwhile.
store::Async<RunEndpoint::Contact> RunEndpoint::reach_registered(const Place& place) {
  if (hosts_.uses_stand_in()) co_return co_await meet_in_time(own_place());
  hosts_.use(nullptr);
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
    co_return co_await meet_in_time(own_place());
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
    co_await hosts_.drop_opening();
    if (!claimed) co_return claimed.error();
    if (*claimed && !newest) co_return newest.error();
    co_return false;
  }
  if (newest->file && newest->file->run == config_.member.run) {
    std::vector<RunFile> files(1, *newest->file);
    hosts_.take_over(std::move(files));
  }
  auto opened = co_await hosts_.open_stand_in();
  if (!opened) {
    registered_->leave();
    co_return opened.error();
  }
  hosts_.use(hosts_.standing_in());
  registered_at_ = at;
  parts_.log("this node hosts the run at " + to_string(at) + ", written down in " +
             registered_->name());
  co_return true;
}

// Another node has claimed before the first round was written down, so it may begin the run.
void RunEndpoint::superseded() {
  parts_.log("another node hosts the run by " + registered_->name() + "; joining it there");
  registered_->leave();
  hosts_.close_stand_in();
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
  if (hosts_.in_use() != nullptr || dialer_.deadline() == MonoTime::max())
    co_return co_await meet(std::move(at), std::move(of));
  const std::string name = to_string(at);
  auto outcome = co_await (meet(std::move(at), std::move(of)) || dialer_.until_deadline());
  if (outcome.index() == 0) co_return std::get<0>(std::move(outcome));
  co_return Error{Errc::TimedOut, name + " has not answered"};
}

store::Async<std::unique_ptr<store::Client>> RunEndpoint::connect(Endpoint at) {
  if (hosts_.in_use() != nullptr) co_return co_await hosts_.in_use()->connect();
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
  for (Host* host : hosts_.open_ones()) {
    if (host->coordinator() != nullptr) all.push_back(host->coordinator());
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
  if (!is_hosting()) return std::nullopt;
  return hosts_.in_use()->coordinator()->heard_at(config_.member.run);
}

void RunEndpoint::close_if_left() {
  if (!is_left()) return;
  if (registered_) registered_->leave();
  hosts_.close_stand_in();
}

asio::awaitable<void> RunEndpoint::knock(std::optional<Endpoint> place) {
  if (is_hosting()) co_await knock_from(*hosts_.in_use(), std::move(place));
}

asio::awaitable<void> RunEndpoint::knock_from(Host& host, std::optional<Endpoint> place) {
  const Endpoint from = hosts_.place_of(host);
  bool is_by_registry = !place && registered_;
  if (!is_by_registry && place.value_or(config_.endpoint) == from) co_return;
  // What was asked before the standstill says nothing of now.
  const bool asks = !place && !registered_ && host.coordinator()->is_in_doubt(config_.member.run);
  if (knocks_at_.size() >= kMostKnocks) co_return;
  const UnderWay under_way(knocks_at_, place ? to_string(*place) : "");
  if (!under_way.is_only_one()) co_return;
  if (is_by_registry) {
    auto newest = co_await registered_->newest();
    bool is_elsewhere = newest && newest->node != config_.member.name;
    if (is_elsewhere && !newest->is_over) place = newest->at;
    if (is_elsewhere && hosts_.in_use() == &host) confirm_if_here(host);
    if (!place) co_return;
  }
  auto answer = co_await messenger_->ask(place, *host.coordinator(), from);
  // Meanwhile this node may host no more.
  if (!hosts_.has(&host)) co_return;
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
  hosts_.leave(why, signal);
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
  co_await hosts_.settle_files();
}

void RunEndpoint::close() {
  if (registered_) registered_->close();
  at_store_.close();
  hosts_.close();
}

asio::awaitable<void> RunEndpoint::stop() {
  co_await at_store_.stop();
  co_await hosts_.stop();
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
  auto opened = co_await hosts_.open_at_endpoint(std::move(*listening), parts_.run_files);
  if (!opened) co_return opened.error();
  co_return true;
}

// Listens at this node's own port: what comes waits until it is opened.
Result<void> RunEndpoint::prepare_stand_in(const Endpoint& at, std::uint64_t order,
                                           bool is_claimed) {
  auto socket = port_ ? port_->listen() : Error{Errc::InvalidInput, "no port to stand in on"};
  if (!socket) return socket.error();
  auto serving = store::Server::serve(executor_, std::move(*socket),
                                      server_config_of(config_, security_, parts_.log));
  if (!serving) return serving.error();
  std::optional<HostConfig::Elsewhere> files;
  if (registered_) files = files_by_registry(at, is_claimed);
  hosts_.prepare_stand_in(std::move(*serving), at, order, std::move(files));
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

store::Async<void> RunEndpoint::stand_in(const Endpoint& at, std::uint64_t number) {
  auto prepared = prepare_stand_in(at, number, false);
  if (!prepared) co_return prepared;
  auto opened = co_await hosts_.open_stand_in();
  if (opened)
    parts_.log("this node hosts the run at " + to_string(at) + " if enough of its nodes come");
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
  if (!is_hosting()) {
    asio::ip::tcp::endpoint address = client.remote();
    return {.host = address.address().to_string(), .port = address.port()};
  }
  std::string host = config_.endpoint.host == "::1" ? "::1" : "127.0.0.1";
  return {.host = config_.bind.empty() ? host : config_.bind,
          .port = hosts_.place_of(*hosts_.in_use()).port};
}

// By the endpoint's name the others reach this machine, if it hosts there; by the address that they
// know, if it stands in; else by the one from which it reaches the host.
std::string RunEndpoint::own_address(const store::Client& client) const {
  const std::string& endpoint = config_.endpoint.host;
  if (hosts_.uses_stand_in()) return own_place().host;
  bool is_endpoints = is_loopback_host(endpoint) || is_hosting();
  if (is_endpoints) return endpoint == "localhost" ? "127.0.0.1" : endpoint;
  const std::string& local = client.local_address();
  return is_loopback_host(local) ? endpoint : local;
}

}  // namespace ddprun::rendezvous
