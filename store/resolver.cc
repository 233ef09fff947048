// SPDX-License-Identifier: BSD-3-Clause
#include "store/resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "store/base/seconds.h"
#include "store/base/signal_mask.h"
#include "store/clock.h"
#include "store/event.h"

namespace ddprun::store {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr Duration kKeepAnswer = std::chrono::seconds(5);
constexpr Duration kKeepFailure = std::chrono::seconds(1);
// Of an answer at which nobody was reached, and of the next ones that say the same: so many are
// soon old, which is for half of a usual lease.  A name server hears no more of a thousand such
// nodes then than of a thousand to which it gives no answer.
constexpr Duration kKeepUnreached = std::chrono::milliseconds(250);
constexpr int kManyUnreached = 8;
constexpr Duration kKeepUnreachedLong = std::chrono::seconds(1);
// How long a newer answer is waited for where there is an old one, since it was asked for.
constexpr Duration kPatience = std::chrono::milliseconds(300);

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
  // `on_answer` is called from the event loop, but not after destruction.
  LookupThread(asio::any_io_executor executor, Endpoint endpoint, Resolver::OnAnswer on_answer)
      : shared_(std::make_shared<Shared>(std::move(executor), std::move(on_answer))) {
    try {
      SignalsBlocked blocked;
      std::thread([shared = shared_, endpoint] { look_up(shared, endpoint); }).detach();
    } catch (const std::system_error&) {  // a limit of the user's
      answer(shared_, Error{Errc::LimitExceeded, "resolve " + endpoint.host});
    }
  }
  ~LookupThread() {
    std::lock_guard lock(shared_->mutex);
    shared_->on_answer = nullptr;
  }
  LookupThread(const LookupThread&) = delete;

 private:
  struct Shared {
    Shared(asio::any_io_executor from, Resolver::OnAnswer to)
        : executor(std::move(from)), on_answer(std::move(to)) {}
    std::mutex mutex;
    asio::any_io_executor executor;
    Resolver::OnAnswer on_answer;  // nullptr: nothing waits any more
  };

  // The event loop lives while something waits: it is posted to under the lock.
  static void answer(const std::shared_ptr<Shared>& shared, Result<Addresses> addresses) {
    std::lock_guard lock(shared->mutex);
    if (!shared->on_answer) return;
    asio::post(shared->executor, [shared, addresses = std::move(addresses)]() mutable {
      Resolver::OnAnswer on_answer;
      {
        std::lock_guard taking(shared->mutex);
        on_answer.swap(shared->on_answer);
      }
      if (on_answer) on_answer(std::move(addresses));
    });
  }

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
    if (failure) return answer(shared, Error{failure, "resolve " + endpoint.host});
    answer(shared, std::move(addresses));
  }

  std::shared_ptr<Shared> shared_;
};

// Of an endpoint that needs no name server.
std::optional<Addresses> known_addresses(const Endpoint& endpoint) {
  Addresses addresses;
  if (endpoint.host == "localhost") {
    addresses.emplace_back(asio::ip::address_v4::loopback(), endpoint.port);
    addresses.emplace_back(asio::ip::address_v6::loopback(), endpoint.port);
    return addresses;
  }
  error_code error;
  asio::ip::address numeric = asio::ip::make_address(endpoint.host, error);
  if (error) return std::nullopt;
  addresses.emplace_back(numeric, endpoint.port);
  return addresses;
}

// In whatever order, and whatever the port.
bool is_same(const std::optional<Addresses>& before, const Addresses& now) {
  auto number = [](const tcp::endpoint& address) { return address.address(); };
  return before && std::ranges::is_permutation(*before, now, {}, number, number);
}

Error no_answer(const std::string& host) {
  return {Errc::TimedOut, "resolve " + host + ": the name service does not answer"};
}

}  // namespace

// What is known of one name.
struct Resolver::Entry {
  explicit Entry(const asio::any_io_executor& executor) : answered(executor), slow(executor) {}

  std::optional<Addresses> addresses;  // the last that were found
  std::optional<Error> failure;        // of the last look-up
  MonoTime answered_at{};              // when that ended
  MonoTime until{};                    // so long no other is needed
  bool is_unreached = false;           // nobody was reached at the addresses since then
  int unreached = 0;                   // how many answers in a row that held for, the same ones
  std::shared_ptr<void> lookup;        // the one under way; nullptr for none
  MonoTime asked_at{};                 // when that began
  Event answered;                      // by it
  asio::steady_timer slow;             // for the line about it
  bool is_told = false;                // since an answer came
};

Async<Addresses> resolve(asio::any_io_executor executor, Endpoint endpoint, MonoTime deadline) {
  Resolver resolver(std::move(executor));
  co_return co_await resolver.resolve(std::move(endpoint), deadline);
}

Resolver::Resolver(asio::any_io_executor executor, OnStall on_stall)
    : Resolver(
          executor, std::move(on_stall),
          [executor](Endpoint endpoint, OnAnswer on_answer) {
            return std::make_shared<LookupThread>(executor, std::move(endpoint),
                                                  std::move(on_answer));
          },
          mono_now) {}

Resolver::Resolver(asio::any_io_executor executor, OnStall on_stall, Lookup lookup,
                   std::function<MonoTime()> clock)
    : executor_(std::move(executor)),
      on_stall_(std::move(on_stall)),
      lookup_(std::move(lookup)),
      clock_(std::move(clock)) {}

Async<Addresses> Resolver::resolve(Endpoint endpoint, MonoTime deadline) {
  if (auto known = known_addresses(endpoint)) co_return *known;
  std::shared_ptr<Entry>& of_name = entries_[endpoint.host];
  if (!of_name) of_name = std::make_shared<Entry>(executor_);
  std::shared_ptr<Entry> entry = of_name;
  if (clock_() >= entry->until) {
    if (!entry->lookup) look_up(entry, endpoint);
    MonoTime until = entry->addresses ? std::min(deadline, entry->asked_at + kPatience) : deadline;
    while (entry->lookup && mono_now() < until) co_await entry->answered.wait_until(until);
  }
  if (!entry->addresses) co_return entry->lookup ? no_answer(endpoint.host) : *entry->failure;
  Addresses addresses = *entry->addresses;
  for (auto& address : addresses) address.port(endpoint.port);
  co_return addresses;
}

void Resolver::note(const Endpoint& endpoint, bool is_reached) {
  auto of_name = entries_.find(endpoint.host);
  if (of_name == entries_.end() || of_name->second->failure) return;
  Entry& entry = *of_name->second;
  if (is_reached) {
    entry.is_unreached = false;
    entry.unreached = 0;
    return;
  }
  if (!std::exchange(entry.is_unreached, true)) ++entry.unreached;
  Duration keep = entry.unreached > kManyUnreached ? kKeepUnreachedLong : kKeepUnreached;
  entry.until = std::min(entry.until, entry.answered_at + keep);
}

void Resolver::look_up(const std::shared_ptr<Entry>& entry, Endpoint endpoint) {
  std::weak_ptr<Entry> asked = entry;
  entry->slow.expires_after(kStall);
  entry->slow.async_wait([asked, on_stall = on_stall_, host = endpoint.host](error_code error) {
    auto still = asked.lock();
    if (error || !on_stall || !still || !still->lookup || still->is_told) return;
    still->is_told = true;
    on_stall("'look up " + host + "' has stood still for " + seconds_text(kStall) +
             (still->addresses ? "; its last address is used meanwhile" : ""));
  });
  auto on_answer = [this, asked](Result<Addresses> addresses) {
    auto asking = asked.lock();
    if (!asking) return;
    asking->answered_at = clock_();
    asking->until = asking->answered_at + (addresses ? kKeepAnswer : kKeepFailure);
    if (addresses) {
      if (!is_same(asking->addresses, *addresses)) asking->unreached = 0;
      asking->is_unreached = false;
      asking->addresses = std::move(*addresses);
      asking->is_told = false;
      asking->failure.reset();
    } else {
      asking->failure = addresses.error();
    }
    asking->lookup.reset();
    asking->slow.cancel();
    asking->answered.notify();
  };
  entry->asked_at = mono_now();
  entry->lookup = lookup_(std::move(endpoint), std::move(on_answer));
}

}  // namespace ddprun::store
