// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/stamp.h"

namespace ddprun::store {
namespace {

constexpr std::string_view kStamp = "\nfrom ";

}  // namespace

std::string stamped(std::string_view item, std::string_view host) {
  std::string text;
  text.reserve(item.size() + kStamp.size() + host.size());
  return text.append(item).append(kStamp).append(host);
}

std::optional<std::string> take_stamp(std::string& item) {
  std::size_t begin = item.rfind(kStamp);
  if (begin == std::string::npos) return std::nullopt;
  std::string host = item.substr(begin + kStamp.size());
  item.resize(begin);
  return host;
}

}  // namespace ddprun::store
