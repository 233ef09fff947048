// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/keyspace_model.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>

#include "store/base/variant.h"
#include "store/decide/queues.h"
#include "tests/support/reply_text.h"

namespace ddprun::test {
using namespace store;

namespace {

constexpr std::size_t kFew = 4;
constexpr std::size_t kCrowd = 1024;
constexpr std::array<std::string_view, 4> kValues{"7", "text", "", "-9"};
constexpr std::size_t kClients = 5;

// A few that most requests are about, and the crowd.
const std::vector<std::string>& names() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names{"a", "b", "c", "d"};
    for (std::size_t i = 0; i < kCrowd; ++i) names.push_back("crowd/" + std::to_string(i));
    return names;
  }();
  return all;
}

// The replies in the model's words.
Answers in_words(const Replies& replies) {
  Answers answers;
  for (const Outgoing& outgoing : replies) {
    std::string& text = answers[outgoing.to];
    std::visit(Overloaded{
                   [&](const reply::Byte& r) { text += std::to_string(r.value) + ";"; },
                   [&](const reply::Nonce& r) { text += std::to_string(r.value) + ";"; },
                   [&](const reply::Number& r) { text += std::to_string(r.value) + ";"; },
                   [&](const reply::Bytes& r) { text += std::string(r.value.view()) + ";"; },
                   [&](const reply::Run& r) {
                     for (std::string_view value : values_of(r)) text += std::string(value) + ";";
                   },
               },
               outgoing.reply);
  }
  return answers;
}

std::string to_string(const Answers& answers) {
  std::string text;
  for (const auto& [client, words] : answers) text += std::to_string(client) + ": " + words + " ";
  return text;
}

// LIST_KEYS has no order: the names in the answer to `client`, its last replies, are put in theirs.
void sort_names(ClientId client, Replies& replies) {
  auto is_other = [&](const Outgoing& one) {
    return one.to != client || !std::holds_alternative<reply::Bytes>(one.reply);
  };
  auto names = std::find_if(replies.rbegin(), replies.rend(), is_other).base();
  auto text = [](const Outgoing& one) { return std::get<reply::Bytes>(one.reply).value.view(); };
  std::sort(names, replies.end(),
            [&](const Outgoing& a, const Outgoing& b) { return text(a) < text(b); });
}

// The same where more than the names was answered: behind the number of them.
void sort_listed(Replies::iterator number) {
  Replies names(number, number + 1 + std::get<reply::Number>(number->reply).value);
  sort_names(number->to, names);
  std::move(names.begin(), names.end(), number);
}

}  // namespace

std::size_t KeyspaceModel::free_items(const std::string& queue) {
  auto is_held = [&](const Hold& hold) { return hold.queue == queue; };
  return queues[queue].size() -
         static_cast<std::size_t>(std::count_if(holds.begin(), holds.end(), is_held));
}

void KeyspaceModel::set(const std::string& key, const std::string& value) {
  keys[key] = value;
  key_came(key);
}

void KeyspaceModel::key_came(const std::string& key) {
  for (std::size_t i = 0; i < waits.size();) {
    Wait& wait = waits[i];
    bool concerns = wait.kind != Kind::Take && drop_name(wait, key);
    if (!concerns || !wait.names.empty() || wait.is_open) {
      ++i;
      continue;
    }
    say(wait.client, "0");
    waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// What is no number here begins with a letter or is empty; APPEND may make one too long.
std::optional<std::int64_t> KeyspaceModel::add(const std::string& key, std::int64_t delta) {
  std::string text = keys.contains(key) ? keys[key] : "0";
  std::size_t sign = text.starts_with('-') ? 1 : 0;
  if (text.size() == sign || std::isdigit(text[sign]) == 0) return std::nullopt;
  std::int64_t sum = 0;
  try {
    bool overflows = __builtin_add_overflow(std::stoll(text), delta, &sum);
    return overflows ? std::nullopt : std::optional(sum);
  } catch (const std::out_of_range&) {
    return std::nullopt;
  }
}

void KeyspaceModel::pop(ClientId client, const std::string& queue) {
  auto& items = queues[queue];
  say(client, std::to_string(items.size()));
  say(client, items.front());
  items.pop_front();
}

void KeyspaceModel::push(const std::string& queue, const std::string& item, MonoTime now) {
  queues[queue].push_back(item);
  offer(queue, now);
}

void KeyspaceModel::offer(const std::string& queue, MonoTime now) {
  while (free_items(queue) > 0) {
    auto [first, index] = first_for(queue);
    if (first == waits.end()) return;
    Wait ended = *first;
    first->names.erase(first->names.begin() + index);
    first->places.erase(first->places.begin() + index);
    if (!first->names.empty() || first->is_open) continue;
    waits.erase(first);
    if (ended.kind == Kind::Take) {
      pop(ended.client, queue);
      continue;
    }
    if (ended.kind == Kind::One) holds.push_back({ended.client, queue, now});
    say(ended.client, "0");
  }
}

void KeyspaceModel::release(ClientId client, const std::optional<std::string>& except,
                            MonoTime now) {
  // The latest first: a client that waits for several of these queues hears in this order.
  std::vector<std::string> freed;
  for (std::size_t i = holds.size(); i-- > 0;) {
    if (holds[i].client != client || holds[i].queue == except) continue;
    std::string queue = holds[i].queue;
    if (std::find(freed.begin(), freed.end(), queue) == freed.end()) freed.push_back(queue);
    holds.erase(holds.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (const std::string& queue : freed) offer(queue, now);
}

void KeyspaceModel::leave(ClientId client, MonoTime now) {
  std::erase_if(waits, [&](const Wait& wait) { return wait.client == client; });
  release(client, std::nullopt, now);
  auto will = wills.extract(client);
  if (will) push(will.mapped().first, will.mapped().second, now);
}

void KeyspaceModel::expire(MonoTime now) {
  while (!holds.empty() && holds.front().since + Queues::kHold <= now) {
    std::string queue = holds.front().queue;
    holds.erase(holds.begin());
    offer(queue, now);
  }
  for (;;) {
    auto first = waits.end();
    for (auto wait = waits.begin(); wait != waits.end(); ++wait) {
      bool is_due = wait->kind == Kind::Take && wait->deadline <= now;
      if (is_due && (first == waits.end() || wait->deadline < first->deadline)) first = wait;
    }
    if (first == waits.end()) return;
    say(first->client, "0");
    waits.erase(first);
  }
}

void KeyspaceModel::wait(ClientId client, std::vector<std::string> names, MonoTime now) {
  if (names.size() == 1) {
    bool has_item = free_items(names[0]) > 0;
    if (has_item) holds.push_back({client, names[0], now});
    if (has_item || keys.contains(names[0])) return say(client, "0");
    return await(client, Kind::One, names);
  }
  std::erase_if(names, [&](const std::string& name) { return exists(name); });
  if (names.empty()) return say(client, "0");
  await(client, Kind::Names, names);
}

void KeyspaceModel::await(ClientId client, Kind kind, std::vector<std::string> names,
                          MonoTime deadline) {
  Wait& wait = waits.emplace_back(Wait{client, kind, std::move(names), deadline});
  for (std::size_t i = 0; i < wait.names.size(); ++i) wait.places.push_back(++last_place);
}

// Who came first to wait for `name`, and with which of its names.
std::pair<std::vector<KeyspaceModel::Wait>::iterator, std::ptrdiff_t> KeyspaceModel::first_for(
    const std::string& name) {
  auto first = waits.end();
  std::size_t index = 0;
  for (auto wait = waits.begin(); wait != waits.end(); ++wait) {
    for (std::size_t i = 0; i < wait->names.size(); ++i) {
      if (wait->names[i] != name) continue;
      if (first != waits.end() && first->places[index] < wait->places[i]) continue;
      first = wait;
      index = i;
    }
  }
  return {first, static_cast<std::ptrdiff_t>(index)};
}

bool KeyspaceModel::drop_name(Wait& wait, const std::string& name) {
  std::size_t before = wait.names.size();
  for (std::size_t i = wait.names.size(); i-- > 0;) {
    if (wait.names[i] != name) continue;
    wait.names.erase(wait.names.begin() + static_cast<std::ptrdiff_t>(i));
    wait.places.erase(wait.places.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return wait.names.size() < before;
}

std::vector<KeyspaceModel::Wait>::iterator KeyspaceModel::open_wait_of(ClientId client) {
  return std::find_if(waits.begin(), waits.end(),
                      [&](const Wait& wait) { return wait.client == client && wait.is_open; });
}

void KeyspaceModel::open_wait(ClientId client) {
  await(client, Kind::Names, {});
  waits.back().is_open = true;
}

void KeyspaceModel::extend_wait(ClientId client, const std::string& name) {
  if (exists(name)) return;
  auto wait = open_wait_of(client);
  wait->names.push_back(name);
  wait->places.push_back(++last_place);
}

void KeyspaceModel::close_wait(ClientId client) {
  auto wait = open_wait_of(client);
  wait->is_open = false;
  if (!wait->names.empty()) return;
  waits.erase(wait);
  say(client, "0");
}

struct KeyspaceModel::Execution {
  KeyspaceModel& model;
  ClientId client;
  MonoTime now;

  bool operator()(const request::Set& r) {
    model.set(std::string(r.key), std::string(r.value));
    return true;
  }
  bool operator()(const request::CompareSet& r) {
    std::string key(r.key);
    bool is_present = model.keys.contains(key);
    std::string answer = is_present ? model.keys[key] : std::string(r.expected);
    bool stores = is_present ? model.keys[key] == r.expected : r.expected.empty();
    if (stores) model.set(key, answer = std::string(r.desired));
    model.say(client, answer);
    return true;
  }
  bool operator()(const request::Get& r) {
    model.say(client, model.get(std::string(r.key)));
    return true;
  }
  bool operator()(const request::Add& r) {
    std::optional<std::int64_t> sum = model.add(std::string(r.key), r.delta);
    if (!sum) return false;
    model.set(std::string(r.key), std::to_string(*sum));
    model.say(client, std::to_string(*sum));
    return true;
  }
  bool operator()(const request::Check& r) {
    bool all = std::all_of(r.keys.begin(), r.keys.end(),
                           [&](auto key) { return model.exists(std::string(key)); });
    model.say(client, all ? "0" : "1");
    return true;
  }
  bool operator()(const request::Wait& r) {
    model.wait(client, {r.keys.begin(), r.keys.end()}, now);
    return true;
  }
  bool operator()(const request::GetNumKeys&) {
    model.say(client, std::to_string(model.keys.size()));
    return true;
  }
  bool operator()(const request::DeleteKey& r) {
    model.say(client, std::to_string(model.keys.erase(std::string(r.key))));
    return true;
  }
  bool operator()(const request::Append& r) {
    model.set(std::string(r.key), model.get(std::string(r.key)) + std::string(r.value));
    return true;
  }
  bool operator()(const request::MultiGet& r) {
    for (auto key : r.keys) model.say(client, model.get(std::string(key)));
    return true;
  }
  bool operator()(const request::MultiSet& r) {
    for (const KeyValue& pair : r.pairs) model.set(std::string(pair.key), std::string(pair.value));
    return true;
  }
  bool operator()(const request::CancelWait&) {
    std::erase_if(model.waits, [&](const Wait& one) { return one.client == client; });
    model.say(client, "1");
    return true;
  }
  bool operator()(const request::QueuePush& r) {
    model.push(std::string(r.queue), std::string(r.value), now);
    return true;
  }
  bool operator()(const request::QueuePop& r) {
    std::string queue(r.queue);
    auto own = std::find_if(model.holds.begin(), model.holds.end(), [&](const Hold& hold) {
      return hold.client == client && hold.queue == queue;
    });
    if (own != model.holds.end()) model.holds.erase(own);
    model.free_items(queue) > 0 ? model.pop(client, queue) : model.say(client, "0");
    return true;
  }
  bool operator()(const request::QueueLen& r) {
    model.say(client, std::to_string(model.queues[std::string(r.queue)].size()));
    return true;
  }
  bool operator()(const request::ListKeys&) {
    model.say(client, std::to_string(model.keys.size()));
    for (const auto& [key, value] : model.keys) model.say(client, key);
    return true;
  }
  bool operator()(const request::Barrier& r) {
    std::string key(r.key);
    std::optional<std::int64_t> count = model.add(key, 1);
    if (!count) return false;
    model.keys[key] = std::to_string(*count);
    if (*count < r.world_size) {
      model.await(client, Kind::Names, {key});
      return true;
    }
    model.say(client, "0");
    model.key_came(key);
    return true;
  }
  bool operator()(const request::QueueTake& r) {
    std::string queue(r.queue);
    if (model.free_items(queue) > 0) return model.pop(client, queue), true;
    if (r.timeout_ms <= 0) return model.say(client, "0"), true;
    auto deadline = now + std::chrono::milliseconds(r.timeout_ms);
    model.await(client, Kind::Take, {queue}, deadline);
    return true;
  }
  bool operator()(const request::LastWill& r) {
    model.wills[client] = {std::string(r.queue), std::string(r.item)};
    model.say(client, "0");
    return true;
  }
  bool operator()(const request::ClearLastWill&) {
    model.wills.erase(client);
    model.say(client, "0");
    return true;
  }
  // Of the server, never of a keyspace.
  bool operator()(const request::Authenticate&) { return false; }
  bool operator()(const request::Prove&) { return false; }
  // What does not concern a keyspace, or does not depend on it.
  bool operator()(const request::Validate&) { return true; }
  bool operator()(const request::EnterNamespace&) { return true; }
  bool operator()(const request::Expect&) {
    model.say(client, "0");
    return true;
  }
  bool operator()(const request::Ping& r) {
    model.say(client, std::to_string(r.nonce));
    return true;
  }
  bool operator()(const request::Probe&) {
    model.say(client, "31");
    return true;
  }
};

bool KeyspaceModel::execute(ClientId client, const Request& request, MonoTime now) {
  const auto* pops = std::get_if<request::QueuePop>(&request);
  release(client, pops ? std::optional(std::string(pops->queue)) : std::nullopt, now);
  return std::visit(Execution{*this, client, now}, request);
}

std::string_view KeyspaceProgram::pick_name() {
  bool is_of_crowd = is_crowded_ && pick_(4) == 0;
  return names()[is_of_crowd ? kFew + pick_(kCrowd) : pick_(kFew)];
}

// A request about some of the crowd, one behind the other; of waits fewer, for the model's sake.
Request KeyspaceProgram::crowd_request() {
  std::size_t kind = pick_(8);
  bool waits = kind == 0;
  std::size_t first = pick_(kCrowd);
  names_.clear();
  pairs_.clear();
  for (std::size_t i = pick_(waits ? 40 : 400); i > 0; --i) {
    names_.push_back(names()[kFew + (first + i) % kCrowd]);
    pairs_.push_back({names_.back(), kValues[i % kValues.size()]});
  }
  if (waits) return request::Wait{names_};
  if (kind == 1) return request::Check{names_};
  if (kind == 2) return request::MultiGet{names_};
  return request::MultiSet{pairs_};
}

void KeyspaceProgram::delete_crowd(Replies& replies) {
  constexpr ClientId kDeleter = kClients + 1;
  std::size_t first = pick_(kCrowd);
  for (std::size_t i = std::min(pick_(2 * kCrowd), kCrowd); i > 0; --i) {
    const std::string& name = names()[kFew + (first + i) % kCrowd];
    if (model_.keys.contains(name)) play(kDeleter, request::DeleteKey{name}, replies);
  }
}

Request KeyspaceProgram::request() {
  if (is_crowded_ && pick_(12) == 0) return crowd_request();
  name_ = pick_name();
  std::string_view value = kValues[pick_(kValues.size())];
  names_.clear();
  pairs_.clear();
  for (std::size_t i = pick_(4); i > 0; --i) {
    names_.push_back(pick_name());
    pairs_.push_back({names_.back(), kValues[pick_(kValues.size())]});
  }
  auto number = [this] { return static_cast<std::int64_t>(pick_(4000)); };
  switch (pick_(26)) {
    case 0:
      return request::Set{name_, value};
    case 1:
      return request::Get{name_};
    case 2:
      return request::Add{name_, number() - 2000};
    case 3:
    case 4:
    case 5:
      return request::DeleteKey{name_};
    case 6:
      return request::Check{names_};
    case 7:
    case 8:
      return request::Wait{names_};
    case 9:
    case 10:
      return names_ = {name_}, request::Wait{names_};
    case 11:
      return request::CancelWait{};
    case 12:
    case 13:
    case 14:
      return request::QueuePush{name_, value};
    case 15:
      return request::QueuePop{name_};
    case 16:
      return request::QueueTake{name_, number()};
    case 17:
      return request::Barrier{name_, static_cast<std::int64_t>(pick_(4))};
    case 18:
      return request::LastWill{name_, value};
    case 19:
      return request::ClearLastWill{};
    case 20:
      return request::CompareSet{name_, kValues[pick_(kValues.size())], value};
    case 21:
      return request::Append{name_, value};
    case 22:
      return request::MultiSet{pairs_};
    case 23:
      return request::MultiGet{names_};
    case 24:
      return request::QueueLen{name_};
    default:
      return pick_(2) == 0 ? Request(request::ListKeys{}) : request::GetNumKeys{};
  }
}

std::string KeyspaceProgram::step() {
  ClientId client = 1 + pick_(kClients);
  Replies replies;
  model_.answers.clear();
  std::size_t what = pick_(40);
  bool leaves = what == 0;
  bool proceeds = large_ && (large_->client == client || what == 2);
  fault_.clear();
  if (proceeds) {
    proceed(1 + pick_(is_crowded_ ? 100 : 2), replies);
    leaves = false;
  } else if (what == 1) {
    now_ += std::chrono::milliseconds(pick_(3000));
    keyspace_.expire(now_, replies);
    model_.expire(now_);
  } else if (what == 3) {
    keyspace_.clean_up(1, now_, replies);
  } else if (what == 4 && is_crowded_) {
    delete_crowd(replies);
  } else if (!leaves) {
    leaves = !play(client, request(), replies);
  }
  if (leaves) {
    keyspace_.disconnect(client, now_, replies);
    model_.leave(client, now_);
  }
  if (large_ && fault_.empty()) fault_ = take_from_large(replies, proceeds);
  most_keys_ = std::max(most_keys_, keyspace_.key_count());
  return fault_.empty() ? difference(replies) : fault_;
}

// A request of `client` on both.  Answers whether it may stay.
bool KeyspaceProgram::play(ClientId client, const Request& asked, Replies& replies) {
  if (!large_ && keyspace_.is_large(asked)) {
    begin_large(client, asked, replies);
    return true;
  }
  auto fault = keyspace_.execute(client, asked, now_, replies);
  if (std::holds_alternative<request::ListKeys>(asked)) sort_names(client, replies);
  bool stays = model_.execute(client, asked, now_);
  if (fault.has_value() == stays) fault_ = "refused by one only: " + fault.value_or("nothing");
  return stays;
}

// What only reads is answered by the model now; the others come about as the keyspace proceeds.
void KeyspaceProgram::begin_large(ClientId client, const Request& asked, Replies& replies) {
  large_.emplace(Large{client, asked, std::move(names_), std::move(pairs_)});
  if (keyspace_.begin(client, asked, now_, replies)) fault_ = "refused by the keyspace";
  auto is_own = [&](const Outgoing& one) { return one.to == client; };
  auto own_count = std::count_if(replies.begin(), replies.end(), is_own);
  if (std::holds_alternative<request::ListKeys>(asked)) {
    large_->listed = static_cast<std::size_t>(own_count) - 1;
  }
  if (std::holds_alternative<request::Wait>(asked)) {
    model_.release(client, std::nullopt, now_);
    model_.open_wait(client);
  } else if (std::holds_alternative<request::MultiSet>(asked)) {
    model_.release(client, std::nullopt, now_);
  } else {
    // The answer may come behind what the release of its items tells the client.
    model_.execute(client, asked, now_);
  }
  large_->expected = std::exchange(model_.answers[client], "");
  model_.answers.erase(client);
  proceed(0, replies);
}

void KeyspaceProgram::proceed(std::size_t effort, Replies& replies) {
  large_->is_done = keyspace_.proceed(effort, now_, replies).is_done;
  proceed_in_model(effort);
}

void KeyspaceProgram::proceed_in_model(std::size_t effort) {
  const auto* set = std::get_if<request::MultiSet>(&large_->request);
  const auto* wait = std::get_if<request::Wait>(&large_->request);
  for (; effort > 0; --effort, ++large_->next) {
    if (set != nullptr && large_->next < set->pairs.size()) {
      const KeyValue& pair = set->pairs[large_->next];
      model_.set(std::string(pair.key), std::string(pair.value));
    } else if (wait != nullptr && large_->next < wait->keys.size()) {
      model_.extend_wait(large_->client, std::string(wait->keys[large_->next]));
    }
  }
  if (wait != nullptr && large_->is_done) model_.close_wait(large_->client);
}

// Puts what concerns the client of the large request aside, and compares it in the end.
std::string KeyspaceProgram::take_from_large(Replies& replies, bool proceeded) {
  ClientId client = large_->client;
  auto is_other = [&](const Outgoing& one) { return one.to != client; };
  auto own = std::stable_partition(replies.begin(), replies.end(), is_other);
  std::move(own, replies.end(), std::back_inserter(large_->got));
  replies.erase(own, replies.end());
  (proceeded ? large_->expected : large_->late) += model_.answers[client];
  model_.answers.erase(client);
  if (!large_->is_done) return "";
  Replies got = std::move(large_->got);
  if (std::holds_alternative<request::ListKeys>(large_->request)) {
    sort_listed(got.begin() + static_cast<std::ptrdiff_t>(large_->listed));
  }
  std::string expected = large_->expected + large_->late;
  std::string answer = in_words(got)[client];
  large_.reset();
  return answer == expected ? "" : "a large answer " + answer + " instead of " + expected;
}

std::string KeyspaceProgram::difference(const Replies& replies) const {
  Answers answers = in_words(replies);
  if (answers != model_.answers) {
    return "answers " + to_string(answers) + "instead of " + to_string(model_.answers);
  }
  if (keyspace_.key_count() != model_.keys.size()) return "the number of keys";
  if (keyspace_.wait_count() != model_.waits.size()) return "the number of waits";
  return "";
}

std::string KeyspaceProgram::finish() {
  Replies ignored;
  while (large_ && !keyspace_.proceed(1, now_, ignored).is_done) continue;
  for (ClientId client = 1; client <= kClients; ++client) {
    keyspace_.disconnect(client, now_, ignored);
  }
  for (std::size_t i = 0; i < (is_crowded_ ? names().size() : kFew); ++i) {
    const std::string& each = names()[i];
    keyspace_.execute(9, request::DeleteKey{each}, now_, ignored);
    for (ignored.clear(); ignored.size() != 1;) {
      ignored.clear();
      keyspace_.execute(9, request::QueuePop{each}, now_, ignored);
    }
  }
  while (keyspace_.needs_cleanup()) keyspace_.clean_up(1, now_, ignored);
  if (keyspace_.bytes() != 0) return std::to_string(keyspace_.bytes()) + " bytes";
  return keyspace_.deadline() ? "a deadline" : "";
}

}  // namespace ddprun::test
