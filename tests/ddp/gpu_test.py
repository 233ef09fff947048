#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""DDP over NCCL, on as many ranks as this machine has GPUs, 4 at most.  Skipped without one.

usage: gpu_test.py GPU_RANKS
"""

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from local_ranks import run_ranks, skip


def gpu_count():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        skip(f"NCCL was NOT tried: this machine has no GPU ({error})")
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0 or count.value == 0:
        skip(f"NCCL was NOT tried: NVIDIA's driver sees no GPU (status {status})")
    return count.value


def main(program):
    world_size = min(gpu_count(), 4)
    ranks = run_ranks([program], world_size)
    for rank in ranks:
        assert rank.returncode == 0, rank.output
    assert f"done on {world_size} GPUs" in ranks[0].output, ranks[0].output
    print(f"NCCL trained on {world_size} GPU(s)")


if __name__ == "__main__":
    main(*sys.argv[1:])
