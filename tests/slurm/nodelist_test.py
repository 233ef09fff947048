# SPDX-License-Identifier: BSD-3-Clause
"""The recorded answers of scontrol that tests/cli/slurm_nodelist_test.cc compares with are those of the scontrol here.
With --record it writes them anew."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

RECORD = pathlib.Path(__file__).resolve().parents[1] / "cli" / "slurm_nodelists.txt"


def scontrol(lists):
    """What it says of each; it asks nobody, but wants a configuration."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        conf.write("ClusterName=none\nSlurmctldHost=none\nNodeName=none\nPartitionName=none Nodes=none\n")
        conf.flush()
        for text in lists:
            done = subprocess.run(["scontrol", "show", "hostnames", text], capture_output=True, text=True, timeout=60,
                                  env={"SLURM_CONF": conf.name, "PATH": "/usr/bin:/bin"})
            yield text, " ".join(done.stdout.split()), done.stderr


class NodelistTest(unittest.TestCase):
    def test_scontrol_says_what_was_recorded(self):
        lines = [line for line in RECORD.read_text().splitlines() if not line.startswith("#")]
        recorded = dict(line.split(" => ") for line in lines)
        self.assertGreater(len(recorded), 100)
        for text, names, complaint in scontrol(recorded):
            self.assertEqual((names, complaint), (recorded[text], ""), text)


if __name__ == "__main__":
    if not shutil.which("scontrol"):
        print("skipped: there is no scontrol here")
        sys.exit(77)
    if sys.argv[1:] == ["--record"]:
        head, *lines = RECORD.read_text().splitlines()
        answers = scontrol(line.split(" => ")[0] for line in lines)
        RECORD.write_text("\n".join([head, *(f"{text} => {names}" for text, names, _ in answers)]) + "\n")
        sys.exit(0)
    unittest.main(verbosity=2)
