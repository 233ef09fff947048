# SPDX-License-Identifier: BSD-3-Clause
"""Runs of several nodes, all on this machine: rounds, failures, losses, late comers, refusals."""

import contextlib
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

from ddpd_process import Ddpd
from nodes import DDPRUN, LIMIT, STACKS_OF_A_WAIT, NodesCase, WORKER, kill, wait_until

QUICK = "--rdzv-conf=last_call_timeout=0.3,read_timeout=30,keep_alive_interval=0.2,keep_alive_max_attempt=5"


def pid_of(line):
    return int(re.search(r" pid (\d+) ", line)[1])


# At SIGTERM rank 0 ends at once; rank 1 needs the workers' store for two seconds more.
SAVES_LATE = """
import os, pathlib, signal, socket, time
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
rank = os.environ["RANK"]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # it may come before the wait begins
socket.create_connection(where).close()
with open("started", "a") as file:
    file.write(f"{rank}\\n")
signal.sigwait({signal.SIGTERM})
end = time.monotonic() + 2
while rank == "1" and time.monotonic() < end:
    socket.create_connection(where).close()
    time.sleep(0.02)
pathlib.Path(f"saved.{rank}").touch()
"""


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class RoundTest(NodesCase):
    def states_of_nodes(self):
        """Of the run's nodes, sorted, as their host sees them."""
        asked = subprocess.run([pathlib.Path(DDPRUN).with_name("ddpctl"), "nodes", f"localhost:{self.port}", "--json"],
                               capture_output=True, text=True)
        return sorted(node["state"] for run in json.loads(asked.stdout or "[]") for node in run["nodes"])

    def test_ranks_are_dense_and_everybody_meets_at_one_place(self):
        nodes = [self.node("--nnodes=2", "--nproc-per-node", n) for n in (1, 2)]
        lines = self.until_started(3)
        ranks = sorted(int(re.search(r" (\d)/3 ", line)[1]) for line in lines)
        self.assertEqual(ranks, [0, 1, 2])
        self.assertEqual(len({line.rpartition(" at ")[2] for line in lines}), 1, lines)
        self.assert_all_succeed(*nodes)

    def test_the_workers_store_listens_where_the_others_are_told_to_find_it(self):
        meet = ("--no-python", sys.executable, "-c",
                "import os, socket\n"
                "where = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
                "socket.create_connection(where).close()\n"
                "open('met', 'a').write(where[0] + '\\n')\n")
        for endpoint, options, address in ((f"localhost:{self.port}", ["--local-addr=127.0.0.2"], "127.0.0.2"),
                                           (f"127.0.0.3:{self.port}", [], "127.0.0.3")):
            nodes = [self.node("--nnodes=2", *options, command=meet, endpoint=endpoint) for _ in range(2)]
            for node in nodes:
                self.assertEqual(node.ends(), 0, node.log)
            self.assertEqual((self.path / "met").read_text(), f"{address}\n" * 2)
            (self.path / "met").unlink()

    def test_a_run_has_one_name_on_all_nodes_and_in_all_rounds(self):
        note = ("--no-python", "sh", "-c",
                "echo $DDPRUN_RUN_UUID $DDPRUN_ROUND >>generations; [ $RANK$DDPRUN_ROUND = 00 ] || exit 0\n"
                "until [ $(grep -c \"$DDPRUN_RUN_UUID 0\" generations) = 2 ]; do sleep 0.01; done; exit 1")
        for run in (1, 2):
            self.count = 0  # another host
            nodes = [self.node("--nnodes=2", "--max-restarts=1", command=note) for _ in range(2)]
            for node in nodes:
                self.assertEqual(node.ends(), 0, node.log)
            generations = [line.split() for line in (self.path / "generations").read_text().splitlines()]
            self.assertEqual(sorted(number for _, number in generations), sorted(["0", "0", "1", "1"] * run))
            self.assertEqual(len({uuid for uuid, _ in generations}), run, generations)

    def test_a_failure_anywhere_restarts_everybody_and_is_named_everywhere(self):
        nodes = [self.node("--nnodes=2", "--max-restarts=1") for _ in range(2)]
        self.until_started(2)
        self.make_fail(rank=1, restart=0, code=11)
        lines = self.until_started(4)
        self.assertTrue(all("restart 1 " in line for line in lines[2:]), lines)
        for node in nodes:
            self.assertRegex(node.log, r"rank 1 \(local rank 0, pid \d+\) on \S+ exited with code 11; "
                                       r".*restart 1 of 1")
        self.assert_all_succeed(*nodes)
        self.assertNotEqual(lines[0].rpartition(":")[2], lines[2].rpartition(":")[2], "a store of its own")

    def test_a_rank_of_another_node_that_left_first_is_named(self):
        """What its peer says when the connection breaks blames nobody."""
        worker = ('[ $RANK = 1 ] && exit 0; while ! [ -e seen ]; do sleep 0.02; done; '
                  'echo "RuntimeError: Connection closed by peer [10.0.0.2]:4711" >&2; exit 1')
        nodes = [self.node("--nnodes=2", f"--node-rank={rank}", command=("--no-python", "sh", "-c", worker))
                 for rank in range(2)]
        wait_until(lambda: self.states_of_nodes() == ["succeeded", "training"], "the host knows that rank 1 has ended")
        (self.path / "seen").touch()
        for node in nodes:
            self.assertEqual(node.ends(), 1, node.log)
            self.assertIn("had ended with exit code 0 before that: rank 1", node.log)
            self.assertIn("next: see why rank 1 ended first, with exit code 0", node.log)

    def test_the_restarts_are_the_jobs_and_their_end_is_everybodys_exit_code(self):
        nodes = [self.node("--nnodes=2", "--max-restarts=1") for _ in range(2)]
        self.until_started(2)
        self.make_fail(rank=0, restart=0, code=5)
        self.until_started(4)
        self.make_fail(rank=1, restart=1, code=6)
        for node in nodes:
            self.assertEqual(node.ends(), 82, node.log)
            self.assertIn("the end, since the one restart is spent", node.log)
            self.assertRegex(node.log, r"FAILED: rank 1 \(local rank 0, pid \d+\) on \S+ exited with code 6\n")
            self.assertRegex(node.log, r"\n    attempt 0: rank 0 \(.*\) on \S+ exited with code 5\n")

    def test_a_program_that_cannot_be_started_ends_the_run_everywhere(self):
        (self.path / "program").write_text("no program")
        (self.path / "program").chmod(0o755)
        good = self.node("--nnodes=2", "--max-restarts=3")
        bad = self.node("--nnodes=2", "--max-restarts=3", command=("--no-python", "./program"))
        self.assertEqual(bad.ends(), 126, bad.log)
        self.assertEqual(good.ends(), 126, good.log)
        self.assertRegex(good.log, r"FAILED: rank \d on \S+ could not be started: .*Exec format error")

    def test_a_node_that_lacks_something_is_named_everywhere(self):
        (self.path / "file").write_text("")
        cases = (("log folder /\\S+/file/logs .*: Not a directory", ["--log-dir", self.path / "file/logs"], None),
                 ("script 'no-such-script.py' does not exist", [], ("no-such-script.py",)),
                 ("program 'no-such-program' was not found in PATH", [], ("--no-python", "no-such-program")),
                 ("program '/no/such/program' does not exist", [], ("--no-python", "/no/such/program")),
                 ("--nproc-per-node=gpu: no GPU is visible .*", ["--nproc-per-node=gpu"], None),
                 ("--event-log-handler: open \\S+/file/events: Not a directory",
                  [f"--event-log-handler=jsonl:{self.path}/file/events"], None))
        for is_host in (True, False):
            for cause, options, command in cases:
                with self.subTest(cause=cause, is_host=is_host):
                    self.count = 0
                    words = {"command": command} if command else {}
                    extra = {"CUDA_VISIBLE_DEVICES": ""}
                    if is_host:
                        bad = self.node("--nnodes=2", *options, **words, **extra)
                        good = self.node("--nnodes=2")
                    else:
                        good = self.node("--nnodes=2")
                        bad = self.node("--nnodes=2", *options, **words, **extra)
                    self.assertEqual((bad.ends(), good.ends()), (2, 2), bad.log + good.log)
                    self.assertRegex(bad.log, rf"\Addprun \S+ error   {cause}; telling the other nodes, for at most 30 s\n")
                    self.assertRegex(good.log, rf"FAILED: \S+ cannot start its workers: {cause}\n")
                    self.assertIn("  exit code: 2, a node lacks what its workers need\n  next: mend that on that node", good.log)
        self.assertEqual(self.started, [])

    def test_every_node_reads_the_traceback_wherever_it_happened(self):
        bad = ("--no-python", sys.executable, "-c",
               "import os, time\n"
               "while not os.path.exists('go'): time.sleep(0.01)\n"
               "def inner(): raise ValueError('boom ' + 9000 * 'x')\n"
               "inner()\n")
        nodes = [self.node("--nnodes=2", "--redirects=3"), self.node("--nnodes=2", "--redirects=3", command=bad)]
        self.until_started(1)
        nodes[1].says("started 1 worker")
        self.go()
        for node in nodes:
            self.assertEqual(node.ends(), 1, node.log)
            report = node.log[node.log.index("FAILED: "):]
            self.assertRegex(report, r"FAILED: rank \d \(local rank 0, pid \d+\) on \S+ exited with code 1: ValueError: boom x")
            self.assertIn("  last lines of its stderr:\n", report)
            self.assertRegex(report, r"\n    (ValueError: boom )?xxxxxxxxxxx")
            self.assertLess(len(report), 3000)
            self.assertRegex(report, r"\n  logs: /\S+/attempt_0/0\n", "that worker's own, on whichever node it was")


class MembershipTest(NodesCase):
    def test_the_node_that_knows_who_hangs_names_it_and_not_the_one_whose_watch_is_quicker(self):
        os.mkfifo(self.path / "peers")
        wait = ("--no-python", "sh", "-c", "[ $RANK = 4 ] && exec sleep 1000; exec cat peers")
        nodes = [self.node("--nnodes=2", "--nproc-per-node=3", f"--node-rank={rank}", f"--hang-timeout={seconds}",
                           command=wait, PATH="/nowhere:/usr/bin:/bin") for rank, seconds in ((0, 1), (1, 2))]
        for node in nodes:
            self.assertEqual(node.ends(), 128 + signal.SIGABRT, node.log)
            self.assertRegex(node.log, r"FAILED: rank 4 .*hung: .*it was sleeping in \w*nanosleep")

    def test_a_rank_of_another_node_that_works_while_the_others_wait_for_it_is_named(self):
        tool = self.path / "py-spy"
        tool.write_text(STACKS_OF_A_WAIT)
        tool.chmod(0o755)
        wait = ("--no-python", "sh", "-c", "[ $RANK = 1 ] && while :; do :; done; exec sleep 1000")
        nodes = [self.node("--nnodes=2", f"--node-rank={rank}", "--hang-timeout=2", command=wait,
                           PATH=f"{self.path}:/usr/bin:/bin") for rank in (0, 1)]
        for node in nodes:
            self.assertEqual(node.ends(), 128 + signal.SIGABRT, node.log)
            self.assertRegex(node.log, r"FAILED: rank 1 \(\S+ pid \d+\) did not come to all_reduce: it runs in "
                                       r"load \(worker.py:3\); rank 0 \(.*\) on \S+ waited for it and was killed by "
                                       r"SIGABRT; hung: no CPU time or heartbeat for \d+ s .*it was waiting in a "
                                       r"collective\n")

    def test_a_late_node_makes_the_world_larger_and_costs_no_restart(self):
        first = self.node("--nnodes=1:2", QUICK)
        self.until_started(1)
        second = self.node("--nnodes=1:2", QUICK)
        lines = self.until_started(3)
        self.assertEqual(sorted(line.split()[1] for line in lines[1:]), ["0/2", "1/2"])
        self.assertTrue(all("restart 0 " in line for line in lines), lines)
        self.assertIn("0 0/2", "\n".join(lines[1:]), "the survivor keeps its rank")
        self.assertIn("has joined", first.log)
        self.assert_all_succeed(first, second)

    def test_a_node_too_many_stands_by_and_ends_with_the_others(self):
        nodes = [self.node("--nnodes=1:2", QUICK) for _ in range(2)]
        nodes[0].says("started")
        nodes[1].says("started")
        spare = self.node("--nnodes=1:2", QUICK)
        spare.says("standing by: there are 2 nodes, as many as --nnodes allows")
        self.assert_all_succeed(*nodes, spare)
        self.assertIn("this node was not needed", spare.log)

    def test_a_standby_takes_the_place_of_a_lost_node(self):
        nodes = [self.node("--nnodes=2:2", QUICK) for _ in range(2)]
        self.until_started(2)
        spare = self.node("--nnodes=2:2", QUICK)
        spare.says("standing by")
        kill(nodes[1])
        lines = self.until_started(4)
        self.assertEqual(sorted(line[:5] for line in lines[2:]), ["0 0/2", "2 1/2"])
        self.assertTrue(all("restart 0 " in line for line in lines), "a lost node costs no restart")
        self.assertIn("was lost", nodes[0].log)
        self.assert_all_succeed(nodes[0], spare)
        self.assertRegex(nodes[0].log, r"; 1 restart cost .* \(1 lost node\)\n")

    def test_survivors_of_a_killed_agent_go_on_and_nothing_of_it_lives_on(self):
        nodes = [self.node("--nnodes=1:3", QUICK) for _ in range(3)]
        lines = self.until_round("0/3", "1/3", "2/3")
        before = len(self.started)
        kill(nodes[2])
        self.until_round("0 0/2", "1 1/2", since=before)
        worker = next(pid_of(line) for line in lines if line.startswith("2 "))
        wait_until(lambda: not is_running(worker), "the worker of the killed agent is gone")
        self.assert_all_succeed(*nodes[:2])

    def test_nodes_that_may_not_host_count_like_the_others(self):
        conf = "--rdzv-conf=last_call_timeout=5,keep_alive_interval=0.2,keep_alive_max_attempt=12,is_host="
        nodes = [self.node("--nnodes=2:3", conf + may_host) for may_host in "100"]
        self.until_started(3)
        time.sleep(5)  # twice the silence limit
        self.assertEqual(len(self.started), 3, nodes[0].log)
        lost = nodes.pop()
        lost.process.kill()
        lines = self.until_started(5)[3:]
        self.assertEqual(sorted(re.search(r" (\d/2) ", line)[1] for line in lines), ["0/2", "1/2"])
        self.assert_all_succeed(*nodes)

    def test_survivors_go_on_when_an_agent_is_killed_together_with_its_workers(self):
        nodes = [self.node("--nnodes=1:3", QUICK) for _ in range(3)]
        lines = self.until_round("0/3", "1/3", "2/3")
        before = len(self.started)
        nodes[1].signal(signal.SIGSTOP)  # or it might still report the failure of its worker
        os.kill(next(pid_of(line) for line in lines if line.startswith("1 ")), signal.SIGKILL)
        kill(nodes[1])
        self.until_round("0 0/2", "2 1/2", since=before)
        self.assert_all_succeed(nodes[0], nodes[2])

    def test_a_run_of_one_to_four_begins_with_one_and_grows(self):
        nodes = []
        for size in range(1, 5):
            nodes.append(self.node("--nnodes=1:4", QUICK))
            lines = self.until_round(*(f"{rank}/{size}" for rank in range(size)))
            self.assertIn("0 0/", "\n".join(line[:4] for line in lines), "the first keeps its rank")
        self.assertTrue(all("restart 0 " in line for line in self.started), self.started)
        self.assert_all_succeed(*nodes)

    def test_an_agent_that_is_told_to_stop_leaves_and_the_others_go_on(self):
        nodes = [self.node("--nnodes=1:2", QUICK) for _ in range(2)]
        self.until_round("0/2", "1/2")
        before = len(self.started)
        nodes[1].signal(signal.SIGTERM)
        self.assertEqual(nodes[1].ends(), 128 + signal.SIGTERM)
        self.until_round("0 0/1", since=before)
        self.assertRegex(nodes[0].log, r"was stopped by SIGTERM; stopping 1 worker")
        self.assert_all_succeed(nodes[0])
        self.assertRegex(nodes[0].log, r"; 1 restart cost .* \(1 departed node\)\n")

    def saves_after_a_signal_to(self, *who):
        command = ("--no-python", sys.executable, "-c", SAVES_LATE)
        nodes = [self.node("--nnodes=1:2", "--rdzv-conf=last_call_timeout=20", command=command) for _ in range(2)]
        self.until_started(2)
        for k in who:
            nodes[k].signal(signal.SIGTERM)
        wait_until(lambda: (self.path / "saved.1").exists() or all(node.process.poll() is not None for node in nodes),
                   "rank 1 to save")
        self.assertTrue((self.path / "saved.1").exists(), [node.log for node in nodes])
        for node in nodes:
            node.signal(signal.SIGTERM)
            node.ends()

    def test_workers_that_save_have_their_store_when_another_node_is_stopped(self):
        self.saves_after_a_signal_to(1)

    def test_workers_that_save_have_their_store_when_its_node_is_stopped(self):
        self.saves_after_a_signal_to(0)

    def test_workers_that_save_have_their_store_when_all_are_stopped(self):
        self.saves_after_a_signal_to(0, 1)

    def test_when_the_host_is_told_to_stop_everybody_ends_with_that_reason(self):
        host = self.node("--nnodes=2")
        other = self.node("--nnodes=2")
        self.until_started(2)
        host.signal(signal.SIGTERM)
        self.assertEqual(host.ends(), 128 + signal.SIGTERM, host.log)
        self.assertEqual(other.ends(), 80, other.log)
        self.assertRegex(other.log, r"warning \S+, which hosts the rendezvous, was stopped by SIGTERM; stopping 1 worker "
                                    r"\(at most \d+ s\), then the end\n")
        self.assertRegex(other.log, r"FAILED: \S+, which hosts the rendezvous, was stopped by SIGTERM\n")

    def test_the_same_command_started_again_while_the_old_nodes_save_waits_for_their_end(self):
        saves = WORKER.replace("trap 'exit 0' TERM", "trap 'until [ -e saved ]; do sleep 0.02; done; exit 0' TERM")
        shared = pathlib.Path(self.path / "shared")
        shared.mkdir(mode=0o700)
        for endpoint in (None, f"file:{shared}"):
            with self.subTest(endpoint=endpoint):
                command = ("--nnodes=2", "--rdzv-id=again", "--shutdown-timeout=60")
                before = len(self.started)
                old = [self.node(*command, endpoint=endpoint, command=("--no-python", "sh", "-c", saves)) for _ in range(2)]
                self.until_started(before + 2)
                for node in old:
                    node.signal(signal.SIGTERM)
                old[1].says("SIGTERM")
                new = [self.node(*command, endpoint=endpoint) for _ in range(2)]
                new[1].says("standing by: ")
                self.assertEqual(len(self.started), before + 2)
                (self.path / "saved").touch()
                for node in old:
                    self.assertEqual(node.ends(), 128 + signal.SIGTERM, node.log)
                self.until_started(before + 4)
                self.assert_all_succeed(*new)
                for leftover in ("saved", "go"):
                    (self.path / leftover).unlink()

    def test_another_agent_of_the_machine_takes_over_when_the_host_is_killed(self):
        nodes = [self.node("--nnodes=1:3", "--max-restarts=2", QUICK) for _ in range(3)]
        self.until_round("0/3", "1/3", "2/3")
        before = len(self.started)
        self.make_fail(rank=2, restart=0, code=1)
        self.until_round("0/3", "1/3", "2/3", since=before)
        kill(nodes[0])
        lines = self.until_round("0/2", "1/2", since=before)
        self.assertTrue(all("restart 1 " in line for line in lines), "the budget is remembered")
        self.assert_all_succeed(*nodes[1:])

    def test_a_frozen_agent_is_given_up_and_comes_back_as_somebody_new(self):
        nodes = [self.node("--nnodes=1:2", QUICK) for _ in range(2)]
        self.until_round("0/2", "1/2")
        before = len(self.started)
        nodes[1].signal(signal.SIGSTOP)
        self.until_round("0 0/1", since=before)
        self.assertIn("was lost (silent for", nodes[0].log)
        nodes[1].signal(signal.SIGCONT)
        self.until_round("0 0/2", "1 1/2", since=before)
        self.assert_all_succeed(*nodes)

    def test_all_go_by_the_keep_alive_of_the_first(self):
        first = self.node("--nnodes=1:2", QUICK)
        second = self.node("--nnodes=1:2", QUICK.replace("keep_alive_interval=0.2", "keep_alive_interval=60"))
        second.says("the run goes by the settings of its first node: ")
        self.until_round("0 0/2", "1 1/2")
        first.signal(signal.SIGSTOP)
        second.says("has been silent for")
        first.signal(signal.SIGCONT)
        self.assert_all_succeed(first, second)


class WaitingTest(NodesCase):
    def test_a_slip_in_the_run_id_shows(self):
        nodes = [self.node("--nnodes=2", f"--rdzv-id={run}") for run in ("job", "jbo")]
        nodes[0].says("also waiting here: run 'jbo' (1 node)")
        nodes[1].says("also waiting here: run 'job' (1 node)")

    def test_waiting_is_never_silent_and_ends_with_the_reason(self):
        node = self.node("--nnodes=2", "--rdzv-conf=join_timeout=4")
        node.says("waiting for nodes: 1 of 2 joined (")
        self.assertEqual(node.ends(), 80)
        self.assertRegex(node.log, r"FAILED: only 1 of 2 nodes came within 4 s \(\S+\); ")

    def test_who_was_lost_is_told_when_the_wait_for_him_is_stopped(self):
        nodes = [self.node("--nnodes=2") for _ in range(2)]
        self.until_started(2)
        kill(nodes[1])
        nodes[0].says("waiting for nodes: 1 of 2 joined")
        nodes[0].signal(signal.SIGTERM)
        self.assertEqual(nodes[0].ends(), 128 + signal.SIGTERM, nodes[0].log)
        self.assertRegex(nodes[0].log, r"stopped by SIGTERM; before that \S+ was lost \(its agent, pid \d+, was killed\)")

    def test_who_was_lost_is_the_cause_where_nobody_comes_in_his_place(self):
        nodes = [self.node("--nnodes=2", "--rdzv-conf=join_timeout=4") for _ in range(2)]
        self.until_started(2)
        kill(nodes[1])
        self.assertEqual(nodes[0].ends(), 80)
        self.assertRegex(nodes[0].log, r"FAILED: \S+ was lost \(its agent, pid \d+, was killed\); then only 1 of 2 nodes came")
        self.assertRegex(nodes[0].log, r"\n  next: look at \S+: whether it is up and reached")

    def test_the_same_of_the_host(self):
        host = self.node("--nnodes=2", "--rdzv-conf=join_timeout=4")
        host.says("waiting for nodes")
        other = self.node("--nnodes=2", "--rdzv-conf=join_timeout=4")
        self.until_started(2)
        kill(host)
        self.assertEqual(other.ends(), 80)
        self.assertRegex(other.log, r"FAILED: .* is gone with what it knew of this round; then only 1 of 2 nodes came")
        self.assertIn("\n  next: look at the node that was lost: whether it is up and reached", other.log)

    def test_who_was_refused_is_named_where_he_is_missing(self):
        first = self.node("--nnodes=2", "--node-rank=0", "--rdzv-conf=join_timeout=4")
        first.says("waiting for nodes")
        second = self.node("--nnodes=2", "--node-rank=0", "--rdzv-conf=join_timeout=4")
        self.assertEqual(second.ends(), 80)
        self.assertEqual(first.ends(), 80)
        self.assertRegex(first.log, r"FAILED: only 1 of 2 nodes came within 4 s \(\S+\); refused \S+ \(pid \d+\): "
                                    r"--node-rank=0 is that of \S+ \(pid \d+\) already; start the others sooner")

    def test_a_host_that_is_not_there_is_named_while_it_is_tried(self):
        node = self.node("--nnodes=2", "--rdzv-conf=read_timeout=4,is_host=0")
        node.says("Connection refused")
        self.assertEqual(node.ends(), 80)
        self.assertRegex(node.log, rf"FAILED: cannot meet the other nodes at localhost:{self.port}: .*Connection "
                                   r"refused.*; tried for \d")
        self.assertEqual(node.log.count("trying for"), 1, "once, until there is something new")

    def test_join_timeout_holds_for_a_host_that_is_not_there(self):
        node = self.node("--nnodes=2", "--rdzv-conf=join_timeout=3,is_host=0")
        self.assertEqual(node.ends(limit=30), 80)
        self.assertRegex(node.log, r"Connection refused.*; trying for [01]\.\d s more\n")
        self.assertRegex(node.log, r"FAILED: .*Connection refused.*; tried for 3\.\d s\n")

    def test_who_accepts_and_says_nothing_is_tried_no_longer_than_join_timeout(self):
        with socket.create_server(("127.0.0.1", self.port)):
            node = self.node("--nnodes=2", "--rdzv-conf=join_timeout=3")
            self.assertEqual(node.ends(limit=30), 80)
        self.assertRegex(node.log, r"FAILED: .*shake hands on \S+.*: the server does not answer; .*tried for [34]\.\d s\n")
        self.assertIn("  next: see what listens there", node.log)

    def test_an_http_server_at_the_endpoint_is_called_one(self):
        quiet = type("Quiet", (http.server.BaseHTTPRequestHandler,), {"log_message": lambda *_: None})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), quiet)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        node = self.node("--nnodes=2")
        self.assertEqual(node.ends(limit=30), 80)
        self.assertIn("is taken by something that is not a TCPStore: it speaks HTTP\n", node.log)
        server.shutdown()
        server.server_close()

    def test_places_where_nobody_can_be_met_are_refused_at_once(self):
        for endpoint, what in (("0.0.0.0:29400", "0.0.0.0:29400 is no address to connect to"),
                               ("[::]:29400", "is no address to connect to"),
                               ("http://node0:29400", "a host contains no '/'"),
                               ("node0:99999", "'99999' is not a port")):
            node = self.node("--nnodes=2", endpoint=endpoint)
            self.assertEqual(node.ends(), 2, node.log)
            self.assertIn(what, node.log)

    def test_a_name_that_does_not_resolve_is_named(self):
        node = self.node("--nnodes=2", "--rdzv-conf=read_timeout=1", endpoint="no-such-host.invalid:29400",
                         RES_OPTIONS="timeout:1 attempts:1")
        self.assertEqual(node.ends(), 80)
        self.assertRegex(node.log, r"FAILED: cannot meet the other nodes at no-such-host.invalid:29400: ")

    def test_a_stranger_at_the_endpoint_is_recognised(self):
        with socket.create_server(("127.0.0.1", self.port)) as server:
            def answer():
                try:
                    while True:
                        with server.accept()[0] as connection:
                            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                            connection.recv(64)
                except OSError:
                    pass
            threading.Thread(target=answer, daemon=True).start()
            node = self.node("--nnodes=2")
            self.assertEqual(node.ends(), 80)
            self.assertIn("is taken by something that is not a TCPStore: it answered 'SSH-2.0-OpenSSH_9.2", node.log)
            server.shutdown(socket.SHUT_RDWR)


class RefusalTest(NodesCase):
    def test_a_node_that_disagrees_is_refused_with_the_difference_on_both_sides(self):
        first = self.node("--nnodes=2:4")
        second = self.node("--nnodes=2:8")
        self.assertEqual(second.ends(), 80, second.log)
        self.assertRegex(second.log, r"was refused at localhost:\d+: it has --nnodes=2:8, not 2:4")
        first.says("it has --nnodes=2:8, not 2:4 here")

    def test_one_node_rank_twice_is_refused(self):
        first = self.node("--nnodes=2", "--node-rank=0")
        second = self.node("--nnodes=2", "--node-rank=0")
        wait_until(lambda: None not in (first.process.poll(), second.process.poll()) or
                   first.process.poll() != second.process.poll(), "one of them has ended")
        refused, holder = (first, second) if first.process.poll() is not None else (second, first)
        self.assertEqual(refused.ends(), 80, refused.log)
        self.assertRegex(refused.log, r"refused at localhost:\d+: --node-rank=0 is that of \S+ \(pid \d+\) already")
        holder.says("--node-rank=0 is taken by this node")

    def test_node_ranks_are_honoured(self):
        nodes = [self.node("--nnodes=2", f"--node-rank={rank}") for rank in (1, 0)]
        lines = self.until_started(2)
        self.assertIn("0 1/2", "\n".join(lines))
        self.assertIn("1 0/2", "\n".join(lines))
        self.assert_all_succeed(*nodes)

    def test_garbage_at_the_port_does_not_disturb_a_run(self):
        nodes = [self.node("--nnodes=2") for _ in range(2)]
        self.until_started(2)
        for junk in (b"\xff" * 4096, b"GET /status HTTP/1.0\r\n\r\n", b"\x00" * 17):
            with socket.create_connection(("127.0.0.1", self.port)) as connection:
                connection.sendall(junk)
        self.assert_all_succeed(*nodes)


class StopTest(NodesCase):
    def test_a_run_can_begin_again_at_once_when_all_its_agents_were_told_to_stop(self):
        slow = ("--no-python", "sh", "-c", WORKER.replace("trap 'exit 0'", "trap 'while ! [ -e end ]; do sleep 0.02; done; exit 0'"))
        host, other = (self.node("--nnodes=1:2", command=slow) for _ in range(2))
        self.until_round("0/2", "1/2")
        host.signal(signal.SIGTERM)
        other.says("was stopped by SIGTERM; stopping")  # it would go on without the host
        other.signal(signal.SIGTERM)
        other.says("received SIGTERM")
        (self.path / "end").touch()
        self.assertEqual(other.ends(), 143, other.log)
        second = [self.node("--nnodes=1:2", endpoint=f"localhost:{self.port}")]
        self.assertEqual(host.ends(), 143, host.log)
        second.append(self.node("--nnodes=1:2"))
        self.until_round("0/2", "1/2", since=2)
        for node in second:
            self.assertNotIn("waiting for more of the last round's nodes", node.log)
        self.assert_all_succeed(*second)


class StaticTest(NodesCase):
    def test_the_workers_meet_where_the_user_said_in_every_round(self):
        options = ("--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={self.port}", "--max-restarts=1")
        nodes = [self.node(*options, f"--node-rank={rank}", backend="static") for rank in (1, 0)]
        self.until_started(2)
        self.make_fail(rank=1, restart=0, code=3)
        lines = self.until_started(4)
        self.assertTrue(all(line.endswith(f" at 127.0.0.1:{self.port}") for line in lines), lines)
        self.assertEqual(sorted(line[:5] for line in lines[:2]), ["0 1/2", "1 0/2"])
        self.assertEqual(sorted(line[:5] for line in lines[2:]), ["0 1/2", "1 0/2"])
        self.assert_all_succeed(*nodes)

    def test_another_run_id_at_the_same_port_is_refused(self):
        options = ("--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={self.port}")
        first = self.node(*options, "--rdzv-id=a", "--node-rank=0", backend="static")
        first.says("waiting for nodes")
        second = self.node(*options, "--rdzv-id=b", "--node-rank=1", backend="static")
        self.assertEqual(second.ends(), 80)
        self.assertIn("it has --rdzv-id=b, not a", second.log)


class ManyRunsTest(NodesCase):
    def test_ddpd_hosts_runs_apart_from_each_other_and_an_id_can_be_used_again(self):
        with Ddpd() as ddpd:
            where = f"127.0.0.1:{ddpd.port}"
            for life in range(2):
                runs = [self.node("--nnodes=2", f"--rdzv-id={run}", endpoint=where) for run in "aabb"]
                lines = self.until_started(4 * (life + 1))[-4:]
                self.assertEqual(sorted(line.split()[1] for line in lines), ["0/2", "0/2", "1/2", "1/2"])
                self.assert_all_succeed(*runs)
                (self.path / "go").unlink()

    def test_a_client_that_fills_ddpd_keeps_no_node_out(self):
        with Ddpd("--max-memory", "64K", "--max-queue-items", "1") as ddpd:
            with socket.create_connection(("127.0.0.1", ddpd.port), timeout=LIMIT) as peer:
                sizes = [60_000] + 100 * [100]
                peer.sendall(b"\x00\xce\xf7\x85\x3c" + b"".join(
                    struct.pack("<BQBQ", 1, 1, i, size) + bytes(size) for i, size in enumerate(sizes)))  # SET
                with contextlib.suppress(ConnectionResetError):
                    self.assertEqual(peer.recv(1), b"", "it is full, and who fills it is closed")
            nodes = [self.node("--nnodes=2", endpoint=f"127.0.0.1:{ddpd.port}") for _ in range(2)]
            self.until_round("0/2", "1/2")
            self.assert_all_succeed(*nodes)

    def test_a_node_that_was_away_when_its_run_ended_hears_how(self):
        with Ddpd() as ddpd:
            where = f"127.0.0.1:{ddpd.port}"
            nodes = [self.node("--nnodes=1:2", QUICK, endpoint=where) for _ in range(2)]
            self.until_round("0/2", "1/2")
            before = len(self.started)
            nodes[1].signal(signal.SIGSTOP)
            self.until_round("0 0/1", since=before)
            self.assert_all_succeed(nodes[0])
            (self.path / "go").unlink()
            later = self.node("--nnodes=1:2", QUICK, endpoint=where)  # another run with this id
            self.until_round("2 0/1", since=before)
            before = len(self.started)
            nodes[1].signal(signal.SIGCONT)
            self.assertEqual(nodes[1].ends(), 0, nodes[1].log)
            self.assertEqual(len(self.started), before, "nothing has begun anew, nor joined the later run")
            self.assert_all_succeed(later)

    def test_a_run_survives_a_restart_of_ddpd(self):
        with Ddpd() as ddpd:
            port = ddpd.port
            nodes = [self.node("--nnodes=2", QUICK, "--rdzv-conf=read_timeout=60,is_host=0", endpoint=f"127.0.0.1:{port}")
                     for _ in range(2)]
            self.until_started(2)
            ddpd.stop(signal.SIGKILL)
        for node in nodes:
            node.says("where the nodes meet: it closed the connection; connecting again")
        with Ddpd(port=port):
            self.assert_all_succeed(*nodes)
        self.assertEqual(len(self.started), 2, self.started)

    def test_a_run_that_has_lost_its_ddpd_says_so(self):
        with Ddpd() as ddpd:
            nodes = [self.node("--nnodes=2", QUICK, "--rdzv-conf=read_timeout=4,join_timeout=4,is_host=0",
                               endpoint=f"127.0.0.1:{ddpd.port}") for _ in range(2)]
            self.until_started(2)
            ddpd.stop(signal.SIGKILL)
        for node in nodes:
            self.assertEqual(node.ends(), 80, node.log)
            self.assertRegex(node.log, r"FAILED: 127.0.0.1:\d+, where the nodes meet, has been silent for \S+ s; "
                                       r"then cannot meet the other nodes at 127.0.0.1:\d+: ")
            self.assertIn("\n  next: look at what hosts the endpoint, the first node's ddprun or a ddpd", node.log)

    def test_the_end_of_the_hosts_run_does_not_end_another_run_there(self):
        host = self.node("--nnodes=1:2", "--rdzv-id=a", QUICK)
        self.until_started(1)
        others = [self.node("--nnodes=2", "--rdzv-id=b", QUICK) for _ in range(2)]
        self.until_started(3)
        (self.path / "go.a").touch()
        host.says("staying for nodes that have not ended yet: run 'b' (2 nodes)")
        self.assertTrue(all(node.process.poll() is None for node in others))
        self.assert_all_succeed(host, *others)

    def test_a_host_in_a_job_of_slurm_leaves_another_run_when_its_own_is_over(self):
        host = self.node("--nnodes=1:2", "--rdzv-id=a", QUICK, SLURM_JOB_ID="12")
        self.until_started(1)
        others = [self.node("--nnodes=2", "--rdzv-id=b", QUICK) for _ in range(2)]
        self.until_started(3)
        (self.path / "go.a").touch()
        self.assertEqual(host.ends(), 0, host.log)
        self.assertIn("leaving the other runs here to a host of their own: run 'b' (2 nodes)", host.log)
        self.until_started(5)
        for node in others:
            self.assertRegex(node.log, "which hosts the rendezvous, has ended with its own run; stopping 1 worker")
        self.assert_all_succeed(*others)


if __name__ == "__main__":
    unittest.main(verbosity=2)
