// SPDX-License-Identifier: BSD-3-Clause
//
// A folder in which what this user's agents write is safe from other users.
#pragma once

#include <string>

#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::rendezvous {

// Makes the folder, for this user alone, if it is not there.  False, with the reason in errno.
bool make_own_folder(const std::string& path);

// Opens a folder that this user owns and no other has access to; a link to one is none.  The
// context of the failure says why it cannot be taken, and nothing else.
Result<Fd> open_own_folder(const std::string& path);

}  // namespace ddprun::rendezvous
