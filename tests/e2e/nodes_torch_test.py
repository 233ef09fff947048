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

from ddpd_process import Ddpd
from nodes import LIMIT, NodesCase, free_port, kill, wait_until

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

# Sums over its world again and again, until rank 0 sees a file `go`; says each world once.
SUMS = r"""
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(100000):
    total = torch.tensor([1, int(rank == 0 and os.path.exists("go"))])
    dist.all_reduce(total)
    if step == 0:
        sums = os.open("sums", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(sums, f"{rank} of {world}: {int(total[0])}\n".encode())
        os.close(sums)
    if total[1]:
        break
    time.sleep(0.02)
dist.barrier()
dist.destroy_process_group()
"""

# A client of torch's own.
CLIENT = r"""
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False, wait_for_workers=False)
store.set("key", "value")
store.wait(["key"])
print(store.get("key"), store.add("count", 3))
"""

# A store of torch's own, as somebody else's program may have it.
STOCK = r"""
import sys, time, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=True, wait_for_workers=False)
print("ready", flush=True)
sys.stdin.read()
"""


class GlooTest(NodesCase):
    def crash_and_come_back(self, backend, *options, nodes=2, **extra):
        (self.path / "crashes.py").write_text(CRASHES)
        restarts = 20 if os.environ.get("DDPRUN_TEST_LONG") else 3
        nodes = [self.node(f"--nnodes={nodes}", f"--node-rank={rank}", f"--nproc-per-node={2 // nodes}",
                           f"--max-restarts={restarts}", *options, backend=backend, command=("crashes.py",), **extra)
                 for rank in range(nodes)]
        for node in nodes:
            self.assertEqual(node.ends(LIMIT + 30 * restarts), 0, node.log)
            stops = re.findall("was killed by SIGKILL; (?:stopping|restart)", node.log)
            self.assertEqual(len(stops), restarts, node.log)
        self.assertEqual((self.path / "sums").read_text(), f"attempt {restarts} sum 2\n" * 2)

    def sums(self):
        path = self.path / "sums"
        return path.read_text().splitlines() if path.exists() else []

    def until_sums(self, world):
        """Until a world of this size, after the present ones, has summed."""
        wanted = {f"{rank} of {world}: {world}" for rank in range(world)}
        wait_until(lambda: wanted <= set(self.sums()[self.seen:]), f"{world} ranks have summed")
        self.seen = len(self.sums())

    def test_the_world_of_a_gloo_group_grows_and_shrinks(self):
        (self.path / "sums.py").write_text(SUMS)
        self.seen = 0
        nodes = []
        for world in (1, 2):
            nodes.append(self.node("--nnodes=1:2", "--rdzv-conf=last_call_timeout=0.3", command=("sums.py",)))
            self.until_sums(world)
        spare = self.node("--nnodes=1:2", "--rdzv-conf=last_call_timeout=0.3", command=("sums.py",))
        spare.says("standing by")
        kill(nodes.pop())
        self.until_sums(2)  # with the spare one
        kill(spare)
        self.until_sums(1)
        self.assert_all_succeed(*nodes)

    def test_a_secret_of_the_nodes_changes_nothing_for_their_workers(self):
        for backend in ("c10d", "static"):
            with self.subTest(backend=backend):
                self.path.joinpath("sums").unlink(missing_ok=True)
                self.port, self.count = free_port(), 0
                options = ("--rdzv-encrypt",) if backend == "c10d" else (
                    "--master-addr=127.0.0.1", f"--master-port={self.port}")
                self.crash_and_come_back(backend, *options, DDPRUN_SECRET="what the nodes of a run share")

    def test_gloo_groups_of_one_node_survive_every_restart(self):
        self.crash_and_come_back("c10d", nodes=1)

    def test_gloo_groups_of_two_nodes_survive_every_restart(self):
        self.crash_and_come_back("c10d")

    def test_and_so_they_do_at_a_fixed_port(self):
        self.crash_and_come_back("static", "--master-addr=127.0.0.1", f"--master-port={self.port}")


class DaemonWithSecretTest(NodesCase):
    def test_stock_clients_are_served_beside_it(self):
        secret = self.path / "secret"
        secret.touch(mode=0o600)
        secret.write_text("what the nodes of a run share")
        with Ddpd("--secret-file", str(secret)) as ddpd:
            run = subprocess.run([sys.executable, "-c", CLIENT, str(ddpd.port)], capture_output=True, text=True,
                                 timeout=LIMIT)
            self.assertEqual((run.returncode, run.stdout), (0, "b'value' 3\n"), run.stderr)


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

    def test_nodes_meet_in_torchs_own_store_and_hear_of_a_killed_agent(self):
        nodes = self.start(3, "--max-restarts=1")
        self.until_round("0/3", "1/3", "2/3")
        before = len(self.started)
        self.make_fail(rank=1, restart=0, code=3)
        self.until_round("0/3", "1/3", "2/3", since=before)
        kill(nodes[2])
        self.until_round("0 0/2", "1 1/2", since=before)
        self.assertRegex(nodes[0].log, r"was lost \(its agent, pid \d+, was killed\)")
        self.assert_all_succeed(*nodes[:2])

    def test_the_static_backend_does_not_share_a_port_with_another_program(self):
        node = self.node("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={self.port}",
                         backend="static")
        self.assertEqual(node.ends(), 80)
        self.assertIn("is taken by another program's TCPStore", node.log)

    def test_another_node_coordinates_when_the_coordinators_agent_is_killed(self):
        nodes = self.start(2)
        self.until_round("0/2", "1/2")
        before = len(self.started)
        kill(nodes[0])
        self.until_round("1 0/1", since=before)
        wait_until(lambda: "has been silent for" in nodes[1].log, "the silence is named")
        self.assert_all_succeed(nodes[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
