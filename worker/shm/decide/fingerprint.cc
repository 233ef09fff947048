// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/decide/fingerprint.h"

namespace ddprun::ddp::shm {

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::AllReduce:
      return "all_reduce";
    case Collective::Broadcast:
      return "broadcast";
    case Collective::AllGather:
      return "all_gather";
    case Collective::Barrier:
      return "barrier";
  }
  return "collective";
}

std::string in_words(const Call& call) {
  std::string text = name_of(call.collective);
  switch (call.collective) {
    case Collective::AllReduce:
      return text + " (" + name_of(call.reduction) + ") of " +
             std::to_string(call.bytes / bytes_of(call.element)) + " " + name_of(call.element);
    case Collective::Broadcast:
      return text + " of " + std::to_string(call.bytes) + " bytes from rank " +
             std::to_string(call.root);
    case Collective::AllGather:
      return text + " of " + std::to_string(call.bytes) + " bytes";
    case Collective::Barrier:
      return text;
  }
  return text;
}

}  // namespace ddprun::ddp::shm
