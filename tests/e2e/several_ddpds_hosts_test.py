# SPDX-License-Identifier: BSD-3-Clause
"""A run with a ddpd on each of two hosts, in a network that breaks."""

import subprocess
import sys
import unittest

import hosts
from ddpd_process import ddpd_path
from host_case import QUICK, HostCase
from nodes import wait_until

if hosts.why_not():
    print(f"skipped: {hosts.why_not()}")
    sys.exit(77)

# A silence limit of 20 s, so that a busy machine is not taken for a loss.
PATIENT = "last_call_timeout=0.3,read_timeout=60,join_timeout=60,keep_alive_interval=1,keep_alive_max_attempt=20"
FIRST, SECOND = 3, 4
PLACES = f"node{FIRST}:29400,node{SECOND}:29400"


class DdpdsInABrokenNetworkTest(HostCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = hosts.Hosts(5)
        cls.addClassCleanup(cls.hosts.close)

    def setUp(self):
        super().setUp()
        for k in (FIRST, SECOND):
            self.start_ddpd(k)
        self.addCleanup(self.hosts.mend)

    def start_ddpd(self, k):
        folder = self.path / f"state{k}"
        folder.mkdir(mode=0o700)
        ddpd = subprocess.Popen(self.hosts.on(k, ddpd_path(), "--listen", "0.0.0.0:29400", "--state-dir", folder),
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(lambda: (ddpd.kill(), ddpd.communicate()))
        self.assertTrue(ddpd.stdout.readline().startswith("listening on "))

    def three(self, conf):
        return self.all_of(3, "--nnodes=2:3", conf=conf, endpoint=PLACES)

    def workers_go_on(self, break_network, mend):
        agents = self.three(PATIENT)
        break_network()
        for agent in agents:
            agent.says(f"reached node{SECOND}:29400")
        mend()
        late = self.agent(0, "--nnodes=2:3", conf=PATIENT, endpoint=PLACES)
        late.says(f"the run has another host, at node{SECOND}:29400")
        wait_until(lambda: "standing by" in late.log.rpartition("another host")[2], "a late node stands by there")
        self.assertEqual(len(self.started), 3, "workers were stopped")
        try:
            self.assert_all_succeed(*agents, late)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def test_workers_go_on_when_a_ddpd_is_cut_off(self):
        self.workers_go_on(lambda: self.hosts.isolate(FIRST), lambda: self.hosts.heal(FIRST))

    def test_workers_go_on_when_nothing_comes_from_a_ddpd_any_more(self):
        self.workers_go_on(lambda: self.hosts.cut_off_one_way(FIRST), self.hosts.mend)

    def test_a_run_goes_to_the_ddpd_that_all_its_nodes_reach(self):
        agents = self.all_of(3, "--nnodes=3", conf=QUICK, endpoint=PLACES)
        before = len(self.started)
        self.hosts.cut_between(2, FIRST)
        self.until_world(range(3), since=before)
        for agent in agents[:2]:
            agent.says("the run goes to where 1 node waits that it needs and that does not reach this place, "
                       f"at node{SECOND}:29400; joining there")
        self.assert_all_succeed(*agents)
        self.assert_rounds_apart()

    def test_who_waits_for_the_first_round_hears_of_nodes_that_reach_another_ddpd_only(self):
        self.hosts.cut_between(2, FIRST)
        agents = [self.agent(k, "--nnodes=3", conf=QUICK, endpoint=PLACES) for k in range(3)]
        agents[0].says(f"1 node waits at node{SECOND}:29400, and cannot connect to this place; the first round of a "
                       "run begins at its first endpoint: name first in --rdzv-endpoint one that all nodes reach")
        self.hosts.mend()
        self.until_world(range(3))
        self.assert_all_succeed(*agents)

    def test_of_two_halves_only_the_larger_one_goes_on(self):
        agents = self.three(QUICK)
        before = len(self.started)
        first = self.until_world(range(3))
        self.hosts.fall_apart(0, FIRST)
        second = self.until_world((1, 2), since=before)
        self.assertLess(self.round_at(first).last, self.round_at(second).begin)
        agents[0].says("waiting for nodes: 1 of 2..3 joined")
        before = len(self.started)
        self.hosts.mend()
        self.until_world(range(3), since=before)
        self.assert_all_succeed(*agents)
        self.assert_rounds_apart()


if __name__ == "__main__":
    unittest.main(verbosity=2)
