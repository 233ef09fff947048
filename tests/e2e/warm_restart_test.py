# SPDX-License-Identifier: BSD-3-Clause
"""--warm-restarts: a restart from the template shows a program what a cold one does."""

import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

from launch_test import DDPRUN, LIMIT, LaunchCase, environment, processes_with, wait_until

HAS_TORCH = importlib.util.find_spec("torch") is not None
READY = "warm restarts are ready: "

# In the first attempt it waits until the test lets rank 0 fail, then goes on with what follows.
FAILS_ONCE = """
import os, sys, time
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # one write, so no torn line
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if attempt == 0:
    while not os.path.exists("go"):
        time.sleep(0.01)
    if os.environ["RANK"] == "0":
        os._exit(9)
    time.sleep(1000)
"""

LOOKS = FAILS_ONCE + """
import json, resource, signal, threading
depth, frame = 0, sys._getframe()
while frame:
    depth, frame = depth + 1, frame.f_back
limits = {n: resource.getrlimit(n) for n in range(16)}
del limits[resource.RLIMIT_MSGQUEUE]  # the mark of this agent
seen = {
    "argv": sys.argv, "path": sys.path, "flags": repr(sys.flags), "orig_argv": getattr(sys, "orig_argv", None),
    "environment": list(os.environ.items()), "name": __name__, "file": __file__, "globals": sorted(globals()),
    "descriptors": sorted(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")),
    "links": [os.readlink(f"/proc/self/fd/{n}") for n in range(3)],
    "leads": (os.getsid(0) == os.getpid() == os.getpgrp()), "parent": open(f"/proc/{os.getppid()}/comm").read(),
    "cwd": os.getcwd(), "umask": os.umask(0), "limits": limits, "frames": depth, "nice": os.nice(0),
    "handlers": [str(signal.getsignal(n)) for n in range(1, 32)], "affinity": sorted(os.sched_getaffinity(0)),
    "status": [l for l in open("/proc/self/status").read().splitlines() if l.startswith(("SigB", "SigI", "SigC", "Umask", "Name"))],
    "cmdline": open("/proc/self/cmdline").read(), "comm": open("/proc/self/comm").read(),
    "streams": [(str(s), s.mode, s.seekable(), s.line_buffering, s.write_through) for s in (sys.stdin, sys.stdout, sys.stderr)],
}
with open(f"seen.{sys.argv[1]}.{os.environ['RANK']}", "w") as file:
    json.dump(seen, file)
say("to stdout")
print("to stderr", file=sys.stderr)
"""

# What programs do to their process; in both attempts, so also in the one before the restart.
UNRULY = {
    "leaves a thread": "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
                       "say(len(os.listdir('/proc/self/task')), threading.active_count(), threading.main_thread().native_id == os.getpid())",
    "waits for a thread at its end": "threading.Thread(target=lambda: (time.sleep(0.1), say('thread', threading.main_thread().is_alive()))).start()",
    "forks at its end": "import atexit\n"
                        "def end():\n"
                        "    if os.fork() == 0: say('child', os.getppid() == parent); os._exit(0)\n"
                        "    os.wait(); say('parent')\n"
                        "parent = os.getpid(); atexit.register(end)",
    "changes its folder": "os.mkdir('sub') if not os.path.exists('sub') else None\nos.chdir('sub'); say(os.path.basename(os.getcwd()))",
    "sets limits": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); os.umask(0o77)\n"
                   "say(resource.getrlimit(resource.RLIMIT_NOFILE), oct(os.umask(0)))",
    "changes a library": "import json, logging, random\n"
                         "say(json.dumps([1]), random.getstate()[1][:1] != (0,), logging.getLogger().handlers, logging.root.level)\n"
                         "json.dumps = lambda x: 'mine'; logging.basicConfig(level=10); random.seed(1)\n"
                         "say(json.dumps([1]), random.random(), logging.root.level)",
    "imports what fails the second time": "import once\nsay(once.value)\n"
                                          "try: importlib.reload(once)\nexcept RuntimeError as error: say(error)",
    "handles signals": "say(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGCHLD))\n"
                       "signal.signal(signal.SIGALRM, lambda *_: say('alarm')); signal.setitimer(signal.ITIMER_REAL, 0.05); signal.pause()",
    "starts processes": "import multiprocessing as m\n"
                        "for way in ('fork', 'spawn', 'forkserver'):\n"
                        "    with m.get_context(way).Pool(2) as pool: say(way, pool.map(abs, [-1, -2]))",
    "looks at warnings": "import warnings\nsay(warnings.filters, sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile())",
    "looks at the collector": "import gc\nsay(gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count(), gc.callbacks)",
    "looks at its time": "import locale\nsay(time.process_time() < 60, time.tzname, locale.setlocale(locale.LC_ALL), os.times().children_user < 60)",
    "fails in a thread": "thread = threading.Thread(target=lambda: 1 / 0, name='t'); thread.start(); thread.join()",
    "warns": "import warnings\nwarnings.warn('careful'); warnings.warn('old', DeprecationWarning)",
    "writes a line in parts": "sys.stdout.write('half '); sys.stderr.write(''); print('a line')",
    "is killed by its alarm": "signal.alarm(1); time.sleep(100)",
}

# Imported by the template, it kills the template or what it forks, once that is ready.
DEADLY = """
import os
fork, waitpid, stat, count = os.fork, os.waitpid, os.stat, 0
def die(moment):
    if moment == os.environ["KILL_AT"] and open("/proc/self/comm").read() == "ddprun-template\\n":
        open("died", "w").close()
        os.kill(os.getpid(), 9)
def counted():
    global count
    if open("/proc/self/comm").read() == "ddprun-template\\n":
        count += 1
    die(f"fork {count}")
    return fork()
def waited(*arguments):
    found = waitpid(*arguments)
    die("answer")
    return found
def looked(*arguments, **named):
    if os.access("go", os.F_OK):
        die("check")
    return stat(*arguments, **named)
os.fork, os.waitpid, os.stat = counted, waited, looked
"""

# Imported by the template, it lets forks fail that are for workers: in the template itself, or in its child.
FULL = """
import errno, os, sys
fork, count = os.fork, 0
def full():
    global count
    if sys._getframe(1).f_code.co_name == "fork":
        count += 1
        if count >= int(os.environ["FULL_AT"]):
            raise OSError(errno.ENOMEM, "no memory")
    return fork()
os.fork = full
"""

# Imported by the template, it lets it fork no worker until the test has made a file.
HELD = """
import os, sys, time
fork = os.fork
def held():
    if sys._getframe(1).f_code.co_name == "fork":
        open("forks", "w").close()
        while not os.path.exists("may_fork"):
            time.sleep(0.01)
    return fork()
os.fork = held
"""

# What is different in each run, be it cold or warm.
OF_A_RUN = ("MASTER_PORT", "DDPRUN_RUN_UUID", "DDPRUN_AGENT", "TORCHELASTIC_ERROR_FILE", "DDPRUN_STOP_REASON_FILE",
            "TORCHELASTIC_RUN_ID", "DDPRUN_JOB_ID", "DDPRUN_HEARTBEAT_FILE", "DDPRUN_TIMELINE_FILE")


class WarmCase(LaunchCase):
    limit = LIMIT  # seconds to the next state

    def wait_for(self, is_reached, what):
        deadline = time.monotonic() + self.limit
        while not is_reached():
            self.assertLess(time.monotonic(), deadline, f"waited {self.limit} s in vain until {what}")
            time.sleep(0.01)

    def run_once(self, is_warm, *arguments, before_go=lambda job: None, wants_ready=True, **extra):
        """Runs the job; lets it fail once the template is ready.  Its output is self.text."""
        for name in ("go",):
            (self.path / name).unlink(missing_ok=True)
        warm = ("--warm-restarts",) if is_warm else ()
        job = subprocess.Popen([DDPRUN, "--log-dir", str(self.logs), *warm, *map(str, arguments)],
                               env=environment(**extra), cwd=self.path, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(job.stdout.close)
        self.addCleanup(lambda: job.poll() is None and job.kill())
        lines = []

        def read():
            for line in job.stdout:
                lines.append(line)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        self.said = lambda text: any(text in line for line in list(lines))
        if is_warm and wants_ready:
            self.wait_for(lambda: self.said(READY) or job.poll() is not None, "the template is ready")
            self.assertIsNone(job.poll(), "".join(lines))
        else:
            self.wait_for(lambda: self.said("started ") or job.poll() is not None, "the workers run")
        before_go(job)
        (self.path / "go").touch()
        job.wait(self.limit)
        reader.join(self.limit)
        self.text = "".join(lines)
        if job.returncode >= 0:
            self.assertEqual(self.templates(), [])
        return job

    def seen(self, name, rank):
        seen = json.loads((self.path / f"seen.{name}.{rank}").read_text())
        seen["environment"] = [pair for pair in seen["environment"] if pair[0] not in OF_A_RUN]
        for key in ("argv", "orig_argv", "cmdline"):
            seen[key] = str(seen[key]).replace(name, "NAME")
        seen["links"] = [re.sub(r"pipe:\[\d+\]|\S*/(?=attempt_)", "X", link) for link in seen["links"]]
        return seen

    def templates(self):
        """The pids of all templates of this test's runs, and of the forks that wait."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                is_one = (folder / "comm").read_text() == "ddprun-template\n"
                if is_one and os.readlink(folder / "cwd") == os.path.realpath(self.path):
                    found.append(int(folder.name))
            except OSError:
                pass
        return found

    def of_template(self, job):
        """The pids of the template of `job` and of the forks that wait, the template's first."""
        sessions = {}
        for pid in pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_text() == "ddprun-template\n":
                    sessions[int(pid)] = os.getsid(int(pid))
            except OSError:  # it has ended meanwhile
                pass
        return sorted(sessions, key=lambda pid: sessions[pid] != pid)

    def template_of(self, job):
        return self.of_template(job)[0]


class SameTest(WarmCase):
    def test_what_a_worker_finds(self):
        script = self.script(LOOKS)
        for options in ((), ("--redirects=3",), ("--tee=3",), ("--hang-timeout=100",), ("-m",)):
            with self.subTest(options):
                program = "worker" if "-m" in options else script
                for name, is_warm in (("case-cold", False), ("case-warm", True)):
                    job = self.run_once(is_warm, "--nproc-per-node=2", "--max-restarts=1", *options, program, name, "--lr=1")
                    self.assertEqual(job.returncode, 0, self.text)
                    self.assertEqual(self.said("forked 2 workers from the template"), is_warm, self.text)
                    self.assertEqual(self.text.count("to stdout"), 0 if "--redirects=3" in options else 2)
                for rank in range(2):
                    self.maxDiff = None
                    self.assertEqual(self.seen("case-warm", rank), self.seen("case-cold", rank))

    def test_how_a_worker_ends(self):
        for end in ("sys.exit(3)", "raise SystemExit('no data')", "raise ValueError('no data')", "os._exit(7)",
                    "import ctypes; ctypes.string_at(0)", "os.kill(os.getpid(), 9)", "pass"):
            with self.subTest(end):
                script = self.script(FAILS_ONCE + "os.write(2, b'begun\\n')\n" + end + "\n")
                outcomes = []
                for is_warm in (False, True):
                    job = self.run_once(is_warm, "--max-restarts=1", script)
                    self.assertEqual(self.said("forked 1 worker from the template"), is_warm, self.text)
                    last = self.text[self.text.index("begun"):]
                    plain = re.sub(r"pid \d+|\d\d:\d\d:\d\d\.\d+|logs: \S+|round=.*|[\d.]+ ms|[\w-]{36}_\w{6}", "X", last)
                    # The log line of the start may come before or after the worker's first; times differ.
                    plain = [line for line in plain.splitlines()
                             if "restart 1 of 1: started" not in line and "of it training" not in line]
                    outcomes.append((job.returncode, plain))
                self.assertEqual(outcomes[0], outcomes[1])

    def test_programs_that_are_unruly(self):
        for what, text in UNRULY.items():
            with self.subTest(what):
                (self.path / "lib").mkdir(exist_ok=True)
                (self.path / "lib/once.py").write_text(
                    "import sys\nif hasattr(sys, 'been_here'): raise RuntimeError('not again')\nsys.been_here, value = True, 7\n")
                script = self.script("import importlib, json, logging, multiprocessing, random, signal, threading\n" + FAILS_ONCE +
                                     "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in text.splitlines()))
                outcomes = []
                for is_warm in (False, True):
                    job = self.run_once(is_warm, "--max-restarts=1", "--warm-imports=once", script,
                                        PYTHONPATH=str(self.path / "lib"))
                    self.assertEqual(self.said("forked 1 worker from the template"), is_warm, self.text)
                    # The launcher may log between two parts of a worker's line.
                    text = re.sub(r"ddprun \d\d:\d\d:.*\n", "", self.text)
                    own = [line for line in text.splitlines() if not line.startswith("  ")]
                    outcomes.append((job.returncode, re.sub(r"0x[0-9a-f]+|pid \d+|\d+ ms", "X", "\n".join(own))))
                self.assertEqual(outcomes[0], outcomes[1])
                self.assertEqual(outcomes[0][0], 82 if what == "is killed by its alarm" else 0, self.text)
                self.assertTrue(outcomes[0][1] or what == "is killed by its alarm")

    def test_a_worker_belongs_to_the_agent(self):
        script = self.script(FAILS_ONCE + "say('parent', os.getppid())\n")
        job = self.run_once(True, "--max-restarts=1", script)
        self.assertIn(f"parent {job.pid}\n", self.text)

    def test_what_it_starts_is_swept(self):
        script = self.script(FAILS_ONCE + "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\n")
        self.run_once(True, "--max-restarts=1", script)
        self.assertRegex(self.text, r"ended what the workers had left behind: sleep \(\d+\)\n")


class FirstAttemptTest(WarmCase):
    """--warm-start"""

    def test_what_a_worker_finds(self):
        script = self.script(LOOKS.replace("if attempt == 0:", "if False:"))
        for name, options in (("case-cold", ()), ("case-warm", ("--warm-start",))):
            job = self.run_once(False, *options, "--nproc-per-node=2", script, name)
            self.assertEqual(job.returncode, 0, self.text)
            self.assertEqual(self.said("forked 2 workers from the template"), name == "case-warm", self.text)
        for rank in range(2):
            self.assertEqual(self.seen("case-warm", rank), self.seen("case-cold", rank))

    def test_both_attempts(self):
        job = self.run_once(False, "--warm-start", "--nproc-per-node=2", "--max-restarts=1", self.script(FAILS_ONCE))
        self.assertEqual(job.returncode, 0, self.text)
        self.assertEqual(self.text.count("forked 2 workers from the template"), 2, self.text)
        self.assertEqual(self.text.count(READY), 1)

    def test_without_a_template_it_is_cold(self):
        (self.path / "lib").mkdir()
        (self.path / "lib/library.py").write_text("raise ValueError('x')\n")
        job = self.run_once(False, "--warm-start", "--warm-imports=library", "--max-restarts=1", self.script(FAILS_ONCE),
                            PYTHONPATH=str(self.path / "lib"))
        self.assertEqual(job.returncode, 0, self.text)
        self.assertEqual(self.text.count("no warm restarts: library cannot be imported beforehand: ValueError: x\n"), 1)

    def test_a_stop_while_it_imports(self):
        (self.path / "lib").mkdir()
        (self.path / "lib/slow.py").write_text("import time\nopen('slow', 'w').close()\ntime.sleep(1000)\n")
        log = self.path / "log"
        with open(log, "w") as stderr:
            job = subprocess.Popen([DDPRUN, "--warm-start", "--warm-imports=slow", self.script("pass\n")], cwd=self.path,
                                   env=environment(PYTHONPATH=str(self.path / "lib")), stderr=stderr)
        self.addCleanup(lambda: job.poll() is None and job.kill())
        self.wait_for(lambda: (self.path / "slow").exists(), "the template imports")
        self.wait_for(lambda: "the first attempt waits: its template has imported for 10.0 s (pid " in log.read_text(),
                      "a line says so")
        job.terminate()
        self.assertEqual(job.wait(timeout=self.limit), 128 + signal.SIGTERM, log.read_text())
        self.assertEqual(processes_with(str(self.path)), [])


class LearningTest(WarmCase):
    """The template comes to have what the workers have imported, without their knowing."""

    LEARNED = "warm restarts have learned from the workers: "
    # No source names the module: it comes from a file, in the third step.
    LAZY = """
import importlib, os, sys, time
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
name = open("config").read()
say("begins with it", name in sys.modules)
for step in range(3):
    if step == 2:
        importlib.import_module(name)
while not os.path.exists("go"):
    time.sleep(0.01)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if os.environ["RANK"] == "0":
        END
    time.sleep(1000)
"""

    def learns(self, name, text, end="os._exit(9)"):
        (self.path / "config").write_text(name)
        return self.run_once(True, "--nproc-per-node=2", "--max-restarts=1", self.script(self.LAZY.replace("END", end)),
                             before_go=lambda job: self.wait_for(lambda: self.said(text), "the template has learned"))

    def test_a_module_of_the_third_step(self):
        for end in ("os._exit(9)", "os.kill(os.getpid(), 9)"):
            job = self.learns("wave", self.LEARNED, end)
            self.assertEqual(job.returncode, 0, self.text)
            self.assertRegex(self.text, self.LEARNED + r"\d+ modules? \(.*wave.*\) in [\d.]+ s; the template uses \d+ MB\n")
            self.assertEqual(re.findall("begins with it (.*)", self.text), ["False"] * 2 + ["True"] * 2)
            self.assertIn("forked 2 workers from the template", self.text)
            self.assertNotIn("left behind", self.text)

    def test_a_module_that_cannot_be_imported_beforehand(self):
        packages = self.path / "lib/site-packages"
        packages.mkdir(parents=True)
        (packages / "busy.py").write_text("import socket\nkept = socket.socket()\n")
        os.environ["PYTHONPATH"] = str(packages)
        self.addCleanup(os.environ.pop, "PYTHONPATH")
        self.learns("busy", "warm restarts learn nothing more from the workers: a module has left open descriptor")
        self.assertEqual(re.findall("begins with it (.*)", self.text), ["False"] * 4)
        self.assertIn("forked 2 workers from the template", self.text)

    @unittest.skipUnless(os.geteuid() == 0, "only root may raise a priority again")
    def test_the_priority_of_the_next_template_is_raised(self):
        """After 20 s; the module is imported when that has happened."""
        packages = self.path / "lib/site-packages"
        packages.mkdir(parents=True)
        (packages / "late.py").write_text("import os, time\n"
                                          "while open('/proc/self/comm').read() == 'ddprun-template\\n' and os.getpriority(os.PRIO_PROCESS, 0) == 19:\n"
                                          "    time.sleep(0.05)\n")
        os.environ["PYTHONPATH"] = str(packages)
        self.addCleanup(os.environ.pop, "PYTHONPATH")
        self.learns("late", self.LEARNED)
        self.assertEqual(re.findall("begins with it (.*)", self.text), ["False"] * 2 + ["True"] * 2)

    def test_a_run_that_ends_meanwhile(self):
        """What the next template has started, and does not end by SIGTERM, is not waited for."""
        packages = self.path / "lib/site-packages"
        packages.mkdir(parents=True)
        (packages / "deaf.py").write_text("import os, signal, time\n"
                                          "if open('/proc/self/comm').read() == 'ddprun-template\\n':\n"
                                          "    if os.fork() == 0:\n"
                                          "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                                          "        open('forked', 'w').close()\n"
                                          "    time.sleep(1000)\n")
        script = self.script("import importlib, os, time\nimportlib.import_module('deaf')\nwhile not os.path.exists('go'): time.sleep(0.01)\n")
        job = self.run_once(True, "--max-restarts=1", script, PYTHONPATH=str(packages),
                            before_go=lambda job: self.wait_for((self.path / "forked").exists, "the next template imports"))
        self.assertEqual(job.returncode, 0, self.text)
        self.assertNotIn("left behind", self.text)


class TemplateTest(WarmCase):
    """What happens to the template costs a line, and never the run."""

    def is_cold(self, why, **extra):
        script = self.script(FAILS_ONCE + "say('ran')\n")
        job = self.run_once(True, "--max-restarts=1", script, **extra)
        self.assertEqual(job.returncode, 0, self.text)
        self.assertRegex(self.text, why)
        self.assertNotIn("from the template", self.text)
        self.assertEqual(self.text.count("ran\n"), 1)

    def test_it_is_killed(self):
        def kill(job):
            os.kill(self.template_of(job), signal.SIGKILL)
            wait_until(lambda: self.said("was killed by SIGKILL; another one is made"), "its end is told")
        self.is_cold("this restart is cold: there is no template\n", before_go=kill)

    def test_forks_wait_for_the_restart(self):
        def look(job):
            wait_until(lambda: len(self.of_template(job)) == 3, "two forks wait")
            self.waiting = self.of_template(job)[1:]
        script = self.script(FAILS_ONCE + "say('pid', os.getpid())\n")
        job = self.run_once(True, "--nproc-per-node=2", "--max-restarts=1", script, before_go=look)
        self.assertEqual(job.returncode, 0, self.text)
        self.assertEqual({int(pid) for pid in re.findall(r"pid (\d+)\n", self.text)}, set(self.waiting), self.text)

    def test_they_wait_when_it_is_said_to_be_ready(self):
        (self.path / "lib").mkdir()
        (self.path / "lib/held.py").write_text(HELD)

        def look(job):
            self.wait_for((self.path / "forks").exists, "the template forks")
            self.assertFalse(self.said(READY))
            (self.path / "may_fork").touch()
            self.wait_for(lambda: self.said(READY), "warm restarts are ready")
            self.assertGreaterEqual(len(self.of_template(job)), 3)  # and one that learns, perhaps
        job = self.run_once(True, "--nproc-per-node=2", "--max-restarts=1", "--warm-imports=held", self.script(FAILS_ONCE),
                            wants_ready=False, before_go=look, PYTHONPATH=str(self.path / "lib"))
        self.assertEqual((job.returncode, self.text.count(READY)), (0, 1), self.text)

    def test_a_fork_that_waits_is_killed(self):
        def kill(job):
            wait_until(lambda: len(self.of_template(job)) == 3, "two forks wait")
            os.kill(self.of_template(job)[1], signal.SIGKILL)
            wait_until(lambda: len(self.of_template(job)) == 2, "it is gone")
        job = self.run_once(True, "--nproc-per-node=2", "--max-restarts=1", self.script(FAILS_ONCE), before_go=kill)
        self.assertEqual(job.returncode, 0, self.text)
        self.assertIn("forked 2 workers from the template", self.text)
        self.assertNotIn("cold", self.text)

    def test_it_is_killed_at_each_moment(self):
        (self.path / "lib").mkdir()
        (self.path / "lib/deadly.py").write_text(DEADLY)
        script = self.script(FAILS_ONCE + "say('ran')\n")
        for moment in ("fork 1", "fork 2", "fork 3", "answer", "check"):
            with self.subTest(moment):
                (died := self.path / "died").unlink(missing_ok=True)
                job = self.run_once(True, "--nproc-per-node=2", "--max-restarts=1", "--warm-imports=deadly", script,
                                    wants_ready=False, PYTHONPATH=str(self.path / "lib"), KILL_AT=moment,
                                    before_go=lambda job: self.wait_for(lambda: died.exists() or self.said(READY),
                                                                        "it is killed, or ready"))
                self.assertEqual((job.returncode, self.text.count("ran\n")), (0, 2), self.text)
                self.assertIn("restart 1 of 1: started 2 workers", self.text)

    def test_it_cannot_fork(self):
        """That is said at once, and again at the restart."""
        (self.path / "lib").mkdir()
        (self.path / "lib/full.py").write_text(FULL)
        script = self.script(FAILS_ONCE + "say('ran')\n")
        for number, why in (("1", "the template cannot fork: [Errno 12] no memory"),
                            ("2", "the template could not fork as often as it was to")):
            with self.subTest(number):
                job = self.run_once(True, "--nproc-per-node=2", "--max-restarts=1", "--warm-imports=full", script, wants_ready=False,
                                    PYTHONPATH=str(self.path / "lib"), FULL_AT=number,
                                    before_go=lambda job: self.wait_for(lambda: self.said(f"no forks wait for the restart: {why}\n"), "it is told"))
                self.assertEqual((job.returncode, self.text.count("ran\n")), (0, 2), self.text)
                self.assertRegex(self.text, "this restart is cold: the template (cannot fork: |could not fork )")
                self.assertNotIn(READY, self.text)

    def test_it_stands_still(self):
        self.is_cold("this restart is cold: the template does not answer\n",
                     before_go=lambda job: os.kill(self.template_of(job), signal.SIGSTOP))

    def test_a_fork_that_waits_stands_still(self):
        """Others are made in their place."""
        def stop(job):
            wait_until(lambda: len(self.of_template(job)) == 3, "two forks wait")
            for pid in self.of_template(job)[1:]:
                os.kill(pid, signal.SIGSTOP)
                self.wait_for(lambda: "\nState:\tT" in pathlib.Path(f"/proc/{pid}/status").read_text(), "it stands still")
        script = self.script(FAILS_ONCE + "say('ran')\n")
        job = self.run_once(True, "--nproc-per-node=2", "--max-restarts=1", script, before_go=stop)
        self.assertEqual((job.returncode, self.text.count("ran\n")), (0, 2), self.text)
        self.assertIn("forked 2 workers from the template", self.text)
        self.assertIn("finished: 2 workers succeeded after 1 restart", self.text)

    def test_a_fork_does_not_begin(self):
        """A cold worker takes its place, in the same attempt."""
        (self.path / "lib").mkdir()
        script = self.script(FAILS_ONCE + "say('ran')\nprint('to stderr', file=sys.stderr)\n")
        ended = "has not begun .start .*: it has ended before it began.; it is started cold"
        for what, why in (("os._exit(0)", ended), ("os.kill(os.getpid(), 9)", ended),
                          ("raise OSError(7, 'x')", "has not begun .start .*: Argument list too long.; it is started cold"),
                          ("os.kill(os.getpid(), signal.SIGSTOP)", "has not begun within 10.0 s and gets SIGKILL; it is started cold")):
            with self.subTest(what):
                (self.path / "lib/stuck.py").write_text(f"import os, signal\ndef fails():\n    {what}\nos.setsid = fails\n")
                os.utime(self.path / "lib/stuck.py", (1, 1))
                job = self.run_once(True, "--nproc-per-node=2", "--max-restarts=1", "--tee=3", "--warm-imports=stuck", script,
                                    PYTHONPATH=str(self.path / "lib"), PYTHONDONTWRITEBYTECODE="1")
                counts = self.text.count("ran\n"), self.text.count("to stderr\n")
                self.assertEqual((job.returncode, *counts), (0, 2, 2), self.text)
                self.assertRegex(self.text, r"no warm restarts: rank [01], which was forked as pid \d+, " + why + "\n")
                self.assertIn("finished: 2 workers succeeded after 1 restart", self.text)
                self.assertNotIn("left behind", self.text)
                self.assertEqual([path.read_text() for path in sorted(self.logs.glob("*/attempt_1/*/stdout.log"))[-2:]], ["ran\n"] * 2)

    def test_it_is_not_ready(self):
        (self.path / "lib").mkdir()
        (self.path / "lib/slow.py").write_text("import time\ntime.sleep(1000)\n")
        script = self.script(FAILS_ONCE)
        job = self.run_once(True, "--max-restarts=1", "--warm-imports=slow", script, wants_ready=False,
                            PYTHONPATH=str(self.path / "lib"))
        self.assertEqual(job.returncode, 0, self.text)
        self.assertIn("this restart is cold: the template is not ready yet\n", self.text)

    @unittest.skipUnless(os.geteuid() == 0, "only root may raise a priority again")
    def test_its_priority_is_raised(self):
        """After 20 s; the module lets it be ready when that has happened."""
        (self.path / "lib").mkdir()
        (self.path / "lib/busy.py").write_text("import os, time\nwhile os.getpriority(os.PRIO_PROCESS, 0) == 19: time.sleep(0.05)\n")
        job = self.run_once(True, "--max-restarts=1", "--warm-imports=busy", self.script(FAILS_ONCE + "say('nice', os.nice(0))\n"),
                            PYTHONPATH=str(self.path / "lib"))
        self.assertEqual(job.returncode, 0, self.text)
        self.assertIn("forked 1 worker from the template", self.text)
        self.assertIn(f"nice {os.nice(0)}\n", self.text)

    def test_it_dies_while_it_imports(self):
        (self.path / "lib").mkdir()
        (self.path / "lib/dies.py").write_text("import os\nos.abort()\n")
        self.is_cold_off("the template of warm restarts .* was killed by SIGABRT.* before it was ready", "dies")

    def is_cold_off(self, why, module):
        script = self.script(FAILS_ONCE)
        job = self.run_once(True, "--max-restarts=1", f"--warm-imports={module}", script, wants_ready=False,
                            before_go=lambda job: wait_until(lambda: self.said("no warm restarts: "), "it is refused"),
                            PYTHONPATH=str(self.path / "lib"))
        self.assertEqual(job.returncode, 0, self.text)
        self.assertRegex(self.text, "no warm restarts: " + why)

    def test_its_python_cannot_be_run(self):
        python = self.path / "python"
        python.write_text("no program")
        python.chmod(0o755)
        run = subprocess.run([DDPRUN, "--warm-start", self.script("pass\n")], cwd=self.path, env=environment(PYTHON_EXEC=str(python)),
                             capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(run.returncode, 126, run.stderr)
        self.assertIn(f"no warm restarts: start {python}: Exec format error\n", run.stderr)
        self.assertRegex(run.stderr, rf"FAILED: .*: start {python}: Exec format error\n")

    def test_its_python_is_a_script(self):
        """What it exports for each worker forks would not have."""
        python = self.path / "python"
        python.write_text(f'#!/bin/sh\nexport MINE="of $LOCAL_RANK"\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        job = self.run_once(True, "--nproc-per-node=2", "--max-restarts=1", self.script(FAILS_ONCE + "say('mine is', os.environ['MINE'])\n"),
                            wants_ready=False, PYTHON_EXEC=str(python))
        self.assertEqual(job.returncode, 0, self.text)
        self.assertIn(f"no warm restarts: {python} is a script, which forks would not run; PYTHON_EXEC may name Python itself\n", self.text)
        self.assertEqual(sorted(re.findall("mine is (.*)", self.text)), ["of 0", "of 1"])

    def test_a_module_that_replaces_a_stream(self):
        (self.path / "lib").mkdir()
        (self.path / "lib/tee.py").write_text("import sys\nclass Tee: pass\nsys.stdout = Tee()\n")
        self.is_cold_off("tee replaces sys.stdout when it is imported\n", "tee")

    def test_modules_that_are_not_there(self):
        job = self.run_once(True, "--max-restarts=1", "--warm-imports=nosuchmodule,json.nosuch,json", self.script(FAILS_ONCE))
        self.assertEqual(job.returncode, 0, self.text)
        self.assertIn("forked 1 worker from the template", self.text)
        for name in ("nosuchmodule", "json.nosuch"):
            self.assertEqual(self.text.count(f"--warm-imports: {name} cannot be imported: No module named '{name}'\n"), 1, self.text)

    def test_a_module_that_starts_a_thread(self):
        (self.path / "lib").mkdir()
        (self.path / "lib/busy.py").write_text(
            "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n")
        self.is_cold_off("the imported modules have 1 threads\n", "busy")

    def test_a_module_that_initializes_cuda(self):
        if "FAKE_LIBCUDA" not in os.environ:
            self.skipTest("FAKE_LIBCUDA names no folder with a libcuda.so.1")
        (self.path / "lib").mkdir()
        (self.path / "lib/gpu.py").write_text("import ctypes, threading\nkept = ctypes.CDLL(%r)\nkept.cuInit(0)\n"
                                              # As the real one does.
                                              "opened = open('/dev/null')\n"
                                              "threading.Thread(target=threading.Event().wait, daemon=True).start()\n" %
                                              os.path.join(os.environ["FAKE_LIBCUDA"], "libcuda.so.1"))
        self.is_cold_off("CUDA is initialised by an import\n", "gpu")

    def test_a_library_that_changes(self):
        (self.path / "lib").mkdir()
        library = self.path / "lib/library.py"
        library.write_text("value = 1\n")
        os.utime(library, (1, 1))
        script = self.script(FAILS_ONCE + "import library\nsay('value', library.value)\n")
        self.run_once(True, "--max-restarts=1", "--warm-imports=library", script, PYTHONPATH=str(self.path / "lib"),
                      before_go=lambda job: library.write_text("value = 22\n"))
        self.assertIn("this restart is cold: " + str(library) + " has been changed\n", self.text)
        self.assertIn("value 22\n", self.text)

    def test_workers_that_are_too_different(self):
        job = self.run_once(True, "--nproc-per-node=2", "--virtual-local-rank", "--max-restarts=1",
                            self.script(FAILS_ONCE), wants_ready=False, CUDA_VISIBLE_DEVICES="0,1")
        self.assertEqual(job.returncode, 0, self.text)
        self.assertIn("no warm restarts: CUDA_VISIBLE_DEVICES is different in the workers\n", self.text)

    def test_programs_that_are_never_warm(self):
        run = self.ddprun("--warm-restarts", "--no-python", "true")
        self.assertEqual(run.returncode, 0)
        self.assertIn("--warm-restarts has no effect for a program that is no Python script\n", run.stderr)
        run = self.ddprun("--run-path", self.script("pass\n"), PET_WARM_RESTARTS="1")
        self.assertIn("PET_WARM_RESTARTS has no effect with --run-path\n", run.stderr)
        run = self.ddprun("--warm-restarts", "--warm-imports=a b", "x.py")
        self.assertEqual(run.returncode, 2)

    def test_it_ends_with_the_agent(self):
        def kill(job):
            self.assertIn(self.template_of(job), self.templates())
            job.kill()
        self.run_once(True, "--max-restarts=1", self.script(FAILS_ONCE), before_go=kill)
        wait_until(lambda: self.templates() == [], "the template is gone, with the forks that wait")

    def test_it_ends_with_the_run(self):
        def stop(job):
            wait_until(lambda: len(self.of_template(job)) == 3, "two forks wait")
            self.pids = self.of_template(job)
            os.kill(self.pids[1], signal.SIGSTOP)  # so that it does not see that the agent has gone
            job.terminate()
        job = self.run_once(True, "--nproc-per-node=2", "--max-restarts=1", self.script(FAILS_ONCE), before_go=stop)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM, self.text)
        self.assertEqual([pid for pid in self.pids if pathlib.Path(f"/proc/{pid}").exists()], [])

    def test_many_restarts(self):
        first, last = 2, 14
        script = self.script(
            "import os, time\n"
            "attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
            "os.write(1, b'attempt %d\\n' % attempt)\n"
            "while not os.path.exists('go') and not os.path.exists(f'fail.{attempt}'): time.sleep(0.01)\n"
            f"if attempt < {last} and os.environ['RANK'] == '0': os._exit(3)\n"
            f"if attempt < {last}: time.sleep(1000)\n")

        def run_all(job):
            def held():
                """The agent's descriptors; at times, some more for what it has just begun or is still ending."""
                return len(os.listdir(f"/proc/{job.pid}/fd"))

            def runs(attempt):
                self.wait_for(lambda: self.said(f"attempt {attempt}\n"), f"attempt {attempt} runs")
                if attempt in (first, last):
                    wait_until(lambda: len(self.of_template(job)) == 3, "two forks wait")
            for attempt in range(last):
                runs(attempt)
                if attempt == first:
                    at_first = held()
                (self.path / f"fail.{attempt}").touch()
            runs(last)
            # One that each restart leaves behind would never go.
            self.wait_for(lambda: held() < at_first + last - first, f"it holds hardly more than {at_first}, as before")
        job = self.run_once(True, "--nproc-per-node=2", f"--max-restarts={last}", script, before_go=run_all)
        self.assertEqual(job.returncode, 0, self.text)
        self.assertNotIn("left behind", self.text)
        self.assertEqual(self.text.count("forked 2 workers from the template"), last, self.text)


@unittest.skipUnless(HAS_TORCH, "this Python has no torch")
class TorchTest(WarmCase):
    limit = 4 * LIMIT  # the template imports at the lowest priority

    def test_training_ends_with_the_same_weights(self):
        script = self.script(
            "import hashlib, os, sys, time, torch, torch.distributed as dist\n"
            "from torch.nn.parallel import DistributedDataParallel as DDP\n"
            "from torch.utils.data import DataLoader, TensorDataset\n" + FAILS_ONCE +
            "began = torch.initial_seed(), torch.rand(1).item()\n"
            "torch.manual_seed(3)\n"
            "dist.init_process_group('gloo')\n"
            "model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(), torch.nn.Linear(16, 4)))\n"
            "optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
            "loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8, shuffle=True, num_workers=1)\n"
            "for (batch,) in loader:\n"
            "    optimizer.zero_grad(); model(batch).square().mean().backward(); optimizer.step()\n"
            "weights = b''.join(p.detach().numpy().tobytes() for p in model.parameters())\n"
            "say('weights', hashlib.sha256(weights).hexdigest(), 'threads', torch.get_num_threads())\n"
            "say('seed', began[0])\n"
            "dist.barrier(); dist.destroy_process_group()\n")
        weights, seeds = [], []
        for is_warm in (False, True):
            job = self.run_once(is_warm, "--nproc-per-node=2", "--max-restarts=1", script)
            self.assertEqual(job.returncode, 0, self.text)
            self.assertEqual(self.said("forked 2 workers from the template"), is_warm, self.text)
            weights += re.findall("weights .*", self.text)
            seeds += re.findall(r"seed (\d+)", self.text)
        self.assertEqual((len(weights), len(set(weights))), (4, 1), weights)
        self.assertEqual(len(set(seeds)), 4, "a fresh process has a seed of its own")

    def test_the_report_says_how_long_new_workers_took_to_connect(self):
        script = self.script(FAILS_ONCE + "time.sleep(1.1)\n"
                             "import torch.distributed as dist\n"
                             "dist.init_process_group('gloo'); dist.barrier()\n"
                             "if os.environ['RANK'] == '1': os._exit(3)\n"
                             "time.sleep(1000)\n")
        took = r"\n  restarts: the new workers of 1 restart took [\d.]+ s until all ranks had connected \(init_process_group\)"
        for is_warm, end in ((False, "; --warm-restarts would have saved the part of it that is imports\n"), (True, "\n")):
            job = self.run_once(is_warm, "--nproc-per-node=2", "--max-restarts=1", script)
            self.assertEqual(job.returncode, 82, self.text)
            self.assertRegex(self.text, took + end)
            newest = max(self.logs.glob("*/report.json"), key=lambda path: path.stat().st_mtime_ns)
            spent = json.loads(newest.read_text())["time"]["to_connect"]
            self.assertEqual(spent["restarts"], 1)
            self.assertGreater(spent["cost"], 1.1)

    def test_the_error_file(self):
        script = self.script(
            "import torch\nfrom torch.distributed.elastic.multiprocessing.errors import record\n" + FAILS_ONCE +
            "@record\ndef main():\n    raise ValueError('no data')\nmain()\n")
        errors = []
        for is_warm in (False, True):
            self.run_once(is_warm, "--max-restarts=1", script)
            self.assertEqual(self.said("forked 1 worker from the template"), is_warm, self.text)
            newest = max(self.logs.glob("*/attempt_1/0/error.json"), key=lambda path: path.stat().st_mtime_ns)
            error = json.loads(newest.read_text())
            error["message"]["extraInfo"]["timestamp"] = 0
            errors.append(error)
        self.assertEqual(errors[0], errors[1])


if __name__ == "__main__":
    unittest.main()
