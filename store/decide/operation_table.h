// SPDX-License-Identifier: BSD-3-Clause
//
// The table of the store's operations: number, name and fields of each.  Decoder, encoder and names
// come from it.  A new operation needs its number in Op, its struct in `request` (both in wire.h),
// and a row here.  Included by wire.cc only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "store/decide/wire.h"

namespace ddprun::store {

// A field of a request: where it is in the struct, and how it looks on the wire: k a key, v a
// value, i a 64-bit and u a 32-bit number.  A list of keys is K, a list of keys and values is P.
template <class Request, class T>
struct Field {
  char kind;
  T Request::*member;
};

template <class R>
constexpr Field<R, std::string_view> key(std::string_view R::*member) {
  return {'k', member};
}
template <class R>
constexpr Field<R, std::string_view> value(std::string_view R::*member) {
  return {'v', member};
}
template <class R>
constexpr Field<R, std::int64_t> i64(std::int64_t R::*member) {
  return {'i', member};
}
template <class R>
constexpr Field<R, std::uint32_t> u32(std::uint32_t R::*member) {
  return {'u', member};
}
template <class R>
constexpr Field<R, std::span<const std::string_view>> keys(
    std::span<const std::string_view> R::*member) {
  return {'K', member};
}
template <class R>
constexpr Field<R, std::span<const KeyValue>> pairs(std::span<const KeyValue> R::*member) {
  return {'P', member};
}

// One operation.
template <class R, class... Fields>
struct Row {
  using Request = R;

  Op op;
  std::string_view name;  // in the metrics
  std::tuple<Fields...> fields;
};

template <class R, class... Fields>
constexpr Row<R, Fields...> row(Op op, std::string_view name, Fields... fields) {
  return {op, name, {fields...}};
}

// The operations.
inline constexpr std::tuple kTable{
    row<request::Validate>(Op::Validate, "validate", u32(&request::Validate::magic)),
    row<request::Set>(Op::Set, "set", key(&request::Set::key), value(&request::Set::value)),
    row<request::CompareSet>(Op::CompareSet, "compare_set", key(&request::CompareSet::key),
                             value(&request::CompareSet::expected),
                             value(&request::CompareSet::desired)),
    row<request::Get>(Op::Get, "get", key(&request::Get::key)),
    row<request::Add>(Op::Add, "add", key(&request::Add::key), i64(&request::Add::delta)),
    row<request::Check>(Op::Check, "check", keys(&request::Check::keys)),
    row<request::Wait>(Op::Wait, "wait", keys(&request::Wait::keys)),
    row<request::GetNumKeys>(Op::GetNumKeys, "get_num_keys"),
    row<request::DeleteKey>(Op::DeleteKey, "delete_key", key(&request::DeleteKey::key)),
    row<request::Append>(Op::Append, "append", key(&request::Append::key),
                         value(&request::Append::value)),
    row<request::MultiGet>(Op::MultiGet, "multi_get", keys(&request::MultiGet::keys)),
    row<request::MultiSet>(Op::MultiSet, "multi_set", pairs(&request::MultiSet::pairs)),
    row<request::CancelWait>(Op::CancelWait, "cancel_wait"),
    row<request::Ping>(Op::Ping, "ping", u32(&request::Ping::nonce)),
    row<request::QueuePush>(Op::QueuePush, "queue_push", key(&request::QueuePush::queue),
                            value(&request::QueuePush::value)),
    row<request::QueuePop>(Op::QueuePop, "queue_pop", key(&request::QueuePop::queue)),
    row<request::QueueLen>(Op::QueueLen, "queue_len", key(&request::QueueLen::queue)),
    row<request::ListKeys>(Op::ListKeys, "list_keys"),
    row<request::Barrier>(Op::Barrier, "barrier", key(&request::Barrier::key),
                          i64(&request::Barrier::world_size)),
    row<request::Probe>(Op::Probe, "probe"),
    row<request::LastWill>(Op::LastWill, "last_will", key(&request::LastWill::queue),
                           value(&request::LastWill::item)),
    row<request::ClearLastWill>(Op::ClearLastWill, "clear_last_will"),
    row<request::QueueTake>(Op::QueueTake, "queue_take", key(&request::QueueTake::queue),
                            i64(&request::QueueTake::timeout_ms)),
    row<request::EnterNamespace>(Op::EnterNamespace, "enter_namespace",
                                 key(&request::EnterNamespace::name)),
    row<request::Expect>(Op::Expect, "expect", key(&request::Expect::name),
                         i64(&request::Expect::pid)),
    row<request::Authenticate>(Op::Authenticate, "authenticate",
                               key(&request::Authenticate::challenge)),
    row<request::Prove>(Op::Prove, "prove", key(&request::Prove::proof)),
};
inline constexpr std::size_t kRows = std::tuple_size_v<decltype(kTable)>;
static_assert(kRows == std::variant_size_v<Request>, "each request has one row");

template <std::size_t I>
using RequestOf = typename std::tuple_element_t<I, decltype(kTable)>::Request;

// The row of a kind of request; does not compile where there is none.
template <class R>
constexpr std::size_t row_index() {
  constexpr std::size_t index = []<std::size_t... I>(std::index_sequence<I...>) {
    std::size_t found = kRows;
    ((found = std::is_same_v<R, RequestOf<I>> ? I : found), ...);
    return found;
  }
  (std::make_index_sequence<kRows>());
  static_assert(index < kRows);
  return index;
}

// What follows the operation on the wire.
struct Shape {
  std::array<char, 3> kinds{};
  std::size_t kind_count = 0;
  bool is_counted = false;  // a 64-bit count comes first, and the kinds repeat so many times

  constexpr void add(char kind) {
    is_counted = kind == 'K' || kind == 'P';
    kinds[kind_count++] = is_counted ? 'k' : kind;
    if (kind == 'P') kinds[kind_count++] = 'v';
  }
};

struct Operation {
  Op op;
  std::string_view name;
  Shape shape;
};

template <class Row>
constexpr Operation operation_of(const Row& row) {
  Operation operation{row.op, row.name, {}};
  std::apply([&](auto... fields) { (operation.shape.add(fields.kind), ...); }, row.fields);
  return operation;
}

inline constexpr std::array<Operation, kRows> kOperations = std::apply(
    [](auto... rows) { return std::array<Operation, kRows>{operation_of(rows)...}; }, kTable);

// The row of each number; kNoRow where it is no operation.
inline constexpr std::uint8_t kNoRow = 0xff;
inline constexpr std::array<std::uint8_t, 256> kRowOfNumber = [] {
  std::array<std::uint8_t, 256> rows{};
  rows.fill(kNoRow);
  for (std::size_t i = 0; i < kRows; ++i) {
    rows[static_cast<std::uint8_t>(kOperations[i].op)] = static_cast<std::uint8_t>(i);
  }
  return rows;
}();

inline const Operation& operation_of(Op op) {
  return kOperations[kRowOfNumber[static_cast<std::uint8_t>(op)]];
}

// The operations of the alternatives of Request, in their order.
template <class... R>
constexpr std::array<Op, sizeof...(R)> ops_of(std::type_identity<std::variant<R...>>) {
  return {kOperations[row_index<R>()].op...};
}
inline constexpr auto kOpOfAlternative = ops_of(std::type_identity<Request>());

inline bool is_known(std::uint8_t number, bool has_extensions) {
  bool is_ours = number >= static_cast<std::uint8_t>(Op::Probe);
  return kRowOfNumber[number] != kNoRow && (has_extensions || !is_ours);
}

}  // namespace ddprun::store
