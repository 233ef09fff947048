#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/build: what it asks of the set-up, of CMake and of Ninja."""

import unittest

from scratch_checkout import ScratchCheckout


class Build(ScratchCheckout):
    script = "build"

    def setUp(self):
        super().setUp()
        self.stub("scripts/setup", 'echo setup >>"$CALLS"; mkdir -p build; exit "${SETUP:-0}"')
        self.stub("cmake", 'echo "cmake $*" >>"$CALLS"; echo configuring; exit "${CMAKE:-0}"')
        self.stub("ninja", 'echo "ninja $*" >>"$CALLS"; exit "${NINJA:-0}"')
        self.stub("nproc", "echo 3")

    def test_sets_up_configures_and_builds(self):
        result = self.run_script()
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        self.assertEqual(
            self.take_calls(),
            [
                "setup",
                "cmake --preset release -DDDPRUN_RUNTIME=ON -DDDPRUN_TESTS=ON",
                "ninja -C build/release -j 3",
            ],
        )

    def test_passes_on_definitions_targets_and_the_torch_folder(self):
        self.run_script("ddprun", "-DDDPRUN_WERROR=ON", "ddpd", DDPRUN_TORCH="/a torch")
        _, cmake, ninja = self.take_calls()
        self.assertTrue(cmake.endswith(" -DDDPRUN_WERROR=ON -DDDPRUN_TORCH=/a torch"), cmake)
        self.assertEqual(ninja, "ninja -C build/release -j 3 ddprun ddpd")

    def test_ends_where_something_fails(self):
        self.assertEqual(self.run_script(SETUP="1").returncode, 1)
        self.assertEqual(self.take_calls(), ["setup"])
        result = self.run_script(CMAKE="1")
        self.assertEqual((result.returncode, result.stderr), (1, "configuring\n"))
        self.assertEqual(len(self.take_calls()), 2)
        self.assertEqual(self.run_script(NINJA="4").returncode, 4)


if __name__ == "__main__":
    unittest.main()
