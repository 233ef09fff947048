#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The tree for /opt and its module file: unpacked anywhere, loaded, run, and removed.

The module file is loaded by Environment Modules and by Lmod, as far as they are installed.  Exits with 77
if what the programs are built with cannot be fetched.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import packages  # noqa: E402

LIMIT = 120  # seconds
LMOD = Path("/usr/share/lmod/lmod/libexec/lmod")


def module_commands():
    """How to ask for the shell code that loads a module, of each system that is here.  Skips the test where none is."""
    modulecmd = shutil.which("modulecmd") or "/usr/lib/x86_64-linux-gnu/modulecmd"
    found = [[command, "bash"] for command in (modulecmd, str(LMOD)) if Path(command).exists()]
    if not found:
        raise unittest.SkipTest("neither environment-modules nor lmod is installed")
    return found


class Tree(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.archive = packages.made("tarball")
        folder = tempfile.TemporaryDirectory(prefix="ddprun tree ")
        cls.addClassCleanup(folder.cleanup)
        with tarfile.open(cls.archive) as archive:
            archive.extractall(folder.name)
        cls.top = next(Path(folder.name).iterdir())

    def run_it(self, *command, **environment):
        return subprocess.run(command, env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False)

    def test_programs_run_from_where_they_lie(self):
        run = self.run_it(self.top / "bin/ddprun", "--standalone", "--nproc-per-node=2", "/bin/true")
        self.assertEqual(run.returncode, 0, run.stderr)
        for program in ("ddpd", "ddpctl", "ddprun-sbatch", "ddprun-srun"):
            run = self.run_it(self.top / "bin" / program, "--help")
            self.assertEqual((run.returncode, run.stderr), (0, ""), program)

    def test_a_second_archive_has_the_same_bytes(self):
        before = self.archive.read_bytes()
        self.assertEqual(packages.made("tarball").read_bytes() == before, True)

    def test_entries_are_of_nobody_and_only_programs_are_executable(self):
        with tarfile.open(self.archive) as archive:
            for entry in archive:
                self.assertEqual((entry.uid, entry.gid, entry.uname), (0, 0, ""))
                if entry.isfile():
                    name = Path(entry.name).name
                    is_program = "/bin/" in entry.name or name in ("ddprun-sbatch", "ddprun-srun")
                    self.assertEqual(entry.mode, 0o755 if is_program else 0o644, entry.name)

    def test_the_module_file_of_the_tree_names_the_place_of_the_tree(self):
        plain = tempfile.TemporaryDirectory(prefix="ddprun-tree-")
        self.addCleanup(plain.cleanup)
        for command in module_commands():
            top = self.top
            if command[0] == str(LMOD):  # it reads no module file of a path with a blank
                top = Path(plain.name) / "ddprun"
                shutil.copytree(self.top, top)
            with self.subTest(command[0]):
                shell = self.run_it(*command, "load", "ddprun", MODULEPATH=f"{top}/share/modulefiles")
                run = self.run_it("bash", "-c", shell.stdout + '\ncommand -v ddprun; echo "$CMAKE_PREFIX_PATH"')
                self.assertEqual(run.stdout, f"{top}/bin/ddprun\n{top}\n", shell.stderr)

    def test_a_module_file_for_another_place(self):
        path = packages.made("modulefile", "--prefix", "/shared/apps/ddprun")
        self.assertEqual(path.parent.name, "ddprun")
        for command in module_commands():
            with self.subTest(command[0]):
                shell = self.run_it(*command, "load", "ddprun", MODULEPATH=str(path.parent.parent))
                run = self.run_it("bash", "-c", shell.stdout + '\necho "$PATH"')
                self.assertEqual(run.stdout.split(":")[0], "/shared/apps/ddprun/bin", shell.stderr)


if __name__ == "__main__":
    unittest.main()
