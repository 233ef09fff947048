# SPDX-License-Identifier: BSD-3-Clause
"""Faults planted in workers: what a person reads in the last 30 lines, and in report.json.

For each fault: the cause is named, the right rank first, no victim is listed as a cause, the node
is named, the next step is said, and nothing looks like a traceback of ddprun's own."""

import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import unittest

from launch_test import DDPRUN, LIMIT, LaunchCase, environment, wait_until
from nodes import STACKS_OF_A_WAIT

NODE = socket.gethostname()
SANITIZE = os.environ.get("DDPRUN_SANITIZE")
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = unittest.skipUnless(HAS_TORCH, "this Python has no torch")

# Rank 2 of 4 is at fault; the others wait to be stopped.
ONE_AT_FAULT = """
import os, signal, sys, time
if os.environ["RANK"] == "2":
    {fault}
time.sleep(1000)
"""


class FaultCase(LaunchCase):
    def fails(self, *arguments, prefix=(), code=None, **extra):
        """Runs a job that must fail; keeps the last 30 lines and the report."""
        run = subprocess.run(
            [*prefix, DDPRUN, "--log-dir", str(self.logs), *map(str, arguments)],
            env=environment(**extra), cwd=self.path, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        self.assertNotEqual(run.returncode, 0, run.stdout)
        if code is not None:
            self.assertEqual(run.returncode, code, run.stdout)
        self.output = run.stdout
        self.last = "\n".join(run.stdout.splitlines()[-30:])
        return run

    def check_report(self, rank, *words):
        """The report begins with `rank`, and names `words`, the node and the next step."""
        (header,) = [line for line in self.last.splitlines() if "FAILED: " in line]
        self.assertRegex(header, rf"FAILED: rank {rank} \(local rank {rank}, pid \d+\) on {NODE} ")
        report = self.last[self.last.index("FAILED: "):]
        for word in words:
            self.assertIn(word, report)
        self.assertRegex(report, r"\n  next: \S")
        self.assertLess(report.index("\n  next: "), len(report))
        document = self.report()
        self.assertEqual((document["version"], document["root_cause"]["rank"]), (1, rank))
        self.assertNotIn(rank, [victim["rank"] for victim in document["victims"]])
        return document

    def report(self):
        (path,) = [p for p in self.logs.glob("*/report.json") if p.parent.name != "latest"]
        return json.loads(path.read_text())

    def one_at_fault(self, fault, *arguments, **extra):
        script = self.script(ONE_AT_FAULT.format(fault=fault))
        return self.fails("--nproc-per-node=4", *arguments, script, **extra)


class DeathTest(FaultCase):
    def test_an_exception_without_record(self):
        self.one_at_fault("raise ValueError('the data set is empty')", code=1)
        self.check_report(2, "exited with code 1: ValueError: the data set is empty", "Traceback (most recent call last)")
        self.assertIn("\n  then stopped by ddprun: ranks 0, 1, 3\n", self.last)
        self.assertEqual(self.output.count("Traceback"), 2, "the worker's own, and the report's")

    def test_the_traceback_is_kept_from_being_pushed_away(self):
        # Victims that talk a lot when they are stopped, after the cause.
        script = self.script(
            "import os, signal, sys, time\n"
            "def stop(*_):\n"
            "    os.write(2, b'noise of a victim\\n' * 100); sys.exit(1)\n"
            "signal.signal(signal.SIGTERM, stop)\n"
            "open('ready.' + os.environ['RANK'], 'w')\n"
            "if os.environ['RANK'] == '0':\n"
            "    while not all(os.path.exists(f'ready.{r}') for r in range(4)): time.sleep(0.01)\n"
            "    raise KeyError('lost')\n"
            "time.sleep(1000)\n")
        self.fails("--nproc-per-node=4", script, code=1)
        self.assertGreater(self.output.count("noise of a victim"), 200)
        self.check_report(0, "KeyError: 'lost'", "after that, as its victims: rank ")

    def test_exit_codes_and_signals_are_told_in_words(self):
        for fault, code, words in (("sys.exit(3)", 3, "exited with code 3"),
                                   ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "SIGSEGV"),
                                   ("os.abort()", 134, "SIGABRT"),
                                   ("os.kill(os.getpid(), signal.SIGKILL)", 137, "SIGKILL")):
            with self.subTest(fault):
                shutil.rmtree(self.logs, ignore_errors=True)
                self.one_at_fault(fault, code=code)
                document = self.check_report(2, words)
                self.assertEqual(document["root_cause"]["exit_code"], code)

    @unittest.skipIf(SANITIZE, f"in 64 MiB there is no room for the agent's own shadow memory ({SANITIZE})")
    def test_the_kernels_oom_killer_is_named(self):
        memory = pathlib.Path("/sys/fs/cgroup/memory")
        if not (memory / "memory.limit_in_bytes").exists():
            memory = pathlib.Path("/sys/fs/cgroup")
        group = memory / f"ddprun-test-{os.getpid()}"
        try:
            group.mkdir()
            self.addCleanup(wait_until, lambda: self.is_removed(group), "the cgroup is empty")
            v1 = group / "memory.limit_in_bytes"
            (v1 if v1.exists() else group / "memory.max").write_text(str(64 << 20))
        except OSError as error:
            self.skipTest(f"no memory cgroup can be made here: {error}")
        script = self.script("import os, time\n"
                             "eaten = [] if os.environ['RANK'] == '1' else None\n"
                             "while eaten is not None: eaten.append(bytearray(b'x' * (1 << 20)))\n"
                             "time.sleep(1000)\n")
        inside = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        self.fails("--nproc-per-node=2", script, prefix=inside, code=137)
        self.check_report(1, "was killed by SIGKILL; the kernel's OOM killer: memory cgroup limit reached (limit 64 MiB)",
                          "next: give the job more memory")

    @staticmethod
    def is_removed(group):
        try:
            group.rmdir()
        except OSError:
            return False
        return True

    def test_three_different_failures_that_spend_the_budget(self):
        script = self.script(
            "import os, signal, sys, time\n"
            "attempt = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
            "if os.environ['RANK'] == attempt:\n"
            "    if attempt == '0': raise OSError('disk gone')\n"
            "    if attempt == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
            "    sys.exit(7)\n"
            "time.sleep(1000)\n")
        self.fails("--nproc-per-node=3", "--max-restarts=2", script, code=82)
        document = self.check_report(2, "exited with code 7", f"attempt 0: rank 0 (local rank 0, pid ",
                                     f"on {NODE} exited with code 1: OSError: disk gone",
                                     "attempt 1: rank 1 (local rank 1, pid ", "was killed by SIGKILL",
                                     "(2 of --max-restarts=2)", "exit code: 82, all 2 restarts are spent")
        self.assertEqual([f["rank"] for f in document["failures"]], [0, 1, 2])

    def test_a_run_that_survives_its_failures_says_so(self):
        run = self.ddprun("--max-restarts=2", "--no-python", "sh", "-c",
                          "case $TORCHELASTIC_RESTART_COUNT in 0) exit 4;; 1) kill -KILL $$$$;; esac")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("finished: 1 worker succeeded after 2 restarts (rank 0 exited with code 4; "
                      "rank 0 was killed by SIGKILL", run.stderr)
        self.assertNotIn("FAILED", run.stderr)
        document = self.report()
        self.assertEqual((document["exit_code"], document["root_cause"], document["error"], document["next_step"]),
                         (0, None, None, None))
        self.assertEqual([failure["exit_code"] for failure in document["failures"]], [4, 137])
        self.assertEqual(sum(cause["count"] for cause in document["time"]["restarts"]), 2)


class StartTest(FaultCase):
    """What cannot start is not started again."""

    def check_no_restart(self, why):
        self.assertIn(f"no restart: it could not start: {why}", self.output)
        self.assertNotIn("restart 1 of 3: started", self.output)

    def test_a_missing_module(self):
        self.fails("--max-restarts=3", self.script("import no_such_module\n"), code=1)
        self.check_no_restart("ModuleNotFoundError: No module named 'no_such_module'")
        self.check_report(0, "ModuleNotFoundError", "next: install the module")

    def test_a_missing_module_of_m(self):
        self.fails("--max-restarts=3", "-m", "no_such_module", code=1)
        self.check_report(0, "No module named no_such_module", "next: install the module")
        self.assertNotIn("restart 1 of 3: started", self.output)

    def test_a_syntax_error(self):
        self.fails("--max-restarts=3", self.script("x ==\n"), code=1)
        self.check_no_restart("SyntaxError: invalid syntax")

    def test_wrong_arguments(self):
        script = self.script("import argparse\nargparse.ArgumentParser().parse_args()\n")
        self.fails("--max-restarts=3", script, "--no-such-option", code=2)
        self.check_no_restart("its arguments are wrong: ")
        self.check_report(0, "unrecognized arguments: --no-such-option", "next: correct the arguments")

    def test_a_command_that_a_wrapper_does_not_find(self):
        self.fails("--max-restarts=3", "--no-python", "sh", "-c", "no_such_command", code=127)
        self.check_no_restart("a command was not found")

    def test_a_crash_is_restarted(self):
        self.fails("--max-restarts=1", self.script("raise ValueError('x')\n"), code=82)
        self.assertIn("restart 1 of 1: started", self.output)

    def test_the_users_own_list(self):
        self.fails("--max-restarts=3", "--no-restart-exit-codes=42", "--no-python", "sh", "-c", "exit 42", code=42)
        self.assertIn("no restart: exit code 42 is one of --no-restart-exit-codes", self.output)
        self.assertNotIn("restart 1 of 3: started", self.output)

    def test_what_is_found_before_anything_starts(self):
        for arguments, extra, words in (
                (["no-such-script.py"], {}, "no-such-script.py"),
                (["--no-python", "no-such-program"], {}, "no-such-program"),
                (["--nproc-per-node=gpu", "x.py"], {"CUDA_VISIBLE_DEVICES": ""}, "no GPU is visible"),
                (["--log-dir=/proc/no-such-folder", "--no-python", "true"], {}, "/proc/no-such-folder")):
            with self.subTest(arguments):
                run = self.fails(*arguments, code=2, **extra)
                self.assertRegex(run.stdout, r"\Addprun: [^\n]+\n\Z")
                self.assertIn(words, run.stdout)

    def test_a_missing_interpreter(self):
        run = self.fails(self.script("pass\n"), PYTHON_EXEC="/no/such/python")
        self.assertEqual(run.returncode, 2, run.stdout)
        self.assertIn("program '/no/such/python' does not exist (PYTHON_EXEC names it)", self.last)

    def test_an_error_file_that_cannot_be_read_is_as_none(self):
        self.one_at_fault("os.mkdir(os.environ['TORCHELASTIC_ERROR_FILE']); raise ValueError('the cause')", code=1)
        self.check_report(2, "exited with code 1: ValueError: the cause")

    def small_disk(self):
        """Where it is mounted for what is run behind the words, and these."""
        disk = self.path / "disk"
        disk.mkdir()
        prefix = ("unshare", "-m", "sh", "-c", f"mount -t tmpfs -o size=64k none {disk} && exec \"$@\"", "sh")
        if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
            self.skipTest("no file system can be mounted here")
        return disk, prefix

    def run_with_logs(self, folder, *arguments, prefix=(), **variables):
        """A run of one worker, with its log folder there."""
        return subprocess.run([*prefix, DDPRUN, "--log-dir", str(folder), *map(str, arguments)],
                              env=environment(**variables), cwd=self.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT)

    def test_a_full_log_folder_hides_no_cause(self):
        disk, prefix = self.small_disk()
        script = self.script("import sys\nsys.stdout.write('x' * 1000000 + '\\n')\nraise ValueError('the cause')\n")
        self.logs = disk / "logs"
        run = self.fails("--tee=3", script, prefix=prefix, code=1)
        self.assertIn("FAILED: rank 0", self.last)
        report = run.stdout[run.stdout.index("FAILED: "):]
        self.assertRegex(report, "\n  logs: .*, which miss lines: .*No space left on device\n")
        self.assertNotIn("no report: ", report, "nothing stands behind the report")
        self.assertIn("ValueError: the cause", self.last)
        self.assertIn("\n  next: ", self.last)

    def test_a_full_log_folder_is_named_again_at_the_end_of_a_run_that_succeeds(self):
        disk, prefix = self.small_disk()
        script = self.script("import sys\nsys.stdout.write('x' * 1000000 + '\\n')\nprint('done')\n")
        run = self.run_with_logs(disk / "logs", "--tee=3", script, prefix=prefix)
        self.assertEqual(run.returncode, 0, run.stdout)
        after = run.stdout[run.stdout.index(":done\n"):].splitlines()[1:]
        after = [line for line in after if " of it training" not in line]  # of a busy machine
        self.assertRegex(after[-2], r" the log files in \S+ miss lines: .*No space left on device")
        self.assertRegex(after[-1], r" finished: ")

    def teed(self, stdout, *arguments, logs, script=None, prefix=(), stderr=subprocess.PIPE):
        """A run under --tee whose stdout is the file `stdout`.  Its worker prints a megabyte."""
        script = script or self.script("for i in range(1000): print('x' * 1000)\n")
        redirected = ("sh", "-c", f'exec "$@" >{stdout}' + (" 2>&1" if stderr is None else ""), "sh")
        self.logs = pathlib.Path(logs)
        return subprocess.run([*prefix, *redirected, DDPRUN, "--tee=3", "--log-dir", str(logs), *map(str, arguments), script],
                              env=environment(), cwd=self.path, stdin=subprocess.DEVNULL, stderr=stderr, text=True, timeout=LIMIT)

    def test_a_console_on_a_full_disk_is_told_once_with_where_its_output_is(self):
        disk, prefix = self.small_disk()
        for stdout, where in (("/dev/full", ()), (disk / "out", prefix)):
            with self.subTest(stdout):
                logs = self.path / ("logs-" + pathlib.Path(stdout).name)
                run = self.teed(stdout, logs=logs, prefix=where)
                self.assertEqual(run.returncode, 0, run.stderr)
                warning = (f"the console misses lines from here on: write to stdout, which is {stdout}: No space left on device; "
                           f"what workers print is in the log files only: {logs}/")
                self.assertEqual(run.stderr.count(warning), 1, run.stderr)
                self.assertRegex(run.stderr, rf" stdout, which is {stdout}, misses \d+ bytes: No space left on device\n")
                self.assertRegex(self.report()["console_loss"], rf"^stdout, which is {stdout}, misses \d+ bytes: No space ")

    def test_lines_that_neither_console_nor_log_files_have_are_called_lost(self):
        disk, prefix = self.small_disk()
        script = self.script("import sys\nfor i in range(1000): print('x' * 1000)\nsys.exit(3)\n")
        run = self.teed(disk / "out", logs=disk / "logs", prefix=prefix, script=script)
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertNotIn("on the console only", run.stderr)
        self.assertRegex(run.stderr, r" log files miss lines from here on, and (so does the console|the console is a file on the "
                                     r"same disk): write ")
        self.assertIn(" the console misses lines from here on: write to stdout, which is ", run.stderr)
        self.assertIn("\n  console: stdout, which is ", run.stderr)
        self.assertIn("\n  next: what it said is lost: make room ", run.stderr)

    def test_lines_that_only_the_console_has_are_not_called_lost(self):
        disk, prefix = self.small_disk()
        script = self.script("import sys\nfor i in range(1000): print('x' * 1000)\nsys.exit(3)\n")
        run = self.teed(self.path / "out", logs=disk / "logs", prefix=prefix, script=script)
        self.assertIn(" log files miss lines from here on, which are on the console only: write ", run.stderr)
        self.assertNotIn("lost", run.stderr)
        self.assertIn("\n  next: it said nothing on stderr: look at its lines on the console, ", run.stderr)

    def test_a_console_without_logs_on_a_full_disk_says_that_its_lines_are_nowhere(self):
        run = self.teed("/dev/full", logs="/dev/null")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("; what workers print there is kept nowhere else (--tee=3 ", run.stderr)

    def test_a_full_disk_of_both_consoles_is_told_in_the_report_and_where_room_comes_back(self):
        disk, prefix = self.small_disk()
        script = self.script(f"import os\nfd = os.open('{disk}/ballast', os.O_WRONLY | os.O_CREAT)\n"
                             "try:\n    while os.write(fd, b'x' * 4096): pass\nexcept OSError: pass\n"
                             "print('x' * 100000, flush=True)\n"
                             "import time\n"
                             f"while os.path.getsize('{self.path}/logs/latest/attempt_0/0/stdout.log') < 100001: time.sleep(0.01)\n"
                             f"os.truncate(fd, 0)\nprint('after', flush=True)\n")
        out = self.path / "copy"
        inner = ("sh", "-c", f'"$@"; code=$?; cp {disk}/out {out}; exit $code', "sh")
        run = self.teed(disk / "out", logs=self.path / "logs", prefix=(*prefix, *inner), script=script, stderr=None)
        text = out.read_text()
        self.assertEqual(run.returncode, 0, text)
        self.assertRegex(text, r"\n\[ddprun: \d+ bytes are missing here, the file could not be written: No space left on device; "
                               r"the log files have them, where logs are kept\]\n")
        self.assertIn("]:after\n", text)
        self.assertRegex(text, r" stdout, which is \S+/out, misses \d+ bytes: No space left on device")
        self.assertIn("stdout, which is ", self.report()["console_loss"])

    def test_a_log_folder_that_has_become_unusable_costs_no_restart(self):
        """As a remounted or stale file system: here it has become a file."""
        script = self.script("import glob, os, shutil, sys\n"
                             "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
                             "    [folder] = glob.glob('logs/none_*')\n"
                             "    shutil.rmtree(folder)\n"
                             "    open(folder, 'w')\n"
                             "    raise ValueError('the cause')\n"
                             "print('trained')\n")
        run = self.run_with_logs(self.path / "logs", "--tee=3", "--max-restarts=1", "--rdzv-id=none", script)
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertIn(":trained\n", run.stdout)
        self.assertRegex(run.stdout, r"this attempt has no log files: log folder \S+/attempt_1 .*: Not a directory")
        self.assertRegex(run.stdout, r"the log files in \S+ miss lines: log folder .*: Not a directory")

    def test_lines_that_are_no_timers_are_told_a_few_times(self):
        script = self.script(
            "import fcntl, os, struct, termios, time\n"
            "with open(os.environ['TORCHELASTIC_TIMER_FILE'], 'w') as fifo:\n"
            "    fifo.write('nonsense\\n' * 1000)\n"
            "    fifo.flush()\n"
            "    while struct.unpack('i', fcntl.ioctl(fifo, termios.FIONREAD, bytes(4))) != (0,): time.sleep(0.01)\n")
        run = self.run_with_logs(self.path / "logs", script, TORCHELASTIC_ENABLE_FILE_TIMER="1",
                                 TORCHELASTIC_TIMER_FILE=str(self.path / "timers"))
        self.assertEqual(run.returncode, 0, run.stdout)
        told = [line for line in run.stdout.splitlines() if "a line of the timer file is ignored" in line]
        self.assertEqual(len(told), 10, run.stdout)
        self.assertIn("; further ones are not told", told[-1])

    def test_a_full_disk_of_files_that_the_workers_have_themselves_is_named_at_the_end(self):
        disk, prefix = self.small_disk()
        for code, last in ((0, r"^\S+ .* the log files in \S+ may miss lines: the disk of \S+ was full$"),
                           (7, r"^  the logs on this node may miss lines: the disk of \S+ was full$")):
            script = self.script("import os, sys\ntry: os.write(1, b'x' * 1000000); os.write(1, b'y')\n"
                                 f"except OSError: sys.exit({code})\n")
            run = self.run_with_logs(disk / "logs", "--redirects=3", script, prefix=prefix)
            self.assertEqual(run.returncode, code, run.stdout)
            self.assertRegex(run.stdout, "(?m)" + last)
        # With room there is nothing to say.
        script = self.script("print('x')\n")
        run = self.run_with_logs(self.path / "logs", "--redirects=3", script)
        self.assertNotIn("miss lines", run.stdout)


class StuckTest(FaultCase):
    """A worker that not even SIGKILL ends.  A frozen cgroup of version 1 makes one: its processes are
    in D state, and a signal waits until it is thawed."""

    def setUp(self):
        super().setUp()
        self.group = pathlib.Path(f"/sys/fs/cgroup/freezer/ddprun-test-{os.getpid()}")
        try:
            self.group.mkdir()
        except OSError as error:
            self.skipTest(f"no freezer cgroup can be made here: {error}")
        self.addCleanup(wait_until, lambda: DeathTest.is_removed(self.group), "the cgroup is empty")
        self.addCleanup(self.freeze, "THAWED")

    def freeze(self, state="FROZEN"):
        (self.group / "freezer.state").write_text(state)

    def start_frozen(self, *options):
        """A run of two workers; rank 1 of the first attempt is in D state when this returns."""
        # Into a file: a pipe would not end before the worker does.
        self.said = self.path / "said"
        with open(self.said, "wb") as said:
            run = subprocess.Popen(
                [DDPRUN, "--log-dir", str(self.logs), "--nproc-per-node=2", "--shutdown-timeout=1", *options,
                 self.frozen_script(), *(["fail"] if "--max-restarts=1" in options else [])],
                env=environment(PATH="/nowhere"), cwd=self.path, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        self.addCleanup(lambda: run.poll() is None and run.kill())
        wait_until(lambda: (self.path / "ready").exists(), "the worker is in the cgroup")
        wait_until(lambda: (self.freeze(), (self.group / "freezer.state").read_text() == "FROZEN\n")[1], "it is frozen")
        (self.path / "frozen").touch()
        return run

    def ends_with(self, run, code):
        run.wait(timeout=LIMIT)
        self.assertEqual(run.returncode, code, self.said.read_text())
        return self.said.read_text()

    def frozen_script(self):
        return self.script(
            "import os, sys, time\n"
            "first = os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'\n"
            "if os.environ['RANK'] == '1' and first:\n"
            f"    open('{self.group}/cgroup.procs', 'w').write('0')\n"
            "    open('ready', 'w')\n"
            "elif first:\n"
            "    while not os.path.exists('frozen'): time.sleep(0.01)\n"
            "    if 'fail' in sys.argv: sys.exit(3)\n"
            "else: sys.exit(0)\n"
            "time.sleep(1000)\n")

    STUCK = r"rank 1 \(local rank 1, pid \d+\) does not end, not even by SIGKILL; it is in D state in \w+"

    def test_a_restart_goes_on_without_it(self):
        run = self.start_frozen("--max-restarts=1")
        stderr = self.ends_with(run, 0)
        self.assertRegex(stderr, self.STUCK)
        self.assertIn("restart 1 of 1: started", stderr)

    def test_a_stop_ends_and_names_it(self):
        run = self.start_frozen()
        run.terminate()
        stderr = self.ends_with(run, 128 + signal.SIGTERM)
        self.assertRegex(stderr, self.STUCK)
        self.assertRegex(self.report()["left_behind"][0], self.STUCK)

    def test_a_hung_one_that_cannot_be_ended_is_a_failure(self):
        run = self.start_frozen("--hang-timeout=2")
        stderr = self.ends_with(run, 137)
        self.assertRegex(stderr, r"FAILED: rank 1 .* was killed by SIGKILL; hung: .*it was in D state in \w+")
        self.assertRegex(stderr, "\n  left behind: " + self.STUCK)


class HangTest(FaultCase):
    def test_a_silent_worker_is_named_with_what_it_did(self):
        self.one_at_fault("time.sleep(1000)\nelse:\n    while True: pass", "--hang-timeout=2", code=134,
                          PATH="/nowhere")
        self.check_report(2, "hung: no CPU time or heartbeat for 2 s (its output is not seen without --tee)",
                          "next: see why it stands there")
        self.assertIn("Current thread", self.last, "faulthandler wrote the stack")

    def test_output_that_is_seen_is_a_sign_of_life(self):
        body = ("import sys, time\n"
                "for _ in range(12):\n"
                "    print('here', flush=True)\n"
                "    time.sleep(0.4)\n"
                "time.sleep(1000)\n")
        self.fails("--nproc-per-node=1", "--hang-timeout=2", "--tee=3", self.script(body), code=134,
                   PATH="/nowhere")
        self.check_report(0, "hung: no output, CPU time or heartbeat for 2 s")
        time = self.report()["time"]
        self.assertGreater(time["hanging"], 2)
        self.assertGreater(time["training"], 4)  # the 12 lines
        self.assertAlmostEqual(sum(time[part] for part in ("training", "hanging", "starting", "stopping", "waiting")),
                               time["up"], delta=0.01)
        self.assertRegex(self.last, r"up \S+ s, \d+\.\d % of it training, \d+\.\d % hanging")
        self.assertEqual(self.last.count("]:here"), 12)

    def test_a_heartbeat_keeps_a_silent_worker_alive(self):
        script = self.script("import os, time\n"
                             "for i in range(40):\n"
                             "    os.utime(os.environ['DDPRUN_HEARTBEAT_FILE']) if i else "
                             "open(os.environ['DDPRUN_HEARTBEAT_FILE'], 'w').close()\n"
                             "    time.sleep(0.1)\n")
        run = self.ddprun("--hang-timeout=2", script)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_a_stop_does_not_wait_for_the_stacks(self):
        debugger = self.path / "eu-stack"  # holds its process as a real one does, and takes its time
        debugger.write_text("#!/bin/sh\n"
                            "for pid; do :; done\n"
                            "kill -STOP $pid\n"
                            f"touch {self.path}/held\n"
                            "exec sleep 1000\n")
        debugger.chmod(0o755)
        script = self.script("import signal, sys, time\n"
                             "signal.signal(signal.SIGTERM, lambda *_: (open('heard', 'w'), sys.exit(0)))\n"
                             "time.sleep(1000)\n")
        run = subprocess.Popen(
            [DDPRUN, "--log-dir", str(self.logs), "--hang-timeout=1", script], cwd=self.path,
            env=environment(PATH=f"{self.path}:/usr/bin:/bin"), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: run.poll() is None and run.kill())
        wait_until(lambda: (self.path / "held").exists(), "the debugger holds the worker")
        run.terminate()
        _, stderr = run.communicate(timeout=20)  # of the 30 s that the stacks may take
        self.assertEqual(run.returncode, 128 + signal.SIGTERM, stderr)
        self.assertTrue((self.path / "heard").exists(), stderr)
        (stack,) = self.logs.glob("*_*/attempt_0/0/stack.eu-stack")
        self.assertEqual(stack.read_text(), "(ddprun: not complete, the workers were stopped)\n")

    def test_one_that_works_while_the_others_wait_for_it_is_named(self):
        tool = self.path / "py-spy"
        tool.write_text(STACKS_OF_A_WAIT)
        tool.chmod(0o755)
        script = self.script("import os, time\n"
                             "def load():\n"
                             "    while True: pass\n"
                             "load() if os.environ['RANK'] == '1' else time.sleep(1000)\n")
        self.fails("--nproc-per-node=2", "--hang-timeout=2", script, code=134, PATH=f"{self.path}:/usr/bin:/bin")
        self.assertRegex(self.last, r"FAILED: rank 1 \(pid \d+\) did not come to all_reduce: it runs in "
                                    r"load \(worker.py:3\); rank 0 \(.*\) on \S+ waited for it and was killed by "
                                    r"SIGABRT; hung: no CPU time or heartbeat for \d+ s .*it was waiting in a "
                                    r"collective, while rank 1 was at work\n")
        self.assertIn("\n  next: see why rank 1 did not come", self.last)

    @needs_torch
    def test_in_a_collective_the_one_that_does_not_come_is_named(self):
        script = self.script("import os, torch, torch.distributed as dist\n"
                             "dist.init_process_group('gloo')\n"
                             "tensor = torch.ones(1)\n"
                             "dist.all_reduce(tensor)\n"
                             "if dist.get_rank() == 1: import silence\n"
                             "open(f'coming.{os.getpid()}', 'w').close()\n"
                             "dist.all_reduce(tensor)\n")
        # Gives signs of life until the others wait for it, however long a busy machine keeps them from it.
        (self.path / "silence.py").write_text(
            "import glob, pathlib, time\n"
            "def rests(pid):\n"
            "    state, *numbers = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()\n"
            "    return state == 'S' and numbers[10:12]\n"  # its CPU time
            "rest = None\n"
            "while not rest or len(rest) < 2 or not all(rest):\n"
            "    first = [rests(name[7:]) for name in sorted(glob.glob('coming.*'))]\n"
            "    time.sleep(0.5)\n"
            "    print('here', flush=True)\n"
            "    again = [rests(name[7:]) for name in sorted(glob.glob('coming.*'))]\n"
            "    rest = again if first == again else None\n"
            "time.sleep(1000)\n")
        self.fails("--nproc-per-node=3", "--hang-timeout=5", script, code=134, PATH="/nowhere")
        self.check_report(1, "hung: no CPU time or heartbeat for ", "while ranks 0, 2 were ",
                          "then stopped by ddprun: ranks 0, 2")
        for rank in range(3):
            (stack,) = self.logs.glob(f"*_*/attempt_0/{rank}/stack.faulthandler")
            self.assertIn("worker.py", stack.read_text())


@needs_torch
class TorchTest(FaultCase):
    def test_an_expired_file_timer_ends_its_worker(self):
        script = self.script(
            "import os, time\n"
            "import torch.distributed.elastic.timer as timer\n"
            "timer.configure(timer.FileTimerClient(os.environ['TORCHELASTIC_TIMER_FILE']))\n"
            "with timer.expires(after=60, scope='short'): pass\n"
            "if os.environ['RANK'] == '1':\n"
            "    with timer.expires(after=1, scope='step'): time.sleep(1000)\n"
            "time.sleep(1000)\n")
        fifo = self.path / "timers"
        self.fails("--nproc-per-node=2", script, code=134, PATH="/nowhere", TORCHELASTIC_ENABLE_FILE_TIMER="1",
                   TORCHELASTIC_TIMER_FILE=str(fifo))
        self.check_report(1, "hung: its timer 'step' has expired", "Current thread")
        self.assertFalse(fifo.exists())

    def test_a_timer_file_that_cannot_be_made_is_bad_input(self):
        (self.path / "file").write_text("mine")
        self.fails("--no-python", "true", code=2, TORCHELASTIC_ENABLE_FILE_TIMER="1", TORCHELASTIC_TIMER_FILE=str(self.path / "file"))
        self.assertIn("make the timer file", self.last)
        self.assertEqual((self.path / "file").read_text(), "mine")

    def test_an_exception_with_record(self):
        script = self.script(
            "import os, time\n"
            "from torch.distributed.elastic.multiprocessing.errors import record\n"
            "@record\n"
            "def main():\n"
            "    if os.environ['RANK'] == '1': raise ValueError('told by record')\n"
            "    time.sleep(1000)\n"
            "main()\n")
        self.fails("--nproc-per-node=2", script, code=1)
        document = self.check_report(1, "exited with code 1: ValueError: told by record", "  traceback")
        self.assertIn("told by record", document["root_cause"]["traceback"])

    def test_an_exception_in_a_data_loaders_process(self):
        script = self.script(
            "import torch.utils.data as data\n"
            "class Bad(data.Dataset):\n"
            "    def __len__(self): return 8\n"
            "    def __getitem__(self, i): raise RuntimeError('sample 5 is damaged')\n"
            "if __name__ == '__main__':\n"
            "    for batch in data.DataLoader(Bad(), num_workers=1): pass\n")
        self.fails(script, code=1)
        self.check_report(0, "sample 5 is damaged", "next: correct what its last words above say")

    def test_a_rank_that_leaves_early_is_named(self):
        script = self.script(
            "import os, torch, torch.distributed as dist\n"
            "dist.init_process_group('gloo')\n"
            "tensor = torch.ones(4)\n"
            "dist.all_reduce(tensor)\n"
            "if dist.get_rank() == 1: os._exit(0)  # at an ordinary exit Gloo may abort\n"
            "dist.all_reduce(tensor)\n")
        self.fails("--nproc-per-node=2", script)
        self.assertRegex(self.last, r"FAILED: rank 1 \(pid \d+\) did not come to (all_reduce|a collective): it had ended with "
                                    r"exit code 0; rank 0 .* waited for it and exited with code 1")
        self.assertIn("\n  next: see why rank 1 ended before the others", self.last)
        self.assertEqual(self.report()["finished"], [1])

    def test_a_rank_that_has_ended_well_before_others_waited_for_it_is_named(self):
        worker = ('[ $RANK = 1 ] && touch gone && exit 0; while ! [ -e gone ]; do sleep 0.02; done; sleep 0.3; '
                  'echo "torch.distributed.DistStoreError: wait timeout after 300ms, keys: /default_pg/0//cpu//0/1" >&2; '
                  'exit 1')
        self.fails("--nproc-per-node=2", "--no-python", "sh", "-c", worker, code=1)
        self.assertRegex(self.last, r"FAILED: rank 1 \((\S+, )?pid \d+\) did not come to a collective: it had ended with exit code 0; rank 0 .* waited for it")
        self.assertRegex(self.last, r"\n  next: see why rank 1 ended before the others(, on \S+)?$")

    def test_shapes_that_do_not_match(self):
        script = self.script(
            "import torch, torch.distributed as dist\n"
            "dist.init_process_group('gloo')\n"
            "dist.all_reduce(torch.ones(4 if dist.get_rank() == 0 else 4096))\n"
            "dist.barrier()\n")
        self.fails("--nproc-per-node=2", script)
        self.assertRegex(self.last, rf"FAILED: rank [01] .* on {NODE} ")
        self.assertRegex(self.last, r"(?i)gloo|size|mismatch|closed by peer")
        self.assertIn("\n  next: ", self.last)


class OptionTest(FaultCase):
    def test_torchruns_exit_code_is_one_for_every_failure(self):
        self.fails("--exit-code=torchrun", "--no-python", "sh", "-c", "exit 9", code=1)

    def test_spent_restarts_have_a_code_of_their_own_unless_the_workers_is_wanted(self):
        for style, code in (("distinct", 82), ("worker", 9), ("torchrun", 1)):
            self.fails(f"--exit-code={style}", "--max-restarts=1", "--no-python", "sh", "-c", "exit 9", code=code)
            self.assertIn(f"\n  exit code: {code}", self.last)

    def test_a_forwarded_signal_reaches_each_worker_once_and_not_its_children(self):
        script = self.script(
            "import os, signal, subprocess, time\n"
            "rank = os.environ['RANK']\n"
            "count = 0\n"
            "def seen(*_):\n"
            "    global count\n"
            "    count += 1\n"
            "    open(f'seen.{rank}', 'w').write(str(count))\n"
            "signal.signal(signal.SIGUSR1, seen)\n"
            "child = subprocess.Popen(['sleep', '1000'])\n"
            "open(f'ready.{rank}', 'w').close()\n"
            "while not os.path.exists('go'): time.sleep(0.01)\n"
            "alive = child.poll() is None\n"
            "child.kill()\n"
            "raise SystemExit(0 if alive and count == 1 else 5)\n")
        run = self.start("--nproc-per-node=2", script)
        wait_until(lambda: all((self.path / f"ready.{r}").exists() for r in (0, 1)), "the workers run")
        run.send_signal(signal.SIGUSR1)
        wait_until(lambda: all((self.path / f"seen.{r}").exists() for r in (0, 1)), "they have it")
        (self.path / "go").touch()
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 0, stderr)

    def test_events_tell_every_change_in_torchelastics_form(self):
        path = self.path / "events.jsonl"
        self.fails(f"--event-log-handler=jsonl:{path}", "--rdzv-id=job7", "--max-restarts=1",
                   "--nproc-per-node=2", "--no-python", "sh", "-c", "[ $RANK = 1 ] && exit 9; exec sleep 1000")
        events = [json.loads(line) for line in path.read_text().splitlines()]
        states = [(e["source"], e["metadata"]["state"], e["metadata"]["agent_restarts"]) for e in events]
        attempt = lambda n: [("AGENT", "RENDEZVOUS", n), ("WORKER", "START", n), ("WORKER", "START", n),
                             ("WORKER", "FAILED", n), ("WORKER", "TERMINATED", n)]
        self.assertEqual(states, attempt(0) + attempt(1) + [("AGENT", "FAILED", 1)])
        self.assertEqual({e["metadata"]["run_id"] for e in events}, {"job7"})
        failed = events[3]["metadata"]
        self.assertEqual((failed["global_rank"], json.loads(failed["metadata"])["exit_code"]), (1, [9]))
        if HAS_TORCH:
            from torch.distributed.elastic.events.api import Event
            for line in path.read_text().splitlines():
                Event.deserialize(line)


if __name__ == "__main__":
    unittest.main(verbosity=2)
