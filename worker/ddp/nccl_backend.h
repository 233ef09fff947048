// SPDX-License-Identifier: BSD-3-Clause
//
// NCCL for CUDA tensors, out of a plug-in that is loaded when a program asks for it and a GPU is
// there.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "worker/ddp/nccl_interface.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace ddprun::ddp {

// Why a plug-in built with NCCL `compiled` must not be used with NCCL `loaded`, both as
// NCCL_VERSION_CODE (23007 is 2.30.7); empty when it may: major and minor are the same.
std::string nccl_version_problem(int compiled, int loaded);

// Which GPUs the worker `local_rank` has, of the `gpu_count` that it sees: those `asked` for, or,
// if there are none, that of its number.  The launcher's CUDA_VISIBLE_DEVICES, `visible`, has been
// applied by then, so that a worker under --virtual-local-rank, local rank 0 with one GPU to see,
// has that one.  Throws DdpError when there is none for it, and for what is asked and no GPU that
// it sees, or asked twice.
std::vector<at::Device> gpus_of(const std::vector<at::Device>& asked, int local_rank, int gpu_count,
                                const std::optional<std::string>& visible);

// `count` GPUs for the worker `local_rank` of `local_world_size` on a node with `gpu_count`: 2 for
// local rank 1 are GPUs 2 and 3.  Empty when there are not that many for each of the workers.
std::vector<at::Device> gpus_for_each(int count, int local_rank, int local_world_size,
                                      int gpu_count);

// Why no GPU can be used, as NVIDIA's driver sees it; empty when there is one.  Loads the driver's
// library and no other.
std::string why_no_gpu();

// Loads the plug-in, once for the process.  Throws DdpError: it is not there, it belongs to another
// build, or the wrong NCCL is loaded.  Needs no GPU.
const NcclInterface& load_nccl();

// NCCL among the ranks, for CUDA tensors on `gpus`; returns when all have connected.  Each GPU of a
// rank has a communicator of its own, with the GPU at the same place in the other ranks' lists: a
// tensor on the second of them is reduced with the tensors on the others' second.  The lists are of
// equal length, not empty.  A tensor on another GPU is refused with a DdpError.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const NcclInterface& plugin,
                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int world_size,
                                                    const std::vector<at::Device>& gpus,
                                                    std::chrono::milliseconds timeout);

// Throws the DdpError of a worker that asks for NCCL and has no GPU; loads no library but the
// driver's.
void require_gpu(const std::optional<std::string>& visible);

}  // namespace ddprun::ddp
