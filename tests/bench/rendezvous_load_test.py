# SPDX-License-Identifier: BSD-3-Clause
"""The light nodes of scripts/bench/rendezvous still form a round with a ddpd of this tree."""

import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from ddpd_process import LIMIT_S, Ddpd


class RendezvousLoadTest(unittest.TestCase):
    def test_a_hundred_light_nodes_form_a_round(self):
        program = os.path.join(os.environ["DDPRUN_BIN"], "rendezvous_load")
        with Ddpd() as ddpd:
            done = subprocess.run(
                [program, str(ddpd.port), "100"], capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(done.stdout.split()), 3)


if __name__ == "__main__":
    unittest.main()
