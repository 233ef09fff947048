// SPDX-License-Identifier: BSD-3-Clause
#include "tests/bench/load.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "store/base/check.h"

namespace ddprun::bench {
using namespace store;

namespace {

constexpr int kPatienceMs = 120'000;

sockaddr_in loopback(std::uint32_t offset, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + offset);
  address.sin_port = htons(port);
  return address;
}

}  // namespace

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string bytes_of(std::initializer_list<Request> requests) {
  std::string bytes;
  for (const Request& request : requests) encode(request, bytes);
  return bytes;
}

Load::Load(std::uint16_t port, int source_count)
    : port_(port), source_count_(source_count), epoll_(::epoll_create1(0)) {
  check(bool(epoll_), "no epoll");
}

Connection& Load::connect() {
  auto connection = std::make_unique<Connection>();
  connection->fd = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  connection->index = connections_.size();
  int fd = connection->fd.get();
  check(fd >= 0, "out of descriptors");
  int one = 1;
  if (source_count_ > 1) {
    ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    auto source = static_cast<std::uint32_t>(connection->index % std::size_t(source_count_));
    sockaddr_in address = loopback(1 + source, 0);
    check(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "cannot bind");
  }
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  sockaddr_in address = loopback(0, port_);
  int outcome = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  check(outcome == 0 || errno == EINPROGRESS, "cannot connect");
  connection->wants_room = true;
  epoll_event event{.events = EPOLLIN | EPOLLOUT, .data = {.ptr = connection.get()}};
  check(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, "cannot watch a socket");
  connections_.push_back(std::move(connection));
  return *connections_.back();
}

void Load::send(Connection& connection, std::string_view bytes, std::size_t awaited) {
  connection.output.append(bytes);
  connection.awaited += awaited;
  connection.began = Clock::now();
  flush(connection);
}

void Load::run_until(const std::function<bool()>& is_done) {
  while (!is_done()) check(run_once(kPatienceMs), "the server has said nothing for two minutes");
}

void Load::run_for(int milliseconds) {
  auto begin = Clock::now();
  for (;;) {
    int left = milliseconds - static_cast<int>(seconds_since(begin) * 1e3);
    if (left <= 0) return;
    run_once(left);
  }
}

void Load::ask(Connection& connection, std::string_view bytes, std::size_t awaited) {
  bool is_answered = false;
  on_turn = [&](Connection& one) { is_answered |= &one == &connection; };
  send(connection, bytes, awaited);
  run_until([&] { return is_answered; });
}

void Load::greet(int count) {
  int greeted = 0;
  on_turn = [&](Connection&) { ++greeted; };
  std::string hello = bytes_of({request::Validate{}, request::Ping{1}, request::Add{"init/", 1}});
  for (int i = 0; i < count; ++i) send(connect(), hello, 4 + 8);
  run_until([&] { return greeted == count; });
}

bool Load::run_once(int timeout_ms) {
  std::array<epoll_event, 256> events;
  int count = ::epoll_wait(epoll_.get(), events.data(), int(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) {
    auto& connection = *static_cast<Connection*>(events[std::size_t(i)].data.ptr);
    if (events[std::size_t(i)].events & EPOLLOUT) flush(connection);
    if (events[std::size_t(i)].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(connection);
  }
  return count > 0;
}

void Load::flush(Connection& connection) {
  while (connection.sent < connection.output.size()) {
    ssize_t count = ::send(connection.fd.get(), connection.output.data() + connection.sent,
                           connection.output.size() - connection.sent, MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EAGAIN || errno == ENOTCONN) return want_room(connection, true);
      return lose(connection);
    }
    connection.sent += std::size_t(count);
  }
  connection.output.clear();
  connection.sent = 0;
  want_room(connection, false);
}

void Load::want_room(Connection& connection, bool wants) {
  if (connection.wants_room == wants) return;
  connection.wants_room = wants;
  epoll_event event{.events = EPOLLIN | (wants ? std::uint32_t(EPOLLOUT) : 0u),
                    .data = {.ptr = &connection}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), &event);
}

void Load::receive(Connection& connection) {
  ssize_t count = ::recv(connection.fd.get(), input_.data(), input_.size(), 0);
  if (count < 0 && errno == EAGAIN) return;
  if (count <= 0) return lose(connection);
  check(std::size_t(count) <= connection.awaited, "more came than was asked for");
  connection.awaited -= std::size_t(count);
  if (connection.awaited == 0 && on_turn) on_turn(connection);
}

void Load::lose(Connection& connection) {
  check(connection.may_be_closed, "the server closed a connection");
  connection.fd = Fd();
}

}  // namespace ddprun::bench
