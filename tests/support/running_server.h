// SPDX-License-Identifier: BSD-3-Clause
//
// A store server on a free port, in a thread of its own, for tests whose clients block.
#pragma once

#include <doctest/doctest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/server.h"
#include "tests/support/raw_client.h"

namespace ddprun::test {

inline constexpr std::chrono::seconds kLimit{20};  // of every wait

class RunningServer {
 public:
  explicit RunningServer(store::ServerConfig config = {}) {
    if (config.listen.port == 29500) config.listen = {.host = "127.0.0.1", .port = 0};
    config.log = [this](const std::string& line) {
      std::lock_guard lock(mutex_);
      log_.push_back(line);
    };
    server_ = store::Server::listen(context_.get_executor(), std::move(config)).value();
    thread_ = std::thread([this] {
      auto work = boost::asio::make_work_guard(context_);
      context_.run();
    });
  }

  // What `question` finds out in the server's thread.
  template <class Question>
  auto ask(Question question) {
    auto answer = std::make_shared<std::promise<decltype(question(*server_))>>();
    auto future = answer->get_future();
    boost::asio::post(context_,
                      [this, answer, question] { answer->set_value(question(*server_)); });
    REQUIRE(future.wait_for(kLimit) == std::future_status::ready);
    return future.get();
  }

  ~RunningServer() {
    ask([](store::Server& server) {
      server.close();
      return 0;
    });
    context_.stop();
    thread_.join();
  }

  std::uint16_t port() const { return server_->port(); }

  // Waits until `claim` is true of the server.
  template <class Claim>
  bool becomes_true(Claim claim) {
    auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (!ask(claim)) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  bool has_waiters(std::size_t count) {
    return becomes_true(
        [count](store::Server& server) { return server.keyspace().wait_count() == count; });
  }

  bool has_connections(std::size_t count) {
    return becomes_true(
        [count](store::Server& server) { return server.connection_count() == count; });
  }

  std::vector<std::string> log() {
    std::lock_guard lock(mutex_);
    return log_;
  }

 private:
  boost::asio::io_context context_{1};
  std::unique_ptr<store::Server> server_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<std::string> log_;
};

inline RawClient client_of(RunningServer& server) {
  RawClient client(server.port());
  client.shake_hands();
  return client;
}

}  // namespace ddprun::test
