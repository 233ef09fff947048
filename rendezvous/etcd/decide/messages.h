// SPDX-License-Identifier: BSD-3-Clause
//
// What is said to etcd, and what it answers: the JSON of its HTTP gateway (/v3), in which keys and
// values are base64 and 64-bit numbers are texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::etcd {

struct KeyValue {
  std::string key;
  std::string value;
  std::int64_t lease = 0;     // 0: it stays until it is removed
  std::int64_t revision = 0;  // read: at which it was last written; it only grows

  friend bool operator==(const KeyValue&, const KeyValue&) = default;
};

// Carried out as a whole or not at all.
struct Txn {
  // The key has not been written since this revision; 0: it is not there.
  struct Condition {
    std::string key;
    std::int64_t revision = 0;
  };

  std::vector<Condition> conditions;  // that must all hold
  std::vector<KeyValue> puts;         // then
  std::vector<std::string> removals;  // then, keys
};

struct TxnReply {
  bool has_happened = false;
  std::vector<KeyValue> read;  // of the keys that were wanted, those that are there
};

struct Lease {
  std::int64_t id = 0;
  Duration ttl{};  // that etcd has chosen; zero: it is over
};

std::string encode_read(const std::vector<std::string>& keys);
std::string encode_txn(const Txn& txn);
// In whole seconds, at least one.
std::string encode_grant(Duration ttl);
std::string encode_lease(std::int64_t id);  // to keep it alive
std::string encode_login(const std::string& user, const std::string& password);

// Fail with Errc::Protocol and what is wrong with `text`.
Result<TxnReply> decode_txn(std::string_view text);
Result<Lease> decode_lease(std::string_view text);  // of a grant, or of a keep-alive
Result<std::string> decode_token(std::string_view text);

// What a member says where it does not do what it was asked for.
enum class Refusal {
  TryNext,      // this member cannot: it has no leader, or is about to stop
  LogInAgain,   // the token is no longer known
  NoAuth,       // there are no users here, so that nobody can log in
  LeaseIsOver,  // the lease is not there
  Final,        // no member would do it
};
struct RefusalText {
  Refusal kind = Refusal::Final;
  std::string said;  // in etcd's words, printable
};
RefusalText read_refusal(unsigned http_status, std::string_view body);

}  // namespace ddprun::rendezvous::etcd
