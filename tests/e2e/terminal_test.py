# SPDX-License-Identifier: BSD-3-Clause
"""ddprun at a terminal, under a small shell with job control."""

import os
import pathlib
import pty
import re
import signal
import sys
import tempfile
import time
import unittest

DDPRUN = os.path.abspath(os.path.join(os.environ["DDPRUN_BIN"], "ddprun"))
LIMIT = 60  # seconds

# Starts a program in the foreground as a shell does, says when it stops and how it ends, and goes on
# with it ("fg") when it is given a line.
SHELL = r"""
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
os.write(1, f"shell: started {pid}\n".encode())
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        os.write(1, f"shell: ended with {os.waitstatus_to_exitcode(status)}\n".encode())
        break
    os.tcsetpgrp(0, os.getpid())
    os.write(1, f"shell: stopped by {signal.Signals(os.WSTOPSIG(status)).name}\n".encode())
    os.read(0, 100)
    os.tcsetpgrp(0, pid)
    os.killpg(pid, signal.SIGCONT)
"""


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class TerminalTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-tty-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.said = ""

    def start(self, *arguments):
        pid, self.terminal = pty.fork()
        if pid == 0:
            try:
                os.chdir(self.path)
                os.execv(sys.executable, [sys.executable, "-c", SHELL, DDPRUN, *arguments])
            finally:
                os._exit(99)
        self.addCleanup(os.close, self.terminal)
        self.addCleanup(os.waitpid, pid, 0)
        self.wait_for(r"shell: started (\d+)")
        self.ddprun = int(re.search(r"started (\d+)", self.said)[1])
        self.addCleanup(self.kill)

    def kill(self):
        try:
            os.kill(self.ddprun, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def wait_for(self, pattern):
        os.set_blocking(self.terminal, False)
        deadline = time.monotonic() + LIMIT
        while not re.search(pattern, self.said):
            self.assertLess(time.monotonic(), deadline, f"waited in vain for {pattern}; so far:\n{self.said}")
            try:
                self.said += os.read(self.terminal, 65536).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.005)
            except OSError:  # everybody has closed it
                self.assertRegex(self.said, pattern)

    def wait_until(self, is_reached, what):
        deadline = time.monotonic() + LIMIT
        while not is_reached():
            self.assertLess(time.monotonic(), deadline, f"waited in vain until {what}; so far:\n{self.said}")
            time.sleep(0.005)

    def test_ctrl_z_stops_the_job_and_fg_continues_it(self):
        self.start("--nproc-per-node=2", "--no-python", "sh", "-c",
                   "echo $$$$ >> workers; exec sleep 1000")
        workers = self.path / "workers"
        self.wait_until(lambda: workers.exists() and len(workers.read_text().split()) == 2, "both workers run")
        pids = [int(pid) for pid in workers.read_text().split()]
        for _ in range(2):
            os.write(self.terminal, b"\x1a")
            self.wait_for("shell: stopped by SIGTSTP")
            self.wait_until(lambda: [state(pid) for pid in pids] == ["T", "T"], "the workers are stopped")
            self.said = ""
            os.write(self.terminal, b"\n")
            self.wait_until(lambda: "T" not in [state(pid) for pid in [*pids, self.ddprun]], "all go on")
        os.write(self.terminal, b"\x03")
        self.wait_for("shell: ended with 130")

    def test_what_workers_have_started_in_their_group_stops_too(self):
        self.start("--no-python", "sh", "-c", "sleep 1000 & echo $! > child; wait")
        child = self.path / "child"
        self.wait_until(lambda: child.exists() and child.read_text().endswith("\n"), "the child runs")
        pid = int(child.read_text())
        os.write(self.terminal, b"\x1a")
        self.wait_for("shell: stopped by SIGTSTP")
        self.wait_until(lambda: state(pid) == "T", "the child is stopped")
        os.write(self.terminal, b"\n")
        self.wait_until(lambda: state(pid) != "T", "it goes on")
        os.write(self.terminal, b"\x03")
        self.wait_for("shell: ended with 130")


if __name__ == "__main__":
    unittest.main(verbosity=2)
