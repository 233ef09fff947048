# SPDX-License-Identifier: BSD-3-Clause
"""What a step of Slurm tells its tasks is enough to meet: agents on this machine with the variables of a step,
and no Slurm.  tests/slurm plays the same on a real one."""

import os
import random
import re
import signal
import socket
import subprocess
import unittest

from nodes import DDPRUN, NodesCase, environment


class SlurmEnvironmentTest(NodesCase):
    def setUp(self):
        super().setUp()
        self.job = random.randrange(1, 2**31)

    def step(self, node, count=2, **changes):
        """The variables of task `node` of `srun -N<count> --ntasks-per-node=1`; the nodes' names resolve nowhere."""
        variables = {
            "SLURM_JOB_ID": self.job, "SLURM_STEP_ID": 0, "SLURM_STEP_NODELIST": f"no-such-node[0-{count - 1}]",
            "SLURM_STEP_NUM_NODES": count, "SLURM_STEP_NUM_TASKS": count, "SLURM_STEP_TASKS_PER_NODE": f"1(x{count})",
            "SLURM_NODEID": node, "SLURMD_NODENAME": f"no-such-node{node}",
            "SLURM_NODE_ALIASES": "no-such-node0:127.0.0.1:no-such-host", **changes}
        return {name: str(value) for name, value in variables.items()}

    def agent(self, node, *options, count=2, **changes):
        return self.node(*options, endpoint="by Slurm", backend="static", **self.step(node, count, **changes))

    def dry_run(self, *options, **variables):
        done = subprocess.run([DDPRUN, "--dry-run", *options, "--no-python", "true"], env=environment(**variables),
                              capture_output=True, text=True, timeout=60)
        return done.stdout or done.stderr

    def ports(self):
        line = re.search(r"endpoint +127.0.0.1:([0-9, ]+) ", self.dry_run(**self.step(0)))
        return [int(port) for port in line[1].split(",")]

    def test_nodes_meet_and_are_called_and_ranked_as_slurm_says(self):
        nodes = [self.agent(node, "--nproc-per-node=2", count=3) for node in (2, 0, 1)]
        lines = self.until_started(6)
        groups = {re.search(r"^(\d+) .* group (\d)/3", line).groups() for line in lines}
        self.assertEqual(groups, {("0", "2"), ("1", "0"), ("2", "1")})
        self.assert_all_succeed(*nodes)

    def test_a_port_that_a_stranger_has_is_passed_over(self):
        with socket.socket() as stranger, socket.socket() as mute:
            for taken, port in zip((stranger, mute), self.ports()):
                try:
                    taken.bind(("127.0.0.1", port))
                except OSError:
                    continue  # somebody else's, which is as good
            stranger.listen()
            nodes = [self.agent(node) for node in (0, 1)]
            self.until_started(2)
            self.assert_all_succeed(*nodes)

    def test_another_run_at_the_same_port_is_not_joined(self):
        ours = [self.agent(0)]
        other = [self.agent(0, SLURM_RESTART_COUNT=1)]  # another life of the job, and the same ports
        ours.append(self.agent(1))
        other.append(self.agent(1, SLURM_RESTART_COUNT=1))
        lines = self.until_started(4)
        self.assertEqual(len({line.rpartition(" at ")[2] for line in lines}), 2, lines)
        (self.path / f"go.slurm-{self.job}.0-r0").touch()
        for node in ours:
            self.assertEqual(node.ends(), 0, node.log)
        self.assert_all_succeed(*other)

    def test_the_first_node_may_come_last(self):
        late = self.agent(1)
        late.says("cannot meet the other nodes at 127.0.0.1:")
        nodes = [late, self.agent(0)]
        self.until_started(2)
        self.assert_all_succeed(*nodes)

    def test_when_all_ports_are_taken_it_says_so(self):
        held = []
        self.addCleanup(lambda: [s.close() for s in held])
        for port in self.ports():
            held.append(socket.socket())
            try:
                held[-1].bind(("127.0.0.1", port))
                held[-1].listen()
            except OSError:
                pass
        node = self.agent(0)
        self.assertEqual(node.ends(), 80)
        self.assertIn("this node is to be the host, and ", node.log)
        self.assertIn("Address already in use", node.log)

    def test_spares_stand_by_and_replace(self):
        quick = "--rdzv-conf=last_call_timeout=0.3,keep_alive_interval=0.2"
        nodes = [self.agent(node, "--nnodes=2:2", quick, count=3) for node in (0, 1)]
        self.until_started(2)
        spare = self.agent(2, "--nnodes=2:2", quick, count=3)
        spare.says("standing by")
        nodes[1].process.kill()
        lines = self.until_started(4)
        self.assertEqual(sorted(line[:5] for line in lines[2:]), ["0 0/2", "2 1/2"])
        self.assert_all_succeed(nodes[0], spare)

    def test_a_spare_that_comes_after_a_short_run_hears_how_it_ended(self):
        nodes = [self.agent(node, "--nnodes=2:2", count=3) for node in (0, 1)]
        self.go()
        nodes[0].says("the run is over; staying for at most 10 s, for 1 of 3 nodes that have not come yet")
        spare = self.agent(2, "--nnodes=2:2", count=3)
        self.assert_all_succeed(*nodes, spare)
        self.assertIn("this node was not needed", spare.log)
        self.assertEqual(len(self.started), 2)

    def test_a_spare_that_comes_after_the_end_was_not_needed(self):
        spare = self.agent(2, "--nnodes=2:2", "--rdzv-conf=read_timeout=1", count=3)
        self.assertEqual(spare.ends(), 0, spare.log)
        self.assertIn("finished: this spare node was not needed: cannot meet the other nodes at", spare.log)

    def test_a_scontrol_that_hangs_keeps_nothing_up_and_is_no_process_of_the_workers(self):
        scontrol = self.path / "bin" / "scontrol"
        scontrol.parent.mkdir()
        scontrol.write_text("#!/bin/sh\nsleep 600 &\necho $! > partial && mv partial child\nwait\n")
        scontrol.chmod(0o755)
        path = f"{scontrol.parent}:{os.environ['PATH']}"
        node = self.node(backend="static", PATH=path, **self.step(0, count=1))
        self.until_started(1)
        node.signal(signal.SIGTERM)
        self.assertEqual(node.ends(), 143, node.log)
        child = int((self.path / "child").read_text())
        self.until(lambda: not os.path.exists(f"/proc/{child}"), "the child of scontrol is gone")
        self.assertIn(f"{scontrol} does not answer, so the scheduler's reason is not known", node.log)
        self.assertNotIn("left behind", node.log)

    def test_a_dry_run_names_the_variable_of_each_value_and_starts_nothing(self):
        text = self.dry_run("--max-restarts=3", **self.step(1, CUDA_VISIBLE_DEVICES="0,1,2"))
        self.assertRegex(text, r"(?m)^nnodes +2  \(SLURM_STEP_NUM_NODES\)$")
        self.assertRegex(text, r"(?m)^node-rank +1  \(SLURM_NODEID\)$")
        self.assertRegex(text, r"(?m)^nproc-per-node +3  \(CUDA_VISIBLE_DEVICES\)$")
        self.assertRegex(text, rf"(?m)^rdzv-id +slurm-{self.job}\.0-r0  \(SLURM_JOB_ID, SLURM_STEP_ID, ")
        self.assertRegex(text, r"(?m)^endpoint +127\.0\.0\.1:2\d{4}, .*  \(SLURM_STEP_NODELIST, SLURM_JOB_ID")
        self.assertRegex(text, r"(?m)^hosted +by another node$")
        self.assertRegex(text, r"(?m)^max-restarts +3  \(--max-restarts\)$")
        self.assertRegex(text, r"(?m)^command +/\S*true$")
        self.assertFalse((self.path / "logs").exists())

    def test_a_dry_run_outside_slurm(self):
        text = self.dry_run(PET_NPROC_PER_NODE="2", OMP_NUM_THREADS="7")
        self.assertRegex(text, r"(?m)^nnodes +1:1  \(default\)$")
        self.assertRegex(text, r"(?m)^nproc-per-node +2  \(PET_NPROC_PER_NODE\)$")
        self.assertRegex(text, r"(?m)^OMP_NUM_THREADS +7  \(inherited\)$")
        self.assertNotIn("endpoint", text)

    def test_threads_are_those_of_the_cpus_that_are_allowed(self):
        cpu = min(os.sched_getaffinity(0))
        command = ["taskset", "-c", str(cpu), DDPRUN, "--dry-run", "--nproc-per-node=2", "--no-python", "true"]
        done = subprocess.run(command, env=environment(**self.step(0, SLURM_CPUS_ON_NODE=8, SLURM_CPUS_PER_TASK=8)),
                              capture_output=True, text=True, timeout=60)
        self.assertRegex(done.stdout, r"(?m)^OMP_NUM_THREADS +1  \(sched_getaffinity, SLURM_CPUS_ON_NODE\)$")
        self.assertIn("2 workers of this node may use 1 CPU, and the job asked for 8 a task: srun does not take",
                      done.stdout)


if __name__ == "__main__":
    unittest.main()
