// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/torch_check.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "worker/ddp/error.h"

namespace ddprun::ddp {

std::string torch_version_problem(std::string_view compiled, std::string_view version_file,
                                  const std::string& folder) {
  constexpr std::string_view kName = "__version__ = '";
  auto begin = version_file.find(kName);
  if (begin == std::string_view::npos) return "";
  std::string_view loaded = version_file.substr(begin + kName.size());
  loaded = loaded.substr(0, loaded.find('\''));
  if (loaded.starts_with(std::string(compiled) + ".")) return "";
  return "this program was built for torch " + std::string(compiled) + ", and torch " +
         std::string(loaded) + " is loaded from " + folder +
         ": build it again in a new build folder, or install torch " + std::string(compiled);
}

void check_loaded_torch() {
  Dl_info library{};
  if (::dladdr(reinterpret_cast<void*>(&at::globalContext), &library) == 0) return;
  const auto folder = std::filesystem::path(library.dli_fname).parent_path().parent_path();
  std::ifstream file(folder / "version.py");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::string compiled =
      std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
  std::string problem = torch_version_problem(compiled, text, folder);
  if (!problem.empty()) throw DdpError(problem);
}

}  // namespace ddprun::ddp
