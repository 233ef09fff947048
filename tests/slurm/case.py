# SPDX-License-Identifier: BSD-3-Clause
"""Jobs on a cluster of tests/slurm/cluster.py, as a test sees them.  Import it first: it finds tests/e2e, and ends
the program with 77 where no cluster can be made."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import cluster  # noqa: E402
from nodes import environment  # noqa: E402

if cluster.why_not():
    print(f"skipped: {cluster.why_not()}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["DDPRUN_BIN"]).resolve()
DDPRUN = BIN / "ddprun"
HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_RUNTIME = (BIN / "train_digits").exists()
needs_runtime = unittest.skipUnless(HAS_RUNTIME, "built without the runtime: no training and no all_reduce here")
LIMIT = cluster.LIMIT

# A silent node is noticed in three seconds: less, and an agent that a busy machine lets wait would pass for one.  The
# first round waits for all nodes, however late Slurm starts some of them.
QUICK = "--rdzv-conf=last_call_timeout=60,read_timeout=60,keep_alive_interval=1,keep_alive_max_attempt=3"

# Says where it is, then what signals come and from whom, until the test lets it go by a file `go`.  Signals are taken
# one by one, so that none hides behind another of its kind.  After SIGTERM it listens a little longer, and ends; with
# SAVES set SIGUSR1 makes it save and end, too; with ASKS it says in `reasons` why the signal came; with EXITS set it ends with that code in the first life of its job.
WORKER = r"""
import os, signal, socket, sys, time
e = os.environ
def say_why(name):
    # Where Slurm itself has signalled the worker, the agent's words come a moment later.
    path = e["DDPRUN_STOP_REASON_FILE"]
    why = open(path).read().split("\n") if os.path.exists(path) else ["signal", "not told yet"]
    say("reasons", f"{name} rank {e['RANK']} life {e['DDPRUN_REQUEUE_COUNT']} {why[0]}: {why[1]}")
    return why[0] not in ("signal", "run-ended", "new-round")
watched = [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT]
signal.pthread_sigmask(signal.SIG_BLOCK, watched)
def say(name, text):
    with open(name, "ab", buffering=0) as file:
        file.write((text + "\n").encode())
say("started", f"{socket.gethostname()} {e['RANK']}/{e['WORLD_SIZE']} group {e['GROUP_RANK']}/{e['GROUP_WORLD_SIZE']} "
    f"restart {e['TORCHELASTIC_RESTART_COUNT']} run {e['TORCHELASTIC_RUN_ID']} "
    f"at {e['MASTER_ADDR']}:{e['MASTER_PORT']} pid {os.getpid()} {time.time():.4f}")
if "EXITS" in e and "SLURM_RESTART_COUNT" not in e:
    sys.exit(int(e["EXITS"]))
end = float("inf")
while not os.path.exists("go") and time.monotonic() < end:
    got = signal.sigtimedwait(watched, 0.05)
    if got is None:
        continue
    sender = "ddprun" if got.si_pid == os.getppid() else "another"
    say("signals", f"{signal.Signals(got.si_signo).name} rank {e['RANK']} run {e['TORCHELASTIC_RUN_ID']} from {sender} {time.time():.4f}")
    if "ASKS" in e:
        name, limit = signal.Signals(got.si_signo).name, time.monotonic() + 10
        while not say_why(name) and time.monotonic() < limit:
            time.sleep(0.1)
    if got.si_signo == signal.SIGTERM:
        end = time.monotonic() + 0.4
        say("stopping", e["RANK"])
    if got.si_signo == signal.SIGUSR1 and "SAVES" in e:
        say("saved", f"rank {e['RANK']} run {e['TORCHELASTIC_RUN_ID']} {time.time():.4f}")
        sys.exit(0)
say("ended", e["RANK"])
"""

# A real collective, over the group that the environment tells of.
ALL_REDUCE = r"""
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
dist.barrier()
os.write(1, f"rank {dist.get_rank()} sum {int(total.item())}\n".encode())
dist.destroy_process_group()
"""


class Step:
    """A srun on the login host, with what it has written."""

    def __init__(self, process, path):
        self.process, self.path = process, path

    @property
    def log(self):
        return self.path.read_text(errors="replace")

    def says(self, pattern):
        cluster.until(lambda: re.search(pattern, self.log) or self.process.poll() is not None, f"it says {pattern!r}")
        if not re.search(pattern, self.log):
            raise AssertionError(f"it ended without saying {pattern!r}:\n{self.log}")

    def ends(self):
        try:
            return self.process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end:\n{self.log}") from None


class SlurmCase(unittest.TestCase):
    """Set `cluster` in setUpClass.  Each test has a folder, which is where its jobs run."""

    options = {}  # of the cluster

    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(**cls.options)
        cls.addClassCleanup(cls.cluster.stop)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-slurm-job-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.addCleanup(self.end_jobs)
        (self.path / "worker.py").write_text(WORKER)
        (self.path / "all_reduce.py").write_text(ALL_REDUCE)
        self.count = 0

    def end_jobs(self):
        self.cluster.ask("scancel", "-u", "root")
        try:
            cluster.until(lambda: not self.cluster.ask("squeue", "-h").strip(), "no job is left")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.cluster.ask('scontrol', 'show', 'job')}") from None

    def revive(self, *names):
        """Back to a whole cluster.  Slurm would need 20 s to see that a node has gone."""
        for name in names:
            self.cluster.run("scontrol", "update", f"nodename={name}", "state=down", "reason=test")
        self.end_jobs()
        for name in names:
            self.cluster.kill(name)  # unless it is
            self.cluster.start_node(name)
            # Refused where the node's own registration has brought it back first.
            self.cluster.ask("scontrol", "update", f"nodename={name}", "state=resume")
        self.cluster.wait_for_nodes("idle")

    def environment(self, **extra):
        # All nodes are this machine: no shared memory between them, and no threads that spin for a core.
        path = f"{BIN}:{ROOT}/scripts/slurm:{os.environ['PATH']}"
        return environment(**{"PATH": path, "OMP_NUM_THREADS": "1", "DDPRUN_BACKEND": "gloo", **extra})

    def srun(self, *command, **extra):
        """Starts it; `ddprun` in it is the one under test."""
        self.count += 1
        log = self.path / f"srun{self.count}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen(self.cluster.command("srun", *command), env=self.environment(**extra),
                                       cwd=self.path, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        return Step(process, log)

    def agents(self, *slurm, ddprun=(), worker=("worker.py",), **extra):
        """srun with one agent a node, which need not all live."""
        return self.srun("--ntasks-per-node=1", "--no-kill", "--kill-on-bad-exit=0", *slurm,
                         DDPRUN, "--log-dir", self.path / "logs", *ddprun, *worker, **extra)

    def sbatch(self, script, *options, on=None, **extra):
        path = self.path / f"batch{self.count}.sh"
        self.count += 1
        path.write_text("#!/bin/bash\n" + script)
        done = subprocess.run(
            (on or self.cluster).command("sbatch", "--parsable", "-o", "out.%j", "--open-mode=append", *options, path),
            env=self.environment(**extra), cwd=self.path, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip().partition(";")[0]

    def training(self, epochs=8, step_seconds=0.1):
        """A worker: each epoch has 23 steps, and is saved; rank 0 tells of it."""
        return [BIN / "train_digits", "--checkpoint-dir", self.path / "checkpoints", "--data",
                ROOT / "build/data/digits.csv", "--epochs", epochs, "--batch-size", 64, "--step-seconds", step_seconds]

    def assert_resumed_and_trained(self, text, ranks, epochs=8):
        """To the end, with no epoch left out and the same parameters everywhere; answers what those come to."""
        self.assertEqual({int(k) for k in re.findall(r"epoch (\d+): loss", text)}, set(range(1, epochs + 1)), text)
        self.assertRegex(text, r"done after 0 restart\(s\), resumed from epoch \d.*: test accuracy 9\d")
        return parameters(text, ranks)

    def make_warning_due(self, job):
        """Of --signal=USR1@100, once there is somebody to hear it: Slurm looks every 30 s, at moments of its own."""
        self.cluster.run("scontrol", "update", f"jobid={job}", "timelimit=2")

    def output(self, job):
        path = self.path / f"out.{job}"
        return path.read_text(errors="replace") if path.exists() else ""

    def lines(self, name):
        path = self.path / name
        return path.read_text().splitlines() if path.exists() else []

    @property
    def started(self):
        return self.lines("started")

    def until_started(self, count, logs=None):
        """All lines, once there are `count`."""
        try:
            cluster.until(lambda: len(self.started) >= count, f"{count} workers have started")
        except AssertionError as error:
            texts = "\n".join(p.read_text(errors="replace") for p in [*self.path.glob("*.log"), *self.path.glob("out.*")])
            raise AssertionError(f"{error}\n{self.started}\n{texts}") from None
        return self.started

    def go(self):
        (self.path / "go").touch()

    def note(self, text):
        """A figure, for whoever reads the test's output."""
        print(f"  figure: {self.id().rpartition('.')[2]}: {text}; load {os.getloadavg()[0]:.1f}", flush=True)


def worlds(lines):
    """["0/2", "1/2"] of lines of `started`, in order."""
    return sorted(line.split()[1] for line in lines)


def parameters(text, ranks):
    """What the parameters of a training that is over come to, which all ranks agree about."""
    found = re.findall(rf"parameters identical on {ranks} ranks: (\w+)", text)
    if len(found) != 1:
        raise AssertionError(f"no training of {ranks} ranks has come to its end:\n{text}")
    return found[0]


def time_of(line):
    return float(line.rpartition(" ")[2])


def now():
    return time.time()
