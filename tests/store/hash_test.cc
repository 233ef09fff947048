// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/hash.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace ddprun::store;

TEST_SUITE("store/decide/hash") {
  TEST_CASE("it is SipHash: the values of its paper and of Python") {
    HashSeed counted{.first = 0x0706050403020100, .second = 0x0f0e0d0c0b0a0908};
    std::string bytes;
    for (char byte = 0; byte < 15; ++byte) bytes += byte;
    CHECK(sip_hash<2, 4>(counted, bytes) == 0xa129ca6149be45e5);
    // PYTHONHASHSEED=0 python3.11 -c 'print(hash(b"..."))'; its algorithm is siphash13.
    CHECK(sip_hash(HashSeed{}, "a") == 0x407448d2b89b1813);
    CHECK(sip_hash(HashSeed{}, "/key") == 0x6021f2529c517dd5);
    CHECK(sip_hash(HashSeed{}, "01234567") == 0xda3dcedf84ea6cc6);
    CHECK(sip_hash(HashSeed{}, "0123456789abcdef/longer") == 0x103df1c6923ee614);
  }

  TEST_CASE("another seed gives another hash, and so does each byte") {
    std::set<std::uint64_t> hashes;
    for (std::size_t length = 0; length < 40; ++length) {
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        hashes.insert(sip_hash({seed, 0}, std::string(length, 'k')));
        hashes.insert(sip_hash({0, seed + 1}, std::string(length, '\0')));
      }
    }
    CHECK(hashes.size() == 800);
  }
}
