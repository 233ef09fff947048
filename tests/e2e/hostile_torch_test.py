# SPDX-License-Identifier: BSD-3-Clause
"""torch's own TCPStore, at a ddpd and as the workers' store of a run, while strangers storm the same ports; on one
node and on two, in every kind of authentication."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    print(f"skipped: {sys.executable} has no torch")
    sys.exit(77)

import hosts
from ddpd_process import ddpd_path, state_folder
from munged import Munged, munged_why_not
from nodes import LIMIT, NodesCase, wait_until

SECRET = "correct horse battery staple"
STRANGER = 54321  # a user
IDLE = 2000  # connections that say nothing
STORM = pathlib.Path(__file__).with_name("storm.py")

# Ranks that talk to each other by torch's client, until rank 0 sees a file `go`; each writes how many rounds it made,
# and the longest of them in milliseconds.  The store is that of the run, or the one in STORE.
TALK = r"""
import json, os, time
from datetime import timedelta
import torch.distributed as dist

place = os.environ.get("STORE") or os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"]
host, _, port = place.rpartition(":")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
plain = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False)
within = dist.PrefixStore("inner", dist.PrefixStore("outer", plain))
patience = timedelta(seconds=60)

def talk(store, turn, is_last):
    key = f"turn {turn}"
    if rank == turn % world:
        store.set(key, "last" if is_last() else f"value of {turn}")
    store.wait([key], patience)
    value = store.get(key).decode()
    assert value in ("last", f"value of {turn}"), value
    assert store.check([key])
    store.add(f"sum {turn}", rank + 1)
    winner = store.compare_set(f"first {turn}", "", f"rank {rank}").decode()
    if store.add(f"count {turn}", 1) == world:
        store.set(f"all {turn}", "here")
    store.wait([f"all {turn}"], patience)
    assert store.add(f"sum {turn}", 0) == world * (world + 1) // 2
    assert store.get(f"first {turn}").decode() == winner and winner in [f"rank {r}" for r in range(world)], winner
    if rank == turn % world and turn >= 2 * world:
        assert store.delete_key(f"turn {turn - 2 * world}")
    return value == "last"

turn, longest, is_over = 0, 0.0, False
while not is_over:
    begin = time.monotonic()
    talk(plain, turn, lambda: False)
    is_over = talk(within, turn, lambda: os.path.exists("go"))
    longest = max(longest, 1000 * (time.monotonic() - begin))
    turn += 1
    with open(f"turns.{rank}.partial", "w") as turns:
        json.dump({"at": place, "turns": turn, "longest_ms": round(longest, 1),
                   "is_over": is_over}, turns)
    os.rename(f"turns.{rank}.partial", f"turns.{rank}")
"""


LATE = r"""
import os, torch.distributed as dist
host, _, port = os.environ["STORE"].rpartition(":")
store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False)
assert store.add("late", 7) == 7
"""


class Stormed:
    """For a NodesCase: what ranks say to each other goes on while strangers storm the ports that they use."""

    endpoint = None  # of a run
    address = "127.0.0.1"  # of node 0

    def within(self, _):
        """What a command line of node k begins with."""
        return ()

    def rage(self, *ports):
        """To be supplied: the storms at these ports of node 0."""
        raise NotImplementedError

    def setUp(self):
        super().setUp()
        (self.path / "talk.py").write_text(TALK)

    def logs(self):
        return "\n".join(f"{p.name}:\n{p.read_text(errors='replace')}" for p in sorted(self.path.glob("*.log")))

    def until(self, is_reached, what):
        try:
            wait_until(is_reached, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def turns(self, rank):
        path = self.path / f"turns.{rank}"
        return json.loads(path.read_text()) if path.exists() else {"turns": 0, "is_over": False}

    def until_turns(self, count):
        self.until(lambda: all(self.turns(rank)["turns"] >= count for rank in (0, 1)), f"{count} turns")

    def storm(self, ports, user, idle, source="", within=()):
        """Strangers who are there in full strength."""
        process = subprocess.Popen([*within, sys.executable, str(STORM), self.address, ",".join(map(str, ports)),
                                    source, str(user), str(idle)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.communicate()))
        self.assertEqual(process.stdout.readline(), "ready\n", self.logs())
        return process

    def assert_talk_goes_on(self, storms):
        """While these storms rage, and to the end."""
        self.until_turns(self.turns(0)["turns"] + 20)
        (self.path / "go").touch()
        self.until(lambda: all(self.turns(rank)["is_over"] for rank in (0, 1)), "the ranks are done")
        for process in storms:
            self.assertRegex(process.communicate(timeout=LIMIT)[0], r"\Aover: \d+ times, \d+ held\n\Z")

    def ddpd(self, *options):
        """Its port on node 0."""
        port_file = self.path / "port"
        with open(self.path / "ddpd.log", "wb") as log:
            process = subprocess.Popen([*self.within(0), ddpd_path(), f"--listen={self.address}:0",
                                        f"--port-file={port_file}", f"--state-dir={state_folder()}", *options],
                                       stdout=log, stderr=log)
        self.addCleanup(lambda: (process.kill(), process.wait()))
        self.until(port_file.exists, "ddpd listens")
        return int(port_file.read_text())

    def client(self, rank, port, *command):
        """A program with torch's client, apart from any run, on node `rank`."""
        log = self.path / f"client{rank}.log"
        env = {**os.environ, "STORE": f"{self.address}:{port}", "RANK": str(rank), "WORLD_SIZE": "2"}
        with open(log, "ab") as out:
            process = subprocess.Popen([*self.within(rank), sys.executable, *command], cwd=self.path, env=env,
                                       stdout=out, stderr=out)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        return process

    def at_a_ddpd(self, *options):
        port = self.ddpd(*options)
        clients = [self.client(rank, port, "talk.py") for rank in (0, 1)]
        self.until_turns(1)
        storms = self.rage(port)
        late = self.client(1, port, "-c", LATE)  # one that comes in the middle
        self.assertEqual(late.wait(LIMIT), 0, self.logs())
        self.assert_talk_goes_on(storms)
        for client in clients:
            self.assertEqual(client.wait(LIMIT), 0, self.logs())

    def test_at_a_ddpd(self):
        self.at_a_ddpd()

    def test_at_a_ddpd_with_a_secret(self):
        secret = self.path / "secret"
        secret.touch(0o600)
        secret.write_text(SECRET)
        self.at_a_ddpd(f"--secret-file={secret}")

    def in_a_run(self, *options, **extra):
        agents = [self.node("--nnodes=2", f"--rdzv-id={self.path.name}", *options, endpoint=self.endpoint,
                            command=("talk.py",), within=self.within(k), **extra) for k in (0, 1)]
        self.until_turns(1)
        at_rendezvous = int(self.endpoint.rpartition(":")[2]) if self.endpoint else self.port
        self.assert_talk_goes_on(self.rage(at_rendezvous, self.turns(0)["at"].rpartition(":")[2]))
        for agent in agents:
            self.assertEqual(agent.ends(), 0, agent.log)
            self.assertNotIn("lost", agent.log)
            self.assertRegex(agent.log, r"started 1 worker, rank \d of 2  round=0")

    def test_in_a_run(self):
        self.in_a_run()

    def test_in_a_run_with_a_secret(self):
        self.in_a_run(DDPRUN_SECRET=SECRET)

    @unittest.skipIf(munged_why_not(), munged_why_not())
    def test_in_a_run_by_munge(self):
        self.in_a_run("--rdzv-auth=munge", SLURM_CONF=Munged(self).slurm_conf)


class OneNodeTest(Stormed, NodesCase):
    """Strangers on this machine: from another of its addresses, and of another user where this is root."""

    def rage(self, *ports):
        user = STRANGER if os.geteuid() == 0 else os.geteuid()
        return [self.storm(ports, user, IDLE, source="127.0.0.2")]


@unittest.skipIf(hosts.why_not(), hosts.why_not())
class TwoNodesTest(Stormed, NodesCase):
    """Strangers on a third host, and on the first by another of its users."""

    endpoint = "node0:29400"
    address = hosts.Hosts.address(0)

    @classmethod
    def setUpClass(cls):
        cls.hosts = hosts.Hosts(3)
        cls.addClassCleanup(cls.hosts.close)

    def within(self, k):
        return self.hosts.on(k)

    def rage(self, *ports):
        return [self.storm(ports, os.geteuid(), IDLE, within=self.hosts.on(2)),
                self.storm(ports, STRANGER, IDLE // 10, within=self.hosts.on(0))]


if __name__ == "__main__":
    unittest.main(verbosity=2)
