#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What scripts/package decides before it builds: whether a source is the right one, what time files have, and
what it refuses."""

import os
import pty
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts/packaging"))

import programs  # noqa: E402
import runtime_files  # noqa: E402
from steps import Failed, made_whole, source_time  # noqa: E402


class Steps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-steps-")
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)

    def test_a_source_of_another_version_is_fetched_anew(self):
        source = self.path / "zlib"
        self.assertFalse(programs.has_version(source, "1:1.2.13-1"))
        (source / "debian").mkdir(parents=True)
        (source / "debian/changelog").write_text("zlib (1:1.2.13-1) unstable; urgency=low\n", encoding="utf-8")
        self.assertTrue(programs.has_version(source, "1:1.2.13-1"))
        for other in ("1:1.2.13-1+deb12u1", "1.2.13-1", "1:1.2.13"):
            self.assertFalse(programs.has_version(source, other), other)

    def test_the_time_of_files_is_given_or_that_of_the_commit(self):
        with mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": "1700000000"}):
            self.assertEqual(source_time(self.path), 1700000000)
        with mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": "yesterday"}):
            with self.assertRaisesRegex(Failed, "SOURCE_DATE_EPOCH=yesterday is not a number of seconds"):
                source_time(self.path)
        with mock.patch.dict(os.environ):
            os.environ.pop("SOURCE_DATE_EPOCH", None)
            with self.assertRaisesRegex(Failed, "set SOURCE_DATE_EPOCH"):
                source_time(self.path)

    def test_a_terminal_sees_how_far_a_long_step_is(self):
        log = self.path / "log"
        step = ("import sys; sys.path.insert(0, sys.argv[1]); import steps, pathlib; "
                "steps.run(['echo', sys.argv[3]], pathlib.Path(sys.argv[2]), shows=True)")
        command = [sys.executable, "-B", "-c", step, ROOT / "scripts/packaging", log]
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        subprocess.run([*command, "seen"], stderr=slave, check=True)
        os.close(slave)
        self.assertEqual(os.read(master, 100), b"seen\r\n")
        self.assertEqual(log.read_text(encoding="utf-8"), "+ echo seen (its output went to the terminal)\n")
        subprocess.run([*command, "logged"], stderr=subprocess.DEVNULL, check=True)
        self.assertTrue(log.read_text(encoding="utf-8").endswith("\nlogged\n"))

    def test_a_folder_that_was_not_finished_is_not_there(self):
        with self.assertRaises(KeyError):
            with made_whole(self.path / "made") as scratch:
                (scratch / "part").touch()
                raise KeyError
        self.assertEqual(list(self.path.iterdir()), [])
        with made_whole(self.path / "made") as scratch:
            (scratch / "whole").touch()
        self.assertEqual([path.name for path in (self.path / "made").iterdir()], ["whole"])

    def test_a_blank_in_the_path_is_refused(self):
        with self.assertRaisesRegex(Failed, "cannot have blanks in the path of the checkout: /a b"):
            programs.Portable(Path("/a b"), Path("/a b/build/package"), "x86_64", 1)

    def test_the_sources_of_the_runtime_are_ours_alone(self):
        names = runtime_files.source_names(ROOT)
        for name in ("CMakeLists.txt", "LICENSE", "store/base/error.h", "worker/env.cc", "worker/ddp/ddprunConfig.cmake.in"):
            self.assertIn(name, names)
        self.assertEqual([name for name in names if name.startswith("worker/process/")], [])
        self.assertEqual({name.partition("/")[0] for name in names},
                         {"CMakeLists.txt", "LICENSE", "scripts", "store", "worker"})

    def test_usage_errors_are_one_line(self):
        for arguments, said in [((), "wheel|tarball|deb|modulefile"), (("rpm",), "'rpm'"), (("wheel", "--arch", "mips"), "'mips'"),
                                (("wheel", "--jobs", "0"), "'0' is not a number from 1"), (("wheel", "--prefix", "/opt"), "--prefix is for modulefile"),
                                (("deb", "--arch", "x86_64"), "--arch is for wheel and tarball"),
                                (("modulefile", "--jobs", "2"), "--jobs is for wheel, tarball and deb"),
                                (("modulefile", "--prefix", "opt"), "--prefix='opt' is not an absolute path")]:
            with self.subTest(arguments):
                run = subprocess.run([ROOT / "scripts/package", *arguments], stdin=subprocess.DEVNULL,
                                     capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual((run.returncode, run.stdout, run.stderr.count("\n")), (2, "", 1), run.stderr)
                self.assertIn(said, run.stderr)


if __name__ == "__main__":
    unittest.main()
