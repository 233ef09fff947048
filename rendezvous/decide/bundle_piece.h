// SPDX-License-Identifier: BSD-3-Clause
//
// A piece of what a node has packed for a bundle (`ddpctl bundle`), as it lies under keys::bundle()
// in the store, where the next one replaces it.  Pure.  rendezvous/PROTOCOL.md has the form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun::rendezvous {

struct BundlePiece {
  std::uint64_t number = 0;  // of the request that this answers
  std::uint64_t piece = 0;   // 0: it says only how much there is; then 1, 2, ...
  std::uint64_t bytes = 0;   // of all pieces together
  std::string data{};        // of this one

  friend bool operator==(const BundlePiece&, const BundlePiece&) = default;
};

// So many bytes of data a piece has; the last one may have fewer.
inline constexpr std::size_t kBundlePieceBytes = 128 * 1024;

// What a node packs at least and at most, whatever it is asked for.
inline constexpr std::uint64_t kLeastNodeBundle = 16 * 1024;
inline constexpr std::uint64_t kMostNodeBundle = std::uint64_t{32} << 20;

// The piece of this number of all that a node has packed; without data beyond the last one.
BundlePiece bundle_piece_of(std::string_view packed, std::uint64_t number, std::uint64_t piece);
// How many pieces there are of so many bytes.
std::uint64_t bundle_pieces(std::uint64_t bytes);

std::string encode(const BundlePiece& piece);
// What strangers may have written: nullopt for what is no such text.
std::optional<BundlePiece> decode_bundle_piece(std::string_view text);

}  // namespace ddprun::rendezvous
