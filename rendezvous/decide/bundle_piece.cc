// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/bundle_piece.h"

#include <algorithm>
#include <array>

#include "store/base/number.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::string_view kMark = "bundle1";
constexpr std::size_t kMostHead = 96;

// What is before the next blank, which is taken off, too.
std::string_view next_word(std::string_view& line) {
  std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(line.size(), word.size() + 1));
  return word;
}

}  // namespace

std::uint64_t bundle_pieces(std::uint64_t bytes) {
  return bytes / kBundlePieceBytes + (bytes % kBundlePieceBytes > 0 ? 1 : 0);
}

BundlePiece bundle_piece_of(std::string_view packed, std::uint64_t number, std::uint64_t piece) {
  BundlePiece it{.number = number, .piece = piece, .bytes = packed.size()};
  if (piece > 0 && piece <= bundle_pieces(packed.size()))
    it.data = packed.substr((piece - 1) * kBundlePieceBytes, kBundlePieceBytes);
  return it;
}

std::string encode(const BundlePiece& piece) {
  std::string text(kMark);
  for (std::uint64_t each : {piece.number, piece.piece, piece.bytes})
    text += ' ' + std::to_string(each);
  return text + '\n' + piece.data;
}

std::optional<BundlePiece> decode_bundle_piece(std::string_view text) {
  auto end = text.substr(0, kMostHead).find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view line = text.substr(0, end);
  std::string_view data = text.substr(end + 1);
  if (next_word(line) != kMark || data.size() > kBundlePieceBytes) return std::nullopt;
  std::array<std::uint64_t, 3> numbers{};
  for (std::uint64_t& each : numbers) {
    auto number = number_in<std::uint64_t>(next_word(line));
    if (!number) return std::nullopt;
    each = *number;
  }
  if (!line.empty() || numbers[2] > kMostNodeBundle) return std::nullopt;
  return BundlePiece{
      .number = numbers[0], .piece = numbers[1], .bytes = numbers[2], .data = std::string(data)};
}

}  // namespace ddprun::rendezvous
