# SPDX-License-Identifier: BSD-3-Clause
"""A host that is not at the endpoint, and stands still for longer than its lease as a whole machine: fresh nodes that
have not heard of its run may have begun it anew at the endpoint meanwhile."""

import signal
import sys
import threading
import unittest

import hosts
from host_case import HostCase
from host_change_test import forget_run
from nodes import kill, wait_until
from processes import children_of, guardians_of, send, status_of, waits_anew

if hosts.why_not():
    print(f"skipped: {hosts.why_not()}")
    sys.exit(77)

LEASE = 2  # seconds: host_case.QUICK


class HostStandstillTest(HostCase):
    def setUp(self):
        super().setUp()
        self.agents = self.all_of(2, "--nnodes=1:2")
        before = len(self.started)
        kill(self.agents[0])  # its guardian says that its workers are dead
        self.until_world((1,), since=before)
        self.before = len(self.started)
        forget_run(self.path.name, "node0")

    def freeze(self):
        pid = self.agents[1].process.pid
        self.pids = [pid, *children_of(pid)]
        self.addCleanup(lambda: self.agents[1].process.poll() is None and send(signal.SIGCONT, self.pids))
        send(signal.SIGSTOP, self.pids)

    def thaw(self):
        """The guardian holds the workers before they run, as in a machine that goes on; the test does not wake them."""
        guardians = {pid: status_of(pid)[1] for pid in guardians_of(self.agents[1].process.pid)}
        send(signal.SIGCONT, guardians)
        wait_until(lambda: all(waits_anew(pid, waits) for pid, waits in guardians.items()), "the guardian has looked")
        self.agents[1].signal(signal.SIGCONT)

    def test_it_ends_its_run_if_that_was_begun_anew_meanwhile(self):
        self.freeze()
        self.agents.append(self.agent(0, "--nnodes=1:2"))
        new = self.until_world((2,), since=self.before)  # the third agent
        seen = self.round_at(new).last
        self.thaw()
        self.assertEqual(self.agents[1].ends(), 80, self.logs())
        self.agents[1].says("this node stood still for ")
        self.agents[1].says("and a run with this id was begun meanwhile and goes on at node0:29400: this one ends, so that the two "
                            "do not train at once")
        self.until(lambda: self.round_at(new).last > seen, "the other run trains on")
        self.assertEqual(len(self.started), self.before + 1, self.logs())
        self.assert_all_succeed(self.agents[2])
        self.assert_rounds_apart()

    def assert_goes_on_with_the_same_workers(self):
        self.freeze()
        threading.Event().wait(1.5 * LEASE)  # the standstill itself
        self.thaw()
        self.agents[1].says("the run goes on with this node")
        self.assert_all_succeed(self.agents[1])
        self.assertEqual(self.started[self.before:], [], self.logs())

    def test_it_goes_on_with_the_same_workers_if_nobody_has_come(self):
        self.assert_goes_on_with_the_same_workers()

    def test_it_goes_on_with_the_same_workers_if_the_endpoints_machine_is_gone(self):
        self.addCleanup(lambda: self.hosts.heal(0))
        self.hosts.isolate(0)
        self.assert_goes_on_with_the_same_workers()


if __name__ == "__main__":
    unittest.main(verbosity=2)
