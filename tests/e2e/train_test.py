# SPDX-License-Identifier: BSD-3-Clause
"""Real training under the built ddprun: the main job, and Python scripts with torch's own Gloo."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

if importlib.util.find_spec("torch") is None:
    print(f"skipped: {sys.executable} has no torch")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["DDPRUN_BIN"]).resolve()
LIMIT = 240  # seconds; a busy machine needs 20 for what takes 3

# Joins a Gloo group, and one worker dies in each attempt but the last.
CRASHES = r"""
import os, signal, torch, torch.distributed as dist
attempt, last = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["TORCHELASTIC_MAX_RESTARTS"])
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
if attempt < last and dist.get_rank() == attempt % dist.get_world_size():
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
os.write(1, f"attempt {attempt} sum {int(total.item())}\n".encode())  # one write, so no torn line
dist.destroy_process_group()
"""


def environment():
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("PET_", "OMP_", "TORCHELASTIC_", "VIRTUAL_ENV", "LOGLEVEL"))}
    env["PYTHON_EXEC"] = sys.executable
    return env


def run(*command, cwd=ROOT):
    return subprocess.run([*map(str, command)], env=environment(), cwd=cwd, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=LIMIT)


class TrainTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-e2e-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    @unittest.skipUnless((BIN / "train_digits").exists(), "built without the runtime")
    def test_the_main_job_loses_a_worker_resumes_and_ends_right(self):
        job = run(BIN / "ddprun", "--standalone", "--nproc-per-node", 2, "--max-restarts", 3, "--tee", 3,
                  "--log-dir", self.path / "logs", BIN / "train_digits", "--checkpoint-dir", self.path / "checkpoints",
                  "--data", ROOT / "build/data/digits.csv", "--kill-rank", 1, "--kill-epoch", 3)
        self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
        self.assertRegex(job.stderr, r"rank 1 \(local rank 1, pid \d+\) was killed by SIGKILL; "
                                     r"stopping the other worker .*, then restart 1 of 3")
        epochs = [int(n) for n in re.findall(r"^\[default0\]:epoch (\d+): loss ", job.stdout, re.M)]
        self.assertEqual(epochs, list(range(1, 9)), "each epoch once: the second attempt resumes after the second")
        self.assertIn("[default0]:parameters identical on 2 ranks: ", job.stdout)
        accuracy = float(re.search(r"done after 1 restart\(s\), resumed from epoch 2: test accuracy ([\d.]+) %",
                                   job.stdout)[1])
        self.assertGreater(accuracy, 95)
        self.assertIn("finished: 2 workers succeeded after 1 restart (rank 1 was killed by SIGKILL)", job.stderr)

    def test_the_python_example_gives_torchruns_losses(self):
        options = ("--nnodes=1", "--nproc_per_node=2", "--rdzv_id=100", "--rdzv_backend=c10d",
                   "--rdzv_endpoint=localhost:29400")
        script = ROOT / "examples/python/elastic_ddp.py"
        def run_again_if_gloo_outlived_python(*command):
            # torch 2.15: Gloo's thread may let go of a tensor while Python ends, after all is done.
            for _ in range(3):
                job = run(*command)
                if "terminate called without an active exception" not in job.stderr:
                    break
            return job
        ours = run_again_if_gloo_outlived_python(BIN / "ddprun", *options, script)
        self.assertEqual(ours.returncode, 0, ours.stderr)
        # On a port of its own choice, so that two runs of the tests do not meet.
        theirs = run_again_if_gloo_outlived_python(
            sys.executable, "-m", "torch.distributed.run", *options[:-1], "--rdzv_endpoint=localhost:0", script)
        self.assertEqual(theirs.returncode, 0, theirs.stderr)

        def losses(text):
            return re.findall(r"^step \d+: loss [\d.]+$", text, re.M)
        self.assertEqual(losses(ours.stdout), losses(theirs.stdout))
        self.assertGreaterEqual(len(losses(ours.stdout)), 5)

    def test_every_option_of_this_torchs_torchrun_is_known(self):
        def options(text):
            lines = re.findall(r"^  (-.*)$", text, re.M)  # those that name options; the rest explains
            names = (name for line in lines for name in re.findall(r"--[a-z][a-z_-]+", line))
            return {name.replace("_", "-") for name in names}
        theirs = options(run(sys.executable, "-m", "torch.distributed.run", "--help").stdout)
        self.assertIn("--nproc-per-node", theirs)
        self.assertEqual(theirs - options(run(BIN / "ddprun", "--help").stdout), set())

    def test_gloo_groups_survive_every_restart(self):
        (self.path / "crashes.py").write_text(CRASHES)
        restarts = 20 if os.environ.get("DDPRUN_TEST_LONG") else 4
        job = run(BIN / "ddprun", "--standalone", "--nproc-per-node", 2, "--max-restarts", restarts,
                  "crashes.py", cwd=self.path)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(job.stdout, f"attempt {restarts} sum 2\n" * 2)
        self.assertEqual(len(re.findall(r"was killed by SIGKILL; stopping", job.stderr)), restarts)


if __name__ == "__main__":
    unittest.main(verbosity=2)
