// SPDX-License-Identifier: BSD-3-Clause
#include "cli/preflight.h"

#include <spdlog/spdlog.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string_view>
#include <utility>

#include "cli/host_registry_place.h"
#include "cli/log_setup.h"
#include "cli/run_file_place.h"
#include "rendezvous/preflight_report.h"

namespace ddprun::cli {
namespace {

namespace asio = boost::asio;

// For a host that does not listen yet: the nodes of a run start together, or nearly so.
constexpr std::chrono::seconds kPatience(30);

}  // namespace

void report_preflight_failure(rendezvous::NetworkConfig network, const std::string& why) {
  auto logger = make_logger(
      "info", [](std::string_view line) { std::fwrite(line.data(), 1, line.size(), stderr); });
  logger->error("{}; telling the other nodes, for at most {} s", why, kPatience.count());
  asio::io_context loop(1);
  process::IoThread disk(loop.get_executor(), [](const auto&) {});
  rendezvous::PreflightLog log{
      .info = [logger](const std::string& text) { logger->info("{}", text); },
      .error = [logger](const std::string& text) { logger->error("{}", text); }};
  auto registry = make_host_registry(loop.get_executor(), network, disk);
  auto sent = rendezvous::send_preflight_failure(
      loop.get_executor(), std::move(network), run_file_place("", read_environment(), disk),
      std::move(registry), why, kPatience, std::move(log));
  asio::co_spawn(loop, std::move(sent), [&loop](std::exception_ptr error) {
    if (error) std::rethrow_exception(error);  // a bug: nothing of ours throws
    loop.stop();
  });
  loop.run();
}

}  // namespace ddprun::cli
