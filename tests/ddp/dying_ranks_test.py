#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A rank that is killed, or aborts: the others hear of it long before their time-out, by its rank.

usage: dying_ranks_test.py DYING_RANKS DDPD

The ranks' own time-out is 20 minutes, so that it is never what ends them.  Over Gloo they have a
store that outlives them, as under an agent.
"""

import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from local_ranks import run_ranks

PROGRAM, DDPD = sys.argv[1:3]
GAVE_UP = 3


class DyingRanks(unittest.TestCase):
    def survivors_hear(self, case, begin):
        ranks = run_ranks([PROGRAM, "shm", case], 3)
        self.assertEqual(ranks[1].returncode, -signal.SIGKILL, ranks[1].output)
        for survivor in (ranks[0], ranks[2]):
            self.assertEqual(survivor.returncode, GAVE_UP, survivor.output)
            self.assertIn(begin + "rank 1 of 3 has died while others wait for it in ", survivor.output)
        return ranks

    def test_in_the_middle_of_an_all_reduce(self):
        ranks = self.survivors_hear("all_reduce", "all_reduce: ")
        self.assertIn("all_reduce (sum) of 16777216 float", ranks[0].output)

    def test_in_the_middle_of_a_broadcast(self):
        self.survivors_hear("broadcast", "broadcast: ")

    def test_in_the_middle_of_a_backward_pass(self):
        self.survivors_hear("backward", "")

    def test_while_it_waits_itself(self):
        self.survivors_hear("waiting", "all_reduce: ")

    def test_abort_in_the_middle_of_an_all_reduce(self):
        for rank in run_ranks([PROGRAM, "shm", "abort"], 3):
            self.assertEqual(rank.returncode, GAVE_UP, rank.output)
            self.assertIn("all_reduce: rank 1 of 3 has aborted the group", rank.output)


class DyingRanksOverGloo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        port_file = Path(folder.name) / "port"
        self.ddpd = subprocess.Popen(
            [DDPD, "--listen", "127.0.0.1:0", "--port-file", str(port_file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.addCleanup(self.stop)
        self.ddpd.stdout.readline()  # it listens
        self.port = int(port_file.read_text())

    def stop(self):
        self.ddpd.terminate()
        self.ddpd.communicate(timeout=30)

    def survivors_hear(self, case, begin, world_size):
        ranks = run_ranks([PROGRAM, "gloo", case], world_size, store_port=self.port)
        self.assertEqual(ranks[1].returncode, -signal.SIGKILL, ranks[1].output)
        for survivor in (ranks[0], *ranks[2:]):
            self.assertEqual(survivor.returncode, GAVE_UP, survivor.output)
            named = f"{begin}rank 1 of {world_size} has ended or left the group ("
            self.assertTrue(survivor.output.startswith(named), survivor.output)

    def test_in_the_middle_of_an_all_reduce(self):
        self.survivors_hear("all_reduce", "all_reduce: ", 3)

    def test_ranks_that_are_no_neighbours_of_it(self):
        self.survivors_hear("all_reduce", "all_reduce: ", 5)

    def test_in_the_middle_of_a_backward_pass(self):
        self.survivors_hear("backward", "", 3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
