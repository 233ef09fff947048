// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "store/base/number.h"

namespace ddprun {
namespace {

Error invalid(std::string_view text, std::string_view why) {
  return {Errc::InvalidInput, "'" + std::string(text) + "' is not host:port: " + std::string(why)};
}

}  // namespace

Result<std::uint16_t> parse_port(std::string_view text, std::uint16_t least) {
  auto port = number_in<std::uint16_t>(text);
  if (port && *port >= least) return *port;
  return Error{Errc::InvalidInput, "'" + std::string(text) + "' is not a port (a number from " +
                                       std::to_string(least) + " to 65535)"};
}

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port,
                                std::uint16_t least_port) {
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  if (text.find('/') != std::string_view::npos) return invalid(text, "a host contains no '/'");
  if (text.starts_with('[')) {
    auto close = text.find(']');
    if (close == std::string_view::npos) return invalid(text, "']' is missing");
    host = text.substr(1, close - 1);
    std::string_view rest = text.substr(close + 1);
    if (!rest.empty()) {
      if (!rest.starts_with(':')) return invalid(text, "only ':port' may follow ']'");
      port = rest.substr(1);
      has_port = true;
    }
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    auto colon = text.find(':');
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    has_port = true;
  } else if (text.find(':') != std::string_view::npos && !is_numeric_host(text)) {
    return invalid(text, "an IPv6 address with a port is written as [::1]:29500");
  }
  if (host.empty()) return invalid(text, "the host is empty");
  if (host.find_first_of(" \t\n") != std::string_view::npos) {
    return invalid(text, "the host contains a blank");
  }
  Endpoint endpoint{.host = std::string(host), .port = default_port};
  if (has_port) {
    Result<std::uint16_t> parsed = parse_port(port, least_port);
    if (!parsed) return invalid(text, to_string(parsed.error()));
    endpoint.port = *parsed;
  }
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  bool is_v6 = endpoint.host.find(':') != std::string::npos;
  std::string host = is_v6 ? "[" + endpoint.host + "]" : endpoint.host;
  return host + ":" + std::to_string(endpoint.port);
}

bool is_numeric_host(std::string_view host) {
  std::string text(host);
  in6_addr address{};
  if (::inet_pton(AF_INET, text.c_str(), &address) == 1) return true;
  return ::inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &address) == 1;
}

bool is_loopback_host(std::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  if (!host.starts_with("127.")) return false;
  return host.find_first_not_of("0123456789.") == std::string_view::npos;
}

bool is_address_of_machine(std::string_view host) {
  std::string text(host.substr(0, host.find('%')));
  in_addr v4{};
  in6_addr v6{};
  bool is_v4 = ::inet_pton(AF_INET, text.c_str(), &v4) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, text.c_str(), &v6) != 1) return false;
  if (!is_v4 && IN6_IS_ADDR_V4MAPPED(&v6)) {
    std::memcpy(&v4, &v6.s6_addr[12], sizeof v4);
    is_v4 = true;
  }
  if (!is_v4)
    return !IN6_IS_ADDR_UNSPECIFIED(&v6) && !IN6_IS_ADDR_LOOPBACK(&v6) &&
           !IN6_IS_ADDR_MULTICAST(&v6);
  std::uint32_t number = ntohl(v4.s_addr);
  std::uint32_t network = number >> 24;
  constexpr std::uint32_t kThisNetwork = 0, kLoopback = 127;
  return network != kThisNetwork && network != kLoopback && !IN_MULTICAST(number) &&
         number != INADDR_BROADCAST;
}

}  // namespace ddprun
