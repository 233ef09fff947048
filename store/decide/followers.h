// SPDX-License-Identifier: BSD-3-Clause
//
// Those who follow a page of the server by events, and when the next one is due.  All get the same,
// which is made once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "store/base/time.h"
#include "store/decide/outgoing.h"

namespace ddprun::store {

class Followers {
 public:
  static constexpr std::size_t kMost = 32;
  // What has changed is told at once, but no more often than this.
  static constexpr Duration kPause = std::chrono::milliseconds(200);
  // And if nothing has changed, after so long: times pass, and vitals come.
  static constexpr Duration kPeriod = std::chrono::seconds(2);
  // An event that cost much is followed by a pause of so many times that.
  static constexpr int kTimesItsCost = 20;

  // Whether there was room.  A new one gets an event as soon as may be.
  bool add(ClientId client) {
    if (clients_.size() >= kMost) return false;
    clients_.push_back(client);
    has_new_ = true;
    return true;
  }
  void remove(ClientId client) { std::erase(clients_, client); }
  const std::vector<ClientId>& all() const { return clients_; }

  // `version`: of what the page shows; it changes when something has happened.
  bool is_due(std::uint64_t version, MonoTime now) const {
    if (clients_.empty() || now < not_before_) return false;
    return has_new_ || version != version_ || now >= began_ + kPeriod;
  }
  // One is being made.
  void began(std::uint64_t version, MonoTime now) {
    version_ = version;
    began_ = now;
    has_new_ = false;
    not_before_ = now + kPause;
  }
  void made(Duration cost, MonoTime now) {
    not_before_ = std::max(not_before_, now + kTimesItsCost * cost);
  }

 private:
  std::vector<ClientId> clients_;
  bool has_new_ = false;
  std::uint64_t version_ = 0;
  MonoTime began_ = MonoTime::min();
  MonoTime not_before_ = MonoTime::min();
};

}  // namespace ddprun::store
