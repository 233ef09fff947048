# SPDX-License-Identifier: BSD-3-Clause
"""The GPUs of this machine, for tests of NCCL."""

import ctypes
import sys


def count_or_skip():
    """How many NVIDIA's driver sees; ends the test as skipped when it sees none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        skip(f"this machine has no GPU ({error})")
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0 or count.value == 0:
        skip(f"NVIDIA's driver sees no GPU (status {status})")
    return count.value


def skip(why):
    print(f"skipped: NCCL was NOT tried: {why}")
    sys.exit(77)


def on_a_host_of_its_own(number):
    """The variables with which a rank takes itself for one on another host than those of other numbers.

    NCCL refuses two ranks of one host on one GPU; so they share it, and speak over sockets.
    """
    return {"NCCL_HOSTID": f"host{number}", "NCCL_SOCKET_IFNAME": "lo"}
