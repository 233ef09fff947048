#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""From nothing to two ranks of a stranger's program, by what "cmake --install" has installed.

usage: install_test.py BUILD_FOLDER TORCH_FOLDER
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from local_ranks import run_ranks

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(stranger LANGUAGES CXX)
find_package(ddprun 0.1 REQUIRED)
add_executable(program program.cc)
target_include_directories(program PRIVATE "${CMAKE_SOURCE_DIR}")
target_link_libraries(program PRIVATE ddprun::ddp)
get_target_property(includes ddprun::ddp INTERFACE_INCLUDE_DIRECTORIES)
message(STATUS "includes ${includes}")
"""
OWN_HEADER = """
namespace stranger { constexpr int kOwn = 7; }
"""
# Its own header has the name of one of ours.
PROGRAM = """
#include "worker/env.h"
#include <torch/torch.h>
#include <ddprun/ddprun.h>
#include <iostream>

int main() {
  auto group = ddprun::ddp::init_process_group();
  ddprun::ddp::DDP<torch::nn::Linear> model(torch::nn::Linear(2, 1), group);
  model(at::full({1, 2}, group.rank() + 1.0)).sum().backward();
  ddprun::ddp::Checkpointer checkpointer(group, {.directory = "saved"});
  checkpointer.save({.model = *model.module()});
  checkpointer.wait();
  if (group.rank() == 0) {
    std::cout << "gradient " << model.parameters()[0].grad()[0][0].item<float>() << " and "
              << stranger::kOwn << std::endl;
  }
}
"""
PROGRAMS = ("ddprun", "ddpd", "ddpctl")
# Libraries that the runtime, the programs or torch were built with.  A program with the runtime needs none of them.
FOREIGN = ("boost", "gloo", "nlohmann", "spdlog", "fmt", "CLI")
# Covers each folder in $@ up to -- with an empty one, and runs the rest.  Ends with 77 where that is not possible.
WITHOUT = """
while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 77; shift; done
shift
exec "$@"
"""


def run(*command, **options):
    ended = subprocess.run(command, capture_output=True, text=True, **options)
    assert ended.returncode == 0, (command, ended.stdout + ended.stderr)
    return ended.stdout


def without_foreign_headers():
    """The beginning of a command that runs the rest where those of FOREIGN are not installed, or [] if the kernel
    refuses."""
    folders = [f"/usr/include/{name}" for name in FOREIGN if os.path.isdir(f"/usr/include/{name}")]
    covered = ["unshare", "--map-root-user", "--mount", "sh", "-c", WITHOUT, "sh", *folders, "--"]
    if subprocess.run([*covered, "true"], capture_output=True, check=False).returncode == 0:
        return covered
    print("no private mounts here: headers of other libraries are looked for in what the compiler has read only")
    return []


def unpacked_libtorch(torch, folder):
    """The same torch as its zip would be laid out: without Python's files."""
    folder.mkdir()
    for part in ("lib", "include", "share"):
        (folder / part).symlink_to(Path(torch) / part)
    for line in (Path(torch) / "version.py").read_text().splitlines():
        if line.startswith("__version__"):
            (folder / "build-version").write_text(line.split("'")[1] + "\n")


def main(build, torch):
    with tempfile.TemporaryDirectory() as base:
        base = Path(base)
        prefix, source, out = (base / name for name in ("prefix", "source", "out"))
        run("cmake", "--install", build, "--prefix", prefix)
        for program in PROGRAMS:
            run(prefix / "bin" / program, "--version")
        headers = [path.name for path in (prefix / "include").iterdir()]
        assert headers == ["ddprun"], headers

        (source / "worker").mkdir(parents=True)
        (source / "worker/env.h").write_text(OWN_HEADER)
        (source / "CMakeLists.txt").write_text(PROJECT)
        (source / "program.cc").write_text(PROGRAM)
        # Neither a Python that has torch nor -DDDPRUN_TORCH: the package knows its own.
        bare = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
        alone = without_foreign_headers()
        find = (*alone, "cmake", "-G", "Ninja", "-S", source, f"-DCMAKE_PREFIX_PATH={prefix}",
                "-DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON")
        said = run(*find, "-B", out, env=bare)
        assert f" in {torch}\n" in said, said
        assert f"includes {prefix}/include\n" in said, said
        unpacked_libtorch(torch, base / "libtorch")
        said = run(*find, "-B", base / "zip", f"-DDDPRUN_TORCH={base}/libtorch", env=bare)
        assert f" in {base}/libtorch\n" in said, said

        run(*alone, "cmake", "--build", out)
        read = run("ninja", "-C", out, "-t", "deps").split()
        assert f"{prefix}/include/ddprun/store/base/error.h" in read, read
        foreign = [path for path in read if path.startswith(tuple(f"/usr/include/{name}/" for name in FOREIGN))]
        assert not foreign, foreign
        # In a folder of its own, for the checkpoint it saves; once by hand, and once by ddprun.
        ranks = run_ranks(["sh", "-c", f"cd {base} && exec {out}/program"], 2)
        for rank in ranks:
            assert rank.returncode == 0, rank.output
        assert "gradient 1.5 and 7" in ranks[0].output, ranks[0].output
        assert (base / "saved/step-000000000000/model.safetensors").is_file()
        again = base / "again"
        again.mkdir()
        launch = (prefix / "bin/ddprun", "--standalone", "--nproc-per-node", "2", "--no-python")
        said = run(*launch, out / "program", cwd=again)
        assert "gradient 1.5 and 7" in said, said


if __name__ == "__main__":
    main(*sys.argv[1:])
