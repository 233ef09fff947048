# SPDX-License-Identifier: BSD-3-Clause
"""Who is served by the workers' store: strangers on other hosts, other users of this one, and the
workers of all nodes."""

import os
import re
import subprocess
import sys
import unittest

import hosts
from nodes import LIMIT, wait_until
from hosts_test import HostsCase

if hosts.why_not() or os.geteuid() != 0:
    print(f"skipped: {hosts.why_not() or 'it plays several users, so it needs root'}")
    sys.exit(77)

STRANGER = 54321

# Says what a store does with a client: the handshake, a key that it sets and reads.  argv: HOST PORT
# USER SOURCE.
CLIENT = r"""
import encodings.idna, os, socket, struct, sys, time  # all, since another user may not reach the library
host, port, user, source = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
os.setgroups([]), os.setresuid(user, user, user)
def text(b): return struct.pack("<Q", len(b)) + b
client = socket.create_connection((host, port), timeout=60, source_address=(source, 0) if source else None)
try:
    client.sendall(b"\0" + struct.pack("<I", 0x3C85F7CE) + b"\1" + text(b"stranger") + text(b"v")
                   + b"\3" + text(b"stranger"))
    print("served" if client.recv(9) == struct.pack("<Q", 1) + b"v" else "closed")
except ConnectionError:
    print("closed")
"""

WAIT = r"""
with open("place", "w") as place:
    place.write(f"{port}\n")
while not os.path.exists("go"):
    time.sleep(0.02)
"""


class WorkerStoreTest(HostsCase):
    def client(self, k, host, port, user=0, source=""):
        """What the store at host:port does with a client on host k."""
        command = self.hosts.on(k, sys.executable, "-c", CLIENT, host, port, user, source)
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def outcome(self, *where, **more):
        process = self.client(*where, **more)
        return process.communicate(timeout=LIMIT)[0].strip()

    def store(self, rank=0):
        """Where the workers' store of the last round is."""
        host, _, port = self.started[-1].rpartition(" at ")[2].rpartition(":")
        return host, int(port)

    def let_go(self, run, agents):
        (self.path / f"go.{run}").touch()
        for agent in agents:
            self.assertEqual(agent.ends(), 0, agent.log)

    def two(self, *options, **more):
        agents = [self.agent(k, "--nnodes=2", *options, **more) for k in range(2)]
        self.until_round("0 0/2", "1 1/2")
        return agents

    def test_hosts_that_are_no_node_of_the_round_are_refused_and_named(self):
        agents = self.two()
        _, port = self.store()
        for _ in range(2):
            self.assertEqual(self.outcome(2, self.hosts.address(0), port), "closed")
        self.assertEqual(self.outcome(2, self.hosts.address6(0), port), "closed")
        for address in (self.hosts.address(2), self.hosts.address6(2)):
            agents[0].says(f"the workers' store: refused {address}: its address is not allowed: no node of this "
                           "round has it (--worker-store-allow admits more)")
        self.assertEqual(agents[0].log.count("refused"), 2, agents[0].log)
        # By all of its addresses a node is admitted.
        self.assertEqual(self.outcome(1, self.hosts.address(0), port), "served")
        self.assertEqual(self.outcome(1, self.hosts.address6(0), port), "served")
        self.assert_all_succeed(*agents)

    def test_an_option_admits_other_hosts(self):
        for which, allowed in (("some", "10.77.0.3"), ("any", "any")):
            with self.subTest(allowed):
                agents = self.two(f"--worker-store-allow={allowed}", f"--rdzv-id={which}")
                _, port = self.store()
                self.assertEqual(self.outcome(2, self.hosts.address(0), port), "served")
                self.assertEqual(self.outcome(2, self.hosts.address6(0), port),
                                 "served" if allowed == "any" else "closed")
                self.let_go(which, agents)
                (self.path / "started").unlink()
                self.count = 0

    def test_other_users_of_the_machine_are_refused_and_named(self):
        agents = self.two()
        _, port = self.store()
        for address in ("127.0.0.1", self.hosts.address(0), "::1", self.hosts.address6(0)):
            self.assertEqual(self.outcome(0, address, port, user=STRANGER), "closed", address)
            self.assertEqual(self.outcome(0, address, port), "served", address)
        # From an address that other nodes have, too, or from another one of this machine.
        self.assertEqual(self.outcome(0, self.hosts.address(0), port, user=STRANGER, source="127.0.0.1"), "closed")
        self.assertEqual(self.outcome(0, "127.0.0.1", port, user=STRANGER, source=self.hosts.address(0)), "closed")
        agents[0].says(f"the workers' store: refused a process of user {STRANGER} on this machine: the store is for "
                       "user 0 (--allow-users admits all)")
        self.assertEqual(agents[0].log.count("refused"), 1, agents[0].log)
        self.assert_all_succeed(*agents)

    def test_an_option_admits_other_users(self):
        agents = self.two("--allow-users")
        self.assertEqual(self.outcome(0, "127.0.0.1", self.store()[1], user=STRANGER), "served")
        self.assert_all_succeed(*agents)

    def test_one_node_admits_this_machine_and_the_users_of_its_workers(self):
        program = CLIENT + WAIT
        worker = ("--no-python", "sh", "-c", 'exec "$0" -c "$1" "$MASTER_ADDR" "$MASTER_PORT" 54320 ""',
                  sys.executable, program)
        os.chmod(self.path, 0o777)
        agent = self.agent(0, "--local-addr=node0", command=worker)
        wait_until(lambda: (self.path / "place").exists() and "\n" in (self.path / "place").read_text(),
                   "the worker has begun")
        port = int((self.path / "place").read_text())
        self.assertEqual(self.outcome(0, "127.0.0.1", port), "served")
        self.assertEqual(self.outcome(0, "127.0.0.1", port, user=STRANGER), "closed")
        self.assertEqual(self.outcome(1, self.hosts.address(0), port), "closed")
        self.assert_all_succeed(agent)
        self.assertIn("served", agent.log)
        self.assertIn(f"refused {self.hosts.address(1)}", agent.log)

    def test_a_client_that_comes_before_the_round_is_served_or_refused_with_it(self):
        first = self.agent(0, "--nnodes=2", "--node-rank=0")
        first.says("waiting for nodes")
        inside = self.hosts.on(0, "ss", "-Hltn")
        ports = {line.split()[3].rpartition(":")[2] for line in
                 subprocess.run(inside, capture_output=True, text=True, check=True).stdout.splitlines()}
        port = int((ports - {"29400"}).pop())
        early = [self.client(2, self.hosts.address(0), port), self.client(0, "127.0.0.1", port, user=STRANGER),
                 self.client(0, "127.0.0.1", port), self.client(1, self.hosts.address(0), port)]
        second = self.agent(1, "--nnodes=2")
        self.until_round("0 0/2", "1 1/2")
        self.assertEqual(self.store()[1], port)
        outcomes = [process.communicate(timeout=LIMIT)[0].strip() for process in early]
        self.assertEqual(outcomes, ["closed", "closed", "served", "served"])
        self.assert_all_succeed(first, second)

    def test_a_node_behind_nat_is_named_on_both_sides_and_admitted_by_an_option(self):
        self.translate(1, "10.77.0.50")
        agents = [self.agent(k, "--nnodes=2", "--rdzv-id=refused") for k in range(2)]
        agents[0].says("the workers' store: refused 10.77.0.50: its address is not allowed")
        agents[1].says("this node cannot reach the workers' store")
        self.assertIn("(a firewall may be in between, or NAT: see --worker-store-allow; or it is another user's: "
                      "see --allow-users); the workers here cannot join the others", agents[1].log)
        self.let_go("refused", agents)
        agents = [self.agent(k, "--nnodes=2", "--rdzv-id=allowed", "--worker-store-allow=10.77.0.50")
                  for k in range(2)]
        self.until_started(4)
        self.assertEqual(self.outcome(1, self.hosts.address(0), self.store()[1]), "served")
        self.let_go("allowed", agents)
        self.assertNotIn("refused", agents[0].log)

    def translate(self, k, address):
        """Connections of host k come from `address`, but for those to the rendezvous."""
        hosts.run("ip", "netns", "exec", self.hosts.namespace(k), "nft", "-f", "-", text=f"""
add table ip nat
add chain ip nat out {{ type nat hook postrouting priority 100; }}
add rule ip nat out ip daddr {self.hosts.address(0)} tcp dport != 29400 snat to {address}
""")
        self.addCleanup(hosts.run, "ip", "netns", "exec", self.hosts.namespace(k), "nft", "delete", "table", "ip", "nat")
        link = hosts.run("ip", "-n", self.hosts.namespace(k), "-o", "link", "show", "eth0")
        hardware = re.search("link/ether ([0-9a-f:]+)", link)[1]
        hosts.run("ip", "-n", self.hosts.namespace(0), "neigh", "replace", address, "lladdr", hardware, "dev", "eth0")

    def test_a_node_that_joins_later_is_admitted_to_the_next_round(self):
        agents = [self.agent(k, "--nnodes=2:3", "--rdzv-conf=last_call_timeout=0.3") for k in range(2)]
        self.until_round("0 0/2", "1 1/2")
        self.assertEqual(self.outcome(2, self.hosts.address(0), self.store()[1]), "closed")
        agents.append(self.agent(2, "--nnodes=2:3"))
        self.until_round("0 0/3", "1 1/3", "2 2/3")
        self.assertEqual(self.outcome(2, self.hosts.address(0), self.store()[1]), "served")
        self.assert_all_succeed(*agents)

    def test_on_a_static_port_strangers_get_no_further_than_to_the_rendezvous(self):
        options = ("--master-addr=node0", "--master-port=29501", "--nnodes=2")
        agents = [self.agent(k, *options, f"--node-rank={k}", backend="static") for k in range(2)]
        self.until_round("0 0/2", "1 1/2")
        self.assertEqual(self.outcome(1, self.hosts.address(0), 29501), "served")
        self.assertEqual(self.outcome(0, self.hosts.address(0), 29501), "served")
        self.assertEqual(self.outcome(2, self.hosts.address(0), 29501), "closed")
        self.assertEqual(self.outcome(0, "127.0.0.1", 29501, user=STRANGER), "closed")
        agents[0].says(f"refused {self.hosts.address(2)}: its address is not allowed: no node of this round has it")
        agents[0].says(f"refused a process of user {STRANGER} on this machine")
        self.assert_all_succeed(*agents)


if __name__ == "__main__":
    unittest.main(verbosity=2)
