// SPDX-License-Identifier: BSD-3-Clause
//
// A hash of names that come from untrusted clients.  A client that does not know the seed cannot
// choose names that all fall into one bucket, and so cannot make look-ups as slow as in a list.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ddprun::store {

// Chosen at random once per process by the program that reads from the network.
struct HashSeed {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};

inline std::uint64_t word_at(const char* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// The bytes behind the last full word, as a number.  To copy a few bytes, how many is not known
// beforehand, would take as long as all the rest.
inline std::uint64_t last_of(std::string_view bytes) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  std::size_t count = bytes.size() % kWord;
  if (count == 0) return 0;
  const char* end = bytes.data() + bytes.size();
  if (bytes.size() >= kWord) return word_at(end - kWord) >> (8 * (kWord - count));
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < count; ++i) {
    last |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return last;
}

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
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  const char* place = bytes.data();
  for (std::size_t left = bytes.size(); left >= kWord; left -= kWord, place += kWord) {
    take(word_at(place));
  }
  take(last_of(bytes) | static_cast<std::uint64_t>(bytes.size()) << 56);
  v2 ^= 0xff;
  mix(final_rounds);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace ddprun::store
