// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/unfreed_memory.h"

#include <doctest/doctest.h>
#include <malloc.h>

#include <memory>
#include <span>
#include <string>

#include "store/decide/keyspace.h"
#include "store/decide/value.h"
#include "store/memory_keeper.h"

using namespace ddprun::store;

namespace {

constexpr std::size_t kLarge = std::size_t{50} << 20;

// What is allocated in mappings of its own, as large values are.  A sanitizer's allocator shows
// nothing here; it finds by itself what is never freed.
std::size_t mapped_bytes() {
  return ::mallinfo2().hblkhd;
}

// The steps that it takes; none frees more than a piece.
int free_all(UnfreedMemory& unfreed) {
  int steps = 0;
  for (; unfreed.bytes() > 0; ++steps) {
    std::size_t before = unfreed.bytes();
    std::span<char> piece = unfreed.free_some();
    CHECK(before - unfreed.bytes() > 0);
    CHECK(before - unfreed.bytes() <= UnfreedMemory::kPieceBytes);
    if (!piece.empty()) CHECK(piece.size() == before - unfreed.bytes());
    MemoryKeeper::give_back_pages(piece);
  }
  return steps;
}

}  // namespace

TEST_SUITE("store/decide/unfreed_memory") {
  TEST_CASE("large values are freed piece by piece, and nothing of them is left") {
    const std::size_t mapped = mapped_bytes();
    UnfreedMemory unfreed;
    UnfreedMemory::Scope scope(unfreed);
    {
      Value first(std::string(kLarge, 'a'));
      Value second(std::string(kLarge + 12'345, 'b'));
      Value third(std::string(kLarge - 1, 'c'));
      CHECK(unfreed.bytes() == 0);
    }
    CHECK(unfreed.bytes() >= 3 * kLarge);
    CHECK(unfreed.bytes() <= 3 * kLarge + 20'000);
    int steps = free_all(unfreed);
    constexpr int kLeastSteps = 3 * kLarge / UnfreedMemory::kPieceBytes;
    CHECK(steps >= kLeastSteps);
    CHECK(steps <= kLeastSteps + 9);
    CHECK(unfreed.free_some().empty());
    CHECK(mapped_bytes() == mapped);
  }

  TEST_CASE("pieces have any place and size, and others keep what they hold") {
    UnfreedMemory unfreed;
    UnfreedMemory::Scope scope(unfreed);
    for (std::size_t more = 0; more < 40; ++more) {
      Value kept(std::string(100'000, 'k'));
      { Value dropped(std::string(UnfreedMemory::kLeastBytes + more * 131'071, 'd')); }
      free_all(unfreed);
      CHECK(kept.view() == std::string(100'000, 'k'));
    }
  }

  TEST_CASE("a value is large memory only once nothing refers to it, replies included") {
    UnfreedMemory unfreed;
    UnfreedMemory::Scope scope(unfreed);
    Value value(std::string(kLarge, 'v'));
    Value other = value;
    SentValue sent(value);
    value = Value();
    other = Value();
    CHECK(unfreed.bytes() == 0);
    CHECK(sent.view().back() == 'v');
    sent = SentValue();
    CHECK(unfreed.bytes() >= kLarge);
    CHECK(SentValue::all_unstored_bytes() == 0);
  }

  TEST_CASE("what is not large is freed at once, and so is everything where nobody collects it") {
    const std::size_t mapped = mapped_bytes();
    { Value value(std::string(kLarge, 'v')); }
    CHECK(mapped_bytes() == mapped);
    UnfreedMemory unfreed;
    {
      UnfreedMemory::Scope scope(unfreed);
      Value value(std::string(UnfreedMemory::kLeastBytes / 2, 'v'));
    }
    { Value value(std::string(kLarge, 'v')); }
    CHECK(unfreed.bytes() == 0);
    CHECK(mapped_bytes() == mapped);
  }

  TEST_CASE("its end frees what is left, also that of a scope that lives on") {
    const std::size_t mapped = mapped_bytes();
    {
      auto unfreed = std::make_unique<UnfreedMemory>();
      UnfreedMemory::Scope scope(*unfreed);
      { Value value(std::string(kLarge, 'v')); }
      { Value value(std::string(kLarge, 'w')); }
      MemoryKeeper::give_back_pages(unfreed->free_some());
      CHECK(unfreed->bytes() > 0);
      unfreed.reset();
      { Value value(std::string(kLarge, 'x')); }
      CHECK(mapped_bytes() == mapped);
    }
    CHECK(mapped_bytes() == mapped);
  }

  TEST_CASE("of two scopes the inner one collects") {
    UnfreedMemory outer, inner;
    UnfreedMemory::Scope first(outer);
    {
      UnfreedMemory::Scope second(inner);
      Value value(std::string(kLarge, 'v'));
    }
    CHECK(outer.bytes() == 0);
    CHECK(inner.bytes() >= kLarge);
    { Value value(std::string(kLarge, 'v')); }
    CHECK(outer.bytes() >= kLarge);
  }

  TEST_CASE("a keyspace leaves it what is deleted, replaced, outgrown and cleared") {
    UnfreedMemory unfreed;
    UnfreedMemory::Scope scope(unfreed);
    Keyspace keyspace;
    Replies replies;
    const std::string large(kLarge, 'v');
    auto set = [&] { keyspace.execute(1, request::Set{"k", large}, {}, replies); };
    auto grows_by = [&](std::size_t least) {
      bool is_enough = unfreed.bytes() >= least;
      free_all(unfreed);
      return is_enough;
    };
    set();
    CHECK(unfreed.bytes() == 0);
    keyspace.execute(1, request::DeleteKey{"k"}, {}, replies);
    CHECK(grows_by(kLarge));
    set();
    keyspace.execute(1, request::Set{"k", "small"}, {}, replies);
    CHECK(grows_by(kLarge));
    set();
    keyspace.execute(1, request::Append{"k", "more"}, {}, replies);
    CHECK(grows_by(kLarge));
    keyspace.uncount();
    while (!keyspace.free_some(100)) continue;
    CHECK(grows_by(kLarge));
  }
}
