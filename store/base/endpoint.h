// SPDX-License-Identifier: BSD-3-Clause
//
// Where something listens: a host and a port, as users write them and logs print them.  Names are
// kept as written; the code that connects resolves them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "store/base/error.h"

namespace ddprun {

struct Endpoint {
  std::string host;        // a name, an IPv4 address, or an IPv6 address without brackets
  std::uint16_t port = 0;  // 0 asks the kernel for a free port where one listens

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// Parses "host", "host:port", "[v6]", "[v6]:port" and a bare "v6".  Fails with Errc::InvalidInput
// and a sentence that quotes `text` for an empty host, a port that parse_port() does not take, an
// unclosed bracket, or several colons that make no IPv6 address.
Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port,
                                std::uint16_t least_port = 0);

// Parses a port: decimal digits only, `least`..65535.
Result<std::uint16_t> parse_port(std::string_view text, std::uint16_t least = 0);

// "host:port", with brackets round an IPv6 address; parse_endpoint() reads it back.
std::string to_string(const Endpoint& endpoint);

// Whether `host` is an IPv4 or IPv6 address, the latter with or without a zone ("fe80::1%eth0").
bool is_numeric_host(std::string_view host);

// Whether `host` can only mean this machine: "localhost", 127.0.0.0/8 or ::1.  No look-up is made.
bool is_loopback_host(std::string_view host);

// Whether `host` is an address from which another machine can connect: numeric, and neither of
// loopback, nor of a group (multicast, broadcast), nor unspecified ("0.0.0.0").
bool is_address_of_machine(std::string_view host);

}  // namespace ddprun
