// SPDX-License-Identifier: BSD-3-Clause
//
// A TCPStore server that stores nothing: one thread, one epoll loop, requests skipped field by
// field, replies that are always the same.  It is the least that one thread can do with the same
// system calls, and so the limit that scripts/bench/store holds a real server against.
//
// A GET is answered with a value of VALUE_BYTES; a WAIT for n keys once n keys were set; a BARRIER
// once it is complete.
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/base/fd.h"
#include "store/decide/wire.h"
#include "store/socket.h"

using namespace ddprun::store;
using ddprun::Fd;

namespace {

// What follows each of torch's operations, by its number: k and v have a length in front, n is a
// count of what follows, i and u are numbers.
constexpr std::array<std::string_view, 19> kFields = {"u",  "kv", "kvv", "k",  "ki",  "nk", "nk",
                                                      "",   "k",  "kv",  "nk", "nkv", "",   "u",
                                                      "kv", "k",  "k",   "",   "ki"};

std::string_view fields_of(Op op) {
  auto number = static_cast<std::size_t>(op);
  return number < kFields.size() ? kFields[number] : "";
}

struct Client {
  Fd fd;
  std::string output;
  std::size_t sent = 0;
  bool wants_room = false;

  // Where in a request it is.
  bool has_op = false;
  Op op = Op::Validate;
  std::size_t field = 0;
  std::uint64_t count = 0, repeats_left = 0, number = 0;
  std::size_t skip = 0;         // bytes of a key or value to be passed over
  std::array<char, 8> pending;  // the beginning of a number
  std::size_t pending_size = 0;
};

class BareLoop {
 public:
  BareLoop(Fd listener, std::size_t value_bytes)
      : listener_(std::move(listener)), epoll_(::epoll_create1(0)) {
    encode_length(value_bytes, value_);
    value_.append(value_bytes, 'v');
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event);
  }

  [[noreturn]] void run() {
    std::array<epoll_event, 256> events;
    for (;;) {
      int count = ::epoll_wait(epoll_.get(), events.data(), int(events.size()), -1);
      for (int i = 0; i < count; ++i) {
        auto* client = static_cast<Client*>(events[std::size_t(i)].data.ptr);
        if (client == nullptr) {
          accept_all();
        } else if (client->wants_room) {
          flush(*client);
        } else {
          read_from(*client);
        }
      }
      gone_.clear();
    }
  }

 private:
  void accept_all() {
    while (Fd fd = accept_from(listener_.get())) {
      auto client = std::make_unique<Client>();
      client->fd = std::move(fd);
      epoll_event event{.events = EPOLLIN, .data = {.ptr = client.get()}};
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, client->fd.get(), &event);
      Client* key = client.get();
      clients_.emplace(key, std::move(client));
    }
  }

  void read_from(Client& client) {
    ssize_t count = ::recv(client.fd.get(), input_.data(), input_.size(), 0);
    if (count <= 0) return lose(client);
    skip_requests(client, {input_.data(), std::size_t(count)});
    flush(client);
  }

  // Kept until the end of the turn, because events of it may follow.
  void lose(Client& client) {
    auto found = clients_.find(&client);
    if (found == clients_.end()) return;
    client.fd = Fd();
    gone_.push_back(std::move(found->second));
    clients_.erase(found);
    std::erase_if(waits_, [&](auto& wait) { return wait.first == &client; });
  }

  void skip_requests(Client& client, std::string_view bytes) {
    for (;;) {
      std::size_t passed = std::min(client.skip, bytes.size());
      client.skip -= passed;
      bytes.remove_prefix(passed);
      if (client.skip > 0) return;
      std::string_view fields = fields_of(client.op);
      if (client.has_op && client.field == fields.size()) {
        bool repeats = !fields.empty() && fields[0] == 'n' && client.repeats_left > 0;
        if (repeats && --client.repeats_left > 0) {
          client.field = 1;
        } else {
          client.has_op = false;
          answer(client);
        }
        continue;
      }
      if (bytes.empty()) return;
      if (!client.has_op) {
        client.op = static_cast<Op>(bytes[0]);
        client.has_op = true;
        client.field = 0;
        client.repeats_left = client.count = 0;
        bytes.remove_prefix(1);
      } else if (!skip_field(client, fields[client.field], bytes)) {
        return;
      }
    }
  }

  // Reads one number, which may be the length of what is then passed over.
  bool skip_field(Client& client, char kind, std::string_view& bytes) {
    std::size_t size = kind == 'u' ? 4 : 8;
    std::size_t taken = std::min(size - client.pending_size, bytes.size());
    std::memcpy(client.pending.data() + client.pending_size, bytes.data(), taken);
    client.pending_size += taken;
    bytes.remove_prefix(taken);
    if (client.pending_size < size) return false;
    client.pending_size = 0;
    std::uint64_t number = 0;
    std::memcpy(&number, client.pending.data(), size);
    ++client.field;
    if (kind == 'k' || kind == 'v') client.skip = number;
    if (kind == 'n') client.count = client.repeats_left = number;
    if (kind == 'i') client.number = number;
    if (kind == 'n' && number == 0) client.field = fields_of(client.op).size();
    return true;
  }

  void answer(Client& client) {
    Op op = client.op;
    if (op == Op::Ping) client.output.append(4, '\1');
    if (op == Op::Get || op == Op::CompareSet) client.output += value_;
    if (op == Op::Add || op == Op::DeleteKey) client.output.append(8, '\1');
    if (op == Op::Check) client.output.push_back(0);
    if (op == Op::MultiGet) {
      for (std::uint64_t i = 0; i < client.count; ++i) client.output += value_;
    }
    if (op == Op::Set) wake(client, ++set_count_);
    if (op == Op::Wait) await(client, client.count);
    if (op == Op::Barrier) {
      waits_.emplace_back(&client, 0);
      if (waits_.size() >= client.number) wake(client, 0);
    }
  }

  void await(Client& client, std::uint64_t count) {
    if (count > set_count_) {
      waits_.emplace_back(&client, count);
    } else {
      client.output.push_back(0);
    }
  }

  // Answers those whose WAIT is for so many keys, or whose BARRIER is complete.
  void wake(Client& current, std::uint64_t count) {
    if (waits_.empty()) return;
    std::erase_if(waits_, [&](auto& wait) {
      if (wait.second > count) return false;
      wait.first->output.push_back(0);
      if (wait.first != &current) flush(*wait.first);
      return true;
    });
  }

  void flush(Client& client) {
    while (client.sent < client.output.size()) {
      ssize_t count = ::send(client.fd.get(), client.output.data() + client.sent,
                             client.output.size() - client.sent, MSG_NOSIGNAL);
      if (count < 0) return want_room(client, errno == EAGAIN);
      client.sent += std::size_t(count);
    }
    client.output.clear();
    client.sent = 0;
    want_room(client, false);
  }

  void want_room(Client& client, bool wants) {
    if (client.wants_room == wants) return;
    client.wants_room = wants;
    epoll_event event{.events = std::uint32_t(wants ? EPOLLOUT : EPOLLIN),
                      .data = {.ptr = &client}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.fd.get(), &event);
  }

  Fd listener_;
  Fd epoll_;
  std::string value_;
  std::uint64_t set_count_ = 0;
  std::vector<std::pair<Client*, std::uint64_t>> waits_;
  std::unordered_map<Client*, std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<Client>> gone_;
  std::array<char, 64 * 1024> input_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    std::fprintf(stderr, "usage: bare_loop [VALUE_BYTES]\n");
    return 2;
  }
  auto listener = listen_on({.host = "127.0.0.1", .port = 0});
  if (!listener) {
    std::fprintf(stderr, "bare_loop: %s\n", to_string(listener.error()).c_str());
    return 1;
  }
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::printf("listening on 127.0.0.1:%d\n", int(local_port(listener->get()).value()));
  std::fflush(stdout);
  BareLoop(std::move(*listener), argc > 1 ? std::size_t(std::atoll(argv[1])) : 64).run();
}
