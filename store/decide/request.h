// SPDX-License-Identifier: BSD-3-Clause
//
// The requests of the c10d TCPStore protocol (store/PROTOCOL.md) as values, and their numbers.  A
// new operation begins here and has a row in operation_table.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

namespace ddprun::store {

// The first byte of every request.  operation_table.h has their table.
enum class Op : std::uint8_t {
  Validate = 0,
  Set = 1,
  CompareSet = 2,
  Get = 3,
  Add = 4,
  Check = 5,
  Wait = 6,
  GetNumKeys = 7,
  DeleteKey = 8,
  Append = 9,
  MultiGet = 10,
  MultiSet = 11,
  CancelWait = 12,
  Ping = 13,
  QueuePush = 14,
  QueuePop = 15,
  QueueLen = 16,
  ListKeys = 17,
  Barrier = 18,

  // Ours.  torch's server closes a connection that sends one, so a client probes first.
  Probe = 0x80,
  LastWill = 0x81,
  ClearLastWill = 0x82,
  QueueTake = 0x83,
  EnterNamespace = 0x84,
  Expect = 0x85,
};

// What PROBE is answered: the extensions that this server has, a bit each.
inline constexpr std::uint32_t kHasLastWill = 1;
inline constexpr std::uint32_t kHasQueueTake = 2;
inline constexpr std::uint32_t kHasNamespaces = 4;
inline constexpr std::uint32_t kHasExpect = 8;

// What must follow Op::Validate, first thing on a connection.
inline constexpr std::uint32_t kMagic = 0x3C85F7CE;

struct KeyValue {
  std::string_view key;
  std::string_view value;
};

// One struct per operation.  The views of a decoded request point into the decoder's input and
// die with the next call of the decoder.
namespace request {
struct Validate {
  std::uint32_t magic = kMagic;
};
struct Set {
  std::string_view key, value;
};
struct CompareSet {
  std::string_view key, expected, desired;
};
struct Get {
  std::string_view key;
};
struct Add {
  std::string_view key;
  std::int64_t delta = 0;
};
struct Check {
  std::span<const std::string_view> keys;
};
struct Wait {
  std::span<const std::string_view> keys;
};
struct GetNumKeys {};
struct DeleteKey {
  std::string_view key;
};
struct Append {
  std::string_view key, value;
};
struct MultiGet {
  std::span<const std::string_view> keys;
};
struct MultiSet {
  std::span<const KeyValue> pairs;
};
struct CancelWait {};
struct Ping {
  std::uint32_t nonce = 0;
};
struct QueuePush {
  std::string_view queue, value;
};
struct QueuePop {
  std::string_view queue;
};
struct QueueLen {
  std::string_view queue;
};
struct ListKeys {};
struct Barrier {
  std::string_view key;
  std::int64_t world_size = 0;
};
struct Probe {};
struct LastWill {
  std::string_view queue, item;
};
struct ClearLastWill {};
struct QueueTake {
  std::string_view queue;
  std::int64_t timeout_ms = 0;
};
struct EnterNamespace {
  std::string_view name;
};
struct Expect {
  std::string_view name;  // empty: `pid` is the world size
  std::int64_t pid = 0;
};
}  // namespace request
using Request =
    std::variant<request::Validate, request::Set, request::CompareSet, request::Get, request::Add,
                 request::Check, request::Wait, request::GetNumKeys, request::DeleteKey,
                 request::Append, request::MultiGet, request::MultiSet, request::CancelWait,
                 request::Ping, request::QueuePush, request::QueuePop, request::QueueLen,
                 request::ListKeys, request::Barrier, request::Probe, request::LastWill,
                 request::ClearLastWill, request::QueueTake, request::EnterNamespace,
                 request::Expect>;

}  // namespace ddprun::store
