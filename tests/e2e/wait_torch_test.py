# SPDX-License-Identifier: BSD-3-Clause
"""Waits of real torch that are over: the report names the rank that did not come.

A rank that sleeps is known by the kernel, with or without py-spy and eu-stack.  What these add is not asked for: on a
busy machine they may need more than the second that they get (tests/agent/inspection_test.cc)."""

import importlib.util
import json
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    print(f"skipped: {sys.executable} has no torch")
    sys.exit(77)

from nodes import LIMIT, NodesCase
from pages_test import PagesCase

# One rank does not come: to the group ("init"), or to the collective that is named.  In the attempts after the first
# all come.
WAITS = r"""
import os, sys, threading, time
from datetime import timedelta
what, late = sys.argv[1], int(sys.argv[2])
is_late = int(os.environ["RANK"]) == late and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"

def load():
    if what == "left":
        sys.exit(0)
    if what == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    time.sleep(3600)

if what == "init" and is_late:
    load()
import torch, torch.distributed as dist
short = timedelta(seconds=3)
dist.init_process_group("gloo", timeout=short if what == "init" else timedelta(seconds=300))
dist.barrier()
dist.set_timeout(short)
if is_late and what == "mismatch":
    dist.broadcast(torch.ones(4), src=0)
if is_late:
    load()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    {"barrier": dist.barrier,
     "monitored_barrier": lambda: dist.monitored_barrier(timeout=short)}.get(
         what, lambda: dist.all_reduce(torch.ones(4)))()
dist.destroy_process_group()
"""

# All wait at their store for rank 3, which comes once it is let go.  None writes a heartbeat file.
KEEPS_WAITING = r"""
import os, time
from datetime import timedelta
import torch.distributed as dist
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
if os.environ["RANK"] == "3":
    while not os.path.exists("go"):
        time.sleep(0.02)
    store.set("come", "1")
store.wait(["come"], timedelta(seconds=300))
"""


class WaitCase(NodesCase):
    def setUp(self):
        super().setUp()
        (self.path / "waits.py").write_text(WAITS)

    def ends(self, what, nodes=1, workers=3, restarts=0, code=1, late=1, **extra):
        """The logs of all nodes, in the order in which they were started."""
        started = [self.node(f"--nnodes={nodes}", f"--node-rank={rank}", f"--nproc-per-node={workers}",
                             f"--max-restarts={restarts}",
                             command=("waits.py", what, str(late)), **extra) for rank in range(nodes)]
        for node in started:
            self.assertEqual(node.ends(LIMIT + 60), code, node.log)
        return [node.log for node in started]

    def assert_names(self, log, words):
        self.assertRegex(log, r"FAILED: rank 1 \((\S+, )?pid \d+\) " + words, log)

    def assert_did_not_come(self, log, what, last_words="Timed out waiting 3000ms"):
        self.assert_names(log, f"did not come to {what}: it sleeps.*; rank [02] .* waited for it and exited with "
                               "code 1: RuntimeError: ")
        self.assertIn(last_words, log)

    def causes(self):
        for report in (self.path / "logs").glob("*_*/report.json"):
            yield json.loads(report.read_text())["root_cause"]

    def suspects(self):
        return [cause["suspects"] for cause in self.causes()]


class OneNodeTest(WaitCase):
    def test_a_rank_that_never_came(self):
        (log,) = self.ends("init", workers=2)
        self.assert_names(log, r"never reached init_process_group: it sleeps.*; rank 0 .* waited for it and exited "
                               "with code 1: torch.distributed.DistStoreError: wait timeout after 3000ms")
        self.assertIn("next: see why rank 1 did not come", log)
        ((suspect,),) = self.suspects()
        self.assertEqual((suspect["rank"], suspect["has_come"]), (1, False))

    def test_a_collective(self):
        (log,) = self.ends("all_reduce")
        self.assert_did_not_come(log, "all_reduce")

    def test_a_barrier(self):
        (log,) = self.ends("barrier")
        self.assert_did_not_come(log, "barrier")

    def test_a_monitored_barrier(self):
        (log,) = self.ends("monitored_barrier")
        self.assert_did_not_come(log, "monitored_barrier", "failed to pass monitoredBarrier")

    def test_a_rank_in_a_lock_is_the_one_that_is_left(self):
        (log,) = self.ends("lock")
        self.assert_names(log, r"did not come to all_reduce: it is .*; rank [02] .* waited for it and exited with code 1")

    def test_the_restart_and_the_end_name_it_too(self):
        (log,) = self.ends("all_reduce", restarts=1, code=0)
        self.assertRegex(log, r"rank 1 \(pid \d+\) did not come to all_reduce: it sleeps.*; stopping .*, then restart 1")
        self.assertRegex(log, r"finished: .* after 1 restart \(rank 1 \(pid \d+\) did not come to all_reduce")


class TwoNodesTest(WaitCase):
    def test_a_rank_that_never_came(self):
        for log in self.ends("init", nodes=2, workers=1):
            self.assert_names(log, r"never reached init_process_group: it sleeps.*; rank 0 .* waited for it")

    def test_a_rank_that_never_came_where_the_store_is_on_its_own_node(self):
        for log in self.ends("init", nodes=2, workers=1, late=0):
            self.assertRegex(log, r"FAILED: rank 0 \(\S+, pid \d+\) never reached init_process_group: it sleeps.*; "
                                  "rank 1 .* waited for it")

    def test_a_collective(self):
        for log in self.ends("all_reduce", nodes=2, workers=1):
            self.assert_did_not_come(log, "all_reduce")
            self.assertNotIn("waited in vain", log)  # there are no others
        self.assertEqual({cause["also_waited"] for cause in self.causes()}, {0})

    def test_a_rank_that_had_ended_well(self):
        for log in self.ends("left", nodes=2, workers=2, late=3):
            self.assertRegex(log, r"FAILED: rank 3 \(\S+, pid \d+\) did not come to all_reduce: it had ended with exit "
                                  r"code 0; rank [0-2] .* waited for it and exited with code 1: ")
            self.assertIn("next: see why rank 3 ended before the others", log)

    def test_ranks_in_different_collectives(self):
        for log in self.ends("mismatch", nodes=2, workers=1):
            self.assertRegex(log, r"FAILED: rank [01] \(\S+, pid \d+\) did not come to (all_reduce: it waited in broadcast"
                                  r"|broadcast: it waited in all_reduce); rank [01] ")
            self.assertIn("next: see why not all ranks run the same collective there", log)

    def test_a_barrier(self):
        for log in self.ends("barrier", nodes=2, workers=1):
            self.assert_did_not_come(log, "barrier")


class KeepsWaitingTest(PagesCase):
    def test_who_keeps_the_others_waiting_at_their_store_is_named(self):
        nodes = [self.node("--nnodes=2", "--nproc-per-node=2", "--rdzv-id=job", "--vitals=0.2",
                           command=("--no-python", sys.executable, "-c", KEEPS_WAITING)) for _ in range(2)]
        run = self.until_shown(lambda run: run["slow"], "a slow worker")
        self.assertEqual([(one["rank"], one["host"]) for one in run["slow"]], [(3, run["nodes"][1]["host"])])
        endpoint = f"127.0.0.1:{self.port}"
        self.assertRegex(self.ddpctl("status", endpoint),
                         r"slow: rank 3 \(\S+\) has kept 3 other ranks waiting at the workers' store for ")
        pid = run["nodes"][1]["vitals"][1]["pid"]
        self.assertRegex(self.ddpctl("waits", endpoint),
                         rf"ranks 0-2: '/come' for .*; not come: rank 3 \(\S+, pid {pid}\)\n")
        shown = self.until_shown(lambda run: run["slowest"], "the slowest of the run")
        self.assertRegex(shown["slowest"], r"^rank 3 \(\S+\) was the slowest: others waited for it at the workers' store for ")
        self.assert_all_succeed(*nodes)


if __name__ == "__main__":
    unittest.main(verbosity=2)
