# SPDX-License-Identifier: BSD-3-Clause
"""timeline.json and `ddpctl timeline`: a run with a restart, its host killed, one node."""

import json
import os
import re
import subprocess
import unittest

from nodes import DDPRUN, LIMIT, NodesCase, environment, kill, wait_until

DDPCTL = os.path.join(os.path.dirname(DDPRUN), "ddpctl")


class TimelineTest(NodesCase):
    def ddpctl(self, *arguments, code=0):
        run = subprocess.run([DDPCTL, "timeline", *map(str, arguments)], env=environment(), capture_output=True,
                             text=True, stdin=subprocess.DEVNULL, timeout=LIMIT)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout if code == 0 else run.stderr

    def two_nodes(self):
        nodes = [self.node("--nnodes=2", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-id=job") for _ in range(2)]
        self.until_started(4)
        return nodes

    @staticmethod
    def spans(events):
        """(process, thread) -> the names of what began there; each that ended has a time that is not negative."""
        names = {}
        opened = {}
        for event in events:
            place = (event["pid"], event.get("tid"))
            if event["ph"] == "B":
                names.setdefault(place, []).append(event["name"])
                opened[place] = event
            elif event["ph"] == "E":
                assert event["ts"] >= opened.pop(place)["ts"], event
        return names

    def test_a_run_with_a_restart(self):
        nodes = self.two_nodes()
        self.make_fail(3, 0, 7)
        self.until_started(8)
        page = json.loads(self.ddpctl(f"127.0.0.1:{self.port}"))
        self.assertEqual(json.loads(self.ddpctl("--run=job", f"127.0.0.1:{self.port}")), page)
        self.assertEqual(self.ddpctl("--run=other", f"127.0.0.1:{self.port}", code=2).count("\n"), 1)
        self.assert_all_succeed(*nodes)
        files = list(self.path.glob("logs/*/timeline.json"))
        self.assertEqual(len(files), 1, "the node that hosts writes it, and no other")
        events = json.loads(files[0].read_text())
        for what in (page, events):
            spans = self.spans(what)
            # One process each for the run and the two nodes.
            self.assertEqual(len({place[0] for place in spans}), 3, spans)
            rounds = [name for name in spans[(0, 0)] if name.startswith("round")]
            self.assertEqual(rounds, ["round 0", "round 1"])
            ranks = [name for (process, thread), names in spans.items() if process > 0 and thread < 2 for name in names]
            self.assertEqual(sorted(ranks), sorted(2 * [f"rank {rank}" for rank in range(4)]))
            stops = [event for event in what if event.get("name") == "stop: failed"]
            self.assertEqual(len(stops), 1)
            self.assertIn("rank 3", stops[0]["args"]["why"])
        self.assertEqual([e["name"] for e in events if "run is over" in e.get("name", "")], ["the run is over"])
        pids = {int(re.search(r"pid (\d+)", line)[1]) for line in self.started if line.startswith("0 ")}
        shown = {int(e["args"]["pid"]) for e in events if e["ph"] == "B" and "pid" in e.get("args", {})}
        self.assertEqual(shown, pids)
        self.assertEqual(json.loads(self.ddpctl(self.path / "logs")), events)

    def test_what_workers_say_that_they_have_done_is_in_their_rows(self):
        script = ("import json, os, sys, time\n"
                  "rank = int(os.environ['RANK'])\n"
                  "open(os.environ['DDPRUN_TIMELINE_FILE'], 'a').write('no line\\n' + json.dumps("
                  "{'name': 'checkpoint', 'begin': time.time() - 0.01, 'end': time.time(), 'step': 7 + rank}) + '\\n')\n"
                  "if rank == 1 and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': sys.exit(9)\n")
        (self.path / "draws.py").write_text(script)
        node = self.node("--standalone", "--nproc-per-node=2", "--max-restarts=1", str(self.path / "draws.py"),
                         backend="static", command=())
        self.assertEqual(node.ends(), 0, node.log)
        file = self.path / "logs" / "latest" / "timeline.json"
        events = json.loads(file.read_text())
        drawn = [event for event in events if event.get("name") == "checkpoint"]
        steps = sorted((event["tid"], event["args"]["step"]) for event in drawn)
        # Of the first attempt rank 0 may have been stopped before it wrote.
        self.assertEqual(set(steps), {(0, "7"), (1, "8")}, drawn)
        self.assertEqual(steps.count((1, "8")), 2, drawn)
        for event in drawn:
            self.assertEqual(event["ph"], "X")
            self.assertAlmostEqual(event["dur"] / 1e6, 0.01, delta=0.009)

    def test_what_workers_of_other_nodes_have_done_is_there_too(self):
        # The last one at their very end.
        script = ("import json, os, time\n"
                  "def draw(name):\n"
                  "    with open(os.environ['DDPRUN_TIMELINE_FILE'], 'a') as file:\n"
                  "        line = {'name': name, 'begin': time.time() - 0.01, 'end': time.time(), 'rank': os.environ['RANK']}\n"
                  "        file.write(json.dumps(line) + '\\n')\n"
                  "draw('begins')\n"
                  "while not os.path.exists('end'): time.sleep(0.02)\n"
                  "draw('ends')\n")
        (self.path / "draws.py").write_text(script)
        nodes = [self.node("--nnodes=2", "--nproc-per-node=2", "--rdzv-id=job", str(self.path / "draws.py"), command=())
                 for _ in range(2)]
        wait_until(lambda: [file for file in self.path.glob("logs/*/timeline.json")
                            if file.read_text().count("begins") == 4], "the workers of both nodes have drawn")
        (self.path / "end").touch()
        self.assert_all_succeed(*nodes)
        (file,) = self.path.glob("logs/*/timeline.json")
        drawn = [event for event in json.loads(file.read_text()) if event["ph"] == "X"]
        self.assertEqual(sorted((event["name"], event["args"]["rank"]) for event in drawn),
                         sorted((name, str(rank)) for name in ("begins", "ends") for rank in range(4)))
        # Each in the row of its worker: two nodes with two each.
        rows = {event["args"]["rank"]: (event["pid"], event["tid"]) for event in drawn}
        self.assertEqual(len(set(rows.values())), 4, rows)
        self.assertEqual(rows["0"][0], rows["1"][0], rows)
        self.assertEqual(rows["2"][0], rows["3"][0], rows)

    def test_the_file_of_a_killed_host_can_be_read(self):
        host, _ = self.two_nodes()
        file = self.path / "timeline"
        wait_until(lambda: any("rank 0" in f.read_text() for f in self.path.glob("logs/*/timeline.json")),
                   "the timeline has rank 0")
        # The other node hosts the run next, and writes a file of its own.
        (folder,) = [f.parent for f in self.path.glob("logs/*/timeline.json")]
        kill(host)
        self.ddpctl("--output", file, folder)
        self.assertIn("round 0", self.spans(json.loads(file.read_text()))[(0, 0)])

    def test_another_users_link_in_a_shared_folder_is_not_followed(self):
        logs = self.path / "logs" / "job_x"
        logs.mkdir(parents=True)
        (logs / "timeline.json").write_text("[\n]\n")
        shared, file = self.path / "shared", self.path / "precious"
        shared.mkdir()
        shared.chmod(0o1777)
        file.write_text("as it was")
        (shared / "link").symlink_to(file)
        os.link(file, shared / "hard")
        os.mkfifo(shared / "fifo")
        for name in ("link", "hard", "fifo"):
            line = self.ddpctl("--output", shared / name, logs, code=2)
            self.assertRegex(line, rf"^ddpctl: open \S+/{name}: it is a link, no regular file, or another user's.*\n$")
        self.assertEqual(file.read_text(), "as it was")
        # A file of this user's own is replaced there, and elsewhere a link is followed.
        (shared / "own").write_text("much longer than what follows")
        (self.path / "link").symlink_to(file)
        for output in (shared / "own", self.path / "link"):
            self.ddpctl("--output", output, logs)
            self.assertEqual(json.loads(output.read_text()), [])
        self.ddpctl("--output", "/dev/null", logs)

    def test_one_node(self):
        run = subprocess.run([DDPRUN, "--nnodes=1", "--rdzv-id=alone", "--nproc-per-node=2", "--max-restarts=1",
                              "--log-dir", str(self.path / "logs"), "--no-python", "sh", "-c",
                              "exit $((1 - TORCHELASTIC_RESTART_COUNT))"], env=environment(), timeout=LIMIT)
        self.assertEqual(run.returncode, 0)
        events = json.loads(self.ddpctl(self.path / "logs"))
        self.assertEqual(json.loads(self.ddpctl("--run=alone", self.path / "logs")), events)
        self.ddpctl("--run=other", self.path / "logs", code=2)
        self.assertEqual(self.spans(events)[(0, 0)], ["round 0", "stopping round 0", "round 1"])
        ends = [event["args"]["ended by"] for event in events if event["ph"] == "E" and "ended by" in event.get("args", {})]
        self.assertEqual(ends.count("exit code 0"), 2)

    def test_nothing_is_left_where_no_logs_are_asked_for(self):
        folder = self.path / "tmp"
        folder.mkdir()
        run = subprocess.run([DDPRUN, "--standalone", "--no-python", "true"], env=environment(TMPDIR=str(folder)),
                             timeout=LIMIT)
        self.assertEqual((run.returncode, list(folder.iterdir())), (0, []))
        self.assertRegex(self.ddpctl(folder, code=2), r"^ddpctl: \S+ has no timeline.json: .*\n$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
