# SPDX-License-Identifier: BSD-3-Clause
"""A launcher in small: the ranks of a run on this machine, with the variables of stock torchrun."""

import os
import pathlib
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from free_port import free_port  # noqa: E402
from gpus import on_a_host_of_its_own  # noqa: E402

SKIPPED = 77


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


class Rank:
    """One rank's process; `output` is both its streams, once it has ended."""

    def __init__(self, command, variables):
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = ""
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        with self.process.stdout as stdout:
            self.output = stdout.read()

    def wait(self, timeout):
        """Until it has ended; kills it after `timeout` seconds, and raises what it has said until then."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.process.args} did not end within {timeout} s, and said:\n{self.output}") from None
        self.reader.join()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()

    @property
    def returncode(self):
        return self.process.returncode


def on_one_gpu(rank):
    """The variables of a rank that shares the first GPU with the others."""
    return {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", **on_a_host_of_its_own(rank)}


def run_ranks(command, world_size, restart_count=0, run_id="none", timeout=120, store_port=None,
              variables_of=lambda rank: {}, awaited=None):
    """Runs `command` on `world_size` ranks and returns the ended Ranks.

    With `awaited`, some of the ranks, the others are killed when these have ended, as a launcher stops them.

    The store is at `store_port`, as an agent's would be; without one rank 0 hosts it.
    `variables_of` a rank are set beside those that a launcher sets.
    """
    port = store_port or free_port()
    ranks = [
        Rank(
            command,
            {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "LOCAL_WORLD_SIZE": str(world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "TORCHELASTIC_RESTART_COUNT": str(restart_count),
                "TORCHELASTIC_RUN_ID": run_id,
                "TORCHELASTIC_USE_AGENT_STORE": str(store_port is not None),
                "OMP_NUM_THREADS": "1",
                **variables_of(rank),
            },
        )
        for rank in range(world_size)
    ]
    try:
        for number in range(world_size) if awaited is None else awaited:
            ranks[number].wait(timeout)
    finally:
        for rank in ranks:
            rank.kill()
    return ranks
