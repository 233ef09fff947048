# SPDX-License-Identifier: BSD-3-Clause
"""Real torch over NCCL on a GPU that two nodes share.  Skipped without a GPU."""

import importlib.util
import json
import pathlib
import signal
import subprocess
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    print(f"skipped: {sys.executable} has no torch")
    sys.exit(77)

from nodes import DDPRUN, LIMIT, NodesCase, wait_until  # noqa: E402
from gpus import count_or_skip, on_a_host_of_its_own  # noqa: E402

count_or_skip()
ROOT = pathlib.Path(__file__).resolve().parents[2]
DDPCTL = str(pathlib.Path(DDPRUN).with_name("ddpctl"))

# Trains for 10 steps.  In the first attempt rank 1 does not come to the third all_reduce ("hang"), kills itself before
# it ("die"), or waits until the test lets it go on ("wait").
TRAINING = r"""
import os, signal, sys, time
from datetime import timedelta
import torch, torch.distributed as dist

def load():
    time.sleep(3600)

def main(what):
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", timeout=timedelta(seconds=10 if what == "hang" else 300))
    rank = dist.get_rank()
    is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    total = torch.ones(1 << 20, device="cuda")
    for step in range(10):
        if step == 2 and is_first and rank == 1 and what in ("hang", "stuck"):
            load()
        if step == 2 and is_first and rank == 1 and what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(total)
        torch.cuda.synchronize()
        total /= dist.get_world_size()
        if what == "wait" and step == 2:
            open(f"trains.{rank}", "w").close()
            while not os.path.exists("go"): time.sleep(0.01)
    print(f"rank {rank} on {torch.cuda.get_device_name(0)} has {total.sum().item()}", flush=True)
    dist.destroy_process_group()

main(sys.argv[1])
"""
# Fails once, and uses its GPU before and afterwards.
FAILS_ONCE = r"""
import os, sys, time
import torch
x = torch.ones(1000, device="cuda")
print("sum", x.sum().item(), flush=True)
while not os.path.exists("ready"): time.sleep(0.01)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0": sys.exit(3)
"""


class GpuCase(NodesCase):
    def setUp(self):
        super().setUp()
        (self.path / "training.py").write_text(TRAINING)

    def pair(self, what, *options, **extra):
        return self.pair_of(("training.py", what), *options, **extra)

    def pair_of(self, command, *options, **extra):
        return [self.node("--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1", *options,
                          command=command, **on_a_host_of_its_own(rank), **extra) for rank in range(2)]

    def assert_end(self, nodes, code):
        for node in nodes:
            self.assertEqual(node.ends(LIMIT + 60), code, node.log)
            print(node.log, flush=True)


class TwoNodesTest(GpuCase):
    def test_training(self):
        nodes = self.pair("plain")
        self.assert_end(nodes, 0)
        self.assertIn("has 1048576.0", nodes[0].log)

    def test_the_example(self):
        nodes = self.pair_of((ROOT / "examples/python/elastic_ddp.py",))
        self.assert_end(nodes, 0)
        self.assertIn("on cuda:0, restart 0", nodes[0].log)

    def test_a_killed_rank(self):
        nodes = self.pair("die", "--max-restarts=1")
        self.assert_end(nodes, 0)
        self.assertIn("after 1 restart", nodes[0].log)

    def test_a_rank_that_does_not_come(self):
        nodes = self.pair("hang", "--max-restarts=0", TORCH_FR_BUFFER_SIZE="2000", TORCH_NCCL_TRACE_BUFFER_SIZE="2000",
                          TORCH_NCCL_DUMP_ON_TIMEOUT="1", TORCH_FR_DUMP_TEMP_FILE=str(self.path / "fr_"),
                          TORCH_NCCL_DEBUG_INFO_TEMP_FILE=str(self.path / "fr_"))
        self.assert_end(nodes, 128 + signal.SIGABRT)  # NCCL's watchdog
        self.assertIn("  flight recorder: ", nodes[0].log)
        for node in nodes:
            self.assertRegex(node.log, r"FAILED: rank 1 \((\S+, )?pid \d+\) did not come to (all_reduce|ALLREDUCE): it sleeps")

    def test_a_rank_that_does_not_come_and_a_limit_for_hangs(self):
        nodes = self.pair("stuck", "--max-restarts=0", "--hang-timeout=15")
        self.assert_end(nodes, 128 + signal.SIGABRT)  # with which a worker that hangs is ended
        for node in nodes:
            self.assertRegex(node.log, r"FAILED: rank 1 \(.*\) .*; hung: no CPU time or heartbeat for ")

    def test_vitals(self):
        nodes = self.pair("wait", "--max-restarts=0")
        wait_until(lambda: all((self.path / f"trains.{rank}").exists() for rank in range(2)), "both train")

        def gpus():
            asked = subprocess.run([DDPCTL, "ranks", f"localhost:{self.port}", "--json"], capture_output=True, text=True)
            ranks = [rank for run in json.loads(asked.stdout or "[]") for rank in run["ranks"]]
            return [rank["vitals"]["gpu"] for rank in ranks if (rank.get("vitals") or {}).get("gpu")]
        wait_until(lambda: len(gpus()) == 2, "the GPU of each rank is seen")
        for gpu in gpus():
            self.assertTrue(0 < gpu["used_mib"] < gpu["total_mib"], gpu)
        (self.path / "go").touch()
        self.assert_end(nodes, 0)


class WarmRestartTest(GpuCase):
    def restarts(self, ready, *options):
        (self.path / "fails_once.py").write_text(FAILS_ONCE)
        (self.path / "lib").mkdir()
        (self.path / "lib/gpu_at_import.py").write_text("import torch\ntorch.cuda.init()\n")
        node = self.node("--nproc-per-node=1", "--max-restarts=1", "--warm-restarts", *options,
                         command=("fails_once.py",), PYTHONPATH=str(self.path / "lib"))
        node.says(ready)
        (self.path / "ready").touch()
        self.assert_end([node], 0)
        self.assertEqual(node.log.count("sum 1000.0"), 2, node.log)
        return node.log

    def test_a_fork_uses_its_gpu(self):
        log = self.restarts("warm restarts are ready")
        self.assertIn("from the template", log)

    def test_cuda_in_the_template_is_refused(self):
        self.restarts("no warm restarts: CUDA is initialised by an import", "--warm-imports=gpu_at_import")


if __name__ == "__main__":
    unittest.main(verbosity=2)
