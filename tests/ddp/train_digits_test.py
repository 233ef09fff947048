#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The main job under stock variables: a rank dies, the group starts again, the answer is the same.

usage: train_digits_test.py TRAIN_DIGITS DIGITS_CSV
"""

import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from local_ranks import run_ranks, skip


def parameters_hash(output, world_size):
    found = re.search(rf"^parameters identical on {world_size} ranks: ([0-9a-f]+)$", output, re.M)
    assert found, output
    return found[1]


def check_options(program, data):
    for options in (["--epochs", "many"], ["--lr", "0"], ["--kill-rank", "1"], ["--nonsense"]):
        ended = subprocess.run([program, *options], capture_output=True, text=True)
        assert ended.returncode == 2, (options, ended)
        assert ended.stderr.count("\n") == 1 and options[0] in ended.stderr, ended.stderr
    (rank,) = run_ranks([program, "--data", data + ".not-there"], 1)
    assert rank.returncode == 1 and "cannot read" in rank.output, rank.output
    alone = subprocess.run([program], capture_output=True, text=True, env={})
    assert alone.returncode == 1 and "WORLD_SIZE is not set" in alone.stderr, alone.stderr


def check_kill_and_resume(command, base):
    """Attempt 0 loses rank 1 in epoch 3; attempt 1 ends as an undisturbed run does, bit for bit."""
    victim = [*command, "--kill-rank", "1", "--kill-epoch", "3"]
    first = run_ranks(victim, 2, run_id="job")
    assert first[1].returncode == -signal.SIGKILL, first[1].returncode
    assert first[0].returncode == 1, first[0].output
    assert "epoch 2:" in first[0].output and "epoch 3:" not in first[0].output, first[0].output

    second = run_ranks(victim, 2, run_id="job", restart_count=1)
    assert [rank.returncode for rank in second] == [0, 0], second[0].output
    assert "resumed from epoch 2" in second[0].output, second[0].output
    assert "done after 1 restart(s), resumed from epoch 2" in second[0].output, second[0].output

    undisturbed = run_ranks(command, 2, run_id="job")
    assert "from the start; checkpoints in" in undisturbed[0].output, undisturbed[0].output
    assert sorted(path.name for path in Path(base).iterdir()) == ["job-1", "job-2"]
    assert parameters_hash(second[0].output, 2) == parameters_hash(undisturbed[0].output, 2)
    accuracy = re.search(r"done after .* test accuracy ([0-9.]+) %", second[0].output)
    assert float(accuracy[1]) > 95, second[0].output


def check_damage(command, base):
    """The newest checkpoint is cut short: a run of three ranks goes on from the one before."""
    newest = max((Path(base) / "job-1").glob("step-*"))
    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    ranks = run_ranks([*command, "--resume", str(newest.parent)], 3)
    assert [rank.returncode for rank in ranks] == [0, 0, 0], ranks[0].output
    assert f"passing over a damaged checkpoint: {newest}" in ranks[0].output, ranks[0].output
    assert "resumed from epoch 5" in ranks[0].output, ranks[0].output
    parameters_hash(ranks[0].output, 3)


def main(program, data):
    check_options(program, data)
    if not Path(data).is_file():
        skip(f"{data} is not there")
    with tempfile.TemporaryDirectory() as base:
        command = [program, "--data", data, "--epochs", "6", "--checkpoint-dir", base]
        check_kill_and_resume(command, base)
        check_damage(command, base)


if __name__ == "__main__":
    main(*sys.argv[1:])
