// SPDX-License-Identifier: BSD-3-Clause
//
// Who hosts a run, written down in etcd.  With PREFIX and the run's id as RUN:
//
//   PREFIX/host/RUN   the newest entry, without its run file; only transactions change it, on the
//                     condition that it has not changed since it was read
//   PREFIX/file/RUN   the run file, and the generation of the host that has said it
//   PREFIX/alive/RUN  the generation of the host, with a lease that it keeps alive
//
// A lease that is over says that the host is silent, not that it is gone.  The two others stay, so
// that a generation is never given twice; those of a run that has ended go after two hours.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/etcd/client.h"
#include "rendezvous/host_registry.h"
#include "store/event.h"
#include "store/task_group.h"

namespace ddprun::rendezvous {

struct EtcdPlace {
  etcd::ClientConfig client{};
  std::string prefix{};  // of the keys: "/ddprun"
  Duration lease{};      // of a host: after it, a host that etcd does not hear counts as silent
};

class EtcdRegistry final : public HostRegistry {
 public:
  EtcdRegistry(boost::asio::any_io_executor executor, EtcdPlace place, const std::string& run);
  ~EtcdRegistry() override;

  void log_to(std::function<void(const std::string&)> log) override { log_ = std::move(log); }
  std::string name() const override;
  store::Async<HostEntry> newest() override;
  store::Async<bool> claim(HostEntry entry) override;
  store::Async<bool> note(HostEntry entry) override;
  void close() override;
  boost::asio::awaitable<void> stop() override;

 private:
  // What was read.
  struct Found {
    std::int64_t revision = 0;  // of the host's key, for the next transaction to compare
    HostEntry entry{};
  };
  template <class T>
  store::Async<T> until_closed(store::Async<T> call);
  store::Async<HostEntry> read_newest();
  store::Async<bool> write_claim(HostEntry entry);
  store::Async<bool> write_note(HostEntry entry);
  store::Async<Found> read(MonoTime deadline);
  store::Async<bool> write(const Found& before, const HostEntry& entry, MonoTime deadline);
  void host(std::uint64_t generation);
  boost::asio::awaitable<void> keep_alive();
  store::Async<bool> renew(std::uint64_t generation);
  Result<Found> decode(const std::vector<etcd::KeyValue>& pairs) const;

  EtcdPlace place_;
  std::string host_key_;
  std::string file_key_;
  std::string alive_key_;
  std::function<void(const std::string&)> log_ = [](const std::string&) {};
  etcd::Client client_;
  store::Event closed_;
  store::Event lease_is_due_;
  bool is_closed_ = false;
  bool keeps_alive_ = false;   // the task runs
  std::uint64_t hosting_ = 0;  // the generation that it keeps alive; 0: none
  std::int64_t lease_ = 0;     // 0: none yet, or it is over
  store::TaskGroup tasks_;
};

}  // namespace ddprun::rendezvous
