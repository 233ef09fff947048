#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The wheel in fresh systems of other releases, installed by a user who is not root and has no compiler.

usage: releases_test.py [RELEASE...]      default: bullseye bookworm trixie

Each system is made by debootstrap once, into build/package/roots, and a copy of it is used.  In one whose
Python is that of the repository's .venv, the README's example trains with the torch that is there.  Prints
a row for each release.  Needs root, debootstrap and the Debian mirror; exits with 77 without.
"""

import os
import shutil
import sys
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import packages  # noqa: E402
import systems  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
RELEASES = sys.argv[1:] or ["bullseye", "bookworm", "trixie"]
USER = 1000
LIMIT = 600  # seconds

# What a user types; each step prints one line.
STEPS = """
set -eu
cd /home/user
test "$(id -u)" != 0
for compiler in cc gcc g++ c++ clang; do ! command -v $compiler; done
python3 -m venv env
start=$(date +%s%N)
env/bin/pip install --quiet --no-index --disable-pip-version-check /wheel/*.whl
echo "install: $((($(date +%s%N) - start) / 1000000)) ms"
echo "python: $(env/bin/python3 -c 'import platform; print(platform.python_version())')"
echo "glibc: $(ldd --version | sed -n '1s/.* //p')"
echo "version: $(env/bin/ddprun --version)"
cat >worker.py <<'PYTHON'
import os, sys
print(os.environ["RANK"], os.environ["WORLD_SIZE"], sys.prefix, flush=True)
sys.exit(int(os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"))
PYTHON
# The first attempt of rank 1 fails; what is asked for is one restart, and success.
env/bin/ddprun --standalone --nproc-per-node=2 --max-restarts=1 worker.py >out 2>log || { cat log; exit 1; }
grep -q '^1 2 /home/user/env$' out
grep -q 'finished: 2 workers succeeded after 1 restart' log
echo "job: $(grep -c . out) lines of two attempts, one restart"
env/bin/python3 -m ddprun.run --standalone --no-python sh -c 'exit 9' 2>log && exit 1
grep -q 'exited with code 9' log
echo "module: a failing worker is named"
test -f env/share/man/man1/ddprun.1
"""
TRAINING = """
PYTHONPATH=/torch env/bin/ddprun --standalone --nproc-per-node 2 --max-restarts 3 /examples/elastic_ddp.py \
  >out 2>log || { tail -n 40 out log; exit 1; }
echo "training: $(tail -n 1 out)"
"""


def torch_folder(minor):
    """The folder of Python `minor`'s packages with torch in the repository's .venv, or None."""
    site = ROOT / ".venv/lib" / f"python{minor}" / "site-packages"
    return site.resolve() if (site / "torch").is_dir() else None


if os.geteuid() != 0 or shutil.which("debootstrap") is None:
    packages.skip("needs root and debootstrap")
WHEEL = packages.made("wheel")


class Releases(unittest.TestCase):
    def try_release(self, release):
        with systems.copy_of(systems.base_system(release)) as system:
            home = system / "home/user"
            home.mkdir(parents=True)
            os.chown(home, USER, USER)
            for place, source in (("wheel", WHEEL), ("examples", ROOT / "examples/python/elastic_ddp.py")):
                (system / place).mkdir()
                shutil.copy(source, system / place)
            minor = next((system / "usr/bin").glob("python3.[0-9]*")).name.removeprefix("python").partition("-")[0]
            torch = torch_folder(minor)
            start = time.monotonic()
            run = systems.run_in(system, STEPS + (TRAINING if torch else ""), limit=LIMIT, user=USER,
                                 mounts=[(torch, "/torch")] if torch else [])
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            said = " | ".join(run.stdout.strip().splitlines())
            print(f"{release} | {said} | {time.monotonic() - start:.1f} s in all", flush=True)

    def test_a_user_without_root_and_compiler_installs_and_runs_it(self):
        for release in RELEASES:
            with self.subTest(release):
                self.try_release(release)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
