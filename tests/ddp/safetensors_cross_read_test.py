#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The safetensors files of a training program, read back and judged in Python.

The file is read here by the format's own description (reference: the safetensors README), without
the safetensors package, and with that package too where it is installed.

usage: safetensors_cross_read_test.py TRAIN_DIGITS DIGITS_CSV
"""

import json
import struct
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from local_ranks import run_ranks, skip
from safetensors_file import read


def main(program, data):
    if not Path(data).is_file():
        skip(f"{data} is not there")
    with tempfile.TemporaryDirectory() as base:
        ranks = run_ranks([program, "--data", data, "--epochs", "4", "--checkpoint-dir", base], 1)
        assert ranks[0].returncode == 0, ranks[0].output
        newest = max((Path(base) / "none-1").glob("step-*"))
        model = read(newest / "model.safetensors")
        optimizer = read(newest / "optimizer.safetensors")
        assert model["conv1.weight"][:2] == ("F32", [16, 1, 3, 3])
        assert model["output.bias"][:2] == ("F32", [10])
        assert set(optimizer) == {f"{name}/momentum_buffer" for name in model} | {"group0.lr"}
        assert struct.unpack("<d", optimizer["group0.lr"][2]) == (0.05,)
        state = json.loads((newest / "state.json").read_text())
        assert state["progress"]["epoch"] == 4 and state["sampler"]["epoch"] == 4

        try:
            from safetensors.numpy import load_file
        except ImportError:
            print("read by hand; the safetensors package is not installed here")
            return
        loaded = load_file(newest / "model.safetensors")
        assert {name: array.tobytes() for name, array in loaded.items()} == {
            name: bytes_ for name, (_, _, bytes_) in model.items()
        }
        print("read by hand and by the safetensors package")


if __name__ == "__main__":
    main(*sys.argv[1:])
