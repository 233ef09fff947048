// SPDX-License-Identifier: BSD-3-Clause
#include "cli/log_setup.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

namespace ddprun::cli {
namespace {

class FunctionSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit FunctionSink(std::function<void(std::string_view)> write) : write_(std::move(write)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    write_({line.data(), line.size()});
  }
  void flush_() override {}

  std::function<void(std::string_view)> write_;
};

}  // namespace

std::shared_ptr<spdlog::logger> make_logger(const std::string& level,
                                            std::function<void(std::string_view line)> write) {
  auto logger =
      std::make_shared<spdlog::logger>("ddprun", std::make_shared<FunctionSink>(std::move(write)));
  logger->set_pattern("ddprun %H:%M:%S.%e %-7l %v");
  logger->set_level(spdlog::level::from_str(level));
  return logger;
}

}  // namespace ddprun::cli
