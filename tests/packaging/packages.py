# SPDX-License-Identifier: BSD-3-Clause
"""The packages that tests look at: those that scripts/package makes, and a wheel of the ordinary build's programs."""

import atexit
import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/packaging"))

import runtime_files  # noqa: E402
import share  # noqa: E402
import wheel  # noqa: E402
from steps import project_version  # noqa: E402

NOT_FETCHED = 3  # the status of scripts/package


def skip(reason):
    """Ends this test as skipped."""
    print(reason, flush=True)
    sys.exit(77)


def made(*arguments, root=ROOT, **environment):
    """The path of what `scripts/package ARGUMENTS` makes in the checkout `root`; skips where it could not fetch
    what it builds with."""
    ended = subprocess.run([root / "scripts/package", *arguments], env={**os.environ, **environment},
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode == NOT_FETCHED:
        skip("what the package is built with could not be fetched")
    assert ended.returncode == 0, (ended.returncode, ended.stdout)
    return Path(ended.stdout.strip())


def packed():
    """The path of a wheel with the programs in $DDPRUN_BIN as they are: nothing is compiled and nothing is fetched, so
    zlib's files are empty and only our own licence is in it."""
    if os.environ.get("DDPRUN_SANITIZE"):
        skip("programs with sanitizers are not packed")
    if not Path("/usr/include/gloo").is_dir():
        skip("needs the package libgloo-dev")
    if importlib.util.find_spec("ensurepip") is None:
        skip("needs the package python3-venv")
    folder = tempfile.TemporaryDirectory(prefix="ddprun-packed-")
    atexit.register(folder.cleanup)
    path, programs = Path(folder.name), Path(os.environ["DDPRUN_BIN"])
    for name in runtime_files.ZLIB:
        (path / name).touch()
    version = project_version(ROOT)
    files = wheel.installed(version, programs, share.files(programs, version, 0))
    files |= wheel.python_package(ROOT, version, runtime_files.files(ROOT, path, version))
    files |= wheel.metadata(platform.machine(), version, {"ddprun.txt": (ROOT / "LICENSE").read_bytes()})
    return wheel.write(path, platform.machine(), version, files, 0)
