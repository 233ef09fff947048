# SPDX-License-Identifier: BSD-3-Clause
"""A run of one node shows itself as one of several nodes does, at a port of its own."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import unittest

from nodes import DDPRUN, LIMIT, environment, wait_until
from pages_test import SECRET, PagesCase, tool
from stacks_test import PY_SPY

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir, "support"))

from browser import Browser  # noqa: E402
from free_port import free_port  # noqa: E402

PAGE = r" page=http://(127\.0\.0\.1|localhost|\S+):(\d+)/\n"


class SingleNodeCase(PagesCase):
    def begin(self, *options, **extra):
        """A run of four workers, and where it shows itself."""
        node = self.node("--standalone", "--nproc-per-node=4", "--max-restarts=3", "--vitals=0.2", *options,
                         backend="static", **extra)
        self.until_started(4)
        self.until(lambda: " master=" in node.log, "the agent says that the workers run")
        found = re.search(PAGE, node.log)
        self.port = int(found[2]) if found else None
        self.endpoint = f"127.0.0.1:{self.port}"
        return node

    @staticmethod
    def has_vitals(run):
        return len(run["nodes"][0]["vitals"] or []) == 4


class SingleNodePagesTest(SingleNodeCase):
    def test_a_run_is_shown_from_its_start_through_a_restart(self):
        node = self.begin()
        run = self.until_shown(self.has_vitals, "vitals of all workers")
        self.assertEqual((run["state"], run["round"], run["world_size"]), ("training", 0, 4))
        self.assertEqual((run["nodes"][0]["host"], run["nodes"][0]["agent_pid"]), (socket.gethostname(), node.process.pid))
        pids = {int(re.search(r"pid (\d+)", line)[1]) for line in self.started}
        self.assertEqual({worker["pid"] for worker in run["nodes"][0]["vitals"]}, pids)
        self.assertIn("logs/", run["nodes"][0]["log_folder"])
        self.make_fail(1, 0, 7)
        run = self.until_shown(lambda run: run["state"] == "training" and run["round"] == 1, "the second round")
        self.assertEqual((run["restart_count"], run["max_restarts"], run["stops"]), (1, 3, {"failed": 1}))
        self.assertEqual((run["failures"][0]["rank"], run["failures"][0]["exit_code"]), (1, 7))
        self.assertEqual([event["what"] for event in run["history"]], ["round", "stop", "round"])
        self.assertEqual(run["time"].keys(), {"waiting", "starting", "training", "stopping"})
        name = run["run"]
        status = self.ddpctl("status", self.endpoint)
        self.assertRegex(status, rf"(?m)^{name}: training, round 1, 4 workers on 1 node, for ")
        self.assertRegex(self.ddpctl("nodes", self.endpoint), rf"(?m)^0 +{socket.gethostname()} ")
        self.assertRegex(self.ddpctl("report", self.endpoint), rf"{name}, attempt 0: rank 1 exited with code 7")
        explained = self.ddpctl("explain", self.endpoint)
        self.assertRegex(explained, "a worker failed, which costs one restart")
        self.assertRegex(explained, "rank 1 exited with code 7")
        self.assertIn('"round 1"', self.ddpctl("timeline", self.endpoint))
        self.until_shown(self.has_vitals, "vitals of the new workers")
        ranks = json.loads(self.ddpctl("ranks", "--json", self.endpoint))[0]["ranks"]
        self.assertEqual([rank["rank"] for rank in ranks], [0, 1, 2, 3])
        waits = self.ddpctl("waits", self.endpoint)
        self.assertRegex(waits, r"(?m)^rank 3 \(pid \d+ on \S+\) has not connected$")
        self.assertEqual(self.page("/healthz")[1], "ok\n")
        self.assertIn("<title>ddprun</title>", self.page("/")[1])
        self.assertEqual(len(re.findall(" page=", node.log)), 1)  # it stays where it was
        self.assert_all_succeed(node)
        self.assertRegex(self.ddpctl("status", self.endpoint, code=1), "refused")

    def test_who_follows_sees_what_happens_until_the_end(self):
        node = self.begin()
        watch = subprocess.Popen([self.ddpctl_path(), "watch", "--json", self.endpoint], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: watch.poll() is None and (watch.kill(), watch.wait()))
        self.assertEqual(json.loads(watch.stdout.readline())["runs"][0]["state"], "training")
        (follower,) = self.followers(1)
        self.addCleanup(follower.close)
        lines = follower.makefile("rb")
        self.addCleanup(lines.close)

        def next_run():
            while line := lines.readline():
                if line.startswith(b"data: "):
                    return json.loads(line.removeprefix(b"data: "))["runs"][0]
            return None
        self.assertEqual(next_run()["round"], 0)
        self.make_fail(1, 0, 7)
        while (run := next_run()) and run["round"] == 0:
            pass
        self.assertEqual(run["restart_count"], 1)
        self.assert_all_succeed(node)
        while next_run():
            pass
        _, said = watch.communicate(timeout=LIMIT)
        self.assertEqual(watch.returncode, 1, said)
        self.assertIn("answers no more: the run may be over", said)

    @staticmethod
    def ddpctl_path():
        return os.path.join(os.path.dirname(DDPRUN), "ddpctl")

    def test_stacks_and_files_are_asked_for(self):
        tools = self.path / "tools"
        tools.mkdir()
        (tools / "py-spy").write_text(PY_SPY)
        (tools / "py-spy").chmod(0o755)
        self.begin("--redirects=3", PATH=f"{tools}:{os.environ['PATH']}")
        self.assertEqual(self.ddpctl("stacks", self.endpoint).splitlines()[:2],
                         ["ranks 0-2: all_reduce at train.py:118", "rank 3: read() at data.py:40"])
        self.until_shown(self.has_vitals, "vitals")
        bundle = self.path / "b.tar.gz"
        self.ddpctl("bundle", "-o", str(bundle), self.endpoint)
        listed = self.ddpctl("bundle", "--show", str(bundle))
        self.assertRegex(listed, r"(?m) run/stacks.json$")
        self.assertRegex(listed, rf"(?m) nodes/0-{socket.gethostname()}/.*/stdout.log$")

    def test_the_metrics_agree_with_the_report(self):
        node = self.begin()
        self.make_fail(1, 0, 7)
        self.until_shown(lambda run: run["state"] == "training" and run["round"] == 1, "the second round")
        text = self.page("/metrics")[1]
        name = self.run_shown()["run"]

        def value(line):
            return float(re.search(rf"(?m)^{re.escape(line)} ([\d.]+)$", text)[1])
        self.assertEqual(value(f'ddprun_workers{{run="{name}",state="training"}}'), 4)
        self.assertEqual(value(f'ddprun_restarts_total{{run="{name}",cause="failed"}}'), 1)
        self.assertLess(value(f'ddprun_node_silence_seconds{{run="{name}"}}'), 0.1)
        self.assert_all_succeed(node)
        time = json.loads(next(self.path.glob("logs/*/report.json")).read_text())["time"]
        # Training went on after these were read, and stops and starts are over.
        self.assertLessEqual(value(f'ddprun_time_seconds_total{{run="{name}",phase="training"}}'), time["training"] + 0.05)
        for phase in ("starting", "waiting"):
            self.assertAlmostEqual(value(f'ddprun_time_seconds_total{{run="{name}",phase="{phase}"}}'), time[phase],
                                   delta=0.05, msg=phase)
        self.assertAlmostEqual(value(f'ddprun_restarting_seconds_total{{run="{name}",cause="failed"}}'),
                               time["restarts"][0]["cost"], delta=0.05)
        self.assertEqual(value(f'ddprun_restarting_seconds_total{{run="{name}",cause="lost"}}'), 0)

    def test_it_is_found_by_its_user_without_a_place(self):
        self.begin()
        name = self.run_shown()["run"]
        self.assertRegex(self.ddpctl("status", f"--run={name}"), rf"^{name}: training, round 0, 4 workers on 1 node")
        self.assertEqual(json.loads(self.ddpctl("ranks", "--json", f"--run={name}"))[0]["run"], name)
        self.assertRegex(self.ddpctl("status", "--run=none-such", code=2),
                         "^ddpctl: no run 'none-such' of this user shows itself on this machine; name where it does")
        self.assertIn('"round 0"', self.ddpctl("timeline", f"--run={name}"))
        bundle = self.path / "own.tar.gz"
        self.assertRegex(self.ddpctl("bundle", f"--run={name}", "-o", str(bundle)), rf"^{bundle}: \d+ files, ")
        self.assertRegex(self.ddpctl("bundle", "--show", str(bundle)), r"(?m) run/timeline.json$")
        other = self.node("--standalone", "--nproc-per-node=1", backend="static")
        other.says(" page=")
        said = self.ddpctl("status", code=2)  # other tests may have runs, too
        self.assertRegex(said, r"^ddpctl: runs of this user show themselves at \d+ places on this machine, name one: ")

    def test_promtool_finds_no_fault(self):
        promtool = tool("promtool")
        self.begin()
        checked = subprocess.run([promtool, "check", "metrics"], input=self.page("/metrics")[1], capture_output=True,
                                 text=True, timeout=LIMIT)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))

    def test_the_page_in_a_browser(self):
        browser = Browser(tool("chromium"), self.path / "chromium")
        self.addCleanup(browser.close)
        self.begin()
        browser.open(f"http://{self.endpoint}/")

        def until(condition, what):
            wait_until(lambda: browser.value(f"!!({condition})"), what)
        until("document.body && document.body.dataset.ranks === '4'", "the page shows 4 ranks")
        until("document.body.dataset.follows === 'true'", "it follows")
        self.make_fail(1, 0, 7)
        until("document.getElementById('summary').innerText.includes('round 1')", "the page shows round 1")
        self.assertIn("training 4", browser.value("document.getElementById('legend').innerText"))


class SingleNodeOptionsTest(SingleNodeCase):
    def test_without_pages_there_is_no_port(self):
        node = self.begin("--page=none")
        self.assertIsNone(self.port)
        self.assert_all_succeed(node)

    def test_a_port_and_an_address_of_the_users_own(self):
        port = free_port()
        node = self.begin(f"--page={port}")
        self.assertEqual(self.port, port)
        self.assertEqual(self.run_shown()["state"], "training")
        # Another run there has no page, and trains all the same.
        other = subprocess.run([DDPRUN, f"--page={port}", "--no-python", "true"], capture_output=True, text=True,
                               env=environment(), timeout=LIMIT)
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertRegex(other.stderr, rf"this run has no page: bind 127.0.0.1:{port}: Address already in use\n")
        self.assertNotIn("page=", other.stderr)
        self.assert_all_succeed(node)

    def test_what_is_no_place_is_refused(self):
        for place in ("", "x", "here:80", "1.2.3.4:x", "99999", "-1"):
            run = subprocess.run([DDPRUN, f"--page={place}", "--no-python", "true"], capture_output=True, text=True,
                                 env=environment(), timeout=LIMIT)
            self.assertEqual(run.returncode, 2, place)
            self.assertRegex(run.stderr, rf"^ddprun: --page='{place}' is not a port, a numeric address and a port, or none\n$")

    def test_several_nodes_show_themselves_where_they_meet(self):
        run = subprocess.run([DDPRUN, "--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{self.port}",
                              "--rdzv-conf=last_call_timeout=0.1", "--page=1", "--no-python", "true"],
                             capture_output=True, text=True, env=environment(), timeout=LIMIT)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("--page has no effect with several nodes, whose host shows the run where they meet", run.stderr)
        self.assertNotIn("page=http", run.stderr)

    def test_with_a_secret_others_need_its_token(self):
        path = self.secret_file()
        self.begin("--page=127.0.0.1:0", f"--rdzv-secret-file={path}")
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, to be another user")
        token = self.ddpctl("page-token", str(path)).strip()
        self.assertTrue(self.as_stranger("/status").startswith("HTTP/1.1 401 "))
        self.assertTrue(self.as_stranger("/status", token).startswith("HTTP/1.1 200 "))
        self.assertEqual(self.ddpctl("page-token", str(path), DDPRUN_SECRET=SECRET).strip(), token)

    def test_other_users_come_in_only_where_an_address_is_given(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, to be another user")
        node = self.begin()
        try:
            shown = self.as_stranger("/status")
        except subprocess.CalledProcessError:  # the connection is reset
            shown = ""
        self.assertEqual(shown, "")
        node.says("the page: refused a process of user 54321 on this machine")
        (self.path / "go").touch()
        self.assertEqual(node.ends(), 0)
        for name in ("go", "started"):
            (self.path / name).unlink()
        self.count = 0  # this one does not wait for it
        self.begin("--page=127.0.0.1:0", "--share-last-lines", "--tee=3")
        shown = self.as_stranger("/status")
        self.assertTrue(shown.startswith("HTTP/1.1 200 "), shown)
        self.assertIn('"training"', shown)
        self.assertNotIn(str(self.path), shown)
        self.assertTrue(self.as_stranger("/stacks/x", method="PUT").startswith("HTTP/1.1 401 "))

    def test_it_is_no_store(self):
        self.begin()
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT) as client:
            client.sendall(b"\x00\x85\x6b\x3c\x3c" + b"\x00" * 8)  # VALIDATE, as a client of c10d begins
            self.assertEqual(client.recv(1), b"")


class SingleNodeFaultsTest(SingleNodeCase):
    def test_workers_do_not_inherit_the_port(self):
        node = self.begin()
        self.make_fail(1, 0, 7)  # those of a restart are started after it was opened
        self.until_shown(lambda run: run["state"] == "training" and run["round"] == 1, "the second round")
        listening = {link for link in self.sockets_of(node.process.pid) if self.port_of(link) == self.port}
        self.assertEqual(len(listening), 1)
        run = self.until_shown(self.has_vitals, "vitals of the new workers")
        for worker in run["nodes"][0]["vitals"]:
            self.assertEqual(self.sockets_of(worker["pid"]) & listening, set())

    @staticmethod
    def sockets_of(pid):
        found = set()
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                link = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if link.startswith("socket:["):
                found.add(link.removeprefix("socket:[").removesuffix("]"))
        return found

    @staticmethod
    def port_of(inode):
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] == inode and fields[3] == "0A":
                return int(fields[1].split(":")[1], 16)
        return None

    def test_a_signal_ends_it_with_the_run(self):
        node = self.begin()
        node.signal(signal.SIGTERM)
        self.assertEqual(node.ends(), 128 + signal.SIGTERM)
        with socket.socket() as probe:
            self.assertNotEqual(probe.connect_ex(("127.0.0.1", self.port)), 0)

    def test_a_killed_agent_leaves_no_port(self):
        node = self.begin()
        node.process.kill()
        node.process.wait()

        def is_free():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) != 0
        wait_until(is_free, "nothing listens there")


if __name__ == "__main__":
    unittest.main(verbosity=2)
