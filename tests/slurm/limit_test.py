# SPDX-License-Identifier: BSD-3-Clause
"""The time limit itself.  Slurm's shortest is a minute, and it may come 30 s late, so all that is to be seen of it
is seen in one go."""

import re
import subprocess
import unittest

from case import BIN, HAS_RUNTIME, ROOT, SlurmCase, cluster, now, time_of


class LimitTest(SlurmCase):
    # Where the agent alone is signalled.  Slurm sends SIGTERM twice here, 50 ms to 0.1 s apart.
    options = {"count": 4, "tracking": "pgid" if cluster.why_not("cgroup") else "cgroup", "kill_wait": 15}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.linuxproc = cluster.Cluster(count=2, tracking="linuxproc", kill_wait=15)  # signals the workers itself
        cls.addClassCleanup(cls.linuxproc.stop)

    def test_stopped_and_warned_and_begun_again(self):
        """Several jobs at once: two are just stopped, two are told before and come back."""
        stopped = [f"srun -N2 -n2 {BIN}/ddprun --log-dir logs worker.py", "-N2", "--ntasks-per-node=1", "--time=1"]
        plain = self.sbatch(*stopped, ASKS="1")
        signalled = self.sbatch(*stopped, on=self.linuxproc)
        warned = self.sbatch(f"srun -N2 -n2 {BIN}/ddprun --log-dir logs worker.py; [ -n \"$SLURM_RESTART_COUNT\" ] || "
                             "scontrol requeue $SLURM_JOB_ID", "-N2", "--ntasks-per-node=1", "--requeue", "--time=1",
                             "--signal=USR1@5", ASKS="1", SAVES="1")
        training = self.train() if HAS_RUNTIME else None
        begin = now()
        self.until_started(6)
        cluster.until(lambda: self.cluster.state(plain) == "TIMEOUT", "the time is over", limit=150)
        cluster.until(lambda: sum(f" run slurm-{warned}.0-r1 " in line for line in self.started) == 2,
                      f"the other job has begun again; {self.output(warned)}")
        reasons, signals = self.lines("reasons"), self.lines("signals")
        ends = [line for line in signals if line.startswith("SIGTERM") and f"slurm-{plain}.0-r0" in line]
        self.assertEqual(len(ends), 2, f"{signals}\n{self.output(plain)}")
        cluster.until(lambda: self.linuxproc.state(signalled) == "TIMEOUT", "there, too")
        ends_there = [line for line in self.lines("signals") if f"slurm-{signalled}.0-r0" in line]
        self.assertEqual({line.split()[2] for line in ends_there}, {"0", "1"}, self.output(signalled))
        self.assertFalse([line for line in ends_there if "from ddprun" in line], "Slurm's own signals are enough")
        self.assertEqual(sorted(self.lines("ended")), ["0", "0", "1", "1"], "the second SIGTERM takes no time away")
        self.note(f"a limit of 60 s: SIGTERM after {min(map(time_of, ends)) - begin:.1f} s")
        self.assertEqual(sum(f"time-limit: the time of job {plain} is over" in line for line in reasons), 2, reasons)
        warnings = [line for line in signals if line.startswith("SIGUSR1") and f"slurm-{warned}.0-r0" in line]
        self.assertEqual(len(warnings), 2, self.output(warned))
        self.note(f"--signal=USR1@5: SIGUSR1 after {min(map(time_of, warnings)) - begin:.1f} s")
        self.assertEqual(sum(f" life 0 time-limit: the time of job {warned} is over in" in line for line in reasons), 2, reasons)
        self.assertEqual(len([line for line in self.lines("saved") if f"slurm-{warned}.0-r0" in line]), 2)
        self.go()
        if training:
            cluster.until(lambda: re.search(r"with 2 ranks, resumed from epoch [1-9]", self.output(training)),
                          f"the training has resumed; {self.output(training)}")
            self.assertRegex(self.output(training), "requeueing job .*: its time is nearly over")
            self.assertRegex(self.output(training), rf"checkpoints in \S+/slurm-{training}.0-1\n")

    def train(self):
        """A real training of some minutes, saved before its time is over."""
        script = subprocess.run(
            [ROOT / "scripts/slurm/ddprun-sbatch", "--print", "--nodes=2", "--time=1", "--requeue", "--warning=4", "--",
             *map(str, self.training(epochs=200))], capture_output=True, text=True, check=True).stdout
        return self.sbatch(script.partition("\n")[2])


if __name__ == "__main__":
    unittest.main(verbosity=2)
