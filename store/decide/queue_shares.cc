// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/queue_shares.h"

namespace ddprun::store {

void QueueShares::watch(std::string_view queue) {
  queue_ = queue;
  renew();
}

bool QueueShares::take(std::string_view queue, ClientId client, const std::string& host) {
  if (queue_.empty() || queue != queue_) return true;
  std::size_t& of_client = clients_[client];
  std::size_t& of_host = hosts_[host];
  if (of_client >= kOfClient || of_host >= kOfHost) return false;
  ++of_client;
  ++of_host;
  return true;
}

void QueueShares::renew() {
  clients_.clear();
  hosts_.clear();
}

}  // namespace ddprun::store
