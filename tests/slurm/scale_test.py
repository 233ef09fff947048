# SPDX-License-Identifier: BSD-3-Clause
"""Many nodes: from srun to the last worker, and back."""

import re
import unittest

from case import BIN, SlurmCase, needs_runtime, now, time_of, worlds

# The lightest worker there is; it says when it was started.
LIGHT = 'echo "$(hostname) $RANK/$WORLD_SIZE $(date +%s.%N)" >> started; while [ ! -e go ]; do sleep 1; done'


class ScaleTest(SlurmCase):
    options = {"count": 64, "gpus": 0}

    def start(self, count):
        begin = now()
        step = self.agents(f"-N{count}", worker=("--no-python", "sh", "-c", LIGHT))
        lines = self.until_started(count)
        self.assertEqual(len(set(worlds(lines))), count, lines)
        bare = now()
        self.cluster.run("srun", "-Q", f"-N{count}", "--overlap", "true")
        self.note(f"{count} nodes: srun to the last worker's first line "
                  f"{max(map(time_of, lines)) - begin:.2f} s; srun of /bin/true {now() - bare:.2f} s")
        self.go()
        self.assertEqual(step.ends(), 0, step.log)

    def test_4_nodes(self):
        self.start(4)

    def test_16_nodes(self):
        self.start(16)

    def test_64_nodes(self):
        self.start(64)

    @needs_runtime
    def test_a_collective_over_64_nodes(self):
        step = self.agents("-N64", ddprun=["--tee=1"], worker=[BIN / "hello_ranks"])
        self.assertEqual(step.ends(), 0, step.log)
        self.assertEqual(sorted(map(int, re.findall(r"rank (\d+) of 64,", step.log))), list(range(64)))
        self.assertIn(f"the ranks add up to {sum(range(64))}", step.log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
