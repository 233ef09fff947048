#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The same training by our runtime and by Python's DistributedDataParallel, gradient by gradient.

usage: python_parity_test.py PARITY_RANKS WORLD_SIZE...   compares, in every mode and world
       python_parity_test.py PARITY_RANKS --gpu           the same of two ranks over NCCL, which share a GPU
       python_parity_test.py --rank BACKEND FOLDER MODE...  is one rank of the Python side
"""

import contextlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from local_ranks import on_one_gpu, run_ranks, skip
from safetensors_file import read
from gpus import count_or_skip

CPU_BACKENDS = ("gloo", "shm")
STEPS = 6
TOLERANCE = 1e-6
# Three ranks or more over shared memory add half types up in float and round once, where Gloo
# rounds after each addition.  A few units in the last place, beside the largest of a tensor.
HALF_TOLERANCE = {
    "float16": 4 * 2**-10,
    "bfloat16": 4 * 2**-7,
    "float16_module": 4 * 2**-10,
}
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
    "hook": {},
    "power_sgd": {},
    "fresh_power_sgd": {},
    "post_local_sgd": {},
    "post_local_alone": {},
    "mixed": {},
    "two": {},
    "outputs": {"find_unused_parameters": True},
    "batched": {"batched_grad_copy": True},
    "lazy": {"lazy_bucket_allocation": True},
    "clip": {},
    "join": {},
    "join_remaining": {},
    "join_static": {"static_graph": True},
    "subgroup": {},
    "ignored": {},
    "sync_batch_norm": {},
    "bfloat16_module": {},
    "float16_module": {},
    "zero": {},
}
HOOKS = {"float16": "fp16_compress_hook", "bfloat16": "bf16_compress_hook", "hook": "allreduce_hook"}

POWER_SGD = {
    "power_sgd": {"start_powerSGD_iter": 2},
    "fresh_power_sgd": {
        "matrix_approximation_rank": 3,
        "start_powerSGD_iter": 1,
        "min_compression_rate": 0.5,
        "use_error_feedback": False,
        "warm_start": False,
        "orthogonalization_epsilon": 1e-8,
        "random_seed": 5,
        "batch_tensors_with_same_shape": True,
    },
}
MIXED_PRECISION = {  # param_dtype, reduce_dtype
    "bfloat16_module": ("bfloat16", "float32"),
    "float16_module": ("float16", "float16"),
}
POST_LOCAL = {"post_local_sgd": True, "post_local_alone": False}  # whether subgroups reduce


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
            branch = self.left if go_left else self.right
            return {"main": branch(x.to(branch.weight.dtype)).float(), "hidden": x}

    return Net()


def wave(torch, count, phase):
    return torch.sin(torch.arange(count, dtype=torch.float64) * 0.7 + phase).float()


def make_net_of(torch, mode, phase):
    net = make_net(torch)
    for index, parameter in enumerate(net.parameters()):
        parameter.data.copy_(wave(torch, parameter.numel(), phase + index).view_as(parameter) * 0.3)
    net.right.requires_grad_(mode.startswith("unused"))
    if mode == "mixed":
        net.left.double()
        net.norm.requires_grad_(False)
    return net


def subgroup_of(dist):
    """Rank 0 with the last one; the others form a group of their own."""
    last = dist.get_world_size() - 1
    outer = dist.new_group(sorted({0, last}))
    inner = dist.new_group(list(range(1, last))) if last > 1 else None
    return outer if dist.get_rank() in (0, last) else inner


def register_hook(mode, model, dist):
    from torch.distributed.algorithms.ddp_comm_hooks import (
        default_hooks, post_localSGD_hook, powerSGD_hook)

    if mode in HOOKS:
        model.register_comm_hook(None, getattr(default_hooks, HOOKS[mode]))
    elif mode in POWER_SGD:
        state = powerSGD_hook.PowerSGDState(None, **POWER_SGD[mode])
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif mode in POST_LOCAL:
        group = subgroup_of(dist) if POST_LOCAL[mode] else None
        state = post_localSGD_hook.PostLocalSGDState(None, group, 2, POST_LOCAL[mode])
        model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)


class NoStream(contextlib.nullcontext):
    """A stream and event where there is no accelerator, which Python's mixed precision asks for."""

    def record(self, *_, **__):
        pass

    wait = wait_stream = record


def options_of(torch, mode, device):
    if mode not in MIXED_PRECISION:
        return MODES[mode]
    from torch.nn.parallel.distributed import _MixedPrecision

    if device == "cpu":
        torch.Stream = torch.Event = NoStream
        torch.accelerator.current_stream = NoStream
    param, reduce = (getattr(torch, name) for name in MIXED_PRECISION[mode])
    return {"mixed_precision": _MixedPrecision(param, reduce, param)}


def make_optimizer(torch, mode, parameters):
    if mode == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=0.1, momentum=0.9)
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    return averaging(optimizer) if mode in POST_LOCAL else optimizer


def averaging(optimizer):
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    return PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(period=2, warmup_steps=2))


class Training:
    """One training in one mode; keeps the gradients of each step in `seen`."""

    def __init__(self, torch, dist, mode, device):
        self.torch, self.dist, self.mode, self.device, self.seen = torch, dist, mode, device, {}
        self.nets = [make_net_of(torch, mode, 5.0 * i).to(device) for i in range(2 if mode == "two" else 1)]
        group = subgroup_of(dist) if mode == "subgroup" else None
        if mode == "sync_batch_norm" and device != "cpu":
            self.nets = [torch.nn.SyncBatchNorm.convert_sync_batchnorm(net) for net in self.nets]
        self.rank = dist.get_rank(group)
        if mode == "ignored":
            for net in self.nets:
                torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
                    net, ["wide.weight", "norm.running_mean"])
        self.models = [
            torch.nn.parallel.DistributedDataParallel(net, process_group=group, **options_of(torch, mode, device))
            for net in self.nets
        ]
        for model in self.models:
            register_hook(mode, model, dist)
        parameters = [parameter for net in self.nets for parameter in net.parameters()]
        self.optimizer = make_optimizer(torch, mode, parameters)

    def backward(self, step):
        rank = self.rank
        x = wave(self.torch, 4 * 6, 10 * step + rank).view(4, 6)
        if self.mode == "sync_batch_norm" and self.device == "cpu":
            # torch's SyncBatchNorm refuses tensors on the CPU.  It promises what BatchNorm makes of
            # the samples of all ranks, so here each rank has all of them.
            parts = [wave(self.torch, 4 * 6, 10 * step + rank) for rank in range(self.dist.get_world_size())]
            x = self.torch.cat(parts).view(-1, 6)
        x = x.to(self.device)
        go_left = not self.mode.startswith("unused") or (step + rank) % 3 != 0
        output = "hidden" if self.mode == "outputs" and step % 2 == 1 else "main"
        sum(model(x, go_left)[output].square().mean() for model in self.models).backward()

    def step(self, step):
        is_accumulating = self.mode.startswith("no_sync")
        is_last_of_two = not is_accumulating or step % 2 == 1
        if not is_accumulating or step % 2 == 0:
            self.optimizer.zero_grad()
        with contextlib.nullcontext() if is_last_of_two else self.models[0].no_sync():
            self.backward(step)
        if self.mode == "clip":
            self.torch.nn.utils.clip_grad_norm_(self.nets[0].parameters(), 0.05)
        if is_last_of_two:
            self.optimizer.step()
        for i, model in enumerate(self.models):
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    self.seen[f"step {step}: net {i} {name}"] = parameter.grad.clone()

    def run(self):
        if self.mode in MIXED_PRECISION:
            # The first step would reduce what was in the memory of the buckets before.
            self.backward(0)
            self.optimizer.zero_grad()
        if self.mode.startswith("join"):
            whole = self.mode != "join_remaining"
            with self.models[0].join(divide_by_initial_world_size=whole):
                # The first step of a static graph is every rank's.
                least = 1 if self.mode == "join_static" else 0
                for step in range(max(STEPS - 2 * self.dist.get_rank(), least)):
                    self.step(step)
        else:
            for step in range(STEPS):
                self.step(step)
        for i, model in enumerate(self.models):
            for name, tensor in model.state_dict().items():
                self.seen[f"end: net {i} {name}"] = tensor


def train_all(backend, folder, *modes):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(backend)
    for mode in modes:
        training = Training(torch, dist, mode, "cuda" if backend == "nccl" else "cpu")
        training.run()
        if dist.get_rank() == 0:
            torch.save(training.seen, Path(folder) / mode)
    dist.barrier()
    os._exit(0)  # at an ordinary end torch 2.15's Gloo may abort, with or without destroy_process_group()


def compare(mode, tolerance, ours, theirs):
    """The largest difference between the two files' tensors, which must be the same ones."""
    import torch

    dtypes = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64,
              "F16": torch.float16, "BF16": torch.bfloat16}
    ours, theirs = read(ours), torch.load(theirs, map_location="cpu")
    assert set(ours) == set(theirs), (mode, sorted(set(ours) ^ set(theirs)))
    largest = 0.0
    for name, (dtype, shape, data) in ours.items():
        here = torch.frombuffer(bytearray(data), dtype=dtypes[dtype]).view(shape)
        difference = (here - theirs[name]).abs().max().item()
        scale = max(1.0, theirs[name].abs().max().item())
        assert difference <= tolerance * scale, (mode, name, difference, scale)
        largest = max(largest, difference)
    return largest, len(ours)


def modes_of_this_torch():
    """Those that its DistributedDataParallel has; our runtime refuses the others likewise."""
    import inspect

    from torch.nn.parallel import DistributedDataParallel

    known = inspect.signature(DistributedDataParallel).parameters
    missing = {"batched": "batched_grad_copy", "lazy": "lazy_bucket_allocation"}
    return [mode for mode in MODES if mode not in missing or missing[mode] in known]


def compare_world(program, world_size, modes, backends=CPU_BACKENDS, variables_of=lambda rank: {}):
    """What compare() says of each backend and mode, in words; Python's side has the first one."""
    sides = {backend: ["env", f"DDPRUN_BACKEND={backend}", program] for backend in backends}
    sides["Python"] = [sys.executable, __file__, "--rank", backends[0]]
    with tempfile.TemporaryDirectory() as base:
        for side, command in sides.items():
            folder = Path(base) / side
            folder.mkdir()
            for rank in run_ranks([*command, str(folder), *modes], world_size, timeout=240,
                                  variables_of=variables_of):
                assert rank.returncode == 0, (side, world_size, rank.output)
        words = {}
        for backend in backends:
            for mode in modes:
                tolerance = HALF_TOLERANCE.get(mode, TOLERANCE) if backend == "shm" else TOLERANCE
                ours, theirs = (Path(base) / side / mode for side in (backend, "Python"))
                largest, count = compare(mode, tolerance, ours, theirs)
                words[backend, mode] = f"{count} equal" if largest == 0 else f"{count} within {largest:.0e}"
        return words


def main(program, *world_sizes):
    if importlib.util.find_spec("torch") is None:
        skip(f"{sys.executable} has no torch")
    modes, backends = modes_of_this_torch(), CPU_BACKENDS
    if world_sizes == ("--gpu",):
        count_or_skip()
        backends = ("nccl",)
        found = {2: compare_world(program, 2, modes, backends, on_one_gpu)}
    else:
        found = {world_size: compare_world(program, int(world_size), modes) for world_size in world_sizes}
    print("tensors compared | backend | " + " | ".join(f"{size} ranks" for size in found))
    for mode in modes:
        for backend in backends:
            cells = " | ".join(words[backend, mode] for words in found.values())
            print(f"{mode} | {backend} | {cells}")


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        train_all(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
