#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/setup in a scratch checkout, with stubs for all that would reach out of it."""

import gzip
import os
import pty
import signal
import subprocess
import sys
import time
import unittest
import zipfile
from pathlib import Path

from scratch_checkout import ScratchCheckout

STUBS = {
    # Everything is installed but what $MISSING names.
    "dpkg-query": """
        [ -z "$NO_DPKG" ] || exit 127
        shift 3
        for package; do
          case " $MISSING " in *" $package "*) ;; *) echo "installed $package" ;; esac
        done""",
    "apt-get": 'echo "apt-get $*" >>"$CALLS"; echo "$APT_SAYS"; exit "${APT_STATUS:-0}"',
    # Asked only where there is no dpkg.
    "c++": 'read -r line; case " $MISSING " in *"$line "*) exit 1 ;; esac',
    "id": 'echo "${USER_ID:-0}"',
    "sudo": "exit 1",
    # A Python has torch where a file beside it says so.  $PIP is what pip does.
    "python3": """
        case "$*" in
          *find_spec*) [ -e "$(dirname "$0")/has_torch" ] ;;
          "-c import pip") [ "$(basename "$(dirname "$(dirname "$0")")")" = .venv ] ;;
          "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python3"; touch "$3/pyvenv.cfg" ;;
          "-m pip install "*)
            echo "install $*" >>"$CALLS"
            echo "in $TMPDIR" >>"$CALLS"
            touch "$TMPDIR/unpacked"
            case "$PIP" in
              works) touch "$(dirname "$0")/has_torch" ;;
              hangs) touch "$WHEEL.started"; exec sleep 60 ;;
              *) echo "$PIP"; exit 1 ;;
            esac ;;
          "-m pip download "*)
            echo download >>"$CALLS"
            [ "$PIP" = works ] || exit 1
            while [ "$1" != --dest ]; do shift; done
            cp "$WHEEL" "$2/" ;;
          "- "*) exec "$REAL_PYTHON" "$@" ;;
          *) echo "unexpected: python3 $*" >&2; exit 99 ;;
        esac""",
}


class Setup(ScratchCheckout):
    script = "setup"

    def setUp(self):
        super().setUp()
        for name, body in STUBS.items():
            self.stub(name, body)
        self.wheel = self.top / "scikit_learn.whl"
        self.make_wheel(rows=1797)
        self.environment |= {
            "WHEEL": str(self.wheel),
            "REAL_PYTHON": sys.executable,
            "PIP": "works",
            "MISSING": "",
        }
        self.venv = self.root / ".venv"
        self.digits = self.root / "build" / "data" / "digits.csv"

    def make_wheel(self, rows):
        with zipfile.ZipFile(self.wheel, "w") as wheel:
            text = (",".join("0" * 65) + "\n") * rows
            wheel.writestr("sklearn/datasets/data/digits.csv.gz", gzip.compress(text.encode()))

    def assert_ends(self, result, status, message):
        """Exactly one line of complaint, which says `message`."""
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(message, result.stderr)

    def test_a_second_run_finds_everything_and_says_nothing(self):
        first = self.run_script()
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        self.assertEqual(len(self.digits.read_text().splitlines()), 1797)
        self.assertEqual(os.listdir(self.digits.parent), ["digits.csv"])
        self.assertIn(f"in {self.venv}/tmp\n", self.calls.read_text())  # gigabytes, if it is interrupted
        self.assertFalse((self.venv / "tmp").exists())
        calls = self.calls.read_text()
        second = self.run_script()
        self.assertEqual((second.returncode, second.stdout, second.stderr), (0, "", ""))
        self.assertEqual(self.calls.read_text(), calls)

    def test_without_the_runtime_only_packages_are_looked_at(self):
        result = self.run_script("--no-runtime", MISSING="libgloo-dev", PIP="is not to be called")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        self.assertFalse(self.venv.exists())

    def test_what_only_tests_need_is_installed_where_that_is_possible(self):
        result = self.run_script("--tests", MISSING="slurmd cmake", PIP="is not to be called")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("install -y --no-install-recommends slurmd ", self.calls.read_text())
        result = self.run_script("--tests", MISSING="slurmd", USER_ID="1000")
        self.assert_ends(result, 0, "apt-get install -y --no-install-recommends slurmd")
        self.assertEqual(result.stdout, "setup: the tests that need them will be skipped\n")

    def test_root_installs_what_is_missing_and_no_more(self):
        result = self.run_script(MISSING="cmake libgloo-dev")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("install -y --no-install-recommends cmake libgloo-dev ", self.calls.read_text())

    def test_no_package_is_removed_for_another(self):
        says = "E: Packages need to be removed but remove is disabled."
        result = self.run_script(MISSING="libboost1.81-dev", APT_STATUS="100", APT_SAYS=says)
        self.assert_ends(result, 1, "other packages would be removed; if that is well, install by")
        self.assertIn(" --no-remove ", self.calls.read_text())

    def test_without_root_the_missing_packages_are_named(self):
        result = self.run_script(MISSING="cmake libgloo-dev", USER_ID="1000")
        self.assert_ends(result, 1, "apt-get install -y --no-install-recommends cmake libgloo-dev")
        self.assertEqual(self.calls.read_text(), "")

    def test_the_missing_packages_have_their_names_for_dnf(self):
        result = self.run_script(MISSING="cmake libgloo-dev g++", USER_ID="1000")
        self.assert_ends(result, 1, "(or: dnf install gcc-c++ cmake gloo-devel)")

    def test_without_dpkg_what_is_there_counts_from_wherever_it_came(self):
        result = self.run_script("--no-runtime", NO_DPKG="1", USER_ID="1000")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        missing = "#include <CLI/Version.hpp>  #include <boost/version.hpp> "
        result = self.run_script("--no-runtime", NO_DPKG="1", MISSING=missing)
        self.assert_ends(result, 1, "there is no apt-get here: dnf install boost-devel cli11-devel (on Debian: "
                                    "libboost1.81-dev libcli11-dev)")

    def test_a_terminal_sees_how_far_the_download_of_torch_is(self):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        result = subprocess.run([self.root / "scripts" / "setup"], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
                                env=self.environment, timeout=60, check=False)
        os.close(slave)
        self.assertEqual(result.returncode, 0)
        self.assertIn("--progress-bar on --log build/setup.log torch", self.calls.read_text())

    def test_without_root_nothing_is_needed_where_nothing_is_missing(self):
        self.assertEqual(self.run_script(USER_ID="1000").returncode, 0)

    def test_without_network_one_line_says_what_could_not_be_had(self):
        result = self.run_script(MISSING="cmake", APT_STATUS="100")
        self.assert_ends(result, 1, "could not install cmake from the Debian mirror; is there a net")
        result = self.run_script(PIP="no route to host")
        self.assert_ends(result, 1, "could not install torch from the Python package index; is the")
        self.assertIn("no route to host", (self.root / "build" / "setup.log").read_text())
        self.assertFalse(self.venv.exists())
        result = self.run_script(PIP="[Errno 28] No space left on device")
        self.assert_ends(result, 1, "the disk is full")

    def interrupt(self, number):
        """Runs the set-up until pip hangs, and sends it a signal; returns the status."""
        setup = subprocess.Popen(
            [self.root / "scripts" / "setup"],
            env=self.environment | {"PIP": "hangs"},
            stdout=subprocess.DEVNULL,
        )
        started = Path(f"{self.wheel}.started")
        while not started.exists():
            time.sleep(0.01)  # the stub is no child of ours that we could wait for
        started.unlink()
        setup.send_signal(number)
        return setup.wait(timeout=30)

    def test_an_interrupted_run_leaves_no_venv(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.assertEqual(self.interrupt(number), 128 + number)
            self.assertFalse(self.venv.exists())

    def test_a_killed_run_does_not_confuse_the_next(self):
        self.assertEqual(self.interrupt(signal.SIGKILL), -signal.SIGKILL)
        (self.venv / "bin" / "has_torch").touch()  # as pip may have come so far
        (self.venv / "left over").touch()
        self.assertEqual(self.run_script().returncode, 0)
        self.assertFalse((self.venv / "left over").exists())
        self.assertFalse((self.venv / ".ddprun-setup-unfinished").exists())

    def test_a_venv_of_the_users_own_is_left_alone(self):
        self.venv.mkdir()
        (self.venv / "precious").touch()
        self.assert_ends(self.run_script(), 1, ".venv is there and has no torch")
        self.assertTrue((self.venv / "precious").exists())

    def test_a_torch_that_is_there_is_used(self):
        torch = self.top / "torch"
        self.assert_ends(self.run_script(DDPRUN_TORCH=str(torch)), 1, "not the torch folder")
        (torch / "lib").mkdir(parents=True)
        (torch / "lib" / "libtorch_cpu.so").touch()
        self.assertEqual(self.run_script(DDPRUN_TORCH=str(torch)).returncode, 0)
        cache = self.root / "build" / "release" / "CMakeCache.txt"
        cache.parent.mkdir()
        cache.write_text(f"DDPRUN_TORCH:PATH={torch}\n")
        self.assertEqual(self.run_script().returncode, 0)
        cache.unlink()
        (self.top / "bin" / "has_torch").touch()  # the active Python's
        self.assertEqual(self.run_script().returncode, 0)
        self.assertFalse(self.venv.exists())
        self.assertNotIn("install", self.calls.read_text())

    def test_data_of_the_wrong_size_is_refused(self):
        self.make_wheel(rows=1796)
        self.assert_ends(self.run_script(), 1, "the scikit-learn wheel has no such digits")
        self.assertIn("found 1796 rows", (self.root / "build" / "setup.log").read_text())
        self.assertEqual(os.listdir(self.digits.parent), [])


if __name__ == "__main__":
    unittest.main()
