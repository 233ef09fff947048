// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/decide/plan.h"

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <random>
#include <vector>

#include "worker/shm/decide/fingerprint.h"
#include "worker/shm/decide/handshake.h"

namespace {

using namespace ddprun::ddp::shm;

// Ranks that run the steps of some collectives in a random order, each step as soon as what it
// waits for has happened.  The slots remember which chunk they hold.
class Play {
 public:
  Play(const Layout& layout, std::vector<Plan> plans) : layout_(layout), plans_(std::move(plans)) {
    auto ranks = static_cast<std::size_t>(layout.ranks);
    counters_.resize(ranks);
    steps_.resize(ranks);
    slots_.assign(ranks, std::vector<std::uint64_t>(static_cast<std::size_t>(layout.slots)));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t plan = 0; plan < plans_.size(); ++plan) {
        for (std::uint64_t cycle = 0; cycle < plans_[plan].cycles(); ++cycle) {
          const Cycle steps = plans_[plan].cycle(cycle);
          for (int i = 0; i < steps.count; ++i) steps_[rank].push_back({plan, steps.steps[i]});
        }
      }
    }
    next_.assign(ranks, 0);
  }

  // Plays to the end; "" when every step could run and read what it should.
  std::string run(std::mt19937_64& random) {
    while (problem_.empty()) {
      std::vector<int> able;
      bool is_over = true;
      for (int rank = 0; rank < layout_.ranks; ++rank) {
        if (next_[at(rank)] == steps_[at(rank)].size()) continue;
        is_over = false;
        if (is_able(rank)) able.push_back(rank);
      }
      if (is_over) return "";
      if (able.empty()) return "no rank can go on";
      execute(able[random() % able.size()]);
    }
    return problem_;
  }

 private:
  struct PlannedStep {
    std::size_t plan;
    Step step;
  };
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  const PlannedStep& next(int rank) const { return steps_[at(rank)][next_[at(rank)]]; }
  std::uint64_t count(int rank, Counter counter) const {
    return counters_[at(rank)][static_cast<std::size_t>(counter)];
  }

  bool is_able(int rank) const {
    const Plan& plan = plans_[next(rank).plan];
    const Need need = plan.before(next(rank).step, rank);
    for (int peer = 0; peer < layout_.ranks; ++peer) {
      bool counts = need.of == Need::Of::Peers ? peer != rank
                                               : need.of == Need::Of::Root && peer == plan.root();
      if (counts && count(peer, need.counter) < need.value) return false;
    }
    return true;
  }

  // Nobody may overwrite a slot that a peer has still to read, nor read one that holds another
  // chunk than its own.
  void execute(int rank) {
    const Plan& plan = plans_[next(rank).plan];
    const Step step = next(rank).step;
    const std::uint64_t number = plan.number(step.chunk);
    auto slot = static_cast<std::size_t>(number % static_cast<std::uint64_t>(layout_.slots));
    if (step.stage != Stage::Collect) slots_[at(rank)][slot] = number + 1;
    for (int peer = 0; peer < layout_.ranks; ++peer) {
      bool is_writer = plan.algorithm() != Algorithm::Broadcast || peer == plan.root();
      if (step.stage == Stage::Post || peer == rank || !is_writer) continue;
      if (slots_[at(peer)][slot] != number + 1) problem_ = "a rank read another chunk's slot";
      Counter given = plan.algorithm() == Algorithm::Reduce && step.stage == Stage::Collect
                          ? Counter::Reduced
                          : Counter::Posted;
      if (count(peer, given) <= number) problem_ = "a rank read what was not there yet";
    }
    counters_[at(rank)][static_cast<std::size_t>(Plan::after(step.stage))] = number + 1;
    ++next_[at(rank)];
  }

  Layout layout_;
  std::vector<Plan> plans_;
  std::vector<std::array<std::uint64_t, 3>> counters_;
  std::vector<std::vector<PlannedStep>> steps_;
  std::vector<std::size_t> next_;
  std::vector<std::vector<std::uint64_t>> slots_;
  std::string problem_;
};

}  // namespace

TEST_SUITE("ddp/shm/plan") {
  TEST_CASE("chunks cover the tensor, and pieces cover each chunk, without gap or overlap") {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      Layout layout{.ranks = ranks, .slots = 4, .slot_bytes = 1024};
      for (std::size_t bytes : {0, 1, 63, 64, 1000, 1024, 1025, 5000, 10240}) {
        CAPTURE(ranks);
        CAPTURE(bytes);
        Plan plan(Algorithm::Reduce, bytes, 7, layout);
        std::size_t position = 0;
        for (std::uint64_t chunk = 0; chunk < plan.chunks(); ++chunk) {
          CHECK(plan.chunk(chunk).begin == position);
          CHECK(plan.chunk(chunk).bytes <= layout.slot_bytes);
          for (int rank = 0; rank < ranks; ++rank) {
            Span piece = plan.piece(chunk, rank);
            CHECK(piece.begin == position);
            bool is_aligned = piece.begin % kLineBytes == 0 || piece.bytes == 0;
            CHECK(is_aligned);
            position += piece.bytes;
          }
          CHECK(position == plan.chunk(chunk).begin + plan.chunk(chunk).bytes);
        }
        CHECK(position == bytes);
      }
    }
  }

  TEST_CASE("without bytes a collective is still one meeting") {
    CHECK(Plan(Algorithm::Gather, 0, 0, Layout{}).chunks() == 1);
  }

  TEST_CASE("in every order of events all ranks come to the end, and read what was meant") {
    const std::uint64_t seed = std::random_device{}();
    MESSAGE("seed " << seed);
    std::mt19937_64 random(seed);
    for (int game = 0; game < 300; ++game) {
      CAPTURE(game);
      Layout layout{.ranks = 1 + static_cast<int>(random() % 4), .slots = 4, .slot_bytes = 256};
      std::vector<Plan> plans;
      std::uint64_t first = 0;
      for (std::uint64_t i = 0; i < 1 + random() % 6; ++i) {
        const auto algorithm = static_cast<Algorithm>(random() % 3);
        const int root = static_cast<int>(random() % static_cast<unsigned>(layout.ranks));
        plans.emplace_back(algorithm, random() % 3000, first, layout, root);
        first = plans.back().end();
      }
      CHECK(Play(layout, plans).run(random) == "");
    }
  }

  TEST_CASE("slots do not overlap each other or the headers") {
    Layout layout{.ranks = 3, .slots = 4, .slot_bytes = 1024};
    CHECK(layout.rank_header_begin(2) + kRankHeaderBytes == layout.slot_begin(0, 0));
    CHECK(layout.slot_begin(0, 5) == layout.slot_begin(0, 1));
    CHECK(layout.slot_begin(0, 3) + kSlotHeadBytes + 1024 == layout.slot_begin(1, 0));
    CHECK(layout.data_begin(1, 2) % kLineBytes == 0);
    CHECK(layout.slot_begin(2, 3) + kSlotHeadBytes + 1024 == layout.total_bytes());
  }
}

TEST_SUITE("ddp/shm/call") {
  TEST_CASE("a fingerprint in words") {
    CHECK(describe({.collective = Collective::AllReduce,
                    .element = Element::Float32,
                    .reduction = Reduction::Sum,
                    .bytes = 40}) == "all_reduce (sum) of 10 float");
    CHECK(describe({.collective = Collective::Broadcast, .root = 1, .bytes = 40}) ==
          "broadcast of 40 bytes from rank 1");
    CHECK(describe({.collective = Collective::AllGather, .bytes = 8}) == "all_gather of 8 bytes");
    CHECK(describe({.collective = Collective::Reduce,
                    .element = Element::Int64,
                    .reduction = Reduction::Max,
                    .root = 2,
                    .bytes = 40}) == "reduce (max) of 5 int64 to rank 2");
    CHECK(describe({.collective = Collective::Gather, .root = 1, .bytes = 8}) ==
          "gather of 8 bytes to rank 1");
    CHECK(describe({}) == "barrier");
  }
}

TEST_SUITE("ddp/shm/handshake") {
  TEST_CASE("ranks of one node and one container share memory") {
    PeerInfo here{.boot = "a", .pid_namespace = "pid:[1]", .pid = 7};
    PeerInfo elsewhere = here;
    elsewhere.boot = "b";
    PeerInfo contained = here;
    contained.pid_namespace = "pid:[2]";
    PeerInfo unwilling = here;
    unwilling.wants_shm = false;
    CHECK(refusal_of({here, here}) == "");
    CHECK(refusal_of({here, elsewhere}) == "rank 1 is on another node than rank 0");
    CHECK(refusal_of({here, here, contained}) == "rank 2 is in another container than rank 0");
    CHECK(refusal_of({unwilling, here}) == "rank 0 does not take part in it");
    CHECK(too_many() == "there are more than 64 ranks");
  }

  TEST_CASE("peer infos and results arrive as they were sent") {
    PeerInfo peer =
        *decode_peer_info(encode(PeerInfo{.boot = "x y", .pid_namespace = "", .pid = 3}));
    CHECK(peer.boot == "x_y");
    CHECK(peer.pid == 3);
    CHECK(peer.wants_shm);
    CHECK(decode_handshake_result(encode(HandshakeResult{.refusal = "one of them"}))->refusal ==
          "one of them");
    HandshakeResult result =
        *decode_handshake_result(encode(HandshakeResult{.fd = 5, .token = "abc", .pids = {1, 2}}));
    CHECK(result.refusal.empty());
    CHECK(result.fd == 5);
    CHECK(result.token == "abc");
    CHECK(result.pids == std::vector<int>{1, 2});
  }

  TEST_CASE("malformed handshake texts are refused") {
    for (const char* text : {"", "shm", "shm a b", "maybe a b 1", "shm a b x"}) {
      CHECK(!decode_peer_info(text));
    }
    for (const char* text : {"", "no", "shm", "shm 1", "shm 1 t", "shm 1 t 2 x", "yes 1 t 2"}) {
      CHECK(!decode_handshake_result(text));
    }
  }
}
