# SPDX-License-Identifier: BSD-3-Clause
"""What the host of a run shows: /status, /metrics, ddpctl, and the page in a real browser."""

import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.parse
import urllib.request

from ddpd_process import Ddpd
from nodes import DDPRUN, LIMIT, NodesCase, environment, wait_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from browser import Browser  # noqa: E402
from free_port import free_port  # noqa: E402

DDPCTL = os.path.join(os.path.dirname(DDPRUN), "ddpctl")
ROOT = pathlib.Path(__file__).resolve().parents[2]
STRANGER = 54321  # a user
SECRET = "correct horse battery staple"

# ddpctl as another user, who may not be able to reach its file.
STRANGERS_DDPCTL = """
import os, sys
user, program = int(sys.argv[1]), int(sys.argv[2])
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.execve(program, ["ddpctl", *sys.argv[3:]], os.environ)
"""

# The whole answer to a request, as another user, who may not be able to start this Python.
AS_STRANGER = """
import os, socket, sys
port, user, request = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
client = socket.socket()
client.connect(("127.0.0.1", port))
client.sendall(request.encode())
while data := client.recv(65536):
    sys.stdout.buffer.write(data)
"""


def tool(name):
    """A program of Debian's that is too large to be installed for these tests."""
    path = shutil.which(name)
    if path is None:
        print(f"SKIPPED: {name} is not installed", file=sys.stderr)
        raise unittest.SkipTest(f"{name} is not installed")
    return path


def answering(*answers):
    """The port of a server that says these, each on a connection of its own."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        with server:
            for answer in answers:
                client, _ = server.accept()
                with client:
                    client.recv(65536)
                    client.sendall(answer.encode())
    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]


class Follower(socket.socket):
    head = ""  # of the answer


class PagesCase(NodesCase):
    def page(self, path="/status", **headers):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=LIMIT) as page:
            return page.headers["Content-Type"], page.read().decode()

    def secret_file(self):
        path = self.path / "secret"
        path.write_text(SECRET)
        path.chmod(0o600)
        return path

    def as_stranger(self, path, token="", method="GET"):
        request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
        request += f"Authorization: Bearer {token}\r\n\r\n" if token else "\r\n"
        return subprocess.run([sys.executable, "-c", AS_STRANGER, str(self.port), str(STRANGER), request],
                              capture_output=True, text=True, timeout=LIMIT, check=True).stdout

    def ddpctl_as_stranger(self, *arguments, **extra):
        """What it says to its failure, started by another user."""
        program = os.open(DDPCTL, os.O_RDONLY)
        run = subprocess.run([sys.executable, "-c", STRANGERS_DDPCTL, str(STRANGER), str(program), *arguments],
                             env=environment(**extra), capture_output=True, text=True, stdin=subprocess.DEVNULL,
                             timeout=LIMIT, pass_fds=[program])
        os.close(program)
        self.assertEqual(run.returncode, 2, run.stdout + run.stderr)
        return run.stderr

    def followers(self, count):
        """So many connections that have asked for /events; each has its answer's head, at least."""
        made = []
        for _ in range(count):
            follower = Follower()
            follower.settimeout(LIMIT)
            follower.connect(("127.0.0.1", self.port))
            follower.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = b""
            while b"\r\n\r\n" not in head:
                head += follower.recv(1)
            follower.head = head.decode()
            made.append(follower)
        return made

    def run_shown(self):
        runs = json.loads(self.page()[1])["runs"]
        return runs[0] if runs else None

    def until_shown(self, is_so, what):
        """The run as /status has it, once `is_so` holds of it."""
        shown = []

        def is_reached():
            shown[:] = [self.run_shown()]
            return shown[0] is not None and is_so(shown[0])
        try:
            wait_until(is_reached, f"/status shows {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(shown, indent=1)}") from None
        return shown[0]

    def ddpctl(self, *arguments, code=0, **extra):
        run = subprocess.run([DDPCTL, *arguments], env=environment(**extra), capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, timeout=LIMIT)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout if code == 0 else run.stderr

    def two_nodes(self, *options, **extra):
        for _ in range(2):
            self.node("--nnodes=2", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-id=job", "--vitals=0.2",
                      *options, **extra)
        self.until_started(4)

    @staticmethod
    def has_vitals(run):
        return all(len(node["vitals"] or []) == 2 for node in run["nodes"])


class StatusTest(PagesCase):
    def test_a_run_is_shown_from_its_wait_to_its_end(self):
        daemon = Ddpd()
        self.addCleanup(daemon.stop)
        self.port, self.count = daemon.port, 1  # the nodes do not host
        self.node("--nnodes=2", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-id=job", "--vitals=0.2")
        run = self.until_shown(lambda run: run["nodes"], "a node that waits")
        self.assertEqual(run["state"], "waiting")
        self.assertIn("waiting for nodes: 1 of 2 joined", run["waiting_for"])
        self.assertIn("waiting for nodes: 1 of 2 joined", self.ddpctl("waits", f"127.0.0.1:{self.port}"))
        self.node("--nnodes=2", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-id=job", "--vitals=0.2")
        lines = self.until_started(4)
        run = self.until_shown(self.has_vitals, "vitals of all workers")
        self.assertEqual((run["state"], run["round"], run["world_size"]), ("training", 0, 4))
        pids = {int(re.search(r"pid (\d+)", line)[1]) for line in lines}
        self.assertEqual({worker["pid"] for node in run["nodes"] for worker in node["vitals"]}, pids)
        for node in run["nodes"]:
            for worker in node["vitals"]:
                self.assertGreater(worker["rss_kib"], 100)
                self.assertIn(worker["process"], "RSD")
                self.assertNotIn("last_line", worker)
        self.make_fail(1, 0, 7)
        run = self.until_shown(lambda run: run["state"] == "training" and run["round"] == 1, "the second round")
        self.assertEqual(run["restart_count"], 1)
        self.assertEqual(run["stops"], {"failed": 1})
        self.assertEqual((run["failures"][0]["rank"], run["failures"][0]["exit_code"]), (1, 7))
        self.assertEqual([event["what"] for event in run["history"]], ["round", "stop", "round"])
        self.assertGreater(run["time"]["starting"], 0)  # it has heard when the workers of both nodes ran
        endpoint = f"127.0.0.1:{self.port}"
        self.assertRegex(self.ddpctl("status", endpoint), r"(?m)^job: training, round 1, 4 workers on 2 nodes, for ")
        self.assertRegex(self.ddpctl("report", endpoint), r"job, attempt 0: rank 1 on \S+ exited with code 7")
        for command in ("status", "nodes", "ranks", "waits", "report", "explain", "timeline"):
            for options in ((), ("--json",) if command != "timeline" else ()):
                with self.subTest(command=command, options=options):
                    self.assertEqual(self.ddpctl(command, "--run=other", *options, endpoint, code=2),
                                     f"ddpctl: no run 'other' meets at {endpoint}, but 'job'\n")
        self.until_shown(self.has_vitals, "vitals of the new workers")
        ranks = json.loads(self.ddpctl("ranks", "--json", endpoint))[0]["ranks"]
        self.assertEqual([rank["rank"] for rank in ranks], [0, 1, 2, 3])
        (self.path / "go").touch()
        wait_until(lambda: json.loads(self.page()[1])["ended"], "the run is over")
        ended = json.loads(self.page()[1])["ended"][0]
        self.assertEqual((ended["run"], ended["exit_code"], ended["restart_count"]), ("job", 0, 1))
        for command in ("status", "nodes", "ranks"):
            self.assertRegex(self.ddpctl(command, "--run=job", endpoint),
                             r"^job: ended .* ago, exit code 0, after 1 restart\n(  .*\n)?$")
        self.assertRegex(self.ddpctl("report", "--run=job", endpoint), "rank 1 on .* exited with code 7")
        self.assertEqual(self.ddpctl("waits", "--run=job", endpoint), "nothing is waited for at a store; where ranks wait for each other in a "
                         "collective, ddpctl stacks shows it\n")
        self.assertIn("round 1", self.ddpctl("timeline", "--run=job", endpoint))
        self.assertRegex(self.ddpctl("report", "--run=other", endpoint, code=2),
                         r"^ddpctl: no run 'other' meets at \S+\n$")

    def test_who_has_not_connected_is_known_where_the_run_is_shown(self):
        daemon = Ddpd()
        self.addCleanup(daemon.stop)
        self.port, self.count = daemon.port, 1  # the workers' store is another one, on a node
        for run in ("one", "two"):
            for _ in range(2):
                self.node("--nnodes=2", f"--rdzv-id={run}", "--vitals=0.2")
        pids = {re.search(r"pid (\d+)", line)[1] for line in self.until_started(4)}

        def are_known():
            shown = json.loads(self.page()[1])["runs"]
            return len(shown) == 2 and all((run["workers_store"] or {}).get("expected", {}).get("missing_count") == 2
                                           for run in shown)
        wait_until(are_known, "/status shows who has not connected")
        endpoint = f"127.0.0.1:{self.port}"
        lines = re.findall(r"(?m)^(one|two): rank ([01]) \(pid (\d+) on 127.0.0.1\) has not connected$",
                           self.ddpctl("waits", endpoint))
        self.assertEqual([line[:2] for line in lines], [("one", "0"), ("one", "1"), ("two", "0"), ("two", "1")])
        self.assertEqual({line[2] for line in lines}, pids)
        self.assertRegex(self.ddpctl("waits", "--run=two", endpoint), r"^rank 0 \(pid \d+ on 127.0.0.1\) has not connected\n")
        shown = json.loads(self.ddpctl("waits", "--json", "--run=two", endpoint))
        self.assertEqual(shown[0]["expected"]["missing_count"], 2)
        self.assertNotIn("workers_store", shown[0])

    def test_all_tables_fit_a_terminal_and_watch_redraws(self):
        self.two_nodes()
        self.until_shown(self.has_vitals, "vitals of all workers")
        endpoint = f"127.0.0.1:{self.port}"
        for command in ("status", "nodes", "ranks"):
            for line in self.ddpctl(command, endpoint).splitlines():
                if str(self.path) not in line:  # a path is never cut
                    self.assertLessEqual(len(line), 80, line)
        folders = {str(path) for path in (self.path / "logs").glob("job_*")}
        shown = re.findall(r"(?m)^\d +\S+ +(/\S+)$", self.ddpctl("nodes", endpoint))
        self.assertEqual((set(shown), len(shown)), (folders, 2))
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        watch = subprocess.Popen([DDPCTL, "watch", endpoint], stdin=slave, stdout=slave, stderr=slave)
        self.addCleanup(lambda: watch.poll() is None and (watch.kill(), watch.wait()))
        os.close(slave)
        seen = b""
        while seen.count(b"\x1b[H") < 2:
            seen += os.read(master, 65536)
        screen = seen.split(b"\x1b[H")[1].replace(b"\x1b[K", b"").replace(b"\x1b[J", b"").decode().split("\r\n")
        self.assertLessEqual(len(screen), 24)
        self.assertTrue(all(len(line) <= 80 for line in screen), screen)
        self.assertTrue(screen[0].startswith("job: training"), screen)
        watch.send_signal(signal.SIGINT)
        watch.wait(timeout=LIMIT)

    def test_watch_says_that_the_host_has_gone_and_what_it_saw_last(self):
        self.two_nodes()
        watch = subprocess.Popen([DDPCTL, "watch", f"127.0.0.1:{self.port}"], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: watch.poll() is None and (watch.kill(), watch.wait()))
        self.assertRegex(watch.stdout.readline(), "^job: training, round 0")
        (self.path / "go").touch()
        _, said = watch.communicate(timeout=LIMIT)
        self.assertEqual(watch.returncode, 1)
        self.assertRegex(said, r"^ddpctl: \S+ answers no more: the run may be over, and its host gone "
                               r"\(connect to .*refused\); seen last: job: \w+, round 0, 4 workers.*\n$")

    def test_a_node_with_vitals_0_says_nothing_of_its_workers(self):
        self.node("--nnodes=2", "--rdzv-id=job", "--node-rank=0", "--vitals=0")
        self.node("--nnodes=2", "--rdzv-id=job", "--node-rank=1", "--vitals=0.2")
        run = self.until_shown(lambda run: run["nodes"][-1]["vitals"], "vitals of the second node")
        self.assertIsNone(run["nodes"][0]["vitals"])

    def test_bad_vitals_are_one_line(self):
        for value in ("-1", "x", "0.01"):
            run = subprocess.run([DDPRUN, f"--vitals={value}", "--no-python", "true"], capture_output=True, text=True,
                                 env=environment(), timeout=LIMIT)
            self.assertEqual(run.returncode, 2)
            self.assertRegex(run.stderr, rf"--vitals='{value}' is not ")

    def test_an_endpoint_that_does_not_answer_is_one_line(self):
        self.assertRegex(self.ddpctl("status", f"127.0.0.1:{self.port}", code=1), r"^ddpctl: connect to \S+: .*refused\n$")
        self.assertRegex(self.ddpctl("status", "a:b:c", code=2), r"^ddpctl: .*\n$")
        self.assertRegex(self.ddpctl("status", "--secret-file=/nowhere", "127.0.0.1:1", code=1), "/nowhere")

    def test_a_page_that_is_to_be_had_later_is_asked_for_again(self):
        later = "HTTP/1.1 503 Service Unavailable\r\nServer: ddprun\r\n{}\r\nask again\n"
        found = "HTTP/1.1 200 OK\r\nServer: ddprun\r\n\r\n[]"
        port = answering(later.format("Retry-After: 0\r\n"), later.format("Retry-After: 1\r\n"), found)
        self.assertEqual(self.ddpctl("timeline", f"127.0.0.1:{port}"), "[]")
        for field in ("", "Retry-After: 3600\r\n", "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n"):
            at = f"127.0.0.1:{answering(later.format(field), later.format(field))}"
            said = self.ddpctl("timeline", at, code=2)
            self.assertEqual(said, f"ddpctl: {at} says 503: ask again\n")

    def test_a_wrong_command_line_is_one_line(self):
        commands = "status, nodes, ranks, waits, report, explain, stacks, watch, bundle, timeline"
        for words, said in ((("foo",), rf"'foo' is not a command; there are .*{commands}"),
                            ((), f"no command; there are .*{commands}"),
                            (("--foo",), "'--foo' is not an option"),
                            (("ckpt", "foo"), "'foo' is not a command; there are ls, verify, show, convert"),
                            (("ckpt",), "no command; there are ls, verify, show, convert"),
                            *((("stacks", "--rank", rank, "a:1"), f"--rank='{rank}' is not a whole number of 0 or more")
                              for rank in ("x", "-1", "1.5", "")),
                            (("stacks", "--rank", "99999999999", "a:1"), "--rank='99999999999' is not a whole number from 0 to"),
                            *((("bundle", "--max-size", size, "a:1"), f"--max-size='{size}' is not a number of bytes such as 65536, 64K, 512M or 2G")
                              for size in ("x", "-1", "8Q", ""))):
            with self.subTest(words=words):
                self.assertRegex(self.ddpctl(*words, code=2), rf"^ddpctl: {said}.*\n$")

    def test_last_lines_are_shared_on_request_and_with_the_same_user_only(self):
        worker = "echo to all: token=hunter2; touch said.$RANK; while ! [ -e go ]; do sleep 0.02; done"
        for _ in range(2):
            self.node("--nnodes=2", "--rdzv-id=job", "--vitals=0.2", "--share-last-lines", "--tee=3",
                      command=("--no-python", "sh", "-c", worker))
        def has_line(run):
            return all((node["vitals"] or [{}])[0].get("last_line") for node in run["nodes"])
        run = self.until_shown(has_line, "the last lines")
        self.assertEqual(run["nodes"][0]["vitals"][0]["last_line"], "to all: token=hunter2")
        # A site of another name that leads to this address, in a browser of this user.
        self.assertNotIn("hunter2", self.page(Host="evil.example:80")[1])
        self.assertIn("hunter2", self.page(Host="localhost:80")[1])
        if os.geteuid() == 0:
            shown = self.as_stranger("/status")
            self.assertIn('"training"', shown)
            self.assertNotIn("hunter2", shown)
        (self.path / "go").touch()


class EventsTest(PagesCase):
    def events(self, follower):
        """What each event has, as /status has it."""
        lines = follower.makefile("rb")
        self.addCleanup(lines.close)
        while line := lines.readline():
            self.assertTrue(line.startswith(b"data: "), line)
            self.assertEqual(lines.readline(), b"\n")
            yield json.loads(line.removeprefix(b"data: "))

    def test_who_follows_sees_what_happens_and_asks_once(self):
        self.two_nodes()
        one, other = self.followers(2)
        self.addCleanup(one.close)
        self.addCleanup(other.close)
        self.assertRegex(one.head, r"^HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nServer: ddprun\r\n")
        events = self.events(one)
        first = next(events)
        run = first["runs"][0]
        self.assertEqual((run["run"], run["state"], run["round"], len(run["nodes"])), ("job", "training", 0, 2))
        self.assertEqual(first.keys(), json.loads(self.page()[1]).keys())
        self.make_fail(1, 0, 7)
        for event in events:
            if event["runs"][0]["round"] == 1:
                break
        # Nothing happens, and the next one comes all the same.
        self.assertEqual(next(events)["runs"][0]["round"], 1)
        for event in self.events(other):
            if event["runs"][0]["round"] == 1:
                break
        (self.path / "go").touch()
        for _ in events:  # until the host has gone
            pass

    def test_as_many_as_may_follow_and_no_more(self):
        self.two_nodes()
        followers = self.followers(33)
        for follower in followers:
            self.addCleanup(follower.close)
        self.assertEqual([follower.head.split()[1] for follower in followers], 32 * ["200"] + ["503"])
        followers[0].close()
        def is_room():
            (one,) = self.followers(1)
            self.addCleanup(one.close)
            return one.head.split()[1] == "200"
        wait_until(is_room, "there is room for another one")
        # They may say nothing more.
        followers[1].sendall(b"x")
        while followers[1].recv(65536):
            pass

    def test_with_a_secret_a_site_of_another_name_reads_nothing(self):
        self.two_nodes(f"--rdzv-secret-file={self.secret_file()}")
        self.assertIn("training", self.page(Host="localhost:80")[1])
        for path in ("/status", "/metrics", "/events", "/timeline"):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.page(path, Host="evil.example:80")
            self.assertEqual(refused.exception.code, 401)
            refused.exception.close()

    def test_a_stranger_follows_what_he_may_see(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, to be another user")
        path = self.secret_file()
        self.two_nodes(f"--rdzv-secret-file={path}")
        for given in ("", "x" * 43):
            shown = self.as_stranger("/events", given)
            self.assertTrue(shown.startswith("HTTP/1.1 401 "), shown)
        self.assertTrue(self.as_stranger("/events", method="PUT").startswith("HTTP/1.1 401 "))


class SlowWorkerTest(PagesCase):
    # Counts its steps in the heartbeat file, rank 3 ten times as slowly.
    COUNTING = r"""
touch said.$RANK
pause=0.05; if [ $RANK = 3 ]; then pause=0.5; fi
step=0
while ! [ -e go ]; do
  step=$((step + 1)); echo $step > $DDPRUN_HEARTBEAT_FILE.new; mv $DDPRUN_HEARTBEAT_FILE.new $DDPRUN_HEARTBEAT_FILE
  sleep $pause
done
"""

    def test_a_worker_whose_steps_fall_behind_is_named_everywhere(self):
        nodes = [self.node("--nnodes=2", "--nproc-per-node=2", "--rdzv-id=job", "--vitals=0.2",
                           command=("--no-python", "sh", "-c", self.COUNTING)) for _ in range(2)]
        run = self.until_shown(lambda run: run["slow"], "a slow worker")
        self.assertEqual([(one["rank"], one["host"]) for one in run["slow"]], [(3, run["nodes"][1]["host"])])
        line = rf"slow: rank 3 \({run['nodes'][1]['host']}\) is .* behind: it is at step \d+, the others at \d+"
        self.assertRegex(self.ddpctl("status", f"127.0.0.1:{self.port}"), line)
        self.assertRegex(self.ddpctl("ranks", f"127.0.0.1:{self.port}"), r"(?m)^3 +\S+ +slow[ ,]")
        self.until_shown(lambda run: run["slowest"], "the slowest of the run")
        self.assert_all_succeed(*nodes)
        for node in nodes:
            self.assertRegex(node.log, r"rank 3 \(\S+\) was the slowest: behind for .* of .* of training, by up to .*")


    def test_a_run_of_one_node_names_it_while_it_runs_and_at_its_end(self):
        node = self.node("--standalone", "--nproc-per-node=4", "--vitals=0.2", "--hang-timeout=600", backend="static",
                         command=("--no-python", "sh", "-c", self.COUNTING + "[ $RANK != 1 ]"))
        behind = r"rank 3 is .* behind: it is at step \d+, the others at \d+\n"
        wait_until(lambda: re.search(behind, node.log), "rank 3 is named")
        self.go()
        self.assertEqual(node.ends(), 1, node.log)
        slowest = r"rank 3 was the slowest: behind for .* of .* of training, by up to .*"
        self.assertRegex(node.log, r"  pace: " + slowest)
        report = next(self.path.glob("logs/*/report.json"))
        self.assertRegex(json.loads(report.read_text())["slowest"], slowest)
        self.assertEqual(len(re.findall("rank . is .* behind", node.log)), 1, node.log)


class SecretPagesTest(PagesCase):
    def test_ddpctl_shows_the_secret_and_the_empty_page_is_open(self):
        path = self.secret_file()
        self.two_nodes(f"--rdzv-secret-file={path}")
        self.assertIn("job: training", self.ddpctl("status", f"--secret-file={path}", f"127.0.0.1:{self.port}"))
        self.assertIn("job: training", self.ddpctl("status", f"127.0.0.1:{self.port}", DDPRUN_SECRET=SECRET))
        self.assertIn("<title>ddprun</title>", self.page("/")[1])

    def test_a_stranger_needs_the_token(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, to be another user")
        path = self.secret_file()
        self.two_nodes(f"--rdzv-secret-file={path}")
        token = self.ddpctl("page-token", str(path)).strip()
        wrong = ("x" if token[0] != "x" else "y") + token[1:]
        for path, code in (("/", 200), ("/healthz", 200)):
            self.assertTrue(self.as_stranger(path).startswith(f"HTTP/1.1 {code} "), path)
        for path, code in (("/status", 200), ("/metrics", 200), ("/timeline", 200), ("/timeline/job", 200),
                           ("/timeline/other", 404), ("/stacks/job", 200), ("/stacks/other", 404), ("/nothing", 404)):
            with self.subTest(path=path):
                for given in ("", wrong, token[:-1], token + "x"):
                    shown = self.as_stranger(path, given)
                    self.assertTrue(shown.startswith("HTTP/1.1 401 "), shown)
                    self.assertNotIn("job", shown)
                self.assertTrue(self.as_stranger(path, token).startswith(f"HTTP/1.1 {code} "))
        self.assertTrue(self.as_stranger("/stacks/job", method="PUT").startswith("HTTP/1.1 401 "))
        self.assertTrue(self.as_stranger("/status", token, method="PUT").startswith("HTTP/1.1 405 "))

    def test_ddpctl_of_a_stranger_says_which_option_gives_the_secret(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, to be another user")
        self.two_nodes(f"--rdzv-secret-file={self.secret_file()}")
        at = f"127.0.0.1:{self.port}"
        self.assertEqual(self.ddpctl_as_stranger("status", at),
                         f"ddpctl: {at} says 401: it shows this to some only: give the secret of the run "
                         "(--secret-file FILE or $DDPRUN_SECRET), or ask as the user who runs it, on its machine\n")
        said = self.ddpctl_as_stranger("status", at, DDPRUN_SECRET="that of another run")
        self.assertIn("the secret given (--secret-file, $DDPRUN_SECRET) is not that of the run", said)

    def test_without_a_secret_a_stranger_sees_the_timeline_and_no_stacks(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, to be another user")
        self.two_nodes()
        shown = self.as_stranger("/timeline/job")
        self.assertTrue(shown.startswith("HTTP/1.1 200 "), shown)
        self.assertNotIn(str(self.path), shown)
        for method in ("GET", "PUT"):
            self.assertTrue(self.as_stranger("/stacks/job", method=method).startswith("HTTP/1.1 401 "))


class MetricsTest(PagesCase):
    def test_the_metrics_name_what_the_rules_and_the_dashboard_use(self):
        self.two_nodes()
        self.make_fail(1, 0, 7)
        self.until_shown(lambda run: run["state"] == "training" and run["round"] == 1, "the second round")
        kind, text = self.page("/metrics")
        self.assertEqual(kind, "text/plain; version=0.0.4")
        self.assertIn('\nddprun_restarts_total{run="job",cause="failed"} 1\n', text)
        self.assertIn('\nddprun_workers{run="job",state="training"} 4\n', text)
        kind, opened = self.page("/metrics", Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        self.assertTrue(kind.startswith("application/openmetrics-text; version=1.0.0"), kind)
        self.assertTrue(opened.endswith("\n# EOF\n"))
        self.assertIn("\n# TYPE ddprun_restarts counter\n", opened)
        names = set(re.findall(r"(?m)^# TYPE (\S+)", text))
        for path in ("alerts.yml", "dashboard.json"):
            used = set(re.findall(r"\bddprun_\w+", (ROOT / "scripts/monitoring" / path).read_text()))
            self.assertEqual(used - names, set(), path)
        json.loads((ROOT / "scripts/monitoring/dashboard.json").read_text())

    def test_promtool_finds_no_fault(self):
        promtool = tool("promtool")
        self.two_nodes()
        text = self.page("/metrics")[1]
        checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        rules = subprocess.run([promtool, "check", "rules", ROOT / "scripts/monitoring/alerts.yml"], capture_output=True,
                               text=True, timeout=LIMIT)
        self.assertEqual(rules.returncode, 0, rules.stdout + rules.stderr)


    def query(self, port, expression):
        """What Prometheus has: label sets with values.  Nothing while it does not answer."""
        url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url, timeout=LIMIT) as page:
                answer = json.load(page)
        except (OSError, ValueError):
            return []
        return [(series["metric"], series["value"][1]) for series in answer["data"]["result"]]

    def test_a_real_prometheus_scrapes_a_run(self):
        prometheus, port = tool("prometheus"), free_port()
        self.two_nodes()
        self.make_fail(1, 0, 7)
        self.until_shown(lambda run: run["state"] == "training" and run["round"] == 1, "the second round")
        config = self.path / "prometheus.yml"
        config.write_text(f"""
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
rule_files: ["{ROOT}/scripts/monitoring/alerts.yml"]
scrape_configs:
- {{job_name: ddprun, static_configs: [{{targets: ["127.0.0.1:{self.port}"]}}]}}
""")
        log = open(self.path / "prometheus.log", "w")
        self.addCleanup(log.close)
        server = subprocess.Popen([prometheus, f"--config.file={config}", f"--storage.tsdb.path={self.path / 'tsdb'}",
                                   f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT)
        self.addCleanup(lambda: (server.kill(), server.wait()))

        def until(expression, labels, value):
            def has_it():
                return any(value == shown and labels.items() <= metric.items()
                           for metric, shown in self.query(port, expression))
            try:
                wait_until(has_it, f"{expression} is {value} for {labels}")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{(self.path / 'prometheus.log').read_text()}") from None
        until("ddprun_world_size", {"run": "job"}, "4")
        until("ddprun_restarts_total", {"run": "job", "cause": "failed"}, "1")
        until("ddprun_restarts_total", {"run": "job", "cause": "lost"}, "0")
        until("up", {"job": "ddprun"}, "1")


class BrowserTest(PagesCase):
    """The page in a headless Chromium."""

    def browser(self, **options):
        browser = Browser(tool("chromium"), self.path / "chromium", **options)
        self.addCleanup(browser.close)
        return browser

    def until_page(self, browser, expression, what):
        """As wait_until(); should it be in vain, the page's text says why."""
        try:
            wait_until(lambda: browser.value(expression), what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{browser.value('document.body.innerText')}") from None

    def test_the_page_follows_a_run_and_needs_no_mouse(self):
        browser = self.browser()
        self.two_nodes()
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.until_page(browser, "document.body && document.body.dataset.ranks === '4'", "the page shows 4 ranks")
        text = browser.value("document.body.innerText")
        self.assertIn("job: training, round 0, 4 workers on 2 nodes", text)
        self.assertIn("training 4", text)
        self.until_page(browser, "document.getElementById('chosen').innerText.includes('CPU')", "the page shows vitals")
        browser.value("document.getElementById('grid').focus()")
        browser.press("ArrowDown")
        chosen = browser.value("document.getElementById('chosen').innerText")
        self.assertIn("Rank 2 (local rank 0)", chosen)
        self.assertIn(f"{self.path}/logs/job_", chosen)
        self.assertEqual(browser.value("document.body.dataset.follows"), "true")
        # The page is not loaded again.
        browser.value("window.isTheSame = true")
        self.make_fail(1, 0, 7)
        self.until_page(browser, "document.getElementById('summary').innerText.includes('round 1')", "the page shows round 1")
        self.assertRegex(browser.value("document.getElementById('failures').innerText"),
                         r"attempt 0: rank 1 \(local rank 1, pid \d+\) on \S+ exited with code 7")
        (self.path / "go").touch()
        self.until_page(browser, "document.getElementById('live').className === 'bad'", "the page says that the host is gone")
        self.assertTrue(browser.value("window.isTheSame"))

    def show_changed(self, browser, change):
        """The page shows what it has, once `change` has changed it: statements about `run`.  Then it takes no more."""
        browser.value("(() => { window.take = () => {}; const run = page.runs[0]; " + change + "; show(); })()")

    def text_of(self, browser, name):
        return browser.value(f"document.getElementById('{name}').innerText")

    def until_vitals(self, browser, count=2):
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.until_page(browser, f"typeof page === 'object' && page?.runs[0]?.nodes.length === 2 && page.runs[0].nodes.every(node => "
                                 f"node.vitals?.length === {count})", "vitals of all workers")

    def test_the_page_says_once_for_whom_a_run_waits(self):
        browser = self.browser()
        self.node("--nnodes=2", "--nproc-per-node=2", "--rdzv-id=job")
        wait_until(self.is_hosted, "the agent listens")
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.until_page(browser, "document.body && document.body.innerText.includes('waiting for nodes: 1 of 2 joined')",
                        "the page says who waits")
        self.assertEqual(browser.value("document.body.innerText.split('waiting for nodes').length"), 2)
        self.assertIn("waiting for nodes: 1 of 2 joined", self.text_of(browser, "missing"))

    def test_the_page_says_who_has_not_come_once_somebody_has(self):
        browser = self.browser()
        self.two_nodes()
        self.until_vitals(browser)
        # The workers do not use torch.
        self.assertTrue(browser.value("document.getElementById('missing').hidden"))
        self.assertIn("no worker has come to the workers' store yet (init_process_group)", self.text_of(browser, "summary"))
        # Rank 0 has come, and rank 2 has ended.
        self.show_changed(browser, """
          const workers = run.nodes.flatMap(node => node.vitals);
          run.nodes[1].host = "node7";
          workers[2].process = "-";
          run.workers_store = { waiting: [], expected: { missing_count: 3, missing: [1, 2, 3].map(rank =>
            ({ name: `rank ${rank}`, host: "127.0.0.1", pid: workers[rank].pid })) } }""")
        self.assertRegex(self.text_of(browser, "missing"),
                         r"^Who has not come\s+rank 1 \(pid \d+ on (?!127)\S+\) has not connected\s+"
                         r"rank 3 \(pid \d+ on node7\) has not connected$")
        self.assertNotIn("no worker has come", self.text_of(browser, "summary"))
        self.show_changed(browser, """
          run.workers_store = null;
          page.expected = { announced: 512, missing_count: 500, missing: Array.from({ length: 60 }, (_, n) =>
            ({ name: `rank ${100 + 2 * n}`, host: "127.0.0.1", pid: n })) }""")
        self.assertRegex(self.text_of(browser, "missing"), r"\s500 of 512 workers have not connected, among them rank 100, "
                                                           r"rank 102, rank 104, rank 106$")

    def test_a_worker_that_has_ended_is_shown_so(self):
        browser = self.browser()
        self.two_nodes()
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.make_fail(1, 0, 0)
        self.until_page(browser, "document.getElementById('legend')?.innerText.includes('ended 1')", "that one has ended")
        self.assertIn("training 3", self.text_of(browser, "legend"))
        browser.value("choose(1)")
        self.assertRegex(self.text_of(browser, "chosen"), r"state\s+ended")

    def test_a_hang_is_explained_at_the_first_look(self):
        browser = self.browser()
        for _ in range(2):
            self.node("--nnodes=2", "--nproc-per-node=2", "--rdzv-id=job", "--vitals=0.2",
                      command=("--no-python", "sleep", "1000"))
        self.until_shown(lambda run: self.has_vitals(run) and all(
            worker["still_s"] is not None for node in run["nodes"] for worker in node["vitals"]), "that all do nothing")
        self.until_vitals(browser)
        self.assertGreater(browser.value("Math.min(...page.runs[0].nodes.flatMap(node => node.vitals.map(one => one.still_s)))"), 9)
        still = "run.nodes.flatMap(node => node.vitals).forEach((worker, rank) => { worker.still_s = 46 + rank; })"
        self.show_changed(browser, still)
        said = f"no rank has done anything for 46 s: `ddpctl stacks 127.0.0.1:{self.port}` says where they are"
        self.assertIn(said, self.text_of(browser, "summary"))
        self.assertIn("still 4", self.text_of(browser, "legend"))
        # One that has ended does nothing any more; of one that works there is no such line.
        self.show_changed(browser, "Object.assign(run.nodes[0].vitals[0], { process: '-', still_s: null })")
        self.assertIn("no rank has done anything for 47 s", self.text_of(browser, "summary"))
        self.show_changed(browser, "run.nodes[0].vitals[1].still_s = null")
        self.assertNotIn("no rank has done anything", self.text_of(browser, "summary"))

    def test_every_rank_is_on_the_page_at_any_width(self):
        browser = self.browser()
        self.two_nodes()
        self.until_vitals(browser)
        browser.call("Emulation.setDeviceMetricsOverride", width=390, height=900, deviceScaleFactor=1, mobile=True)
        browser.value("""(() => {
          window.drawn = [];
          const draw = CanvasRenderingContext2D.prototype.fillText;
          CanvasRenderingContext2D.prototype.fillText = function(text, ...rest) {
            drawn.push(String(text));
            draw.call(this, text, ...rest);
          };
        })()""")
        self.show_changed(browser, """
          const node = run.nodes[0];
          const all = Array.from({ length: 8 }, (_, n) => ({ ...node, node: `id${n}`, host: n < 2 ? `n${n}` : "vm", workers: 64,
            is_host: n === 0, base_rank: 64 * n, group_rank: n, vitals: null }));
          run.nodes = all.slice(0, 7);
          run.lostNodes = [{ ...all[7], state: "lost", round: 0 }]""")
        outside = """(() => {
          const canvas = document.getElementById("grid"), places = new Set(cells.map(cell => `${cell.x} ${cell.y}`));
          const isInside = cell => cell.x >= 0 && cell.y >= 0 && cell.x + cellSize <= canvas.clientWidth &&
            cell.y + cellSize <= canvas.clientHeight;
          return cells.length - cells.filter(isInside).length + cells.length - places.size;
        })()"""
        for width in (390, 700, 1600):
            browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            self.until_page(browser, f"innerWidth === {width}", f"the page is {width} px wide")
            browser.value("show()")
            self.assertEqual(browser.value("cells.length"), 512)
            self.assertEqual(browser.value(outside), 0, width)
        browser.call("Emulation.setDeviceMetricsOverride", width=390, height=900, deviceScaleFactor=1, mobile=False)
        self.until_page(browser, "innerWidth === 390", "the page is 390 px wide")
        browser.value("show()")
        # The mouse and the keys reach the last one.
        browser.value("""(() => {
          const last = cells[511], canvas = document.getElementById("grid"), box = canvas.getBoundingClientRect();
          canvas.dispatchEvent(new MouseEvent("click", { clientX: box.x + last.x + 3, clientY: box.y + last.y + 3 }));
        })()""")
        self.assertEqual(browser.value("chosen"), 511)
        browser.value("document.getElementById('grid').focus()")
        browser.press("ArrowUp")
        self.assertEqual(browser.value("[cells[chosen].x === cells[511].x, cells[chosen].local < 63, cells[chosen].row]"),
                         [True, True, 7])
        # Nodes of the same host have their numbers.
        drawn = set(browser.value("drawn"))
        self.assertTrue({"n0 (host)", "n1", "vm #2", "vm #6", "vm #7 (lost)"} <= drawn, drawn)
        self.assertIn("lost 64", self.text_of(browser, "legend"))

    def test_the_page_says_of_rounds_and_curves_what_they_are(self):
        browser = self.browser()
        self.two_nodes()
        self.until_vitals(browser)
        self.make_fail(1, 0, 7)
        self.until_page(browser, "document.getElementById('summary').innerText.includes('round 1')", "the page shows round 1")
        self.assertRegex(self.text_of(browser, "stops"), r"round 0: rank 1 ")
        self.until_page(browser, "/CPU \\d+ %\\s+0 to \\d+ %, the last \\d/.test(document.getElementById('chosen').innerText)",
                        "the scale of the curve")
        chosen = self.text_of(browser, "chosen")
        self.assertRegex(chosen, r"memory [\d.]+ MiB\s+0 to [\d.]+ MiB, the last \d")
        self.assertEqual((chosen.count("CPU"), chosen.count("memory")), (1, 1))
        self.assertEqual(browser.value("[...document.querySelectorAll('#main section')].map(each => each.id || "
                                       "each.querySelector('h2')?.innerText).slice(0, 4)"),
                         ["summary", "failures", "missing", "Rounds"])

    def test_the_page_marks_ranks_that_stand_still(self):
        browser = self.browser()
        self.two_nodes()
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.until_page(browser, "document.body && document.body.dataset.ranks === '4'", "the page shows 4 ranks")
        self.until_page(browser, "page.runs[0]?.nodes.every(node => node.vitals?.length === 2)", "vitals")
        self.show_changed(browser, """
          const workers = run.nodes.flatMap(node => node.vitals);
          for (const worker of workers) Object.assign(worker, { process: "S", still_s: null });
          workers[0].still_s = 40;
          workers[1].still_s = 20""")
        self.assertRegex(browser.value("document.getElementById('legend').innerText"), r"(?s)training 3.*still 1")
        self.assertRegex(browser.value("document.getElementById('chosen').innerText"),
                         r"still for 40 s: next to no CPU time\n(.*\n)*output\nnot seen, it goes past ddprun")

    def test_the_page_shows_a_lost_node_until_the_next_round(self):
        browser = self.browser()
        nodes = [self.node("--nnodes=2", "--nproc-per-node=2", "--rdzv-id=job", "--vitals=0.2") for _ in range(2)]
        self.until_started(4)
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.until_page(browser, "document.body && document.body.dataset.ranks === '4'", "the page shows 4 ranks")
        nodes[1].process.kill()
        self.until_page(browser, "document.getElementById('legend').innerText.includes('lost 2')", "the page shows what is lost")
        self.assertEqual(browser.value("document.body.dataset.ranks"), "4")
        # One that is opened afterwards, too.
        self.until_page(browser, "document.getElementById('summary').innerText.includes('waiting')", "the page waits")
        browser.open("about:blank")
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.until_page(browser, "document.getElementById('legend')?.innerText.includes('lost 2')", "it shows what is lost")
        self.assertRegex(self.text_of(browser, "summary"), r"^job: waiting, after round 0, for ")
        browser.value("choose(3)")
        chosen = browser.value("document.getElementById('chosen').innerText")
        self.assertIn("Rank 3 (local rank 1), as it was in round 0", chosen)
        self.assertRegex(chosen, r"state\s+lost")
        # Another one comes, and the next round begins: what is lost goes after a moment.
        self.node("--nnodes=2", "--nproc-per-node=2", "--rdzv-id=job", "--vitals=0.2")
        self.until_page(browser, "document.getElementById('summary').innerText.includes('round 1')", "the page shows round 1")
        self.until_page(browser, "document.body.dataset.ranks === '4'", "the page shows the ranks of round 1 only")
        self.assertNotIn("lost", browser.value("document.getElementById('legend').innerText"))

    def test_the_page_asks_again_and_again_where_it_cannot_follow(self):
        browser = self.browser()
        self.two_nodes()
        for follower in self.followers(33):
            self.addCleanup(follower.close)
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.until_page(browser, "document.body && document.body.dataset.ranks === '4'", "the page shows 4 ranks")
        self.assertEqual(browser.value("document.body.dataset.follows"), "false")
        self.make_fail(1, 0, 7)
        self.until_page(browser, "document.getElementById('summary').innerText.includes('round 1')", "the page shows round 1")
        self.assertEqual(browser.value("document.body.dataset.follows"), "false")

    def test_what_the_reader_has_marked_stays(self):
        browser = self.browser()
        self.two_nodes()
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.make_fail(1, 0, 7)
        self.until_page(browser, "document.getElementById('summary')?.innerText.includes('round 1')", "round 1")
        self.until_page(browser, "page.runs[0].nodes.every(node => node.vitals?.length === 2)", "vitals")
        browser.value("""(() => {
          for (const box of ["chosen", "failures"]) window[box + "Before"] = document.getElementById(box).children[1];
          const pid = [...document.querySelectorAll("#chosen dd")].find(each => /^\\d+$/.test(each.textContent));
          getSelection().selectAllChildren(pid);
          window.seen = String(getSelection());
          window.shown = page.time;
        })()""")
        self.until_page(browser, "page.time > window.shown + 1", "later looks")
        self.assertTrue(browser.value("window.seen === String(getSelection()) && window.seen.length > 0"))
        self.assertTrue(browser.value("chosenBefore.isConnected && failuresBefore.isConnected"))

    def test_a_failure_marks_its_rank_in_its_own_stop_only(self):
        browser = self.browser()
        self.two_nodes()
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.make_fail(1, 0, 7)
        self.until_page(browser, "document.getElementById('summary')?.innerText.includes('round 1')", "round 1")
        states = """(cause => {
          window.take = () => {};  // this is what it shows from now on
          const run = page.runs[0];
          run.state = "stopping";
          run.history.push({ what: "stop", cause, why: "", time: page.time, round: 1 });
          show();
          return cells.map(cell => cell.state);
        })"""
        self.assertEqual(browser.value(states + '("failed")').count("failed"), 1)
        self.assertNotIn("failed", browser.value(states + '("joined")'))

    def test_the_failures_of_a_run_that_is_over_can_be_opened(self):
        browser = self.browser()
        self.two_nodes()
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.make_fail(1, 0, 7)
        self.until_page(browser, "document.getElementById('summary')?.innerText.includes('round 1')", "round 1")
        browser.value("""(() => {
          window.take = () => {};  // this is what it shows from now on
          page.ended = [{ run: "before", exit_code: 7, ago_s: 3, failures: page.runs[0].failures }];
          show();
          document.querySelector("#ended summary").click();
          page.ended[0].ago_s = 4;
          show();
        })()""")
        self.assertTrue(browser.value("document.querySelector('#ended details').open"))
        self.assertRegex(browser.value("document.getElementById('ended').innerText"),
                         r"before: exit code 7, 4.0 s ago: rank 1 .*\n(.*\n)?.*attempt 0: rank 1 .*\nlogs: ")

    def test_the_page_says_what_it_leaves_out(self):
        browser = self.browser()
        self.two_nodes()
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.until_page(browser, "document.body && document.body.dataset.ranks === '4'", "the page shows 4 ranks")
        self.assertNotIn("on this page", browser.value("document.body.innerText"))
        browser.value("""(() => {
          window.take = () => {};  // this is what it shows from now on
          page.more_runs = 89;
          page.runs[0].more_nodes = 4;
          show();
        })()""")
        self.assertEqual(browser.value("document.getElementById('runs').innerText"), "1 run of 90 on this page; 89 more")
        summary = browser.value("document.getElementById('summary').innerText")
        self.assertIn("2 nodes of 6 on this page; 4 more", summary)
        self.assertNotIn("on 2 nodes", summary)

    def test_thousands_of_ranks_are_drawn_at_once_at_any_width(self):
        browser = self.browser()
        self.two_nodes()
        browser.open(f"http://127.0.0.1:{self.port}/")
        self.until_page(browser, "document.body && document.body.dataset.ranks === '4'", "the page shows 4 ranks")
        browser.value("""(() => {
          const run = page.runs[0], node = run.nodes[0];
          const vitals = Array.from({length: 8}, (_, local) => ({...node.vitals?.[0], local_rank: local, process: "R"}));
          run.nodes = Array.from({length: 1000}, (_, n) =>
            ({...node, host: `n${n}`, workers: 8, base_rank: 8 * n, group_rank: n, vitals}));
          window.take = () => {};  // this is what it shows from now on
          show();
        })()""")
        self.assertEqual(browser.value("document.body.dataset.ranks"), "8000")
        # The best of a few: other programs run, too.
        least = min(float(browser.value("(show(), document.body.dataset.drawnInMs)")) for _ in range(10))
        print(f"8000 ranks: {least} ms", file=sys.stderr)
        self.assertLess(least, 100)
        for width in (390, 1600):
            browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            self.until_page(browser, f"innerWidth === {width}", f"the page is {width} px wide")
            wider = "document.documentElement.scrollWidth > innerWidth"
            self.until_page(browser, f"(show(), !({wider}))", f"nothing is wider than {width} px")


if __name__ == "__main__":
    unittest.main(verbosity=2)
