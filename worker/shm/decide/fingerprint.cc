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
    case Collective::Reduce:
      return "reduce";
    case Collective::Gather:
      return "gather";
  }
  return "collective";
}

std::string describe(const Fingerprint& fingerprint) {
  std::string text = name_of(fingerprint.collective);
  const std::string to_root = " to rank " + std::to_string(fingerprint.root);
  switch (fingerprint.collective) {
    case Collective::AllReduce:
    case Collective::Reduce:
      text += " (" + std::string(name_of(fingerprint.reduction)) + ") of " +
              std::to_string(fingerprint.bytes / bytes_of(fingerprint.element)) + " " +
              name_of(fingerprint.element);
      return fingerprint.collective == Collective::Reduce ? text + to_root : text;
    case Collective::Broadcast:
      return text + " of " + std::to_string(fingerprint.bytes) + " bytes from rank " +
             std::to_string(fingerprint.root);
    case Collective::AllGather:
      return text + " of " + std::to_string(fingerprint.bytes) + " bytes";
    case Collective::Gather:
      return text + " of " + std::to_string(fingerprint.bytes) + " bytes" + to_root;
    case Collective::Barrier:
      return text;
  }
  return text;
}

}  // namespace ddprun::ddp::shm
