// SPDX-License-Identifier: BSD-3-Clause
//
// A peer of the store's server that sends and expects plain bytes, so that a test can say what no
// well-behaved client would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "store/base/fd.h"
#include "store/decide/wire.h"
#include "store/socket.h"

namespace ddprun::test {

// Threads: one.  Every wait has a limit, after which the call answers as far as it got.
class RawClient {
 public:
  // Connects to 127.0.0.1, or to another numeric address.
  explicit RawClient(std::uint16_t port, const std::string& host = "127.0.0.1");
  // Of a connection that is there already; its calls block from now on.
  explicit RawClient(Fd fd);

  // Sends all of `bytes`; false once the peer has closed.
  bool send(std::string_view bytes);

  // The handshake, and requests.
  RawClient& shake_hands();
  RawClient& send(const store::Request& request);

  // The next `count` bytes; fewer where the peer closed, or nothing more came in time.
  std::string receive(std::size_t count);
  std::string receive_all();  // until the peer closes

  // The next reply of this form.
  int receive_byte();  // -1 for none
  std::int64_t receive_number();
  std::string receive_bytes();

  // Whether the peer has closed the connection, or does so now.
  bool is_closed();

  // Whether nothing arrives for a moment.  It cannot prove that nothing ever will: ask it only
  // after an answer to something sent later has been seen, where there is one.
  bool is_silent();

  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

}  // namespace ddprun::test
