// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/allow_list.h"

#include <arpa/inet.h>

#include <algorithm>
#include <functional>

#include "store/base/number.h"

namespace ddprun::store {
namespace {

constexpr std::size_t kBits = 128;
constexpr std::size_t kV4Bits = 32;
constexpr std::size_t kV4Offset = 12;  // of an IPv4 address in the 16 bytes
constexpr std::array<std::uint8_t, kV4Offset> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

Error not_a_range(const std::string& text, const std::string& why) {
  return {Errc::InvalidInput, "'" + text + "' is not a range of addresses: " + why};
}

}  // namespace

Result<AllowList> AllowList::parse(std::string_view text) {
  AllowList list;
  while (true) {
    auto comma = text.find(',');
    auto range = parse_range(std::string(text.substr(0, comma)));
    if (!range) return range.error();
    if (range->prefix_bits == kBits) {
      list.single_.insert(range->base);
    } else {
      list.ranges_.push_back(*range);
    }
    if (comma == std::string_view::npos) return list;
    text.remove_prefix(comma + 1);
  }
}

bool AllowList::add(const std::string& text) {
  Address address;
  if (!read(text, address)) return false;
  single_.insert(address);
  return true;
}

bool AllowList::lists(const std::string& address) const {
  Address peer;
  if (!read(address, peer)) return false;
  if (single_.contains(peer)) return true;
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return range.base.is_v4 == peer.is_v4 &&
           masked(peer, range.prefix_bits).bytes == range.base.bytes;
  });
}

std::size_t AllowList::Hash::operator()(const Address& address) const {
  std::string_view bytes(reinterpret_cast<const char*>(address.bytes.data()), address.bytes.size());
  return std::hash<std::string_view>{}(bytes);
}

bool AllowList::read(const std::string& text, Address& address) {
  address = {};
  if (::inet_pton(AF_INET, text.c_str(), address.bytes.data() + kV4Offset) == 1) {
    std::copy(kMapped.begin(), kMapped.end(), address.bytes.begin());
    address.is_v4 = true;
    return true;
  }
  if (::inet_pton(AF_INET6, text.c_str(), address.bytes.data()) != 1) return false;
  address.is_v4 = std::equal(kMapped.begin(), kMapped.end(), address.bytes.begin());
  return true;
}

Result<AllowList::Range> AllowList::parse_range(const std::string& text) {
  auto slash = text.find('/');
  std::string host = text.substr(0, slash);
  Range range;
  if (!read(host, range.base)) {
    return not_a_range(text, "'" + host + "' is not a numeric address");
  }
  bool is_short = range.base.is_v4 && host.find(':') == std::string::npos;
  std::size_t most = is_short ? kV4Bits : kBits;
  std::size_t bits = most;
  if (slash != std::string::npos) {
    auto prefix = number_in<std::size_t>(std::string_view(text).substr(slash + 1));
    if (!prefix || *prefix > most) {
      return not_a_range(text, "the prefix is a number from 0 to " + std::to_string(most));
    }
    bits = *prefix;
  }
  range.prefix_bits = bits + kBits - most;
  if (range.base.is_v4 && range.prefix_bits < kBits - kV4Bits) range.base.is_v4 = false;
  Address base = masked(range.base, range.prefix_bits);
  if (base.bytes != range.base.bytes) {
    return not_a_range(text, "it has bits behind the prefix; " + to_string(base) + "/" +
                                 std::to_string(bits) + " has none");
  }
  return range;
}

AllowList::Address AllowList::masked(Address address, std::size_t prefix_bits) {
  for (std::size_t i = 0; i < address.bytes.size(); ++i) {
    std::size_t kept = std::clamp<std::size_t>(prefix_bits, i * 8, i * 8 + 8) - i * 8;
    address.bytes[i] &= static_cast<std::uint8_t>(0xff00U >> kept);
  }
  return address;
}

std::string AllowList::to_string(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  address.is_v4 ? ::inet_ntop(AF_INET, address.bytes.data() + kV4Offset, text, sizeof text)
                : ::inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
  return text;
}

}  // namespace ddprun::store
