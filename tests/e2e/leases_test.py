# SPDX-License-Identifier: BSD-3-Clause
"""A round begins only when the workers of the one before are dead, and what is uncertain restarts nothing."""

import os
import pathlib
import shutil
import signal
import sys
import threading
import unittest

from beats import COMMAND
from ddpd_process import Ddpd
from nodes import NodesCase, kill, wait_until
from own_connections import cut_own_connections
from processes import children_of
from proxy import Proxy

# A silence limit of 2 s.
QUICK = "--rdzv-conf=last_call_timeout=0.3,read_timeout=60,keep_alive_interval=0.4,keep_alive_max_attempt=5"

FOR_EVER = "1000000"

# The disk and the exec that stand still (stall_test.py).
SHIM = pathlib.Path(os.environ["DDPRUN_BIN"]).resolve() / "libfrozen_files.so"
LONG = bool(os.environ.get("DDPRUN_TEST_LONG"))
STALL_S = 8 if LONG else 4  # of a disk, against a silence limit of 2 s
EXEC_S = 9 if LONG else 4
PAUSE_S = 12 if LONG else 5
RUNS = 200 if LONG else 8  # at one ddpd that is started again


class BeatsCase(NodesCase):
    """Runs of workers that say when they live."""

    def host_port(self):
        """Where their nodes meet."""
        raise NotImplementedError

    def proxy(self):
        proxy = Proxy(self.host_port())
        self.addCleanup(proxy.close)
        return proxy

    def start(self, *options, port=None, **extra):
        return self.node("--nproc-per-node=1", *options, endpoint=f"127.0.0.1:{port or self.host_port()}",
                         command=COMMAND, **extra)

    def until_world(self, size, since=0):
        """The name of the first round of `size` workers that started after `since` others."""
        found = []

        def is_there():
            rounds = {}
            for line in self.started[since:]:
                rounds.setdefault(line.split()[3], []).append(line)
            found[:] = [r for r, lines in rounds.items()
                        if len(lines) == size and all(line.split()[2] == str(size) for line in lines)]
            return bool(found)
        try:
            wait_until(is_there, f"a round of {size}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.started[since:]}\n{self.logs()}") from None
        return found[0]

    def assert_started(self, count):
        """So many workers have been started, and no more."""
        self.assertEqual(len(self.started), count, f"{self.started}\n{self.logs()}")

    def pids(self):
        return sorted(int(line.split()[4]) for line in self.started)

    def first(self, *options):
        """The first node, when the others can find the host."""
        return self.start(*options)

    def everything(self, nodes):
        """All processes of these nodes, and of their host."""
        all_pids = self.pids()
        for node in nodes:
            all_pids.append(node.process.pid)
            all_pids += [pid for pid in children_of(node.process.pid) if pid not in all_pids]
        return all_pids


class Calm:
    """What costs nothing, whoever hosts."""

    def test_a_reset_connection_restarts_nothing(self):
        nodes = [self.first("--nnodes=2", QUICK)]
        proxy = self.proxy()
        nodes.append(self.start("--nnodes=2", QUICK, port=proxy.port))
        self.until_world(2)
        for times in range(3):
            proxy.reset()
            wait_until(lambda: nodes[1].log.count("again\n") == 2 * times + 2, "the node has lost the host, and is back")
        self.assert_all_succeed(*nodes)
        self.assert_started(2)

    def test_a_blink_restarts_nothing(self):
        nodes = [self.first("--nnodes=2")]
        proxy = self.proxy()
        nodes.append(self.start("--nnodes=2", port=proxy.port))
        self.until_world(2)
        proxy.hold()
        threading.Event().wait(1)
        proxy.release()
        self.assert_all_succeed(*nodes)
        self.assert_started(2)

    def test_a_pause_of_everything_costs_nothing(self):
        self.pause_everything(2)

    def test_a_pause_of_everything_costs_nothing_where_the_host_needs_another(self):
        self.pause_everything(3, slice_s=0.6)

    def pause_everything(self, count, slice_s=0.3):
        options = (f"--nnodes={count}", QUICK)
        nodes = [self.first(*options), *(self.start(*options) for _ in range(count - 1))]
        self.until_world(count)
        # Slices of a gang scheduler, of which one is more than twice the silence limit.
        for pause in (PAUSE_S, 1, 1):
            all_pids = self.everything(nodes)
            for pid in all_pids:
                os.kill(pid, signal.SIGSTOP)
            threading.Event().wait(pause)  # the pause itself
            for pid in all_pids:
                os.kill(pid, signal.SIGCONT)
            threading.Event().wait(slice_s)  # the slice itself
        for node in nodes:
            node.says("stood still for")
            node.says("the run goes on with this node")
        self.assert_all_succeed(*nodes)
        self.assert_started(count)


class AgentHostsTest(Calm, BeatsCase):
    def host_port(self):
        return self.port

    def first(self, *options, **extra):
        node = self.start(*options, **extra)
        wait_until(self.is_hosted, "the first agent listens")
        return node

    def test_a_run_that_was_stopped_begins_anew_though_its_host_was_killed_meanwhile(self):
        """As by Slurm, when the first rank saves for longer than KillWait."""
        options = ("--nnodes=2", QUICK.replace("read_timeout=60", "read_timeout=60,join_timeout=60"))
        host = self.first(*options, SAVE=FOR_EVER)
        other = self.start(*options)
        self.until_world(2)
        for node in (host, other):
            node.signal(signal.SIGTERM)
        self.assertEqual(other.ends(), 143, other.log)
        kill(host)
        nodes = [self.start(*options) for _ in range(2)]
        self.until_world(2, since=2)
        self.assert_all_succeed(*nodes)
        self.assertEqual(self.assert_rounds_apart(), 2)


class LeaseTest(Calm, BeatsCase):
    def setUp(self):
        super().setUp()
        self.ddpd = self.enterContext(Ddpd())

    def host_port(self):
        return self.ddpd.port

    def everything(self, nodes):
        return [self.ddpd.process.pid, *super().everything(nodes)]

    def frozen(self, **what):
        """The environment of an agent whose disk or exec stands still while the file `gate` exists."""
        if not SHIM.exists():
            self.skipTest(f"no {SHIM.name} in this build")
        self.gate = self.path / "gate"
        return {"LD_PRELOAD": str(SHIM), "FROZEN_GATE": str(self.gate), "FROZEN_FOLDER": "none", "FROZEN_PROGRAM": "none",
                "FROZEN_NAME": "none", **what}

    def test_a_log_disk_that_stands_still_restarts_nothing(self):
        nodes = [self.start("--nnodes=2", QUICK),
                 self.start("--nnodes=2", "--tee=3", QUICK, TALK="1", **self.frozen(FROZEN_FOLDER=str(self.path / "logs")))]
        self.until_world(2)
        self.gate.touch()
        nodes[1].says("has stood still for")
        threading.Event().wait(STALL_S)
        self.gate.unlink()
        self.assert_all_succeed(*nodes)
        self.assertIn("stood still for", nodes[1].log)
        self.assert_started(2)

    def test_a_program_that_is_slow_to_load_restarts_nothing(self):
        program = self.path / "program"
        shutil.copy("/usr/bin/env", program)
        extra = self.frozen(FROZEN_PROGRAM=str(program))
        self.gate.touch()
        command = ("--no-python", str(program), *COMMAND[1:])
        nodes = [self.node("--nproc-per-node=1", "--nnodes=2", QUICK, endpoint=f"127.0.0.1:{self.ddpd.port}",
                           command=command, **environment) for environment in ({}, extra)]
        nodes[1].says("has stood still for")
        threading.Event().wait(EXEC_S)
        self.gate.unlink()
        self.until_world(2)
        self.assert_all_succeed(*nodes)
        self.assert_started(2)

    def test_a_restart_of_ddpd_under_many_runs_restarts_nothing(self):
        nodes = []

        def all_run():  # a machine that is busy starting them may need more than one round for that
            last = {int(line.split()[0]): line.split()[3] for line in self.started}  # the round of each
            return len(last) == len(nodes) and all(last[k] == last[k + 1] for k in range(0, len(nodes), 2))
        for run in range(RUNS):
            nodes += [self.start("--nnodes=2", f"--rdzv-id=run{run}", BEAT="0.5") for _ in range(2)]
            if run % 8 == 7:  # that many at a time; their interpreters are heavy
                wait_until(all_run, "all workers run")
        port = self.ddpd.port
        before, said = len(self.started), [len(node.log) for node in nodes]

        def until_all_say(text):
            for node, length in zip(nodes, said):
                wait_until(lambda node=node, length=length: text in node.log[length:], f"each agent says {text!r}")
        self.ddpd.stop(signal.SIGKILL)
        until_all_say("connecting again")
        with Ddpd(port=port):
            until_all_say(f"reached 127.0.0.1:{port} again")
            threading.Event().wait(6)  # more than the silence limit
            self.assertEqual(self.started[before:], [], self.logs())
            self.assert_all_succeed(*nodes)

    def test_a_restart_of_ddpd_restarts_nothing(self):
        self.restart_ddpd(signal.SIGKILL)

    def test_an_upgrade_of_ddpd_restarts_nothing(self):
        self.restart_ddpd(signal.SIGTERM)

    def restart_ddpd(self, number):
        nodes = [self.start("--nnodes=2", QUICK) for _ in range(2)]
        self.until_world(2)
        port = self.ddpd.port
        self.ddpd.stop(number)
        for node in nodes:
            node.says("connecting again")
        with Ddpd(port=port):
            self.assert_all_succeed(*nodes)
        self.assert_started(2)

    def test_a_ddpd_that_is_away_for_more_than_a_second_restarts_nothing(self):
        nodes = [self.start("--nnodes=2") for _ in range(2)]
        self.until_world(2)
        port = self.ddpd.port
        self.ddpd.stop(signal.SIGKILL)
        threading.Event().wait(1.2)
        with Ddpd(port=port):
            for node in nodes:
                node.says(f"reached 127.0.0.1:{port} again")
            self.assert_all_succeed(*nodes)
        self.assert_started(2)

    def test_a_job_that_has_ended_while_ddpd_is_away_is_not_run_again(self):
        nodes = [self.start("--nnodes=2", QUICK) for _ in range(2)]
        self.until_world(2)
        port = self.ddpd.port
        self.ddpd.stop(signal.SIGKILL)
        self.go()
        threading.Event().wait(4)  # two leases
        with Ddpd(port=port):
            self.assert_all_succeed(*nodes)
        self.assert_started(2)

    def test_a_node_that_ended_while_ddpd_was_away_is_known_to_have_ended(self):
        patient = QUICK.replace("keep_alive_interval=0.4", "keep_alive_interval=4")
        nodes = [self.start("--nnodes=1:2", patient) for _ in range(2)]
        self.until_world(2)
        port = self.ddpd.port
        self.ddpd.stop(signal.SIGKILL)
        for node in nodes:
            node.says("connecting again")
        nodes[1].signal(signal.SIGTERM)
        nodes[1].says("received SIGTERM")
        with Ddpd(port=port):
            self.assertEqual(nodes[1].ends(), 143, nodes[1].log)
            nodes[0].says("was stopped by SIGTERM")  # whether its worker has ended when it reaches ddpd or not
            self.until_world(1, since=2)
            self.assert_all_succeed(nodes[0])
        self.assertEqual(self.assert_rounds_apart(), 2)

    def test_a_failure_after_a_restart_of_ddpd_is_known_everywhere(self):
        nodes = [self.start("--nnodes=2", "--max-restarts=1", QUICK) for _ in range(2)]
        self.until_world(2)
        port = self.ddpd.port
        self.ddpd.stop(signal.SIGKILL)
        for node in nodes:
            node.says("connecting again")
        os.kill(self.pids()[0], signal.SIGKILL)
        with Ddpd(port=port):
            self.until_world(2, since=2)
            self.assert_all_succeed(*nodes)
        for node in nodes:
            self.assertIn("restart 1 of 1", node.log)
        self.assertEqual(self.assert_rounds_apart(), 2)

    def test_a_node_that_is_cut_off_ends_its_workers_before_the_others_go_on(self):
        proxy = self.proxy()
        nodes = [self.start("--nnodes=1:2", QUICK),
                 self.start("--nnodes=1:2", QUICK, port=proxy.port, SAVE=FOR_EVER)]
        self.until_world(2)
        proxy.is_cut = True
        nodes[1].says("has been silent for")
        self.until_world(1, since=2)
        nodes[0].says("was lost (silent for")
        self.go()
        self.assertEqual(nodes[0].ends(), 0, nodes[0].log)
        self.assertEqual(self.assert_rounds_apart(), 2)
        kill(nodes[1])

    def test_a_ddpd_begun_anew_waits_for_workers_that_it_cannot_reach(self):
        proxy = self.proxy()
        lost = [self.start("--nnodes=2", QUICK + ",lease_grace=4", port=proxy.port,
                           SAVE=FOR_EVER) for _ in range(2)]
        self.until_world(2)
        proxy.hold()
        port = self.ddpd.port
        self.ddpd.stop(signal.SIGKILL)
        self.ddpd = self.enterContext(Ddpd(port=port))
        nodes = [self.start("--nnodes=2", QUICK) for _ in range(2)]
        self.until_world(2, since=2)
        self.assertEqual(self.assert_rounds_apart(), 2)
        for node in lost:
            kill(node)
        self.assert_all_succeed(*nodes)
        self.ddpd.stop()
        self.assertIn("may be alive", self.ddpd.log)

    def test_a_host_whose_coordinator_fails_ends_and_the_others_go_on_without_it(self):
        options = ("--nproc-per-node=1", "--nnodes=1:2", QUICK)
        host = self.node(*options, command=COMMAND, SAVE=FOR_EVER)
        other = self.node(*options, command=COMMAND)
        self.until_world(2)
        cut_own_connections(host.process.pid)
        self.assertEqual(host.ends(), 80, host.log)
        self.assertRegex(host.log, rf"the rendezvous that this node hosts at localhost:{self.port} has failed: the coordinator "
                                   "cannot ")
        self.until_world(1, since=2)
        self.assert_all_succeed(other)
        self.assertEqual(self.assert_rounds_apart(), 2)

    def test_a_frozen_agents_guardian_ends_its_workers_before_the_others_go_on(self):
        nodes = [self.start("--nnodes=1:2", QUICK), self.start("--nnodes=1:2", QUICK, SAVE=FOR_EVER)]
        self.until_world(2)
        nodes[1].signal(signal.SIGSTOP)
        self.until_world(1, since=2)
        self.assertIn("was lost (silent for", nodes[0].log)
        nodes[1].signal(signal.SIGCONT)
        self.until_world(2, since=3)
        self.assertEqual(self.assert_rounds_apart(), 3)
        self.assert_all_succeed(*nodes)

    def test_a_killed_agents_guardian_says_so_and_nobody_waits(self):
        nodes = [self.start("--nnodes=1:2", QUICK.replace("keep_alive_interval=0.4", "keep_alive_interval=60"))
                 for _ in range(2)]
        self.until_world(2)
        kill(nodes[1])
        self.until_world(1, since=2)
        self.assertRegex(nodes[0].log, r"was lost \(its agent, pid \d+, was killed\)")
        self.assert_all_succeed(nodes[0])
        self.assertEqual(self.assert_rounds_apart(), 2)

    def test_the_others_wait_for_the_workers_of_a_node_that_was_told_to_stop(self):
        nodes = [self.start("--nnodes=1:2", QUICK), self.start("--nnodes=1:2", QUICK, SAVE="5")]
        self.until_world(2)
        nodes[1].signal(signal.SIGTERM)
        nodes[0].says("was stopped by SIGTERM")
        self.until_world(1, since=2)
        self.assert_all_succeed(nodes[0])
        self.assertEqual(self.assert_rounds_apart(), 2)
        self.assertEqual(nodes[1].ends(), 143, nodes[1].log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
