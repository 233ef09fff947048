// SPDX-License-Identifier: BSD-3-Clause
//
// What the ranks tell each other in the store to find out whether they share a node, and what
// follows from it.  Rank 0 decides, so that all decide the same.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/base/error.h"

namespace ddprun::ddp::shm {

// Of one rank.  Two that have the same boot and the same namespace of processes can open each
// other's files by process number; whether they really may is found by trying.
struct Offer {
  bool wants_shm = true;
  std::string boot;           // /proc/sys/kernel/random/boot_id
  std::string pid_namespace;  // what /proc/self/ns/pid leads to
  int pid = 0;
};

// What rank 0 has decided: the segment's address and the processes by rank, or why there is none.
struct Decision {
  std::string refusal;  // empty: shared memory it is
  int fd = 0;           // of the segment, in the process of rank 0
  std::string token;
  std::vector<int> pids;
};

std::string too_many();  // as a refusal

// Why these ranks, by rank, cannot share memory; "" when it may be tried.
std::string refusal_of(const std::vector<Offer>& offers);

// Both to one line of text and back.  Fails with Errc::Protocol on what is none.
std::string encode(const Offer& offer);
std::string encode(const Decision& decision);
Result<Offer> decode_offer(const std::string& text);
Result<Decision> decode_decision(const std::string& text);

}  // namespace ddprun::ddp::shm
