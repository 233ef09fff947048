# SPDX-License-Identifier: BSD-3-Clause
"""A run with several endpoints, a ddpd at each: its workers go on when one of them is lost."""

import os
import signal
import time
import unittest

from beats import COMMAND
from ddpd_process import Ddpd
from nodes import NodesCase, free_port, wait_until

# A silence limit of 20 s, so that a busy machine is not taken for a loss.
PATIENT = "last_call_timeout=0.3,join_timeout=60,keep_alive_interval=1,keep_alive_max_attempt=20"


def is_connected(agent, port):
    """Whether an agent has a connection to this port of this machine."""
    pid = agent.process.pid
    there = f"0100007F:{port:04X}"
    with open(f"/proc/{pid}/net/tcp") as table:
        inodes = {line.split()[9] for line in table if line.split()[2] == there}
    return any(f"socket:[{inode}]" in links_of(pid) for inode in inodes)


def links_of(pid):
    links = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            pass  # closed meanwhile
    return links


class SeveralDdpdsTest(NodesCase):
    def setUp(self):
        super().setUp()
        self.ddpds = [Ddpd(), Ddpd()]
        for ddpd in self.ddpds:
            self.addCleanup(lambda each=ddpd: each.stop(signal.SIGKILL))
        self.places = [f"127.0.0.1:{ddpd.port}" for ddpd in self.ddpds]

    def agent(self, *options, places=None, **more):
        return self.node("--nproc-per-node=1", f"--rdzv-id={self.path.name}", f"--rdzv-conf={PATIENT}", *options,
                         endpoint=",".join(places or self.places), command=COMMAND, **more)

    def three(self, *options):
        agents = [self.agent("--nnodes=2:3", *options) for _ in range(3)]
        self.until_started(3)
        return agents

    def again(self, k):
        """Another ddpd in the place of one that has ended."""
        ddpd = self.ddpds[k] = Ddpd(port=self.ddpds[k].port)
        self.addCleanup(lambda: ddpd.stop(signal.SIGKILL))

    def all_reach(self, agents, k, since):
        for agent in agents:
            self.until(lambda each=agent: f"reached {self.places[k]}" in each.log and is_connected(each, self.ddpds[k].port),
                       "all nodes are at the other ddpd")
        print(f"all nodes were at the other ddpd {(time.monotonic() - since) * 1000:.0f} ms later", flush=True)

    def finish(self, agents, worker_starts):
        self.assertEqual(len(self.started), worker_starts, "workers were stopped")
        self.assert_all_succeed(*agents)

    def goes_on_after(self, end, back):
        """Through the loss of the first ddpd, that of the one where the run is then, and a node that comes in between."""
        agents = self.three()
        began = time.monotonic()
        end()
        self.all_reach(agents, 1, began)
        back()
        late = self.agent("--nnodes=2:3")

        def place():
            """Where all of them are.  A first one that stood still may have the run again: before they all were at the second one."""
            return next((k for k in (0, 1) if all(is_connected(a, self.ddpds[k].port) for a in [*agents, late])), None)
        # The first one may be slow to answer, or sends it on.
        self.until(lambda: "standing by" in late.log.rpartition("another host")[2] and place() is not None,
                   "a late node stands by where the run is")
        left = place()
        began = time.monotonic()
        self.ddpds[left].stop(signal.SIGKILL)
        self.all_reach([*agents, late], 1 - left, began)
        self.finish([*agents, late], 3)

    def test_workers_go_on_when_a_ddpd_is_killed(self):
        self.goes_on_after(lambda: self.ddpds[0].stop(signal.SIGKILL), lambda: self.again(0))

    def test_workers_go_on_when_a_ddpd_is_told_to_stop(self):
        self.goes_on_after(lambda: self.ddpds[0].stop(), lambda: self.again(0))

    def test_workers_go_on_when_a_ddpd_stands_still(self):
        process = self.ddpds[0].process
        self.goes_on_after(lambda: process.send_signal(signal.SIGSTOP), lambda: process.send_signal(signal.SIGCONT))

    def test_workers_go_on_when_a_ddpd_is_started_again_at_once(self):
        agents = self.three()
        self.ddpds[0].stop(signal.SIGKILL)
        self.again(0)
        for agent in agents:  # some of them may find the new one, and others the second
            self.until(lambda each=agent: each.log.count(" again") > 0, "a node is back")
        self.finish(agents, 3)

    def test_a_worker_that_fails_after_the_move_costs_one_restart(self):
        agents = self.three("--max-restarts=1")
        began = time.monotonic()
        self.ddpds[0].stop(signal.SIGKILL)
        self.all_reach(agents, 1, began)
        os.kill(int(self.started[0].split()[4]), signal.SIGKILL)
        began = time.monotonic()
        self.until_started(6)
        print(f"new workers {(time.monotonic() - began) * 1000:.0f} ms after one had failed", flush=True)
        for agent in agents:
            agent.says("restart 1 of 1")
        self.finish(agents, 6)

    def test_the_first_round_begins_at_the_first_endpoint(self):
        first = free_port()
        places = [f"127.0.0.1:{first}", self.places[1]]
        agents = [self.agent("--nnodes=2", places=places) for _ in range(2)]
        for agent in agents:
            agent.says(f"waiting for 127.0.0.1:{first}: the first round of a run begins at its first endpoint")
        self.assertEqual(self.started, [])
        with Ddpd(port=first):
            self.until_started(2)
            self.finish(agents, 2)

    def test_a_node_with_another_list_is_refused(self):
        agents = [self.agent("--nnodes=2", places=places) for places in (self.places, self.places[::-1])]
        wait_until(lambda: any(agent.process.poll() is not None for agent in agents), "one is refused")
        refused, other = agents if agents[0].process.poll() is not None else agents[::-1]
        self.assertEqual(refused.ends(), 80, refused.log)
        self.assertRegex(refused.log, "was refused at .*: it has --rdzv-endpoint=[^ ]*, not --rdzv-endpoint=")
        other.says("it has --rdzv-endpoint=")
        other.process.terminate()
        other.ends()

    def test_an_agent_at_one_of_the_places_is_not_taken_for_a_ddpd(self):
        host = self.node("--nnodes=2", "--rdzv-id=other", command=COMMAND)
        wait_until(self.is_hosted, "an agent hosts")
        agent = self.agent("--nnodes=2", places=[f"localhost:{self.port}", self.places[0]])
        self.assertEqual(agent.ends(), 80, agent.log)
        agent.says("--rdzv-endpoint names several places, and one of them is no ddpd")
        host.process.terminate()
        host.ends()


if __name__ == "__main__":
    unittest.main(verbosity=2)
