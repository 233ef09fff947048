# SPDX-License-Identifier: BSD-3-Clause
"""Fresh systems of Debian to try a package in: made by debootstrap once, into build/package/roots, then copied."""

import shlex
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import packages

ROOTS = packages.ROOT / "build/package/roots"
MIRROR = "http://deb.debian.org/debian"


def base_system(release):
    """The folder of a minimal system of `release` with Python, made at the first call; skips where it cannot be had."""
    base = ROOTS / release
    if not base.exists():
        scratch = ROOTS / f"{release}.new"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        made = subprocess.run(["debootstrap", "--variant=minbase", "--include=python3,python3-venv", release, scratch,
                               MIRROR], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if made.returncode != 0:
            packages.skip(f"debootstrap of {release}: {made.stdout.strip().splitlines()[-1]}")
        scratch.rename(base)
    return base


@contextmanager
def copy_of(base):
    """The folder of a copy that is removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix=f"ddprun-{base.name}-") as folder:
        system = Path(folder) / "root"
        system.mkdir()
        subprocess.run(["cp", "-a", "--reflink=auto", f"{base}/.", system], check=True)
        yield system


def run_in(system, script, *, limit, user=0, mounts=()):
    """Runs the shell `script` in `system` as the user with that number, for at most `limit` seconds, and gives
    the CompletedProcess.  `mounts` are (folder of this machine, where it is seen there), to be read only."""
    # Mounts and processes are in namespaces of their own, which go with the command.
    lines = [f"mount -t proc proc {shlex.quote(str(system))}/proc",
             *(f"mount --rbind /{name} {shlex.quote(str(system))}/{name}" for name in ("dev", "sys"))]
    for source, place in mounts:
        (system / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
        lines.append(f"mount --bind -o ro {shlex.quote(str(source))} {shlex.quote(str(system))}{place}")
    home = "/home/user" if user else "/root"
    lines.append(f"exec env -i HOME={home} PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "
                 f"/usr/sbin/chroot --userspec={user}:{user} {shlex.quote(str(system))} sh -c \"$0\"")
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation=private", "sh", "-ec", "\n".join(lines)]
    return subprocess.run([*command, script], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit,
                          check=False)
