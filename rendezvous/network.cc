// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/network.h"

#include <algorithm>
#include <utility>

#include "rendezvous/meeting.h"
#include "rendezvous/worker_store.h"
#include "store/base/variant.h"
#include "store/client_connect.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr Duration kAttempt = std::chrono::seconds(2);          // of one connect
constexpr Duration kCoordinatorWait = std::chrono::seconds(5);  // for its record to be there
constexpr Duration kPopPatience = std::chrono::minutes(10);
constexpr Duration kFlushPatience = std::chrono::seconds(2);

}  // namespace

// One connection to the coordinator: two to the store, since a pop that waits keeps a connection
// busy.  Coroutines share it, and end once it is closed.
struct NetworkHandler::Link {
  Link(asio::any_io_executor executor, std::unique_ptr<store::Client> sender_,
       std::unique_ptr<store::Client> receiver_)
      : sender(std::move(sender_)),
        receiver(std::move(receiver_)),
        has_mail(executor, MonoTime::max()),
        ticker(executor) {}

  void close() {
    is_open = false;
    sender->close();
    receiver->close();
    has_mail.cancel();
    ticker.cancel();
  }

  std::unique_ptr<store::Client> sender;
  std::unique_ptr<store::Client> receiver;
  std::string node;
  std::string record;
  struct Parcel {
    std::string letter;
    bool is_beat = false;  // followed by a look at the pulse
  };
  std::deque<Parcel> outgoing;
  bool is_sending = false;
  bool is_open = true;
  asio::steady_timer has_mail;  // never expires; cancelled when there is something to send
  asio::steady_timer ticker;
};

NetworkHandler::NetworkHandler(asio::any_io_executor executor, NetworkConfig config)
    : executor_(executor),
      config_(std::move(config)),
      agent_(executor),
      tick_period_(member::tick_period(state_, config_.member)),
      announcement_(executor),
      pause_(executor),
      tasks_(executor, [](std::exception_ptr error) { std::rethrow_exception(error); }) {}

NetworkHandler::~NetworkHandler() = default;

// What the agent says.

void NetworkHandler::join() {
  announcement_.withdraw();
  if (worker_store_) worker_store_->close();
  worker_store_.reset();
  std::uint16_t port = 0;
  if (!is_static()) {
    bool is_here = is_loopback_host(config_.endpoint.host);
    auto listening = listen_for_workers(executor_, {.host = is_here ? "127.0.0.1" : "::"});
    if (!listening) {
      return agent_.tell(notice::Failed{"worker store: " + to_string(listening.error())});
    }
    worker_store_ = std::move(*listening);
    port = worker_store_->port();
  }
  step(member::event::RoundWanted{port});
}

void NetworkHandler::workers_started(const Round& round, std::vector<StartedWorker> workers) {
  auto unreachable = [this](const std::string& why) {
    agent_.tell(notice::Told{why + "; the workers here cannot join the others"});
  };
  tasks_.spawn(announcement_.make(round.master, round.ranks.world_size, std::move(workers),
                                  std::move(unreachable)));
}

void NetworkHandler::report_failure(Failure failure, int exit_code, bool is_final) {
  step(member::event::WorkerFailed{std::move(failure), exit_code, is_final});
}

void NetworkHandler::report_success() {
  step(member::event::WorkersSucceeded{});
}

void NetworkHandler::leave(std::string why) {
  if (host_) {
    host_->coordinator().host_leaves(config_.member.hello.host + ", which hosts the rendezvous, " +
                                     why);
  }
  step(member::event::Leaving{std::move(why)});
}

asio::awaitable<void> NetworkHandler::finish() {
  pause_.cancel();
  announcement_.withdraw();
  if (worker_store_) worker_store_->close();
  co_await flush();
  if (CoordinatorService* coordinator = host_ ? &host_->coordinator() : service_.get()) {
    // Usually the others leave at the same time.  A person is told only of those who stay.
    asio::steady_timer patience(executor_, std::chrono::seconds(1));
    patience.async_wait([this, coordinator](boost::system::error_code cancelled) {
      if (cancelled || !is_open_) return;
      agent_.tell(notice::Told{"the run is over; staying for others that meet here: " +
                               coordinator->who_is_here()});
    });
    co_await coordinator->idle();
  }
  close();
  co_await tasks_.join();
  if (service_) co_await service_->stop();
  if (host_) co_await host_->stop();
}

void NetworkHandler::close() {
  is_open_ = false;
  announcement_.withdraw();
  agent_.hang_up();
  pause_.cancel();
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
  Duration period = member::tick_period(state_, config_.member);
  if (period == tick_period_) return;
  tick_period_ = period;
  if (link_) link_->ticker.cancel();  // it may have been set for much later
}

void NetworkHandler::perform(const member::Action& action) {
  std::visit(
      Overloaded{
          [this](const member::action::Connect& wanted) {
            tasks_.spawn(connect(wanted.node, wanted.after));
          },
          [this](const member::action::Disconnect&) { disconnect(); },
          [this](const member::action::Post& wanted) { post(wanted.letter, false); },
          [this](const member::action::Beat& wanted) { post(wanted.letter, true); },
          [this](const member::action::TellRound& told) {
            bool has_workers_store = told.round.ranks.group_rank == 0;
            if (worker_store_ && !has_workers_store) {
              worker_store_->close();
              worker_store_.reset();
            }
            agent_.tell(told.round);
          },
          [this](const member::action::TellStop& told) { agent_.tell(told.stop); },
          [this](const member::action::TellEnd& told) { agent_.tell(told.end); },
          [this](const member::action::TellFailed& told) { agent_.tell(notice::Failed{told.why}); },
          [this](const member::action::TellPeople& told) { agent_.tell(notice::Told{told.text}); },
      },
      action);
}

// Connecting.

asio::awaitable<void> NetworkHandler::connect(std::string node, Duration after) {
  if (after > Duration::zero()) {
    pause_.expires_after(after);
    co_await wait(pause_);
    if (!is_open_ || state_.is_over) co_return;
  }
  auto link = co_await reach(node);
  if (!is_open_ || state_.is_over) co_return;
  if (!link) {
    bool is_final = link.error().code == Errc::Protocol || link.error().code == Errc::InvalidInput;
    step(member::event::ConnectFailed{"cannot meet the other nodes at " +
                                          to_string(config_.endpoint) + ": " +
                                          to_string(link.error()),
                                      is_final});
    co_return;
  }
  link_ = std::move(*link);
  tasks_.spawn(send(link_));
  tasks_.spawn(receive(link_));
  tasks_.spawn(keep_time(link_));
  step(member::event::Connected{own_address(*link_->sender)});
}

store::Async<std::unique_ptr<store::Client>> NetworkHandler::connect_once() {
  if (host_) co_return co_await host_->connect();
  store::ClientConfig client;
  client.connect_timeout = kAttempt;
  client.tries_once = true;
  client.space = meeting::kSpace;
  client.silence_limit = config_.member.hello.policy.silence_limit();
  co_return co_await store::Client::connect(executor_, config_.endpoint, client);
}

store::Async<std::shared_ptr<NetworkHandler::Link>> NetworkHandler::reach(std::string node) {
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
  link->node = std::move(node);
  if (link->sender->has_extensions()) {
    std::string will = encode(Letter{config_.member.run, link->node, request::Lost{}});
    auto set = co_await link->sender->set_will(meeting::inbox(link->record), will);
    if (!set) co_return set.error();
  }
  co_return link;
}

// Whether this process has the store now.  Decided by binding, never by comparing names.
store::Async<bool> NetworkHandler::host_if_possible() {
  if (host_) co_return true;
  if (config_.is_host && !*config_.is_host) co_return false;
  bool must_host = config_.is_host && *config_.is_host;
  if (!must_host) {
    auto addresses = co_await store::resolve(executor_, config_.endpoint);
    if (!addresses) co_return addresses.error();
    std::vector<std::string> own = own_addresses();
    bool is_here = std::ranges::any_of(*addresses, [&](const auto& address) {
      return address.address().is_loopback() ||
             std::ranges::find(own, store::numeric(address.address())) != own.end();
    });
    if (!is_here) co_return false;
  }
  store::ServerConfig server;
  std::string bind = config_.bind;
  if (bind.empty() && is_loopback_host(config_.endpoint.host)) bind = config_.endpoint.host;
  server.listen.host = bind;
  server.allow = config_.allow;
  auto log = [this](const std::string& text) { agent_.tell(notice::Told{text}); };
  server.log = log;
  auto listening = listen_at_endpoint(std::move(server));
  if (!listening) {
    bool is_taken = listening.error().code == boost::system::errc::address_in_use;
    if (is_taken && !must_host) co_return false;  // another agent here was first
    if (must_host) {
      co_return Error{Errc::InvalidInput,
                      "this node is to be the host, and " + to_string(listening.error())};
    }
    co_return listening.error();
  }
  host_ = std::make_unique<Host>(executor_, std::move(*listening), config_.member.hello.host, log);
  auto opened = co_await host_->open();
  if (!opened) co_return opened.error();
  if (config_.other_ports.empty()) co_return true;
  auto client = co_await host_->connect();
  if (!client) co_return client.error();
  auto told = co_await (*client)->set(meeting::home(config_.member.run), "");
  if (!told) co_return told.error();
  co_return true;
}

// Binds, and never looks first whether a port is free.
Result<std::unique_ptr<store::Server>> NetworkHandler::listen_at_endpoint(
    store::ServerConfig server) {
  std::vector<std::uint16_t> ports = {config_.endpoint.port};
  ports.insert(ports.end(), config_.other_ports.begin(), config_.other_ports.end());
  Result<std::unique_ptr<store::Server>> listening = Error{Errc::InvalidInput, "no port"};
  for (std::uint16_t port : ports) {
    server.listen.port = port;
    listening = server.listen.host.empty() ? listen_everywhere(executor_, server)
                                           : store::Server::listen(executor_, server);
    if (listening) config_.endpoint.port = port;
    if (listening || listening.error().code != boost::system::errc::address_in_use) break;
  }
  return listening;
}

// Which of the ports the run's host has taken; the endpoint's is set to it.  The order stays, so
// that the next search begins where this one ended.
store::Async<void> NetworkHandler::find_port() {
  std::string tried;
  std::vector<std::uint16_t> ports = {config_.endpoint.port};
  ports.insert(ports.end(), config_.other_ports.begin(), config_.other_ports.end());
  for (std::uint16_t port : ports) {
    auto found = co_await look_for_home(port);
    if (found) {
      std::ranges::replace(config_.other_ports, port, config_.endpoint.port);
      config_.endpoint.port = port;
      co_return Result<void>{};
    }
    if (tried.empty()) tried = to_string(found.error());
  }
  co_return Error{Errc::Closed, tried + " (and no host of this run at " +
                                    std::to_string(config_.other_ports.size()) + " further ports)"};
}

store::Async<void> NetworkHandler::look_for_home(std::uint16_t port) {
  store::ClientConfig config;
  config.connect_timeout = kAttempt;
  config.tries_once = true;
  config.space = meeting::kSpace;
  Endpoint endpoint{.host = config_.endpoint.host, .port = port};
  auto client = co_await store::Client::connect(executor_, endpoint, config);
  if (!client) co_return client.error();
  std::vector<std::string> keys = {meeting::home(config_.member.run)};
  auto is_home = co_await (*client)->check(std::move(keys));
  if (!is_home) co_return is_home.error();
  if (!*is_home) co_return Error{Errc::Closed, "another run is at port " + std::to_string(port)};
  co_return Result<void>{};
}

// Whether a coordinator's pulse moves.
store::Async<bool> NetworkHandler::beats(store::Client& client, std::string pulse) {
  auto before = co_await client.get(pulse, kCoordinatorWait);
  if (!before) co_return before.error();
  asio::steady_timer timer(executor_, std::chrono::seconds(1));
  co_await wait(timer);
  auto after = co_await client.get(pulse, kCoordinatorWait);
  if (!after) co_return after.error();
  co_return *after != *before;
}

// Who coordinates at the store.  Beside torch's own server nobody does; the first node there
// becomes the one.
store::Async<std::string> NetworkHandler::coordinator_at(store::Client& client) {
  if (client.has_extensions()) {
    auto record = co_await client.get(meeting::kRecord, kCoordinatorWait);
    bool is_missing = !record && record.error().code == Errc::TimedOut;
    if (!is_missing) co_return record;
    co_return Error{Errc::TimedOut, client.peer() +
                                        " is a store at which no rendezvous is held, such as that "
                                        "of another run's workers"};
  }
  if (is_static()) {
    co_return Error{Errc::InvalidInput,
                    client.peer() +
                        " is taken by another program's TCPStore; the workers of the static "
                        "backend need one that is empty in every round"};
  }
  std::string mine = coordinator_record(config_.member.hello.host);
  auto record = co_await client.compare_set(meeting::kRecord, "", mine);
  if (record && *record != mine) {
    auto lives = co_await beats(client, meeting::pulse(*record));
    if (!lives) co_return lives.error();
    if (*lives) co_return record;
    // The one who claimed it is gone.
    std::string theirs = *record;
    record = co_await client.compare_set(meeting::kRecord, theirs, mine);
  }
  if (!record || *record != mine) co_return record;
  auto in = co_await connect_once();
  if (!in) co_return in.error();
  auto out = co_await connect_once();
  if (!out) co_return out.error();
  ServiceConfig config;
  config.record = mine;
  config.log = [this](const std::string& text) { agent_.tell(notice::Told{text}); };
  auto service = co_await CoordinatorService::start(executor_, std::move(config), std::move(*in),
                                                    std::move(*out), true);
  if (!service) co_return service.error();
  service_ = std::move(*service);
  co_return mine;
}

// By the endpoint's name the others reach this machine, if it hosts; else by the address from which
// it reaches the host.
std::string NetworkHandler::own_address(const store::Client& client) const {
  const std::string& endpoint = config_.endpoint.host;
  if (is_loopback_host(endpoint) || host_) return endpoint == "localhost" ? "127.0.0.1" : endpoint;
  const std::string& local = client.local_address();
  return is_loopback_host(local) ? endpoint : local;
}

// On a link.

void NetworkHandler::post(const Letter& letter, bool is_beat) {
  if (!link_) return;
  // A beat that still waits says all that another one could.
  if (is_beat && !link_->outgoing.empty()) return;
  link_->outgoing.push_back({encode(letter), is_beat});
  link_->has_mail.cancel();
}

asio::awaitable<void> NetworkHandler::send(std::shared_ptr<Link> link) {
  std::string inbox = meeting::inbox(link->record);
  std::string pulse_key = meeting::pulse(link->record);
  while (link->is_open) {
    while (!link->outgoing.empty()) {
      Link::Parcel parcel = std::move(link->outgoing.front());
      link->outgoing.pop_front();
      link->is_sending = true;
      auto pushed = co_await link->sender->queue_push(inbox, std::move(parcel.letter));
      if (!pushed) co_return lost(link, pushed.error());
      if (parcel.is_beat) {
        auto pulse = co_await link->sender->get(pulse_key, kCoordinatorWait);
        if (!pulse) co_return lost(link, pulse.error());
        if (link->is_open) step(member::event::PulseSeen{*pulse});
      }
      link->is_sending = false;
    }
    if (!link->is_open) co_return;
    co_await wait(link->has_mail);
  }
}

asio::awaitable<void> NetworkHandler::receive(std::shared_ptr<Link> link) {
  std::string mailbox = meeting::mailbox(link->node);
  while (link->is_open) {
    auto text = co_await link->receiver->queue_pop(mailbox, kPopPatience);
    if (!link->is_open) co_return;
    if (!text) {
      if (text.error().code == Errc::TimedOut) continue;
      co_return lost(link, text.error());
    }
    auto order = decode_order(*text);
    if (!order) {
      agent_.tell(notice::Told{"ignored an order of the rendezvous: " + to_string(order.error())});
      continue;
    }
    step(member::event::Heard{std::move(*order)});
  }
}

asio::awaitable<void> NetworkHandler::keep_time(std::shared_ptr<Link> link) {
  while (link->is_open) {
    link->ticker.expires_after(tick_period_);
    co_await wait(link->ticker);
    if (link->is_open) step(member::event::Tick{});
  }
}

void NetworkHandler::lost(const std::shared_ptr<Link>& link, const Error& error) {
  link->is_sending = false;
  if (!link->is_open) return;
  bool is_closed = error.code == Errc::Closed;
  step(
      member::event::ConnectionLost{is_closed ? "it closed the connection" : error.code.message()});
}

void NetworkHandler::disconnect() {
  if (link_) link_->close();
  link_.reset();
}

// Lets what was said last go out.
asio::awaitable<void> NetworkHandler::flush() {
  MonoTime limit = read_clocks().mono + kFlushPatience;
  asio::steady_timer timer(executor_);
  while (link_ && link_->is_open && (link_->is_sending || !link_->outgoing.empty()) &&
         read_clocks().mono < limit) {
    timer.expires_after(std::chrono::milliseconds(1));
    co_await wait(timer);
  }
}

}  // namespace ddprun::rendezvous
