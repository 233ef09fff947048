#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/quickstart: the job it runs, what it says of it, and whose exit code it ends with."""

import unittest

from scratch_checkout import ScratchCheckout


class Quickstart(ScratchCheckout):
    script = "quickstart"

    def setUp(self):
        super().setUp()
        self.stub("scripts/build", 'echo "build $*" >>"$CALLS"; exit "${BUILD:-0}"')
        self.stub("build/release/bin/ddprun", 'echo "ddprun $*" >>"$CALLS"; exit "${JOB:-0}"')

    def test_shows_the_job_that_it_runs(self):
        result = self.run_script()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        build, job = self.take_calls()
        self.assertEqual(build, "build ddprun train_digits")
        self.assertIn(f"\n+ build/release/bin/{job}\n", result.stdout)
        self.assertIn(" --kill-rank 1 --kill-epoch 3\n", result.stdout)
        self.assertIn("Rank 1 was killed in epoch 3", result.stdout)

    def test_ends_with_the_exit_code_of_the_job(self):
        result = self.run_script(JOB="137")
        self.assertEqual(result.returncode, 137)
        self.assertIn("The job ended with status 137", result.stderr)
        self.assertNotIn("Rank 1 was killed", result.stdout)

    def test_runs_no_job_that_was_not_built(self):
        self.assertEqual(self.run_script(BUILD="1").returncode, 1)
        self.assertEqual(self.take_calls(), ["build ddprun train_digits"])

    def test_names_the_python_that_the_set_up_made(self):
        self.assertNotIn("PYTHON_EXEC", self.run_script().stdout)
        self.stub(".venv/bin/python3", "")
        self.assertIn("  PYTHON_EXEC=.venv/bin/python3 build/release/", self.run_script().stdout)


if __name__ == "__main__":
    unittest.main()
