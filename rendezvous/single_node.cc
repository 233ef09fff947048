// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/single_node.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "rendezvous/worker_store.h"
#include "store/client.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

// Long enough for a name service that comes up a little later than this node.
constexpr auto kProbeTimeout = std::chrono::seconds(30);

constexpr const char* kNode = "self";

Now now() {
  return {std::chrono::steady_clock::now(), std::chrono::system_clock::now()};
}

}  // namespace

SingleNodeHandler::SingleNodeHandler(asio::any_io_executor executor, SingleNodeConfig config)
    : executor_(executor),
      config_(std::move(config)),
      announcement_(executor),
      tasks_(executor, [](std::exception_ptr error) { std::rethrow_exception(error); }) {}

SingleNodeHandler::~SingleNodeHandler() {
  close();
}

void SingleNodeHandler::join() {
  announcement_.withdraw();
  tasks_.spawn(open_store());
}

asio::awaitable<void> SingleNodeHandler::open_store() {
  if (worker_store_) worker_store_->close();
  worker_store_.reset();
  auto listening = listen_for_workers(executor_, config_.master);
  if (!listening) {
    tell_agent(notice::Failed{"worker store: " + to_string(listening.error())});
    co_return;
  }
  worker_store_ = std::move(*listening);

  // What workers will do, and would try in vain for minutes where it is not possible.
  Endpoint master{.host = config_.master.host, .port = worker_store_->port()};
  auto probe =
      co_await store::Client::connect(executor_, master, {.connect_timeout = kProbeTimeout});
  if (!*is_open_) co_return;
  if (!probe) {
    worker_store_->close();
    tell_agent(notice::Failed{"workers could not reach their store at " + to_string(master) +
                              " from this node: " + to_string(probe.error())});
    co_return;
  }
  if (std::exchange(has_joined_, true)) {
    tell_coordinator(request::Ready{.round = round_, .store_port = master.port});
    co_return;
  }
  tell_coordinator(request::Join{.address = master.host,
                                 .participant = config_.self,
                                 .policy = {.max_restarts = config_.max_restarts},
                                 .store_port = master.port});
}

void SingleNodeHandler::workers_started(const Round& round, std::vector<StartedWorker> workers) {
  tasks_.spawn(announcement_.make(round.master, round.ranks.world_size, std::move(workers)));
}

void SingleNodeHandler::report_failure(Failure failure, int exit_code, bool is_final) {
  tell_coordinator(request::Failed{.round = round_,
                                   .failure = std::move(failure),
                                   .exit_code = exit_code,
                                   .is_final = is_final});
}

void SingleNodeHandler::report_success() {
  tell_coordinator(request::Succeeded{.round = round_});
}

void SingleNodeHandler::leave(std::string) {
  close();
}

asio::awaitable<void> SingleNodeHandler::finish() {
  close();
  co_await tasks_.join();
}

void SingleNodeHandler::close() {
  *is_open_ = false;
  announcement_.withdraw();
  tasks_.cancel();
  if (worker_store_) worker_store_->close();
  worker_store_.reset();
}

void SingleNodeHandler::tell_coordinator(Request request) {
  auto step = coordinator::step(std::move(coordinator_),
                                coordinator::event::Arrived{kNode, std::move(request)}, now());
  coordinator_ = std::move(step.state);
  for (coordinator::Action& action : step.actions) {
    auto* send = std::get_if<coordinator::action::Send>(&action);
    if (send == nullptr) continue;
    Order& order = send->order;
    if (auto* round = std::get_if<order::Round>(&order)) {
      round_ = round->number;
      tell_agent(*round);
    } else if (auto* stop = std::get_if<order::Stop>(&order)) {
      tell_agent(std::move(*stop));
    } else if (auto* end = std::get_if<order::End>(&order)) {
      tell_agent(std::move(*end));
    }
  }
}

void SingleNodeHandler::tell_agent(Notice notice) {
  asio::post(executor_, [this, is_open = is_open_, notice = std::move(notice)] {
    if (*is_open) listener_(notice);
  });
}

}  // namespace ddprun::rendezvous
