// SPDX-License-Identifier: BSD-3-Clause
//
// The store from C++: a few processes find out who the others are.  It needs no LibTorch, and works
// with `ddpd`, with the store of a `ddprun` launch, and with torch's own TCPStore.
//
//   ddpd --listen 127.0.0.1:29500 &
//   for rank in 0 1 2; do store_client 127.0.0.1:29500 $rank 3 & done; wait
//
// prints, from each process, in any order:
//
//   rank 1 of 3: number 2 at the door; here are process 4711, process 4712, process 4713
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "store/base/endpoint.h"
#include "store/client.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

// Every call answers with a Result: the value, or an error that says what was asked of whom.
store::Async<std::string> meet(store::Client& client, int rank, int world_size) {
  // A prefix keeps our keys apart from those of others who use the same store.
  const std::string prefix = "members/";
  auto set =
      co_await client.set(prefix + std::to_string(rank), "process " + std::to_string(::getpid()));
  if (!set) co_return set.error();

  // A counter: each process gets another number.
  auto number = co_await client.add(prefix + "arrived", 1);
  if (!number) co_return number.error();

  // multi_get waits for its keys, so this is also where all wait for the slowest.
  std::vector<std::string> keys;
  for (int i = 0; i < world_size; ++i) keys.push_back(prefix + std::to_string(i));
  auto everybody = co_await client.multi_get(keys, 30s);
  if (!everybody) co_return everybody.error();

  std::string text = "number " + std::to_string(*number) + " at the door; here are ";
  for (std::size_t i = 0; i < everybody->size(); ++i) {
    text += (i > 0 ? ", " : "") + everybody->at(i);
  }
  co_return text;
}

boost::asio::awaitable<void> run(boost::asio::io_context& context, Endpoint endpoint, int rank,
                                 int world_size, int& exit_code) {
  auto client = co_await store::Client::connect(context.get_executor(), endpoint);
  Result<std::string> outcome = std::string();
  if (client) {
    outcome = co_await meet(**client, rank, world_size);
  } else {
    outcome = client.error();
  }
  if (outcome) {
    std::string self = "rank " + std::to_string(rank) + " of " + std::to_string(world_size);
    std::cout << self + ": " + *outcome + "\n" << std::flush;
  } else {
    std::cerr << "store_client: " + to_string(outcome.error()) + "\n";
  }
  exit_code = outcome ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  auto endpoint = parse_endpoint(argc > 1 ? argv[1] : "", 29500);
  if (argc != 4 || !endpoint) {
    std::cerr << "usage: store_client HOST:PORT RANK WORLD_SIZE\n";
    return 2;
  }
  int exit_code = 1;
  boost::asio::io_context context(1);
  boost::asio::co_spawn(context,
                        run(context, *endpoint, std::atoi(argv[2]), std::atoi(argv[3]), exit_code),
                        boost::asio::detached);
  context.run();
  return exit_code;
}
