// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/left_out_report.h"

#include "worker/ddp/peer_failures.h"

namespace ddprun::ddp {

GradientWatch::AtEnd left_out_report(const ProcessGroup& group, const void* owner,
                                     const std::vector<std::string>& names, bool may_follow) {
  return [group, owner, names, may_follow](const std::vector<std::size_t>& missing) {
    if (missing.empty()) {
      group.peer_failures().clear_left_out(owner);
      return;
    }
    std::vector<std::string> left_out;
    for (std::size_t index : missing) left_out.push_back(names[index]);
    group.peer_failures().set_left_out(owner, left_out, may_follow);
  };
}

}  // namespace ddprun::ddp
