# SPDX-License-Identifier: BSD-3-Clause
"""Runs of several nodes with real torch: Gloo groups over restarts, and torch's own store as the host."""

import importlib.util
import os
import re
import subprocess
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    print(f"skipped: {sys.executable} has no torch")
    sys.exit(77)

from nodes import NodesCase, kill, wait_until

# Joins a Gloo group; one rank dies in each attempt but the last.
CRASHES = r"""
import os, signal, torch, torch.distributed as dist
attempt, last = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["TORCHELASTIC_MAX_RESTARTS"])
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
if attempt < last and dist.get_rank() == attempt % dist.get_world_size():
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
with open("sums", "a") as sums:
    sums.write(f"attempt {attempt} sum {int(total.item())}\n")
dist.barrier()
dist.destroy_process_group()
"""

# A store of torch's own, as somebody else's program may have it.
STOCK = r"""
import sys, time, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=True, wait_for_workers=False)
print("ready", flush=True)
sys.stdin.read()
"""


class GlooTest(NodesCase):
    def crash_and_come_back(self, backend, *options):
        (self.path / "crashes.py").write_text(CRASHES)
        restarts = 20 if os.environ.get("DDPRUN_TEST_LONG") else 3
        nodes = [self.node("--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1", f"--max-restarts={restarts}",
                           *options, backend=backend, command=("crashes.py",)) for rank in (0, 1)]
        for node in nodes:
            self.assertEqual(node.ends(), 0, node.log)
            stops = re.findall("was killed by SIGKILL; (?:stopping|restart)", node.log)
            self.assertEqual(len(stops), restarts, node.log)
        self.assertEqual((self.path / "sums").read_text(), f"attempt {restarts} sum 2\n" * 2)

    def test_gloo_groups_of_two_nodes_survive_every_restart(self):
        self.crash_and_come_back("c10d")

    def test_and_so_they_do_at_a_fixed_port(self):
        self.crash_and_come_back("static", "--master-addr=127.0.0.1", f"--master-port={self.port}")


class StockStoreTest(NodesCase):
    QUICK = "--rdzv-conf=last_call_timeout=0.3,keep_alive_interval=0.2,keep_alive_max_attempt=5"

    def setUp(self):
        super().setUp()
        (self.path / "stock.py").write_text(STOCK)
        self.stock = subprocess.Popen([sys.executable, "stock.py", str(self.port)], cwd=self.path,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.stock.wait)
        self.addCleanup(self.stock.stdin.close)
        self.addCleanup(self.stock.stdout.close)
        self.assertEqual(self.stock.stdout.readline(), "ready\n")

    def start(self, count, *options):
        """Agents of one run; the first one coordinates."""
        first = self.node(f"--nnodes=1:{count}", *options, self.QUICK)
        first.says("of 1")
        return [first] + [self.node(f"--nnodes=1:{count}", *options, self.QUICK) for _ in range(count - 1)]

    def test_nodes_meet_in_torchs_own_store_and_notice_a_loss_by_silence(self):
        nodes = self.start(3, "--max-restarts=1")
        for node in nodes:
            node.says("of 3")
        before = len(self.started)
        self.make_fail(rank=1, restart=0, code=3)
        lines = self.until_started(before + 3)
        self.assertEqual(sorted(line.split()[1] for line in lines[-3:]), ["0/3", "1/3", "2/3"])
        kill(nodes[2])
        lines = self.until_started(before + 5)
        self.assertEqual(sorted(line.split()[1] for line in lines[-2:]), ["0/2", "1/2"])
        self.assertIn("was lost (silent for", nodes[0].log)
        self.assert_all_succeed(*nodes[:2])

    def test_another_node_coordinates_when_the_coordinators_agent_is_killed(self):
        nodes = self.start(2)
        for node in nodes:
            node.says("of 2")
        before = len(self.started)
        kill(nodes[0])
        lines = self.until_started(before + 1)
        self.assertRegex(lines[-1], "^1 0/1 ")
        wait_until(lambda: "has been silent for" in nodes[1].log, "the silence is named")
        self.assert_all_succeed(nodes[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
