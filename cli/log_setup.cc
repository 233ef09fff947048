// SPDX-License-Identifier: BSD-3-Clause
#include "cli/log_setup.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace ddprun::cli {

std::shared_ptr<spdlog::logger> make_logger(const std::string& level) {
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_st>();
  auto logger = std::make_shared<spdlog::logger>("ddprun", std::move(sink));
  logger->set_pattern("ddprun %H:%M:%S.%e %^%-7l%$ %v");
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::trace);
  return logger;
}

}  // namespace ddprun::cli
