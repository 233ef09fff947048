// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/page_port.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "store/system_limits.h"

namespace ddprun::rendezvous {
namespace {

// Readers of pages, those who follow them too.  The agent needs its descriptors for its workers.
std::size_t most_readers() {
  constexpr std::size_t kFew = 8;
  constexpr std::size_t kMany = 128;
  return std::clamp(store::file_limit() / 8, kFew, kMany);
}

}  // namespace

Result<std::unique_ptr<store::Server>> open_page_port(
    boost::asio::any_io_executor executor, const PagePortConfig& config,
    const store::PageSource& pages, const std::function<void(const std::string&)>& log) {
  store::ServerConfig server;
  server.listen = config.listen;
  server.allow = config.allow;
  if (config.is_for_user_only)
    server.gate =
        store::Gate{.user = ::geteuid(), .advice_for_users = " (--page=ADDR:PORT admits others)"};
  if (config.secret) server.secrets.push_back(*config.secret);
  server.serves_clients = false;
  server.max_connections = server.max_all_connections = most_readers();
  server.expected_clients = 1;  // a line about a short queue would be too much
  server.log = [log](const std::string& line) { log("the page: " + line); };
  auto listening = store::Server::listen(std::move(executor), std::move(server));
  if (listening) (*listening)->show(&pages);
  return listening;
}

}  // namespace ddprun::rendezvous
