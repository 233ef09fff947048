// SPDX-License-Identifier: BSD-3-Clause
//
// What the NCCL plug-in (libddprun_nccl.so) offers to the runtime.  It is a library of its own
// because whatever links LibTorch's CUDA half takes 0.2 s and 250 MB more to start, and needs it to
// be there.
#pragma once

#include <cstdint>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace ddprun::ddp {

// The plug-in's functions, in the order of this build; both halves are of one build.
struct NcclInterface {
  std::int64_t size;        // of this struct, in bytes: a plug-in of another build differs
  const char* class_name;   // the c10d class behind it
  int compiled_version;     // of the nccl.h it was built with, as NCCL_VERSION_CODE
  int (*loaded_version)();  // of the libnccl that is loaded; 0 when NCCL does not say
  int (*gpu_count)();       // that CUDA_VISIBLE_DEVICES leaves; 0 without a driver

  // A backend over `store` for `device`, connected; the caller owns a reference to it.  Blocks
  // until all ranks have called it.  Throws c10::Error.
  c10d::Backend* (*make_backend)(c10d::Store* store, int rank, int world_size, int device,
                                 std::int64_t timeout_ms);
};

// The name of the plug-in's one function: const NcclInterface* ddprun_nccl_interface().
inline constexpr char kNcclEntry[] = "ddprun_nccl_interface";

}  // namespace ddprun::ddp
