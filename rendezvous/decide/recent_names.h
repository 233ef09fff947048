// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <deque>
#include <set>
#include <string>
#include <utility>

namespace ddprun::rendezvous {

// The last names that were put in, so many at most: what peers can make grow has a bound.
class RecentNames {
 public:
  static constexpr std::size_t kMost = 20000;

  void insert(const std::string& name) {
    if (!names_.insert(name).second) return;
    order_.push_back(name);
    if (order_.size() <= kMost) return;
    names_.erase(order_.front());
    order_.pop_front();
  }
  bool contains(const std::string& name) const { return names_.contains(name); }

 private:
  std::set<std::string> names_;
  std::deque<std::string> order_;
};

}  // namespace ddprun::rendezvous
