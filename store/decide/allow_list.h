// SPDX-License-Identifier: BSD-3-Clause
//
// Who may connect: ranges of addresses, as "10.0.0.0/8,192.168.1.7,fd00::/8".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "store/base/error.h"

namespace ddprun::store {

// An empty list admits all addresses.  Otherwise the loopback addresses are admitted only if they
// are listed.
class AllowList {
 public:
  // Reads ranges, separated by commas: an address, or an address and the length of a prefix.  An
  // IPv4 address in the clothes of IPv6 ("::ffff:10.0.0.0/104") is that of IPv4.  Fails with
  // Errc::InvalidInput and a sentence for what is no range, and for a range whose address has bits
  // behind the prefix, which is a slip as a rule.
  static Result<AllowList> parse(std::string_view text);

  // Adds one numeric address.  False, and nothing is added, for what is none.
  bool add(const std::string& address);

  bool empty() const { return ranges_.empty() && single_.empty(); }

  // Whether the list admits a numeric address.  What is no address, it does not, unless empty.
  bool admits(const std::string& address) const { return empty() || lists(address); }

  // Whether a numeric address is listed; none is in an empty list.
  bool lists(const std::string& address) const;

 private:
  // An address of either family; IPv4 takes the last 32 bits.
  struct Address {
    bool is_v4 = false;
    std::array<std::uint8_t, 16> bytes{};

    friend bool operator==(const Address&, const Address&) = default;
  };
  struct Hash {
    std::size_t operator()(const Address& address) const;
  };
  struct Range {
    Address base;
    std::size_t prefix_bits = 0;  // of all 128
  };

  static bool read(const std::string& text, Address& address);
  static Result<Range> parse_range(const std::string& text);
  static Address masked(Address address, std::size_t prefix_bits);
  static std::string to_string(const Address& address);

  std::vector<Range> ranges_;
  std::unordered_set<Address, Hash>
      single_;  // ranges of one address: of a run there may be 100,000
};

}  // namespace ddprun::store
