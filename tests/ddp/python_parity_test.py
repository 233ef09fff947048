#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The same training by our runtime and by Python's DistributedDataParallel, gradient by gradient.

usage: python_parity_test.py PARITY_RANKS           compares, in every mode
       python_parity_test.py --rank FOLDER MODE...  is one rank of the Python side
"""

import contextlib
import importlib.util
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from local_ranks import run_ranks, skip
from safetensors_file import read

STEPS = 6
TOLERANCE = 1e-6
MODES = {
    "plain": {},
    "views": {"gradient_as_bucket_view": True},
    "buckets": {"bucket_cap_mb": 64 / 2**20},
    "unused": {"find_unused_parameters": True},
    "unused_views": {"find_unused_parameters": True, "gradient_as_bucket_view": True},
    "static": {"static_graph": True},
    "no_sync": {},
    "float16": {},
    "bfloat16": {},
}


def make_net(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(6, 5)
            self.norm = torch.nn.BatchNorm1d(5)
            self.wide = torch.nn.Linear(5, 70)
            self.left = torch.nn.Linear(70, 3)
            self.right = torch.nn.Linear(70, 3)

        def forward(self, x, go_left):
            x = torch.tanh(self.wide(self.norm(torch.relu(self.first(x)))))
            return self.left(x) if go_left else self.right(x)

    return Net()


def train(mode, file):
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    def wave(count, phase):
        return torch.sin(torch.arange(count, dtype=torch.float64) * 0.7 + phase).float()

    net = make_net(torch)
    for index, parameter in enumerate(net.parameters()):
        parameter.data.copy_(wave(parameter.numel(), index).view_as(parameter) * 0.3)
    has_branches = mode.startswith("unused")
    net.right.requires_grad_(has_branches)

    model = torch.nn.parallel.DistributedDataParallel(net, **MODES[mode])
    if mode == "float16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if mode == "bfloat16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    seen = {}
    for step in range(STEPS):
        x = wave(4 * 6, 10 * step + dist.get_rank()).view(4, 6)
        go_left = not has_branches or (step + dist.get_rank()) % 3 != 0
        is_last_of_two = mode != "no_sync" or step % 2 == 1
        if mode != "no_sync" or step % 2 == 0:
            optimizer.zero_grad()
        with contextlib.nullcontext() if is_last_of_two else model.no_sync():
            model(x, go_left).square().mean().backward()
        if is_last_of_two:
            optimizer.step()
        for name, parameter in net.named_parameters():
            if parameter.grad is not None:
                seen[f"step {step}: {name}"] = parameter.grad.clone()
    for name, tensor in net.state_dict().items():
        seen[f"end: {name}"] = tensor
    if dist.get_rank() == 0:
        torch.save(seen, file)


def train_all(folder, *modes):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for mode in modes:
        train(mode, Path(folder) / mode)
    dist.barrier()
    dist.destroy_process_group()


def compare(mode, ours, theirs):
    """The largest difference between the two files' tensors, which must be the same ones."""
    import torch

    dtypes = {"F32": torch.float32, "I64": torch.int64}
    ours, theirs = read(ours), torch.load(theirs)
    assert set(ours) == set(theirs), (mode, sorted(set(ours) ^ set(theirs)))
    largest = 0.0
    for name, (dtype, shape, data) in ours.items():
        here = torch.frombuffer(bytearray(data), dtype=dtypes[dtype]).view(shape)
        difference = (here - theirs[name]).abs().max().item()
        assert difference <= TOLERANCE, (mode, name, difference)
        largest = max(largest, difference)
    return largest, len(ours)


def main(program):
    if importlib.util.find_spec("torch") is None:
        skip(f"{sys.executable} has no torch")
    with tempfile.TemporaryDirectory() as base:
        for side, command in (("ours", [program]), ("theirs", [sys.executable, __file__, "--rank"])):
            folder = Path(base) / side
            folder.mkdir()
            for rank in run_ranks([*command, str(folder), *MODES], 2):
                assert rank.returncode == 0, (side, rank.output)
        for mode in MODES:
            largest, count = compare(mode, Path(base) / "ours" / mode, Path(base) / "theirs" / mode)
            equal = "equal bit for bit" if largest == 0 else f"at most {largest:.1e} apart"
            print(f"{mode}: {count} tensors {equal}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        train_all(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
