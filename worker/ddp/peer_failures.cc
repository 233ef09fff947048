// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/peer_failures.h"

#include <algorithm>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "worker/ddp/error.h"
#include "worker/ddp/liveness.h"
#include "worker/shm/decide/format.h"

namespace ddprun::ddp {
namespace {

using namespace std::chrono_literals;

// How long a rank that has given up waits for the others to say the same: they began to wait at
// other times.
constexpr std::chrono::milliseconds kMaxSkew = 5s;
constexpr std::chrono::milliseconds kPollInterval = 20ms;

// How long a rank whose connection broke looks for one that is gone: a process ends piece by piece.
// It looks less and less often, since all others look as well.
constexpr std::chrono::milliseconds kMaxLook = 1s;

constexpr char kGone[] = "incident/gone";
constexpr char kLeftOut[] = "left_out";
constexpr char kGaveUp[] = "gave_up";
constexpr char kLiveness[] = "liveness";
constexpr char kSplit[] = "split";

std::string key_of(const char* kind, int rank) {
  return std::string("incident/") + kind + "/" + std::to_string(rank);
}

std::vector<int> ranks_of(const std::map<int, std::string>& reports) {
  std::vector<int> ranks;
  for (const auto& [rank, _] : reports) ranks.push_back(rank);
  return ranks;
}

// Gloo says "Timed out waiting 2000ms for recv operation", and "Application timeout" to a rank that
// comes later.
bool is_timeout(const std::string& problem) {
  return problem.find("imed out") != std::string::npos ||
         problem.find("timeout") != std::string::npos;
}

// Whether a connection may have broken; else it is what this rank itself has asked for.
bool is_of_transport(const std::string& problem) {
  for (const char* word : {"onnect", "transport", "ocket", "roken pipe", "peer", "NCCL"}) {
    if (problem.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::string left_out_sentence(const std::map<int, std::string>& parameters_by_rank) {
  std::string text;
  for (const auto& [rank, parameters] : parameters_by_rank) {
    text +=
        (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " left out the " + parameters;
  }
  return text +
         ": the backward pass gave no gradient there; every step must use the same parameters on "
         "all ranks, or find_unused_parameters be set";
}

PeerFailures::PeerFailures(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
                           std::chrono::milliseconds timeout)
    : store_(std::move(store)), rank_(rank), world_size_(world_size), timeout_(timeout) {}

void PeerFailures::use_liveness(const Endpoint* own) {
  has_liveness_ = true;
  if (!own) return;
  try {
    store_->set(key_of(kLiveness, rank_), to_string(*own));
  } catch (const std::exception&) {
    // Then this rank is never known to be gone.
  }
}

void PeerFailures::set_left_out(const void* owner, const std::vector<std::string>& names,
                                bool may_follow) {
  std::string words = format_parameters(names);
  {
    std::lock_guard lock(mutex_);
    left_out_[owner] = {words, names, may_follow};
  }
  try {
    store_->set(key_of(kLeftOut, rank_), words);
  } catch (const std::exception&) {
    // Said by check() and, to this rank, by diagnose() all the same.
  }
}

void PeerFailures::clear_left_out(const void* owner) {
  std::lock_guard lock(mutex_);
  if (left_out_.erase(owner) == 0 || !left_out_.empty()) return;
  try {
    store_->deleteKey(key_of(kLeftOut, rank_));
  } catch (const std::exception&) {
    // The next thing that needs the store will say so.
  }
}

void PeerFailures::check() const {
  std::map<int, std::string> all;
  {
    std::lock_guard lock(mutex_);
    if (left_out_.empty()) return;
    all[rank_] = left_out_.begin()->second.words;
  }
  all.merge(reports(kLeftOut));
  throw DdpError(left_out_sentence(all));
}

void PeerFailures::check_collective() {
  std::vector<std::string> names;
  {
    std::lock_guard lock(mutex_);
    if (left_out_.empty()) return;
    bool all_may_follow = true;
    for (const auto& [_, left_out] : left_out_) {
      all_may_follow = all_may_follow && left_out.may_follow;
      names.insert(names.end(), left_out.names.begin(), left_out.names.end());
    }
    if (!all_may_follow) names.clear();
  }
  if (names.empty()) return check();
  std::sort(names.begin(), names.end());
  std::string mine;
  for (const std::string& name : names) mine += name + '\n';
  const std::string kind = kSplit + std::string(1, '/') + std::to_string(split_collectives_);
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_size_; ++rank) keys.push_back(key_of(kind.c_str(), rank));
  bool is_same = true;
  try {
    store_->set(keys[static_cast<std::size_t>(rank_)], mine);
    store_->wait(keys, timeout_);
    for (const std::string& key : keys) is_same = is_same && store_->get_to_str(key) == mine;
    // All have come here, so none reads the keys of the time before.
    if (split_collectives_ > 0) {
      const std::string last =
          kSplit + std::string(1, '/') + std::to_string(split_collectives_ - 1);
      store_->deleteKey(key_of(last.c_str(), rank_));
    }
  } catch (const std::exception&) {  // a rank did not come
    is_same = false;
  }
  ++split_collectives_;
  if (!is_same) check();
}

std::map<int, std::string> PeerFailures::reports(const char* kind) const {
  std::map<int, std::string> found;
  try {
    for (int rank = 0; rank < world_size_; ++rank) {
      std::string key = key_of(kind, rank);
      if (store_->check({key})) found[rank] = store_->get_to_str(key);
    }
  } catch (const std::exception&) {
    // What was found by then is better than nothing.
  }
  return found;
}

std::string PeerFailures::missing_after_timeout() {
  try {
    store_->set(key_of(kGaveUp, rank_), "1");
  } catch (const std::exception&) {
    return "";
  }
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_size_; ++rank) keys.push_back(key_of(kGaveUp, rank));
  try {
    // One request, that the store answers when all are there: many ranks ask the same.
    store_->wait(keys, std::min(timeout_ / 2, kMaxSkew));
  } catch (const std::exception&) {
    // A rank is missing.
  }
  const std::map<int, std::string> here = reports(kGaveUp);
  std::vector<int> missing;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!here.contains(rank)) missing.push_back(rank);
  }
  if (missing.empty() || !here.contains(rank_)) return "";
  return format_ranks(missing) + " of " + std::to_string(world_size_) + " did not come within " +
         format_seconds(timeout_);
}

// What another rank has seen, "" when none has.
std::string PeerFailures::reported_gone() const {
  try {
    if (store_->check({kGone})) return store_->get_to_str(kGone);
  } catch (const std::exception&) {
    // The store is lost as well.
  }
  return "";
}

// Ranks that have heard of it end as well, so the store keeps what the first of them saw.
std::string PeerFailures::gone() const {
  std::vector<Endpoint> endpoints(static_cast<std::size_t>(world_size_));
  for (const auto& [rank, text] : reports(kLiveness)) {
    Result<Endpoint> endpoint = parse_endpoint(text, 0);
    if (endpoint) endpoints[static_cast<std::size_t>(rank)] = std::move(*endpoint);
  }
  const auto limit = std::chrono::steady_clock::now() + kMaxLook;
  std::string seen;
  for (auto pause = kPollInterval; seen.empty(); pause *= 2) {
    std::vector<int> ranks;
    for (std::size_t rank : closed_peers(endpoints, kMaxLook))
      ranks.push_back(static_cast<int>(rank));
    if (!ranks.empty()) {
      seen = format_ranks(ranks) + " of " + std::to_string(world_size_) +
             (ranks.size() == 1 ? " has" : " have") + " ended or left the group";
    }
    try {
      const std::vector<std::uint8_t> own(seen.begin(), seen.end());
      const std::vector<std::uint8_t> first = store_->compareSet(kGone, {}, own);
      if (!first.empty()) return {first.begin(), first.end()};
    } catch (const std::exception&) {
      // What this rank sees by itself is better than nothing.
    }
    if (std::chrono::steady_clock::now() + pause > limit) break;
    std::this_thread::sleep_for(pause);
  }
  return seen;
}

std::string PeerFailures::gone_ranks() const {
  return has_liveness_ ? gone() : "";
}

std::string PeerFailures::diagnose(const std::string& problem) {
  std::map<int, std::string> left_out = reports(kLeftOut);
  if (!left_out.empty()) return left_out_sentence(left_out) + " (" + problem + ")";
  if (const std::string ended = reported_gone(); !ended.empty()) {
    return ended + " (" + problem + ")";
  }
  std::map<int, std::string> gave_up = reports(kGaveUp);
  if (!gave_up.empty() && !gave_up.contains(rank_)) {
    std::string missing = is_timeout(problem) ? missing_after_timeout() : "";
    if (!missing.empty()) return missing + " (" + problem + ")";
    return format_ranks(ranks_of(gave_up)) + " of " + std::to_string(world_size_) +
           " gave up after " + format_seconds(timeout_) + " (" + problem + ")";
  }
  if (!is_timeout(problem)) {
    const std::string ended = is_of_transport(problem) ? gone_ranks() : "";
    return ended.empty() ? problem : ended + " (" + problem + ")";
  }
  std::string missing = missing_after_timeout();
  return missing.empty() ? problem : missing + " (" + problem + ")";
}

}  // namespace ddprun::ddp
