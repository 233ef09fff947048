# SPDX-License-Identifier: BSD-3-Clause
"""A project of a user's own that finds the C++ runtime: the CMakeLists.txt of the library's guide, and a program."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "worker/ddp/README.md").read_text(encoding="utf-8")
PROJECT = next(part.partition("```")[0] for part in README.split("```cmake\n") if "project(train" in part.partition("```")[0])
# Its own header has the name of one of ours.
OWN_FOLDER = 'target_include_directories(train PRIVATE "${CMAKE_SOURCE_DIR}")\n'
OWN_HEADER = "constexpr int kOwn = 7;\n"
PROGRAM = """
#include "worker/env.h"
#include <torch/torch.h>
#include <ddprun/ddprun.h>
#include <iostream>

int main() {
  auto group = ddprun::ddp::init_process_group();
  ddprun::ddp::DDP<torch::nn::Linear> model(torch::nn::Linear(2, 1), group);
  model(torch::full({1, 2}, group.rank() + 1.0)).sum().backward();
  if (group.rank() == 0) {
    std::cout << "gradient " << model.module()->weight.grad()[0][0].item<float>() << " and " << kOwn << std::endl;
  }
}
"""


def write(folder):
    """Writes it into `folder`."""
    (folder / "worker").mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text(PROJECT + OWN_FOLDER, encoding="utf-8")
    (folder / "worker/env.h").write_text(OWN_HEADER, encoding="utf-8")
    (folder / "train.cc").write_text(PROGRAM, encoding="utf-8")
