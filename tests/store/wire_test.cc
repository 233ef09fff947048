// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/wire.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "store/base/variant.h"

using namespace ddprun::store;
using namespace std::string_view_literals;

namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (unsigned char byte : bytes) {
    char digits[4];
    std::snprintf(digits, sizeof digits, text.empty() ? "%02x" : " %02x", byte);
    text += digits;
  }
  return text;
}

std::string encoded(const Request& request) {
  std::string bytes;
  encode(request, bytes);
  return bytes;
}

std::string join(std::span<const std::string_view> words) {
  std::string text;
  for (std::string_view word : words) text.append(" ").append(word);
  return text;
}

// A request in words, for comparison.
std::string to_string(const Request& request) {
  auto words = [](auto... parts) {
    std::string text;
    ((text += (text.empty() ? "" : " ") + std::string(parts)), ...);
    return text;
  };
  return std::visit(
      ddprun::Overloaded{
          [&](const request::Validate&) { return words("validate"); },
          [&](const request::Set& r) { return words("set", r.key, r.value); },
          [&](const request::CompareSet& r) {
            return words("compare_set", r.key, r.expected, r.desired);
          },
          [&](const request::Get& r) { return words("get", r.key); },
          [&](const request::Add& r) { return words("add", r.key, std::to_string(r.delta)); },
          [&](const request::Check& r) { return "check" + join(r.keys); },
          [&](const request::Wait& r) { return "wait" + join(r.keys); },
          [&](const request::GetNumKeys&) { return words("get_num_keys"); },
          [&](const request::DeleteKey& r) { return words("delete_key", r.key); },
          [&](const request::Append& r) { return words("append", r.key, r.value); },
          [&](const request::MultiGet& r) { return "multi_get" + join(r.keys); },
          [&](const request::MultiSet& r) {
            std::string text = "multi_set";
            for (const KeyValue& pair : r.pairs) text += " " + words(pair.key, pair.value);
            return text;
          },
          [&](const request::CancelWait&) { return words("cancel_wait"); },
          [&](const request::Ping& r) { return words("ping", std::to_string(r.nonce)); },
          [&](const request::QueuePush& r) { return words("queue_push", r.queue, r.value); },
          [&](const request::QueuePop& r) { return words("queue_pop", r.queue); },
          [&](const request::QueueLen& r) { return words("queue_len", r.queue); },
          [&](const request::ListKeys&) { return words("list_keys"); },
          [&](const request::Barrier& r) {
            return words("barrier", r.key, std::to_string(r.world_size));
          },
          [&](const request::Probe&) { return words("probe"); },
          [&](const request::LastWill& r) { return words("last_will", r.queue, r.item); },
          [&](const request::ClearLastWill&) { return words("clear_last_will"); },
          [&](const request::QueueTake& r) {
            return words("queue_take", r.queue, std::to_string(r.timeout_ms));
          },
          [&](const request::EnterNamespace& r) { return words("enter", r.name); },
          [&](const request::Expect& r) { return words("expect", r.name, std::to_string(r.pid)); },
          [&](const request::Authenticate& r) { return words("authenticate", r.challenge); },
          [&](const request::Prove& r) { return words("prove", r.proof); },
      },
      request);
}

// Decodes pieces of a stream, each fed from storage that dies before the next is fed.
struct Stream {
  WireLimits limits;
  Decoder decoder{limits};
  std::vector<std::string> seen;

  // Decodes and records what comes out; answers false once the stream is malformed.
  bool feed(std::string_view piece) {
    auto storage = std::make_unique<std::string>(piece);
    decoder.feed(*storage);
    for (;;) {
      Decoder::Next next = decoder.next();
      if (std::holds_alternative<Decoder::NeedMore>(next)) return true;
      if (auto* malformed = std::get_if<Decoder::Malformed>(&next)) {
        seen.push_back("malformed: " + malformed->reason);
        return false;
      }
      seen.push_back(to_string(std::get<Request>(next)));
    }
  }

  std::string last() const { return seen.empty() ? "nothing" : seen.back(); }
};

// One request of each operation, in the order of their numbers.
struct Golden {
  Request request;
  std::string_view bytes;
};

const std::array kOneKey{"/k"sv};
const std::array kTwoKeys{"/a"sv, "/b"sv};
const std::array kPairs{KeyValue{"/a", "1"}, KeyValue{"/b", "2"}};

std::vector<Golden> golden_frames() {
  return {
      {request::Validate{}, "00 ce f7 85 3c"},
      {request::Set{"/k", "v"}, "01 02 00 00 00 00 00 00 00 2f 6b 01 00 00 00 00 00 00 00 76"},
      {request::CompareSet{"/k", "", "v"},
       "02 02 00 00 00 00 00 00 00 2f 6b 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 76"},
      {request::Get{"/k"}, "03 02 00 00 00 00 00 00 00 2f 6b"},
      {request::Add{"init/", 1},
       "04 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00"},
      {request::Check{kOneKey}, "05 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b"},
      {request::Wait{kOneKey}, "06 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b"},
      {request::GetNumKeys{}, "07"},
      {request::DeleteKey{"/k"}, "08 02 00 00 00 00 00 00 00 2f 6b"},
      {request::Append{"/k", "w"}, "09 02 00 00 00 00 00 00 00 2f 6b 01 00 00 00 00 00 00 00 77"},
      {request::MultiGet{kTwoKeys},
       "0a 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 02 00 00 00 00 00 00 00 2f 62"},
      {request::MultiSet{kPairs},
       "0b 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 01 00 00 00 00 00 00 00 31 "
       "02 00 00 00 00 00 00 00 2f 62 01 00 00 00 00 00 00 00 32"},
      {request::CancelWait{}, "0c"},
      {request::Ping{4242}, "0d 92 10 00 00"},
      {request::QueuePush{"/q", "x"},
       "0e 02 00 00 00 00 00 00 00 2f 71 01 00 00 00 00 00 00 00 78"},
      {request::QueuePop{"/q"}, "0f 02 00 00 00 00 00 00 00 2f 71"},
      {request::QueueLen{"/q"}, "10 02 00 00 00 00 00 00 00 2f 71"},
      {request::ListKeys{}, "11"},
      {request::Barrier{"/b", 4}, "12 02 00 00 00 00 00 00 00 2f 62 04 00 00 00 00 00 00 00"},
      {request::Probe{}, "80"},
      {request::LastWill{"/q", "x"}, "81 02 00 00 00 00 00 00 00 2f 71 01 00 00 00 00 00 00 00 78"},
      {request::ClearLastWill{}, "82"},
      {request::QueueTake{"/q", 4}, "83 02 00 00 00 00 00 00 00 2f 71 04 00 00 00 00 00 00 00"},
      {request::EnterNamespace{"s"}, "84 01 00 00 00 00 00 00 00 73"},
      {request::Expect{"r", 4}, "85 01 00 00 00 00 00 00 00 72 04 00 00 00 00 00 00 00"},
      {request::Authenticate{"c"}, "86 01 00 00 00 00 00 00 00 63"},
      {request::Prove{"p"}, "87 01 00 00 00 00 00 00 00 70"},
  };
}

std::string all_frames() {
  std::string bytes;
  for (const Golden& golden : golden_frames()) encode(golden.request, bytes);
  return bytes;
}

std::vector<std::string> all_words() {
  std::vector<std::string> words;
  for (const Golden& golden : golden_frames()) words.push_back(to_string(golden.request));
  return words;
}

const std::string kHandshake("\x00\xce\xf7\x85\x3c", 5);

// `operation`, then each number as eight bytes.
std::string announced(Op operation, std::initializer_list<std::uint64_t> numbers) {
  std::string bytes(1, static_cast<char>(operation));
  for (std::uint64_t number : numbers) encode_length(number, bytes);
  return bytes;
}

}  // namespace

TEST_SUITE("store/decide/wire") {
  TEST_CASE("every operation has its bytes, torch's where it is torch's") {
    for (const Golden& golden : golden_frames())
      CHECK(hex(encoded(golden.request)) == golden.bytes);
  }

  TEST_CASE("every operation is decoded, wherever a stream of all of them is cut once") {
    std::string bytes = all_frames();
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
      CAPTURE(cut);
      Stream stream;
      REQUIRE(stream.feed(bytes.substr(0, cut)));
      REQUIRE(stream.feed(bytes.substr(cut)));
      REQUIRE(stream.seen == all_words());
    }
  }

  TEST_CASE("every operation is decoded when a stream comes byte by byte") {
    Stream stream;
    for (char byte : all_frames()) REQUIRE(stream.feed({&byte, 1}));
    CHECK(stream.seen == all_words());
    CHECK(stream.decoder.held_bytes() == 0);
  }

  TEST_CASE("what is held for an incomplete request includes where its names are") {
    const WireLimits limits;
    Decoder decoder(limits);
    std::vector<std::string_view> keys(10'000);
    std::string bytes = kHandshake + encoded(request::Check{keys});
    decoder.feed(std::string_view(bytes).substr(0, bytes.size() - 1));
    REQUIRE(std::holds_alternative<Request>(decoder.next()));
    REQUIRE(std::holds_alternative<Decoder::NeedMore>(decoder.next()));
    CHECK(decoder.held_bytes() >= bytes.size() - kHandshake.size() - 1 + 9'999 * 16);
    decoder.feed(std::string_view(bytes).substr(bytes.size() - 1));
    REQUIRE(std::holds_alternative<Request>(decoder.next()));
    REQUIRE(std::holds_alternative<Decoder::NeedMore>(decoder.next()));
    CHECK(decoder.held_bytes() == 0);
  }

  TEST_CASE("keys and values are bytes: empty ones, zeroes and large ones come through") {
    Stream stream;
    std::string value(100'000, '\0');
    REQUIRE(stream.feed(kHandshake + encoded(request::Set{"", "a\0b"sv}) +
                        encoded(request::Set{"k", value}) + encoded(request::Get{"z"})));
    REQUIRE(stream.seen.size() == 4);
    CHECK(stream.seen[1] == std::string("set  a\0b"sv));
    CHECK(stream.seen[2] == "set k " + value);
    CHECK(stream.seen[3] == "get z");
  }

  TEST_CASE("counts of zero are complete with their count") {
    Stream stream;
    REQUIRE(stream.feed(kHandshake));
    for (Op op : {Op::Check, Op::Wait, Op::MultiGet, Op::MultiSet}) {
      REQUIRE(stream.feed(announced(op, {0})));
    }
    CHECK(stream.seen ==
          std::vector<std::string>{"validate", "check", "wait", "multi_get", "multi_set"});
  }

  TEST_CASE("a stream that does not begin with the handshake is malformed at its first byte") {
    for (std::string_view first : {"\x01"sv, "G"sv, "\x16"sv, "\xff"sv}) {
      Stream stream;
      CHECK_FALSE(stream.feed(first));
      CHECK(stream.last() == "malformed: the first byte is not a handshake's");
    }
  }

  TEST_CASE("a wrong magic is malformed at its last byte, not a segment later") {
    Stream stream;
    CHECK_FALSE(stream.feed("\x00\xce\xf7\x85\x3d"sv));
    CHECK(stream.last() == "malformed: the handshake has the wrong magic number");
  }

  TEST_CASE("a second handshake and the operations behind torch's and ours are unknown") {
    for (int op : {0, 19, 127, 136, 255}) {
      Stream stream;
      CHECK_FALSE(stream.feed(kHandshake + std::string(1, static_cast<char>(op))));
      CHECK(stream.last() == "malformed: unknown operation " + std::to_string(op));
    }
  }

  TEST_CASE("a key of 8192 bytes is accepted, one of 8193 is not, as by torch") {
    Stream stream;
    CHECK(stream.feed(kHandshake + encoded(request::Get{std::string(8192, 'k')})));
    CHECK_FALSE(stream.feed(announced(Op::Get, {8193})));
    CHECK(stream.last() == "malformed: a key of 8193 bytes; the limit is 8192");
  }

  TEST_CASE("a value of 8 MiB is accepted, one byte more is not, as by torch") {
    Stream stream;
    CHECK(stream.feed(kHandshake + encoded(request::Set{"k", std::string(8 << 20, 'v')})));
    CHECK_FALSE(
        stream.feed(announced(Op::Set, {1}) + "k" + announced(Op::Get, {(8 << 20) + 1}).substr(1)));
    CHECK(stream.last() == "malformed: a value of 8388609 bytes; the limit is 8388608");
  }

  TEST_CASE("131072 keys are accepted, one more is not, as by torch") {
    Stream stream;
    std::string bytes = kHandshake + announced(Op::Check, {131072});
    for (int i = 0; i < 131072; ++i) bytes += announced(Op::Get, {1}).substr(1) + "k";
    CHECK(stream.feed(bytes));
    CHECK(stream.seen.size() == 2);
    CHECK_FALSE(stream.feed(announced(Op::MultiSet, {131073})));
    CHECK(stream.last() == "malformed: a request of 131073 keys; the limit is 131072");
  }

  TEST_CASE("absurd and negative lengths and counts are refused before a byte is set aside") {
    for (std::uint64_t absurd : {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t(1e18)}) {
      for (Op op : {Op::Get, Op::Set, Op::Check, Op::Wait, Op::MultiGet, Op::MultiSet}) {
        Stream stream;
        CHECK_FALSE(stream.feed(kHandshake + announced(op, {absurd})));
        CHECK(stream.last().starts_with("malformed: a "));
        CHECK(stream.decoder.held_bytes() == 0);
      }
    }
  }

  TEST_CASE("a request that grows past the limit of one request is refused on the way") {
    Stream stream;
    stream.limits.max_request_bytes = 1000;
    std::string bytes = kHandshake + announced(Op::Check, {100});
    for (int i = 0; i < 100; ++i) bytes += announced(Op::Get, {2}).substr(1) + "kk";
    CHECK_FALSE(stream.feed(bytes));
    CHECK(stream.last() == "malformed: a request of more than 1000 bytes");
  }

  TEST_CASE("a damaged stream has the same outcome however it is cut") {
    std::uint32_t seed = std::random_device{}();
    std::cout << "seed " << seed << std::endl;
    std::mt19937 random(seed);
    auto pick = [&](std::size_t count) { return random() % count; };
    for (int round = 0; round < 3000; ++round) {
      std::string bytes = all_frames() + all_frames().substr(5);
      for (std::size_t damage = pick(4); damage > 0; --damage) {
        std::size_t at = pick(bytes.size());
        switch (pick(3)) {
          case 0:
            bytes[at] = static_cast<char>(random());
            break;
          case 1:
            bytes.erase(at, pick(9));
            break;
          default:
            bytes.insert(at, pick(9), static_cast<char>(random()));
            break;
        }
      }
      Stream whole, cut;
      whole.feed(bytes);
      bool is_good = true;
      for (std::size_t at = 0, step; at < bytes.size() && is_good; at += step) {
        step = 1 + pick(20);
        is_good = cut.feed(std::string_view(bytes).substr(at, step));
      }
      REQUIRE(whole.seen == cut.seen);
    }
  }

  TEST_CASE("what is not decoded can be kept, to be gone on with later") {
    WireLimits limits;
    Decoder decoder(limits);
    auto input = std::make_unique<std::string>(kHandshake + encoded(request::Get{"a"}) +
                                               encoded(request::Get{"b"}));
    decoder.feed(*input);
    REQUIRE(std::holds_alternative<Request>(decoder.next()));
    CHECK(to_string(std::get<Request>(decoder.next())) == "get a");
    decoder.keep();
    input.reset();
    CHECK(to_string(std::get<Request>(decoder.next())) == "get b");
    CHECK(std::holds_alternative<Decoder::NeedMore>(decoder.next()));
  }

  TEST_CASE("a request can be held, to be looked at when the bytes fed are gone") {
    WireLimits limits;
    constexpr std::array kKeys{"a"sv, "bc"sv};
    constexpr std::array kPairs{KeyValue{"k", "v"}};
    std::array<Request, 5> requests{request::Wait{kKeys}, request::MultiSet{kPairs},
                                    request::Set{"k", "v"}, request::QueuePush{"q", "item"},
                                    request::CompareSet{"k", "", "v"}};
    for (const Request& asked : requests) {
      Decoder decoder(limits);
      auto input = std::make_unique<std::string>(kHandshake + encoded(asked) +
                                                 encoded(request::Get{"b"}) + "\3");
      decoder.feed(*input);
      REQUIRE(std::holds_alternative<Request>(decoder.next()));
      REQUIRE(std::holds_alternative<Request>(decoder.next()));
      Request held = decoder.hold();
      std::fill(input->begin(), input->end(), 'x');
      input.reset();
      CHECK(to_string(held) == to_string(asked));
      CHECK(to_string(decoder.hold()) == to_string(asked));  // again, as the first time
      CHECK(to_string(held) == to_string(asked));
      CHECK(to_string(std::get<Request>(decoder.next())) == "get b");
      CHECK(std::holds_alternative<Decoder::NeedMore>(decoder.next()));
      CHECK(decoder.held_bytes() == 1);
    }
  }

  TEST_CASE("what was held already is held where it is") {
    WireLimits limits;
    Decoder decoder(limits);
    decoder.feed(kHandshake);
    REQUIRE(std::holds_alternative<Request>(decoder.next()));
    std::string bytes = encoded(request::Set{"k", "v"}) + encoded(request::Get{"b"});
    REQUIRE(std::holds_alternative<Decoder::NeedMore>(decoder.next()));
    decoder.feed(std::string_view(bytes).substr(0, 5));
    REQUIRE(std::holds_alternative<Decoder::NeedMore>(decoder.next()));
    decoder.feed(std::string_view(bytes).substr(5));
    Request decoded = std::get<Request>(decoder.next());
    CHECK(to_string(decoder.hold()) == "set k v");
    CHECK(to_string(decoded) == "set k v");
    CHECK(to_string(std::get<Request>(decoder.next())) == "get b");
  }

  TEST_CASE("replies have torch's bytes") {
    auto bytes = [](const Reply& reply) {
      std::string out;
      encode(reply, out);
      return hex(out);
    };
    CHECK(bytes(reply::Byte{1}) == "01");
    CHECK(bytes(reply::Nonce{4242}) == "92 10 00 00");
    CHECK(bytes(reply::Number{-2}) == "fe ff ff ff ff ff ff ff");
    CHECK(bytes(reply::Bytes{Value("v")}) == "01 00 00 00 00 00 00 00 76");
    CHECK(bytes(reply::Bytes{}) == "00 00 00 00 00 00 00 00");
  }
}
