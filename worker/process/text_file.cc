// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/text_file.h"

#include <array>
#include <cstddef>
#include <fstream>

namespace ddprun::process {

std::optional<std::string> text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 4096> part;
  do {
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  } while (file);
  if (!file.eof()) return std::nullopt;
  return text;
}

}  // namespace ddprun::process
