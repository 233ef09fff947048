# SPDX-License-Identifier: BSD-3-Clause
"""A checkout with one script in it, and stubs for all that the script would call."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


class ScratchCheckout(unittest.TestCase):
    """Stubs note what they were called with in the file $CALLS."""

    script = ""  # the name of the one under test

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.top = Path(scratch.name)
        self.root = self.top / "a checkout"
        (self.root / "scripts").mkdir(parents=True)
        shutil.copy(SCRIPTS / self.script, self.root / "scripts")
        self.calls = self.top / "calls"
        self.calls.touch()
        self.environment = {
            "PATH": f"{self.top / 'bin'}:{os.environ['PATH']}",
            "CALLS": str(self.calls),
        }

    def stub(self, path, body):
        """Makes a stub of a program in the checkout, or, by a bare name, of one on PATH."""
        file = self.root / path if "/" in path else self.top / "bin" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        file.chmod(0o755)

    def run_script(self, *options, **environment):
        return subprocess.run(
            [self.root / "scripts" / self.script, *options],
            cwd="/",
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def take_calls(self):
        """What the stubs have noted since the last time."""
        lines = self.calls.read_text().splitlines()
        self.calls.write_text("")
        return lines
