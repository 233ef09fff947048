# SPDX-License-Identifier: BSD-3-Clause
"""Nodes of a step that die, freeze, or are cut off, and the run that goes on."""

import os
import re
import threading
import unittest

from case import BIN, QUICK, SlurmCase, cluster, needs_runtime, now, parameters, time_of, worlds

import hosts

# Ranks that wait for a silent one in a collective of Gloo's do not hear the SIGTERM.
HURRY = "--shutdown-timeout=3"


class LossTest(SlurmCase):
    def test_the_others_go_on_without_a_killed_node_long_before_slurm_knows(self):
        self.agents("-N4", ddprun=["--nnodes=2:4", QUICK])
        self.until_started(4)
        self.addCleanup(self.revive, "node2")
        begin = now()
        self.cluster.kill("node2")
        lines = self.until_started(7)[4:]
        self.note(f"node killed to the last worker of the new round: {(time_of(lines[-1]) - begin) * 1000:.0f} ms")
        self.assertEqual(worlds(lines), ["0/3", "1/3", "2/3"])
        self.assertTrue(all(" restart 0 " in line for line in lines), "a lost node costs no restart")
        self.assertNotIn("down", self.cluster.ask("sinfo", "-h", "-n", "node2", "-o", "%t"))

    def test_the_others_go_on_without_the_first_node_which_has_hosted(self):
        step = self.agents("-N4", ddprun=["--nnodes=2:4", QUICK])
        self.until_started(4)
        self.addCleanup(self.revive, "node0")
        begin = now()
        self.cluster.kill("node0")
        lines = self.until_started(7)[4:]
        self.note(f"first node killed to the last worker of the new round: {(time_of(lines[-1]) - begin) * 1000:.0f} ms")
        self.assertEqual(worlds(lines), ["0/3", "1/3", "2/3"])
        self.assertTrue(all(" restart 0 " in line for line in lines), "a lost node costs no restart")
        step.says("this node hosts the run at")

    def test_a_spare_node_takes_the_place_of_a_killed_one(self):
        step = self.agents("-N4", ddprun=["--nnodes=3:3", QUICK])
        nodes = {line.split()[0] for line in self.until_started(3)}
        step.says("standing by: there are 3 nodes, as many as --nnodes allows")
        spare = ({f"node{k}" for k in range(4)} - nodes).pop()
        lost = max(nodes)
        self.addCleanup(self.revive, lost)
        begin = now()
        self.cluster.kill(lost)
        lines = self.until_started(6)[3:]
        self.note(f"node killed to the last worker of the new round: {(time_of(lines[-1]) - begin) * 1000:.0f} ms")
        self.assertEqual(worlds(lines), ["0/3", "1/3", "2/3"])
        self.assertEqual({line.split()[0] for line in lines}, nodes - {lost} | {spare})

    def test_a_frozen_node_is_given_up_and_comes_back_when_it_thaws(self):
        step = self.agents("-N3", "-w", "node[0-2]", ddprun=["--nnodes=2:3", QUICK])
        self.until_started(3)
        self.addCleanup(self.cluster.thaw, "node2")
        begin = now()
        self.cluster.freeze("node2")
        lines = self.until_started(5)[3:]
        self.note(f"node frozen to the last worker of the new round: {time_of(lines[-1]) - begin:.2f} s")
        self.assertEqual(worlds(lines), ["0/2", "1/2"])
        self.cluster.thaw("node2")
        self.assertEqual(worlds(self.until_started(8)[5:]), ["0/3", "1/3", "2/3"])
        self.go()
        self.assertEqual(step.ends(), 0, step.log)

    def test_a_step_with_a_lost_node_ends_by_itself_when_the_run_is_over(self):
        job = self.sbatch("srun --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 "
                          f"{BIN}/ddprun --log-dir logs --nnodes=2:3 {QUICK} worker.py; echo status $?",
                          "-N3", "-w", "node[0-2]", "--ntasks-per-node=1", "--no-kill")
        self.until_started(3)
        self.addCleanup(self.revive, "node1")
        self.cluster.kill("node1")
        self.until_started(5)
        self.cluster.run("scontrol", "update", "nodename=node1", "state=down", "reason=test")  # what it sees later
        self.go()
        self.cluster.until_state(job, "COMPLETED")
        self.assertIn("status 0", self.output(job))

    @needs_runtime
    def test_training_goes_on_from_its_checkpoint_when_a_node_is_killed(self):
        step = self.agents("-N3", "-w", "node[0-2]", ddprun=["--nnodes=2:3", QUICK, "--tee=3"], worker=self.training())
        step.says("epoch 2: loss")
        self.addCleanup(self.revive, "node2")
        self.cluster.kill("node2")
        step.says(r"with 2 ranks, resumed from epoch [1-9]")
        step.says(r"done after")
        self.assert_resumed_and_trained(step.log, ranks=2)

    @needs_runtime
    def test_training_with_a_spare_comes_to_what_it_comes_to_undisturbed(self):
        calm = self.agents("-N3", "-w", "node[0-2]", ddprun=["--tee=3"], worker=self.training(step_seconds=0))
        self.assertEqual(calm.ends(), 0, calm.log)
        step = self.agents("-N4", "--label", ddprun=["--nnodes=3:3", QUICK, "--tee=3"], worker=self.training())
        step.says(r"standing by")
        spare = int(re.search(r"(?m)^(\d): .*standing by", step.log)[1])
        step.says("epoch 2: loss")
        lost = f"node{max({1, 2, 3} - {spare})}"
        self.addCleanup(self.revive, lost)
        self.cluster.kill(lost)
        step.says(r"with 3 ranks, resumed from epoch [1-9]")
        step.says("done after")
        self.assertEqual(self.assert_resumed_and_trained(step.log, ranks=3), parameters(calm.log, 3))

    @needs_runtime
    def test_training_goes_on_without_a_frozen_node_and_with_it_when_it_thaws(self):
        step = self.agents("-N3", "-w", "node[0-2]", ddprun=["--nnodes=2:3", QUICK, HURRY, "--tee=3"],
                           worker=self.training())
        step.says("epoch 2: loss")
        self.addCleanup(self.cluster.thaw, "node2")
        self.cluster.freeze("node2")
        step.says(r"with 2 ranks, resumed from epoch [1-9]")
        self.cluster.thaw("node2")
        step.says(r"with 3 ranks, resumed from epoch [1-9]")
        self.assertEqual(step.ends(), 0, step.log)
        self.assert_resumed_and_trained(step.log, ranks=3)


class Watch(threading.Thread):
    """When the processes of a program began and ended on all nodes."""

    def __init__(self, nodes, program):
        super().__init__(daemon=True)
        self.nodes, self.program = nodes, program
        self.began, self.ended, self.node = {}, {}, {}  # by pid
        self.is_over = threading.Event()
        self.start()

    def run(self):
        while not self.is_over.wait(0.01):
            seen = {pid for pid in os.listdir("/proc") if pid.isdigit() and self.is_it(pid) and self.node_of(pid)}
            for pid in seen - self.began.keys():
                self.began[pid], self.node[pid] = now(), self.node_of(pid)
            for pid in self.began.keys() - seen - self.ended.keys():
                self.ended[pid] = now()

    def is_it(self, pid):
        try:
            with open(f"/proc/{pid}/comm") as comm:
                return comm.read().strip() == self.program
        except OSError:
            return False

    def node_of(self, pid):
        space = cluster.namespace_of(pid)
        return next((name for name, its in self.nodes.namespaces.items() if its == space), None)

    def stop(self):
        self.is_over.set()
        self.join()


@unittest.skipIf(hosts.why_not(), hosts.why_not())
class CutTest(SlurmCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = hosts.Hosts(3)
        cls.addClassCleanup(cls.hosts.close)
        cls.options = {"count": 3, "hosts": cls.hosts}
        super().setUpClass()

    def test_a_node_that_is_cut_off_stops_its_workers_before_the_others_go_on(self):
        self.agents("-N3", ddprun=["--nnodes=2:3", QUICK])
        self.until_started(3)
        self.addCleanup(self.hosts.heal, 2)
        begin = now()
        self.hosts.isolate(2)
        lines = self.until_started(5)[3:]
        self.note(f"node cut off to the last worker of the new round: {time_of(lines[-1]) - begin:.2f} s")
        self.assertEqual(worlds(lines), ["0/2", "1/2"])
        cluster.until(lambda: any("rank 2 " in line for line in self.lines("signals")), "the node's worker is stopped")
        stopped = next(line for line in self.lines("signals") if re.search(r"SIGTERM rank 2 ", line))
        self.assertLess(time_of(stopped), min(map(time_of, lines)))

    def test_a_first_node_that_slurm_calls_down_goes_on_and_the_other_of_two_waits(self):
        """So that it is down is no proof."""
        step = self.agents("-N2", "-w", "node[0-1]", ddprun=["--nnodes=1:2", QUICK])
        self.until_started(2)
        self.addCleanup(self.resume_first)
        self.hosts.isolate(0)
        alone = self.until_started(3)[2].split()
        self.assertEqual(alone[:2], ["node0", "0/1"])
        self.cluster.run("scontrol", "update", "nodename=node0", "state=down", "reason=test")
        self.cluster.wait_for_nodes("down", names=["node0"])
        step.says("waiting for more of the last round's nodes, since the others may go on without these: "
                  "1 of the 2 nodes of round 0 are here")
        os.kill(int(alone[alone.index("pid") + 1]), 0)
        self.assertEqual(len(self.started), 3)

    def resume_first(self):
        self.hosts.heal(0)
        self.end_jobs()
        self.cluster.ask("scontrol", "update", "nodename=node0", "state=resume")
        self.cluster.wait_for_nodes("idle")

    @needs_runtime
    def test_training_on_a_node_that_is_cut_off_has_ended_before_the_others_train_again(self):
        step = self.agents("-N3", ddprun=["--nnodes=2:3", QUICK, HURRY, "--tee=3"], worker=self.training())
        step.says("epoch 2: loss")
        watch = Watch(self.cluster, "train_digits")
        self.addCleanup(watch.stop)
        cluster.until(lambda: len(watch.began) == 3, "its workers are watched")
        alone = next(pid for pid, node in watch.node.items() if node == "node2")
        self.addCleanup(self.hosts.heal, 2)
        begin = now()
        self.hosts.isolate(2)
        step.says(r"with 2 ranks, resumed from epoch [1-9]")
        cluster.until(lambda: len(watch.began) == 5, "the new workers are watched")
        cluster.until(lambda: alone in watch.ended, "the node's worker has ended")
        others = sorted(watch.began.values())[3]
        self.note(f"node cut off to the end of its worker: {watch.ended[alone] - begin:.2f} s; "
                  f"to the first worker of the new round: {others - begin:.2f} s")
        self.assertLess(watch.ended[alone], others)
        self.hosts.heal(2)
        step.says(r"with 3 ranks, resumed from epoch [1-9]")
        self.assertEqual(step.ends(), 0, step.log)
        self.assert_resumed_and_trained(step.log, ranks=3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
