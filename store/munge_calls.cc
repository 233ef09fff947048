// SPDX-License-Identifier: BSD-3-Clause
#include "store/munge_calls.h"

#include <utility>

#include "store/detached_call.h"

namespace ddprun::store {

MungeCalls::MungeCalls(boost::asio::any_io_executor executor, std::string socket)
    : executor_(std::move(executor)), socket_(std::move(socket)) {}

Async<void> MungeCalls::prepare() {
  if (!munge_) {
    Result<Munge> loaded = Munge::load(socket_);
    if (!loaded) co_return loaded.error();
    munge_ = std::make_shared<Munge>(std::move(*loaded));
  }
  std::function<Result<std::string>()> work = [munge = munge_,
                                               secret = secret_]() -> Result<std::string> {
    Result<std::string> credential = munge->seal(secret);
    if (!credential) return credential;
    Result<Secret> opened = munge->open(*credential);
    if (opened && opened->key() == secret.key()) return credential;
    if (!opened && opened.error().code == Errc::Closed) return opened.error();
    return Error{Errc::NotSupported,
                 "MUNGE: munged sees another user than this process does (a user namespace?)"};
  };
  auto credential = co_await call_detached(executor_, std::move(work));
  if (!credential) co_return credential.error();
  credential_ = std::move(*credential);
  co_return Result<void>{};
}

Async<Secret> MungeCalls::open(std::string credential) {
  if (opened_ && opened_->credential == credential) co_return opened_->secret;
  std::function<Result<Secret>()> work = [munge = munge_, credential] {
    return munge->open(credential);
  };
  auto secret = co_await call_detached(executor_, std::move(work));
  if (secret) opened_ = Opened{.credential = std::move(credential), .secret = *secret};
  co_return secret;
}

}  // namespace ddprun::store
