// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/decide/handshake.h"

#include <algorithm>
#include <sstream>

#include "worker/shm/decide/layout.h"

namespace ddprun::ddp::shm {
namespace {

constexpr const char* kYes = "shm";
constexpr const char* kNo = "no";

Error malformed(const std::string& text) {
  return {make_error_code(Errc::Protocol),
          text.substr(0, 100) + " is no part of the shared-memory handshake"};
}

// A word that survives being read with >>.
std::string word(const std::string& text) {
  std::string plain = text.empty() ? "-" : text;
  std::replace_if(
      plain.begin(), plain.end(), [](unsigned char c) { return c <= ' '; }, '_');
  return plain;
}

}  // namespace

std::string too_many() {
  return "there are more than " + std::to_string(kMaxRanks) + " ranks";
}

std::string refusal_of(const std::vector<PeerInfo>& peers) {
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const PeerInfo& peer = peers[rank];
    const std::string name = "rank " + std::to_string(rank);
    if (!peer.wants_shm) return name + " does not take part in it";
    if (peer.boot != peers[0].boot) return name + " is on another node than rank 0";
    if (peer.pid_namespace != peers[0].pid_namespace) {
      return name + " is in another container than rank 0";
    }
  }
  return "";
}

std::string encode(const PeerInfo& peer) {
  std::ostringstream out;
  out << (peer.wants_shm ? kYes : kNo) << ' ' << word(peer.boot) << ' ' << word(peer.pid_namespace)
      << ' ' << peer.pid;
  return out.str();
}

Result<PeerInfo> decode_peer_info(const std::string& text) {
  std::istringstream in(text);
  std::string wants;
  PeerInfo peer;
  if (!(in >> wants >> peer.boot >> peer.pid_namespace >> peer.pid)) return malformed(text);
  if (wants != kYes && wants != kNo) return malformed(text);
  peer.wants_shm = wants == kYes;
  return peer;
}

std::string encode(const HandshakeResult& result) {
  if (!result.refusal.empty()) return std::string(kNo) + " " + result.refusal;
  std::ostringstream out;
  out << kYes << ' ' << result.fd << ' ' << word(result.token);
  for (int pid : result.pids) out << ' ' << pid;
  return out.str();
}

Result<HandshakeResult> decode_handshake_result(const std::string& text) {
  std::istringstream in(text);
  std::string answer;
  HandshakeResult result;
  in >> answer;
  if (answer == kNo) {
    std::getline(in >> std::ws, result.refusal);
    if (result.refusal.empty()) return malformed(text);
    return result;
  }
  if (answer != kYes || !(in >> result.fd >> result.token)) return malformed(text);
  for (int pid = 0; in >> pid;) result.pids.push_back(pid);
  if (!in.eof() || result.pids.empty()) return malformed(text);
  return result;
}

}  // namespace ddprun::ddp::shm
