# SPDX-License-Identifier: BSD-3-Clause
"""ddpctl stacks: where the workers are, asked of the agents, and who may ask."""

import json
import os
import signal
import subprocess
import sys
import unittest

from nodes import LIMIT, wait_until
from pages_test import AS_STRANGER, DDPCTL, STRANGER, PagesCase

# What py-spy would write; the last rank reads.  Its own pid goes into a file, for each rank.
PY_SPY = r"""#!/bin/sh
for pid; do :; done
rank=$(tr '\0' '\n' < /proc/$pid/environ | sed -n 's/^RANK=//p')
echo $$ >> "$(dirname "$0")/asked.$rank"
if [ -e "$(dirname "$0")/hold" ]; then exec sleep 1000; fi
echo "Thread $pid (idle): \"MainThread\""
if [ $rank = 3 ]; then echo '    read (data.py:40)'; else
  echo '    all_reduce (torch/distributed/distributed_c10d.py:4181)'
  echo '    <module> (train.py:118)'
fi
"""


class StacksTest(PagesCase):
    def setUp(self):
        super().setUp()
        self.tools = self.path / "tools"
        self.tools.mkdir()
        tool = self.tools / "py-spy"
        tool.write_text(PY_SPY)
        tool.chmod(0o755)
        self.with_tool = {"PATH": f"{self.tools}:{os.environ['PATH']}"}
        self.endpoint = None

    def start(self, *options, **extra):
        self.two_nodes(*options, **{**self.with_tool, **extra})
        self.endpoint = f"127.0.0.1:{self.port}"

    def asked(self, rank):
        path = self.tools / f"asked.{rank}"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def test_ranks_are_grouped_by_place_and_asked_once_for_all(self):
        self.start()
        self.assertEqual(self.ddpctl("stacks", self.endpoint).splitlines()[:2],
                         ["ranks 0-2: all_reduce at train.py:118", "rank 3: read() at data.py:40"])
        shown = json.loads(self.ddpctl("stacks", "--json", "--run=job", self.endpoint))
        self.assertTrue(all(node["has_answered"] for node in shown["nodes"]))
        self.assertEqual(shown["nodes"][1]["stacks"][1]["frames"], ["read (data.py:40)"])
        # One request within the period is enough for all who ask.
        self.assertIn("  read (data.py:40)\n", self.ddpctl("stacks", "--rank=3", self.endpoint))
        self.assertEqual(shown["number"], 1)
        self.assertEqual([self.asked(rank) for rank in range(4)], [1, 1, 1, 1])
        self.assertEqual(self.run_shown()["state"], "training")

    def test_one_rank_holds_no_other_worker(self):
        self.start()
        lines = self.ddpctl("stacks", "--rank=1", self.endpoint).splitlines()
        self.assertEqual(lines[0], "rank 1: all_reduce at train.py:118")
        self.assertIn("  <module> (train.py:118)", lines)
        self.assertEqual([self.asked(rank) for rank in range(4)], [0, 1, 0, 0])

    def test_what_a_node_without_tools_knows_is_said_by_the_kernel(self):
        self.with_tool = {"PATH": f"{self.tools}:/bin"}
        (self.tools / "py-spy").unlink()
        self.start()
        shown = json.loads(self.ddpctl("stacks", "--json", self.endpoint))
        if any(node["tools"] for node in shown["nodes"]):
            self.skipTest("eu-stack is in /bin")
        self.assertRegex(self.ddpctl("stacks", self.endpoint), r"(?m)^no py-spy and no eu-stack on \S+: their lines")

    def test_a_node_that_stands_still_is_named(self):
        self.start("--rdzv-conf=keep_alive_interval=60")
        run = self.until_shown(self.has_vitals, "vitals")
        stopped = next(node["agent_pid"] for node in run["nodes"] if not node["is_host"])
        os.kill(stopped, signal.SIGSTOP)
        self.addCleanup(lambda: os.kill(stopped, signal.SIGCONT))
        lines = self.ddpctl("stacks", self.endpoint).splitlines()
        self.assertRegex("\n".join(lines), r"(?m)^\S+ has not answered \(ranks [02]-[13]\)$")
        self.assertTrue(lines[0].startswith("rank"), lines)
        os.kill(stopped, signal.SIGCONT)

    def test_a_stop_does_not_wait_for_a_collector(self):
        (self.tools / "hold").touch()
        self.start()
        asking = subprocess.Popen([DDPCTL, "stacks", self.endpoint], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: asking.poll() is None and (asking.kill(), asking.wait()))
        self.until_asked(1)
        self.make_fail(1, 0, 7)
        self.until_shown(lambda run: run["state"] == "training" and run["round"] == 1, "the second round")
        for rank in range(4):  # none of them is left
            for pid in (self.tools / f"asked.{rank}").read_text().split():
                self.assertFalse(os.path.exists(f"/proc/{pid}"), pid)

    def until_asked(self, count):
        wait_until(lambda: all(self.asked(rank) >= count for rank in range(4)), "all workers are being looked at")

    def test_a_wrong_question_is_one_line(self):
        self.start()
        for arguments, words in ((("--rank=4",), "there is no rank 4: the run has ranks 0 to 3"),
                                 (("--run=other",), r"no run 'other' meets at \S+, but 'job'"),
                                 (("--rank=-1",), "--rank")):
            with self.subTest(arguments=arguments):
                self.assertRegex(self.ddpctl("stacks", *arguments, self.endpoint, code=2), rf"^ddpctl: .*{words}.*\n$")
        self.node("--rdzv-id=job2", "--nnodes=1:2", "--rdzv-conf=last_call_timeout=1", "--vitals=0.2")
        self.until_started(5)
        self.assertRegex(self.ddpctl("stacks", self.endpoint, code=2),
                         r"^ddpctl: 2 runs meet at \S+: 'job', 'job2'; choose one with --run\n$")

    def request(self, text):
        return subprocess.run([sys.executable, "-c", AS_STRANGER, str(self.port), str(STRANGER), text],
                              capture_output=True, text=True, timeout=LIMIT, check=True).stdout

    def test_a_stranger_gets_no_stacks_and_cannot_have_them_taken(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, to be another user")
        path = self.secret_file()
        token = self.ddpctl("page-token", str(path)).strip()
        self.start(f"--rdzv-secret-file={path}")
        target = "/stacks/job HTTP/1.1\r\nHost: localhost\r\n"
        for method in ("PUT", "GET"):
            self.assertTrue(self.request(f"{method} {target}\r\n").startswith("HTTP/1.1 401 "))
        self.assertEqual(self.asked(0), 0)
        self.assertTrue(self.request(f"PUT {target}Authorization: Bearer {token}\r\n\r\n").startswith("HTTP/1.1 200 "))
        self.until_asked(1)

    def test_without_a_secret_the_same_user_is_asked_for(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, to be another user")
        self.start()
        for method, code in (("PUT", 401), ("GET", 401), ("POST", 405)):
            answer = self.request(f"{method} /stacks/job HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertTrue(answer.startswith(f"HTTP/1.1 {code} "), answer)
        # A page of another site in a browser of this user asks first, and that is refused.
        evil = "OPTIONS /stacks/job HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        self.assertTrue(self.request(evil).startswith("HTTP/1.1 405 "))
        self.assertEqual(self.asked(0), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
