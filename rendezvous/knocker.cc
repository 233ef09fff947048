// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/knocker.h"

#include <utility>

#include "rendezvous/brief_talk.h"
#include "rendezvous/decide/store_keys.h"

namespace ddprun::rendezvous {

store::Async<Knocked> knock_at(store::Client& client, std::string message, std::string mailbox) {
  // A store without our extensions has no host that could change.
  if (!client.has_extensions()) co_return Knocked{.is_clear = true};
  auto record = co_await client.get(keys::kCoordinator, kKnockPatience, kMaxMessageBytes);
  if (!record) co_return record.error();
  auto pushed = co_await client.queue_push(keys::inbox(*record), std::move(message));
  if (!pushed) co_return pushed.error();
  if (mailbox.empty()) co_return Knocked{};
  auto text = co_await client.queue_pop(mailbox, kKnockPatience, kMaxMessageBytes);
  if (!text) co_return text.error();
  auto command = decode_command(*text);
  if (!command) co_return command.error();
  Knocked knocked{.is_clear = std::holds_alternative<command::Continue>(*command)};
  if (auto* moved = std::get_if<command::Moved>(&*command)) knocked.moved = std::move(*moved);
  co_return knocked;
}

Knocker::Knocker(boost::asio::any_io_executor executor, std::optional<store::Secret> secret)
    : executor_(executor), secret_(std::move(secret)), resolver_(executor) {}

store::Async<std::optional<command::Moved>> Knocker::ask(Endpoint place, std::string message,
                                                         std::string mailbox) {
  store::ClientConfig config;
  keep_brief(config, kKnockPatience);
  config.tries_once = true;
  config.namespace_name = keys::kNamespace;
  config.resolver = &resolver_;
  if (secret_) config.secret = &*secret_;
  auto client = co_await store::Client::connect(executor_, std::move(place), config);
  if (!client) co_return client.error();
  auto answer = co_await knock_at(**client, std::move(message), std::move(mailbox));
  if (!answer) co_return answer.error();
  co_return std::move(answer->moved);
}

}  // namespace ddprun::rendezvous
