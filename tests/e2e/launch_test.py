# SPDX-License-Identifier: BSD-3-Clause
"""The built ddprun, run as a user runs it.  Workers are small shell and Python programs."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from free_port import free_port  # noqa: E402

DDPRUN = os.path.abspath(os.path.join(os.environ["DDPRUN_BIN"], "ddprun"))
LIMIT = 60  # seconds; far beyond what anything here takes
USER_WITH_LIMIT = 64124  # that has no other process


def environment(**extra):
    foreign = ("PET_", "DDPRUN_AGENT", "OMP_", "TORCHELASTIC_", "VIRTUAL_ENV", "LOGLEVEL")
    env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    env["PYTHON_EXEC"] = sys.executable
    env.update(extra)
    return env


def processes_with(marker):
    """Living processes whose command line holds `marker`."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and marker in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def wait_until(is_reached, what):
    deadline = time.monotonic() + LIMIT
    while not is_reached():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {LIMIT} s in vain until {what}")
        time.sleep(0.005)


class LaunchCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-e2e-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.logs = self.path / "logs"

    def ddprun(self, *arguments, **extra):
        return subprocess.run(
            [DDPRUN, "--log-dir", str(self.logs), *map(str, arguments)], env=environment(**extra),
            cwd=self.path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)

    def start(self, *arguments):
        process = subprocess.Popen(
            [DDPRUN, "--log-dir", str(self.logs), *map(str, arguments)], env=environment(),
            cwd=self.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def script(self, text, name="worker.py"):
        (self.path / name).write_text(text)
        return name


class ContractTest(LaunchCase):
    """What a worker finds: torchrun's contract."""

    def test_the_workers_store_says_who_has_not_come(self):
        job = self.start("--nproc-per-node", 2, "--no-python", "sleep", 60)
        port = None
        while port is None:
            port = re.search(r"master=127\.0\.0\.1:(\d+)", job.stderr.readline())

        def missing():
            with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/status", timeout=LIMIT) as page:
                expected = json.load(page)["expected"]
            return expected["world_size"], sorted(worker["name"] for worker in expected["missing"])
        wait_until(lambda: missing() == (2, ["rank 0", "rank 1"]), "both ranks are announced")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(timeout=LIMIT), 128 + signal.SIGTERM)

    def test_the_whole_environment(self):
        script = self.script("import json, os\n"
                             "open(f'env.{os.environ[\"RANK\"]}', 'w').write(json.dumps(dict(os.environ)))\n")
        run = self.ddprun("--standalone", "--nproc-per-node=3", "--max-restarts=2", "--role=trainer",
                          script)
        self.assertEqual(run.returncode, 0, run.stderr)
        ports = set()
        for rank in range(3):
            env = json.loads((self.path / f"env.{rank}").read_text())
            expected = {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3",
                "LOCAL_WORLD_SIZE": "3", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
                "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "3", "ROLE_NAME": "trainer",
                "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1",
                "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
                "TORCHELASTIC_MAX_RESTARTS": "2", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
                "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
            }
            self.assertEqual({name: env.get(name) for name in expected}, expected)
            self.assertRegex(env["TORCHELASTIC_RUN_ID"], r"^[0-9a-f]{8}-[0-9a-f-]{27}$")
            self.assertTrue(env["TORCHELASTIC_ERROR_FILE"].endswith(f"/attempt_0/{rank}/error.json"))
            self.assertEqual(env["PATH"], os.environ["PATH"])
            ports.add(env["MASTER_PORT"])
        self.assertEqual(len(ports), 1)

    def test_arguments_pass_untouched_but_for_the_local_rank(self):
        script = self.script("import sys\nprint(sys.argv[1:], flush=True)\n")
        run = self.ddprun("--standalone", script, "--nnodes=7", "--", "a b", "${local_rank}", "$other")
        self.assertEqual(run.stdout, "['--nnodes=7', '--', 'a b', '0', '$other']\n", run.stderr)

    def test_a_module_and_a_bare_program(self):
        self.script("print('as module', __name__)\n", "part.py")
        self.assertIn("as module __main__", self.ddprun("-m", "part").stdout)
        self.assertEqual(self.ddprun("--no-python", "echo", "hello").stdout, "hello\n")

    def test_a_script_runs_with_the_python_of_the_environment_that_ddprun_is_installed_in(self):
        script = self.script("")
        for mark in ("pyvenv.cfg", "conda-meta"):
            with self.subTest(mark):
                bin = self.path / f"with {mark}" / "bin"
                bin.mkdir(parents=True)
                (bin.parent / mark).touch()
                shutil.copy(DDPRUN, bin)
                python = bin / "python3"
                python.write_text("#!/bin/sh\necho own python\n")
                python.chmod(0o755)
                (self.path / "link").symlink_to(bin / "ddprun")
                for program in (bin / "ddprun", self.path / "link"):
                    run = subprocess.run([program, "--standalone", script], env=environment(PYTHON_EXEC=""), cwd=self.path,
                                         stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
                    self.assertEqual(run.stdout, "own python\n", run.stderr)
                (self.path / "link").unlink()

    def test_run_path_runs_the_script_as_main_and_writes_no_word_of_its_own(self):
        script = self.script("import os, sys\n"
                             "line = f\"{__name__} {__file__} {sys.argv} {os.environ['LOCAL_RANK']}\\n\"\n"
                             "os.write(1, line.encode())\n"
                             "raise SystemExit(int(sys.argv[1]))\n")
        run = self.ddprun("--run-path", "--virtual-local-rank", "--nproc-per-node=2", script, "0", "${local_rank}")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(sorted(run.stdout.splitlines()), [f"__main__ worker.py ['worker.py', '0', '{i}'] 0" for i in "01"])
        self.assertEqual(self.ddprun("--run-path", script, "7").returncode, 7)

    def test_a_native_program_is_recognised_and_said_so(self):
        run = self.ddprun("--standalone", "/bin/echo", "hello")
        self.assertEqual(run.stdout, "hello\n")
        self.assertIn("/bin/echo is a native program, so it is run directly", run.stderr)

    def test_each_attempt_meets_in_an_empty_store(self):
        # torchrun 2.15 reuses its store, and half of its Gloo restarts fail on stale keys.
        script = self.script(
            "import os, socket, struct, sys\n"
            "def text(b): return struct.pack('<Q', len(b)) + b\n"
            "s = socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n"
            "s.sendall(b'\\x00' + struct.pack('<I', 0x3C85F7CE))\n"
            "s.sendall(b'\\x05' + struct.pack('<Q', 1) + text(b'/k'))\n"  # CHECK: 1 is missing
            "print('missing' if s.recv(1) == b'\\x01' else 'there', flush=True)\n"
            "s.sendall(b'\\x01' + text(b'/k') + text(b'v'))\n"  # SET
            "s.sendall(b'\\x05' + struct.pack('<Q', 1) + text(b'/k'))\n"
            "assert s.recv(1) == b'\\x00'\n"
            "sys.exit(0 if os.environ['TORCHELASTIC_RESTART_COUNT'] == '2' else 5)\n")
        run = self.ddprun("--standalone", "--max-restarts=2", script)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout, "missing\n" * 3)

    def test_a_master_port_that_was_asked_for_is_used_in_every_attempt(self):
        port = free_port()
        script = self.script(
            "import os, socket\n"
            "port = int(os.environ['MASTER_PORT'])\n"
            "socket.create_connection((os.environ['MASTER_ADDR'], port)).sendall(b'\\x00')\n"
            "print(port, flush=True)\n"
            "raise SystemExit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')\n")
        run = self.ddprun("--max-restarts=1", f"--master-port={port}", script)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout, f"{port}\n" * 2)


class FailureTest(LaunchCase):
    def test_a_dead_worker_is_named_with_what_follows_and_the_group_starts_again(self):
        script = self.script(
            "import os, signal, time\n"
            "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
            "    if os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
            "    time.sleep(1000)\n"
            "os.write(1, f\"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}\\n\".encode())\n")
        run = self.ddprun("--standalone", "--nproc-per-node=2", "--max-restarts=3", script)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout, "attempt 1\nattempt 1\n")
        self.assertRegex(run.stderr, r"rank 1 \(local rank 1, pid \d+\) was killed by SIGKILL; "
                                     r"stopping the other worker \(at most 30 s\), then restart 1 of 3")
        self.assertIn("finished: 2 workers succeeded after 1 restart (rank 1 was killed by SIGKILL)",
                      run.stderr)
        self.assertRegex(run.stderr.splitlines()[-1], r" of it training; .*1 restart cost \S+ m?s \(SIGKILL\)$")

    def test_restarts_that_took_long_are_counted_at_the_end(self):
        script = self.script(
            "import os, signal, sys, time\n"
            "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
            "    if os.environ['RANK'] == '0':\n"
            "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "        open('deaf', 'w')\n"
            "        time.sleep(1000)\n"
            "    while not os.path.exists('deaf'): time.sleep(0.01)\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            "if len(sys.argv) > 1 and os.environ['RANK'] == '1': sys.exit(3)\n")
        options = ("--standalone", "--nproc-per-node=2", "--max-restarts=1", "--shutdown-timeout=1", script)
        line = r"up \d[^,]*, \d+\.\d % of it training; (it began [^;]*; )?1 restart cost [1-9][^(]* \(SIGKILL\)"
        run = self.ddprun(*options)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stderr.splitlines()[-1], line + "$")
        (self.path / "deaf").unlink()
        run = self.ddprun(*options, "fail")
        self.assertEqual(run.returncode, 82, run.stderr)
        self.assertRegex(run.stderr, r"\n  time: " + line + r"\n  exit code: 82")
        reports = [json.loads(p.read_text()) for p in self.logs.glob("*/report.json") if p.parent.name != "latest"]
        self.assertEqual({0, 82}, {report["exit_code"] for report in reports}, "each run has left one")
        (spent,) = [report["time"] for report in reports if report["exit_code"] == 82]
        self.assertEqual([(each["cause"], each["node"], each["count"]) for each in spent["restarts"]],
                         [("SIGKILL", None, 1)])
        self.assertGreaterEqual(spent["restarts"][0]["cost"], 1)
        parts = sum(spent[name] for name in ("training", "starting", "stopping", "waiting"))
        self.assertAlmostEqual(parts, spent["up"], delta=1e-6)

    def test_a_short_run_says_nothing_of_its_time(self):
        run = self.ddprun("--no-python", "true")
        self.assertNotIn("of it training", run.stderr)
        run = self.ddprun("--no-python", "false")
        self.assertIn("exit code: 1", run.stderr)
        self.assertNotIn("of it training", run.stderr)

    def test_the_exit_code_is_that_of_the_first_failure(self):
        run = self.ddprun("--nproc-per-node=2", "--no-python", "sh", "-c",
                          "[ $RANK = 1 ] && exit 9; exec sleep 1000")
        self.assertEqual(run.returncode, 9, run.stderr)
        self.assertRegex(run.stderr, r"FAILED: rank 1 \(local rank 1, pid \d+\) on \S+ exited with code 9\n")
        self.assertIn("\n  exit code: 9, the worker's own\n", run.stderr)
        self.assertEqual(run.stderr.count("rank 0"), 1, "the stopped worker is no failure of its own")
        self.assertIn("\n  then stopped by ddprun: rank 0\n", run.stderr)
        # As under torchrun, "$$" in an argument is a "$".
        run = self.ddprun("--no-python", "sh", "-c", "kill -SEGV $$$$")
        self.assertEqual(run.returncode, 139, run.stderr)

    def test_a_stopped_worker_hears_that_it_is_to_end(self):
        script = self.script(
            "import os, pathlib, signal, sys, time\n"
            "def end(*_):\n"
            "    open('heard', 'w').close()\n"
            "    sys.exit(1)\n"
            "if os.environ['RANK'] == '0':\n"
            "    signal.signal(signal.SIGTERM, end)\n"
            "    pathlib.Path('pid.new').write_text(str(os.getpid()))\n"
            "    os.rename('pid.new', 'pid')\n"
            "    os.kill(os.getpid(), signal.SIGSTOP)\n"
            "    time.sleep(1000)\n"
            "while not os.path.exists('pid'): time.sleep(0.01)\n"
            "stat = pathlib.Path('/proc', pathlib.Path('pid').read_text(), 'stat')\n"
            "while stat.read_text().rpartition(')')[2].split()[0] != 'T': time.sleep(0.01)\n"
            "sys.exit(9)\n")
        run = self.ddprun("--nproc-per-node=2", f"--shutdown-timeout={LIMIT * 10}", script)
        self.assertEqual(run.returncode, 9, run.stderr)
        self.assertTrue((self.path / "heard").exists(), run.stderr)

    def test_the_last_words_of_the_failed_worker_are_repeated_at_the_end(self):
        run = self.ddprun("--nproc-per-node=2", "--redirects=3", "--no-python", "sh", "-c",
                          "[ $RANK = 0 ] && exec sleep 1000; echo noise; echo 'the disk is full' >&2; exit 3")
        self.assertEqual(run.returncode, 3)
        self.assertRegex(run.stderr, r"FAILED: rank 1 .*\n  last lines of its stderr:\n    the disk is full\n")
        self.assertRegex(run.stderr, r"\n  logs: /.*/attempt_0/1\n  exit code: 3, .*\n  next: .*\n\Z")

    def test_an_error_file_in_torchs_form_gives_the_cause_and_is_passed_up(self):
        script = self.script(
            "import json, os\n"
            "extra = {'py_callstack': 'Traceback of it', 'timestamp': '1763733600'}\n"
            "words = {'message': {'message': 'ValueError: boom', 'extraInfo': extra}}\n"
            "json.dump(words, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\n"
            "raise SystemExit(4)\n")
        above = self.path / "above.json"
        run = self.ddprun(script, TORCHELASTIC_ERROR_FILE=str(above))
        self.assertEqual(run.returncode, 4)
        self.assertIn("exited with code 4: ValueError: boom; the end, since --max-restarts is 0", run.stderr)
        self.assertIn("  traceback:\n    Traceback of it\n", run.stderr)
        words = json.loads(above.read_text())["message"]
        self.assertEqual((words["message"], words["errorCode"], words["extraInfo"]["timestamp"]),
                         ("ValueError: boom", 4, "1763733600"))

    def test_an_error_file_comes_into_the_workers_folder_of_a_temporary_log_folder(self):
        script = self.script("import os, time\n"
                             "if os.environ['RANK'] == '0': time.sleep(1000)\n"
                             "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('{\"message\": \"boom\"}')\n"
                             "raise SystemExit(4)\n")
        run = subprocess.run([DDPRUN, "--nproc-per-node=2", "--max-restarts=1", script], cwd=self.path, timeout=LIMIT,
                             env=environment(TMPDIR=str(self.path)), capture_output=True, text=True)
        self.assertEqual(run.returncode, 82, run.stderr)
        (folder,) = self.path.glob("ddprun_*")
        self.assertEqual(sorted(str(path.relative_to(folder)) for path in folder.rglob("*.json")),
                         ["attempt_0/1/error.json", "attempt_1/1/error.json", "report.json"])
        self.assertIn(f"  logs: {folder}/attempt_1/1\n", run.stderr)

    def test_what_cannot_be_started_is_not_tried_again(self):
        (self.path / "data").write_text("no program")
        run = self.ddprun("--max-restarts=3", "--no-python", "./data")
        self.assertEqual(run.returncode, 2)
        self.assertEqual(run.stderr, "ddprun: program './data' cannot be executed: Permission denied; "
                                     "chmod +x makes a file executable\n")
        (self.path / "data").chmod(0o755)
        for _ in range(10):
            run = self.ddprun("--max-restarts=3", "--no-python", "./data")
            self.assertEqual(run.returncode, 126)
            self.assertRegex(run.stderr, r"FAILED: rank 0 on \S+ could not be started: .*start ./data: Exec format error\n")
            self.assertNotIn("left behind", run.stderr)  # the child whose exec has failed

    def test_a_script_needs_the_program_that_its_first_line_names(self):
        for first_line, why in (("#!/no/such", "its first line names /no/such, which does not exist"),
                                ("#!/bin/sh\r", "its first line ends with a carriage return, as Windows writes it; "
                                               r"sed -i 's/\r$//' makes it a script")):
            with self.subTest(first_line):
                (self.path / "run.sh").write_text(first_line + "\nexit 0\n", newline="")
                (self.path / "run.sh").chmod(0o755)
                run = self.ddprun("--no-python", "./run.sh")
                self.assertEqual((run.returncode, run.stderr), (2, f"ddprun: program './run.sh' cannot be run: {why}\n"))

    def test_a_port_that_is_taken_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            run = self.ddprun(f"--master-port={port}", "--no-python", "true")
        self.assertEqual(run.returncode, 80)
        self.assertIn(f"FAILED: worker store: bind 127.0.0.1:{port}: Address already in use",
                      run.stderr)


class EndTest(LaunchCase):
    def test_a_stop_signal_reaches_the_workers_and_nothing_is_left(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                marker = f"100{number}.{os.getpid()}"
                run = self.start("--nproc-per-node=2", "--no-python", "sh", "-c",
                                 f"(setsid sleep {marker} &); sleep {marker} & wait")
                wait_until(lambda: len(processes_with(f"sleep\0{marker}")) == 4, "the workers run")
                run.send_signal(number)
                _, stderr = run.communicate(timeout=LIMIT)
                self.assertEqual(run.returncode, 128 + number, stderr)
                self.assertIn(f"stopped by {signal.Signals(number).name}", stderr)
                self.assertEqual(processes_with(marker), [])

    def test_workers_that_save_after_a_signal_have_their_store(self):
        script = self.script("""
import os, pathlib, signal, socket
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # it may come before the wait begins
pathlib.Path("ready." + os.environ["RANK"]).touch()
signal.sigwait({signal.SIGTERM})
socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))).close()
pathlib.Path("saved." + os.environ["RANK"]).touch()
""")
        run = self.start("--nproc-per-node=2", script)
        wait_until(lambda: len(list(self.path.glob("ready.*"))) == 2, "the workers run")
        run.send_signal(signal.SIGTERM)
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM, stderr)
        self.assertEqual(sorted(path.name for path in self.path.glob("saved.*")), ["saved.0", "saved.1"], stderr)

    def test_a_stop_signal_counts_also_where_the_parent_has_blocked_it(self):
        run = subprocess.Popen([DDPRUN, "--no-python", "sh", "-c", "touch ready; sleep 1000"], env=environment(), cwd=self.path,
                               stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD]))
        self.addCleanup(run.stderr.close)
        self.addCleanup(lambda: run.poll() is None and run.kill())
        wait_until((self.path / "ready").exists, "the worker runs")
        run.terminate()
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM, stderr)

    def test_a_restart_goes_on_where_the_log_folder_has_been_removed(self):
        for options in (("--redirects=3",), ()):
            with self.subTest(options=options):
                script = self.script("""
import os, shutil, sys
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    shutil.rmtree("logs")
    sys.exit(1)
open(os.environ["TORCHELASTIC_ERROR_FILE"], "w").close()
""")
                run = self.ddprun(*options, "--max-restarts=1", script)
                self.assertEqual(run.returncode, 0, run.stderr)

    def deaf_worker(self, *options):
        marker = f"2000.{os.getpid()}"
        run = self.start(*options, "--no-python", "sh", "-c",
                         f"trap '' TERM; touch ready; while :; do sleep {marker}; done")
        wait_until((self.path / "ready").exists, "the worker is deaf")
        self.addCleanup(lambda: self.assertEqual(processes_with(f"sleep\0{marker}"), []))
        return run

    def test_a_worker_that_ignores_the_signal_is_killed_after_the_grace(self):
        run = self.deaf_worker("--shutdown-timeout=1")
        run.terminate()
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 143, stderr)
        self.assertIn("still run after the grace", stderr)

    def test_a_second_signal_ends_the_grace(self):
        run = self.deaf_worker("--shutdown-timeout=1000")
        run.terminate()
        while "received SIGTERM; stopping the workers" not in run.stderr.readline():
            pass
        # One that comes within a second belongs to the first.
        def has_ended():
            run.terminate()
            return run.poll() is not None
        wait_until(has_ended, "the grace was ended")
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 143, stderr)

    def test_a_program_below_a_shell_saves_undisturbed(self):
        # The shell dies of the signal, which the program below it has got as well, once.
        script = self.script("import os, signal, time\n"
                             "def save(*_):\n"
                             "    os.write(1, b'got it\\n')\n"
                             "    time.sleep(1)\n"
                             "    open('saved', 'w').close()\n"
                             "    os._exit(0)\n"
                             "for number in (signal.SIGTERM, signal.SIGUSR1):\n"
                             "    signal.signal(number, save)\n"
                             "open('ready', 'w').close()\n"
                             "while True:\n"
                             "    time.sleep(100)\n")
        for number in (signal.SIGTERM, signal.SIGUSR1):
            with self.subTest(number):
                for name in ("ready", "saved"):
                    (self.path / name).unlink(missing_ok=True)
                run = self.start("--signals-to-handle=SIGTERM,SIGUSR1", "--no-python", "sh", "-c",
                                 f"{sys.executable} {script}; true")
                wait_until((self.path / "ready").exists, "the program runs")
                run.send_signal(number)
                stdout, stderr = run.communicate(timeout=LIMIT)
                self.assertEqual(run.returncode, 128 + number, stderr)
                self.assertEqual(stdout, "got it\n")
                self.assertTrue((self.path / "saved").exists(), stderr)

    def test_what_workers_leave_behind_is_ended_before_the_next_attempt(self):
        marker = f"4000.{os.getpid()}"
        run = self.ddprun("--max-restarts=1", "--no-python", "sh", "-c",
                          f"pgrep -fc '^sleep {marker}' >> found; (setsid sleep {marker} &); exit 1")
        self.assertEqual(run.returncode, 82)
        self.assertIn("ended what the workers had left behind: ", run.stderr)
        self.assertEqual((self.path / "found").read_text(), "0\n0\n")
        self.assertEqual(processes_with(f"sleep\0{marker}"), [])

    def test_neither_workers_nor_what_they_started_survive_a_kill_of_the_agent(self):
        marker = f"5000.{os.getpid()}"
        run = self.start("--nproc-per-node=2", "--no-python", "sh", "-c",
                         f"(setsid sh -c '/bin/sleep {marker} & wait' &) ; exec /bin/sleep {marker}")
        workers = f"/sleep\0{marker}"
        wait_until(lambda: len(processes_with(workers)) == 4, "the workers run")
        run.kill()
        wait_until(lambda: not processes_with(workers), "the workers have gone")
        run.wait(timeout=LIMIT)

    def test_nohup_protects_from_sighup(self):
        os.mkfifo(self.path / "fifo")
        run = subprocess.Popen(
            ["nohup", DDPRUN, "--no-python", "sh", "-c", "touch ready; read line < fifo"],
            env=environment(), cwd=self.path, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: run.poll() is None and run.kill())
        wait_until((self.path / "ready").exists, "the worker runs")
        run.send_signal(signal.SIGHUP)
        (self.path / "fifo").write_text("go\n")
        self.assertEqual(run.wait(timeout=LIMIT), 0)


class OutputTest(LaunchCase):
    def test_tee_shows_whole_lines_with_prefix_and_keeps_the_files(self):
        script = self.script("import sys\n"
                             "for i in range(200): print('out', i)\n"
                             "print('err', file=sys.stderr)\n"
                             "sys.stdout.write('no newline at the end')\n")
        run = self.ddprun("--standalone", "--nproc-per-node=2", "--tee=3", script)
        self.assertEqual(run.returncode, 0, run.stderr)
        lines = run.stdout.splitlines()
        written = [f"out {i}" for i in range(200)] + ["no newline at the end"]
        for rank in range(2):
            mine = [line for line in lines if line.startswith(f"[default{rank}]:")]
            self.assertEqual(mine, [f"[default{rank}]:{line}" for line in written])
            self.assertIn(f"[default{rank}]:err\n", run.stderr)
            (log,) = self.logs.glob(f"*_*/attempt_0/{rank}/stdout.log")
            self.assertEqual(log.read_text(), "\n".join(written))
        self.assertEqual(len(lines), 402)

    def test_redirects_filter_and_prefix_template(self):
        command = ("--nproc-per-node=2", "--no-python", "sh", "-c", "echo out $RANK; echo err $RANK >&2")
        run = self.ddprun("--redirects=0:1", *command)
        self.assertEqual(run.stdout, "out 1\n")
        self.assertEqual([p.read_text() for p in self.logs.glob("*_*/attempt_0/0/stdout.log")], ["out 0\n"])
        run = self.ddprun("--local-ranks-filter=1", *command)
        self.assertEqual(run.stdout, "out 1\n")
        run = self.ddprun("--tee=1", "--local-ranks-filter=0",
                          "--log-line-prefix-template=${role_name}/${rank}> ", *command)
        self.assertEqual(run.stdout, "default/0> out 0\n")

    def test_every_attempt_keeps_its_logs(self):
        self.ddprun("--max-restarts=2", "--redirects=3", "--no-python", "sh", "-c",
                    "echo $TORCHELASTIC_RESTART_COUNT; exit 1")
        texts = sorted((p.parts[-3], p.read_text()) for p in self.logs.glob("*_*/attempt_*/0/stdout.log"))
        self.assertEqual(texts, [("attempt_0", "0\n"), ("attempt_1", "1\n"), ("attempt_2", "2\n")])

    def test_latest_leads_to_the_newest_run(self):
        for text in ("one", "two"):
            self.ddprun("--redirects=1", "--no-python", "echo", text)
        self.assertEqual((self.logs / "latest/attempt_0/0/stdout.log").read_text(), "two\n")
        self.assertEqual(len(list(self.logs.glob("*_*/attempt_0/0/stdout.log"))), 2)

    def test_a_temporary_log_folder_without_logs_is_removed(self):
        for code in (0, 3):
            run = subprocess.run([DDPRUN, "--no-python", "sh", "-c", f"exit {code}"], cwd=self.path, timeout=LIMIT,
                                 env=environment(TMPDIR=str(self.path)), capture_output=True, text=True)
            self.assertEqual(run.returncode, code)
            self.assertNotIn("logs=", run.stderr)
            self.assertEqual(list(self.path.glob("ddprun_*")), [])

    def test_a_refused_event_log_leaves_no_temporary_log_folder(self):
        run = subprocess.run([DDPRUN, f"--event-log-handler=jsonl:{self.path}/none/x", "--no-python", "true"],
                             cwd=self.path, timeout=LIMIT, env=environment(TMPDIR=str(self.path)),
                             capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr.count("\n")), (2, 1), run.stderr)
        self.assertEqual(list(self.path.glob("ddprun_*")), [])

    def test_a_log_folder_that_cannot_be_is_bad_input(self):
        (self.path / "file").write_text("")
        run = self.ddprun(f"--log-dir={self.path}/file/logs", "--no-python", "true")
        self.assertEqual(run.returncode, 2)
        self.assertRegex(run.stderr, r"\Addprun: log folder /\S+/file/logs \(--log-dir DIR names another one, "
                                     r"--log-dir /dev/null none\): Not a directory\n\Z")

    def test_files_that_can_grow_no_more_are_told_once_and_the_run_goes_on(self):
        run = subprocess.run(["sh", "-c", 'ulimit -f 16; exec "$@"', "sh", DDPRUN, "--log-dir", str(self.logs),
                              "--nproc-per-node=2", "--tee=3", "--no-python", "sh", "-c",
                              "ulimit -f; seq 10000; seq 10000 >&2"],
                             env=environment(), cwd=self.path, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout.count("]:10000\n"), 2)
        self.assertEqual(run.stderr.count("]:10000\n"), 2)
        self.assertEqual(run.stderr.count("log files miss lines from here on, which are on the console only: write "), 1)
        self.assertIn(".log: File too large (past the limit of a file's size: ulimit -f)\n", run.stderr)

    def test_a_limit_of_the_file_size_that_leaves_no_room_for_logs_is_named(self):
        run = subprocess.run(["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", DDPRUN, "--log-dir", str(self.logs), "--tee=3",
                              "--no-python", "true"], env=environment(), cwd=self.path, capture_output=True, text=True,
                             timeout=LIMIT)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertRegex(run.stderr, r"\Addprun: log folder [^\n]*: File too large \(past the limit of a file's size: "
                                     r"ulimit -f\)\n\Z")

    def test_logs_that_are_not_kept_are_not_pointed_to(self):
        run = self.ddprun("--log-dir", self.logs, "--no-python", "sh", "-c", "exit 3")
        self.assertRegex(run.stderr, r"\n  next: it said nothing on stderr: run again with --redirects=3 and look at its logs")
        self.assertRegex(run.stderr, r"\n  logs: \S+/logs/[^/\s]+\n", "the folder of the run: that of the worker is empty")

    def in_a_mount_namespace(self, mount, *arguments):
        if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no mount namespace can be made here")
        return subprocess.run(["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", DDPRUN, *map(str, arguments)],
                              env=environment(), cwd=self.path, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=LIMIT)

    def test_a_disk_that_takes_no_further_file_costs_the_files_of_an_attempt_and_not_the_run(self):
        self.logs.mkdir()
        fill = ("import os, sys\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '1': print('done'); sys.exit()\n"
                "try:\n for i in range(999): open(f'logs/{i}', 'w').close()\nexcept OSError: sys.exit(7)")
        for options in (("--tee=3",), ("--redirects=3",), ()):
            with self.subTest(options):
                run = self.in_a_mount_namespace(f"mount -t tmpfs -o nr_inodes=40 none {self.logs}", f"--log-dir={self.logs}",
                                                "--max-restarts=1", *options, "--no-python", sys.executable, "-c", fill)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(run.stderr.count("this attempt has no log files: log folder "), 1, run.stderr)
                self.assertEqual("done" in run.stdout, options != ("--redirects=3",), run.stdout)

    def test_a_disk_that_cannot_be_written_stops_no_run_that_asks_for_no_log(self):
        mount = "mount -t tmpfs -o ro none /tmp"
        probe = ("--no-python", "sh", "-c", "exit $((7 * (1 - TORCHELASTIC_RESTART_COUNT)))")
        run = self.in_a_mount_namespace(mount, "--max-restarts=1", *probe)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr.count("nothing of a failure is kept in files: log folder /tmp/ddprun_"), 1, run.stderr)
        self.assertEqual(self.in_a_mount_namespace(mount, "--tee=3", *probe).returncode, 2)

    def test_every_macro_of_the_prefix(self):
        template = "${node}/${group_rank}/${restart_count}/${rank}/${other}/${time} "
        run = self.ddprun("--tee=1", f"--log-line-prefix-template={template}", "--max-restarts=1", "--no-python",
                          "sh", "-c", "echo text; exit $((1 - TORCHELASTIC_RESTART_COUNT))")
        host = socket.gethostname().partition(".")[0]
        line = rf"{host}/0/%d/0/\$\{{other\}}/\d\d:\d\d:\d\d\.\d\d\d text\n"
        self.assertRegex(run.stdout, "\\A" + line % 0 + line % 1 + "\\Z")

    def test_duplicate_filters_collect_lines_of_all_workers(self):
        self.ddprun("--tee=3", "--nproc-per-node=2", "--duplicate-stdout-filters=apple,c,,d",
                    "--duplicate-stderr-filters=err", "--no-python", "sh", "-c",
                    "echo apple; echo pear; echo c,d; echo error >&2; echo other >&2")
        folder = self.logs / "latest/attempt_0"
        lines = sorted((folder / "filtered_stdout.log").read_text().splitlines())
        self.assertEqual(lines, [f"[default{rank}]:{text}" for rank in "01" for text in ("apple", "c,d")])
        lines = sorted((folder / "filtered_stderr.log").read_text().splitlines())
        self.assertEqual(lines, ["[default0]:error", "[default1]:error"])

    def test_a_console_that_goes_away_does_not_end_the_run(self):
        os.mkfifo(self.path / "fifo")
        run = self.start("--tee=1", "--no-python", "sh", "-c",
                         "echo first; read line < fifo; for i in 1 2 3; do echo more; done; touch done")
        self.assertEqual(run.stdout.readline(), "[default0]:first\n")
        run.stdout.close()
        (self.path / "fifo").write_text("go\n")
        self.assertEqual(run.wait(timeout=LIMIT), 0)
        self.assertTrue((self.path / "done").exists())


    def test_closed_standard_streams_are_not_taken_by_others(self):
        run = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", DDPRUN, "--no-python", "sh", "-c",
                              "echo lost; ls -l /proc/$PPID/fd/1 > where; exit 5"],
                             env=environment(), cwd=self.path, timeout=LIMIT)
        self.assertEqual(run.returncode, 5)
        self.assertIn("/dev/null", (self.path / "where").read_text())

    def test_a_console_that_nobody_reads_blocks_no_worker_and_no_signal(self):
        run = self.start("--tee=1", "--no-python", "sh", "-c",
                         "yes line | head -c 2000000; touch done; exec sleep 1000")
        wait_until((self.path / "done").exists, "the worker has written it all")
        run.terminate()
        stdout, stderr = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 143, stderr)
        self.assertEqual(stdout, "[default0]:line\n" * 400000)


class UsageTest(LaunchCase):
    def test_bad_usage_is_one_line_and_exit_code_2(self):
        for arguments in (["--nnodes=2:3", "x"], ["--no-such-option"], ["no-such-script.py"], [],
                          ["--tee=9", "x"], ["--nnodes=1\x1b[31m", "x"], ["no\nscript.py"], ["--rdzv-backend=zookeeper", "/bin/true"], ["--no-python", "no-such-program"],
                          ["--nnodes=2", "--rdzv-backend=etcd", "--rdzv-conf=protocol=https,cacert=/nowhere", "/bin/true"],
                          ["--nnodes=2", "--rdzv-backend=etcd", "--rdzv-conf=user=me,password=x", "/bin/true"],
                          ["--standalone", "--local-addr=no-such-host.invalid", "/bin/true"],
                          ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=a:1,,b:2", "/bin/true"],
                          ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf=quorum=9", "/bin/true"],
                          *(["--nnodes=2", "--rdzv-backend=c10d", f"--bind={address}", "/bin/true"]
                            for address in ("203.0.113.9", "10.77.0.300", "2001:db8::9", "fe80::9%lo"))):
            with self.subTest(arguments=arguments):
                run = self.ddprun(*arguments, RES_OPTIONS="timeout:1 attempts:1")
                self.assertEqual(run.returncode, 2)
                self.assertEqual(run.stdout, "")
                self.assertRegex(run.stderr, r"\Addprun: [^\n\x1b]+\n\Z")

    def test_an_address_that_no_interface_has_is_told_with_a_warning(self):
        # It waits for the other node then.
        run = self.start("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:1", "--rdzv-conf=is_host=0",
                         "--local-addr=203.0.113.9", "--no-python", "true")
        self.assertRegex(run.stderr.readline(),
                         r" warning --local-addr=203\.0\.113\.9: the other nodes are told this address, which no interface ")
        own = self.ddprun("--standalone", "--local-addr=127.0.0.2", "--no-python", "true")
        self.assertEqual(own.returncode, 0)
        self.assertNotIn(" warning ", own.stderr)

    def test_a_script_on_stdin_is_read_by_python_alone(self):
        for name in ("-", "/dev/stdin"):
            with self.subTest(name):
                run = subprocess.run([DDPRUN, name, "word"], env=environment(), input="import sys; print(sys.argv[1:])",
                                     capture_output=True, text=True, timeout=LIMIT)
                self.assertEqual((run.returncode, run.stdout), (0, "['word']\n"), run.stderr)

    def test_help_and_version(self):
        self.assertRegex(self.ddprun("--version").stdout, r"\Addprun \d+\.\d+\.\d+\n\Z")
        self.assertIn("--nproc-per-node", self.ddprun("--help").stdout)

    def test_what_does_not_get_through_to_stdout_is_an_error(self):
        for arguments in (["--help"], ["--version"], ["--print-completion=bash"], ["--dry-run", "/bin/true"]):
            with self.subTest(arguments=arguments), open("/dev/full", "w") as full:
                run = subprocess.run([DDPRUN, *arguments], env=environment(), stdout=full, stderr=subprocess.PIPE,
                                     text=True, timeout=LIMIT)
                self.assertEqual((run.returncode, run.stderr), (81, "ddprun: write to stdout: No space left on device\n"))

    def test_the_other_programs_say_so_too(self):
        for program in ("ddpd", "ddpctl"):
            with self.subTest(program), open("/dev/full", "w") as full:
                run = subprocess.run([os.path.join(os.path.dirname(DDPRUN), program), "--help"], stdout=full,
                                     stderr=subprocess.PIPE, text=True, timeout=LIMIT)
                self.assertEqual((run.returncode, run.stderr),
                                 (1, f"{program}: write to stdout: No space left on device\n"))

    def test_too_few_descriptors_are_one_line(self):
        for limit in (8, 12, 14, 34):
            with self.subTest(limit):
                run = subprocess.run(["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", DDPRUN, "--no-python", "true"],
                                     env=environment(), capture_output=True, text=True, timeout=LIMIT)
                self.assertEqual((run.returncode, run.stderr),
                                 (81, f"ddprun: this process may open no more than {limit} files (ulimit -n), "
                                      "and a run of 1 worker needs 35\n"))
        tee = subprocess.run(["sh", "-c", 'ulimit -n 55; exec "$@"', "sh", DDPRUN, "--tee=3", "--nproc-per-node=4",
                              "--no-python", "true"], env=environment(), capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(tee.returncode, 81, tee.stderr)
        self.assertIn("and a run of 4 workers needs 56", tee.stderr)
        # Not the soft limit, which is raised.
        run = subprocess.run(["sh", "-c", 'ulimit -S -n 12; exec "$@"', "sh", DDPRUN, "--no-python", "true"],
                             env=environment(), capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_too_few_threads_for_several_nodes_are_said_at_once(self):
        if os.geteuid() != 0:
            self.skipTest("a limit of processes binds no root, and only root can start another user's")
        self.path.chmod(0o755)
        ddprun = shutil.copy(DDPRUN, self.path)
        place = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
        run = subprocess.run(["prlimit", "--nproc=2:2", ddprun, "--nnodes=2", "--rdzv-backend=c10d", place, "--no-python", "true"],
                             env=environment(), cwd="/", user=USER_WITH_LIMIT, extra_groups=[], capture_output=True, text=True,
                             timeout=LIMIT, check=False)
        self.assertEqual((run.returncode, run.stderr),
                         (81, "ddprun: this user may start 1 more threads and processes here, and a run of several nodes needs 4; allow "
                              "more: ulimit -u, or the pids limit of the container or cgroup\n"))

    def test_pet_variables_are_defaults(self):
        command = ("--no-python", "sh", "-c", "echo $WORLD_SIZE")
        self.assertEqual(self.ddprun(*command, PET_NPROC_PER_NODE="2").stdout, "2\n2\n")
        run = self.ddprun(*command, PET_MAX_RESTARTS="x")
        self.assertEqual((run.returncode, run.stderr),
                         (2, "ddprun: PET_MAX_RESTARTS='x' is not a whole number of 0 or more\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
