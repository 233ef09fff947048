// SPDX-License-Identifier: BSD-3-Clause
//
// NCCL for CUDA tensors, out of a plug-in that is loaded when a program asks for it and a GPU is
// there.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <optional>
#include <string>

#include "worker/ddp/nccl_interface.h"
#include "worker/env.h"

namespace ddprun::ddp {

// Why a plug-in built with NCCL `compiled` must not be used with NCCL `loaded`, both as
// NCCL_VERSION_CODE (23007 is 2.30.7); empty when it may: major and minor are the same.
std::string nccl_version_problem(int compiled, int loaded);

// Which GPU the worker `local_rank` has, of the `gpu_count` that it sees: that of its number.  The
// launcher's CUDA_VISIBLE_DEVICES, `visible`, has been applied by then, so that a worker under
// --virtual-local-rank, local rank 0 with one GPU to see, has that one.  Throws DdpError when there
// is none for it.
int gpu_of(int local_rank, int gpu_count, const std::optional<std::string>& visible);

// Why no GPU can be used, as NVIDIA's driver sees it; empty when there is one.  Loads the driver's
// library and no other.
std::string why_no_gpu();

// Loads the plug-in, once for the process.  Throws DdpError: it is not there, it belongs to another
// build, or the wrong NCCL is loaded.  Needs no GPU.
const NcclInterface& load_nccl();

// NCCL among the ranks, for CUDA tensors on `gpu`; returns when all have connected.  Throws
// DdpError without a GPU, before it loads anything.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const worker::WorkerEnv& env,
                                                    const std::optional<std::string>& visible,
                                                    std::chrono::milliseconds timeout);

}  // namespace ddprun::ddp
