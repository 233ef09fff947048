#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The wheel, built and installed without root, network and compiler: what is in it, and that it runs.

usage: wheel_test.py x86_64|aarch64|ordinary

"ordinary" packs the programs in $DDPRUN_BIN as they are: nothing is compiled and nothing is fetched, and
what only portable programs have is not looked at.  A wheel for another processor runs under qemu-user-static, with Debian's C library for it.  Exits with
77 where the compiler cannot be had from the Python package index, or qemu is missing.
"""

import ast
import base64
import csv
import hashlib
import io
import os
import platform
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts/packaging"))

import elf  # noqa: E402
import packages  # noqa: E402
from steps import project_version  # noqa: E402

ARCH = sys.argv.pop(1) if len(sys.argv) > 1 else platform.machine()
IS_ORDINARY = ARCH == "ordinary"
if IS_ORDINARY:
    ARCH = platform.machine()
IS_FOREIGN = ARCH != platform.machine()
VERSION = project_version(ROOT)
PROGRAMS = ("ddprun", "ddpd", "ddpctl")
LIMIT = 120  # seconds; qemu is slow
MACHINES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}
# The loader is named by programs that use thread-local variables.
LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2",
             "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
LICENCES = {"ddprun", "boost", "spdlog", "fmt", "cli", "nlohmann", "zlib", "libsodium", "llvm-libcxx",
            "llvm-libcxxabi", "llvm-libunwind", "zig-compiler-rt", "glibc-start-files", "gloo"}
HANDSHAKE_AND_PING = b"\x00\xce\xf7\x85\x3c" + b"\x0d\x01\x02\x03\x04"


def emulator():
    """What a program of the wheel is run with; exits with 77 where that is missing."""
    if not IS_FOREIGN:
        return []
    qemu, libraries = shutil.which(f"qemu-{ARCH}-static"), Path(f"/usr/{ARCH}-linux-gnu")
    if qemu is None or not (libraries / "lib/libc.so.6").exists():
        packages.skip("needs the packages qemu-user-static and libc6-arm64-cross")
    return [qemu, "-L", str(libraries)]


EMULATOR = emulator()
WHEEL = packages.packed() if IS_ORDINARY else packages.made("wheel", "--arch", ARCH)


def environment(**extra):
    foreign = ("PET_", "DDPRUN", "OMP_", "TORCHELASTIC_", "VIRTUAL_ENV", "LOGLEVEL", "PYTHON", "PIP_")
    return {k: v for k, v in os.environ.items() if not k.startswith(foreign)} | {"DDPRUN_LOG": "info"} | extra


class Contents(unittest.TestCase):
    def setUp(self):
        self.archive = zipfile.ZipFile(WHEEL)
        self.addCleanup(self.archive.close)
        self.info = f"ddprun-{VERSION}.dist-info"

    def test_the_name_says_which_machines_it_is_for(self):
        self.assertEqual(WHEEL.name, f"ddprun-{VERSION}-py3-none-manylinux_2_28_{ARCH}.whl")
        tags = self.archive.read(f"{self.info}/WHEEL").decode().splitlines()
        self.assertIn(f"Tag: py3-none-manylinux_2_28_{ARCH}", tags)
        self.assertIn("Root-Is-Purelib: false", tags)

    def test_the_record_is_that_of_every_file(self):
        rows = list(csv.reader(io.StringIO(self.archive.read(f"{self.info}/RECORD").decode())))
        self.assertEqual([row[0] for row in rows], self.archive.namelist())
        for name, digest, size in rows[:-1]:
            data = self.archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            self.assertEqual((name, digest, int(size)), (name, f"sha256={expected}", len(data)))
        self.assertEqual(rows[-1], [f"{self.info}/RECORD", "", ""])

    def test_pages_completions_and_licences_are_in_it(self):
        names = set(self.archive.namelist())
        share = f"ddprun-{VERSION}.data/data/share"
        for place in ("man/man1/ddprun.1", "man/man8/ddpd.8", "man/man1/ddpctl.1", "zsh/site-functions/_ddprun",
                      "bash-completion/completions/ddprun", "fish/vendor_completions.d/ddprun.fish"):
            self.assertIn(f"{share}/{place}", names)
        licences = {Path(name).stem for name in names if name.startswith(f"{self.info}/licenses/")}
        self.assertEqual(licences, {"ddprun"} if IS_ORDINARY else LICENCES)
        metadata = self.archive.read(f"{self.info}/METADATA").decode()
        for name in licences:
            self.assertIn(f"License-File: {name}.txt\n", metadata)

    def test_public_headers_include_only_each_other_and_what_is_beside_them(self):
        """A program has them as <ddprun/...>, and torch; they need no other library."""
        names = set(self.archive.namelist())
        headers = [name for name in names if name.startswith("ddprun/include/")]
        self.assertIn("ddprun/include/ddprun/ddprun.h", headers)
        for header in headers:
            text = self.archive.read(header).decode()
            for include in re.findall(r'^#include "(.*)"', text, re.MULTILINE):
                self.assertIn(f"ddprun/include/{include}", names, header)
            self.assertEqual(re.findall(r"^#include <((?:boost|gloo|nlohmann)/.*)>", text, re.MULTILINE), [], header)

    def test_only_programs_are_executable(self):
        for entry in self.archive.infolist():
            mode = entry.external_attr >> 16
            self.assertTrue(stat.S_ISREG(mode))
            self.assertEqual(mode & 0o777, 0o755 if "/scripts/" in entry.filename else 0o644, entry.filename)

    def test_the_python_sources_are_read_by_python_3_8(self):
        sources = [name for name in self.archive.namelist() if name.endswith(".py")]
        self.assertIn("ddprun/run.py", sources)
        for name in sources:
            ast.parse(self.archive.read(name), name, feature_version=(3, 8))


@unittest.skipIf(IS_ORDINARY, "for portable programs")
class Elf(unittest.TestCase):
    def test_programs_need_glibc_2_28_and_nothing_else_and_are_hardened(self):
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(WHEEL) as archive:
            for program in PROGRAMS:
                with self.subTest(program):
                    facts = elf.facts(archive.extract(f"ddprun-{VERSION}.data/scripts/{program}", folder))
                    print(program, facts)
                    self.assertEqual(facts.machine, MACHINES[ARCH])
                    self.assertLessEqual(set(facts.needed), LIBRARIES)
                    self.assertLessEqual(tuple(map(int, facts.glibc.split("."))), (2, 28))
                    self.assertNotEqual(facts.glibc, "0")
                    self.assertFalse(facts.has_run_path)
                    self.assertTrue(facts.is_pie)
                    self.assertTrue(facts.has_full_relro)
                    self.assertTrue(facts.has_stack_protector)
                    self.assertFalse(facts.has_executable_stack)
                    self.assertTrue(facts.is_stripped)

    def test_no_program_names_the_place_where_it_was_built(self):
        with zipfile.ZipFile(WHEEL) as archive:
            for program in PROGRAMS:
                data = archive.read(f"ddprun-{VERSION}.data/scripts/{program}")
                self.assertEqual(re.findall(rb"[ -~]*" + re.escape(str(ROOT).encode()) + rb"[ -~]*", data), [])


class Installed(unittest.TestCase):
    """What is done with it once it is installed: in a virtual environment for our own processor, in a folder for another."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-wheel-")
        cls.addClassCleanup(folder.cleanup)
        cls.path = Path(folder.name)
        if IS_FOREIGN:
            with zipfile.ZipFile(WHEEL) as archive:
                for program in PROGRAMS:
                    place = Path(archive.extract(f"ddprun-{VERSION}.data/scripts/{program}", cls.path))
                    place.chmod(0o755)
            cls.bin = place.parent
            return
        subprocess.run([sys.executable, "-m", "venv", cls.path / "env"], check=True, env=environment())
        cls.bin = cls.path / "env/bin"
        cls.python = cls.bin / "python3"
        subprocess.run([cls.python, "-m", "pip", "install", "--quiet", "--no-index", WHEEL], check=True,
                       env=environment())

    def run_program(self, program, *arguments, **extra):
        return subprocess.run([*EMULATOR, self.bin / program, *arguments], env=environment(**extra), cwd=self.path,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False)

    def run_python(self, *arguments, **extra):
        return subprocess.run([self.python, *arguments], env=environment(**extra), cwd=self.path,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False)


class Programs(Installed):
    def test_programs_say_their_version(self):
        for program in PROGRAMS:
            run = self.run_program(program, "--version")
            self.assertIn(VERSION, run.stdout)
            self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_two_workers_run_and_end(self):
        run = self.run_program("ddprun", "--standalone", "--nproc-per-node=2", "/bin/true")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("finished: 2 workers succeeded", run.stderr)

    def test_a_worker_that_fails_is_named_and_started_again(self):
        run = self.run_program("ddprun", "--standalone", "--nproc-per-node=2", "--max-restarts=1", "--no-python",
                               "/bin/sh", "-c", 'test "$RANK" = 0 || exit 7')
        self.assertEqual(run.returncode, 82, run.stderr)
        self.assertIn("rank 1", run.stderr)
        self.assertIn("exited with code 7", run.stderr)
        self.assertIn("restart 1 of 1", run.stderr)

    def test_a_client_talks_to_ddpd(self):
        with subprocess.Popen([*EMULATOR, self.bin / "ddpd", "--listen=127.0.0.1:0", f"--state-dir={self.path}/state"],
                              env=environment(), stdout=subprocess.PIPE, text=True) as daemon:
            try:
                port = int(daemon.stdout.readline().rpartition(":")[2])
                with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as client:
                    client.sendall(HANDSHAKE_AND_PING)
                    self.assertEqual(client.recv(4), HANDSHAKE_AND_PING[-4:])
            finally:
                daemon.terminate()
            self.assertEqual(daemon.wait(LIMIT), 0)

    def test_a_run_over_a_ddpd_with_a_secret(self):
        secret = self.path / "secret"
        made = self.run_program("ddprun", "--new-secret")
        self.assertEqual(made.returncode, 0, made.stderr)
        secret.write_text(made.stdout, encoding="utf-8")
        secret.chmod(0o600)
        with subprocess.Popen([*EMULATOR, self.bin / "ddpd", "--listen=127.0.0.1:0", f"--state-dir={self.path}/state2",
                               f"--secret-file={secret}"], env=environment(), stdout=subprocess.PIPE, text=True) as daemon:
            try:
                port = int(daemon.stdout.readline().rpartition(":")[2])
                run = self.run_program("ddprun", "--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-secret-file={secret}",
                                       f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=last_call_timeout=1",
                                       "--no-python", "/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE")
            finally:
                daemon.terminate()
                daemon.wait(LIMIT)
        self.assertEqual((run.stdout, run.returncode), ("rank 0 of 1\n", 0), run.stderr)


@unittest.skipIf(IS_FOREIGN, "no Python for this processor")
class Python(Installed):
    def test_scripts_run_with_the_python_that_it_is_installed_for(self):
        script = self.path / "worker.py"
        script.write_text("import sys\nprint(sys.prefix)\n", encoding="utf-8")
        other = self.path / "other"
        other.write_text("#!/bin/sh\necho other\n", encoding="utf-8")
        other.chmod(0o755)
        for start in ([self.bin / "ddprun"], [self.python, "-m", "ddprun.run"], [self.python, "-m", "ddprun"]):
            with self.subTest(start):
                for extra, said in [({}, f"{self.path}/env\n"), ({"PYTHON_EXEC": str(other)}, "other\n")]:
                    run = subprocess.run([*start, "--standalone", script], env=environment(**extra), cwd=self.path,
                                         capture_output=True, text=True, timeout=LIMIT, check=False)
                    self.assertEqual((run.stdout, run.returncode), (said, 0), run.stderr)

    def test_the_module_becomes_the_program(self):
        run = self.run_python("-m", "ddprun.run", "--standalone", "--no-python", "sh", "-c", "exit 5")
        self.assertEqual(run.returncode, 5, run.stderr)
        self.assertNotIn("Traceback", run.stderr)
        self.assertEqual(self.run_python("-m", "ddprun.run", "--no-such-option").returncode, 2)

    def test_python_knows_version_and_place(self):
        run = self.run_python("-c", "import ddprun; print(ddprun.__version__, ddprun.bin_path(), ddprun.bin_path('ddpd'))")
        self.assertEqual(run.stdout, f"{VERSION} {self.bin}/ddprun {self.bin}/ddpd\n", run.stderr)
        run = self.run_python("-c", "import ddprun; print(ddprun.cmake_prefix_path)")
        self.assertTrue(Path(run.stdout.strip(), "ddprunConfig.cmake").is_file() or
                        list(Path(run.stdout.strip()).rglob("ddprunConfig.cmake")), run.stdout + run.stderr)
        self.assertIn("ValueError: program='sh' is not one of", self.run_python("-c", "import ddprun; ddprun.bin_path('sh')").stderr)

    def test_a_program_that_is_gone_is_one_line(self):
        target = self.path / "target"
        installed = self.run_python("-m", "pip", "install", "--quiet", "--no-index", f"--target={target}", WHEEL)
        self.assertEqual(installed.returncode, 0, installed.stderr)
        place = self.run_python("-c", "import ddprun; print(ddprun.bin_path())", PYTHONPATH=str(target))
        self.assertEqual(place.stdout, f"{target}/bin/ddprun\n", place.stderr)
        for folder in (target / "bin", self.bin):
            (folder / "ddprun").rename(folder / "hidden")
        self.addCleanup((self.bin / "hidden").rename, self.bin / "ddprun")
        run = self.run_python("-m", "ddprun.run", "x.py", PYTHONPATH=str(target), HOME=str(self.path))
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r"\Addprun: ddprun is in none of .*; pip install --force-reinstall ddprun\n\Z")

    def test_man_finds_the_pages(self):
        for page in ("man1/ddprun.1", "man8/ddpd.8", "man1/ddpctl.1"):
            self.assertTrue((self.path / "env/share/man" / page).is_file(), page)


@unittest.skipIf(IS_FOREIGN or IS_ORDINARY, "the bytes are compared for one processor, as scripts/package makes them")
class Reproducible(unittest.TestCase):
    def test_a_second_build_elsewhere_gives_the_same_bytes(self):
        with tempfile.TemporaryDirectory(prefix="ddprun-again-") as folder:
            copy = Path(folder) / "another-checkout"
            files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                   check=True, capture_output=True, text=True).stdout.split("\0")
            for name in filter(None, files):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
            package = ROOT / "build/package"
            (copy / "build/package").mkdir(parents=True)
            for cached in (*package.glob("zig-[0-9]*"), package / "sources"):
                (copy / "build/package" / cached.name).symlink_to(cached)
            epoch = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True,
                                   text=True).stdout.strip()
            again = packages.made("wheel", "--arch", ARCH, root=copy, SOURCE_DATE_EPOCH=os.environ.get("SOURCE_DATE_EPOCH", epoch))
            self.assertEqual(hashlib.sha256(again.read_bytes()).hexdigest(), hashlib.sha256(WHEEL.read_bytes()).hexdigest())


if __name__ == "__main__":
    unittest.main()
