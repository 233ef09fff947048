// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/registered_host.h"

#include <utility>

#include "rendezvous/decide/host_search.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr Duration kPause = std::chrono::seconds(1);  // after a failure

}  // namespace

RegisteredHost::RegisteredHost(asio::any_io_executor executor, Parts parts)
    : parts_(std::move(parts)), pause_(executor), tasks_(executor) {
  parts_.registry->log_to(parts_.log);
}

RegisteredHost::~RegisteredHost() = default;

HostEntry RegisteredHost::entry(std::uint64_t generation) const {
  return {.generation = generation,
          .node = parts_.node,
          .at = at_,
          .says_file = says_file_,
          .file = file_};
}

store::Async<HostEntry> RegisteredHost::newest() {
  co_return co_await parts_.registry->newest();
}

store::Async<bool> RegisteredHost::claim(std::uint64_t generation, const Endpoint& at) {
  leave();
  at_ = at;
  const std::uint64_t hosting = hostings_;
  HostEntry own = entry(generation);
  auto claimed = co_await parts_.registry->claim(std::move(own));
  if (claimed && *claimed && hosting == hostings_) generation_ = generation;
  co_return claimed;
}

void RegisteredHost::keep(const Endpoint& at, RunFile file) {
  at_ = at;
  says_file_ = true;
  file_ = std::move(file);
  is_due_ = true;
  tasks_.spawn(write_down());
}

void RegisteredHost::drop() {
  says_file_ = true;
  file_.reset();
  if (generation_ == 0) return;
  is_due_ = true;
  tasks_.spawn(write_down());
}

void RegisteredHost::confirm() {
  if (!file_ || is_beginning_) return;
  generation_ = 0;
  is_due_ = true;
  tasks_.spawn(write_down());
}

asio::awaitable<void> RegisteredHost::write_down() {
  if (std::exchange(is_writing_, true)) co_return;
  while (is_open_ && is_due_) {
    is_due_ = false;
    auto written = co_await write_once();
    if (written) {
      is_told_ = false;
      continue;
    }
    is_due_ = true;
    say_once(written.error());
    co_await pause();
  }
  is_writing_ = false;
}

store::Async<void> RegisteredHost::write_once() {
  const std::uint64_t hosting = hostings_;
  if (generation_ > 0) {
    HostEntry own = entry(generation_);
    auto noted = co_await parts_.registry->note(std::move(own));
    if (!noted) co_return noted.error();
    if (hosting != hostings_ || *noted) co_return Result<void>{};
    generation_ = 0;
  }
  if (!file_) co_return Result<void>{};
  auto newest = co_await parts_.registry->newest();
  if (!newest) co_return newest.error();
  if (hosting != hostings_ || !file_) co_return Result<void>{};
  bool is_own = newest->generation > 0 && newest->node == parts_.node;
  if (is_own) {  // a claim that did not seem to have succeeded
    generation_ = newest->generation;
    is_due_ = true;
    co_return Result<void>{};
  }
  if (!host_search::is_to_claim(*newest, parts_.node, file_->round)) co_return Result<void>{};
  HostEntry next = entry(newest->generation + 1);
  auto claimed = co_await parts_.registry->claim(std::move(next));
  if (!claimed) co_return claimed.error();
  if (hosting != hostings_) co_return Result<void>{};
  if (*claimed) {
    generation_ = newest->generation + 1;
  } else {
    is_due_ = true;
  }
  co_return Result<void>{};
}

asio::awaitable<bool> RegisteredHost::may_begin(RunFile file) {
  const std::uint64_t hosting = hostings_;
  says_file_ = true;
  file_ = std::move(file);
  is_beginning_ = true;
  bool may = false;
  auto waits = [&] { return is_open_ && hosting == hostings_ && generation_ > 0; };
  while (waits()) {
    HostEntry own = entry(generation_);
    auto noted = co_await parts_.registry->note(std::move(own));
    if (!waits()) break;
    may = noted && *noted;
    if (noted) break;
    say_once(noted.error());
    co_await pause();
  }
  if (hosting == hostings_) is_beginning_ = false;
  co_return may;
}

void RegisteredHost::leave() {
  ++hostings_;
  generation_ = 0;
  is_beginning_ = false;
  says_file_ = false;
  file_.reset();
  is_due_ = false;
  pause_.cancel();
}

asio::awaitable<void> RegisteredHost::give_up() {
  if (generation_ == 0) co_return;
  HostEntry last = entry(generation_);
  last.is_over = true;
  leave();
  auto noted = co_await parts_.registry->note(std::move(last));
  if (!noted) say_once(noted.error());
}

void RegisteredHost::say_once(const Error& error) {
  if (!is_open_ || std::exchange(is_told_, true)) return;
  parts_.log("it cannot be written down that this node hosts the run; trying again: " +
             to_string(error));
}

asio::awaitable<void> RegisteredHost::pause() {
  asio::steady_timer& timer = pause_;
  timer.expires_after(kPause);
  co_await store::wait_for(timer);
}

void RegisteredHost::close() {
  is_open_ = false;
  parts_.registry->close();
  pause_.cancel();
}

asio::awaitable<void> RegisteredHost::stop() {
  close();
  tasks_.cancel();
  co_await tasks_.join();
  co_await parts_.registry->stop();
}

}  // namespace ddprun::rendezvous
