// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/buffer_sync.h"

#include "worker/ddp/module_states.h"

namespace ddprun::ddp {

void BufferSync::before_forward(int root) {
  if (is_on_ && is_due_) broadcast_buffers(group_, module_, root);
}

}  // namespace ddprun::ddp
