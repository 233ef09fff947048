# SPDX-License-Identifier: BSD-3-Clause
"""ddpctl bundle: one file with what is known of a run, bounded, and without secrets of the environment."""

import os
import re
import stat
import tarfile
import unittest

from pages_test import PagesCase

MB = 1 << 20


class BundleTest(PagesCase):
    def setUp(self):
        super().setUp()
        self.bundle = self.path / "b.tar.gz"

    def make(self, *arguments, code=0, **extra):
        return self.ddpctl("bundle", "-o", str(self.bundle), *map(str, arguments), code=code, **extra)

    def read(self):
        with tarfile.open(self.bundle) as tar:
            return {member.name: tar.extractfile(member).read() for member in tar}

    def log_folder(self):
        run = self.path / "logs" / "job_1"
        worker = run / "attempt_0" / "0"
        worker.mkdir(parents=True)
        (run.parent / "latest").symlink_to("job_1")
        (run / "report.json").write_text("{}")
        (worker / "stderr.log").write_bytes(b"begin" + os.urandom(3 * MB) + b"the end")
        (worker / "stdout.log").write_bytes(os.urandom(MB // 2))
        (worker / "error.json").write_text("error")
        return run

    def test_a_run_that_trains_is_asked_and_its_logs_are_read(self):
        self.two_nodes("--redirects=3")
        self.until_shown(self.has_vitals, "vitals, which say where the logs are")
        self.make_fail(1, 0, 7)
        self.until_shown(lambda run: run["state"] == "training" and run["round"] == 1, "the second round")
        self.until_shown(self.has_vitals, "vitals of that round, too")
        said = self.make(f"127.0.0.1:{self.port}", self.path / "logs", HF_TOKEN="hunter2", PROXY="http://me:hunter2@p")
        files = self.read()
        self.assertRegex(said, rf"^\S+b.tar.gz: {len(files) - 1} files, {self.bundle.stat().st_size} bytes\n$")
        self.assertIn(b'"job"', files["run/status.json"])
        self.assertIn(b'"is_training": true', files["run/stacks.json"])
        self.assertIn(b"a worker failed", files["run/explain.txt"])
        self.assertIn(b'"round 0"', files["run/timeline.json"])
        self.assertEqual(len(re.findall(rb"the logs of \S+ are in /\S+/logs/job_", files["MANIFEST.txt"])), 2)
        self.assertIn(b"ddpctl ", files["versions.txt"])
        self.assertIn(b"HF_TOKEN=***\n", files["environment.txt"])
        self.assertIn(b"PROXY=http://me:***@p\n", files["environment.txt"])
        self.assertNotIn(b"hunter2", b"".join(files.values()))
        self.assertTrue(any(name.startswith("logs/attempt_") for name in files), files.keys())
        self.assertEqual(stat.S_IMODE(self.bundle.stat().st_mode), 0o600)
        shown = self.ddpctl("bundle", "--show", str(self.bundle))
        self.assertEqual([line.split(maxsplit=1)[1] for line in shown.splitlines()], list(files))

    def test_of_a_log_its_end_and_links_are_not_followed(self):
        run = self.log_folder()
        secret = self.path / "secret"
        secret.write_text("hunter2")
        (run / "attempt_0" / "0" / "stolen.log").symlink_to(secret)
        (run / "attempt_0" / "1").symlink_to(self.path)
        os.mkfifo(run / "pipe")
        self.make(self.path / "logs")
        files = self.read()
        self.assertEqual(len(files["logs/attempt_0/0/stderr.log"]), MB)
        self.assertTrue(files["logs/attempt_0/0/stderr.log"].endswith(b"the end"))
        self.assertNotIn(b"hunter2", b"".join(files.values()))
        manifest = files["MANIFEST.txt"].decode()
        for words in ("stderr.log: the last MB of", "no regular file: attempt_0/0/stolen.log",
                      "no regular file: attempt_0/1", "no regular file: pipe", "logs is "):
            self.assertIn(words, manifest)

    def test_it_is_never_larger_than_its_bound_and_the_report_comes_first(self):
        run = self.log_folder()
        for size in (128 * 1024, 700 * 1024, 2 * MB):
            said = self.make("--max-size", size, run)
            self.assertLessEqual(self.bundle.stat().st_size, size)
            files = self.read()
            self.assertIn("logs/report.json", files)
            self.assertIn("logs/attempt_0/0/error.json", files)
            is_complete = size == 2 * MB
            self.assertEqual("logs/attempt_0/0/stderr.log" in files, is_complete)
            self.assertEqual("left out" in said, not is_complete)
            self.assertEqual("left out, for --max-size" in files["MANIFEST.txt"].decode(), not is_complete)
            self.bundle.unlink()

    def test_wrong_questions_are_one_line_and_leave_no_file(self):
        run = self.log_folder()
        for arguments, code, words in (
                ((), 2, "name a log folder, or where the nodes meet"),
                ((self.path / "none",), 2, "is no folder, and no place where nodes meet"),
                ((f"127.0.0.1:{self.port}",), 1, r"connect to \S+: Connection refused"),
                (("--max-size=100", run), 2, "--max-size=100 is too small: at least 128K"),
                (("--max-size=x", run), 2, "--max-size"),
                (("--show", run), 1, "no bundle"),
                (("--show", run / "report.json"), 1, "no bundle")):
            with self.subTest(arguments=arguments):
                self.assertRegex(self.make(*arguments, code=code), rf"^ddpctl: .*{words}.*\n$")
                self.assertFalse(self.bundle.exists())
        self.bundle.write_text("mine")
        self.assertRegex(self.make(run, code=1), r"^ddpctl: make the bundle \S+b.tar.gz: File exists\n$")
        self.assertEqual(self.bundle.read_text(), "mine")

    def test_a_damaged_one_is_said_to_be(self):
        self.make(self.log_folder())
        self.bundle.write_bytes(self.bundle.read_bytes()[:-400])
        self.assertRegex(self.ddpctl("bundle", "--show", str(self.bundle), code=1), "damaged")


if __name__ == "__main__":
    unittest.main(verbosity=2)
