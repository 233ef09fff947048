#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A project of ten lines that finds the C++ runtime in the wheel, as a user has it: torch, the wheel, a compiler.

usage: project_test.py TORCH [ordinary]

TORCH is the torch folder of a wheel.  Ours is built first; exits with 77 if what it is built with cannot be
fetched.  "ordinary" packs the programs in $DDPRUN_BIN in its place, and does not compile the library, which
takes minutes.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import packages  # noqa: E402
import user_project  # noqa: E402

TORCH = Path(sys.argv.pop(1)).resolve()
IS_ORDINARY = len(sys.argv) > 1 and sys.argv.pop(1) == "ordinary"
LIMIT = 3000  # seconds

WHEEL = packages.packed() if IS_ORDINARY else packages.made("wheel")


class Project(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-project-")
        cls.addClassCleanup(folder.cleanup)
        cls.path = Path(folder.name)
        cls.site = cls.path / "site"
        subprocess.run([sys.executable, "-m", "venv", cls.path / "env"], check=True)
        cls.python = cls.path / "env/bin/python3"
        subprocess.run([cls.python, "-m", "pip", "install", "--quiet", "--no-index", f"--target={cls.site}", WHEEL],
                       check=True)
        # As after pip install torch: it is found beside the package.
        (cls.site / "torch").symlink_to(TORCH)
        # CUDA's headers are beside it, for the NCCL plug-in.
        for name in ("nvidia", "triton"):
            if (TORCH.parent / name).is_dir():
                (cls.site / name).symlink_to(TORCH.parent / name)
        user_project.write(cls.path)

    def run_it(self, *command, **environment):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "DDPRUN"))}
        return subprocess.run(command, cwd=self.path, env=env | {"PYTHONPATH": str(self.site)} | environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False)

    def configure(self, build, *options, **environment):
        root = self.run_it(self.python, "-m", "ddprun", "--cmake-dir").stdout.strip()
        return self.run_it("cmake", "-G", "Ninja", "-B", build, f"-Dddprun_ROOT={root}", *options, **environment)

    def test_it_configures_and_its_program_compiles(self):
        """Each source of the library is there, and each header of ours that the program includes."""
        configured = self.configure("checked", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
        self.assertEqual(configured.returncode, 0, configured.stdout + configured.stderr)
        self.assertIn(f"in {self.site}/torch", configured.stdout)
        commands = json.loads((self.path / "checked/compile_commands.json").read_text(encoding="utf-8"))
        self.assertGreater(len(commands), 10)
        [own] = [entry["command"] for entry in commands if entry["file"] == str(self.path / "train.cc")]
        compiled = self.run_it("sh", "-c", f"cd checked && {own} -fsyntax-only -DNDEBUG -O0")
        self.assertEqual(compiled.returncode, 0, compiled.stderr[-4000:])

    @unittest.skipIf(IS_ORDINARY, "takes minutes")
    def test_it_builds_and_two_ranks_train(self):
        configured = self.configure("build")
        self.assertEqual(configured.returncode, 0, configured.stdout + configured.stderr)
        self.assertIn(f"in {self.site}/torch", configured.stdout)
        built = self.run_it("cmake", "--build", "build")
        self.assertEqual(built.returncode, 0, built.stdout[-4000:])
        trained = self.run_it(self.site / "bin/ddprun", "--standalone", "--nproc-per-node=2", "build/train")
        self.assertEqual((trained.stdout, trained.returncode), ("gradient 1.5 and 7\n", 0), trained.stderr)
        # Compiled once: nothing is left to do, and a change of the program compiles nothing but it.
        again = self.run_it("cmake", "--build", "build")
        self.assertIn("no work to do", again.stdout)

        with self.subTest("torch was upgraded in place"):
            other = self.path / "other/torch"
            (other / "lib").mkdir(parents=True)
            for library in (TORCH / "lib").iterdir():
                (other / "lib" / library.name).symlink_to(library)
            (other / "version.py").write_text("__version__ = '2.5.1+cpu'\n", encoding="utf-8")
            run = self.run_it(self.site / "bin/ddprun", "--standalone", "build/train", LD_LIBRARY_PATH=f"{other}/lib",
                              LD_PRELOAD=f"{other}/lib/libtorch_cpu.so")
            self.assertNotEqual(run.returncode, 0)
            self.assertRegex(run.stderr, r"this program was built for torch 2\.\d+, and torch 2\.5\.1\+cpu is loaded from "
                                         r"\S+/other/torch: build it again")

    def test_a_torch_that_does_not_fit_is_refused_in_words(self):
        fake = self.path / "fake torch"
        for file in ("lib/libtorch_cpu.so", "lib/libc10.so", "include/torch/csrc/api/include/torch/torch.h",
                     "share/cmake/Torch/TorchConfig.cmake", "version.py"):
            (fake / file).parent.mkdir(parents=True, exist_ok=True)
            (fake / file).touch()
        for version, config, said in [("2.5.1", "", "torch 2.5.1 in .* is too old"),
                                      ("2.6.0", "-D_GLIBCXX_USE_CXX11_ABI=0", r"built with the old C\+\+ ABI")]:
            (fake / "version.py").write_text(f"__version__ = '{version}'\n", encoding="utf-8")
            (fake / "share/cmake/Torch/TorchConfig.cmake").write_text(config, encoding="utf-8")
            run = self.configure("refused", f"-DDDPRUN_TORCH={fake}")
            self.assertNotEqual(run.returncode, 0)
            self.assert_advice(run, said)

    def test_without_torch_it_says_where_to_get_it(self):
        torch = self.site / "torch"
        torch.rename(self.path / "torch elsewhere")
        self.addCleanup((self.path / "torch elsewhere").rename, torch)
        python = self.path / "other/bin/python3"  # which has none
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\n", encoding="utf-8")
        python.chmod(0o755)
        run = self.configure("refused", VIRTUAL_ENV=str(self.path / "other"), PATH=f"{python.parent}:{os.environ['PATH']}")
        self.assertNotEqual(run.returncode, 0)
        self.assert_advice(run, "no Python here has it: pip install torch, give its folder")

    def assert_advice(self, run, said):
        """`said`, and nothing of what only the repository has."""
        text = " ".join(run.stderr.split())
        self.assertRegex(text, said)
        self.assertIn("or do without find_package(ddprun)", text)
        self.assertNotRegex(text, "scripts/setup|DDPRUN_RUNTIME|Debian")
        shutil.rmtree(self.path / "refused")

    def test_no_header_of_the_system_is_needed(self):
        """All of nlohmann/json, zlib and Gloo that the runtime includes is in the wheel."""
        with zipfile.ZipFile(WHEEL) as archive:
            names = set(archive.namelist())
        for header in ("nlohmann/nlohmann/json.hpp", "zlib/zlib.h", "gloo/gloo/rendezvous/store.h"):
            self.assertIn(f"ddprun/runtime/third_party/{header}", names)


if __name__ == "__main__":
    unittest.main()
