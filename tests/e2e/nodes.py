# SPDX-License-Identifier: BSD-3-Clause
"""Several agents on this machine, as a test sees them: started, watched, ended by pid."""

import atexit
import functools
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from beats import rounds_at

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from free_port import free_port  # noqa: E402

DDPRUN = os.path.abspath(os.path.join(os.environ["DDPRUN_BIN"], "ddprun"))
LIMIT = 90  # seconds of every wait; far beyond what anything here takes

# Says where it is, notes when it works, as beats.py has it, and waits until the test lets it go, by a file `go` or `go.<run id>`, or makes it
# fail, by a file `fail.<rank>.<restart count>` that holds its exit code.  ($$ is $ in an argument.)
WORKER = r"""
trap 'exit 0' TERM
mkdir -p beats
# Two rounds may have one port, on two machines or one after the other.
round=$(echo "$MASTER_PORT-$DDPRUN_ROUND-$DDPRUN_RUN_UUID" | tr . -)
read begin rest < /proc/uptime
echo "$NODE $RANK/$WORLD_SIZE group $GROUP_RANK/$GROUP_WORLD_SIZE restart $TORCHELASTIC_RESTART_COUNT pid $$$$ at $MASTER_ADDR:$MASTER_PORT" >> started
while :; do
  read now rest < /proc/uptime
  echo "$begin $now" > "beats/$NODE.$RANK.$WORLD_SIZE.$round.$$$$"
  if [ -e "fail.$RANK.$TORCHELASTIC_RESTART_COUNT" ]; then exit $(cat "fail.$RANK.$TORCHELASTIC_RESTART_COUNT"); fi
  if [ -e go ] || [ -e "go.$TORCHELASTIC_RUN_ID" ]; then exit 0; fi
  sleep 0.02
done
"""


@functools.cache
def state_folder():
    """Where the hosts of this test program keep their run files."""
    folder = tempfile.TemporaryDirectory(prefix="ddprun-run-")
    atexit.register(folder.cleanup)
    return folder.name


def environment(**extra):
    foreign = ("PET_", "SLURM", "DDPRUN_AGENT", "OMP_", "TORCHELASTIC_", "VIRTUAL_ENV", "LOGLEVEL")
    env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    env["PYTHON_EXEC"] = sys.executable
    env["XDG_RUNTIME_DIR"] = state_folder()
    env.update(extra)
    return env


def wait_until(is_reached, what):
    deadline = time.monotonic() + LIMIT
    while not is_reached():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {LIMIT} s in vain until {what}")
        time.sleep(0.005)

# What py-spy would write where rank 1 does not come.
STACKS_OF_A_WAIT = r"""#!/bin/sh
for pid; do :; done
if tr '\0' '\n' < /proc/$pid/environ | grep -qx RANK=1; then
  printf 'Thread %s (active+gil): "MainThread"\n    load (worker.py:3)\n' $pid
else
  printf 'Thread %s (idle): "MainThread"\n' $pid
  echo '    all_reduce (torch/distributed/distributed_c10d.py:4181)'
fi
"""


class Node:
    """One agent.  `log` is what it has said so far, `text` for a whole that has ended."""

    def __init__(self, process, log):
        self.process, self.path = process, log

    @property
    def log(self):
        return self.path.read_text(errors="replace")

    def says(self, text):
        try:
            wait_until(lambda: text in self.log or self.process.poll() is not None, f"an agent says {text!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.log}") from None
        if text not in self.log:
            raise AssertionError(f"an agent ended without saying {text!r}:\n{self.log}")

    def ends(self, limit=LIMIT):
        """Its exit code, once it has ended."""
        try:
            return self.process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"an agent did not end:\n{self.log}") from None

    def signal(self, number):
        self.process.send_signal(number)


class NodesCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-e2e-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.port = free_port()
        self.count = 0

    def node(self, *options, endpoint=None, backend="c10d", command=("--no-python", "sh", "-c", WORKER),
             within=(), **extra):
        """Starts an agent, `within` what its command line begins with; its workers call themselves
        node 0, 1, ..."""
        if self.count > 0 and not endpoint:  # the first one is to be the host
            wait_until(self.is_hosted, "the first agent listens")
        name = str(self.count)
        self.count += 1
        where = [] if backend == "static" else [
            "--rdzv-backend", backend, "--rdzv-endpoint", endpoint or f"localhost:{self.port}"]
        log = self.path / f"agent{name}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [*within, DDPRUN, "--log-dir", str(self.path / "logs"), *where, *map(str, options), *command],
                env=environment(NODE=name, **extra), cwd=self.path, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT)
        node = Node(process, log)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        return node

    def is_hosted(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def started(self):
        """One line for each worker that was started, in order."""
        path = self.path / "started"
        return path.read_text().splitlines() if path.exists() else []

    def until(self, is_reached, what):
        """As wait_until(); should it be in vain, the agents' logs say why."""
        try:
            wait_until(is_reached, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.started}\n{self.logs()}") from None

    def until_started(self, count):
        """All lines, once there are `count`."""
        self.until(lambda: len(self.started) >= count, f"{count} workers have started")
        return self.started

    def until_round(self, *who, since=0):
        """The lines of the first round after `since` lines whose workers are just these, as "0/2" for
        rank 0 of 2, or "1 0/2" for that on node 1, once they have all started.  Rounds that came to nothing in between do
        not count: on a busy machine a node may be late, and is given up and back."""
        found = []

        def is_there():
            rounds = {}
            for line in self.started[since:]:
                rounds.setdefault(line.rpartition(" at ")[2], []).append(line)
            for lines in rounds.values():
                workers = [" ".join(line.split()[:2]) for line in lines]
                ranks = [line.split()[1] for line in lines]
                if sorted(who) in (sorted(workers), sorted(ranks)):
                    found[:] = lines
                    return True
            return False
        try:
            wait_until(is_there, f"a round of {who}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.started[since:]}\n{self.logs()}") from None
        return found

    def logs(self):
        return "\n".join(f"{p.name}:\n{p.read_text(errors='replace')}" for p in sorted(self.path.glob("agent*.log")))

    def assert_rounds_apart(self):
        """No worker of a round has worked beside one of another.  How many rounds have worked."""
        rounds = rounds_at(self.path)
        for before, after in zip(rounds, rounds[1:]):
            self.assertLess(before.last, after.begin, f"two rounds at once: {rounds}\n{self.logs()}")
        return len(rounds)

    def go(self):
        (self.path / "go").touch()

    def make_fail(self, rank, restart, code):
        partial = self.path / "partial"
        partial.write_text(str(code))
        partial.rename(self.path / f"fail.{rank}.{restart}")

    def assert_all_succeed(self, *nodes):
        self.go()
        for node in nodes:
            try:
                self.assertEqual(node.ends(), 0, node.log)
            except AssertionError as error:
                logs = "\n".join(f"{each.path.name}:\n{each.log}" for each in nodes if each is not node)
                raise AssertionError(f"{error}\nthe others:\n{logs}") from None


def kill(node):
    """Ends an agent as the kernel's OOM killer would."""
    node.signal(signal.SIGKILL)
    node.process.wait()
