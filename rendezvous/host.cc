// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/host.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rendezvous/decide/node_id.h"
#include "rendezvous/decide/store_keys.h"
#include "rendezvous/random_name.h"
#include "rendezvous/worker_store.h"
#include "store/base/count.h"
#include "store/base/seconds.h"
#include "store/clock.h"

namespace ddprun::rendezvous {
namespace {

// Of a connection within this process, which is there for as long as the process is: where no
// answer has come in time, the machine was busy or stood still.
constexpr Duration kNever = std::chrono::hours(24 * 365);

// What the run files of the process before this one mean, for people.
std::string describe(const std::vector<RunFile>& files, bool is_elsewhere) {
  Duration longest{};
  for (const RunFile& file : files) longest = std::max(longest, file.lease);
  std::string runs =
      files.size() == 1 ? "run '" + files.front().run + "'" : count_of(files.size(), "run");
  return (is_elsewhere ? "the host before has not ended the run, and workers of "
                       : "the host here before has gone, and workers of ") +
         runs + " may be alive: no other round begins until they are accounted for, at most for " +
         seconds_text(longest);
}

}  // namespace

std::string coordinator_record(const std::string& host, bool is_daemon, const std::string& node) {
  std::string generation = random_name();
  std::string record = generation + " " + host + " " + std::to_string(::getpid());
  if (!node.empty()) record += " " + node + "@" + generation;
  if (is_daemon) record += keys::kDaemonMark;
  return record;
}

std::string daemon_name(const std::string& host) {
  return std::string(coordinator::kDaemonName) + host + "-" + random_name();
}

Host::Host(boost::asio::any_io_executor executor, std::unique_ptr<store::Server> server,
           HostConfig config)
    : executor_(std::move(executor)),
      server_(std::move(server)),
      endpoint_(server_->endpoint()),
      config_(std::move(config)) {
  server_->reserve_namespace(std::string(keys::kNamespace));
  server_->stamp_queues(std::string("/") + keys::kInboxes);  // as our client says their names
  // Without a secret a stranger can enter, but neither ask a node for its files nor read them.
  server_->keep_own(
      {.queues = std::string("/") + keys::kMailboxes, .keys = std::string("/") + keys::kBundles});
  server_->show(&pages_);
  for (const std::string& mark : config_.secret_marks) {
    RunFilePlace place = config_.run_files;
    if (!mark.empty()) place.prefix += mark + "-";
    run_files_.push_back(
        std::make_unique<RunFiles>(executor_, std::move(place), server_->endpoint(), config_.log));
    if (!config_.is_daemon) continue;
    std::size_t number = knockers_.size();
    std::optional<store::Secret> secret;
    if (number < config_.secrets.size()) secret = config_.secrets[number];
    knockers_.push_back(std::make_unique<Knocker>(executor_, std::move(secret)));
  }
}

std::vector<RunsSource> Host::sources() const {
  std::vector<RunsSource> sources;
  for (const auto& coordinator : coordinators_) sources.push_back(coordinator->source());
  return sources;
}

std::optional<std::string> Host::stacks(const StacksTarget& target, bool is_wanted) const {
  for (std::size_t secret = 0; secret < coordinators_.size(); ++secret) {
    CoordinatorService& coordinator = *coordinators_[secret];
    const runs::State& state = *coordinator.source().state;
    if (!state.runs.contains(target.run)) continue;
    if (is_wanted) coordinator.stacks_wanted(target.run, target.rank);
    auto text_of = [this, secret](const std::string& node) {
      return server_->value_of(keys::kNamespace, secret, keys::stacks(node));
    };
    return stacks_json(state, target.run, text_of, mono_now());
  }
  return std::nullopt;
}

std::optional<std::string> Host::bundle(const BundleTarget& target, bool is_wanted) const {
  for (std::size_t secret = 0; secret < coordinators_.size(); ++secret) {
    CoordinatorService& coordinator = *coordinators_[secret];
    if (!coordinator.source().state->runs.contains(target.run)) continue;
    std::uint64_t number_before = bundle_number(*coordinator.source().state, target.run);
    if (is_wanted) coordinator.bundle_wanted(target);
    const runs::State& state = *coordinator.source().state;
    auto text_of = [this, secret](const std::string& node) {
      return server_->value_of(keys::kNamespace, secret, keys::bundle(node));
    };
    if (target.kind == BundleTarget::Kind::Piece) return bundle_piece_text(state, target, text_of);
    return bundle_json(state, target.run, number_before, text_of, mono_now());
  }
  return std::nullopt;
}

store::Async<std::unique_ptr<store::Client>> Host::connect(std::size_t secret) {
  auto fd = server_->connect(secret);
  if (!fd) co_return fd.error();
  store::ClientConfig client;
  client.namespace_name = keys::kNamespace;
  for (Duration* limit : {&client.connect_timeout, &client.reply_timeout, &client.greeting_timeout})
    *limit = kNever;
  co_return co_await store::Client::adopt(executor_, std::move(*fd), "this process", client);
}

store::Async<void> Host::open(std::string only_run) {
  for (std::size_t secret = 0; secret < run_files_.size(); ++secret) {
    auto begun = co_await coordinate(secret, only_run);
    if (!begun) co_return begun.error();
  }
  co_return Result<void>{};
}

store::Async<void> Host::coordinate(std::size_t secret, const std::string& only_run) {
  auto in = co_await connect(secret);
  if (!in) co_return in.error();
  auto out = co_await connect(secret);
  if (!out) co_return out.error();
  RunFiles& files = *run_files_[secret];
  ServiceConfig service;
  service.record = coordinator_record(config_.name, config_.is_daemon, config_.node);
  if (!config_.node.empty()) service.name = keys::name_of_coordinator(service.record);
  if (!config_.is_daemon) service.node = config_.node;
  if (config_.on_own_round) service.on_own_round = config_.on_own_round;
  service.look_back = config_.look_back;
  service.order = config_.order;
  service.only_run = only_run;
  service.is_daemon = config_.is_daemon;
  if (config_.is_daemon) {
    service.knock = [&knocker = *knockers_[secret]](Endpoint place, std::string message,
                                                    std::string mailbox) {
      return knocker.ask(std::move(place), std::move(message), std::move(mailbox));
    };
  }
  service.renew_common_space = [this](const std::vector<std::string>& peers) {
    server_->renew_common_namespace(access_ ? std::optional(worker_store_gate(*access_, peers))
                                            : std::nullopt);
  };
  service.found_files = co_await files.read();
  bool is_elsewhere = !found_elsewhere_.empty();
  if (is_elsewhere) service.found_files = std::move(found_elsewhere_);
  if (!service.found_files.empty()) config_.log(describe(service.found_files, is_elsewhere));
  service.keep_file = [&files](RunFile file) { files.keep(std::move(file)); };
  service.drop_file = [&files](const std::string& run) { files.drop(run); };
  if (config_.run_file_elsewhere) {
    service.keep_file = config_.run_file_elsewhere->keep;
    service.drop_file = config_.run_file_elsewhere->drop;
    service.guarded_run = config_.run_file_elsewhere->run;
    service.may_begin = config_.run_file_elsewhere->may_begin;
    service.on_superseded = config_.run_file_elsewhere->superseded;
  }
  service.has_stamps = true;
  service.believes_nodes = server_->asks_for_secret();
  service.vitals = [this, secret](const std::string& node) {
    return server_->value_of(keys::kNamespace, secret, keys::vitals(node));
  };
  service.waits = [this, secret](const std::string& node) {
    return server_->value_of(keys::kNamespace, secret, keys::waits(node));
  };
  service.stacks = [this, secret](const std::string& node) {
    return server_->value_of(keys::kNamespace, secret, keys::stacks(node));
  };
  service.slices = [this, secret](const std::string& node) {
    return server_->value_of(keys::kNamespace, secret, keys::slices(node));
  };
  service.trace = config_.trace;
  service.log = config_.log;
  service.on_failed = [this](const std::string& why) { failed(why); };
  auto started = co_await CoordinatorService::start(executor_, std::move(service), std::move(*in),
                                                    std::move(*out), false);
  if (!started) co_return started.error();
  coordinators_.push_back(std::move(*started));
  co_return Result<void>{};
}

// Nobody is to wait for a coordinator that does not answer.
void Host::failed(const std::string& why) {
  if (!is_open_) return;
  close();
  (config_.on_failed ? config_.on_failed : config_.log)(why);
}

void Host::close() {
  is_open_ = false;
  for (auto& coordinator : coordinators_) coordinator->close();
  server_->close();
}

boost::asio::awaitable<void> Host::settle_files() {
  for (auto& files : run_files_) co_await files->settle();
}

boost::asio::awaitable<void> Host::stop() {
  for (auto& coordinator : coordinators_) co_await coordinator->stop();
  co_await settle_files();
  co_await server_->stop();
}

}  // namespace ddprun::rendezvous
