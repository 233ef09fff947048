#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""SIGUSR1 and SIGTERM to ddprun in the middle of an epoch: saved at that step, and gone on from there.

usage: stop_with_grace_test.py TRAIN_DIGITS DIGITS_CSV
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from local_ranks import skip

LIMIT_S = 120
DDPRUN = [str(Path(os.environ["DDPRUN_BIN"]) / "ddprun"), "--standalone", "--nproc-per-node", "2"]


def steps_in(base):
    return sorted(int(path.name[5:]) for path in Path(base).glob("*/step-*"))


class Run:
    def __init__(self, command, log):
        self.path = Path(log)
        with open(log, "w") as file:
            self.process = subprocess.Popen([*DDPRUN, *command], stdout=file, stderr=file)

    def wait_until(self, is_true, what):
        end = time.monotonic() + LIMIT_S
        while not is_true():
            assert self.process.poll() is None, f"ended without {what}: {self.text()}"
            assert time.monotonic() < end, f"no {what} in {LIMIT_S} s: {self.text()}"
            time.sleep(0.01)

    def finish(self):
        try:
            return self.process.wait(LIMIT_S)
        finally:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait()

    def text(self):
        return self.path.read_text()


def parameters_hash(text):
    found = re.search(r"parameters identical on 2 ranks: ([0-9a-f]+)", text)
    assert found, text
    return found[1]


def main(program, data):
    if not Path(data).is_file():
        skip(f"{data} is not there")
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--data", data, "--epochs", "3", "--checkpoint-dir", f"{folder}/base"]
        run = Run([*command, "--step-seconds", "0.02"], f"{folder}/first")
        run.wait_until(lambda: "epoch 1:" in run.text(), "epoch 1")
        saved = steps_in(f"{folder}/base")
        run.process.send_signal(signal.SIGUSR1)
        run.wait_until(lambda: len(steps_in(f"{folder}/base")) > len(saved), "save on SIGUSR1")
        run.process.send_signal(signal.SIGTERM)
        code = run.finish()
        stopped = re.search(r"stopped at step (\d+), saved", run.text())
        assert code != 0 and stopped, (code, run.text())
        assert steps_in(f"{folder}/base")[-1] == int(stopped[1]), run.text()

        run = Run([*command, "--resume", str(next(Path(folder, "base").iterdir()))], f"{folder}/second")
        assert run.finish() == 0, run.text()
        assert re.search(r"resumed from epoch \d and \d+ samples", run.text()), run.text()
        resumed = parameters_hash(run.text())

        run = Run(command, f"{folder}/undisturbed")
        assert run.finish() == 0, run.text()
        assert resumed == parameters_hash(run.text())
    print(f"stopped at step {stopped[1]}, exit code {code}; the weights are the same in the end")


if __name__ == "__main__":
    main(*sys.argv[1:])
