// SPDX-License-Identifier: BSD-3-Clause
//
// Preloaded into checkpoint_writer: a file system that cannot exchange two names, as NFS and
// Lustre.
#include <cerrno>
#include <cstdio>

extern "C" int renameat2(int, const char*, int, const char*, unsigned) {
  errno = EINVAL;
  return -1;
}
