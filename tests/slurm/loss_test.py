# SPDX-License-Identifier: BSD-3-Clause
"""Nodes of a step that die, freeze, or are cut off, and the run that goes on."""

import re
import unittest

from case import BIN, QUICK, ROOT, SlurmCase, cluster, now, time_of, worlds

import hosts


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

    @unittest.skipUnless((BIN / "train_digits").exists(), "built without the runtime")
    def test_training_goes_on_from_its_checkpoint(self):
        step = self.agents("-N3", "-w", "node[0-2]", ddprun=["--nnodes=2:3", QUICK, "--tee=3"], worker=[
            BIN / "train_digits", "--checkpoint-dir", self.path / "checkpoints",
            "--data", ROOT / "build/data/digits.csv"])
        step.says("epoch 2: loss")
        self.addCleanup(self.revive, "node2")
        self.cluster.kill("node2")
        step.says(r"with 2 ranks, resumed from epoch \d")
        step.says(r"done .*, resumed from epoch \d+: test accuracy 9\d")


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


if __name__ == "__main__":
    unittest.main(verbosity=2)
