#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A disk that is full, read-only or gone: one clear line, and the old checkpoints stay whole.

usage: disk_faults_test.py CHECKPOINT_WRITER

On file systems that the test mounts for itself, in a mount namespace of its own.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ddp"))
from local_ranks import skip


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def failure_of(program, directory, **options):
    """What a writer says when it fails, as it must."""
    ended = subprocess.run(
        [program, "write", str(directory)], capture_output=True, text=True, timeout=60, **options
    )
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1, ended
    print(f"    {ended.stderr.strip()}")
    return ended.stderr, [int(line) for line in ended.stdout.split()]


def whole_steps(program, directory):
    seen = subprocess.run([program, "verify", str(directory)], capture_output=True, text=True)
    assert seen.returncode == 0, seen
    return [int(line) for line in seen.stdout.split()]


def check_full(program, disk):
    """Room for two checkpoints and a part of the third."""
    place = disk / "full"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=1800k", "none", str(place))
    said, saved = failure_of(program, place)
    assert "No space left on device" in said and saved, (said, saved)
    assert whole_steps(program, place)[0] == saved[-1]
    left = [path.name for path in place.iterdir() if path.name.startswith(".")]
    assert not left, left
    subprocess.run(["umount", str(place)], check=True)


def check_read_only(program, disk):
    place = disk / "read-only"
    shutil.copytree(disk / "good", place)
    mount("--bind", str(place), str(place))
    mount("-o", "remount,ro,bind", str(place))
    before = whole_steps(program, place)
    said, saved = failure_of(program, place)
    assert "Read-only file system" in said and not saved, said
    assert whole_steps(program, place) == before
    subprocess.run(["umount", str(place)], check=True)


def check_limit(program, disk):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # which would end the program
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    before = whole_steps(program, disk / "good")
    said, _ = failure_of(program, disk / "good", preexec_fn=limit)
    assert "File too large" in said, said
    assert whole_steps(program, disk / "good") == before


def check_vanished(program, disk):
    """Another program moves the directory away while saves go on: it is made again."""
    place = disk / "vanishing"
    with subprocess.Popen(
        [program, "write", str(place)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as writer:
        writer.stdout.readline()
        place.rename(disk / "elsewhere")
        for line in writer.stdout:  # a save that was under way fails, or the next makes it anew
            if place.exists():
                break
        writer.kill()
        _, said = writer.communicate()
    if said:
        assert said.count("\n") == 1 and "No such file or directory" in said, said
        print(f"    {said.strip()}")
    assert whole_steps(program, disk / "elsewhere")


def main(program):
    if os.environ.get("DISK_FAULTS") != "mine":
        command = ["unshare", "--mount", "--map-root-user"]
        if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
            skip("no mount namespace can be made here")
        os.environ["DISK_FAULTS"] = "mine"
        os.execvp(command[0], [*command, sys.executable, __file__, program])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        disk = Path(folder)
        with subprocess.Popen(
            [program, "write", str(disk / "good")], stdout=subprocess.PIPE, text=True
        ) as writer:
            writer.stdout.readline()
            writer.kill()
        for check in (check_full, check_read_only, check_limit, check_vanished):
            check(program, disk)
    print("full, read-only, limited and vanished: the old checkpoints are whole")


if __name__ == "__main__":
    main(*sys.argv[1:])
