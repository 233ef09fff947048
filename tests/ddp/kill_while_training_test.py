#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""SIGKILL of rank 0 or of all ranks at random moments: the run ends as one that nothing happened to.

usage: kill_while_training_test.py KILL_RANKS [--power-sgd | --sharded] [KILLS [SEED]]

Under ddprun, which starts the group again each time.  The final weights are those of an undisturbed
run, bit for bit; each sample of an epoch was used exactly once by the steps that count; and each attempt
went on from the newest checkpoint that was reported saved.  With DDPRUN_TEST_LONG set, 500 kills
instead of 50.  --power-sgd reduces with PowerSGD, whose state is in the checkpoints.  With --sharded every
rank writes a part of these.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

RANKS = 3
STEPS = 150
SAMPLES = 42
LIMIT_S = 300  # for one state to come about
# What is written outlives the process, not the machine: a disk would only make it slower.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def records_of(path):
    """The whole lines of a file, each split; none when it is not there yet."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]


class Training:
    """ddprun with the ranks of one training."""

    def __init__(self, command, folder, restarts):
        program, *hook = command
        self.folder = Path(folder)
        self.records = self.folder / "records"
        self.records.mkdir()
        self.log = open(self.folder / "log", "w")
        self.process = subprocess.Popen(
            [
                *(str(Path(os.environ["DDPRUN_BIN"]) / "ddprun"), "--standalone"),
                *("--nproc-per-node", str(RANKS), "--max-restarts", str(restarts)),
                *(program, str(self.folder / "checkpoints"), str(self.records), str(STEPS), *hook),
            ],
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def wait_for_start(self, count):
        """Waits for attempt `count` to begin training; False when the run has ended instead."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if len(records_of(self.records / "starts")) >= count:
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.002)
        raise AssertionError(f"no attempt {count} within {LIMIT_S} s: {self.text()[-3000:]}")

    def has_steps_left(self):
        """A kill after the last step would show little."""
        return int(records_of(self.records / "starts")[-1][1]) < STEPS

    def pids(self):
        """Of the newest attempt, rank 0 first."""
        return [int(records_of(self.records / f"pid.{rank}")[-1][0]) for rank in range(RANKS)]

    def text(self):
        return (self.folder / "log").read_text()

    def finish(self):
        try:
            self.process.wait(LIMIT_S)
        finally:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait()
            self.log.close()
        assert self.process.returncode == 0, self.text()[-3000:]

    def sums(self):
        """Of the parameters, which all ranks have alike, and of rank 0's buffers."""
        ends = [records_of(self.records / f"end.{rank}")[-1] for rank in range(RANKS)]
        assert len({parameters for parameters, _ in ends}) == 1, ends
        return ends[0]


def check_resumed(training):
    """Each attempt goes on from the newest checkpoint that was whole when the last one was killed.

    A save waits for the one before it, so what rank 0 did before a record of step n is to save up
    to step n - 2.
    """
    assert "passing over" not in training.text(), "a checkpoint was damaged"
    reached = {}
    for attempt, step, *_ in records_of(training.records / "samples.0"):
        reached[int(attempt)] = int(step)
    starts = [(int(attempt), int(step)) for attempt, step in records_of(training.records / "starts")]
    for (attempt, begin), (_, resumed) in zip(starts, starts[1:]):
        durable = max(begin, reached.get(attempt, 0) - 2)
        assert resumed >= durable, f"{durable} was saved, and {resumed} resumed from: {starts}"


def check_samples(training):
    """Each sample of each full epoch exactly once, over the steps that count."""
    starts = [(int(attempt), int(step)) for attempt, step in records_of(training.records / "starts")]
    assert starts == sorted(starts), starts
    ends = [step for _, step in starts[1:]] + [STEPS]
    counts = {attempt: (begin, end) for (attempt, begin), end in zip(starts, ends)}
    used, steps = {}, set()
    for rank in range(RANKS):
        for attempt, step, epoch, *indices in records_of(training.records / f"samples.{rank}"):
            begin, end = counts.get(int(attempt), (0, 0))
            if begin < int(step) <= end:
                used.setdefault(int(epoch), Counter()).update(indices)
                steps.add(int(step))
    assert steps == set(range(1, STEPS + 1)), sorted(set(range(1, STEPS + 1)) - steps)
    last = max(used)
    for epoch, counter in used.items():
        assert set(counter.values()) == {1}, (epoch, counter)
        assert epoch == last or len(counter) == SAMPLES, (epoch, len(counter))


def killed_training(command, chance, kills, where):
    """One training with as many kills as come about, `kills` at most; returns the sums and these."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        training = Training(command, folder, kills)
        done = 0
        while done < kills and training.wait_for_start(done + 1) and training.has_steps_left():
            time.sleep(chance.uniform(0, 0.25))  # the moment of the kill
            victims = training.pids()
            for pid in victims[:1] if chance.random() < 0.5 else victims:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    break  # it has just ended
            else:
                done += 1
                continue
            break
        training.finish()
        try:
            check_resumed(training)
            check_samples(training)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}\n{training.text()[-3000:]}") from error
        return training.sums(), len(records_of(training.records / "starts")) - 1


def main(program, *arguments):
    with_what = {("--power-sgd",): ["power_sgd"], ("--sharded",): ["sharded"]}
    command = [program, *with_what.get(arguments[:1], [])]
    kills, seed = (*arguments[len(command) - 1 :], None, None)[:2]
    kills = int(kills or (500 if os.environ.get("DDPRUN_TEST_LONG") else 50))
    seed = int(seed) if seed else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    undisturbed, none = killed_training(command, chance, 0, "undisturbed")
    assert none == 0, none
    done, trainings = 0, 0
    while done < kills:
        where = f"training {trainings}, {done} kills before it, seed {seed}"
        sums, killed = killed_training(command, chance, kills - done, where)
        assert sums == undisturbed, f"{where}: {sums} instead of {undisturbed}"
        done, trainings = done + killed, trainings + 1
        print(f"  {done} kills after {trainings} trainings", flush=True)
    print(f"{done} kills in {trainings} trainings of {STEPS} steps: always the same weights")


if __name__ == "__main__":
    main(*sys.argv[1:])
