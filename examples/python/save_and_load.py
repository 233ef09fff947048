# SPDX-License-Identifier: BSD-3-Clause
"""The Python twin of 04_save_and_load.cc: the same model, data and losses.

    ddprun --standalone --nproc-per-node 2 examples/python/save_and_load.py build/checkpoints/demo.pt

Rank 0 writes; every rank reads what it wrote, after a barrier.
"""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
SAVED_STEP = 3


def make_training(seed):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))
    return net, torch.optim.Adam(net.parameters(), lr=0.01)


def run(net, optimizer, step, path=None):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(net)
    while step < STEPS:
        torch.manual_seed(100 * step + rank)
        inputs = torch.randn(20, 10)
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        step += 1
        if step == SAVED_STEP and path and rank == 0:
            torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, path)

        mean_loss = loss.detach().clone()
        dist.all_reduce(mean_loss)
        if rank == 0:
            print(f"step {step}: loss {mean_loss.item() / world_size:.6f}", flush=True)


def main(path):
    dist.init_process_group("gloo")
    run(*make_training(seed=0), step=0, path=path)

    dist.barrier()  # the file is there when rank 0 has come here
    net, optimizer = make_training(seed=1)
    saved = torch.load(path)
    net.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    run(net, optimizer, step=SAVED_STEP)
    # Gloo's thread may hold the last all_reduce's tensor a little longer than this one does, and aborts
    # where it lets go of it while Python ends (torch 2.15).  After a barrier it holds none of Python's.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
