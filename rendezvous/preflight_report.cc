// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/preflight_report.h"

#include <boost/asio/steady_timer.hpp>
#include <utility>
#include <variant>

#include "rendezvous/network.h"
#include "store/clock.h"
#include "store/event.h"

namespace ddprun::rendezvous {

namespace asio = boost::asio;

asio::awaitable<void> send_preflight_failure(asio::any_io_executor executor, NetworkConfig config,
                                             RunFilePlace run_files,
                                             std::unique_ptr<HostRegistry> registry,
                                             std::string why, Duration patience, PreflightLog log) {
  const std::string excuse = "cannot start its workers: " + why;
  config.member.node.preflight_failure = std::move(why);
  config.may_stand_in = false;
  NetworkHandler handler(executor, std::move(config), std::move(run_files), {},
                         std::move(registry));
  store::Event answered(executor);
  bool is_answered = false;
  handler.listen([&](const Notice& notice) {
    if (const auto* info = std::get_if<notice::Info>(&notice)) return log.info(info->text);
    const auto* failed = std::get_if<notice::Failed>(&notice);
    // From a coordinator that does not know about preflight failures.
    bool has_round = std::holds_alternative<Round>(notice);
    if (!failed && !has_round && !std::holds_alternative<command::End>(notice)) return;
    if (failed) log.error(failed->why);
    if (has_round) handler.leave(excuse, 0);
    is_answered = true;
    answered.notify();
  });
  handler.join();
  const MonoTime end = mono_now() + patience;
  while (!is_answered && mono_now() < end) co_await answered.wait_until(end);
  if (!is_answered) handler.leave(excuse, 0);
  co_await handler.finish();
  handler.close();
}

}  // namespace ddprun::rendezvous
