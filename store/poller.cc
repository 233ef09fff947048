// SPDX-License-Identifier: BSD-3-Clause
#include "store/poller.h"

#include <cerrno>

namespace ddprun::store {
namespace {

epoll_event event_of(std::uint64_t id, Poller::Interest interest) {
  epoll_event event{};
  if (interest.readable) event.events |= EPOLLIN | EPOLLRDHUP;
  if (interest.writable) event.events |= EPOLLOUT;
  // That a connection is broken is told always.  Who cannot do anything about it yet is told once,
  // not at each look.
  if (event.events == 0) event.events = EPOLLONESHOT;
  event.data.u64 = id;
  return event;
}

}  // namespace

Result<Fd> Poller::make_set() {
  Fd set(::epoll_create1(EPOLL_CLOEXEC));
  if (!set) return system_error(errno, "make an epoll set");
  return set;
}

bool Poller::add(int fd, std::uint64_t id) {
  epoll_event event = event_of(id, {});
  return ::epoll_ctl(set_.native_handle(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Poller::change(int fd, std::uint64_t id, Interest interest) {
  epoll_event event = event_of(id, interest);
  ::epoll_ctl(set_.native_handle(), EPOLL_CTL_MOD, fd, &event);
}

void Poller::remove(int fd) {
  epoll_event event{};
  ::epoll_ctl(set_.native_handle(), EPOLL_CTL_DEL, fd, &event);
}

std::span<const Poller::Ready> Poller::ready() {
  int count = ::epoll_wait(set_.native_handle(), events_.data(), int{kTurn}, 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events_[static_cast<std::size_t>(i)];
    bool is_broken = (event.events & (EPOLLERR | EPOLLHUP)) != 0;
    ready_[static_cast<std::size_t>(i)] = {
        .id = event.data.u64,
        .is_readable = is_broken || (event.events & EPOLLIN) != 0,
        .is_writable = is_broken || (event.events & EPOLLOUT) != 0,
        .has_ended = is_broken || (event.events & EPOLLRDHUP) != 0};
  }
  return {ready_.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
}

void Poller::close() {
  boost::system::error_code ignored;
  set_.close(ignored);
}

}  // namespace ddprun::store
