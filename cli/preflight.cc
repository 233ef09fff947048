// SPDX-License-Identifier: BSD-3-Clause
#include "cli/preflight.h"

#include <spdlog/spdlog.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <utility>

#include "cli/log_setup.h"
#include "cli/run_file_place.h"
#include "rendezvous/network.h"
#include "store/base/variant.h"

namespace ddprun::cli {
namespace {

namespace asio = boost::asio;

// The nodes of a run start together, or nearly so.
constexpr std::chrono::seconds kPatience(30);

asio::awaitable<void> meet(rendezvous::NetworkHandler& handler, asio::steady_timer& is_over,
                           std::string why) {
  handler.join();
  auto [told] = co_await is_over.async_wait(asio::as_tuple(asio::use_awaitable));
  if (!told) handler.leave(std::move(why), 0);
  co_await handler.finish();
  handler.close();
}

}  // namespace

void report_preflight_failure(rendezvous::NetworkConfig network, const std::string& why) {
  auto logger = make_logger(
      "info", [](std::string_view line) { std::fwrite(line.data(), 1, line.size(), stderr); });
  logger->error("{}; telling the other nodes, for at most {} s", why, kPatience.count());
  network.member.node.preflight_failure = why;
  std::string excuse = "cannot start its workers: " + why;
  asio::io_context loop(1);
  process::IoThread disk(loop.get_executor(), [](const auto&) {});
  rendezvous::NetworkHandler handler(loop.get_executor(), std::move(network),
                                     run_file_place("", read_environment(), disk));
  asio::steady_timer is_over(loop, kPatience);
  handler.listen([&](const rendezvous::Notice& notice) {
    std::visit(Overloaded{
                   [&](const rendezvous::notice::Info& info) { logger->info("{}", info.text); },
                   [&](const rendezvous::notice::Failed& failed) {
                     logger->error("{}", failed.why);
                     is_over.cancel();
                   },
                   [&](const rendezvous::command::Round&) {
                     // From a coordinator that does not know about preflight failures.
                     handler.leave(excuse, 0);
                     is_over.cancel();
                   },
                   [&](const rendezvous::command::Stop&) {},
                   [&](const rendezvous::notice::LeaseEnding&) {},
                   [&](const rendezvous::command::Waiting&) {},
                   [&](const rendezvous::command::End&) { is_over.cancel(); },
               },
               notice);
  });
  asio::co_spawn(loop, meet(handler, is_over, excuse), [&loop](std::exception_ptr error) {
    if (error) std::rethrow_exception(error);  // a bug: nothing of ours throws
    loop.stop();
  });
  loop.run();
}

}  // namespace ddprun::cli
