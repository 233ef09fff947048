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
  return {make_error_code(Errc::Protocol), text.substr(0, 100) + " is no offer of a rank"};
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

std::string refusal_of(const std::vector<Offer>& offers) {
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    const Offer& offer = offers[rank];
    const std::string name = "rank " + std::to_string(rank);
    if (!offer.wants_shm) return name + " does not take part in it";
    if (offer.boot != offers[0].boot) return name + " is on another node than rank 0";
    if (offer.pid_namespace != offers[0].pid_namespace) {
      return name + " is in another container than rank 0";
    }
  }
  return "";
}

std::string encode(const Offer& offer) {
  std::ostringstream out;
  out << (offer.wants_shm ? kYes : kNo) << ' ' << word(offer.boot) << ' '
      << word(offer.pid_namespace) << ' ' << offer.pid;
  return out.str();
}

Result<Offer> decode_offer(const std::string& text) {
  std::istringstream in(text);
  std::string wants;
  Offer offer;
  if (!(in >> wants >> offer.boot >> offer.pid_namespace >> offer.pid)) return malformed(text);
  if (wants != kYes && wants != kNo) return malformed(text);
  offer.wants_shm = wants == kYes;
  return offer;
}

std::string encode(const Decision& decision) {
  if (!decision.refusal.empty()) return std::string(kNo) + " " + decision.refusal;
  std::ostringstream out;
  out << kYes << ' ' << decision.fd << ' ' << word(decision.token);
  for (int pid : decision.pids) out << ' ' << pid;
  return out.str();
}

Result<Decision> decode_decision(const std::string& text) {
  std::istringstream in(text);
  std::string answer;
  Decision decision;
  in >> answer;
  if (answer == kNo) {
    std::getline(in >> std::ws, decision.refusal);
    if (decision.refusal.empty()) return malformed(text);
    return decision;
  }
  if (answer != kYes || !(in >> decision.fd >> decision.token)) return malformed(text);
  for (int pid = 0; in >> pid;) decision.pids.push_back(pid);
  if (!in.eof() || decision.pids.empty()) return malformed(text);
  return decision;
}

}  // namespace ddprun::ddp::shm
