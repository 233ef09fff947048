#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/check_layers, run over small trees that each break one rule."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK_LAYERS = Path(__file__).resolve().parents[2] / "scripts" / "check_layers"


class CheckLayers(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name) / "a tree"
        self.root.mkdir()

    def write(self, path, *lines):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def git(self, *arguments):
        # A hook of git's runs with variables that point at the repository it is a hook of.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        subprocess.run(["git", *arguments], cwd=self.root, env=environment, check=True)

    def assert_reports(self, *expected):
        result = subprocess.run(
            [sys.executable, CHECK_LAYERS, self.root], capture_output=True, text=True, check=False
        )
        self.assertEqual(result.stdout.splitlines(), list(expected))
        self.assertEqual(result.returncode, 1, result.stderr)

    def assert_passes(self):
        result = subprocess.run(
            [sys.executable, CHECK_LAYERS, self.root], capture_output=True, text=True, check=False
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)

    def test_arrows_cover_what_lies_beyond_them(self):
        self.write("store/base/time.h", "#include <string>")
        self.write("store/server.cc", "#include <boost/asio.hpp>", '#include "store/base/time.h"')
        self.write("worker/env.h", "#include <string>", '#include "store/base/time.h"')
        self.write("agent/agent.cc", '#include "store/server.h"', "#include <nlohmann/json.hpp>")
        self.write("cli/main.cc", '#include "worker/process/spawn.h"', "#include <CLI/CLI.hpp>")
        self.write("worker/ddp/process_group.cc", "#include <torch/torch.h>", '#include "nccl.h"')
        self.write("examples/a.cc", "#include <torch/torch.h>", '#include "store/client.h"')
        self.write("tests/a_test.cc", '#include "worker/ddp/verification.h"', "#include <sys/wait.h>")
        self.assert_passes()

    def test_no_folder_looks_up(self):
        self.write("store/base/error.cc", '#include "store/decide/wire.h"')
        self.write("store/server.cc", "", '#include "rendezvous/decide/ranks.h"')
        self.write("rendezvous/handler.h", '#include "agent/decide/core.h"')
        self.write("worker/error_file.h", '#include "worker/process/spawn.h"')
        self.write("agent/agent.cc", '#include "cli/options/options.h"')
        self.write("cli/main.cc", '#include "worker/ddp/verification.h"', '#include "tests/rng.h"')
        self.write("cli/config/command.cc", '#include "cli/slurm/step.h"')
        self.write("cli/slurm/step.cc", '#include "cli/options/parse.h"', '#include "cli/config/numa.h"')
        self.write("cli/options/help.cc", '#include "cli/slurm/step.h"')
        self.assert_reports(
            "agent/agent.cc:1: agent may not include cli/options/options.h",
            "cli/main.cc:1: cli may not include worker/ddp/verification.h",
            "cli/main.cc:2: cli may not include tests/rng.h",
            "cli/options/help.cc:1: cli/options may not include cli/slurm/step.h",
            "cli/slurm/step.cc:2: cli/slurm may not include cli/config/numa.h",
            "rendezvous/handler.h:1: rendezvous may not include agent/decide/core.h",
            "store/base/error.cc:1: store/base may not include store/decide/wire.h",
            "store/server.cc:2: store may not include rendezvous/decide/ranks.h",
            "worker/error_file.h:1: worker may not include worker/process/spawn.h",
        )

    def test_no_worker_half_knows_the_other(self):
        self.write("worker/process/spawn.cc", '#include "worker/ddp/verification.h"')
        self.write("worker/ddp/process_group.cc", '#include "worker/process/spawn.h"')
        self.write("worker/ddp/verification.cc", '#include "rendezvous/decide/ranks.h"')
        self.assert_reports(
            "worker/ddp/process_group.cc:1: worker/ddp may not include worker/process/spawn.h",
            "worker/ddp/verification.cc:1: worker/ddp may not include rendezvous/decide/ranks.h",
            "worker/process/spawn.cc:1: worker/process may not include worker/ddp/verification.h",
        )

    def test_an_example_uses_what_a_user_may_use(self):
        self.write("examples/a.cc", '#include "store/server.h"', "#include <spdlog/spdlog.h>")
        self.assert_reports(
            "examples/a.cc:1: examples may not include store/server.h",
            "examples/a.cc:2: examples may not include spdlog: spdlog/spdlog.h",
        )

    def test_a_library_stays_where_it_belongs(self):
        self.write("store/base/time.h", "#include <boost/container/flat_map.hpp>")
        self.write("store/server.cc", "#include <nlohmann/json.hpp>", "#include <c10/util/a.h>")
        self.write("agent/agent.cc", "#include <torch/torch.h>", "#include <CLI/CLI.hpp>")
        self.write("cli/main.cc", "#include <cuda_runtime.h>", "#include <doctest/doctest.h>")
        self.write("worker/process/spawn.cc", "#include <fmt/format.h>", '#include "spawn.h"')
        self.assert_reports(
            "agent/agent.cc:1: agent may not include LibTorch: torch/torch.h",
            "agent/agent.cc:2: agent may not include CLI11: CLI/CLI.hpp",
            "cli/main.cc:1: cli may not include NCCL: cuda_runtime.h",
            "cli/main.cc:2: cli may not include doctest: doctest/doctest.h",
            "store/base/time.h:1: store/base may not include Boost: boost/container/flat_map.hpp",
            "store/server.cc:1: store may not include JSON: nlohmann/json.hpp",
            "store/server.cc:2: store may not include LibTorch: c10/util/a.h",
            "worker/process/spawn.cc:1: <fmt/format.h> is of a library that "
            "scripts/check_layers has no layer for",
            'worker/process/spawn.cc:2: "spawn.h" is not a path from the root of the repository',
        )

    def test_a_pure_file_reaches_nothing_that_acts(self):
        self.write("store/decide/wire.cc", "#include <unistd.h>", "#include <sys/socket.h>")
        self.write("store/server.h", "#include <boost/asio.hpp>", '#include "store/decide/wire.h"')
        self.write("rendezvous/handler.h", '#include "store/server.h"')
        self.write("cli/config/numa.h", "#include <spdlog/fwd.h>", '#include "cli/config/a.h"')
        self.write("cli/config/a.h", '#include "rendezvous/handler.h"')
        shell = "rendezvous/handler.h -> store/server.h -> boost/asio.hpp"
        self.assert_reports(
            "cli/config/a.h:1: cli/config may not include rendezvous/handler.h",
            f"cli/config/a.h:1: a pure file may not reach {shell}",
            "cli/config/numa.h:1: cli/config may not include spdlog: spdlog/fwd.h",
            "cli/config/numa.h:1: a pure file may not reach spdlog/fwd.h",
            f"cli/config/numa.h:2: a pure file may not reach cli/config/a.h -> {shell}",
            "store/decide/wire.cc:1: a pure file may not reach unistd.h",
            "store/decide/wire.cc:2: a pure file may not reach sys/socket.h",
        )

    def test_a_pure_file_reaches_none_of_what_shells_share(self):
        self.write("store/base/folder.h", "#include <filesystem>")
        self.write("store/base/fd.h", "#include <unistd.h>")
        self.write("store/server.h", '#include "store/base/folder.h"', '#include "store/base/fd.h"')
        self.write("store/decide/a.h", '#include "store/base/folder.h"')
        self.write("store/decide/b.cc", '#include "store/base/fd.h"', '#include "store/decide/a.h"')
        self.assert_reports(
            "store/decide/a.h:1: a pure file may not reach store/base/folder.h",
            "store/decide/b.cc:1: a pure file may not reach store/base/fd.h",
            "store/decide/b.cc:2: a pure file may not reach store/decide/a.h -> store/base/folder.h",
        )

    def test_a_pure_file_reads_no_clock(self):
        calls = (
            "auto a = std::chrono::steady_clock::now();",
            "auto b = Clock::now ();",
            "auto c = std::time(nullptr);",
            "clock_gettime(CLOCK_MONOTONIC, &d);",
            "gettimeofday(&e, nullptr);",
        )
        self.write("store/decide/keyspace.cc", *calls)
        self.write("store/server.cc", *calls)  # a shell may
        self.assert_reports(
            *(
                f"store/decide/keyspace.cc:{line}: a pure file may not read a clock; "
                "take the time as an argument"
                for line in range(1, 6)
            )
        )

    def test_the_environment_is_read_in_cli(self):
        self.write("cli/main.cc", 'std::getenv("HOME");')
        self.write("worker/ddp/environment.cc", 'std::getenv("RANK");')
        self.write("worker/ddp/verification.cc", 'secure_getenv("RANK");')
        self.write("worker/env.cc", 'getenv("RANK");')
        why = "only cli reads the environment, and hands it inward"
        self.assert_reports(f"worker/ddp/verification.cc:1: {why}", f"worker/env.cc:1: {why}")

    def test_comments_and_literals_are_no_code(self):
        self.write(
            "store/decide/wire.cc",
            "// steady_clock::now() is for shells",
            "/* #include <unistd.h>",
            '#include "agent/decide/core.h"',
            "*/",
            'auto text = "getenv(name) \\" time(0)";',
            'auto raw = R"(\n#include <unistd.h>\n)"; auto large = 1\'000;',
            "deadline.time(now); reader->time(now); wait_time(now);",
        )
        self.assert_passes()
        self.write("store/decide/wire.h", "/* a", "b */", 'char c = \'"\'; getenv("A");')
        self.assert_reports(
            "store/decide/wire.h:3: only cli reads the environment, and hands it inward"
        )

    def test_the_top_level_is_as_agreed(self):
        self.git("init", "--quiet")
        for path in ("README.md", ".clang-format", "scripts/test", "docs/a b.md", "notes.txt"):
            self.write(path)
        self.git("add", ".")
        self.write("scratch.txt")  # git does not track it
        strangers = [f"{name}:1: has no place at the top level" for name in ("docs", "notes.txt")]
        self.assert_reports(*strangers)
        missing = ["ARCHITECTURE.md", "CHANGELOG.md", "CMakePresets.json", "CONTRIBUTING.md"]
        missing += ["LICENSE", "SECURITY.md", "agent", "cli", "examples", "rendezvous", "store", "tests", "worker"]
        self.write("CMakeLists.txt")
        self.git("add", "CMakeLists.txt")
        self.assert_reports(*strangers, *(f"{name}:1: is missing" for name in missing))


if __name__ == "__main__":
    unittest.main()
