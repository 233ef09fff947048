// SPDX-License-Identifier: BSD-3-Clause
//
// Many light nodes in one process, over real sockets, for scripts/bench/rendezvous: each has one
// connection, sends one join and takes one round.
//
//   rendezvous_load PORT NODES [SECONDS [PERIOD]]
//
// With SECONDS they stay for so long, and each says every PERIOD seconds (default: 2; 0: never) how
// its eight workers are.
// With $DDPRUN_SECRET the nodes share that.
//
// Prints how long the connections took, and from the first join to the last round, in milliseconds,
// and the bytes of the messages, once the round is there.
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/store_keys.h"
#include "rendezvous/decide/vitals.h"
#include "store/auth/secret.h"
#include "store/client.h"
#include "store/system_limits.h"

namespace {

namespace asio = boost::asio;
using namespace ddprun;
using namespace ddprun::rendezvous;

constexpr auto kPatience = std::chrono::minutes(2);

struct Load {
  asio::io_context loop{1};
  std::uint16_t port = 0;
  int count = 0;
  std::chrono::seconds stays_for{0};
  std::chrono::milliseconds vitals_period{2000};
  std::string record;
  std::vector<std::unique_ptr<store::Client>> clients;
  int done = 0;
  int failed = 0;
  std::size_t bytes = 0;
  std::optional<store::Secret> secret;  // of $DDPRUN_SECRET
};

void note(Load& load, const std::string& problem) {
  if (load.failed++ == 0) std::fprintf(stderr, "rendezvous_load: %s\n", problem.c_str());
}

asio::awaitable<void> connect(Load& load, int index) {
  store::ClientConfig config;
  config.namespace_name = keys::kNamespace;
  if (load.secret) config.secret = &*load.secret;
  Endpoint endpoint{.host = "127.0.0.1", .port = load.port};
  auto client = co_await store::Client::connect(load.loop.get_executor(), endpoint, config);
  if (!client) co_return note(load, to_string(client.error()));
  if (index == 0) {
    auto record = co_await (*client)->get(keys::kCoordinator, kPatience);
    if (!record) co_return note(load, to_string(record.error()));
    load.record = *record;
  }
  load.clients[static_cast<std::size_t>(index)] = std::move(*client);
  ++load.done;
}

std::string run_name() {
  return "load" + std::to_string(::getpid());
}

std::string node_name(int index) {
  return run_name() + "-" + std::to_string(index) + ".0";  // its first incarnation
}

asio::awaitable<void> say_vitals(Load& load, int index) {
  store::Client& client = *load.clients[static_cast<std::size_t>(index)];
  asio::steady_timer timer(load.loop, load.vitals_period * index / load.count);
  auto end = std::chrono::steady_clock::now() + load.stays_for;
  const std::string key = keys::vitals(node_name(index));
  Vitals vitals;
  for (int local_rank = 0; local_rank < 8; ++local_rank) {
    vitals.workers.push_back({.local_rank = local_rank,
                              .state = 'R',
                              .pid = 100'000 + local_rank,
                              .cpu_percent = 230,
                              .rss_kib = 12'345'678,
                              .output_bytes = 1'234'567,
                              .output_age_ms = 1234,
                              .heartbeat_age_ms = 567,
                              .gpu = GpuVitals{70'000, 81'559, 98}});
  }
  while (timer.expiry() < end) {
    co_await timer.async_wait(asio::use_awaitable);
    ++vitals.number;
    for (WorkerVitals& worker : vitals.workers) worker.step = 1000 + vitals.number;
    std::string text = encode(vitals);
    auto set = co_await client.set(key, std::move(text));
    if (!set) co_return note(load, to_string(set.error()));
    timer.expires_at(timer.expiry() + load.vitals_period);
  }
  ++load.done;
}

asio::awaitable<void> stay(Load& load, int index) {
  if (load.vitals_period.count() > 0) co_return co_await say_vitals(load, index);
  asio::steady_timer timer(load.loop, load.stays_for);
  co_await timer.async_wait(asio::use_awaitable);
  ++load.done;
}

asio::awaitable<void> join(Load& load, int index) {
  store::Client& client = *load.clients[static_cast<std::size_t>(index)];
  std::string run = run_name();
  std::string node = node_name(index);
  request::Join join;
  join.host = node;
  join.address = "10.0.0.1";
  join.participant.local_world_size = 8;
  join.settings = {.min_nodes = load.count, .max_nodes = load.count, .master = std::nullopt};
  join.policy.keep_alive_interval = std::chrono::minutes(1);
  join.store_port = 29500;
  std::string message = encode(Message{run, node, std::move(join)});
  load.bytes += message.size();
  auto sent = co_await client.queue_push(keys::inbox(load.record), std::move(message));
  if (!sent) co_return note(load, to_string(sent.error()));
  for (;;) {
    auto text = co_await client.queue_pop(keys::mailbox(node, 0), kPatience);
    if (!text) co_return note(load, to_string(text.error()));
    load.bytes += text->size();
    auto command = decode_command(*text);
    if (!command) co_return note(load, to_string(command.error()));
    if (std::holds_alternative<command::Round>(*command)) break;
  }
  ++load.done;
}

double run(Load& load, asio::awaitable<void> (*step)(Load&, int)) {
  auto begin = std::chrono::steady_clock::now();
  load.done = 0;
  for (int i = 0; i < load.count; ++i) {
    asio::co_spawn(load.loop, step(load, i), [](std::exception_ptr error) {
      if (error) std::rethrow_exception(error);
    });
  }
  load.loop.restart();
  load.loop.run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace

int main(int argc, char** argv) {
  Load load;
  if (argc >= 3 && argc <= 5) {
    if (argc > 3) load.stays_for = std::chrono::seconds(std::atoi(argv[3]));
    if (argc > 4) load.vitals_period = std::chrono::seconds(std::atoi(argv[4]));
    load.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
    load.count = std::atoi(argv[2]);
  }
  if (load.port == 0 || load.count < 1) {
    std::fprintf(stderr, "usage: rendezvous_load PORT NODES [SECONDS [PERIOD]]\n");
    return 2;
  }
  if (const char* text = std::getenv("DDPRUN_SECRET")) {
    auto secret = store::Secret::from_text(text);
    if (!secret) {
      std::fprintf(stderr, "rendezvous_load: %s\n", to_string(secret.error()).c_str());
      return 2;
    }
    load.secret = *secret;
  }
  store::raise_file_limit();
  load.clients.resize(static_cast<std::size_t>(load.count));
  double connected_ms = run(load, connect);
  if (load.failed > 0) return 1;
  double formed_ms = run(load, join);
  if (load.failed > 0) return 1;
  std::printf("%.1f %.1f %zu\n", connected_ms, formed_ms, load.bytes);
  std::fflush(stdout);
  if (load.stays_for > std::chrono::seconds(0)) run(load, stay);
  return load.failed > 0 ? 1 : 0;
}
