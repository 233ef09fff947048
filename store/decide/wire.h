// SPDX-License-Identifier: BSD-3-Clause
//
// The c10d TCPStore protocol (store/PROTOCOL.md): requests and replies to bytes and back.  What a
// request means is decided in store/decide/keyspace.h; this file knows only what it looks like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "store/decide/value.h"

namespace ddprun::store {

// The first byte of every request.  operation_table.h has the table of the operations.
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
  Authenticate = 0x86,
  Prove = 0x87,
};

// What PROBE is answered: the extensions that this server has, a bit each.
inline constexpr std::uint32_t kHasLastWill = 1;
inline constexpr std::uint32_t kHasQueueTake = 2;
inline constexpr std::uint32_t kHasNamespaces = 4;
inline constexpr std::uint32_t kHasExpect = 8;
inline constexpr std::uint32_t kHasAuthentication = 16;

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
// store/auth/handshake.h has both.
struct Authenticate {
  std::string_view challenge;
};
struct Prove {
  std::string_view proof;
};
}  // namespace request
using Request =
    std::variant<request::Validate, request::Set, request::CompareSet, request::Get, request::Add,
                 request::Check, request::Wait, request::GetNumKeys, request::DeleteKey,
                 request::Append, request::MultiGet, request::MultiSet, request::CancelWait,
                 request::Ping, request::QueuePush, request::QueuePop, request::QueueLen,
                 request::ListKeys, request::Barrier, request::Probe, request::LastWill,
                 request::ClearLastWill, request::QueueTake, request::Expect,
                 request::EnterNamespace, request::Authenticate, request::Prove>;

// Whether a request is about its connection: the last three.
inline bool is_about_connection(const Request& request) {
  return request.index() >= std::variant_size_v<Request> - 3;
}

// The pieces that replies are made of; most replies are one piece.
namespace reply {
struct Byte {
  std::uint8_t value;
};
struct Nonce {
  std::uint32_t value;
};
struct Number {
  std::int64_t value;
};
struct Bytes {
  SentValue value;
};
// Several small values, one behind the other, as they go over the wire.
struct Run {
  std::string bytes;
};
}  // namespace reply
using Reply = std::variant<reply::Byte, reply::Nonce, reply::Number, reply::Bytes, reply::Run>;

// The bytes of CHECK's, WAIT's, BARRIER's and CANCEL_WAIT's replies, and of our own.
inline constexpr std::uint8_t kReady = 0;
inline constexpr std::uint8_t kNotReady = 1;
inline constexpr std::uint8_t kStopWaiting = 0;
inline constexpr std::uint8_t kWaitCancelled = 1;
inline constexpr std::uint8_t kRefused = 1;
inline constexpr std::uint8_t kUnknownPeer =
    2;  // ENTER_NAMESPACE: first show that you know the secret

// What one request may announce; beyond it the connection is closed.  The first three are torch's.
struct WireLimits {
  std::size_t max_key_bytes = 8192;  // counts the '/' that torch's client puts in front
  std::size_t max_value_bytes = 8 * 1024 * 1024;  // of one value, or one piece of an APPEND
  std::size_t max_keys_per_request = 131072;
  // All of a CHECK, WAIT, MULTI_GET or MULTI_SET together, since it is held until it is whole: as
  // it grows it is moved to where there is more room, and others wait for that.
  std::size_t max_request_bytes = std::size_t{64} << 20;

  // Whether our own operations are known; if not, they close the connection, as they do in torch.
  bool has_extensions = true;
};

// The operation of `request`.
Op op_of(const Request& request);

// "queue_push"; empty for a number that is no operation.
std::string_view name_of(Op op);

// Appends the bytes of `request`.
void encode(const Request& request, std::string& out);

// Appends the bytes of `reply`.
void encode(const Reply& reply, std::string& out);

// Appends what goes in front of a key or value of `length` bytes.
void encode_length(std::size_t length, std::string& out);

// Finds the requests in a stream of bytes that may be cut anywhere.  Every byte is looked at once:
// when a request is incomplete, the decoder resumes behind the last whole field.
//
// The first request of a stream must be VALIDATE with the right magic, and no other may be.
class Decoder {
 public:
  struct NeedMore {};
  struct Malformed {
    std::string reason;
  };  // the stream is lost; the decoder must not be used again
  using Next = std::variant<NeedMore, Request, Malformed>;

  explicit Decoder(const WireLimits& limits) : limits_(&limits) {}

  // Gives the decoder the bytes that follow; they must stay where they are until next() has
  // answered NeedMore or keep() was called.  The bytes of the previous call must be used up.
  void feed(std::string_view bytes);

  // The next request, or that there is none yet, or why the peer does not speak the protocol.
  Next next();

  // Copies what is not decoded yet, so that the bytes last fed may go.
  void keep();

  // Answers the request last answered once more, so that it lasts: what it refers to stays until
  // the next call of next(), wherever the bytes fed were.  Takes the place of keep().
  [[nodiscard]] Request hold();

  // Whether there are bytes that belong to no request answered yet.
  bool has_more() const { return begin_ < window_.size(); }

  // Whether the handshake has been seen.
  bool is_validated() const { return is_validated_; }

  // Gives away what has arrived behind the request answered last, which becomes void.
  std::string take_rest();

  // The memory held for an incomplete request, and where its keys and values are in it.
  std::size_t held_bytes() const {
    bool is_large = strings_.capacity() > kKeptElements;
    std::size_t room = held_.capacity() > kKeptBytes ? held_.capacity() : held_.size();
    return room + (is_large ? strings_.capacity() * sizeof(Range) : 0);
  }

  // So much room is kept between two requests.
  static constexpr std::size_t kKeptBytes = 4096;

 private:
  // Storage that one large request left behind is kept up to this many elements.
  static constexpr std::size_t kKeptElements = 256;

  struct Range {
    std::size_t offset, length;
  };
  struct Parts;
  template <class T>
  static void release_if_large(std::vector<T>& storage);
  enum class Step : std::uint8_t { Done, NeedMore, Malformed };

  Step read_head();
  Step read_field(char kind);
  Step read_string(std::size_t limit, const char* what);
  Step too_long(std::size_t length, std::size_t limit, const char* what);
  Step malformed(std::string reason);
  Request make_request() const;
  Request finish_request();

  const WireLimits* limits_;
  bool is_validated_ = false;

  std::string_view window_;  // what is being decoded: the bytes fed, or `held_`
  std::string held_;         // the beginning of an incomplete request, and what came with it
  std::size_t begin_ = 0;    // where in `window_` the current request starts
  std::size_t last_ = 0;     // where the one before it did
  std::size_t cursor_ = 0;   // what is before it has been decoded

  bool has_head_ = false;  // the operation, and its count where it has one, are known
  Op op_ = Op::Validate;
  std::size_t fields_left_ = 0;
  std::string_view kinds_;      // of its fields, which repeat
  std::size_t next_kind_ = 0;   // index into them
  std::uint64_t number_ = 0;    // the request's one number, if it has one
  std::vector<Range> strings_;  // keys and values, relative to begin_
  std::vector<std::string_view> keys_;
  std::vector<KeyValue> pairs_;
  std::string reason_;
};

}  // namespace ddprun::store
