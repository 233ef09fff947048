#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tests/support/part.py: the parts of a script are all of it, and no case is in two."""

import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

PART = Path(__file__).resolve().parents[1] / "support" / "part.py"
SCRIPT = """
    import sys, unittest
    import neighbour  # which lies beside the script

    class Apples(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            print("apples are there")

        def test_a(self): print("a")
        def test_b(self): print("b")
        def test_c(self): self.fail("c") if "fail" in sys.argv else print("c")

    class Pears(unittest.TestCase):
        def test_d(self): print("d")
        def test_e(self): print("e")

    def tearDownModule():
        print("over")

    if __name__ == "__main__":
        unittest.main(argv=sys.argv[:1])
"""


class Part(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.script = Path(scratch.name) / "script.py"
        self.script.write_text(textwrap.dedent(SCRIPT))
        self.script.with_name("neighbour.py").touch()

    def run_part(self, part, *arguments):
        return subprocess.run([sys.executable, PART, part, self.script, *arguments],
                              capture_output=True, text=True, check=False)

    def test_the_parts_are_all_of_it(self):
        for parts in (1, 3):
            said = []
            for part in range(1, parts + 1):
                result = self.run_part(f"{part}/{parts}")
                self.assertEqual(result.returncode, 0, result.stderr)
                said += [line for line in result.stdout.splitlines() if len(line) == 1]
            self.assertEqual(sorted(said), ["a", "b", "c", "d", "e"])

    def test_each_part_sets_up_what_its_cases_need(self):
        self.assertEqual(self.run_part("1/2").stdout.split("\n"), ["apples are there", "a", "c", "e", "over", ""])
        self.assertEqual(self.run_part("2/2").stdout.split("\n"), ["apples are there", "b", "d", "over", ""])
        self.assertEqual(self.run_part("4/4").stdout.split("\n"), ["d", "over", ""])

    def test_a_failure_is_one_and_arguments_are_passed_on(self):
        self.assertEqual(self.run_part("1/2", "fail").returncode, 1)
        self.assertEqual(self.run_part("2/2", "fail").returncode, 0)


if __name__ == "__main__":
    unittest.main()
