// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/node_file.h"

#include <utility>
#include <variant>

#include "rendezvous/decide/node_id.h"

namespace ddprun::rendezvous {

// A line for the machine, and one with what the node would say at its end.
std::string encode(const NodeFile& file) {
  request::Left left{.knows = file.node.knows,
                     .nodes = file.node.nodes,
                     .after = file.node.after,
                     .seen_of = file.node.seen_of};
  Message message{.run = file.run, .node = file.node.name + ".0", .request = std::move(left)};
  return file.boot + "\n" + encode(message) + "\n";
}

Result<NodeFile> decode_node_file(std::string_view text) {
  std::size_t end = text.find('\n');
  bool is_whole = end != std::string_view::npos && end + 1 < text.size() && text.ends_with('\n');
  if (!is_whole) return Error{Errc::Protocol, "it has not two lines"};
  auto message = decode_message(text.substr(end + 1, text.size() - end - 2));
  if (!message) return message.error();
  auto* left = std::get_if<request::Left>(&message->request);
  if (left == nullptr || left->knows.by.empty())
    return Error{Errc::Protocol, "it does not say what the node knew"};
  return NodeFile{.boot = std::string(text.substr(0, end)),
                  .run = std::move(message->run),
                  .node = {.name = coordinator::name_of(message->node),
                           .knows = std::move(left->knows),
                           .nodes = left->nodes,
                           .after = std::move(left->after),
                           .seen_of = std::move(left->seen_of)}};
}

}  // namespace ddprun::rendezvous
