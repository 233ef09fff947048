// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/node_security.h"

#include "rendezvous/decide/exposure.h"

namespace ddprun::rendezvous {

NodeSecurity::NodeSecurity(boost::asio::any_io_executor executor, const NetworkConfig& config)
    : config_(config) {
  if (config_.munge && !config_.secret) munge_.emplace(executor, config_.munge->socket);
}

store::Async<void> NodeSecurity::prepare() {
  if (!munge_ || munge_->is_ready()) co_return Result<void>{};
  auto prepared = co_await munge_->prepare();
  if (prepared) co_return prepared;
  bool will_not_change = prepared.error().code == Errc::NotSupported;
  if (will_not_change && config_.munge->is_required)
    co_return Error{Errc::InvalidInput, to_string(prepared.error())};
  if (!will_not_change) co_return Error{Errc::Closed, to_string(prepared.error())};
  munge_.reset();
  obstacle_ = to_string(prepared.error());
  co_return Result<void>{};
}

void NodeSecurity::add_to(store::ClientConfig& client) {
  if (config_.secret) client.secret = &*config_.secret;
  if (munge_) client.munge = &*munge_;
}

void NodeSecurity::add_to(store::ServerConfig& server) const {
  if (config_.secret) server.secrets.push_back(*config_.secret);
  if (munge_) {
    server.secrets.push_back(munge_->secret());
    server.credential = munge_->credential();
  }
  // Of the static backend the workers are there, too.
  bool is_static = config_.member.node.settings.master.has_value();
  server.serves_strangers = server.secrets.empty() || is_static;
}

std::string NodeSecurity::exposure(const Endpoint& listening) const {
  if (config_.secret || munge_) return "";
  std::string text = describe_exposure(listening, !config_.allow.empty(), "--rdzv-secret-file");
  if (text.empty() || obstacle_.empty()) return text;
  return text + " (" + obstacle_ + ")";
}

}  // namespace ddprun::rendezvous
