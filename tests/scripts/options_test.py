#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each script says what it does when asked, and refuses an option that it does not know."""

import subprocess
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def run(script, option):
    # A script that took the option for something else would go to work; it must not get far.
    return subprocess.run([script, option], capture_output=True, text=True, check=False, timeout=60)


class Options(unittest.TestCase):
    def setUp(self):
        self.scripts = [path for path in sorted(SCRIPTS.iterdir()) if path.is_file()]
        self.scripts += sorted((SCRIPTS / "bench").iterdir())
        self.assertIn(SCRIPTS / "test", self.scripts)

    def test_help_shows_the_usage(self):
        for script in self.scripts:
            for option in ("-h", "--help"):
                with self.subTest(script=script.name, option=option):
                    result = run(script, option)
                    self.assertEqual((result.returncode, result.stderr), (0, ""))
                    self.assertIn(f"\nusage: scripts/{script.relative_to(SCRIPTS)} [", result.stdout)
                    self.assertNotIn("set -e", result.stdout)

    def test_an_unknown_option_is_one_line_and_status_2(self):
        for script in self.scripts:
            with self.subTest(script=script.name):
                result = run(script, "--no-such-option")
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertRegex(result.stderr, rf"\A{script.name}: .*see --help\n\Z")


if __name__ == "__main__":
    unittest.main()
