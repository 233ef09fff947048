// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/large_request.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "store/base/check.h"
#include "store/base/variant.h"
#include "store/decide/effort.h"
#include "store/decide/listed.h"
#include "store/decide/values_reply.h"

namespace ddprun::store {
namespace {

bool needs_snapshot(const Request& request) {
  return std::holds_alternative<request::Check>(request) ||
         std::holds_alternative<request::MultiGet>(request) ||
         std::holds_alternative<request::ListKeys>(request);
}

std::size_t effort_of(std::string_view name) {
  return 1 + name.size() / effort::kHashedBytes;
}

std::size_t effort_of(const KeyValue& pair) {
  return effort_of(pair.key) + pair.value.size() / effort::kBytes;
}

template <class Items>
std::size_t effort_of_all(const Items& items) {
  std::size_t effort = 0;
  for (const auto& item : items) effort += effort_of(item);
  return effort;
}

std::size_t effort_of_all(const std::span<const KeyValue>& pairs, const Entries& entries) {
  std::size_t effort = effort_of_all(pairs);
  for (const KeyValue& pair : pairs) effort += entries.effort_to_free(pair.key);
  return effort;
}

std::size_t effort_of_append(const request::Append& r, const Entries& entries) {
  std::size_t effort = effort_of(KeyValue{r.key, r.value});
  const Node* node = entries.find(r.key);
  if (node == nullptr || !node->entry.value.must_move_for(r.value.size())) return effort;
  return effort + node->entry.value.size() / effort::kBytes;
}

}  // namespace

// Asked for every request.
std::size_t effort_of(const Request& request, const Entries& entries) {
  return std::visit(
      Overloaded{
          [](const auto&) { return std::size_t{1}; },
          [&](const request::Set& r) {
            return effort_of(KeyValue{r.key, r.value}) + entries.effort_to_free(r.key);
          },
          [](const request::CompareSet& r) {  // what it replaces is as large as what is expected
            return effort_of(KeyValue{r.key, r.desired}) + r.expected.size() / effort::kBytes;
          },
          [&](const request::DeleteKey& r) {
            return effort_of(r.key) + entries.effort_to_free(r.key);
          },
          [](const request::Get& r) { return effort_of(r.key); },
          [](const request::Add& r) { return effort_of(r.key); },
          [](const request::QueuePush& r) {
            return effort_of(KeyValue{r.queue, r.value});
          },
          [](const request::LastWill& r) {
            return effort_of(KeyValue{r.queue, r.item});
          },
          [](const request::Check& r) { return effort_of_all(r.keys); },
          [](const request::Wait& r) { return effort_of_all(r.keys); },
          [](const request::MultiGet& r) { return effort_of_all(r.keys); },
          [&](const request::MultiSet& r) { return effort_of_all(r.pairs, entries); },
          [&](const request::Append& r) { return effort_of_append(r, entries); },
          [&](const request::ListKeys&) {
            return 1 + entries.table().size() + entries.name_bytes() / effort::kBytes;
          },
      },
      request);
}

bool has_steps(const Request& request) {
  return needs_snapshot(request) || std::holds_alternative<request::Wait>(request) ||
         std::holds_alternative<request::MultiSet>(request) ||
         std::holds_alternative<request::Append>(request);
}

// One step of each operation.  `effort` is what is left of it.
struct LargeRequest::Steps {
  static constexpr std::size_t kCopiedPieceBytes = 256 * 1024;

  LargeRequest& self;
  const Context& context;
  std::size_t effort;

  static Progress done(std::optional<std::string> fault = {}) { return {true, std::move(fault)}; }
  static Progress unfinished() { return {false, {}}; }

  bool has_effort(std::size_t needed = 1) {
    bool is_left = effort > 0;
    effort -= std::min(effort, needed);
    return is_left;
  }

  Progress operator()(const request::Check& r) {
    bool is_missing = false;
    bool is_last = walk(r.keys, [&](std::string_view key, Hash hash) {
      is_missing = !existed(key, hash);
      return !is_missing;
    });
    if (!is_missing && !is_last) return unfinished();
    context.reply(reply::Byte{is_missing ? kNotReady : kReady});
    return done();
  }

  Progress operator()(const request::MultiGet& r) {
    ValuesReply values(context, std::min(effort, r.keys.size() - self.next_));
    bool is_last = walk(r.keys, [&](std::string_view key, Hash hash) {
      values.add(held(key, hash));
      return true;
    });
    values.finish();
    return is_last ? done() : unfinished();
  }

  // First the table, from the lowest hash to the highest; then the names that changed before the
  // table was read that far.
  Progress operator()(const request::ListKeys&) {
    Snapshot& snapshot = self.snapshot_;
    while (std::optional<Hash> next = snapshot.needed_from()) {
      if (!has_effort()) return unfinished();
      snapshot.need_from(
          self.entries_.table().visit_some(*next, [this](const Node& node) { list(node); }));
    }
    if (!self.next_saved_) self.next_saved_ = snapshot.begin();
    for (auto& saved = *self.next_saved_; saved != snapshot.end(); ++saved) {
      if (!has_effort()) return unfinished();
      if (saved->second.value) context.reply(listed(saved->first));
    }
    return done();
  }

  Progress operator()(const request::Wait& r) {
    std::optional<std::string> fault;
    bool is_last = walk(r.keys, [&](std::string_view key, Hash hash) {
      fault = wait_for(key, hash);
      return !fault;
    });
    if (fault) {
      self.waits_.end(*self.wait_);
      return done(std::move(fault));
    }
    if (!is_last) return unfinished();
    self.waits_.name_exists(context, *self.wait_);  // for the one that the constructor added
    return done();
  }

  Progress operator()(const request::MultiSet& r) {
    auto key_of = [&](std::size_t i) { return r.pairs[i].key; };
    auto set = [&](std::size_t i, Hash hash) {
      const KeyValue& pair = r.pairs[i];
      Node* old = self.entries_.find(pair.key, hash);
      std::size_t freed = old != nullptr ? self.entries_.effort_to_free(*old) : 0;
      if (!has_effort(effort_of(pair) + freed)) return false;
      self.keep_promise(1, cost::of_pair(pair));
      Node& node = old != nullptr ? *old : self.entries_.find_or_create(pair.key, hash);
      self.entries_.set(node, pair.value);
      self.waits_.wake_all(context, node);
      return true;
    };
    self.next_ = self.entries_.table().walk(self.next_, r.pairs.size(), key_of, set);
    return self.next_ == r.pairs.size() ? done() : unfinished();
  }

  // What the key holds is copied if there is no room behind it.  A reference to it shows whether it
  // still holds the same in the end; nobody else can have appended to it meanwhile.
  Progress operator()(const request::Append& r) {
    Node* node = self.entries_.find(r.key);
    std::size_t old_bytes = node != nullptr ? node->entry.value.size() : 0;
    if (!self.entries_.has_room_for(self.client_, r.key, old_bytes + r.value.size()))
      return done(no_room("APPEND", r.key));
    if (node == nullptr) node = &self.entries_.find_or_create(r.key);
    if (node->entry.value && node->entry.value.must_move_for(r.value.size())) {
      const Value held = node->entry.value;
      if (!held.is_same_as(self.old_)) {
        self.old_ = held;
        self.grown_ = Value::with_room(held.size() + held.size() / 2 + r.value.size());
      }
      while (self.grown_.size() < held.size()) {
        if (!has_effort(kCopiedPieceBytes / effort::kBytes)) return unfinished();
        self.grown_.append(held.view().substr(self.grown_.size(), kCopiedPieceBytes));
      }
      if (!prepare(self.grown_, r.value.size())) return unfinished();
      self.entries_.append_to(*node, std::move(self.grown_), r.value);
    } else {
      if (!prepare(node->entry.value, r.value.size())) return unfinished();
      self.entries_.append(*node, r.value);
    }
    self.waits_.wake_all(context, *node);
    return done();
  }

  template <class Small>
  Progress operator()(const Small&) {
    check(false, "a small request was begun as a large one");
    return done();
  }

 private:
  // Most of what it costs to append much is to get memory from the system, where there is room.
  bool prepare(Value& value, std::size_t bytes) {
    for (; self.prepared_ + kCopiedPieceBytes < bytes; self.prepared_ += kCopiedPieceBytes) {
      if (!has_effort(kCopiedPieceBytes / effort::kBytes)) return false;
      value.touch_room(self.prepared_, kCopiedPieceBytes);
    }
    return true;
  }

  // Calls visit(key, hash) from the next key on, as far as the effort goes, until that answers
  // false.  Answers whether all have been visited.
  template <class Visit>
  bool walk(std::span<const std::string_view> keys, Visit visit) {
    auto key_of = [&](std::size_t i) { return keys[i]; };
    self.next_ =
        self.entries_.table().walk(self.next_, keys.size(), key_of, [&](std::size_t i, Hash hash) {
          return has_effort(effort_of(keys[i])) && visit(keys[i], hash);
        });
    return self.next_ == keys.size();
  }

  bool existed(std::string_view name, Hash hash) const {
    const Snapshot::Saved* saved = self.snapshot_.find(name);
    return saved != nullptr ? saved->existed : exists(self.entries_.find(name, hash));
  }

  Value held(std::string_view name, Hash hash) const {
    if (const Snapshot::Saved* saved = self.snapshot_.find(name)) return saved->value;
    const Node* node = self.entries_.find(name, hash);
    return node != nullptr ? node->entry.value : Value();
  }

  void list(const Node& node) {
    has_effort(1 + node.name().size() / effort::kBytes);
    if (!node.entry.value || self.snapshot_.find(node.name()) != nullptr) return;
    context.reply(listed(node.name()));
  }

  std::optional<std::string> wait_for(std::string_view name, Hash hash) {
    Node* node = self.entries_.find(name, hash);
    if (exists(node)) return std::nullopt;
    if (self.waits_.awaited_names(self.client_) >= self.limits_.max_awaited_keys) {
      return "waits for more than " + std::to_string(self.limits_.max_awaited_keys) +
             " keys at once";
    }
    std::size_t new_bytes = node == nullptr ? name.size() + cost::kName : 0;
    if (self.budget_.room_bytes(self.client_) < new_bytes + cost::kAwaitedName) {
      return no_room("WAIT", name);
    }
    self.waits_.add_link(*self.wait_,
                         node != nullptr ? *node : self.entries_.find_or_create(name, hash));
    return std::nullopt;
  }
};

LargeRequest::LargeRequest(const KeyspaceLimits& limits, Budget& budget, Entries& entries,
                           Waits& waits, const Context& context, const Request& request)
    : limits_(limits),
      budget_(budget),
      entries_(entries),
      waits_(waits),
      client_(context.client),
      request_(request),
      snapshot_(entries.table().seed()) {
  if (needs_snapshot(request)) entries_.save_changes_in(&snapshot_);
  if (const auto* set = std::get_if<request::MultiSet>(&request)) {
    promised_keys_ = set->pairs.size();
    for (const KeyValue& pair : set->pairs) promised_bytes_ += cost::of_pair(pair);
    budget_.promise(promised_keys_, promised_bytes_);
  } else if (const auto* wait = std::get_if<request::Wait>(&request)) {
    wait_ = &waits_.add(context, WaitKind::Names, wait->keys.size());
    wait_->names_left = 1;  // so that it does not end before all names have been looked at
  } else if (std::holds_alternative<request::ListKeys>(request)) {
    context.reply(reply::Number{static_cast<std::int64_t>(budget_.usage().keys)});
  }
}

LargeRequest::~LargeRequest() {
  keep_promise(promised_keys_, promised_bytes_);
  entries_.save_changes_in(nullptr);
}

void LargeRequest::keep_promise(std::size_t keys, std::size_t bytes) {
  promised_keys_ -= keys;
  promised_bytes_ -= bytes;
  budget_.keep_promise(keys, bytes);
}

LargeRequest::Progress LargeRequest::proceed(std::size_t effort, MonoTime now, Replies& replies) {
  Context context{client_, now, &replies};
  Progress progress = std::visit(Steps{*this, context, effort}, request_);
  if (progress.is_done) {
    for (Outgoing& late : late_) replies.push_back(std::move(late));
    late_.clear();
  }
  return progress;
}

void LargeRequest::hold_back(Replies& replies, std::size_t first) {
  auto begin = replies.begin() + static_cast<std::ptrdiff_t>(first);
  auto is_early = [&](const Outgoing& one) { return one.to != client_; };
  auto late = std::stable_partition(begin, replies.end(), is_early);
  std::move(late, replies.end(), std::back_inserter(late_));
  replies.erase(late, replies.end());
}

}  // namespace ddprun::store
