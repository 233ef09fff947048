// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/call_check.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "worker/ddp/error.h"
#include "worker/ddp/named_tensor.h"
#include "worker/shm/decide/format.h"

namespace ddprun::ddp {
namespace {

constexpr char kAsked[] = "calls/compare";
constexpr std::size_t kShownCalls = 4;
constexpr std::chrono::milliseconds kFirstLook = std::chrono::seconds(4);
constexpr std::chrono::milliseconds kShortestWait{1};

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return "sum";
    case ReduceOp::Mean:
      return "mean";
    case ReduceOp::Product:
      return "product";
    case ReduceOp::Min:
      return "min";
    case ReduceOp::Max:
      return "max";
  }
  return "?";
}

std::string kind(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return kind_of(tensor) + (tensor.is_cpu() ? "" : " on " + tensor.device().str());
}

std::vector<std::string> kinds(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string> words;
  for (const at::Tensor& tensor : tensors) words.push_back(kind(tensor));
  return words;
}

std::string with_root(std::optional<int> root) {
  return root ? ", root " + std::to_string(*root) : "";
}

// A call as one text, and back.  No part of one has a line break.
std::string text_of(const Call& call) {
  std::string text = call.words + '\n';
  for (const auto* parts : {&call.tensors, &call.gives, &call.takes}) {
    text += std::to_string(parts->size()) + '\n';
    for (const std::string& part : *parts) text += part + '\n';
  }
  return text;
}

Call call_in(std::string_view text) {
  auto line = [&text] {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string found(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    return found;
  };
  Call call{.words = line()};
  for (auto* parts : {&call.tensors, &call.gives, &call.takes}) {
    for (std::size_t count = std::stoul(line()); count > 0; --count) parts->push_back(line());
  }
  return call;
}

// "" when all ranks say the same.
std::string difference_of_words(const std::vector<std::string>& words) {
  std::vector<std::pair<std::string, std::vector<int>>> ranks_by_words;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    auto same = std::find_if(ranks_by_words.begin(), ranks_by_words.end(),
                             [&](const auto& item) { return item.first == words[rank]; });
    if (same == ranks_by_words.end()) same = ranks_by_words.insert(same, {words[rank], {}});
    same->second.push_back(static_cast<int>(rank));
  }
  if (ranks_by_words.size() < 2) return "";
  std::string text = "the ranks do not call the same: ";
  for (std::size_t i = 0; i < std::min(ranks_by_words.size(), kShownCalls); ++i) {
    const auto& [called, ranks] = ranks_by_words[i];
    text += (i > 0 ? "; " : "") + format_ranks(ranks) + " called " + called;
  }
  if (ranks_by_words.size() > kShownCalls) text += "; others called others";
  return text;
}

std::string difference_of_exchange(const std::vector<Call>& calls) {
  for (std::size_t from = 0; from < calls.size(); ++from) {
    for (std::size_t to = 0; to < calls.size(); ++to) {
      if (calls[from].gives.size() <= to || calls[to].takes.size() <= from) continue;
      const std::string& given = calls[from].gives[to];
      const std::string& taken = calls[to].takes[from];
      if (given == taken) continue;
      return "rank " + std::to_string(from) + " gives rank " + std::to_string(to) + " " + given +
             ", and that one takes " + taken;
    }
  }
  return "";
}

}  // namespace

Call call_of(const char* name, const at::Tensor& tensor, std::optional<ReduceOp> op,
             std::optional<int> root) {
  const std::string reduction = op ? std::string(" (") + name_of(*op) + ")" : "";
  return {.words = name + reduction + " of " + kind(tensor) + with_root(root)};
}

Call call_of(const char* name, std::optional<int> root) {
  return {.words = name + with_root(root)};
}

Call call_of(const char* name, const std::vector<at::Tensor>& tensors, int root) {
  return {.words = name + (" of " + std::to_string(tensors.size())) + " tensors" + with_root(root),
          .tensors = kinds(tensors)};
}

Call call_of(const char* name, const std::vector<at::Tensor>& outputs,
             const std::vector<at::Tensor>& inputs) {
  return {.words = name, .gives = kinds(inputs), .takes = kinds(outputs)};
}

std::string difference_of(const std::vector<Call>& calls) {
  std::vector<std::string> words;
  for (const Call& call : calls) words.push_back(call.words);
  std::string difference = difference_of_words(words);
  for (std::size_t i = 0; difference.empty() && i < calls[0].tensors.size(); ++i) {
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      words[rank] = calls[rank].words + ", of which number " + std::to_string(i) + " is " +
                    calls[rank].tensors[i];
    }
    difference = difference_of_words(words);
  }
  return difference.empty() ? difference_of_exchange(calls) : difference;
}

bool CallCheck::is_asked_for(const std::optional<std::string>& debug_level) {
  std::string level = debug_level.value_or("");
  std::transform(level.begin(), level.end(), level.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return level == "DETAIL";
}

void CallCheck::ask(c10d::Store& store) {
  store.set(kAsked, std::vector<std::uint8_t>{'1'});
}

std::unique_ptr<CallCheck> CallCheck::agreed(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                             int world_size, std::chrono::milliseconds timeout,
                                             std::shared_ptr<PeerFailures> peer_failures) {
  if (world_size == 1 || !store->check({kAsked})) return nullptr;
  return std::unique_ptr<CallCheck>(
      new CallCheck(store, rank, world_size, timeout, std::move(peer_failures)));
}

CallCheck::CallCheck(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
                     std::chrono::milliseconds timeout, std::shared_ptr<PeerFailures> peer_failures)
    : store_(std::move(store)),
      rank_(rank),
      world_size_(world_size),
      timeout_(timeout),
      peer_failures_(std::move(peer_failures)) {}

std::string CallCheck::key(std::uint64_t number, int rank) const {
  return "calls/" + std::to_string(number) + "/" + std::to_string(rank);
}

void CallCheck::compare(const Call& call) {
  const std::string text = text_of(call);
  store_->set(key(number_, rank_), std::vector<std::uint8_t>(text.begin(), text.end()));
  wait_for_all(call);
  std::vector<Call> calls;
  for (int rank = 0; rank < world_size_; ++rank) {
    calls.push_back(call_in(store_->get_to_str(key(number_, rank))));
  }
  // All have come here, so none reads the keys of the call before.
  if (number_ > 0) store_->deleteKey(key(number_ - 1, rank_));
  ++number_;
  const std::string difference = difference_of(calls);
  if (!difference.empty()) throw DdpError(difference);
}

// Of a rank that has ended the store does not know, so this one looks now and then.  A rank that
// gives up tries again with the same number, so that the late one still finds it.
void CallCheck::wait_for_all(const Call& call) const {
  using Clock = std::chrono::steady_clock;
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_size_; ++rank) keys.push_back(key(number_, rank));
  const auto deadline = Clock::now() + timeout_;
  for (std::chrono::milliseconds pause = kFirstLook;; pause *= 2) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    const std::vector<int> missing = wait_for(keys, std::clamp(left, kShortestWait, pause));
    if (missing.empty()) return;
    if (const std::string ended = peer_failures_->gone_ranks(); !ended.empty()) {
      throw DdpError(ended + " while others wait for it in " + call.words);
    }
    if (Clock::now() < deadline) continue;
    throw DdpError(format_ranks(missing) + " of " + std::to_string(world_size_) +
                   " did not come within " + format_seconds(timeout_) + " to " + call.words);
  }
}

// The ranks whose keys are not there when the time is over.
std::vector<int> CallCheck::wait_for(const std::vector<std::string>& keys,
                                     std::chrono::milliseconds time) const {
  std::vector<int> missing;
  try {
    store_->wait(keys, time);
    return missing;
  } catch (const c10::Error&) {
    for (int rank = 0; rank < world_size_; ++rank) {
      if (!store_->check({keys[static_cast<std::size_t>(rank)]})) missing.push_back(rank);
    }
  }
  return missing;
}

}  // namespace ddprun::ddp
