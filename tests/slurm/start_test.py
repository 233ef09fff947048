# SPDX-License-Identifier: BSD-3-Clause
"""srun ddprun train.py on a real Slurm: what is decided, and that it is right."""

import re
import subprocess
import unittest

from case import DDPRUN, HAS_TORCH, SlurmCase, cluster, needs_runtime, parameters, worlds
from free_port import free_port

STRANGER = 54321  # a user


class StartTest(SlurmCase):
    def test_four_nodes_need_no_option(self):
        step = self.agents("-N4", "--gpus-per-node=2")
        lines = self.until_started(8)
        self.assertEqual(worlds(lines), [f"{rank}/8" for rank in range(8)])
        groups = {(line.split()[0], re.search(r"group (\d)", line)[1]) for line in lines}
        self.assertEqual(groups, {(f"node{k}", str(k)) for k in range(4)})
        self.assertRegex(lines[0], r" run slurm-\d+\.0-r0 at node0:")
        self.go()
        self.assertEqual(step.ends(), 0, step.log)

    def test_nodes_know_each_other_by_munge_without_an_option(self):
        # That all is encrypted can only be promised where MUNGE answers.
        for options in ((), ("--rdzv-encrypt",), ("--rdzv-auth=munge",), ("--rdzv-auth=none",)):
            step = self.agents("-N2", ddprun=options)
            self.go()
            self.assertEqual(step.ends(), 0, step.log)

    def test_another_user_of_the_cluster_cannot_take_part(self):
        port = free_port()
        run = ("--rdzv-backend=c10d", f"--rdzv-endpoint=node0:{port}", "--rdzv-id=theirs", "--rdzv-auth=munge")
        step = self.agents("-N2", ddprun=run)
        self.until_started(2)
        stranger = subprocess.run(
            self.cluster.command("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", DDPRUN,
                                 "--log-dir=/dev/null", "--nnodes=2", *run, "/bin/true"),
            env=self.environment(), cwd="/", capture_output=True, text=True, timeout=60)
        self.assertEqual(stranger.returncode, 80, stranger.stderr)
        self.assertIn("it is run by another user of the cluster (MUNGE)", stranger.stderr)
        self.assertEqual(len(self.started), 2)
        self.go()
        self.assertEqual(step.ends(), 0, step.log)

    @unittest.skipUnless(HAS_TORCH, "this Python has no torch")
    def test_a_collective_over_four_nodes(self):
        step = self.agents("-N4", worker=("all_reduce.py",))
        self.assertEqual(step.ends(), 0, step.log)
        self.assertEqual(sorted(re.findall(r"rank \d sum \d", step.log)), [f"rank {r} sum 4" for r in range(4)])

    def test_a_step_of_fewer_nodes_than_the_job_in_a_batch_script(self):
        job = self.sbatch(f"srun -N2 -n2 -w node2,node3 {DDPRUN} --log-dir logs worker.py",
                          "-N4", "--ntasks-per-node=1")
        lines = self.until_started(2)
        self.assertEqual({line.split()[0] for line in lines}, {"node2", "node3"})
        self.assertIn(f" run slurm-{job}.0-r0 at node2:", lines[0])
        self.go()
        self.cluster.until_state(job, "COMPLETED")

    def test_a_batch_script_without_srun_is_refused(self):
        job = self.sbatch(f"{DDPRUN} worker.py; echo status $?", "-N3", "--ntasks-per-node=1")
        self.cluster.until_state(job, "COMPLETED")
        cluster.until(lambda: "status" in self.output(job), "its output is there")
        self.assertRegex(self.output(job), rf"ddprun: job {job} has 3 nodes, and ddprun was started on one of them: "
                                           r"only srun starts it on all")
        self.assertIn("status 2", self.output(job))

    def test_a_shell_of_salloc_on_another_machine_is_refused(self):
        done = subprocess.run(self.cluster.command("salloc", "-N1", "-w", "node1", "--gpus-per-node=4", DDPRUN, "worker.py"),
                              env=self.environment(), cwd=self.path, capture_output=True, text=True, timeout=cluster.LIMIT)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"ddprun: job \d+ is on node1, and ddprun was started on login: only srun starts it there")

    def test_one_worker_for_several_gpus_of_a_batch_script_is_told(self):
        self.go()
        job = self.sbatch(f"{DDPRUN} worker.py", "-N1", "--gpus-per-node=4")
        self.cluster.until_state(job, "COMPLETED")
        self.assertEqual(worlds(self.started), ["0/1"])
        self.assertIn("this node has 4 GPUs (CUDA_VISIBLE_DEVICES), and ddprun starts 1 worker", self.output(job))

    def test_the_static_backend_without_a_node_rank_is_told_what_is_missing(self):
        step = self.agents("-N2", ddprun=["--nnodes=2", f"--rdzv-endpoint=node0:{free_port()}"])
        self.assertNotEqual(step.ends(), 0, step.log)
        missing = "on several nodes the static backend needs --node-rank (srun bash -c "
        self.assertIn(f"node1 cannot start its workers: {missing}", step.log)

    def test_one_task_for_each_gpu_is_told_how_to_run_it(self):
        step = self.srun("-N2", "--ntasks-per-node=4", "--gpus-per-node=4", DDPRUN, "worker.py")
        self.assertEqual(step.ends(), 2)
        self.assertIn("(SLURM_STEP_TASKS_PER_NODE=4(x2) on node[0-1])", step.log)
        self.assertIn("srun --ntasks-per-node=1 ddprun ..., which starts one worker for each GPU", step.log)

    def test_gpus_per_task(self):
        step = self.agents("-N2", "--gpus-per-task=3")
        self.assertEqual(worlds(self.until_started(6)), [f"{rank}/6" for rank in range(6)])
        self.go()
        self.assertEqual(step.ends(), 0, step.log)

    def test_tasks_in_an_order_of_the_users_own(self):
        (self.path / "order").write_text("node2\nnode0\nnode1\n")
        step = self.agents("-n3", "-m", "arbitrary", SLURM_HOSTFILE=str(self.path / "order"))
        lines = self.until_started(3)
        self.assertEqual({(line.split()[0], line.split()[1]) for line in lines},
                         {(f"node{k}", f"{k}/3") for k in range(3)})
        self.go()
        self.assertEqual(step.ends(), 0, step.log)

    def test_a_step_over_two_parts_of_a_heterogeneous_job(self):
        log = self.path / "salloc"
        inner = self.cluster.command("salloc", "-Q", "-N1", "-w", "node3", ":", "-N2", "-w", "node[0-1]", "srun",
                                     "--het-group=0,1", DDPRUN, "--log-dir", self.path / "logs", "worker.py")
        with open(log, "wb") as out:
            step = subprocess.Popen(inner, cwd=self.path, env=self.environment(), stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=subprocess.STDOUT)
        self.addCleanup(lambda: step.poll() is None and (step.kill(), step.wait()))
        lines = self.until_started(3)
        self.assertEqual({(line.split()[0], line.split()[1]) for line in lines},
                         {("node0", "0/3"), ("node1", "1/3"), ("node3", "2/3")})
        self.go()
        self.assertEqual(step.wait(timeout=cluster.LIMIT), 0, log.read_text())

    def test_two_jobs_on_the_same_nodes_at_once(self):
        steps = [self.agents("-N4", "-c2") for _ in range(2)]
        lines = self.until_started(8)
        runs = {re.search(r" run (\S+) at (\S+)", line).groups() for line in lines}
        self.assertEqual(len(runs), 2, runs)
        for run, _ in runs:
            self.assertEqual(worlds(line for line in lines if run in line), [f"{r}/4" for r in range(4)])
        self.go()
        for step in steps:
            self.assertEqual(step.ends(), 0, step.log)

    @needs_runtime
    def test_two_trainings_on_the_same_nodes_at_once(self):
        worker = self.training(step_seconds=0)
        steps = [self.agents("-N4", ddprun=["--tee=3"], worker=worker) for _ in range(2)]
        for step in steps:
            self.assertEqual(step.ends(), 0, step.log)
        # The same program with the same data: had one of them heard of the other's gradients, it would show.
        self.assertEqual(*(parameters(step.log, 4) for step in steps))

    def test_a_node_that_does_not_know_its_own_name(self):
        hosts = self.cluster.folder / "etc" / "hosts"
        others = "\n".join(line for line in hosts.read_text().splitlines() if not line.endswith(" node1"))
        (self.path / "hosts").write_text(others + "\n")
        (self.path / "agent.sh").write_text(
            f"#!/bin/sh\n[ \"$(hostname)\" != node1 ] || mount --bind {self.path}/hosts /etc/hosts\n"
            f"exec {DDPRUN} --log-dir {self.path}/logs worker.py\n")
        (self.path / "agent.sh").chmod(0o755)
        self.addCleanup(lambda: self.cluster.run("srun", "-w", "node1", "-N1", "umount", "/etc/hosts"))
        step = self.srun("-N2", "-w", "node1,node2", "--ntasks-per-node=1", self.path / "agent.sh")
        lines = self.until_started(2)
        self.assertIn("this machine does not know its own name node1, so the others are given its address", step.log)
        self.assertNotIn(" at node1:", lines[0])
        self.go()
        self.assertEqual(step.ends(), 0, step.log)

    def test_more_nodes_than_the_step_has_are_refused(self):
        step = self.agents("-N2", ddprun=["--nnodes=3"])
        self.assertEqual(step.ends(), 2)
        self.assertIn("--nnodes=3: this step has only 2 nodes (SLURM_STEP_NODELIST=node[0-1])", step.log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
