// SPDX-License-Identifier: BSD-3-Clause
//
// Tells the other ranks which parameters this rank's backward pass has left out.
#pragma once

#include <string>
#include <vector>

#include "worker/ddp/gradient_watch.h"
#include "worker/ddp/process_group.h"

namespace ddprun::ddp {

// Reports each change to the group's PeerFailures.  `owner` identifies the wrapped module, `names`
// are those of its trainable parameters; `may_follow`: another backward pass of the step may bring
// what one has left out.
GradientWatch::AtEnd left_out_report(const ProcessGroup& group, const void* owner,
                                     const std::vector<std::string>& names, bool may_follow);

}  // namespace ddprun::ddp
