#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A stranger's project, elsewhere: finds the installed runtime, builds a program, runs two ranks.

usage: install_test.py BUILD_FOLDER TORCH_FOLDER
"""

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
target_link_libraries(program PRIVATE ddprun::ddp)
"""
PROGRAM = """
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <iostream>
#include <worker/ddp/checkpointer.h>
#include <worker/ddp/data_parallel.h>

int main() {
  auto group = ddprun::ddp::init_process_group();
  ddprun::ddp::DistributedDataParallel<torch::nn::Linear> model(torch::nn::Linear(2, 1), group);
  model.forward(at::full({1, 2}, group.rank() + 1.0)).sum().backward();
  ddprun::ddp::Checkpointer checkpointer(group, {.directory = "saved"});
  checkpointer.save({.model = *model.module()});
  checkpointer.wait();
  if (group.rank() == 0) {
    std::cout << "gradient " << model.module()->weight.grad()[0][0].item<float>() << std::endl;
  }
}
"""


def run(*command):
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, (command, ended.stdout + ended.stderr)


def main(build, torch):
    with tempfile.TemporaryDirectory() as base:
        prefix, source, out = (f"{base}/{name}" for name in ("prefix", "source", "out"))
        run("cmake", "--install", build, "--prefix", prefix, "--component", "runtime")
        Path(source).mkdir()
        (Path(source) / "CMakeLists.txt").write_text(PROJECT)
        (Path(source) / "program.cc").write_text(PROGRAM)
        options = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DDDPRUN_TORCH={torch}"]
        run("cmake", "-G", "Ninja", "-S", source, "-B", out, *options)
        run("cmake", "--build", out)
        # In a folder of its own, for the checkpoint it saves.
        ranks = run_ranks(["sh", "-c", f"cd {base} && exec {out}/program"], 2)
        for rank in ranks:
            assert rank.returncode == 0, rank.output
        assert "gradient 1.5" in ranks[0].output, ranks[0].output
        assert (Path(base) / "saved/step-000000000000/model.safetensors").is_file()


if __name__ == "__main__":
    main(*sys.argv[1:])
