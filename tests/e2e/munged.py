# SPDX-License-Identifier: BSD-3-Clause
"""A munged for a test; its configuration is where Slurm has it."""

import os
import shutil
import subprocess

from nodes import wait_until


def munged_why_not():
    """What this machine lacks for it; empty if nothing."""
    if not shutil.which("munged"):
        return "there is no munged here"
    return "" if os.geteuid() == 0 else "a munged needs root"


class Munged:
    """Of `case`, a NodesCase: started in its folder, ended with it.  `slurm_conf` is for SLURM_CONF."""

    def __init__(self, case):
        folder = case.path
        folder.chmod(0o755)  # for another user
        (folder / "key").write_bytes(os.urandom(128))
        (folder / "key").chmod(0o600)
        self.slurm_conf = str(folder / "slurm.conf")
        (folder / "slurm.conf").write_text(f"authinfo = socket={folder}/munge,cred_expire=5  # here\n")
        self.process = subprocess.Popen(
            ["munged", "--foreground", "--force", "--num-threads=1", f"--key-file={folder}/key",
             f"--socket={folder}/munge", f"--pid-file={folder}/pid", f"--log-file={folder}/log",
             f"--seed-file={folder}/seed"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        case.addCleanup(lambda: (self.process.kill(), self.process.wait()))
        ask = f"munge -S {folder}/munge -n | unmunge -S {folder}/munge"
        wait_until(lambda: subprocess.run(ask, shell=True, capture_output=True).returncode == 0, "munged answers")
