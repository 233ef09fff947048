# SPDX-License-Identifier: BSD-3-Clause
"""How a job is told to stop, under each way in which Slurm keeps track of processes."""

import re
import shlex
import subprocess
import unittest

from case import BIN, LIMIT, ROOT, SlurmCase, cluster, needs_runtime, now


class Ends:
    """The cases; a class for each tracking below."""

    def received(self, name, run="", senders=r"ddprun|another"):
        """Rank to how often it got the signal."""
        counts = {}
        for line in self.lines("signals"):
            found = re.match(rf"{name} rank (\d+) run (\S+) from ({senders})", line)
            if found and run in line:
                counts[int(found[1])] = counts.get(int(found[1]), 0) + 1
        return counts

    def test_a_signal_reaches_each_worker_once(self):
        job = self.sbatch(f"srun -N2 -n2 {BIN}/ddprun --log-dir logs --nproc-per-node=2 worker.py",
                          "-N2", "--ntasks-per-node=1")
        self.until_started(4)
        for name in ("USR1", "USR2", "USR1"):
            before = len(self.lines("signals"))
            self.cluster.run("scancel", "-s", name, job)
            cluster.until(lambda: len(self.lines("signals")) >= before + 4, f"SIG{name} has come")
        self.go()
        self.cluster.until_state(job, "COMPLETED")
        self.assertEqual(self.received("SIGUSR1"), {rank: 2 for rank in range(4)}, self.output(job))
        self.assertEqual(self.received("SIGUSR2"), {rank: 1 for rank in range(4)}, self.output(job))

    def test_scancel_stops_workers_once_and_leaves_nothing(self):
        job = self.sbatch(f"srun -N2 -n2 {BIN}/ddprun --log-dir logs --nproc-per-node=2 --no-python sh -c "
                          "'setsid -f sleep 1000; exec python3 worker.py'", "-N2", "--ntasks-per-node=1")
        lines = self.until_started(4)
        nodes = [name for name in self.cluster.names if any(line.startswith(f"{name} ") for line in lines)]
        begin = now()
        self.cluster.run("scancel", job)
        cluster.until(lambda: not any(self.left_on(name) for name in nodes), "nothing of the job is left")
        self.note(f"scancel to nothing left: {now() - begin:.2f} s")
        self.cluster.until_state(job, "CANCELLED")
        self.assertEqual(self.received("SIGTERM"), {rank: 1 for rank in range(4)}, self.output(job))

    @needs_runtime
    def test_scancel_of_a_training_leaves_its_checkpoints_and_nothing_else(self):
        training = shlex.join(map(str, self.training(epochs=1000)))
        job = self.sbatch(f"srun -N2 -n2 {BIN}/ddprun --log-dir logs --tee=3 {training}", "-N2", "--ntasks-per-node=1",
                          DDPRUN_BACKEND="gloo", OMP_NUM_THREADS="1")
        cluster.until(lambda: "epoch 2: loss" in self.output(job), f"it trains; {self.output(job)}")
        self.cluster.run("scancel", job)
        cluster.until(lambda: not any(self.left_on(name) for name in self.cluster.names), "nothing of the job is left")
        self.cluster.until_state(job, "CANCELLED")
        saved = [path for path in (self.path / "checkpoints").rglob("*") if path.is_file()]
        self.assertTrue(saved, self.output(job))
        self.assertFalse([path for path in saved if "lock" in path.name], saved)

    def left_on(self, name):
        """What runs on a node beside Slurm's own daemons."""
        daemons = ("slurmd", "slurmstepd")
        left = []
        for pid in self.cluster.pids(name):
            try:
                with open(f"/proc/{pid}/comm") as comm:
                    if not comm.read().strip().startswith(daemons):
                        left.append(pid)
            except OSError:
                pass  # it has just gone
        return left


class LinuxprocTest(Ends, SlurmCase):
    options = {"count": 2, "tracking": "linuxproc"}


class PgidTest(Ends, SlurmCase):
    options = {"count": 2, "tracking": "pgid"}


class CgroupTest(Ends, SlurmCase):
    """What most sites have, and so what does not differ by tracking is played here only."""

    options = {"count": 2, "tracking": "cgroup"}

    @classmethod
    def setUpClass(cls):
        if cluster.why_not("cgroup"):
            raise unittest.SkipTest(cluster.why_not("cgroup"))
        super().setUpClass()

    # Says what it saves after SIGTERM, and when that is done.
    SAVER = """
import os, signal, sys, time
def save(*_):
    print("saving", flush=True)
    time.sleep(1)
    print(f"rank {os.environ['RANK']} has saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open("started", "a").write("x\\n")
while True:
    signal.pause()
"""

    def test_the_job_says_all_that_its_workers_say_while_they_stop(self):
        (self.path / "saver.py").write_text(self.SAVER)
        for options in (["--nodes=2"], ["--nodes=1:2"], ["--nodes=2", "--requeue"]):
            with self.subTest(options):
                (self.path / "started").unlink(missing_ok=True)
                script = subprocess.run(
                    [ROOT / "scripts/slurm/ddprun-sbatch", "--print", *options, "--time=5", "saver.py"],
                    capture_output=True, text=True, timeout=LIMIT, check=True).stdout
                job = self.sbatch(script.partition("\n")[2])
                self.until_started(2)
                self.cluster.run("scancel", job)
                self.cluster.until_state(job, "CANCELLED")
                cluster.until(lambda: not any(self.left_on(name) for name in self.cluster.names), "nothing is left")
                for line in ("rank 0 has saved", "rank 1 has saved", f"stopped by SIGTERM: job {job} was cancelled"):
                    self.assertIn(line, self.output(job))

    def test_a_preempted_job_without_a_warning_gets_its_grace_and_is_requeued(self):
        job = self.sbatch(f"srun -N2 -n2 {BIN}/ddprun --log-dir logs worker.py; sleep 60", "-N2",
                          "--ntasks-per-node=1", "--requeue", "-c8")
        self.until_started(2)
        other = self.srun("-p", "prio", "-N2", "-c8", "true")
        self.assertEqual(other.ends(), 0, other.log)
        cluster.until(lambda: sum(f" run slurm-{job}.0-r1 " in line for line in self.started) == 2,
                      f"the job has begun again; {self.output(job)}")
        self.assertEqual(self.received("SIGTERM", run=f"slurm-{job}.0-r0"), {0: 1, 1: 1}, self.output(job))

    def test_a_second_sigterm_does_not_shorten_the_grace(self):
        job = self.sbatch(f"srun -N2 -n2 {BIN}/ddprun --log-dir logs worker.py", "-N2", "--ntasks-per-node=1")
        self.until_started(2)
        self.cluster.run("scancel", "-s", "TERM", job)
        cluster.until(lambda: self.lines("stopping"), "a worker is about to end")
        self.cluster.run("scancel", "-s", "TERM", job)
        self.cluster.until_state(job, "FAILED")
        self.assertEqual(sorted(self.lines("ended")), ["0", "1"], self.output(job))

    def test_a_save_request_before_the_time_limit(self):
        job = self.sbatch(f"srun -N2 -n2 {BIN}/ddprun --log-dir logs worker.py", "-N2", "--ntasks-per-node=1",
                          "--time=10", "--signal=USR1@100", SAVES="1")
        self.until_started(2)
        self.make_warning_due(job)
        self.cluster.until_state(job, "COMPLETED")
        self.assertEqual(self.received("SIGUSR1"), {0: 1, 1: 1}, self.output(job))
        self.assertEqual(len(self.lines("saved")), 2)

    def test_a_worker_that_does_not_stop_is_killed_within_killwait(self):
        job = self.sbatch(f"trap : TERM; srun -N2 -n2 {BIN}/ddprun --log-dir logs --no-python sh -c "
                          "'trap \"\" TERM; echo x >> started; while :; do sleep 1; done' & wait; wait",
                          "-N2", "--ntasks-per-node=1")
        self.until_started(2)
        begin = now()
        self.cluster.run("scancel", job)
        cluster.until(lambda: not any(self.left_on(name) for name in self.cluster.names), "nothing is left")
        self.note(f"scancel of workers that ignore SIGTERM to nothing left: {now() - begin:.2f} s (KillWait is 5 s)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
