#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""DdprunTorch.cmake finds a torch and takes 2.6 or newer; what it refuses it refuses in a sentence.

The torch folders here are made of empty files: nothing is compiled.
"""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(probe LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH "{ROOT}/scripts/cmake")
set(DDPRUN_TORCH "" CACHE PATH "")
include(DdprunTorch)
get_target_property(definitions ddprun::torch INTERFACE_COMPILE_DEFINITIONS)
message(STATUS "definitions ${{definitions}}")
"""
HINT = "DDPRUN_RUNTIME=OFF"


def make_torch(folder, version, flags=""):
    """A folder that looks like the torch of a wheel."""
    for name in ("lib/libtorch_cpu.so", "lib/libc10.so", "include/torch/csrc/api/include/torch/torch.h"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "version.py").write_text(f"from typing import Optional\n__version__ = '{version}'\n")
    (folder / "__init__.py").write_text("raise ImportError('torch is not to be imported')\n")
    config = folder / "share/cmake/Torch/TorchConfig.cmake"
    config.parent.mkdir(parents=True)
    config.write_text(f'set(TORCH_CXX_FLAGS "{flags}")\n')
    return folder


class FindTorch(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.base = Path(temporary.name)
        self.source = self.base / "source"
        self.source.mkdir()
        (self.source / "CMakeLists.txt").write_text(PROJECT)

    def configure(self, *options, **variables):
        """What cmake says, as one line, and whether it was content."""
        environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
        ended = subprocess.run(
            ["cmake", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja')}"]
            + ["-S", str(self.source), "-B", str(self.base / "build"), *options],
            capture_output=True,
            text=True,
            env={**environment, **variables},
        )
        return ended.returncode == 0, re.sub(r"\s+", " ", ended.stdout + ended.stderr)

    def test_2_6_and_newer_are_taken(self):
        for version in ("2.6.0+cpu", "2.10.0a0+git123", "2.15.0+cu132", "3.0.1"):
            with self.subTest(version):
                torch = make_torch(self.base / version, version)
                good, said = self.configure(f"-DDDPRUN_TORCH={torch}")
                self.assertTrue(good, said)
                number = re.match(r"[0-9.]+[0-9]", version)[0]
                self.assertIn(f"torch {number} in {torch}", said)
                self.assertIn("definitions USE_DISTRIBUTED;USE_C10D_GLOO", said)

    def test_an_older_one_is_refused_by_name(self):
        torch = make_torch(self.base / "torch", "2.4.1+cu121")
        good, said = self.configure(f"-DDDPRUN_TORCH={torch}")
        self.assertFalse(good)
        self.assertIn(f"torch 2.4.1 in {torch} is too old: 2.6 or newer is needed", said)
        self.assertIn(HINT, said)

    def test_the_old_abi_is_refused_by_name(self):
        torch = make_torch(self.base / "torch", "2.6.0", "-D_GLIBCXX_USE_CXX11_ABI=0")
        good, said = self.configure(f"-DDDPRUN_TORCH={torch}")
        self.assertFalse(good)
        self.assertIn(f"torch 2.6.0 in {torch} is built with the old C++ ABI", said)
        self.assertIn(HINT, said)

    def test_a_folder_that_is_no_torch_is_refused(self):
        good, said = self.configure(f"-DDDPRUN_TORCH={self.base}")
        self.assertFalse(good)
        no_torch = f"{self.base} is neither the torch folder of a wheel nor an unpacked LibTorch"
        self.assertIn(f"{no_torch} (it has no lib/libtorch_cpu.so)", said)
        self.assertIn(HINT, said)

    def test_an_unpacked_libtorch_is_taken(self):
        torch = make_torch(self.base / "libtorch", "")
        (torch / "version.py").unlink()
        good, said = self.configure(f"-DDDPRUN_TORCH={torch}")
        self.assertFalse(good)
        self.assertIn("nor an unpacked LibTorch (it has no build-version)", said)
        (torch / "build-version").write_text("2.15.0+cpu\n")
        good, said = self.configure(f"-DDDPRUN_TORCH={torch}")
        self.assertTrue(good, said)
        self.assertIn(f"torch 2.15.0 in {torch}", said)
        (torch / "build-version").write_text("nightly\n")
        good, said = self.configure(f"-DDDPRUN_TORCH={torch}")
        self.assertFalse(good)
        self.assertIn("build-version names no version", said)

    def test_an_installed_runtime_uses_the_torch_that_it_was_built_with(self):
        built = make_torch(self.base / "built", "2.15.0")
        make_torch(self.base / "torch", "2.15.1")  # the active Python's
        installed = f"-Dddprun_built_torch={built}"
        good, said = self.configure(installed, PYTHONPATH=str(self.base))
        self.assertTrue(good, said)
        self.assertIn(f"torch 2.15.0 in {built}", said)
        self.assertIn("-DDDPRUN_TORCH=<dir> names another torch", said)
        other = make_torch(self.base / "other", "2.15.2")
        good, said = self.configure(installed, f"-DDDPRUN_TORCH={other}")
        self.assertTrue(good, said)
        self.assertIn(f"torch 2.15.2 in {other}", said)
        gone = self.configure(
            f"-Dddprun_built_torch={self.base}/gone", "-DDDPRUN_TORCH=", PYTHONPATH=str(self.base)
        )
        self.assertIn(f"torch 2.15.1 in {self.base}/torch", gone[1])

    def test_an_installed_runtime_needs_no_gloo_headers(self):
        torch = make_torch(self.base / "torch", "2.15.0")
        good, said = self.configure(
            f"-Dddprun_built_torch={torch}",
            "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF",
            "-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF",
        )
        self.assertTrue(good, said)
        self.assertIn("definitions USE_DISTRIBUTED", said)
        self.assertNotIn("USE_C10D_GLOO", said)

    def test_without_the_option_the_active_python_is_asked_and_torch_not_imported(self):
        torch = make_torch(self.base / "torch", "2.9.1")
        good, said = self.configure(PYTHONPATH=str(self.base))
        self.assertTrue(good, said)
        self.assertIn(f"torch 2.9.1 in {torch}", said)

    def test_the_option_wins_over_the_active_python(self):
        make_torch(self.base / "torch", "2.9.1")
        other = make_torch(self.base / "other", "2.10.0")
        good, said = self.configure(f"-DDDPRUN_TORCH={other}", PYTHONPATH=str(self.base))
        self.assertTrue(good, said)
        self.assertIn(f"torch 2.10.0 in {other}", said)

    def test_no_torch_anywhere_says_what_to_do(self):
        # A python3 that finds no module; the folder of the probe has no .venv.
        programs = self.base / "bin"
        programs.mkdir()
        (programs / "python3").write_text("#!/bin/sh\nexit 1\n")
        (programs / "python3").chmod(0o755)
        good, said = self.configure(PATH=f"{programs}:{os.environ['PATH']}")
        self.assertFalse(good)
        self.assertIn("needs the torch wheel, and no Python here has it: run scripts/setup", said)
        self.assertIn(HINT, said)

    def test_missing_gloo_headers_say_what_to_install(self):
        torch = make_torch(self.base / "torch", "2.15.0")
        good, said = self.configure(
            f"-DDDPRUN_TORCH={torch}",
            "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF",
            "-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF",
        )
        self.assertFalse(good)
        self.assertIn("install the package libgloo-dev", said)
        self.assertIn(HINT, said)


if __name__ == "__main__":
    unittest.main()
