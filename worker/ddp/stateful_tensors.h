// SPDX-License-Identifier: BSD-3-Clause
//
// The states of a program's Stateful objects as the tensors of one file: "hook.iteration" is common
// to all ranks, "hook.error0/1" is that of rank 1.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "store/base/error.h"
#include "worker/ddp/named_tensor.h"
#include "worker/ddp/rank_agreement.h"
#include "worker/ddp/stateful.h"
#include "worker/ddp/tensor_file.h"

namespace ddprun::ddp {

using StatefulObjects = std::map<std::string, Stateful*>;

// What this rank writes of them: its own tensors, and on rank 0 the common ones.  All ranks call
// it; each throws the same DdpError when the states of the ranks do not fit together, or one has
// none.
std::vector<NamedTensor> own_stateful_tensors(const StatefulObjects& objects, const Ranks& ranks);

// The tensors of all ranks, on rank 0; nothing on the others.  Otherwise the same.
std::vector<NamedTensor> gather_stateful_tensors(const StatefulObjects& objects,
                                                 const Ranks& ranks);

// Gives each object its state out of `saved`.  Fails with Errc::Protocol if an object has none
// there. Throws what load_state_dict() throws.
Result<void> restore_stateful(const StatefulObjects& objects, const TensorMap& saved,
                              const Ranks& ranks);

}  // namespace ddprun::ddp
