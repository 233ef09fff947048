// SPDX-License-Identifier: BSD-3-Clause
#include "cli/machine.h"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <system_error>

#include "cli/values.h"
#include "worker/process/spawn.h"

namespace ddprun::cli {
namespace {

namespace fs = std::filesystem;

// The affinity mask's size, so that taskset and a batch system's limits are honoured.
int cpu_count() {
  cpu_set_t cpus;
  if (::sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return 1;
  return CPU_COUNT(&cpus);
}

// The driver's list of GPUs, narrowed by CUDA_VISIBLE_DEVICES as the CUDA runtime does: names up to
// the first that is no device.  No CUDA library is loaded for it.
int gpu_count(const Environment& environment) {
  std::error_code error;
  fs::directory_iterator gpus("/proc/driver/nvidia/gpus", error);
  int installed = error ? 0 : static_cast<int>(std::distance(fs::begin(gpus), fs::end(gpus)));
  auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  if (visible == environment.end()) return installed;
  int count = 0;
  for (const std::string& device : split_commas(visible->second)) {
    bool is_index = !device.empty() && device.find_first_not_of("0123456789") == std::string::npos;
    bool is_uuid = device.starts_with("GPU-") || device.starts_with("MIG-");
    if (!is_uuid && !(is_index && device.size() < 6 && std::stoi(device) < installed)) break;
    ++count;
  }
  return installed == 0 ? 0 : count;
}

std::string hostname() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  std::string full(name.data());
  return full.substr(0, full.find('.'));
}

// A random UUID (version 4), as torchrun gives to a standalone run.
std::string random_id() {
  std::random_device random;
  std::string digits;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) digits += '-';
    unsigned value = random() % 16;
    if (i == 12) value = 4;
    if (i == 16) value = 8 + value % 4;
    digits += "0123456789abcdef"[value];
  }
  return digits;
}

FileKind file_kind(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return FileKind::Missing;
  std::array<char, 4> magic{};
  std::ifstream file(path, std::ios::binary);
  file.read(magic.data(), magic.size());
  return file && magic == std::array<char, 4>{'\x7f', 'E', 'L', 'F'} ? FileKind::Native
                                                                     : FileKind::Other;
}

}  // namespace

Environment read_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string text = *entry;
    auto equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

Machine this_machine(const Environment& environment) {
  return {.cpu_count = cpu_count,
          .gpu_count = [&environment] { return gpu_count(environment); },
          .hostname = hostname,
          .random_id = random_id,
          .file_kind = file_kind,
          .find_program =
              [&environment](const std::string& name) {
                auto path = environment.find("PATH");
                return process::find_program(
                    name, path == environment.end() ? "/usr/bin:/bin" : path->second);
              }};
}

}  // namespace ddprun::cli
