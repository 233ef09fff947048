// SPDX-License-Identifier: BSD-3-Clause
//
// CUDA's driver, of a machine with one GPU.  It opens nothing, so that only asking it shows that it
// is initialised.
namespace {

bool is_initialized = false;
constexpr int kSuccess = 0;
constexpr int kNotInitialized = 3;

}  // namespace

extern "C" {

int cuInit(unsigned) {
  is_initialized = true;
  return kSuccess;
}

int cuDeviceGetCount(int* count) {
  if (!is_initialized) return kNotInitialized;
  *count = 1;
  return kSuccess;
}
}
