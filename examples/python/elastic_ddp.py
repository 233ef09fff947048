# SPDX-License-Identifier: BSD-3-Clause
"""A small DistributedDataParallel program for any number of ranks, as a launcher's first test.

    ddprun --nnodes=1 --nproc_per_node=2 --rdzv_id=100 --rdzv_backend=c10d \
           --rdzv_endpoint=localhost:29400 examples/python/elastic_ddp.py

Each rank learns from data of its own; rank 0 prints the mean loss of each step over all ranks.  The
seeds are fixed, so the losses depend on the number of ranks and on nothing else: under ddprun and
under torchrun they are the same.  The backend is NCCL where there is a GPU for each rank, else Gloo.
"""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 10
BATCH_SIZE = 20


class ToyModel(nn.Module):
    """Two layers: enough for DDP to have something to reduce."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))

    def forward(self, x):
        return self.layers(x)


def choose_device():
    """The GPU of this local rank when each local rank has one, else the CPU."""
    local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if torch.cuda.is_available() and torch.cuda.device_count() >= local_world_size:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return torch.device("cpu")


def main():
    device = choose_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    restart_count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    print(f"rank {rank} of {world_size} on {device}, restart {restart_count}", flush=True)

    torch.manual_seed(0)  # DDP would make the ranks equal; the seed makes the runs equal
    ddp_model = DistributedDataParallel(ToyModel().to(device))
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.05)
    loss_function = nn.MSELoss()

    generator = torch.Generator().manual_seed(1000 + rank)
    inputs = torch.randn(BATCH_SIZE, 10, generator=generator).to(device)
    targets = torch.randn(BATCH_SIZE, 5, generator=generator).to(device)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = loss_function(ddp_model(inputs), targets)
        loss.backward()
        optimizer.step()
        mean_loss = loss.detach().clone()
        dist.all_reduce(mean_loss)
        if rank == 0:
            print(f"step {step}: loss {mean_loss.item() / world_size:.6f}", flush=True)
    # Gloo's thread may hold the last all_reduce's tensor a little longer than this one does, and aborts
    # where it lets go of it while Python ends (torch 2.15).  After a barrier it holds none of Python's.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
