#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The Debian packages: built from source without a network, checked by lintian, and installed, used and removed
in a clean system.

usage: deb_test.py [TORCH]

TORCH is the torch folder of a wheel, with which a project of a user's own is configured, and compiled in part.
The system is made by debootstrap once, into build/package/roots, and a copy of it is used; what the packages
depend on comes from the Debian mirror.  Needs root; exits with 77 where debootstrap, lintian or the mirror is
missing.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import packages  # noqa: E402
import systems  # noqa: E402
import user_project  # noqa: E402

ROOT = packages.ROOT
TORCH = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
RELEASE = "bookworm"
LIMIT = 1200  # seconds; the packages that ours depend on are fetched

INSTALL = """
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends /packages/ddprun_*.deb >/dev/null
"""
# What an administrator looks at, and a user without root does.
USE = """
set -eu
ddprun --version
ddpctl --version
test "$(getent passwd ddpd | cut -d: -f7)" = /usr/sbin/nologin
test "$(systemctl --root=/ is-enabled ddpd.socket)" = disabled
systemd-analyze verify ddpd.service ddpd.socket
for page in man1/ddprun.1 man1/ddpctl.1 man8/ddpd.8; do test -f /usr/share/man/$page.gz; done
bash -c '. /usr/share/bash-completion/completions/ddprun && complete -p ddprun'
useradd --create-home user
cat >/home/user/try <<'TRY'
set -eu
cd
ddprun --standalone --nproc-per-node=2 /bin/true
ddprun --standalone --nproc-per-node=2 --no-python sh -c 'exit 9' && exit 1
ddprun-sbatch --print -N 2 train.py | grep -q '^srun '
TRY
runuser -u user -- sh /home/user/try 2>/home/user/log || { cat /home/user/log; exit 1; }
grep -q 'finished: 2 workers succeeded' /home/user/log
grep -q 'exited with code 9' /home/user/log
echo used
"""
# The daemon as its unit starts it, and a run of two nodes over it with a secret that only ddpd's user and root read.
DAEMON = """
set -eu
install -d -o ddpd -g ddpd -m 700 /run/ddpd
install -d /etc/ddpd
ddprun --new-secret >/etc/ddpd/secret
chown root:ddpd /etc/ddpd/secret
chmod 640 /etc/ddpd/secret
options=$(sed -n 's,^ExecStart=/usr/bin/ddpd ,,p' /lib/systemd/system/ddpd.service | sed 's,%t,/run,; s,200000,1000,')
mkfifo said
setpriv --reuid=ddpd --regid=ddpd --clear-groups ddpd $options --listen 127.0.0.1:0 \
  --secret-file /etc/ddpd/secret >said &
daemon=$!
read -r line <said
for node in 0 1; do
  ddprun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:${line##*:} --rdzv-secret-file=/etc/ddpd/secret \
    --no-python sh -c 'echo rank $RANK of $WORLD_SIZE' >out.$node 2>log.$node &
  nodes="${nodes:-} $!"
done
for node in $nodes; do wait $node || { cat log.*; exit 1; }; done
sort out.0 out.1
kill $daemon
wait $daemon
"""
DEVELOP = """
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -qq install -y --no-install-recommends /packages/libddprun-dev_*.deb g++ ninja-build >/dev/null
cmake -G Ninja -S /project -B /build -DDDPRUN_TORCH=/torch/torch -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
# All of it takes minutes; these do without torch.
ninja -C /build ddprun_env ddprun_checkpoint ddprun_data ddprun_shm
cd /build
sh -c "$(python3 -c 'import json; print(*(entry["command"] for entry in json.load(open("compile_commands.json"))
  if entry["file"] == "/project/train.cc"))') -fsyntax-only -O0"
echo compiled
"""
REMOVE = """
set -eu
export DEBIAN_FRONTEND=noninteractive
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' ddprun libddprun-dev 2>/dev/null | sed -n 's/^installed //p')
files=$(dpkg -L $installed)
apt-get -qq purge -y $installed >/dev/null
for file in $files; do
  case "$file" in *ddp*) test ! -e "$file" || { echo "left behind: $file"; exit 1; } ;; esac
done
test ! -e /etc/systemd/system/sockets.target.wants/ddpd.socket
echo removed
"""


if os.geteuid() != 0 or shutil.which("debootstrap") is None:
    packages.skip("needs root and debootstrap")
if shutil.which("lintian") is None:
    packages.skip("needs the package lintian")


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # What it needs is installed before, so that nothing is to be fetched.
        setup = subprocess.run([ROOT / "scripts/setup", "--package"], check=False)
        if setup.returncode != 0:
            packages.skip("what the packages are built with could not be installed")
        built = subprocess.run(["unshare", "--net", ROOT / "scripts/package", "deb"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True, check=True)
        cls.paths = [Path(line) for line in built.stdout.splitlines()]

    def test_lintian_finds_no_error(self):
        [changes] = self.paths[0].parent.glob("*.changes")
        run = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", "--info", changes], capture_output=True,
                             text=True, timeout=LIMIT, check=False)
        print(run.stdout, flush=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""), run.stdout)

    def test_installed_used_and_removed(self):
        with systems.copy_of(systems.base_system(RELEASE)) as system:
            (system / "packages").mkdir()
            for path in self.paths:
                if path.suffix == ".deb":
                    shutil.copy(path, system / "packages")
            user_project.write(system / "project")
            for name, script, last in [("install", INSTALL, ""), ("use", USE, "used\n"),
                                       ("daemon", DAEMON, "rank 0 of 2\nrank 1 of 2\n"),
                                       ("develop", DEVELOP, "compiled\n"), ("remove", REMOVE, "removed\n")]:
                if name == "develop" and not TORCH:
                    continue
                with self.subTest(name):
                    run = systems.run_in(system, script, limit=LIMIT, mounts=[(TORCH.parent, "/torch")] if TORCH else [])
                    self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
                    self.assertTrue(run.stdout.endswith(last), run.stdout)


if __name__ == "__main__":
    unittest.main()
