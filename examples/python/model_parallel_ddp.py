# SPDX-License-Identifier: BSD-3-Clause
"""The Python twin of 05_model_parallel_ddp.cc: the same model, data and losses.

    ddprun --standalone --nproc-per-node 2 examples/python/model_parallel_ddp.py
"""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 10


class SplitModel(nn.Module):
    """The first half on one device, the second on another; the activations travel between."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second
        self.net1 = nn.Linear(10, 30).to(first)
        self.net2 = nn.Linear(30, 5).to(second)

    def forward(self, x):
        x = torch.relu(self.net1(x.to(self.first)))
        return self.net2(x.to(self.second))


def devices():
    """Two GPUs of this worker's own where there are two for each, and else the CPU twice."""
    first = 2 * int(os.environ["LOCAL_RANK"])
    if torch.cuda.device_count() < 2 * int(os.environ["LOCAL_WORLD_SIZE"]):
        return ["cpu", "cpu"]
    return [f"cuda:{first}", f"cuda:{first + 1}"]


def main():
    first, second = devices()
    dist.init_process_group("gloo" if first == "cpu" else "cpu:gloo,cuda:nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(SplitModel(first, second))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    torch.manual_seed(1000 + rank)
    inputs = torch.randn(20, 10)
    targets = torch.randn(20, 5)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        output = model(inputs)
        loss = nn.functional.mse_loss(output, targets.to(output.device))
        loss.backward()
        optimizer.step()

        mean_loss = loss.detach().cpu().clone()
        dist.all_reduce(mean_loss)
        if rank == 0:
            print(f"step {step}: loss {mean_loss.item() / world_size:.6f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
