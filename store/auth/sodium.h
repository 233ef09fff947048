// SPDX-License-Identifier: BSD-3-Clause
//
// libsodium, made ready.
#pragma once

namespace ddprun::store {

// To be called before anything of libsodium is; further calls have no effect.
void init_sodium();

}  // namespace ddprun::store
