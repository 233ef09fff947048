#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The names that lead to a new checkpoint are synced as well: POSIX promises nothing for those that are not.

usage: synced_folders_test.py CHECKPOINT_WRITER SYNC_LOG_LIBRARY
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main(program, library):
    with tempfile.TemporaryDirectory() as base:
        base = Path(base).resolve()
        log = base / "log"
        folder = base / "new" / "run"  # neither is there yet
        environment = {**os.environ, "LD_PRELOAD": library, "SYNC_LOG": str(log)}
        writer = subprocess.Popen(
            [program, "write", str(folder)], stdout=subprocess.PIPE, text=True, env=environment
        )
        writer.stdout.readline()  # the first checkpoint is complete
        writer.kill()
        writer.communicate(timeout=30)
        synced = log.read_text().splitlines()
    for path in (base, base / "new", folder):
        assert str(path) in synced, (path, synced)
    files = [Path(path) for path in synced if Path(path).name == "manifest.json"]
    assert files, synced
    assert str(files[0].parent) in synced, synced


if __name__ == "__main__":
    main(*sys.argv[1:])
