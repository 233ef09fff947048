// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/random_name.h"

#include <cstdio>
#include <random>

namespace ddprun::rendezvous {

std::string random_name() {
  std::random_device device;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", device(), device());
  return text;
}

}  // namespace ddprun::rendezvous
