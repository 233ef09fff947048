// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace ddprun::rendezvous {

// 16 hexadecimal digits that nobody else has chosen.
std::string random_name();

}  // namespace ddprun::rendezvous
