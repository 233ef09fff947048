# SPDX-License-Identifier: BSD-3-Clause
"""The Python twin of 03_skewed_ranks.cc, with torch's monitored barrier.

    ddprun --standalone --nproc-per-node 2 --max-restarts 0 examples/python/skewed_ranks.py 0.5
    ddprun --standalone --nproc-per-node 2 --max-restarts 0 examples/python/skewed_ranks.py 5

The last rank is late by the seconds given.  In the second command rank 0 names it.
"""
import datetime
import sys
import time

import torch.distributed as dist

TIMEOUT = datetime.timedelta(seconds=2)


def main():
    late_s = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    dist.init_process_group("gloo")
    if dist.get_rank() == dist.get_world_size() - 1:
        time.sleep(late_s)
    dist.monitored_barrier(timeout=TIMEOUT, wait_all_ranks=True)
    if dist.get_rank() == 0:
        print(f"all {dist.get_world_size()} ranks came in time", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
