// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/host.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <utility>

#include "rendezvous/decide/store_keys.h"
#include "rendezvous/worker_store.h"
#include "store/base/count.h"
#include "store/base/seconds.h"

namespace ddprun::rendezvous {
namespace {

std::string random_name() {
  std::random_device device;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", device(), device());
  return text;
}

// What the run files of the process before this one mean, for people.
std::string describe(const std::vector<RunFile>& files) {
  Duration longest{};
  for (const RunFile& file : files) longest = std::max(longest, file.lease);
  std::string runs =
      files.size() == 1 ? "run '" + files.front().run + "'" : count_of(files.size(), "run");
  return "the host here before was killed, and workers of " + runs +
         " may be alive: no other round begins until they are accounted for, at most for " +
         seconds_text(longest);
}

}  // namespace

std::string coordinator_record(const std::string& host, bool is_daemon) {
  return random_name() + " " + host + " " + std::to_string(::getpid()) +
         (is_daemon ? keys::kDaemonMark : "");
}

Host::Host(boost::asio::any_io_executor executor, std::unique_ptr<store::Server> server,
           std::string name, bool is_daemon, RunFilePlace run_files,
           std::function<void(const std::string&)> log)
    : executor_(std::move(executor)),
      server_(std::move(server)),
      name_(std::move(name)),
      is_daemon_(is_daemon),
      log_(std::move(log)),
      run_files_(executor_, std::move(run_files), server_->endpoint(), log_) {
  server_->reserve_namespace(std::string(keys::kNamespace));
}

store::Async<std::unique_ptr<store::Client>> Host::connect() {
  auto fd = server_->connect();
  if (!fd) co_return fd.error();
  store::ClientConfig client;
  client.namespace_name = keys::kNamespace;
  co_return co_await store::Client::adopt(executor_, std::move(*fd), "this process", client);
}

store::Async<void> Host::open(std::string only_run) {
  auto in = co_await connect();
  if (!in) co_return in.error();
  auto out = co_await connect();
  if (!out) co_return out.error();
  ServiceConfig service;
  service.record = coordinator_record(name_, is_daemon_);
  service.only_run = std::move(only_run);
  service.renew_common_space = [this](const std::vector<std::string>& peers) {
    server_->renew_common_namespace(access_ ? std::optional(worker_store_gate(*access_, peers))
                                            : std::nullopt);
  };
  service.found_files = co_await run_files_.read();
  if (!service.found_files.empty()) log_(describe(service.found_files));
  service.keep_file = [this](RunFile file) { run_files_.keep(std::move(file)); };
  service.drop_file = [this](const std::string& run) { run_files_.drop(run); };
  service.log = log_;
  auto started = co_await CoordinatorService::start(executor_, std::move(service), std::move(*in),
                                                    std::move(*out), false);
  if (!started) co_return started.error();
  coordinator_ = std::move(*started);
  co_return Result<void>{};
}

void Host::close() {
  if (coordinator_) coordinator_->close();
  server_->close();
}

boost::asio::awaitable<void> Host::stop() {
  if (coordinator_) co_await coordinator_->stop();
  co_await run_files_.settle();
  co_await server_->stop();
}

}  // namespace ddprun::rendezvous
