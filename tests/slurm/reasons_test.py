# SPDX-License-Identifier: BSD-3-Clause
"""Why a job is stopped, as the workers and the report are told, for each of Slurm's reasons."""

import json
import unittest

from case import BIN, SlurmCase, cluster


class ReasonsTest(SlurmCase):
    options = {"count": 3, "kill_wait": 15}

    def submit(self, *options, command="worker.py", **extra):
        job = self.sbatch(f"srun -N2 -n2 --kill-on-bad-exit=0 {BIN}/ddprun --log-dir logs {command}; sleep 60", "-N2",
                          "--ntasks-per-node=1", "-c8", "-w", "node[0-1]", *options, ASKS="1", **extra)
        self.until_started(2)
        return job

    def until_told(self, job, signal, reason):
        """Both workers have heard of it, and so has the log."""
        def lines():
            return [line for line in self.lines("reasons") if line.startswith(signal) and f"{reason} {job}" in line]
        try:
            cluster.until(lambda: len({line.split()[2] for line in lines()}) == 2, f"the workers are told {reason!r}", 30)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.lines('reasons')}\n{self.output(job)}") from None
        return lines()

    def reports(self, count=2):
        """report.json of each node, when they are there."""
        found, _ = cluster.until(lambda: len(paths := list(self.path.glob("logs/*/report.json"))) >= count and paths,
                                 "the reports are written", limit=30)
        return [json.loads(path.read_text()) for path in found]

    def test_cancelled(self):
        job = self.submit()
        self.cluster.run("scancel", job)
        self.until_told(job, "SIGTERM", "cancelled: job")
        for report in self.reports():
            self.assertEqual(report["signalled"], {"signal": "SIGTERM", "reason": "cancelled",
                                                   "words": f"job {job} was cancelled"})
            self.assertEqual(report["error"], f"stopped by SIGTERM: job {job} was cancelled")
        cluster.until(lambda: f"stopped by SIGTERM: job {job} was cancelled, exit code 143" in self.output(job),
                      "the log says so")

    def test_preempted(self):
        job = self.submit("--requeue")
        other = self.srun("-p", "prio", "-N2", "-w", "node[0-1]", "-c8", "true")
        self.until_told(job, "SIGTERM", "preempted: Slurm has preempted job")
        self.assertEqual({report["signalled"]["reason"] for report in self.reports()}, {"preempted"})
        self.assertEqual(other.ends(), 0, other.log)

    def test_preempted_with_a_signal_of_the_users(self):
        job = self.submit("--requeue", "--signal=USR1@60", "--time=10", SAVES="1")
        other = self.srun("-p", "prio", "-N2", "-w", "node[0-1]", "-c8", "true")
        self.until_told(job, "SIGUSR1", "preempted: Slurm has preempted job")
        self.assertEqual(other.ends(), 0, other.log)

    def test_requeued_by_hand(self):
        job = self.submit("--requeue")
        self.cluster.run("scontrol", "requeue", job)
        self.until_told(job, "SIGTERM", "requeued: Slurm begins job")
        cluster.until(lambda: len(self.started) >= 4, "its second life")
        self.go()

    def test_a_node_failed(self):
        for options in ("--no-requeue", "--requeue"):
            with self.subTest(options):
                before = len(self.lines("reasons"))
                job = self.sbatch(f"srun -N3 -n3 {BIN}/ddprun --log-dir logs --nnodes=1:3 worker.py", "-N3",
                                  "--ntasks-per-node=1", options, ASKS="1")
                cluster.until(lambda: sum(f" run slurm-{job}.0-r0 " in line for line in self.started) == 3, "they run")
                self.cluster.run("scontrol", "update", "nodename=node2", "state=down", "reason=test")
                cluster.until(lambda: any(f"node-failed: a node of job {job} has failed" in line
                                          for line in self.lines("reasons")[before:]), f"{self.lines('reasons')}", 30)
                self.revive_down("node2")

    def revive_down(self, name):
        self.end_jobs()
        self.cluster.ask("scontrol", "update", f"nodename={name}", "state=resume")
        self.cluster.wait_for_nodes("idle")

    def test_signalled_by_a_person_while_the_job_goes_on(self):
        job = self.submit("--time=60")
        self.cluster.run("scancel", "-s", "USR1", job)
        lines = self.until_told(job, "SIGUSR1", "signal: told from outside by SIGUSR1; Slurm's job")
        self.cluster.run("scancel", "-s", "TERM", job)
        self.until_told(job, "SIGTERM", "signal: ended from outside by SIGTERM; Slurm's job")
        self.assertEqual({report["signalled"]["reason"] for report in self.reports()}, {"signal"})
        self.assertIn(" life 0 ", lines[0])

    def test_without_scontrol_only_the_signal_is_known(self):
        (self.path / "bin").mkdir()
        for name in ("python3", "sh"):
            (self.path / "bin" / name).symlink_to(f"/usr/bin/{name}")
        job = self.sbatch(
            f"srun -N2 -n2 /usr/bin/env PATH={self.path}/bin {BIN}/ddprun --log-dir logs worker.py", "-N2",
            "--ntasks-per-node=1")
        self.until_started(2)
        self.cluster.run("scancel", job)
        for report in self.reports():
            self.assertEqual(report["signalled"], {"signal": "SIGTERM", "reason": "signal",
                                                   "words": "ended from outside by SIGTERM"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
