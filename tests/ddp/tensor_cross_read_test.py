#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who reads whose file of tensors: torch.save, torch.load, the safetensors package, ddpctl and us.

usage: tensor_cross_read_test.py DDPCTL [TENSOR_COPIER]

With torch alone: what Python saves is converted by ddpctl, which shares its readers and writers
with the runtime, and read again in Python by torch.load with weights_only and with mmap.  With the
safetensors package, where it is installed, in both directions too.  TENSOR_COPIER loads a file
through LibTorch and saves it (tensor_copier.cc).  Prints the table of CHECKPOINTS.md.
"""

import subprocess
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path

import torch

try:
    from safetensors.torch import load_file, save_file
except ImportError:
    load_file = save_file = None

DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float8_e5m2, torch.float8_e4m3fn),
]


def tensors():
    made = {str(dtype)[6:]: torch.arange(6).to(dtype).view(2, 3) for dtype in DTYPES}
    made["number"] = torch.tensor(2.5)
    made["empty"] = torch.empty(2, 0, 3)
    made["large"] = torch.tensor([2**40 + 1])
    return made


def awkward():
    """What only Python's own files have: strides, shared storages, parameters."""
    base = torch.arange(24.0)
    made = {
        "transposed": base.view(4, 6).t(),
        "every other": base[1::2],
        "view": base.view(2, 3, 4)[:, 1],
        "parameter": torch.nn.Parameter(torch.ones(3)),
    }
    made["same again"] = made["view"]
    return made


def same(ours, theirs):
    assert list(sorted(ours)) == list(sorted(theirs)), (sorted(ours), sorted(theirs))
    for name, tensor in theirs.items():
        other = ours[name]
        assert other.dtype == tensor.dtype and other.shape == tensor.shape, name
        as_bytes = [t.detach().contiguous().flatten().view(torch.uint8) if t.dim() else t for t in (other, tensor)]  # fmt: skip
        assert torch.equal(*as_bytes), name


class Bench:
    def __init__(self, ddpctl, copier, folder):
        self.ddpctl, self.copier, self.folder = ddpctl, copier, Path(folder)

    def ours(self, source, ending):
        """`source` read and written by our own code, once by each of the programs."""
        target = self.folder / f"ours.{ending}"
        commands = [[self.ddpctl, "ckpt", "convert", str(source), str(target)]]
        if self.copier:
            commands.append([self.copier, str(source), str(target)])
        for command in commands:
            target.unlink(missing_ok=True)
            subprocess.run(command, check=True, capture_output=True)
            yield target

    def refusal(self, source):
        command = [self.ddpctl, "ckpt", "show", str(source)]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 1 and ended.stderr.count("\n") == 1, ended
        return ended.stderr

    def check_into_python(self, source, expected):
        """Every reader of Python on our copies of `source`."""
        for copy in self.ours(source, "pt"):
            for mmap in (False, True):
                loaded = torch.load(copy, weights_only=True, mmap=mmap)
                assert type(loaded) is dict
                same(loaded, expected)
        if load_file:
            for copy in self.ours(source, "safetensors"):
                same(load_file(copy), expected)

    def check_state_dict(self):
        net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4))
        torch.save(net.state_dict(), self.folder / "net.pt")
        for copy in self.ours(self.folder / "net.pt", "pt"):
            again = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4))
            again.load_state_dict(torch.load(copy, weights_only=True))
            same(again.state_dict(), net.state_dict())

    def check_nested(self):
        net = torch.nn.Linear(2, 2)
        optimizer = torch.optim.Adam(net.parameters())
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        path = self.folder / "nested.pt"
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
        shown = subprocess.run([self.ddpctl, "ckpt", "show", str(path)], capture_output=True, text=True)
        for line in ("model/weight  F32 [2, 2]", "optimizer/state/0/exp_avg  F32 [2, 2]", "epoch = 3",
                     "optimizer/param_groups/0/lr = 0.001"):  # fmt: skip
            assert f"  {line}\n" in shown.stdout, (line, shown)

    def check_refusals(self):
        path = self.folder / "refused.pt"

        class Foreign:
            def __reduce__(self):
                return (exec, ("open('/nowhere', 'w')",))

        torch.save({"w": Foreign()}, path)
        assert "exec', which no file of tensors needs" in self.refusal(path), self.refusal(path)
        torch.save(torch.nn.Linear(1, 1), path)
        assert "which no file of tensors needs" in self.refusal(path), self.refusal(path)
        for pending in (torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag):
            torch.save({"w": pending}, path)
            assert "resolve_conj()" in self.refusal(path), self.refusal(path)
        torch.save({"\x1b[2Jw\ngood: /x": torch.ones(1), "seed": 2**64 - 1}, path)
        shown = subprocess.run([self.ddpctl, "ckpt", "show", str(path)], capture_output=True, text=True, check=True)
        assert "\\x1b[2Jw\\x0agood: /x" in shown.stdout and "\x1b" not in shown.stdout, shown
        assert f"seed = {2**64 - 1}" in shown.stdout, shown
        torch.save({"w": torch.ones(1).expand(1000)}, path)
        assert "'w' has more elements than its storage" in self.refusal(path), self.refusal(path)
        torch.save({"w": torch.ones(1)}, path, _use_new_zipfile_serialization=False)
        assert "torch before 1.6" in self.refusal(path), self.refusal(path)
        torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), path)
        assert "archives of TorchScript are not read" in self.refusal(path), self.refusal(path)


def check_all(bench):
    path = bench.folder / "python"
    for saved, expected in (
        (tensors(), tensors()),
        (OrderedDict(awkward()), {name: tensor.detach() for name, tensor in awkward().items()}),
    ):
        torch.save(saved, path)
        bench.check_into_python(path, expected)
    if save_file:
        save_file(tensors(), path)
        bench.check_into_python(path, tensors())
    bench.check_state_dict()
    bench.check_nested()
    bench.check_refusals()


def main(ddpctl, copier=None):
    with tempfile.TemporaryDirectory() as folder:
        check_all(Bench(ddpctl, copier, folder))
    yes = "yes" if load_file else "not tried"
    us = "ddpctl and load_tensors()" if copier else "ddpctl"
    print(f"written by          | torch.load | torch.load, mmap | safetensors | {us}")
    print("our .pt             | yes        | yes              |             | yes")
    print(f"our .safetensors    |            |                  | {yes:11} | yes")
    print("torch.save          | yes        | yes              |             | yes")
    print(f"safetensors package |            |                  | {yes:11} | {yes}")


if __name__ == "__main__":
    main(*sys.argv[1:])
