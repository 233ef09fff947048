// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <utility>

#include "rendezvous/meeting.h"

namespace ddprun::rendezvous {
namespace {

std::string random_name() {
  std::random_device device;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", device(), device());
  return text;
}

}  // namespace

std::string coordinator_record(const std::string& host) {
  return random_name() + " " + host + " " + std::to_string(::getpid());
}

Host::Host(boost::asio::any_io_executor executor, std::unique_ptr<store::Server> server,
           store::ServerConfig config, std::string name)
    : executor_(std::move(executor)),
      server_(std::move(server)),
      config_(std::move(config)),
      name_(std::move(name)) {}

Result<std::unique_ptr<Host>> Host::listen(boost::asio::any_io_executor executor,
                                           store::ServerConfig config, std::string name) {
  auto server = store::Server::listen(executor, config);
  if (!server) return server.error();
  config.listen.port = (*server)->port();
  return std::unique_ptr<Host>(
      new Host(executor, std::move(*server), std::move(config), std::move(name)));
}

store::Async<void> Host::open() {
  ServiceConfig service{.store = address(), .record = coordinator_record(name_)};
  service.renew_common_space = [this] { server_->renew_common_space(); };
  if (config_.log) service.log = config_.log;
  auto started = co_await CoordinatorService::start(executor_, std::move(service));
  if (!started) co_return started.error();
  coordinator_ = std::move(*started);
  co_return Result<void>{};
}

Endpoint Host::address() const {
  std::string host = config_.listen.host;
  if (host == "0.0.0.0" || host == "::") host = "127.0.0.1";
  return {.host = host, .port = server_->port()};
}

void Host::close() {
  if (coordinator_) coordinator_->close();
  server_->close();
}

boost::asio::awaitable<void> Host::stop() {
  if (coordinator_) co_await coordinator_->stop();
  co_await server_->stop();
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return addresses;
  for (ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    } else {
      continue;
    }
    addresses.emplace_back(text);
  }
  ::freeifaddrs(first);
  return addresses;
}

}  // namespace ddprun::rendezvous
