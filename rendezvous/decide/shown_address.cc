// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/shown_address.h"

#include <algorithm>
#include <iterator>

#include "store/base/endpoint.h"
#include "store/decide/allow_list.h"

namespace ddprun::rendezvous {
namespace {

store::AllowList list_of(const std::vector<std::string>& addresses) {
  store::AllowList list;
  for (const std::string& address : addresses) list.add(address);
  return list;
}

}  // namespace

std::vector<std::string> believed_addresses(const std::vector<std::string>& said,
                                            const std::string& shown,
                                            const std::vector<std::string>& here) {
  const store::AllowList of_here = list_of(here);
  if (is_loopback_host(shown) || of_here.lists(shown)) {
    std::vector<std::string> believed;
    std::ranges::copy_if(said, std::back_inserter(believed),
                         [&](const std::string& address) { return of_here.lists(address); });
    return believed;
  }
  return list_of(said).lists(shown) ? said : std::vector<std::string>();
}

std::string unbelieved_text(const request::Join& join, const std::string& shown,
                            const std::vector<std::string>& believed) {
  if (believed.size() == join.addresses.size()) return "";
  return join.host + " (pid " + std::to_string(join.pid) + ") connects from " + shown +
         ", which is not among the addresses that it says it has: " +
         (believed.empty() ? "none of them is" : "not all of them are") +
         " admitted to the workers' store (NAT may be in between: give the nodes a secret, or "
         "--worker-store-allow)";
}

}  // namespace ddprun::rendezvous
