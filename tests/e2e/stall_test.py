# SPDX-License-Identifier: BSD-3-Clause
"""A disk, an exec or a console that stands still: the agent goes on, and says what it was.

frozen_files.cc, preloaded into ddprun, is the disk: while the file `frozen` exists, it stands still."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from launch_test import DDPRUN, LIMIT, LaunchCase, environment, wait_until

SHIM = os.path.join(os.path.dirname(DDPRUN), "libfrozen_files.so")
PATIENCE = 15  # seconds; a stop within its grace of 1 s takes a fraction of it on a busy machine

# Writes lines until it is told to stop, and says how many.
TALKER = """
import pathlib, signal, sys, time
pathlib.Path("began").touch()
count = 0
while not pathlib.Path("go").exists():
    print("x" * 999, flush=True)
    count += 1
pathlib.Path("count").write_text(str(count))
"""

# Writes until it is told to stop, and then saves.
SAVER = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(6), os._exit(0)))
while True:
    print("x" * 999, flush=True)
"""


class StallCase(LaunchCase):
    def begin(self, *arguments, program="", is_disk_frozen=True, has_log_dir=True, folder=None, variables=None,
              **streams):
        self.gate = self.path / "frozen"
        self.logs.mkdir(exist_ok=True)
        log_dir = ["--log-dir", str(self.logs)] if has_log_dir else []
        self.stderr = self.path / "stderr"
        with open(self.stderr, "w") as stderr:
            run = subprocess.Popen(
                [DDPRUN, "--shutdown-timeout=1", *log_dir, *map(str, arguments)],
                env=environment(**{"LD_PRELOAD": SHIM, "FROZEN_GATE": str(self.gate), "TMPDIR": str(self.logs),
                                   "FROZEN_FOLDER": str(folder or self.logs) if is_disk_frozen else "no folder",
                                   "FROZEN_PROGRAM": program, "FROZEN_NAME": "slow.name", **(variables or {})}),
                cwd=self.path, stdin=subprocess.DEVNULL, stderr=stderr,
                **{"stdout": subprocess.DEVNULL, **streams})
        self.addCleanup(lambda: run.poll() is None and (self.gate.unlink(missing_ok=True), run.kill(), run.wait()))
        return run

    def said(self):
        return self.stderr.read_text()

    def wait_for_line(self, *words):
        try:
            wait_until(lambda: any(all(word in line for word in words) for line in self.said().splitlines()),
                       f"{words} are said")
        except AssertionError as error:
            self.fail(f"{error} in:\n{self.said()}")

    def stop(self, run):
        run.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        try:
            run.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.fail(f"SIGTERM has not ended it in {PATIENCE} s:\n{self.said()}")
        self.assertEqual(run.returncode, 143, self.said())
        return time.monotonic() - begin


class SharedFolderTest(StallCase):
    def begin_with_folder(self, read_timeout):
        (self.path / "frozen").touch()
        self.shared = self.path / "shared"
        self.shared.mkdir(mode=0o700)
        return self.begin("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=file:{self.shared}",
                          f"--rdzv-conf=read_timeout={read_timeout},join_timeout=60", "--no-python", "true", folder=self.shared)

    def test_one_that_stands_still_at_the_start_is_named_and_given_up_in_time(self):
        run = self.begin_with_folder(5)
        self.wait_for_line(f"the folder {self.shared} does not answer; the host is looked for there for at most 5.0 s")
        self.wait_for_line(f"file:{self.shared}: the disk stands still; trying for")
        self.assertEqual(run.wait(timeout=PATIENCE), 80, self.said())
        self.wait_for_line("FAILED: ", "the disk stands still; tried for")
        self.wait_for_line("next: see why that folder does not answer")

    def test_a_signal_ends_the_wait_for_it_with_a_line(self):
        run = self.begin_with_folder(60)
        self.wait_for_line("the disk stands still; trying for")
        self.stop(run)
        self.wait_for_line("stopped by SIGTERM")

    def test_one_that_answers_again_is_used(self):
        run = self.begin_with_folder(60)
        self.wait_for_line("the disk stands still; trying for")
        self.gate.unlink()
        self.wait_for_line("this node hosts the run at", f"written down in file:{self.shared}")
        self.stop(run)


class DiskTest(StallCase):
    def talk(self):
        script = self.script(TALKER)
        run = self.begin("--tee=3", script)
        wait_until(lambda: (self.path / "began").exists(), "the worker runs")
        self.gate.touch()
        self.wait_for_line("stdout.log'", "has stood still for")
        return run

    def test_a_stall_costs_a_line_and_no_output(self):
        run = self.talk()
        self.gate.unlink()
        self.wait_for_line("stdout.log'", "stood still for", " s")
        (self.path / "go").touch()
        self.assertEqual(run.wait(timeout=LIMIT), 0, self.said())
        (log,) = self.logs.glob("*_*/attempt_0/0/stdout.log")
        self.assertEqual(log.stat().st_size, 1000 * int((self.path / "count").read_text()))
        self.assertEqual(self.said().count("has stood still"), 1, self.said())

    def test_sigterm_works_while_the_disk_stands_still_for_ever(self):
        run = self.talk()
        self.stop(run)
        self.assertIn("the files miss what came last", self.said())

    def test_sigterm_works_while_the_log_files_cannot_be_closed(self):
        run = self.begin("--tee=3", "--no-python", "sh", "-c",
                         "echo hello; touch began; while ! test -e go; do sleep 0.02; done")
        wait_until(lambda: (self.path / "began").exists(), "the worker runs")
        (log,) = self.logs.glob("*_*/attempt_0/0/stdout.log")
        wait_until(lambda: log.read_text() == "hello\n", "the log file has it")
        self.gate.touch()
        (self.path / "go").touch()
        self.wait_for_line("'close ", "has stood still for")
        run.send_signal(signal.SIGTERM)
        run.wait(timeout=PATIENCE)
        self.assertIn("the files miss what came last", self.said())

    def test_a_restart_waits_for_the_disk_and_the_agent_does_not(self):
        run = self.begin("--max-restarts=3", "--redirects=3", "--no-python", "sh", "-c",
                         "touch began; while ! test -e go; do sleep 0.02; done; exit 7")
        wait_until(lambda: (self.path / "began").exists(), "the worker runs")
        self.gate.touch()
        (self.path / "go").touch()
        self.wait_for_line("has stood still for")
        self.stop(run)


class ReadingTest(StallCase):
    """The disk stands still when the agent wants to read what its workers have left."""

    def fail_on_a_frozen_disk(self, *arguments, words="echo why-it-was >&2"):
        run = self.begin(*arguments, "--no-python", "sh", "-c",
                         f"{words}; touch began; while ! test -e go; do sleep 0.02; done; exit 7")
        wait_until(lambda: (self.path / "began").exists(), "the worker runs")
        self.gate.touch()
        (self.path / "go").touch()
        self.wait_for_line("'read what rank 0 has left in ", "has stood still for")
        return run

    ERROR_FILE = """printf '{"message": {"message": "why-it-was"}}' > $TORCHELASTIC_ERROR_FILE"""

    def check_that_the_failure_is_told_later(self, run):
        self.gate.unlink()
        self.assertEqual(run.wait(timeout=LIMIT), 7, self.said())
        self.assertIn("why-it-was", self.said())

    def test_what_has_failed_is_read_before_the_timeline_is_written(self):
        run = self.begin("--nproc-per-node=2", "--redirects=3", "--no-python", "sh", "-c",
                         "[ $RANK = 0 ] && { echo why-it-was >&2; echo $$$$ >pid0; } || echo $$$$ >pid1; "
                         "while ! test -e go$RANK; do sleep 0.02; done; exit $((7 - 7 * RANK))")
        pids = [self.path / f"pid{rank}" for rank in range(2)]
        wait_until(lambda: all(pid.exists() and pid.read_text().endswith("\n") for pid in pids), "the workers run")
        self.gate.touch()
        (self.path / "go1").touch()  # its end is drawn in the timeline
        ended = int(pids[1].read_text())
        wait_until(lambda: not os.path.exists(f"/proc/{ended}"), "rank 1 has ended")
        (self.path / "go0").touch()
        self.wait_for_line("'read what rank 0 has left in ", "has stood still for")
        self.check_that_the_failure_is_told_later(run)

    def test_the_others_do_not_wait_for_the_disk_for_ever(self):
        run = self.begin("--nproc-per-node=2", "--redirects=3", "--no-python", "sh", "-c",
                         "touch began$RANK; while ! test -e go; do sleep 0.02; done; "
                         "if [ $RANK = 0 ]; then exit 7; fi; exec sleep 600")
        wait_until(lambda: all((self.path / f"began{rank}").exists() for rank in (0, 1)), "the workers run")
        self.gate.touch()
        (self.path / "go").touch()
        self.wait_for_line("'read what rank 0 has left in ", "has stood still for")
        self.wait_for_line("rank 0", "exited with code 7")
        self.gate.unlink()
        self.assertEqual(run.wait(timeout=LIMIT), 7, self.said())

    def test_sigterm_works_meanwhile(self):
        self.stop(self.fail_on_a_frozen_disk("--redirects=3"))

    def test_a_failure_is_reported_with_its_stderr_when_the_disk_goes_on(self):
        self.check_that_the_failure_is_told_later(self.fail_on_a_frozen_disk("--redirects=3"))

    def test_a_failure_is_reported_with_its_error_file_when_the_disk_goes_on(self):
        self.check_that_the_failure_is_told_later(self.fail_on_a_frozen_disk("--redirects=3", words=self.ERROR_FILE))

    def test_sigterm_works_while_a_loose_error_file_is_looked_for(self):
        self.stop(self.fail_on_a_frozen_disk(words=self.ERROR_FILE))

    def test_a_loose_error_file_is_reported_and_kept_when_the_disk_goes_on(self):
        self.check_that_the_failure_is_told_later(self.fail_on_a_frozen_disk(words=self.ERROR_FILE))
        self.assertEqual(len(list(self.logs.glob("*_*/attempt_0/0/error.json"))), 1)

    def test_dumps_of_the_flight_recorder_are_not_waited_for_for_ever(self):
        dumps = self.path / "dumps"
        dumps.mkdir()
        run = self.begin("--redirects=3", "--no-python", "sh", "-c",
                         f"echo x > {dumps}/rank_0; touch began; while ! test -e go; do sleep 0.02; done; exit 7",
                         variables={"TORCH_FR_DUMP_TEMP_FILE": str(dumps / "rank_"), "FROZEN_FOLDER": str(dumps)})
        wait_until(lambda: (self.path / "began").exists(), "the worker runs")
        self.gate.touch()
        (self.path / "go").touch()
        self.wait_for_line("'copy the dumps of the flight recorder to ", "has stood still for")
        self.wait_for_line("dumps of the flight recorder may be missing in ")
        self.wait_for_line("FAILED: rank 0")
        self.gate.unlink()
        self.assertEqual(run.wait(timeout=LIMIT), 7, self.said())

    def test_a_watch_for_hangs_does_not_wait_for_the_log_files(self):
        run = self.begin("--redirects=3", "--hang-timeout=4", "--no-python", "sh", "-c",
                         "touch began; while :; do sleep 0.1; done")
        wait_until(lambda: (self.path / "began").exists(), "the worker runs")
        self.gate.touch()
        self.wait_for_line("'look at the log files in ", "has stood still for")
        self.stop(run)

    def test_a_run_without_logs_ends_while_its_folder_stands_still(self):
        run = self.begin("--no-python", "sh", "-c", "touch began; while ! test -e go; do sleep 0.02; done",
                         has_log_dir=False)
        wait_until(lambda: (self.path / "began").exists(), "the worker runs")
        self.gate.touch()
        (self.path / "go").touch()
        self.wait_for_line("finished: 1 worker succeeded")
        self.assertEqual(run.wait(timeout=PATIENCE), 0, self.said())


class ExecTest(StallCase):
    def setUp(self):
        super().setUp()
        self.program = str(self.path / "program")
        shutil.copy("/bin/sleep", self.program)

    def begin_slowly(self):
        (self.path / "frozen").touch()
        run = self.begin("--nproc-per-node=2", "--no-python", self.program, "100", program=self.program, is_disk_frozen=False)
        self.wait_for_line(self.program, "has stood still for")
        return run

    def test_sigterm_works_while_the_program_is_loaded(self):
        self.assertLess(self.stop(self.begin_slowly()), PATIENCE)

    def test_a_slow_start_is_a_start(self):
        run = self.begin_slowly()
        self.gate.unlink()
        self.wait_for_line("started 2 workers, ranks 0..1")
        self.stop(run)

    def test_a_slow_start_that_fails_is_reported_as_any(self):
        text = self.path / "program"
        text.unlink()
        text.write_bytes(b"\x7fELF no program")
        text.chmod(0o755)
        run = self.begin_slowly()
        self.gate.unlink()
        self.assertEqual(run.wait(timeout=LIMIT), 126, self.said())
        self.assertIn("Exec format error", self.said())


class NameTest(StallCase):
    def test_sigterm_ends_the_process_while_a_name_is_looked_up(self):
        (self.path / "frozen").touch()
        run = self.begin("--nnodes=2", "--node-rank=1", "--rdzv-backend=c10d", "--rdzv-endpoint=slow.name:29500",
                         "--no-python", "true", is_disk_frozen=False)
        self.wait_for_line("'look up slow.name' has stood still for")
        self.stop(run)

    def test_a_look_up_that_stands_still_is_told_of_and_ends_with_join_timeout(self):
        (self.path / "frozen").touch()
        run = self.begin("--nnodes=2", "--node-rank=1", "--rdzv-backend=c10d", "--rdzv-endpoint=slow.name:29500",
                         "--rdzv-conf=join_timeout=5,is_host=0", "--no-python", "true", is_disk_frozen=False)
        self.wait_for_line("'look up slow.name' has stood still for")
        try:
            self.assertEqual(run.wait(timeout=PATIENCE), 80, self.said())
        except subprocess.TimeoutExpired:
            self.fail(f"it goes on after join_timeout:\n{self.said()}")
        self.assertIn("the name service does not answer", self.said())


class ErrorFileTest(StallCase):
    """A worker's error file is not the agent's business beyond a bound."""

    def check(self, make):
        run = self.begin("--redirects=3", "--no-python", "sh", "-c", f"{make}; exit 3")
        self.assertEqual(run.wait(timeout=LIMIT), 3, self.said())
        self.assertIn("exited with code 3", self.said())

    def test_a_fifo(self):
        self.check('mkfifo "$TORCHELASTIC_ERROR_FILE"')

    def test_a_link_to_a_device_without_end(self):
        self.check('ln -s /dev/zero "$TORCHELASTIC_ERROR_FILE"')

    def test_a_large_file(self):
        self.check('truncate -s 100G "$TORCHELASTIC_ERROR_FILE"')


class ConsoleTest(StallCase):
    """A socket cannot be opened anew: nothing written to it is known not to wait."""

    def begin_unread(self, *arguments, **streams):
        self.reader, writer = socket.socketpair()
        self.addCleanup(self.reader.close)
        with writer:
            return self.begin(*arguments, stdout=writer, **streams)

    def test_sigterm_works_while_the_reader_stands_still(self):
        run = self.begin_unread("--tee=3", self.script(TALKER))
        self.wait_for_line("'write to stdout, which is socket:", "has stood still for")
        self.stop(run)

    def test_the_grace_counts_once_for_workers_and_output(self):
        run = self.begin_unread("--shutdown-timeout=8", "--tee=3", self.script(SAVER))
        self.wait_for_line("'write to stdout, which is socket:", "has stood still for")
        run.send_signal(signal.SIGTERM)
        # 14 s, if the output had another 8 s when the worker has saved for 6.
        self.assertEqual(run.wait(timeout=12), 143, self.said())
        self.wait_for_line("stdout has not taken", "which are lost")

    def test_nothing_is_lost_of_what_a_slow_reader_takes(self):
        run = self.begin_unread("--tee=3", "--no-python", "sh", "-c", "seq 100000")
        wait_until(lambda: "has stood still" in self.said(), "the console is full")
        lines = b""
        while part := self.reader.recv(1 << 20):
            lines += part
        self.assertEqual(run.wait(timeout=LIMIT), 0, self.said())
        self.assertEqual(lines.count(b"\n"), 100000)


class EndTest(StallCase):
    """The run is over, and its console's reader stands still."""

    def finished(self, **streams):
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        with os.fdopen(write_end, "w") as pipe:
            if streams.get("is_shared"):
                run = subprocess.Popen([DDPRUN, "--shutdown-timeout=1", "--tee=3", "--log-dir", str(self.logs), "--no-python", "sh", "-c",
                                        "seq 300000; seq 300000 >&2; touch over"],
                                       env=environment(), cwd=self.path, stdout=pipe, stderr=pipe)
                self.addCleanup(lambda: run.poll() is None and (run.kill(), run.wait()))
            else:
                run = self.begin("--tee=3", "--no-python", "sh", "-c", "seq 300000; touch over", stdout=pipe)
        wait_until(lambda: (self.path / "over").exists(), "the worker has written all")
        wait_until(lambda: subprocess.run(["pgrep", "-P", str(run.pid), "-x", "sh"], capture_output=True).stdout == b"",
                   "the worker has gone")
        return run

    def test_one_signal_ends_the_wait_for_both_consoles(self):
        run = self.finished(is_shared=True)
        # The first may come before the run is over, and is then the end of the run.
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(timeout=PATIENCE), 143)

    def test_output_that_is_dropped_is_told_by_exit_code_and_last_line(self):
        run = self.finished()
        self.wait_for_line("finished: 1 worker succeeded")
        self.wait_for_line("waiting until stdout has taken", "bytes of output; a signal ends the wait")
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(timeout=PATIENCE), 143, self.said())
        self.assertRegex(self.said().splitlines()[-1],
                         r"stdout has not taken \d+ bytes of output, which are lost")


if __name__ == "__main__":
    if not os.path.exists(SHIM):
        print("libfrozen_files.so is not built")
        sys.exit(77)
    unittest.main(verbosity=2)
