// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/incidents.h"

#include <algorithm>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "worker/ddp/error.h"
#include "worker/ddp/meeting.h"

namespace ddprun::ddp {
namespace {

using namespace std::chrono_literals;

// How long a rank that has given up waits for the others to say the same: they began to wait at
// other times.
constexpr std::chrono::milliseconds kMaxSkew = 5s;
constexpr std::chrono::milliseconds kPollInterval = 20ms;

constexpr char kLeftOut[] = "left_out";
constexpr char kGaveUp[] = "gave_up";

std::string key_of(const char* kind, int rank) {
  return std::string("incident/") + kind + "/" + std::to_string(rank);
}

std::string in_seconds(std::chrono::milliseconds time) {
  std::ostringstream text;
  text << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

std::vector<int> ranks_of(const std::map<int, std::string>& reports) {
  std::vector<int> ranks;
  for (const auto& [rank, _] : reports) ranks.push_back(rank);
  return ranks;
}

// Gloo says "Timed out waiting 2000ms for recv operation", and "Application timeout" to whoever
// comes later.
bool is_timeout(const std::string& problem) {
  return problem.find("imed out") != std::string::npos ||
         problem.find("timeout") != std::string::npos;
}

}  // namespace

std::string parameters_in_words(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxNamed = 8;
  std::string text = names.size() == 1 ? "parameter " : "parameters ";
  std::size_t named = std::min(names.size(), kMaxNamed);
  for (std::size_t i = 0; i < named; ++i) {
    bool is_last = i + 1 == names.size();
    if (i > 0) text += is_last ? " and " : ", ";
    text += names[i];
  }
  if (names.size() > named) text += " and " + std::to_string(names.size() - named) + " more";
  return text;
}

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

Incidents::Incidents(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
                     std::chrono::milliseconds timeout)
    : store_(std::move(store)), rank_(rank), world_size_(world_size), timeout_(timeout) {}

void Incidents::set_left_out(const void* owner, const std::vector<std::string>& names) {
  std::string words = parameters_in_words(names);
  {
    std::lock_guard lock(mutex_);
    left_out_[owner] = words;
  }
  try {
    store_->set(key_of(kLeftOut, rank_), words);
  } catch (const std::exception&) {
    // Said by check() and, to this rank, by explain() all the same.
  }
}

void Incidents::clear_left_out(const void* owner) {
  std::lock_guard lock(mutex_);
  if (left_out_.erase(owner) == 0 || !left_out_.empty()) return;
  try {
    store_->deleteKey(key_of(kLeftOut, rank_));
  } catch (const std::exception&) {
    // The next thing that needs the store will say so.
  }
}

void Incidents::check() const {
  std::map<int, std::string> all;
  {
    std::lock_guard lock(mutex_);
    if (left_out_.empty()) return;
    all[rank_] = left_out_.begin()->second;
  }
  all.merge(reports(kLeftOut));
  throw DdpError(left_out_sentence(all));
}

std::map<int, std::string> Incidents::reports(const char* kind) const {
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

std::string Incidents::missing_after_timeout() {
  try {
    store_->set(key_of(kGaveUp, rank_), "1");
  } catch (const std::exception&) {
    return "";
  }
  const auto limit = std::chrono::steady_clock::now() + std::min(timeout_ / 2, kMaxSkew);
  std::map<int, std::string> here = reports(kGaveUp);
  while (static_cast<int>(here.size()) < world_size_ && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(kPollInterval);
    here = reports(kGaveUp);
  }
  std::vector<int> missing;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!here.contains(rank)) missing.push_back(rank);
  }
  if (missing.empty() || !here.contains(rank_)) return "";
  return ranks_in_words(missing) + " of " + std::to_string(world_size_) + " did not come within " +
         in_seconds(timeout_);
}

std::string Incidents::explain(const std::string& problem) {
  std::map<int, std::string> left_out = reports(kLeftOut);
  if (!left_out.empty()) return left_out_sentence(left_out) + " (" + problem + ")";
  std::map<int, std::string> gave_up = reports(kGaveUp);
  if (!gave_up.empty() && !gave_up.contains(rank_)) {
    std::string missing = is_timeout(problem) ? missing_after_timeout() : "";
    if (!missing.empty()) return missing + " (" + problem + ")";
    return ranks_in_words(ranks_of(gave_up)) + " of " + std::to_string(world_size_) +
           " gave up after " + in_seconds(timeout_) + " (" + problem + ")";
  }
  if (!is_timeout(problem)) return problem;
  std::string missing = missing_after_timeout();
  return missing.empty() ? problem : missing + " (" + problem + ")";
}

}  // namespace ddprun::ddp
