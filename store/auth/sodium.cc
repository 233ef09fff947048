// SPDX-License-Identifier: BSD-3-Clause
#include "store/auth/sodium.h"

#include <sodium.h>

#include "store/base/check.h"

namespace ddprun::store {

void init_sodium() {
  static const int status = ::sodium_init();
  check(status >= 0, "libsodium has found no source of random bits");
}

}  // namespace ddprun::store
