// SPDX-License-Identifier: BSD-3-Clause
//
// A hash of names that come from strangers.  Whoever does not know the seed cannot choose names
// that all fall into one bucket of a table, and so cannot make every look-up as slow as a list.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ddprun::store {

// Chosen at random once per process by whoever reads from the network.
struct HashSeed {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};

// SipHash with so many rounds for each word and at the end (Aumasson and Bernstein, 2012).  1 and 3
// are what Python and Rust take for their tables.
template <int word_rounds = 1, int final_rounds = 3>
std::uint64_t sip_hash(HashSeed seed, std::string_view bytes) {
  std::uint64_t v0 = seed.first ^ 0x736f6d6570736575, v1 = seed.second ^ 0x646f72616e646f6d;
  std::uint64_t v2 = seed.first ^ 0x6c7967656e657261, v3 = seed.second ^ 0x7465646279746573;
  auto mix = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
    }
  };
  auto take = [&](std::uint64_t word) {
    v3 ^= word;
    mix(word_rounds);
    v0 ^= word;
  };
  std::size_t size = bytes.size();
  for (; bytes.size() >= sizeof(std::uint64_t); bytes.remove_prefix(sizeof(std::uint64_t))) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    take(word);
  }
  std::uint64_t last = 0;
  if (!bytes.empty()) std::memcpy(&last, bytes.data(), bytes.size());
  take(last | static_cast<std::uint64_t>(size) << 56);
  v2 ^= 0xff;
  mix(final_rounds);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace ddprun::store
