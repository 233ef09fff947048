// SPDX-License-Identifier: BSD-3-Clause
//
// tensor_copier FROM TO: loads a file of tensors through LibTorch and saves it, as .pt or
// .safetensors after the name.  For tensor_cross_read_test.py.
#include <iostream>

#include "worker/ddp/tensor_file.h"

int main(int argc, char** argv) {
  namespace ddp = ddprun::ddp;
  if (argc != 3) return 2;
  try {
    const std::filesystem::path to = argv[2];
    std::vector<ddp::NamedTensor> tensors;
    for (const auto& [name, tensor] : ddp::load_tensors(argv[1])) tensors.push_back({name, tensor});
    ddp::save_tensors(
        to, tensors,
        to.extension() == ".pt" ? ddp::TensorFormat::Pt : ddp::TensorFormat::Safetensors);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "tensor_copier: " << error.what() << std::endl;
    return 1;
  }
}
