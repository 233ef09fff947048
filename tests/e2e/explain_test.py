# SPDX-License-Identifier: BSD-3-Clause
"""ddpctl explain: why a run was stopped last, or has ended, by what its host knows."""

import json
import os
import signal
import unittest

from ddpd_process import Ddpd
from nodes import WORKER, wait_until
from pages_test import PagesCase
from processes import children_of


class ExplainTest(PagesCase):
    """Two nodes that meet at a ddpd, so that the last answer is there when all nodes are gone."""

    def setUp(self):
        super().setUp()
        daemon = Ddpd()
        self.addCleanup(daemon.stop)
        self.port, self.count = daemon.port, 1
        self.endpoint = f"127.0.0.1:{self.port}"

    def start(self, *options, nnodes="2"):
        return [self.node(f"--nnodes={nnodes}", "--nproc-per-node=1", "--max-restarts=1", "--rdzv-id=job",
                          "--rdzv-conf=last_call_timeout=1", *options) for _ in range(2)]

    def explain(self, *options):
        lines = self.ddpctl("explain", *options, self.endpoint).splitlines()
        self.assertLessEqual(len(lines), 15, lines)
        return "\n".join(lines)

    def until_explained(self, words):
        seen = []

        def is_there():
            seen[:] = [self.explain()]
            return words in seen[0]
        try:
            wait_until(is_there, f"explain says {words!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{seen}") from None
        return seen[0]

    def test_from_nothing_to_a_failure_to_the_end(self):
        self.assertEqual(self.explain(), f"no run meets at {self.endpoint}")
        nodes = self.start()
        self.until_started(2)
        self.assertIn("nothing has stopped it yet: round 0 began at", self.explain())
        self.make_fail(1, 0, 7)
        text = self.until_explained("round 1 began")
        self.assertRegex(text, r"round 0 was stopped at \S+, after .*: a worker failed, which costs one restart\n"
                               r"why: rank 1 on \S+ exited with code 7")
        self.assertRegex(text, r"\d\d:\d\d:\d\d\.\d{3}  \S+ reported: rank 1 .*exited with code 7")
        shown = json.loads(self.ddpctl("explain", "--json", "--run=job", self.endpoint))[0]
        self.assertEqual((shown["stop"]["cause"], shown["next"]["round"]), ("failed", 1))
        self.until_started(4)
        self.make_fail(0, 1, 9)
        for node in nodes:
            node.ends()
        text = self.until_explained("over for")
        self.assertIn("with exit code 82, after 1 restart", text)
        self.assertRegex(text, r"why: .*rank 0 on \S+ exited with code 9")
        self.assertIn("reported: rank 0", text)
        self.assertRegex(self.ddpctl("explain", "--run=x", self.endpoint, code=2), r"^ddpctl: no run 'x' meets at .*\n$")

    def test_a_log_folder_explains_a_run_that_is_over(self):
        self.start()
        self.until_started(2)
        for attempt in (0, 1):
            (self.path / f"fail.1.{attempt}").write_text("7")
        for log in [self.path / f"agent{i}.log" for i in (1, 2)]:
            wait_until(lambda log=log: "exit code: 82" in log.read_text(), "the run fails")
        logs = self.path / "logs"
        wait_until(lambda: len(list(logs.glob("job_*/report.json"))) == 2, "both have reported")
        said = self.ddpctl("explain", str(logs))
        self.assertRegex(said, r"^job: over, with exit code 82, after ")
        self.assertRegex(said, r"(?m)^why: rank 1 on \S+ exited with code 7$")
        self.assertRegex(said, r"(?m)^  \S+  attempt 0: rank 1 on \S+ exited with code 7$")
        folder = next(logs.glob("job_*/report.json")).parent
        self.assertIn(f"by {folder}/report.json", self.ddpctl("explain", str(folder)))
        self.assertEqual(json.loads(self.ddpctl("explain", "--json", str(folder)))[0]["exit_code"], 82)
        folder.rename(logs / "team_exp_1_aB3dE6")
        self.assertIn("team_exp_1_aB3dE6/report.json", self.ddpctl("explain", "--run=team/exp/1", str(logs)))
        self.assertIn("has no report.json of run 'other'", self.ddpctl("explain", "--run=other", str(logs), code=2))
        empty = self.path / "empty"
        empty.mkdir()
        self.assertRegex(self.ddpctl("explain", str(empty), code=2), r"^ddpctl: \S+ has no report.json: [^\n]+\n$")
        self.assertRegex(self.ddpctl("status", str(empty), code=2), r"^ddpctl: '\S+' is a folder, [^\n]+\n$")

    def test_a_killed_agent_a_newcomer_and_a_stop(self):
        first, second = self.start("--rdzv-conf=last_call_timeout=1", nnodes="1:2")
        self.until_round("0/2", "1/2")
        os.kill(second.process.pid, signal.SIGKILL)
        second.process.wait()
        text = self.until_explained("a node was lost, which costs no restart")
        self.assertRegex(text, r"why: .*was lost \(its agent, pid \d+, was killed\)")
        self.until_explained("began")
        since = len(self.started)
        third = self.node("--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=1", "--rdzv-id=job")
        self.until_round("0/2", "1/2", since=since)
        self.until_explained("a node joined, which costs no restart")
        since = len(self.started)
        third.signal(signal.SIGTERM)
        text = self.until_explained("was stopped by SIGTERM")
        self.until_round("0/1", since=since)
        self.assert_all_succeed(first)

    def test_a_hang_says_which_rank_stands_still(self):
        hang = "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && touch $DDPRUN_HEARTBEAT_FILE && exec sleep 1000\n"
        beat = WORKER.replace("while :; do", "while :; do touch $DDPRUN_HEARTBEAT_FILE")
        nodes = [self.node("--nnodes=2", "--max-restarts=1", "--rdzv-id=job", "--hang-timeout=4",
                           command=("--no-python", "sh", "-c", hang + beat)) for _ in range(2)]
        text = self.until_explained("round 1 began")
        self.assertRegex(text, r"round 0 was stopped at \S+, after .*: a worker failed, which costs one restart\n"
                               r"why: rank 1 on \S+ .*hung")
        self.assertRegex(text, r"reported: rank 1 .*hung")
        self.assert_all_succeed(*nodes)

    def test_a_node_that_falls_silent(self):
        first, second = self.start("--rdzv-conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3",
                                   nnodes="1:2")
        self.until_round("0/2", "1/2")
        since = len(self.started)
        stopped = with_descendants(second.process.pid)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        self.addCleanup(lambda: [end_process(pid) for pid in stopped])
        text = self.until_explained("a node was lost, which costs no restart")
        self.assertRegex(text, r"why: \S+ was lost \(.*\)")
        self.until_round("0/1", since=since)
        text = self.until_explained("round 1 began")
        self.assertRegex(text, r"\d\d:\d\d:\d\d\.\d{3}  \S+ was lost")
        self.assertIn("with 1 worker on 1 node", text)
        self.assert_all_succeed(first)


def with_descendants(pid):
    """The agent, its guardian, workers and what these have started; agents first."""
    return [pid] + [each for child in children_of(pid) for each in with_descendants(child)]


def end_process(pid):
    """Of those that this test has stopped: no other process has its id as long as it is stopped."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    unittest.main(verbosity=2)
