# SPDX-License-Identifier: BSD-3-Clause
"""ddpctl bundle: one file with what is known of a run, bounded, and without secrets of the environment."""

import json
import os
import re
import signal
import stat
import subprocess
import tarfile
import time
import unittest

from ddpd_process import Ddpd
from nodes import LIMIT, WORKER, environment, wait_until
from pages_test import DDPCTL, PagesCase

MB = 1 << 20


class BundleCase(PagesCase):
    def setUp(self):
        super().setUp()
        self.bundle = self.path / "b.tar.gz"

    def make(self, *arguments, code=0, **extra):
        return self.ddpctl("bundle", "-o", str(self.bundle), *map(str, arguments), code=code, **extra)

    def read(self):
        with tarfile.open(self.bundle) as tar:
            return {member.name: tar.extractfile(member).read() for member in tar}


class BundleTest(BundleCase):
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
                (("--run=none-such",), 2, "no run 'none-such' of this user shows itself on this machine; name where"),
                ((self.path / "none",), 2, "is no folder, and no place where nodes meet"),
                ((f"127.0.0.1:{self.port}",), 1, r"connect to \S+: Connection refused"),
                ((run, self.path), 2, r"has no logs of a run \(attempt_0 or report.json\): name the folder"),
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

    def test_a_run_is_chosen_as_everywhere_and_one_that_is_over_has_its_timeline(self):
        daemon = Ddpd()
        self.addCleanup(daemon.stop)
        self.port, self.count = daemon.port, 1  # the nodes do not host
        nodes = {run: self.node("--nnodes=1:2", "--rdzv-conf=last_call_timeout=0.1", f"--rdzv-id={run}", "--vitals=0.2")
                 for run in ("one", "two")}
        self.until_started(2)
        endpoint = f"127.0.0.1:{self.port}"
        for options, words in (((), "2 runs meet at .*choose one with --run"), (("--run=three",), "no run 'three' meets")):
            self.assertRegex(self.make(*options, endpoint, code=2), rf"^ddpctl: {words}.*\n$")
            self.assertFalse(self.bundle.exists())
        (self.path / "go.one").touch()
        self.assertEqual(nodes["one"].ends(), 0, nodes["one"].log)
        run = subprocess.run([DDPCTL, "bundle", "-o", self.bundle, "--run=one", endpoint], env=environment(),
                             capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stderr, r"^ddpctl: no files of the nodes: run 'one' is over; add their log folders.*\n$")
        files = self.read()
        self.assertIn(b'"round 0"', files["run/timeline.json"])
        self.assertIn("run 'one' is over", files["MANIFEST.txt"].decode())

    def test_several_of_one_second_have_different_names(self):
        run, folder = self.log_folder(), self.path / "made"
        folder.mkdir()
        now = int(time.time())
        for second in range(now, now + 2 * LIMIT):
            (folder / time.strftime("ddprun-bundle-%Y%m%d-%H%M%S.tar.gz", time.localtime(second))).touch()
        for _ in range(2):
            made = subprocess.run([DDPCTL, "bundle", str(run)], cwd=folder, env=environment(), capture_output=True, text=True,
                                  timeout=LIMIT)
            self.assertEqual((made.returncode, made.stderr), (0, ""))
            self.assertRegex(made.stdout, r"^ddprun-bundle-\d{8}-\d{6}-\d.tar.gz: \d+ files, ")
        self.assertEqual(len([path for path in folder.iterdir() if path.stat().st_size > 0]), 2)

    def test_a_damaged_one_is_said_to_be(self):
        self.make(self.log_folder())
        self.bundle.write_bytes(self.bundle.read_bytes()[:-400])
        self.assertRegex(self.ddpctl("bundle", "--show", str(self.bundle), code=1), "damaged")


class NodesBundleTest(BundleCase):
    """The files of the nodes, through their agents: no two of them have a folder in common."""

    def start(self, *options, words="", **extra):
        worker = f'echo "I am node $NODE" >&2; {words}\n{WORKER}'
        for node in range(2):
            self.node("--nnodes=2", "--nproc-per-node=2", "--rdzv-id=job", "--vitals=0.2", "--redirects=3",
                      "--log-dir", self.path / f"logs{node}", *options, command=("--no-python", "sh", "-c", worker),
                      HF_TOKEN=f"hunter{node}", **extra)
        self.until_started(4)

    def ask(self, *options):
        """The files in the bundle, and what ddpctl has said on stderr."""
        run = subprocess.run([DDPCTL, "bundle", "-o", self.bundle, f"127.0.0.1:{self.port}", *map(str, options)],
                             env=environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL,
                             timeout=LIMIT)
        self.assertEqual(run.returncode, 0, run.stderr)
        return self.read(), run.stderr

    def of_nodes(self, files, name):
        """What the nodes have given under this name, by their folders."""
        return {path.split("/")[1]: text for path, text in files.items()
                if re.fullmatch(rf"nodes/[^/]+/{name}", path)}

    def check_both_nodes(self, files):
        words = self.of_nodes(files, "logs/attempt_0/0/stderr.log")
        self.assertEqual(sorted(words.values()), [b"I am node 0\n", b"I am node 1\n"])
        self.assertEqual(sorted(name.split("-")[0] for name in words), ["0", "1"])
        for text in self.of_nodes(files, "environment.txt").values():
            self.assertIn(b"\nHF_TOKEN=***\n", text)
            self.assertRegex(text, rb"\nRANK=[02]\n")
        for name in ("environment.txt", "versions.txt", "MANIFEST.txt"):
            self.assertEqual(len(self.of_nodes(files, name)), 2, name)
        self.assertTrue(all(text.startswith(b"ddprun ") for text in self.of_nodes(files, "versions.txt").values()))
        self.assertNotIn(b"hunter", b"".join(files.values()))

    def test_both_nodes_give_their_logs_and_keep_their_secrets(self):
        self.start()
        files, said = self.ask()
        self.assertEqual(said, "")
        self.check_both_nodes(files)
        self.assertEqual(self.run_shown()["state"], "training")
        # The next one need not wait.
        self.bundle.unlink()
        files, said = self.ask()
        self.assertEqual(said, "")
        self.check_both_nodes(files)

    def test_a_ddpd_asks_them_too(self):
        daemon = Ddpd()
        self.addCleanup(daemon.stop)
        self.port = daemon.port
        self.start()
        files, said = self.ask()
        self.assertEqual(said, "")
        self.check_both_nodes(files)

    def test_logs_of_several_pieces_stay_within_the_bound(self):
        self.start(words="head -c 900000 /dev/urandom; touch written.$RANK")
        wait_until(lambda: len(list(self.path.glob("written.*"))) == 4, "all logs are written")
        files, said = self.ask()
        self.assertEqual(said, "")
        self.assertEqual(sum(len(text) == 900000 for text in files.values()), 4)
        for size in (128 * 1024, 512 * 1024, 3 * MB):
            self.bundle.unlink()
            files, said = self.ask("--max-size", size)
            self.assertLessEqual(self.bundle.stat().st_size, size)
            self.assertEqual(len(self.of_nodes(files, "versions.txt")), 2, files.keys())
            self.assertEqual(len(self.of_nodes(files, "logs/attempt_0/0/stderr.log")), 2, files.keys())
            logs = sum(len(text) == 900000 for text in files.values())
            self.assertEqual(logs, 2 if size == 3 * MB else 0)
            for text in self.of_nodes(files, "MANIFEST.txt").values():
                self.assertIn(b"left out, for --max-size or its long name: logs/attempt_0/", text)

    def test_a_node_that_stands_still_is_named_and_the_others_are_in_it(self):
        self.start("--rdzv-conf=keep_alive_interval=60")
        run = self.until_shown(self.has_vitals, "vitals")
        stopped = next(node["agent_pid"] for node in run["nodes"] if not node["is_host"])
        os.kill(stopped, signal.SIGSTOP)
        self.addCleanup(lambda: os.kill(stopped, signal.SIGCONT))
        files, said = self.ask()
        os.kill(stopped, signal.SIGCONT)
        why = r"no files of \S+ \(group rank [01]\): it has not answered within 10 s\n"
        self.assertRegex(said, rf"(?m)^ddpctl: {why}")
        self.assertRegex(files["MANIFEST.txt"].decode(), why)
        self.assertEqual(len(self.of_nodes(files, "logs/attempt_0/0/stderr.log")), 1, files.keys())

    def test_a_stranger_gets_no_files_and_cannot_have_them_packed(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, to be another user")
        path = self.secret_file()
        token = self.ddpctl("page-token", str(path)).strip()
        self.start(f"--rdzv-secret-file={path}")
        targets = ("/bundle/job", "/bundle/job/1000000", "/bundle/job/1/over", "/bundle/job/1/node/1")
        for target in targets:
            for method in ("PUT", "GET"):
                answer = self.as_stranger(target, method=method)
                self.assertTrue(answer.startswith("HTTP/1.1 401 "), answer)
        shown = self.as_stranger("/bundle/job", token).partition("\n\n")[2]
        self.assertEqual(json.loads(shown)["number"], 0)  # nobody was asked
        files, said = self.ask("--secret-file", path)
        self.assertEqual(said, "")
        self.check_both_nodes(files)

    def test_without_a_secret_the_same_user_is_asked_for(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, to be another user")
        self.start()
        for method, code in (("PUT", 401), ("GET", 401), ("OPTIONS", 405)):
            answer = self.as_stranger("/bundle/job/1000000", method=method)
            self.assertTrue(answer.startswith(f"HTTP/1.1 {code} "), answer)
        self.assertEqual(json.loads(self.page("/bundle/job")[1])["number"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
