// SPDX-License-Identifier: BSD-3-Clause
//
// What getaddrinfo() finds, owned.
#pragma once

#include <netdb.h>

#include <memory>

namespace ddprun::ddp {

struct FreeAddresses {
  void operator()(addrinfo* first) const { ::freeaddrinfo(first); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

}  // namespace ddprun::ddp
