// SPDX-License-Identifier: BSD-3-Clause
//
// A client of etcd, of version 3.4 or newer, by its HTTP gateway.  Each call is one request, on a
// connection of its own, to the member that answered last; if that one cannot, to the next.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/etcd/decide/messages.h"
#include "rendezvous/etcd/http.h"
#include "rendezvous/etcd/tls.h"
#include "store/async.h"
#include "store/base/endpoint.h"
#include "store/base/time.h"
#include "store/resolver.h"

namespace ddprun::rendezvous::etcd {

struct ClientConfig {
  std::vector<Endpoint> members;  // of one etcd, at least one
  std::optional<TlsFiles> tls{};  // https; else http
  std::string user{};             // empty: none
  std::string password{};
};

// Every call fails with one line that names the members that were tried and what each said:
//
//   Errc::InvalidInput, Errc::NotSupported   what was configured serves at no member
//   Errc::TimedOut                           no member could do it; it may be tried again, and
//   where
//                                            the answer was lost, may have been done all the same
//
// Calls may be under way at the same time.
// Threads: used from the executor's only thread.  Lifetime: must outlive its calls.
class Client {
 public:
  // `log` is told of name servers that do not answer.
  Client(boost::asio::any_io_executor executor, ClientConfig config,
         std::function<void(std::string)> log = nullptr);
  ~Client();

  // The keys that are there, as the majority of the members has them at one moment.
  store::Async<std::vector<KeyValue>> read(std::vector<std::string> keys, MonoTime deadline);

  // Nothing: a lease that it names is over.
  store::Async<std::optional<TxnReply>> commit(Txn txn, MonoTime deadline);

  // A lease ends so long after it was granted or last kept alive, by etcd's clock, and what was
  // written with it goes.
  store::Async<Lease> grant(Duration ttl, MonoTime deadline);
  // A `ttl` of zero: it is over.
  store::Async<Lease> keep_alive(std::int64_t lease, MonoTime deadline);

 private:
  struct Answer;
  struct Call;
  store::Async<Answer> call(std::string target, std::string body, MonoTime deadline);
  store::Async<Answer> ask(Endpoint member, std::shared_ptr<const Call> call, MonoTime deadline);
  store::Async<Answer> ask_once(Endpoint member, std::shared_ptr<const Call> call,
                                MonoTime deadline);
  store::Async<void> log_in(Endpoint member, MonoTime deadline);
  store::Async<HttpResponse> post(Endpoint member, std::string request, MonoTime deadline);
  store::Async<std::shared_ptr<TlsContext>> tls_context();

  boost::asio::any_io_executor executor_;
  ClientConfig config_;
  store::Resolver resolver_;
  std::size_t current_ = 0;  // of the members, the one that answered last
  std::string token_;        // of the user, once it has logged in
  std::shared_ptr<TlsContext> tls_;
};

}  // namespace ddprun::rendezvous::etcd
