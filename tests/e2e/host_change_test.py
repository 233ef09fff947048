# SPDX-License-Identifier: BSD-3-Clause
"""A run outlives the node that hosts it, whichever way that node is lost, and never becomes two."""

import fcntl
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

import hosts
from host_case import PATIENT, QUICK, HostCase
from nodes import kill, state_folder
from own_connections import cut_own_connections
from processes import guardians_of

if hosts.why_not():
    print(f"skipped: {hosts.why_not()}")
    sys.exit(77)


def forget_run(run, host):
    """What a machine loses with its power: the files of the agent that was there, and of what it hosted."""
    folders = [pathlib.Path(f"/dev/shm/ddprun-{os.getuid()}"), pathlib.Path(state_folder())]
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # of an agent that lives
            text = file.read().decode(errors="replace")
        if run in text and f"{host}-" in text:
            path.unlink()


class HostChangeTest(HostCase):
    def test_the_others_go_on_without_a_lease_when_the_hosting_agent_is_killed(self):
        agents = self.all_of(4, "--nnodes=2:4", conf=PATIENT)
        for lost, left in ((0, (1, 2, 3)), (1, (2, 3))):
            before = len(self.started)
            kill(agents[lost])
            self.until_world(left, since=before)
            for k in left:
                agents[k].says(f"hosts the run now; node{lost}, which did, was lost (its agent, pid {agents[lost].process.pid}, was killed)")
        self.assertTrue(any("this node hosts the run" in agent.log for agent in agents[2:]), self.logs())
        self.assert_all_succeed(*agents[2:])
        self.assert_rounds_apart()

    def test_the_others_find_each_other_over_slow_links(self):
        """With 100 ms to another machine and back: an attempt to join takes longer than beside it."""
        for k in range(4):
            self.addCleanup(self.hosts.slow_down(k, 25))
        agents = self.all_of(4, "--nnodes=2:4", conf="last_call_timeout=1")
        for lost, left in ((0, (1, 2, 3)), (1, (2, 3))):
            before = len(self.started)
            kill(agents[lost])
            self.until_world(left, since=before)
        self.assert_all_succeed(*agents[2:])
        self.assert_rounds_apart()

    def test_the_others_go_on_without_a_lease_when_the_hosting_agent_is_told_to_stop(self):
        agents = self.all_of(4, "--nnodes=2:4", conf=PATIENT)
        for lost, left in ((0, (1, 2, 3)), (1, (2, 3))):
            before = len(self.started)
            agents[lost].process.terminate()
            self.assertEqual(agents[lost].ends(), 143, agents[lost].log)
            self.until_world(left, since=before)
        for agent in agents[2:]:
            agent.says("was stopped by SIGTERM")
        self.assert_all_succeed(*agents[2:])
        self.assert_rounds_apart()

    def test_a_hosting_agent_without_which_too_few_are_left_ends_the_run(self):
        agents = self.all_of(2, "--nnodes=2:3")
        agents[0].process.terminate()
        self.assertEqual(agents[0].ends(), 143, agents[0].log)
        self.assertEqual(agents[1].ends(), 80, agents[1].log)
        agents[1].says("which hosts the rendezvous, was stopped by SIGTERM")

    def test_all_who_are_told_to_stop_end_although_the_host_goes_first(self):
        agents = self.all_of(4, "--nnodes=2:4")
        for agent in agents:
            agent.process.terminate()
        for agent in agents:
            self.assertEqual(agent.ends(), 143, self.logs())

    def test_an_agent_that_is_started_again_joins_the_run_where_it_is(self):
        agents = self.all_of(3, "--nnodes=2:3")
        before = len(self.started)
        kill(agents[0])
        self.until_world((1, 2), since=before)
        before = len(self.started)
        back = self.agent(0, "--nnodes=2:3")  # at the endpoint, on the machine that it names
        self.until_world((1, 2, 3), since=before)
        self.assert_all_succeed(back, *agents[1:])
        self.assert_rounds_apart()

    def test_a_host_without_power_is_followed_and_comes_back_as_a_node(self):
        agents = self.all_of(4, "--nnodes=2:4")
        before = len(self.started)
        first = self.until_world(range(4))
        self.addCleanup(lambda: self.hosts.heal(0))
        self.hosts.isolate(0)
        second = self.until_world((1, 2, 3), since=before)
        old, new = self.round_at(first), self.round_at(second)
        self.assertLess(old.last, new.begin)
        agents[0].says("this node, which hosts the run, has heard too few of the others for 1.")  # a minority of one
        for agent in agents[1:]:
            agent.says("hosts the run now; node0, which did, was lost (nothing was heard of it until its lease was over)")
        before = len(self.started)
        self.hosts.heal(0)
        self.until_world(range(4), since=before)
        agents[0].says("the run has another host, at 10.")
        self.assert_all_succeed(*agents)
        self.assert_rounds_apart()

    def test_a_host_that_nobody_reaches_comes_to_the_others(self):
        """Its firewall lets connections out and none in; the others are too few without it."""
        agents = self.all_of(4, "--nnodes=2:4")
        before = len(self.started)
        self.hosts.let_nobody_in(1)  # the first stand-in
        self.addCleanup(self.hosts.mend)
        self.addCleanup(lambda: self.hosts.heal(0))
        self.hosts.isolate(0)
        self.until_world((1, 2, 3), since=before)
        agents[1].says("the run is to have another host, since no connection to 10.")
        for agent in agents[2:]:
            agent.says("knocks here, and no connection to it comes about")
            self.assertEqual(agent.log.count("knocks here"), 1, agent.log)
        self.assert_all_succeed(*agents[1:])
        self.assert_rounds_apart()

    def test_a_standby_finds_the_run_where_it_is_when_the_hosts_machine_is_gone(self):
        agents = self.all_of(3, "--nnodes=3")
        before = len(self.started)
        agents.append(self.agent(3, "--nnodes=3"))
        agents[3].says("standing by")
        self.addCleanup(lambda: self.hosts.heal(0))
        self.hosts.isolate(0)
        self.until_world((1, 2, 3), since=before)
        self.assert_all_succeed(*agents[1:])
        self.assert_rounds_apart()

    def test_a_node_that_was_cut_off_finds_the_host_that_is_not_at_the_endpoint(self):
        agents = self.all_of(4, "--nnodes=2:4")
        for k in (0, 3):
            self.addCleanup(lambda k=k: self.hosts.heal(k))
        before = len(self.started)
        self.hosts.isolate(0)  # for good
        self.until_world((1, 2, 3), since=before)
        before = len(self.started)
        self.hosts.isolate(3)
        self.until_world((1, 2), since=before)
        before = len(self.started)
        self.hosts.heal(3)
        self.until_world((1, 2, 3), since=before)
        self.assert_all_succeed(*agents[1:])
        self.assert_rounds_apart()

    def test_an_agent_that_is_started_again_finds_the_run_when_the_endpoints_machine_is_gone(self):
        agents = self.all_of(3, "--nnodes=2:3")
        before = len(self.started)
        self.addCleanup(lambda: self.hosts.heal(0))
        self.hosts.isolate(0)  # for good
        self.until_world((1, 2), since=before)
        names = {1: 1, 2: 2}  # of what runs on each host
        host = 1 if "this node hosts the run at" in agents[1].log else 2
        for what, k in (("another", 3 - host), ("the one that hosts", host)):
            before = len(self.started)
            kill(agents[names[k]])
            began = time.monotonic()
            names[k] = len(agents)
            agents.append(self.agent(k, "--nnodes=2:3"))
            self.until_world(names.values(), since=before)
            print(f"{what} of two nodes was killed and started again: a round of both {time.monotonic() - began:.2f} s later")
            agents[-1].says("looking for the run at 10.77.0.")
        self.assert_all_succeed(*(agents[name] for name in names.values()))
        self.assert_rounds_apart()

    def test_a_standby_that_is_started_again_finds_the_run_when_the_endpoints_machine_is_gone(self):
        """It was in no round."""
        agents = self.all_of(3, "--nnodes=3")
        before = len(self.started)
        for k in (3, 4):
            agents.append(self.agent(3, "--nnodes=3"))
            agents[k].says("standing by")
        self.addCleanup(lambda: self.hosts.heal(0))
        self.hosts.isolate(0)  # for good
        self.until(lambda: len(self.started) >= before + 3, "one of the two takes the place of the host that is lost")
        taken = 3 if any(line.startswith("3 ") for line in self.started[before:]) else 4
        spare = 7 - taken
        self.until_world((1, 2, taken), since=before)
        self.until(lambda: agents[spare].log.count("standing by") > 1, "the other one stands by where the run is now")
        kill(agents[spare])
        agents.append(self.agent(3, "--nnodes=3"))
        agents[5].says("looking for the run at 10.77.0.")
        agents[5].says("standing by")
        before = len(self.started)
        kill(agents[taken])
        self.until_world((1, 2, 5), since=before)
        self.assert_all_succeed(agents[1], agents[2], agents[5])
        self.assert_rounds_apart()

    def test_what_is_left_of_a_host_may_fail_when_the_run_is_elsewhere(self):
        agents = self.all_of(4, "--nnodes=2:4")
        before = len(self.started)
        self.addCleanup(lambda: self.hosts.heal(0))
        self.hosts.isolate(0)
        self.until_world((1, 2, 3), since=before)
        before = len(self.started)
        self.hosts.heal(0)
        self.until_world(range(4), since=before)
        started = len(self.started)
        cut_own_connections(agents[0].process.pid)
        agents[0].says("this node hosted the run before, and what was left of that has failed: ")
        self.assert_all_succeed(*agents)
        self.assertEqual(len(self.started), started, "it has cost a round")
        self.assert_rounds_apart()

    def test_the_others_go_on_when_the_hosts_coordinator_fails(self):
        agents = self.all_of(3, "--nnodes=2:3")
        before = len(self.started)
        cut_own_connections(agents[0].process.pid)
        self.assertEqual(agents[0].ends(), 80, agents[0].log)
        self.until_world((1, 2), since=before)
        self.assert_all_succeed(*agents[1:])
        self.assert_rounds_apart()

    def test_a_host_that_stands_still_is_followed_and_comes_back_as_a_node(self):
        agents = self.all_of(4, "--nnodes=2:4")
        before = len(self.started)
        agents[0].signal(signal.SIGSTOP)
        self.addCleanup(lambda: agents[0].process.poll() is None and agents[0].signal(signal.SIGCONT))
        self.until_world((1, 2, 3), since=before)
        before = len(self.started)
        agents[0].signal(signal.SIGCONT)
        self.until_world(range(4), since=before)
        self.assert_all_succeed(*agents)
        self.assert_rounds_apart()

    def test_a_host_that_is_not_heard_is_followed_and_comes_back_as_a_node(self):
        agents = self.all_of(4, "--nnodes=2:4")
        before = len(self.started)
        self.addCleanup(self.hosts.mend)
        self.hosts.cut_off_one_way(0)
        self.until_world((1, 2, 3), since=before)
        before = len(self.started)
        self.hosts.mend()
        self.until_world(range(4), since=before)
        self.assert_all_succeed(*agents)
        self.assert_rounds_apart()

    def test_blinks_of_the_hosts_network_restart_nothing(self):
        # At another moment between two heartbeats each.
        agents = self.all_of(3, "--nnodes=2:3", conf="last_call_timeout=0.3,read_timeout=60,join_timeout=60")
        before = len(self.started)
        self.addCleanup(lambda: self.hosts.heal(0))
        for between in (2.0, 2.3, 2.6, 2.9):
            self.hosts.isolate(0)
            threading.Event().wait(1)  # the blink itself
            self.hosts.heal(0)
            threading.Event().wait(between)
        self.assert_all_succeed(*agents)
        self.assertEqual(self.started[before:], [], self.logs())

    def test_a_firewall_that_resets_and_refuses_for_a_moment_restarts_nothing(self):
        agents = self.all_of(3, "--nnodes=2:3", conf="last_call_timeout=0.3,read_timeout=60,join_timeout=60")
        before = len(self.started)
        self.addCleanup(lambda: self.hosts.passes(2))
        self.hosts.reset(2, 0)
        agents[2].says("Connection reset by peer; connecting again")
        threading.Event().wait(1)  # the moment itself
        self.hosts.passes(2)
        agents[2].says("reached node0:29400")
        self.assert_all_succeed(*agents)
        self.assertEqual(self.started[before:], [], self.logs())

    def test_of_two_nodes_the_other_goes_on_when_the_hosting_agent_is_known_to_be_dead(self):
        agents = self.all_of(2, "--nnodes=1:2")
        before = len(self.started)
        kill(agents[0])
        self.until_world((1,), since=before)
        self.assert_all_succeed(agents[1])
        self.assert_rounds_apart()

    def test_of_two_nodes_the_other_waits_for_a_silent_host_and_says_so(self):
        agents = self.all_of(2, "--nnodes=1:2")
        before = len(self.started)
        self.addCleanup(lambda: self.hosts.heal(0))
        self.hosts.isolate(0)
        agents[1].says("waiting for more of the last round's nodes, since the others may go on without these: "
                       "1 of the 2 nodes of round 0")
        self.hosts.heal(0)
        self.until_world((0, 1), since=before)
        self.assert_all_succeed(*agents)
        self.assert_rounds_apart()

    def test_of_two_nodes_the_other_waits_for_more_than_a_new_agent_on_the_lost_hosts_machine(self):
        """The machine was switched off, and has forgotten the run: that may have gone on without the other node."""
        agents = self.all_of(2, "--nnodes=2")
        before = len(self.started)
        self.addCleanup(lambda: self.hosts.heal(0))
        self.hosts.isolate(0)
        agents[0].signal(signal.SIGSTOP)  # it would replace its guardian, which says that it was killed
        for pid in (*guardians_of(agents[0].process.pid), agents[0].process.pid, *self.workers_of(0)):
            os.kill(pid, signal.SIGKILL)
        agents[0].process.wait()
        forget_run(self.path.name, "node0")
        agents[1].says("this node hosts the run at")
        self.hosts.heal(0)
        agents.append(self.agent(0, "--nnodes=2"))
        for agent in agents[1:]:
            agent.says("1 of the 2 nodes of round 0 are here (node1); node0 does not count, with an agent that knows nothing of "
                       "that round; ")
            agent.says("start the run again")
            agent.says("--rdzv-conf quorum=1")
        for agent in agents[1:]:
            agent.process.terminate()
        for agent in agents[1:]:
            agent.ends()
        again = [self.agent(k, "--nnodes=2") for k in range(2)]
        self.until_world((3, 4), since=before)
        self.assert_all_succeed(*again)

    def test_of_two_nodes_one_goes_on_if_the_user_says_that_it_is_enough(self):
        agents = self.all_of(2, "--nnodes=1:2", conf=f"{QUICK},quorum=1")
        before = len(self.started)
        self.addCleanup(lambda: self.hosts.heal(0))
        self.hosts.isolate(0)
        for pid in (agents[0].process.pid, *self.workers_of(0)):
            subprocess.run(["kill", "-KILL", str(pid)], check=False)  # its power is gone, and nobody hears of it
        self.until_world((1,), since=before)
        self.assert_all_succeed(agents[1])

    def test_a_run_that_was_killed_as_a_whole_begins_anew(self):
        agents = self.all_of(3, "--nnodes=3")
        before = len(self.started)
        killed = [pid for agent in agents for pid in (*guardians_of(agent.process.pid), agent.process.pid)]
        for pid in killed + [pid for k in range(3) for pid in self.workers_of(k)]:
            os.kill(pid, signal.SIGKILL)
        for agent in agents:
            agent.ends()
        agents = [self.agent(k, "--nnodes=3") for k in range(3)]
        self.until_world((3, 4, 5), since=before)
        self.assert_all_succeed(*agents)
        self.assert_rounds_apart()

    def test_the_same_command_starts_again_after_a_run_that_ended_elsewhere(self):
        agents = self.all_of(3, "--nnodes=2:3")
        before = len(self.started)
        kill(agents[0])
        self.until_world((1, 2), since=before)
        self.assert_all_succeed(*agents[1:])
        before = len(self.started)
        again = [self.agent(k, "--nnodes=2:3") for k in range(3)]
        for agent in again:
            self.assertEqual(agent.ends(), 0, self.logs())
        self.assertEqual(len(self.started) - before, 3, self.logs())

    def test_a_new_agent_does_not_speak_for_one_that_lives(self):
        """On a machine of the same name: the old ones are cut off, and may be with another host."""
        agents = self.all_of(3, "--nnodes=2:4")
        before = len(self.started)
        for k in (1, 2):
            self.addCleanup(lambda k=k: self.hosts.heal(k))
            self.hosts.isolate(k)
        agents[0].says("has heard too few of the others")
        spare = self.agent(3, "--nnodes=2:4", called="node1")
        spare.says("waiting for more of the last round's nodes, since the others may go on without these: "
                   "1 of the 3 nodes of round 0")
        for k in (1, 2):
            self.hosts.heal(k)
        self.until_world(range(4), since=before)
        self.assert_all_succeed(*agents, spare)
        self.assert_rounds_apart()

    def test_who_hosts_next_asks_for_the_secret_as_well(self):
        secret = self.path / "secret"
        with open(secret, "w", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            out.write("k" * 43)
        options = ("--nnodes=2:3", f"--rdzv-secret-file={secret}")
        agents = self.all_of(3, *options)
        before = len(self.started)
        kill(agents[0])
        self.until_world((1, 2), since=before)
        place = re.search(r"this node hosts the run at ([\d.]+:\d+)", self.logs()).group(1)
        stranger = self.agent(3, "--nnodes=2:3", endpoint=place, conf="read_timeout=2")
        self.assertNotEqual(stranger.ends(), 0)
        self.assertIn("asks for the secret of the run", stranger.log)
        self.assert_all_succeed(*agents[1:])


if __name__ == "__main__":
    unittest.main(verbosity=2)
