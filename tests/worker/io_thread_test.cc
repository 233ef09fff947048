// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/io_thread.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace ddprun;
using namespace ddprun::process;

TEST_SUITE("worker/process/io_thread") {
  // It may hold what belongs to the event loop, as a timer, and the thread may outlive that.
  TEST_CASE("what is to follow a call is gone with the owner, also while the call runs") {
    boost::asio::io_context loop;
    auto disk = std::make_unique<IoThread>(loop.get_executor(), [](const IoThread::Stall&) {});
    auto begun = std::make_shared<std::promise<void>>();
    auto release = std::make_shared<std::promise<void>>();
    auto held = std::make_shared<int>(0);
    std::weak_ptr<int> is_held = held;
    disk->run(
        "stand still",
        [begun, release] {
          begun->set_value();
          release->get_future().wait();
        },
        [held = std::move(held)] {});
    begun->get_future().wait();
    CHECK_FALSE(is_held.expired());
    disk.reset();
    CHECK(is_held.expired());
    release->set_value();
  }

  TEST_CASE("a call that throws is reported and has ended, and the next one runs") {
    boost::asio::io_context loop;
    auto said = std::make_shared<std::vector<std::string>>();
    IoThread disk(loop.get_executor(), [said](const IoThread::Stall& stall) {
      said->push_back(stall.what + ": " + stall.failure);
    });
    disk.run(
        "pack it", [] { throw std::runtime_error("no memory"); },
        [said] { said->push_back("done"); });
    disk.run("say it", [said] { said->push_back("said"); });
    loop.run();
    std::ranges::sort(*said);  // the second call may be the first that is seen
    CHECK(*said == std::vector<std::string>{"done", "pack it: it has thrown no memory", "said"});
    CHECK(disk.is_idle());
  }

  TEST_CASE("a thread that was started early has nothing to do, and runs the first call") {
    boost::asio::io_context loop;
    auto said = std::make_shared<std::vector<std::string>>();
    IoThread disk(loop.get_executor(), [](const IoThread::Stall&) {});
    disk.start_early();
    disk.start_early();
    CHECK(disk.is_idle());
    disk.run(
        "say it", [said] { said->push_back("said"); }, [said] { said->push_back("done"); });
    loop.run();
    CHECK(*said == std::vector<std::string>{"said", "done"});
  }
}
