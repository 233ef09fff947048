# SPDX-License-Identifier: BSD-3-Clause
"""Runs over hosts with addresses of their own: names, silence, one-way cuts, IPv6."""

import os
import pathlib
import re
import sys
import unittest

import hosts
from nodes import NodesCase, kill, wait_until

if hosts.why_not():
    print(f"skipped: {hosts.why_not()}")
    sys.exit(77)

QUICK = "--rdzv-conf=last_call_timeout=0.3,read_timeout=60,keep_alive_interval=0.2,keep_alive_max_attempt=5"


class HostsCase(NodesCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = hosts.Hosts(3)
        cls.addClassCleanup(cls.hosts.close)

    def agent(self, k, *options, endpoint="node0:29400", own_name_is_loopback=False, hosts=None, **more):
        """Starts an agent on host k."""
        inside = self.hosts.on(k, own_name_is_loopback=own_name_is_loopback, hosts=hosts)
        return self.node(*options, endpoint=endpoint, within=inside, **more)

    def all_three(self, *options, **more):
        agents = [self.agent(k, *options, **more) for k in range(3)]
        self.until_round("0 0/3", "1 1/3", "2 2/3")
        return agents


class HostsTest(HostsCase):
    def tearDown(self):
        self.assertGreater(self.assert_rounds_apart(), 0)

    def test_nodes_on_several_hosts_are_told_an_address_that_all_can_reach(self):
        agents = [self.agent(k, "--nnodes=3", own_name_is_loopback=True) for k in (2, 1, 0)]
        lines = self.until_started(3)
        self.assertEqual(sorted(line.split()[1] for line in lines), ["0/3", "1/3", "2/3"])
        # Ranks go by host name, whoever came first; the host is called what the others call it.
        self.assertRegex("\n".join(lines), r"2 0/3 .* at node0:\d+")
        self.assertRegex("\n".join(lines), r"0 2/3 .* at node0:\d+")
        self.assert_all_succeed(*agents)

    def test_the_master_is_found_on_another_host_than_the_rendezvous(self):
        agents = [self.agent(k, "--nnodes=3", f"--node-rank={2 - k}") for k in range(3)]
        lines = self.until_started(3)
        self.assertRegex(lines[0], rf" at {self.hosts.address(2)}:\d+$")
        self.assert_all_succeed(*agents)

    def test_a_host_that_goes_silent_is_given_up_and_comes_back_when_the_network_heals(self):
        agents = self.all_three("--nnodes=1:3", QUICK)
        before = len(self.started)
        self.addCleanup(lambda: self.hosts.heal(2))
        self.hosts.isolate(2)
        self.until_round("0 0/2", "1 1/2", since=before)
        self.assertIn("node2 was lost (silent for", agents[0].log)
        agents[2].says("has been silent for")  # and its own workers have been told to stop
        before = len(self.started)
        self.hosts.heal(2)
        self.until_round("0 0/3", "1 1/3", "2 2/3", since=before)
        self.assertTrue(all("restart 0 " in line for line in self.started), self.started)
        self.assert_all_succeed(*agents)

    def test_a_worker_that_fails_while_its_node_is_cut_off_is_reported_there(self):
        agents = self.all_three("--nnodes=1:3", QUICK)
        before = len(self.started)
        self.addCleanup(lambda: self.hosts.heal(2))
        self.hosts.isolate(2)
        self.make_fail(rank=2, restart=0, code=7)
        agents[2].says("exited with code 7; it costs no restart, since the round ends for another reason")
        (self.path / "fail.2.0").unlink()
        self.until_round("0 0/2", "1 1/2", since=before)
        before = len(self.started)
        self.hosts.heal(2)
        self.until_round("0 0/3", "1 1/3", "2 2/3", since=before)
        self.assert_all_succeed(*agents)

    def test_a_node_that_is_cut_off_at_the_end_says_that_its_workers_had_succeeded(self):
        agents = self.all_three("--nnodes=1:3", f"{QUICK},join_timeout=5")
        self.addCleanup(lambda: self.hosts.heal(2))
        self.hosts.isolate(2)
        self.go()
        agents[2].says("the workers of this node had all succeeded: the run may have ended well on the others")
        self.assertEqual([agent.ends() for agent in agents], [0, 0, 80])

    def test_a_host_that_hears_but_is_not_heard_is_given_up(self):
        agents = self.all_three("--nnodes=1:3", QUICK)
        before = len(self.started)
        self.addCleanup(self.hosts.mend)
        self.hosts.cut_one_way(1, 0)
        self.until_round("0 0/2", "2 1/2", since=before)
        # It hears that it was given up, unless its own lease ends first.
        wait_until(lambda: re.search("has been silent for|have given this node up", agents[1].log), "node1 stops")
        before = len(self.started)
        self.hosts.mend()
        self.until_round("0 0/3", "1 2/3", "2 1/3", since=before)
        self.assert_all_succeed(*agents)

    def test_without_the_host_the_others_stop_their_workers_and_end_with_the_cause(self):
        agents = self.all_three("--nnodes=3", QUICK.replace("read_timeout=60", "join_timeout=4"))
        self.hosts.isolate(0)
        self.addCleanup(lambda: self.hosts.heal(0))
        for agent in agents[1:]:
            self.assertEqual(agent.ends(), 80, agent.log)
            self.assertRegex(agent.log, r"node0:29400, where the nodes meet, has been silent for .*stopping 1 worker")
            self.assertRegex(agent.log, r"FAILED: .*only 2 of 3 nodes came within 4 s")
        self.assertEqual(agents[0].ends(), 80, agents[0].log)

    def test_without_the_host_the_others_end_with_the_cause_if_they_are_to_host_nowhere(self):
        conf = QUICK.replace("read_timeout=60", "join_timeout=4")
        agents = [self.agent(k, "--nnodes=1:3", conf if k == 0 else f"{conf},is_host=0") for k in range(3)]
        self.until_round("0 0/3", "1 1/3", "2 2/3")
        self.hosts.isolate(0)
        self.addCleanup(lambda: self.hosts.heal(0))
        for agent in agents[1:]:
            self.assertEqual(agent.ends(), 80, agent.log)
            self.assertRegex(agent.log, r"FAILED: .*cannot meet the other nodes at node0:29400: .*; tried for \d")

    def test_over_slow_links_rounds_form_and_re_form_and_nobody_is_given_up(self):
        for k in (0, 2):
            self.addCleanup(self.hosts.slow_down(k, 20))
        agents = self.all_three("--nnodes=1:3", "--max-restarts=1", "--rdzv-conf=last_call_timeout=0.3")
        before = len(self.started)
        self.make_fail(rank=1, restart=0, code=3)
        lines = self.until_round("0 0/3", "1 1/3", "2 2/3", since=before)
        self.assertTrue(all("restart 1 " in line for line in lines), lines)
        kill(agents[1])
        self.until_round("0 0/2", "2 1/2", since=before)
        for agent in (agents[0], agents[2]):
            self.assertNotRegex(agent.log, "silent|given this node up")
        self.assert_all_succeed(agents[0], agents[2])

    def test_a_connection_that_dies_alone_is_noticed(self):
        for index, which in enumerate(("letters", "orders")):
            before = len(self.started)
            agents = [self.agent(k, "--nnodes=1:2", f"--rdzv-id={which}", "--rdzv-conf=last_call_timeout=0.3")
                      for k in (0, 1)]
            who = f"{2 * index} 0/2", f"{2 * index + 1} 1/2"
            self.until_round(*who, since=before)
            ports = self.ports_to(agents[1], 29400)
            self.assertEqual(len(ports), 2, "one for letters, one for orders")
            before = len(self.started)
            self.addCleanup(self.hosts.mend)
            self.hosts.cut_flow(1, ports[index])
            agents[1].says("reached node0:29400 again")
            self.assert_all_succeed(*agents)
            self.assertEqual(len(self.started), before, "the workers have run on")
            (self.path / "go").unlink()
            self.hosts.mend()

    def test_a_node_whose_heartbeats_pass_and_whose_commands_do_not_is_given_up(self):
        agents = self.all_three("--nnodes=1:3", "--max-restarts=1", QUICK)
        orders = self.ports_to(agents[2], 29400)[1]
        before = len(self.started)
        self.addCleanup(self.hosts.mend)
        self.hosts.deafen(2, orders)
        self.make_fail(rank=1, restart=0, code=3)
        lines = self.until_round("0 0/3", "1 1/3", "2 2/3", since=before)
        self.assertTrue(all("restart 1 " in line for line in lines), lines)
        agents[0].says("does not hear what it is told here, though its heartbeats come, and is given up")
        self.assertIn("the others have given this node up: it was silent, or deaf, for too long", agents[2].log)
        self.assert_all_succeed(*agents)

    @staticmethod
    def ports_to(agent, port):
        """The local ports of an agent's connections to this one, in the order in which it opened them."""
        pid = agent.process.pid
        numbers = {}
        for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines():
            fields = line.split()
            if fields[2].endswith(f":{port:04X}"):
                numbers[f"socket:[{fields[9]}]"] = int(fields[1].rpartition(":")[2], 16)
        links = []
        for descriptor in sorted(map(int, os.listdir(f"/proc/{pid}/fd"))):
            try:
                links.append(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
            except FileNotFoundError:
                pass
        return [numbers[link] for link in links if link in numbers]

    def test_a_name_that_resolves_late_is_tried_until_it_does(self):
        names = self.path / "hosts"
        names.write_text("127.0.0.1 localhost\n")
        late = self.agent(1, "--nnodes=2", QUICK, hosts=names, RES_OPTIONS="timeout:1 attempts:1")
        late.says("cannot meet the other nodes at node0:29400: resolve node0: ")
        self.assertRegex(late.log, r"resolve node0: .*; trying for \d+\.\d s more")
        host = self.agent(0, "--nnodes=2", QUICK)
        with open(names, "a", encoding="ascii") as more:
            more.write(f"{self.hosts.address(0)} node0\n")
        late.says("reached node0:29400")
        self.until_started(2)
        self.assert_all_succeed(host, late)

    def test_who_cannot_reach_the_workers_store_says_so(self):
        # Only the port of the rendezvous is open, as a firewall would have it.
        host = self.agent(0, "--nnodes=2", QUICK)
        other = self.agent(1, "--nnodes=2", QUICK)
        self.hosts.open_only(0, 29400)
        self.addCleanup(self.hosts.mend)
        other.says("this node cannot reach the workers' store at node0:")
        self.assertIn("the workers here cannot join the others", other.log)
        self.assert_all_succeed(host, other)

    def test_of_two_machines_that_the_endpoint_names_one_hosts(self):
        """As a name for all nodes may be; each would host a run of its own."""
        names = self.path / "names"
        names.write_text(f"127.0.0.1 localhost\n{self.hosts.address(0)} nodes\n{self.hosts.address(1)} nodes\n")
        for first in (0, 1):
            with self.subTest(first=first):
                before = len(self.started)
                agents = [self.agent(k, "--nnodes=1:2", f"--rdzv-id=by{first}", f"--rdzv-conf=last_call_timeout=60,read_timeout=60",
                                     endpoint=f"nodes:{29400 + first}", hosts=names) for k in (first, 1 - first)]
                self.until(lambda: len(self.started) > before, "a worker has started")
                self.until(lambda: len(self.started) == before + 2, "there is one run of two nodes")
                self.assertEqual(sorted(line.split()[1] for line in self.started[before:]), ["0/2", "1/2"], self.logs())
                (self.path / f"go.by{first}").touch()
                for agent in agents:
                    self.assertEqual(agent.ends(), 0, self.logs())
        self.assertIn("nodes is this machine's name and also that of 10.77.0.", self.logs())

    def test_ipv6(self):
        endpoint = f"[{self.hosts.address6(0)}]:29400"
        agents = [self.agent(k, "--nnodes=3", f"--node-rank={2 - k}", endpoint=endpoint) for k in range(3)]
        lines = self.until_started(3)
        self.assertRegex(lines[0], rf" at {self.hosts.address6(2)}:\d+$")
        self.assert_all_succeed(*agents)

    def test_who_is_not_allowed_is_refused_and_named(self):
        first = self.agent(0, "--nnodes=2", f"--allow={self.hosts.address(1)}")
        first.says("waiting for nodes")
        stranger = self.agent(2, "--nnodes=2", "--rdzv-conf=read_timeout=3")
        self.assertEqual(stranger.ends(), 80)
        self.assertRegex(stranger.log, r"cannot meet .* closed the connection at once: it may not allow this node's address "
                                       r"\(--allow\), be full, or be about to end; trying for ")
        first.says(self.hosts.address(2))
        second = self.agent(1, "--nnodes=2")
        self.until_started(2)
        self.assert_all_succeed(first, second)


if __name__ == "__main__":
    unittest.main(verbosity=2)
