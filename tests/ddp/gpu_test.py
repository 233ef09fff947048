#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Our runtime over NCCL: two ranks that share a GPU, or one on each GPU where there are several, 4 at most.

usage: gpu_test.py GPU_RANKS TRAIN_DIGITS CHAR_LM BASIC_DDP DIGITS_CSV

Skipped without a GPU.
"""

import importlib.util
import re
import signal
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from local_ranks import on_one_gpu, run_ranks
from gpus import count_or_skip

ROOT = Path(__file__).resolve().parents[2]
GPU_RANKS, TRAIN_DIGITS, CHAR_LM, BASIC_DDP, DIGITS = sys.argv[1:6]
GPUS = count_or_skip()
WORLD_SIZE = min(GPUS, 4) if GPUS > 1 else 2
LIMIT = 180  # seconds; far beyond what anything here takes


def losses(output):
    return [float(loss) for loss in re.findall(r"^step \d+: loss ([0-9.]+)$", output, re.M)]


class GpuTest(unittest.TestCase):
    def run_ranks(self, *command, world_size=WORLD_SIZE, backend="nccl", **extra):
        shared = on_one_gpu if GPUS == 1 and backend == "nccl" else lambda rank: {}
        return run_ranks(["env", f"DDPRUN_BACKEND={backend}", *command], world_size, timeout=LIMIT,
                         variables_of=shared, **extra)

    def outputs(self, *command, **extra):
        """What rank 0 of a run that succeeds has said."""
        ranks = self.run_ranks(*command, **extra)
        for rank in ranks:
            self.assertEqual(rank.returncode, 0, rank.output)
        return ranks[0].output

    def test_gradients(self):
        self.assertIn(f"done on {WORLD_SIZE} GPUs", self.outputs(GPU_RANKS, "train"))

    def test_collectives(self):
        self.assertIn("done on 2 GPUs", self.outputs(GPU_RANKS, "collectives", world_size=2))

    def test_a_rank_that_does_not_come(self):
        self.assert_rank_0_gives_up("hang")

    def test_a_rank_that_dies(self):
        self.assert_rank_0_gives_up("die")

    def assert_rank_0_gives_up(self, what):
        """NCCL's watchdog ends it, and then rank 1 is ended as by a launcher."""
        ranks = self.run_ranks(GPU_RANKS, what, world_size=2, awaited=[0])
        self.assertNotEqual(ranks[0].returncode, 0, ranks[0].output)
        self.assertRegex(ranks[0].output, "Watchdog caught collective operation timeout|ncclRemoteError|gpu_ranks: ")

    def test_the_digits(self):
        with tempfile.TemporaryDirectory() as base:
            command = (TRAIN_DIGITS, "--data", DIGITS, "--checkpoint-dir", base)
            victim = (*command, "--kill-rank", "1", "--kill-epoch", "3")
            first = self.run_ranks(*victim, run_id="job")
            self.assertEqual(first[1].returncode, -signal.SIGKILL, first[1].output)
            self.assertNotEqual(first[0].returncode, 0, first[0].output)
            second = self.outputs(*victim, run_id="job", restart_count=1)
            self.assertIn("resumed from epoch 2", second)
            undisturbed = self.outputs(*command, run_id="job")
            for output in (second, undisturbed):
                accuracy = re.search(r"done after .* test accuracy ([0-9.]+) %", output)
                self.assertGreater(float(accuracy[1]), 95, output)
                self.assertIn(f"parameters identical on {WORLD_SIZE} ranks", output)
            print(second + undisturbed)

    def test_the_characters(self):
        on_gpu = losses(self.outputs(CHAR_LM, "100"))
        on_cpu = losses(self.outputs(CHAR_LM, "100", backend="auto"))
        print("losses on the GPU", on_gpu, "and on the CPU", on_cpu)
        self.assertEqual(len(on_gpu), 6)
        self.assertAlmostEqual(on_gpu[0], on_cpu[0], delta=1e-3)
        self.assertLess(on_gpu[-1], 3)

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "this Python has no torch")
    def test_the_python_twin(self):
        ours = losses(self.outputs(BASIC_DDP))
        theirs = losses(self.outputs(sys.executable, str(ROOT / "examples/python/basic_ddp.py"), backend="auto"))
        self.assertEqual(len(ours), 10)
        for own, other in zip(ours, theirs):
            self.assertAlmostEqual(own, other, delta=1e-4)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]], verbosity=2)
