// SPDX-License-Identifier: BSD-3-Clause
#include "store/resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "store/base/signal_mask.h"
#include "store/clock.h"

namespace ddprun::store {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr Duration kKeepAnswer = std::chrono::seconds(5);
constexpr Duration kKeepFailure = std::chrono::seconds(1);

// As Asio's own resolver says it.
error_code failure_of(int code) {
  switch (code) {
    case 0:
      return {};
    case EAI_AGAIN:
      return asio::error::host_not_found_try_again;
    case EAI_FAIL:
      return asio::error::no_recovery;
    case EAI_MEMORY:
      return asio::error::no_memory;
    case EAI_NONAME:
    case EAI_NODATA:
    case EAI_ADDRFAMILY:
      return asio::error::host_not_found;
    case EAI_SYSTEM:
      return {errno, boost::system::system_category()};
    default:
      return asio::error::no_recovery;
  }
}

// One call of getaddrinfo on a thread of its own.  Asio's resolver has a thread too, but an
// io_context waits for it at its end, and a name server that does not answer takes many seconds.
class LookupThread {
 public:
  // `answered` is cancelled when the answer is there; it outlives this.
  LookupThread(asio::steady_timer& answered, const Endpoint& endpoint)
      : shared_(std::make_shared<Shared>()) {
    shared_->answered = &answered;
    try {
      SignalsBlocked blocked;
      std::thread([shared = shared_, endpoint] { look_up(shared, endpoint); }).detach();
      has_begun_ = true;
    } catch (const std::system_error&) {  // a limit of the user's
    }
  }
  ~LookupThread() {
    std::lock_guard lock(shared_->mutex);
    shared_->answered = nullptr;
  }
  LookupThread(const LookupThread&) = delete;

  bool has_begun() const { return has_begun_; }
  bool is_done() const {
    std::lock_guard lock(shared_->mutex);
    return shared_->is_done;
  }
  // Once it is done:
  error_code failure() const { return shared_->failure; }
  const std::vector<tcp::endpoint>& addresses() const { return shared_->addresses; }

 private:
  struct Shared {
    std::mutex mutex;
    asio::steady_timer* answered = nullptr;  // nullptr: nothing waits any more
    bool is_done = false;
    error_code failure;
    std::vector<tcp::endpoint> addresses;
  };

  static void look_up(const std::shared_ptr<Shared>& shared, const Endpoint& endpoint) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_protocol = IPPROTO_TCP;
    addrinfo* found = nullptr;
    error_code failure = failure_of(::getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &found));
    std::vector<tcp::endpoint> addresses;
    for (addrinfo* entry = failure ? nullptr : found; entry != nullptr; entry = entry->ai_next) {
      tcp::endpoint address;
      if (entry->ai_addrlen > address.capacity()) continue;
      std::memcpy(address.data(), entry->ai_addr, entry->ai_addrlen);
      address.resize(entry->ai_addrlen);
      address.port(endpoint.port);
      addresses.push_back(address);
    }
    if (found != nullptr) ::freeaddrinfo(found);
    std::lock_guard lock(shared->mutex);
    shared->is_done = true;
    shared->failure = failure;
    shared->addresses = std::move(addresses);
    // The event loop lives while something waits: it is posted to under the lock.
    if (shared->answered == nullptr) return;
    asio::post(shared->answered->get_executor(), [shared] {
      if (shared->answered != nullptr) shared->answered->cancel();
    });
  }

  std::shared_ptr<Shared> shared_;
  bool has_begun_ = false;
};

}  // namespace

Async<std::vector<tcp::endpoint>> resolve(asio::any_io_executor executor, Endpoint endpoint) {
  std::vector<tcp::endpoint> addresses;
  if (endpoint.host == "localhost") {
    addresses.emplace_back(asio::ip::address_v4::loopback(), endpoint.port);
    addresses.emplace_back(asio::ip::address_v6::loopback(), endpoint.port);
    co_return addresses;
  }
  error_code error;
  asio::ip::address numeric = asio::ip::make_address(endpoint.host, error);
  if (!error) {
    addresses.emplace_back(numeric, endpoint.port);
    co_return addresses;
  }
  asio::steady_timer answered(executor, MonoTime::max());
  LookupThread lookup(answered, endpoint);
  if (!lookup.has_begun()) co_return Error{Errc::LimitExceeded, "resolve " + endpoint.host};
  while (!lookup.is_done()) {
    co_await answered.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  if (lookup.failure()) co_return Error{lookup.failure(), "resolve " + endpoint.host};
  co_return lookup.addresses();
}

Resolver::Resolver(boost::asio::any_io_executor executor)
    : Resolver(
          [executor](Endpoint endpoint) { return store::resolve(executor, std::move(endpoint)); },
          mono_now) {}

Async<Resolver::Addresses> Resolver::resolve(Endpoint endpoint) {
  auto known = answers_.find(endpoint.host);
  if (known == answers_.end() || clock_() >= known->second.until) {
    auto found = co_await lookup_(endpoint);
    MonoTime until = clock_() + (found ? kKeepAnswer : kKeepFailure);
    known = answers_.insert_or_assign(endpoint.host, Answer{std::move(found), until}).first;
  }
  if (!known->second.addresses) co_return known->second.addresses.error();
  Addresses addresses = *known->second.addresses;
  for (auto& address : addresses) address.port(endpoint.port);
  co_return addresses;
}

}  // namespace ddprun::store
