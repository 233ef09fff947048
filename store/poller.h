// SPDX-License-Identifier: BSD-3-Clause
//
// Which of many descriptors are ready, asked for once a turn.  Waiting for each of them through
// Asio costs a system call per wait (epoll_ctl) and a handler per descriptor.  A poller has an
// epoll set of its own, which a descriptor enters once for as long as it is open; Asio waits for
// the set as a whole.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <span>
#include <utility>

#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::store {

// Threads: used from the executor's thread only.  Lifetime: the descriptors belong to their owners,
// which call remove() before they close one.
class Poller {
 public:
  struct Interest {
    bool readable = true;   // there is something to read, or the end
    bool writable = false;  // something can be written

    bool operator==(const Interest&) const = default;
  };

  // A descriptor by the id that it was added with.  One whose connection is broken counts as both;
  // where neither is of interest that is told once, and again after a change().
  struct Ready {
    std::uint64_t id;
    bool is_readable;
    bool is_writable;
    bool has_ended;  // the peer sends nothing more, or the connection is broken
  };

  // Fails with the system's code where there is no descriptor left for the set.
  static Result<Fd> make_set();

  Poller(boost::asio::any_io_executor executor, Fd set)
      : set_(std::move(executor), set.release()) {}

  // Watches for bytes.  Answers whether the system had room for it; errno says why not.
  [[nodiscard]] bool add(int fd, std::uint64_t id);
  void change(int fd, std::uint64_t id, Interest interest);
  void remove(int fd);

  // Calls `handler` as Asio's async_wait() does, once, when a descriptor is ready.
  template <class Handler>
  void async_wait(Handler&& handler) {
    set_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    std::forward<Handler>(handler));
  }

  // The descriptors that are ready now, at most kTurn; the next call answers the rest.
  // Valid until then.
  std::span<const Ready> ready();

  // async_wait() is cancelled.
  void close();

 private:
  static constexpr std::size_t kTurn = 256;

  boost::asio::posix::stream_descriptor set_;
  std::array<epoll_event, kTurn> events_;
  std::array<Ready, kTurn> ready_;
};

}  // namespace ddprun::store
