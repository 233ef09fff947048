// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/own_hosts.h"

#include <utility>

#include "rendezvous/decide/store_keys.h"
#include "store/client.h"

namespace ddprun::rendezvous {

namespace asio = boost::asio;

OwnHosts::OwnHosts(asio::any_io_executor executor, Parts parts)
    : executor_(std::move(executor)), parts_(std::move(parts)) {}

OwnHosts::~OwnHosts() = default;

std::vector<Host*> OwnHosts::open_ones() const {
  std::vector<Host*> open;
  for (Host* host : {at_endpoint_.get(), stand_in_.get()}) {
    if (host != nullptr) open.push_back(host);
  }
  return open;
}

Host* OwnHosts::at(const std::optional<Endpoint>& place) const {
  if (stand_in_ && place == stand_in_at_) return stand_in_.get();
  return !place || place == parts_.config.endpoint ? at_endpoint_.get() : nullptr;
}

bool OwnHosts::has(const Host* host) const {
  return host != nullptr && (host == at_endpoint_.get() || host == stand_in_.get());
}

Endpoint OwnHosts::place_of(const Host& host) const {
  return &host == stand_in_.get() ? stand_in_at_ : parts_.config.endpoint;
}

HostConfig OwnHosts::config_of(Place place) {
  const NetworkConfig& config = parts_.config;
  HostConfig hosting;
  hosting.name = config.member.node.host;
  if (config.may_stand_in) hosting.node = config.member.name;
  hosting.on_own_round = parts_.formed;
  hosting.log = parts_.log;
  hosting.trace = [this](const std::string& run, const TraceEvent& event) {
    if (trace_ && run == parts_.config.member.run) trace_(event);
  };
  hosting.look_back = [this, place](Endpoint at) { return look_back(place, std::move(at)); };
  hosting.on_failed = [this, place](const std::string& why) { failed(place, why); };
  return hosting;
}

// One that the run has left is of no more use: it opens anew if the run comes back to it.
void OwnHosts::failed(Place place, const std::string& why) {
  std::unique_ptr<Host>& host = this->*place;
  bool is_left = host && host.get() != in_use_;
  if (!is_left) return parts_.failed(why);
  parts_.log("this node hosted the run before, and what was left of that has failed: " + why);
  closed_.push_back(std::move(host));
}

asio::awaitable<void> OwnHosts::look_back(Place place, Endpoint at) {
  Host* host = (this->*place).get();
  if (host != nullptr) co_await parts_.look_back(*host, std::move(at));
}

void OwnHosts::say_exposure(const Endpoint& listening) {
  std::string exposure = parts_.security.exposure(listening);
  // Once, though a node that stands in opens its port again and again.
  if (!exposure.empty() && !std::exchange(has_said_exposure_, true)) parts_.log(exposure);
}

void OwnHosts::has_opened(Place place) {
  this->*place = std::move(opening_);
  if (leave_) (this->*place)->coordinator()->host_leaves(leave_->why, leave_->signal);
}

// This node may be told to stop meanwhile, or at its end.
store::Async<void> OwnHosts::open_at_endpoint(std::unique_ptr<store::Server> server,
                                              RunFilePlace run_files) {
  const NetworkConfig& config = parts_.config;
  say_exposure(server->endpoint());
  HostConfig hosting = config_of(&OwnHosts::at_endpoint_);
  hosting.run_files = std::move(run_files);
  opening_ = std::make_unique<Host>(executor_, std::move(server), std::move(hosting));
  opening_->guard_common_namespace(config.worker_store);
  std::string only_run = config.expected_nodes > 0 ? config.member.run : "";
  auto opened = co_await opening_->open(std::move(only_run));
  if (opened && !config.other_ports.empty()) {
    auto client = co_await opening_->connect();
    if (client) {
      opened = co_await (*client)->set(keys::home(config.member.run), "");
    } else {
      opened = client.error();
    }
  }
  if (!opened) {
    co_await drop_opening();
    co_return opened;
  }
  has_opened(&OwnHosts::at_endpoint_);
  co_return opened;
}

void OwnHosts::prepare_stand_in(std::unique_ptr<store::Server> server, Endpoint at,
                                std::uint64_t order, std::optional<HostConfig::Elsewhere> files) {
  HostConfig hosting = config_of(&OwnHosts::stand_in_);
  hosting.order = order;
  hosting.run_file_elsewhere = std::move(files);
  opening_ = std::make_unique<Host>(executor_, std::move(server), std::move(hosting));
  opening_at_ = std::move(at);
}

// What this node knows of the run, its member brings there.
store::Async<void> OwnHosts::open_stand_in() {
  auto opened = co_await opening_->open();
  if (opened && !opening_->is_open()) opened = Error{Errc::Closed, "this node hosts no more"};
  if (!opened) {
    co_await drop_opening();
    co_return opened;
  }
  stand_in_at_ = opening_at_;
  say_exposure(opening_->endpoint());
  has_opened(&OwnHosts::stand_in_);
  co_return opened;
}

asio::awaitable<void> OwnHosts::drop_opening() {
  opening_->close();
  co_await opening_->stop();
  opening_.reset();
}

void OwnHosts::close_stand_in() {
  if (!stand_in_) return opening_->close();
  if (uses_stand_in()) in_use_ = nullptr;
  stand_in_->close();
  closed_.push_back(std::move(stand_in_));
}

void OwnHosts::leave(const std::string& why, int signal) {
  leave_ = {why, signal};
  for (Host* host : open_ones()) host->coordinator()->host_leaves(why, signal);
}

asio::awaitable<void> OwnHosts::settle_files() {
  if (at_endpoint_) co_await at_endpoint_->settle_files();
  if (stand_in_) co_await stand_in_->settle_files();
}

void OwnHosts::close() {
  for (auto* host : {&at_endpoint_, &opening_, &stand_in_}) {
    if (*host) (*host)->close();
  }
}

asio::awaitable<void> OwnHosts::stop() {
  if (at_endpoint_) co_await at_endpoint_->stop();
  if (opening_) co_await opening_->stop();
  if (stand_in_) co_await stand_in_->stop();
  for (auto& host : closed_) co_await host->stop();
}

}  // namespace ddprun::rendezvous
