// SPDX-License-Identifier: BSD-3-Clause
//
// The handshake in the store that finds out whether all ranks share a node.  Rank 0 decides, so
// that all ranks agree.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/base/error.h"

namespace ddprun::ddp::shm {

// What one rank publishes.  Two ranks with the same boot id and PID namespace can open each other's
// descriptors by process id, if permissions allow; that is tried.
struct PeerInfo {
  bool wants_shm = true;
  std::string boot;           // /proc/sys/kernel/random/boot_id
  std::string pid_namespace;  // what /proc/self/ns/pid leads to
  int pid = 0;
};

// What rank 0 has decided: the segment's address and the process ids by rank, or why there is none.
struct HandshakeResult {
  std::string refusal;  // empty: use shared memory
  int fd = 0;           // of the segment, in the process of rank 0
  std::string token;
  std::vector<int> pids;
};

std::string too_many();  // as a refusal

// Why these ranks cannot share memory; "" if it may be tried.
std::string refusal_of(const std::vector<PeerInfo>& peers);

// One line of text each.  Decoding fails with Errc::Protocol on malformed text.
std::string encode(const PeerInfo& peer);
std::string encode(const HandshakeResult& result);
Result<PeerInfo> decode_peer_info(const std::string& text);
Result<HandshakeResult> decode_handshake_result(const std::string& text);

}  // namespace ddprun::ddp::shm
