// SPDX-License-Identifier: BSD-3-Clause
#include "store/socket_owner.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

namespace ddprun::store {
namespace {

struct Question {
  nlmsghdr header{};
  inet_diag_req_v2 request{};
};

// An end of a connection, as sock_diag names it: IPv4 as such, also on a socket of IPv6.
struct End {
  std::uint8_t family = AF_INET;
  std::uint16_t port = 0;  // in the order of the network
  std::array<std::uint32_t, 4> address{};
  std::uint32_t interface = 0;  // of a link-local address
};

End end_of(const sockaddr_storage& storage) {
  End end;
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    end.port = v4.sin_port;
    end.address[0] = v4.sin_addr.s_addr;
    return end;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
  end.port = v6.sin6_port;
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    std::memcpy(end.address.data(), &v6.sin6_addr.s6_addr[12], 4);
    return end;
  }
  end.family = AF_INET6;
  std::memcpy(end.address.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  end.interface = v6.sin6_scope_id;
  return end;
}

using GetName = int (*)(int, sockaddr*, socklen_t*);

std::optional<End> end_by(GetName get_name, int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (get_name(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
  return end_of(storage);
}

bool is_closed_by_peer(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
  return info.tcpi_state != TCP_ESTABLISHED;
}

Question question_about(const End& near, const End& far, std::uint32_t number) {
  Question question;
  question.header = {.nlmsg_len = sizeof question,
                     .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                     .nlmsg_flags = NLM_F_REQUEST,
                     .nlmsg_seq = number,
                     .nlmsg_pid = 0};
  inet_diag_req_v2& request = question.request;
  request.sdiag_family = near.family;
  request.sdiag_protocol = IPPROTO_TCP;
  request.idiag_states = ~0U;
  request.id.idiag_sport = near.port;
  request.id.idiag_dport = far.port;
  std::memcpy(request.id.idiag_src, near.address.data(), sizeof request.id.idiag_src);
  std::memcpy(request.id.idiag_dst, far.address.data(), sizeof request.id.idiag_dst);
  request.id.idiag_if = near.interface;
  request.id.idiag_cookie[0] = request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return question;
}

struct Answer {
  int error_number = 0;  // 0: the rest is valid
  std::uint32_t user = 0;
  std::uint32_t inode = 0;  // 0: no process has the socket, and `user` means nothing
  std::uint16_t far_port = 0;
};

// The kernel has answered when the question is sent.
Answer ask(int socket, const Question& question) {
  if (::send(socket, &question, sizeof question, MSG_DONTWAIT) < 0) return {.error_number = errno};
  for (;;) {
    alignas(nlmsghdr) std::array<char, 4096> buffer;
    ssize_t count = ::recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < static_cast<ssize_t>(sizeof(nlmsghdr)))
      return {.error_number = count < 0 ? errno : EPROTO};
    nlmsghdr header;
    std::memcpy(&header, buffer.data(), sizeof header);
    if (header.nlmsg_seq != question.header.nlmsg_seq) continue;  // to an earlier question
    const char* body = buffer.data() + NLMSG_HDRLEN;
    auto size = static_cast<std::size_t>(count) - NLMSG_HDRLEN;
    if (header.nlmsg_type == NLMSG_ERROR && size >= sizeof(nlmsgerr)) {
      nlmsgerr error;
      std::memcpy(&error, body, sizeof error);
      return {.error_number = error.error != 0 ? -error.error : EPROTO};
    }
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || size < sizeof(inet_diag_msg))
      return {.error_number = EPROTO};
    inet_diag_msg found;
    std::memcpy(&found, body, sizeof found);
    return {.user = found.idiag_uid, .inode = found.idiag_inode, .far_port = found.id.idiag_dport};
  }
}

}  // namespace

SocketOwners::SocketOwners(int listening_fd) {
  // Connected to the kernel, so that nothing else is heard.
  socket_ = Fd(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  std::optional<End> near = end_by(&::getsockname, listening_fd);
  bool answers =
      socket_ && near &&
      ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&kernel), sizeof kernel) == 0;
  if (answers) {
    End nowhere{.family = near->family};
    Answer answer = ask(socket_.get(), question_about(*near, nowhere, ++questions_));
    answers = answer.error_number == 0 && answer.inode != 0;
  }
  if (!answers) socket_ = Fd();
}

// A socket that has lost its process is root's, as the kernel has it, so that its inode counts.
// Of a connection that is gone the kernel may name the socket that listens at its port.
PeerProcess SocketOwners::peer_of(int fd) {
  if (!can_answer()) return {};
  std::optional<End> far = end_by(&::getpeername, fd);
  std::optional<End> near = end_by(&::getsockname, fd);
  if (!far || !near) return {.is = PeerProcess::Is::Gone};
  Answer answer = ask(socket_.get(), question_about(*far, *near, ++questions_));
  if (answer.error_number == 0 && answer.inode != 0 && answer.far_port == near->port)
    return {.is = PeerProcess::Is::Known, .user = answer.user};
  return {.is = is_closed_by_peer(fd) ? PeerProcess::Is::Gone : PeerProcess::Is::Absent};
}

}  // namespace ddprun::store
