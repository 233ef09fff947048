// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/endpoint.h"

#include <arpa/inet.h>

#include <algorithm>

#include "store/base/number.h"

namespace ddprun {
namespace {

Error invalid(std::string_view text, std::string_view why) {
  return {Errc::InvalidInput, "'" + std::string(text) + "' is not host:port: " + std::string(why)};
}

}  // namespace

Result<std::uint16_t> parse_port(std::string_view text) {
  if (auto port = number_in<std::uint16_t>(text)) return *port;
  return Error{Errc::InvalidInput,
               "'" + std::string(text) + "' is not a port (a number from 0 to 65535)"};
}

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
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
    Result<std::uint16_t> parsed = parse_port(port);
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

}  // namespace ddprun
