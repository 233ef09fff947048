// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/engine.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <numeric>
#include <random>
#include <thread>

namespace {

using namespace ddprun::ddp::shm;
using namespace std::chrono_literals;
using Floats = std::vector<float>;
using Problem = std::optional<std::string>;

constexpr auto kTimeout = 60s;

Request all_reduce(Floats& values, std::chrono::milliseconds timeout = kTimeout) {
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  return {.fingerprint = {.collective = Collective::AllReduce,
                          .element = Element::Float32,
                          .reduction = Reduction::Sum,
                          .bytes = values.size() * sizeof(float)},
          .input = bytes,
          .output = bytes,
          .timeout = timeout};
}

Request broadcast(Floats& values, int root) {
  Request request = all_reduce(values);
  request.fingerprint = {
      .collective = Collective::Broadcast, .root = root, .bytes = values.size() * sizeof(float)};
  return request;
}

// On the root `values` has the sum afterwards, elsewhere anything.
Request reduce(Floats& values, int root) {
  Request request = all_reduce(values);
  request.fingerprint.collective = Collective::Reduce;
  request.fingerprint.root = root;
  return request;
}

// On the root `all` has the values of each rank afterwards, one after the other.
Request gather(const Floats& values, Floats& all, int root, const Engine& engine) {
  Request request{.fingerprint = {.collective = Collective::Gather,
                                  .root = root,
                                  .bytes = values.size() * sizeof(float)},
                  .input = reinterpret_cast<const std::byte*>(values.data()),
                  .timeout = kTimeout};
  if (engine.rank() != root) return request;
  const auto ranks = static_cast<std::size_t>(engine.ranks());
  all.resize(values.size() * ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    request.parts.push_back(reinterpret_cast<std::byte*>(all.data() + rank * values.size()));
  }
  return request;
}

Request barrier(std::chrono::milliseconds timeout = kTimeout) {
  return {.fingerprint = {.collective = Collective::Barrier}, .timeout = timeout};
}

Problem run(Engine& engine, const Request& request) {
  return engine.wait(engine.submit(request, Engine::Start::ByWaiter, nullptr, nullptr));
}

std::unique_ptr<Engine> engine_of(std::unique_ptr<Segment> segment, int rank,
                                  const std::vector<int>& pids) {
  auto channel = Channel::open(std::move(segment), rank, pids);
  if (!channel) throw std::runtime_error(to_string(channel.error()));
  return std::make_unique<Engine>(std::move(*channel));
}

// The engines of `ranks` ranks that are all in this process.
std::vector<std::unique_ptr<Engine>> make_engines(int ranks, Layout layout = {}) {
  layout.ranks = ranks;
  std::unique_ptr<Segment> first = std::move(Segment::create(layout)).value();
  std::vector<int> pids(static_cast<std::size_t>(ranks), ::getpid());
  std::vector<std::unique_ptr<Engine>> engines(static_cast<std::size_t>(ranks));
  for (int rank = 1; rank < ranks; ++rank) {
    engines[static_cast<std::size_t>(rank)] =
        engine_of(std::move(Segment::open(first->address(), layout)).value(), rank, pids);
  }
  first->close_descriptor();
  engines[0] = engine_of(std::move(first), 0, pids);
  return engines;
}

// Runs `body` for every engine in a thread of its own.  Closes them at the end.
void on_all(std::vector<std::unique_ptr<Engine>> engines,
            const std::function<void(Engine&)>& body) {
  std::vector<std::thread> threads;
  for (auto& engine : engines) {
    threads.emplace_back([&body, engine = std::move(engine)]() mutable {
      body(*engine);
      engine.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Rank `rank` of `ranks` in a process of its own, forked before any thread is made.
class Child {
 public:
  Child(int rank, int ranks, const std::function<void(Engine&)>& body) {
    REQUIRE(::pipe(start_) == 0);
    pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      Start start{};
      if (::read(start_[0], &start, sizeof start) != sizeof start) ::_exit(2);
      auto segment = Segment::open({start.pid, start.fd, std::string(start.token, 32)},
                                   Layout{.ranks = ranks});
      if (!segment) ::_exit(3);
      std::vector<int> pids(start.pids, start.pids + ranks);
      body(*engine_of(std::move(*segment), rank, pids));
      ::_exit(0);
    }
  }
  ~Child() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    ::close(start_[0]);
    ::close(start_[1]);
  }

  void start(const Address& address, const std::vector<int>& pids) const {
    Start start{.pid = address.pid, .fd = address.fd, .token = {}, .pids = {}};
    address.token.copy(start.token, sizeof start.token);
    std::copy(pids.begin(), pids.end(), start.pids);
    REQUIRE(::write(start_[1], &start, sizeof start) == sizeof start);
  }

  int pid = -1;

 private:
  struct Start {
    int pid;
    int fd;
    char token[32];
    int pids[4];
  };
  int start_[2] = {-1, -1};
};

// Starts the children as ranks 1, 2, ... and returns rank 0's engine.
std::unique_ptr<Engine> start_all(const std::vector<Child*>& children) {
  Layout layout{.ranks = static_cast<int>(children.size()) + 1};
  std::unique_ptr<Segment> segment = std::move(Segment::create(layout)).value();
  std::vector<int> pids{::getpid()};
  for (Child* child : children) pids.push_back(child->pid);
  for (Child* child : children) child->start(segment->address(), pids);
  return engine_of(std::move(segment), 0, pids);
}

[[noreturn]] void stand_still() {
  while (true) ::pause();
}

std::string said(const Problem& problem) {
  return problem.value_or("(nothing)");
}

int mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("ddprun-shm") != std::string::npos;
  }
  return count;
}

std::ptrdiff_t descriptors() {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

}  // namespace

// First, since a child must be forked while the test has no other thread.
TEST_SUITE("ddp/shm/engine with processes") {
  TEST_CASE("a peer that dies is named at once by who waits for it") {
    Child peer(1, 2, [](Engine& engine) {
      Floats values(10, 2);
      run(engine, all_reduce(values));
      ::kill(::getpid(), SIGKILL);
    });
    auto engine = start_all({&peer});
    Floats values(10, 1);
    CHECK(said(run(*engine, all_reduce(values))) == "(nothing)");
    CHECK(values[9] == 3);
    const std::string expected =
        "rank 1 of 2 has died while others wait for it in all_reduce (sum) of 10 float";
    CHECK(said(run(*engine, all_reduce(values))) == expected);
    CHECK(said(run(*engine, barrier())) == expected);
  }

  TEST_CASE("wherever a peer is killed, both others end, and name it") {
    const std::uint64_t seed = std::random_device{}();
    MESSAGE("seed " << seed);
    std::mt19937_64 random(seed);
    for (int game = 0; game < 6; ++game) {
      auto train = [](Engine& engine) {
        Floats large(1 << 20, 1);
        Floats small(100, 1);
        while (true) {
          Problem problem = run(engine, all_reduce(large));
          if (!problem) problem = run(engine, broadcast(small, 2));
          if (problem) return *problem;
        }
      };
      auto train_and_tell = [&](Engine& engine) {
        ::_exit(train(engine).starts_with("rank 2 of 3 has died") ? 7 : 8);
      };
      Child first(1, 3, train_and_tell);
      Child second(2, 3, train_and_tell);
      auto engine = start_all({&first, &second});
      std::thread killer([&, microseconds = random() % 30000] {
        std::this_thread::sleep_for(std::chrono::microseconds(microseconds));  // anywhere
        ::kill(second.pid, SIGKILL);
      });
      const std::string problem = train(*engine);
      killer.join();
      CHECK(problem.starts_with("rank 2 of 3 has died"));
      int status = 0;
      CHECK(::waitpid(first.pid, &status, 0) == first.pid);
      const bool has_named_it = WIFEXITED(status) && WEXITSTATUS(status) == 7;
      CHECK(has_named_it);
    }
  }

  TEST_CASE("what a peer gave before its end is not lost") {
    Child peer(1, 2, [](Engine& engine) {
      Floats values(1000, 5);
      engine.submit(broadcast(values, 1), Engine::Start::Now, nullptr, nullptr);
      ::kill(::getpid(), SIGKILL);
    });
    auto engine = start_all({&peer});
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(peer.pid), &info, WEXITED | WNOWAIT) == 0);
    Floats values(1000, 0);
    CHECK(said(run(*engine, broadcast(values, 1))) == "(nothing)");
    CHECK(values == Floats(1000, 5));
  }

  TEST_CASE("a peer that stands still is named when the time is over, and told when it wakes") {
    Child peer(1, 2, [](Engine&) { stand_still(); });
    auto engine = start_all({&peer});
    Floats values(100'000, 1);
    CHECK(said(run(*engine, all_reduce(values, 200ms))) ==
          "rank 1 of 2 did not come to all_reduce (sum) of 100000 float within 0.2 s");
  }

  TEST_CASE("a segment is opened where vm.memfd_noexec adds a seal of its own") {
    // In a namespace of processes of its own, whose setting it is.
    const pid_t outer = ::fork();
    REQUIRE(outer >= 0);
    if (outer == 0) {
      if (::unshare(CLONE_NEWPID) != 0) ::_exit(77);
      const pid_t inner = ::fork();
      if (inner == 0) {
        std::ofstream setting("/proc/sys/vm/memfd_noexec");
        if (!(setting << "1" << std::flush)) ::_exit(77);
        const Layout layout{.ranks = 2};
        auto segment = Segment::create(layout);
        if (!segment) ::_exit(2);
        Address address = (*segment)->address();
        address.pid = std::stoi(std::filesystem::read_symlink("/proc/self").string());
        ::_exit(Segment::open(address, layout) ? 0 : 3);
      }
      int status = 0;
      ::waitpid(inner, &status, 0);
      ::_exit(WEXITSTATUS(status));
    }
    int status = 0;
    REQUIRE(::waitpid(outer, &status, 0) == outer);
    if (WEXITSTATUS(status) == 77) {
      MESSAGE("not tried: no namespace can be made here, or the kernel has no such setting");
      return;
    }
    CHECK(WEXITSTATUS(status) == 0);
  }

  TEST_CASE("a segment is opened only by who knows its token, and not after the door is closed") {
    Layout layout{.ranks = 2};
    std::unique_ptr<Segment> segment = std::move(Segment::create(layout)).value();
    Address address = segment->address();
    CHECK(Segment::open(address, layout).has_value());
    Address wrong = address;
    wrong.token[0] = wrong.token[0] == '0' ? '1' : '0';
    CHECK(!Segment::open(wrong, layout).has_value());
    CHECK(!Segment::open(address, Layout{.ranks = 3}).has_value());
    segment->close_descriptor();
    CHECK(!Segment::open(address, layout).has_value());
  }
}

TEST_SUITE("ddp/shm/engine") {
  TEST_CASE("random collectives on 1 to 4 ranks, several under way at once") {
    const std::uint64_t seed = std::random_device{}();
    MESSAGE("seed " << seed);
    for (int ranks = 1; ranks <= 4; ++ranks) {
      CAPTURE(ranks);
      std::atomic<int> wrong = 0;
      // Small slots, so that much happens with little data.
      on_all(make_engines(ranks, {.slot_bytes = 4096}), [&](Engine& engine) {
        std::mt19937_64 random(seed + static_cast<std::uint64_t>(ranks));  // the same on all ranks
        for (int round = 0; round < 40; ++round) {
          const std::size_t count = 1 + random() % 5;
          std::vector<Floats> values(count);
          std::vector<Floats> expected(count);
          std::vector<std::shared_ptr<Job>> jobs(count);
          for (std::size_t i = 0; i < count; ++i) {
            const bool is_sum = random() % 2 == 0;
            const int root = static_cast<int>(random() % static_cast<unsigned>(ranks));
            values[i].assign(random() % 60'000, static_cast<float>(engine.rank() + round));
            const int sum = ranks * (ranks - 1) / 2 + ranks * round;
            expected[i].assign(values[i].size(), static_cast<float>(is_sum ? sum : root + round));
            jobs[i] = engine.submit(is_sum ? all_reduce(values[i]) : broadcast(values[i], root),
                                    Engine::Start::Now, nullptr, nullptr);
          }
          if (random() % 2 == 0) engine.kick();
          for (std::size_t i = 0; i < count; ++i) {
            const std::size_t which = engine.rank() % 2 == 0 ? i : count - 1 - i;
            wrong += engine.wait(jobs[which]).has_value();
            wrong += values[which] != expected[which];
          }
        }
      });
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("reduces and gathers of any size reach their root, several under way at once") {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      CAPTURE(ranks);
      std::atomic<int> wrong = 0;
      on_all(make_engines(ranks, {.slot_bytes = 4096}), [&](Engine& engine) {
        std::mt19937_64 random(static_cast<std::uint64_t>(ranks));  // the same on all ranks
        for (int round = 0; round < 20; ++round) {
          const int root = static_cast<int>(random() % static_cast<unsigned>(ranks));
          const bool is_root = engine.rank() == root;
          const std::size_t size = random() % 30'000;
          Floats summed(size, static_cast<float>(engine.rank() + round));
          const Floats given(size, static_cast<float>(10 * engine.rank() + round));
          Floats all;
          auto first = engine.submit(reduce(summed, root), Engine::Start::Now, nullptr, nullptr);
          auto second =
              engine.submit(gather(given, all, root, engine), Engine::Start::Now, nullptr, nullptr);
          wrong += engine.wait(second).has_value() + engine.wait(first).has_value();
          if (!is_root) continue;
          wrong +=
              summed != Floats(size, static_cast<float>(ranks * (ranks - 1) / 2 + ranks * round));
          Floats expected;
          for (int rank = 0; rank < ranks; ++rank) {
            expected.insert(expected.end(), size, static_cast<float>(10 * rank + round));
          }
          wrong += all != expected;
        }
      });
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("ranks that reduce or gather to different roots are told so") {
    for (const bool is_reduce : {true, false}) {
      auto engines = make_engines(2);
      auto call = [&](std::size_t rank) {
        Floats values(10);
        Floats all;
        const int root = static_cast<int>(rank);
        return said(run(*engines[rank], is_reduce ? reduce(values, root)
                                                  : gather(values, all, root, *engines[rank])));
      };
      auto other = std::async(std::launch::async, [&] { return call(1); });
      for (const std::string& text : {call(0), other.get()}) {
        CAPTURE(text);
        CHECK(text.starts_with("the ranks do not call the same: rank "));
        CHECK(text.find("to rank 0") != std::string::npos);
        CHECK(text.find("to rank 1") != std::string::npos);
      }
    }
  }

  TEST_CASE("what nobody waits for is carried out by the background, before the group closes") {
    std::atomic<int> successes = 0;
    std::atomic<int> ends = 0;
    on_all(make_engines(2), [&](Engine& engine) {
      auto values = std::make_shared<Floats>(300'000, 1);
      for (int i = 0; i < 5; ++i) {
        engine.submit(
            all_reduce(*values), Engine::Start::Now, [&] { ++successes; },
            [&, values](const Problem& problem) { ends += !problem; });
      }
    });
    CHECK(successes == 10);
    CHECK(ends == 10);
  }

  TEST_CASE("an abort ends what is under way, here and on the peers") {
    for (std::size_t size : {10, 500'000}) {
      auto engines = make_engines(3);
      Floats first(size, 1);
      Floats second(size, 1);
      std::vector<std::future<Problem>> waiting;
      waiting.push_back(
          std::async(std::launch::async, [&] { return run(*engines[0], all_reduce(first)); }));
      waiting.push_back(
          std::async(std::launch::async, [&] { return run(*engines[1], all_reduce(second)); }));
      engines[0]->abort();
      for (auto& problem : waiting)
        CHECK(said(problem.get()) == "rank 0 of 3 has aborted the group");
      // Of a small one all that rank 2 needs is already there.
      Floats third(size, 1);
      CHECK(said(run(*engines[2], all_reduce(third))) == "rank 0 of 3 has aborted the group");
    }
  }

  TEST_CASE("a rank that gave up takes the others with it, with its own reason") {
    auto engines = make_engines(3);
    CHECK(said(run(*engines[0], barrier(100ms))) ==
          "ranks 1 and 2 of 3 did not come to barrier within 0.1 s");
    CHECK(said(run(*engines[1], barrier())) ==
          "ranks 1 and 2 of 3 did not come to barrier within 0.1 s");
  }

  TEST_CASE("who comes late hears that the others gave up, though all it needs of them is there") {
    const std::pair<Request (*)(Floats&), std::string> cases[] = {
        {[](Floats& values) { return all_reduce(values, 100ms); }, "all_reduce (sum) of 10 float"},
        {[](Floats&) { return barrier(100ms); }, "barrier"},
        {[](Floats& values) {
           Request request = broadcast(values, 1);
           request.timeout = 100ms;
           return request;
         },
         "broadcast of 40 bytes from rank 1"},
    };
    for (const auto& [request, in_words] : cases) {
      auto engines = make_engines(2);
      Floats first(10, 1);
      Floats second(10, 2);
      const std::string expected = "rank 1 of 2 did not come to " + in_words + " within 0.1 s";
      CHECK(said(run(*engines[0], request(first))) == expected);
      CHECK(said(run(*engines[1], request(second))) == expected);
      CHECK(second == Floats(10, 2));
    }
  }

  TEST_CASE("who comes late to what the others have completed still gets it") {
    auto engines = make_engines(2);
    Floats sent(1000, 5);
    Floats received(1000, 0);
    CHECK(said(run(*engines[0], broadcast(sent, 0))) == "(nothing)");
    const std::string expected = "rank 1 of 2 did not come to barrier within 0.1 s";
    CHECK(said(run(*engines[0], barrier(100ms))) == expected);
    CHECK(said(run(*engines[1], broadcast(received, 0))) == "(nothing)");
    CHECK(received == sent);
    CHECK(said(run(*engines[1], barrier())) == expected);
  }

  TEST_CASE("a rank that has left is missed by name") {
    auto engines = make_engines(2);
    engines[1].reset();
    Floats values(10, 1);
    CHECK(said(run(*engines[0], all_reduce(values))) ==
          "rank 1 of 2 has left while others wait for it in all_reduce (sum) of 10 float");
  }

  TEST_CASE("ranks that call different things are told so") {
    struct {
      Floats values;
      bool is_sum;
      const char* in_words;
    } cases[] = {
        {Floats(12), true, "all_reduce (sum) of 12 float"},
        {Floats(200'000), true, "all_reduce (sum) of 200000 float"},
        {Floats(10), false, "broadcast of 40 bytes from rank 0"},
    };
    for (auto& other : cases) {
      auto engines = make_engines(2);
      Floats values(10);
      auto problem = std::async(std::launch::async, [&] {
        return run(*engines[1],
                   other.is_sum ? all_reduce(other.values) : broadcast(other.values, 0));
      });
      const std::string here = said(run(*engines[0], all_reduce(values)));
      const std::string there = said(problem.get());
      const std::string words = other.in_words;
      for (const std::string& text : {here, there}) {
        CAPTURE(text);
        CHECK(text.starts_with("the ranks do not call the same: rank "));
        CHECK(text.find("all_reduce (sum) of 10 float") != std::string::npos);
        CHECK(text.find(words) != std::string::npos);
      }
    }
  }

  TEST_CASE(
      "ranks that broadcast each from themselves are told so, at the latest in the next call") {
    for (const std::size_t size : {std::size_t{10}, std::size_t{3'000'000}}) {
      for (int round = 0; round < 20; ++round) {
        auto engines = make_engines(3);
        Floats values[] = {Floats(size, 0), Floats(size, 1), Floats(size, 2)};
        std::atomic<int> told_at_once = 0;
        std::vector<std::string> said_in_the_end(3);
        on_all(std::move(engines), [&](Engine& engine) {
          const int rank = engine.rank();
          // Rank 2 takes what rank 0 sends.
          Problem problem = run(engine, broadcast(values[rank], rank == 1 ? 1 : 0));
          if (problem) ++told_at_once;
          if (!problem) problem = run(engine, barrier());
          said_in_the_end[static_cast<std::size_t>(rank)] = said(problem);
        });
        CHECK(told_at_once > 0);
        for (const std::string& text : said_in_the_end) {
          CAPTURE(text);
          CHECK(text.starts_with("the ranks do not call the same: rank "));
          CHECK(text.find("from rank 0") != std::string::npos);
          CHECK(text.find("from rank 1") != std::string::npos);
        }
      }
    }
  }

  TEST_CASE("what runs at the end of a collective may drop the last owner of the group") {
    auto engines = make_engines(2);
    auto owner = std::make_shared<std::shared_ptr<Engine>>(std::move(engines[0]));
    std::weak_ptr<Engine> gone = *owner;
    Floats first(10, 1), second(10, 2);
    std::promise<void> dropped;
    (*owner)->submit(all_reduce(first), Engine::Start::Now, nullptr, [&](const Problem&) {
      Engine::release(std::move(*owner));
      dropped.set_value();
    });
    (*owner)->kick();  // so that a thread of the engine waits for the peer
    CHECK(said(run(*engines[1], all_reduce(second))) == "(nothing)");
    dropped.get_future().wait();
    CHECK(said(run(*engines[1], barrier())) ==
          "rank 0 of 2 has left while others wait for it in barrier");
    while (!gone.expired()) std::this_thread::yield();
  }

  TEST_CASE("what runs at the end of a collective may wait for another one") {
    // Submitted at the end of the first, or before it and thus waiting in the queue already.
    for (const bool is_queued : {false, true}) {
      CAPTURE(is_queued);
      std::atomic<int> ended = 0;
      on_all(make_engines(2), [&](Engine& engine) {
        auto first = std::make_shared<Floats>(100, 1);
        auto second = std::make_shared<Floats>(100'000, 1);
        auto done = std::make_shared<std::promise<Problem>>();
        auto submit_second = [&engine, second, done] {
          engine.submit(all_reduce(*second), Engine::Start::Now, nullptr,
                        [second, done](const Problem& problem) { done->set_value(problem); });
          engine.kick();
        };
        auto promise = std::make_shared<std::promise<void>>();
        engine.submit(all_reduce(*first), Engine::Start::Now, nullptr,
                      [&, is_queued, first, promise, submit_second, done](const Problem&) {
                        if (!is_queued) submit_second();
                        auto result = done->get_future();
                        const bool has_come = result.wait_for(20s) == std::future_status::ready;
                        ended += has_come && !result.get();
                        promise->set_value();
                      });
        if (is_queued) submit_second();
        engine.kick();
        promise->get_future().wait();
      });
      CHECK(ended == 2);
    }
  }

  TEST_CASE("a result that cannot be copied back fails that collective, and no other") {
    std::atomic<int> expected = 0;
    on_all(make_engines(2), [&](Engine& engine) {
      auto fails = [] { throw std::runtime_error("it overlaps"); };
      const std::string sentence = "the result cannot be copied back: it overlaps";
      Floats values(100, 1);
      auto waited = engine.submit(all_reduce(values), Engine::Start::ByWaiter, fails, nullptr);
      expected += said(engine.wait(waited)) == sentence;
      auto ended = std::make_shared<std::promise<Problem>>();
      engine.submit(all_reduce(values), Engine::Start::Now, fails,
                    [ended](const Problem& problem) { ended->set_value(problem); });
      engine.kick();
      expected += said(ended->get_future().get()) == sentence;
      expected += !run(engine, all_reduce(values));
    });
    CHECK(expected == 6);
  }

  TEST_CASE("a closed group refuses") {
    auto engines = make_engines(1);
    engines[0]->close();
    CHECK(said(run(*engines[0], barrier())) == "the group is closed on rank 0");
  }

  TEST_CASE("nothing stays behind: no mapping, no descriptor, no name") {
    namespace fs = std::filesystem;
    const auto names = [] {
      std::vector<std::string> found;
      for (const auto& entry : fs::directory_iterator("/dev/shm")) {
        if (!entry.is_directory()) found.push_back(entry.path());  // one of those is the agents'
      }
      std::erase_if(found,
                    [](const std::string& name) { return name.find("ddprun") == name.npos; });
      return found;
    };
    const auto before = descriptors();
    const auto mapped = mappings();
    {
      auto engines = make_engines(3);
      CHECK(mappings() == mapped + 3);
      CHECK(names().empty());
    }
    CHECK(mappings() == mapped);
    CHECK(descriptors() == before);
  }
}
