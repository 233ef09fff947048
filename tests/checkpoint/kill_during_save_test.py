#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""SIGKILL at random moments of saving: what is visible is whole, and what was reported stays.

usage: kill_during_save_test.py CHECKPOINT_WRITER [KILLS [SEED]]
"""

import random
import signal
import subprocess
import sys
import tempfile
import time


def killed_writer(program, directory, saves, pause):
    """Lets a writer report `saves` saves, kills it `pause` s later; returns the last it reported."""
    with subprocess.Popen([program, "write", directory], stdout=subprocess.PIPE, text=True) as writer:
        for _ in range(saves):
            assert writer.stdout.readline(), "the writer ended by itself"
        time.sleep(pause)  # the moment of the kill, in the middle of the next saves
        writer.send_signal(signal.SIGKILL)
        rest, _ = writer.communicate()
    assert writer.returncode == -signal.SIGKILL, writer.returncode
    lines = rest.splitlines()
    return int(lines[-1]) if lines else None


def main(program, kills=50, seed=None):
    seed = int(seed) if seed else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        reported = 0
        for kill in range(int(kills)):
            last = killed_writer(program, directory, chance.randint(1, 3), chance.uniform(0, 0.02))
            reported = max(reported, last or 0)
            seen = subprocess.run([program, "verify", directory], capture_output=True, text=True)
            where = f"kill {kill}, seed {seed}"
            assert seen.returncode == 0, f"{where}: damaged: {seen.stderr}"
            steps = [int(line) for line in seen.stdout.split()]
            assert steps and steps[0] >= reported, f"{where}: {reported} was saved, there is {steps}"
            assert 1 <= len(steps) <= 3, f"{where}: {steps}"
    print(f"{kills} kills, newest step {steps[0]}: always whole")


if __name__ == "__main__":
    main(*sys.argv[1:])
