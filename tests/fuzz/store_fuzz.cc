// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer's bytes as the streams of three clients of a store.  scripts/fuzz builds and runs it.
//
//  1. Two bytes of the input say who sends next, and how much; the rest is what is sent.
//  2. A client whose stream is malformed, or who is refused, leaves and comes again.
//  3. At the end all leave, and all that may be left is what keys and queues hold, in the common
//     namespace, in named ones and in the reserved one.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "store/base/check.h"
#include "store/decide/namespaces.h"
#include "store/decide/wire.h"

using namespace ddprun::store;

namespace {

constexpr std::size_t kClients = 3;

struct Game {
  WireLimits limits{
      .max_value_bytes = 4096, .max_keys_per_request = 64, .max_request_bytes = 65536};
  // Half of the requests about names in the seeds are large ones.
  Namespaces namespaces{
      {.max_keys = 100, .max_queue_items = 50, .max_bytes = 100'000, .names_at_once = 2}, 3};
  std::vector<bool> is_busy = std::vector<bool>(kClients);
  std::vector<Namespace*> places = std::vector<Namespace*>(kClients, &namespaces.common());
  std::vector<std::unique_ptr<Decoder>> decoders{kClients};
  ddprun::MonoTime now{};
  Replies replies;

  Game() { namespaces.reserve("r"); }

  void greet(std::size_t client) {
    decoders[client] = std::make_unique<Decoder>(limits);
    std::string handshake;
    encode(request::Validate{}, handshake);
    decoders[client]->feed(handshake);
    decoders[client]->next();
    decoders[client]->next();
  }

  // One step of the large requests and what they left behind.
  void work(std::size_t effort) {
    auto done = namespaces.proceed(effort, now, replies);
    if (!done) return;
    is_busy[done->client] = false;
    done->fault ? leave(done->client) : serve(done->client);
  }

  // A client that has asked something large asks nothing else until it is done.
  void await(std::size_t client) {
    while (is_busy[client]) work(1);
  }

  void leave(std::size_t client) {
    await(client);
    namespaces.disconnect(client, *places[client], now, replies);
    places[client] = &namespaces.common();
    greet(client);
  }

  void ask(const Request& request) {
    if (!places[0]->keyspace.is_large(request)) {
      namespaces.execute(0, places[0], request, now, replies);
      return;
    }
    namespaces.enqueue(0, *places[0], request);
    is_busy[0] = true;
    await(0);
  }

  void send(std::size_t client, std::string_view bytes) {
    await(client);
    // The bytes die before the next are fed, so that a view kept too long is found.
    auto storage = std::make_unique<std::string>(bytes);
    decoders[client]->feed(*storage);
    serve(client);
  }

  // Carries out what has arrived, up to a large request.
  void serve(std::size_t client) {
    Decoder& decoder = *decoders[client];
    for (;;) {
      Decoder::Next next = decoder.next();
      if (std::holds_alternative<Decoder::NeedMore>(next)) return;
      if (std::holds_alternative<Decoder::Malformed>(next)) return leave(client);
      const Request& request = std::get<Request>(next);
      if (places[client]->keyspace.is_large(request)) {
        namespaces.enqueue(client, *places[client], decoder.hold());
        is_busy[client] = true;
        return;
      }
      if (namespaces.execute(client, places[client], request, now, replies)) return leave(client);
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  Game game;
  for (std::size_t client = 0; client < kClients; ++client) game.greet(client);
  while (input.size() >= 2) {
    std::size_t client = static_cast<unsigned char>(input[0]) % kClients;
    std::size_t count = static_cast<unsigned char>(input[1]);
    input.remove_prefix(2);
    game.send(client, input.substr(0, count));
    input.remove_prefix(std::min(count, input.size()));
    game.replies.clear();
    game.now += std::chrono::milliseconds(count);
    game.namespaces.expire(game.now, game.replies);
    if (game.namespaces.has_work()) game.work(count % 3);
  }
  for (std::size_t client = 0; client < kClients; ++client) game.leave(client);
  ddprun::check(game.namespaces.wait_count() == 0, "somebody who left still waits");
  game.namespaces.expire(game.now, game.replies);
  ddprun::check(!game.namespaces.deadline(), "somebody who left still holds something");
  // What is left can be listed and deleted, and then nothing is accounted for but queues.
  std::vector<std::string> names{""};
  game.namespaces.for_each([&](const Namespace& ns) { names.push_back(ns.name); });
  for (const std::string& name : names) {
    game.ask(request::EnterNamespace{name});
    game.replies.clear();
    game.ask(request::ListKeys{});
    Replies keys = std::move(game.replies);
    game.replies.clear();
    for (const Outgoing& key : keys) {
      const auto* text = std::get_if<reply::Bytes>(&key.reply);
      if (text != nullptr) game.ask(request::DeleteKey{text->value.view()});
    }
  }
  while (game.namespaces.has_work()) game.work(1);
  ddprun::check(game.namespaces.usage().keys == 0, "a listed key could not be deleted");
  ddprun::check(game.namespaces.usage().promised_bytes == 0, "room is set aside for nobody");
  return 0;
}
