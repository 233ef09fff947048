// SPDX-License-Identifier: BSD-3-Clause
//
// How a collective is cut into chunks, what each rank does with each chunk, and what it must wait
// for. Plain arithmetic: transfer.h moves the bytes, channel.h waits.
//
// Every rank counts the chunks that it has posted (its input can be read), reduced (the piece that
// it adds up for all can be read) and done (it reads nothing more of that chunk).  The numbers of
// chunks go on from one collective to the next, and are the same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/shm/decide/layout.h"

namespace ddprun::ddp::shm {

enum class Algorithm : std::uint8_t {
  Gather,     // all post, all read everything
  Broadcast,  // the root posts, the others read
  Reduce,     // all post, each adds up one piece of the chunk, all read the pieces
};

enum class Counter : std::uint8_t { Posted, Reduced, Done };
enum class Stage : std::uint8_t { Post, Reduce, Collect };

// A part of the tensor, in bytes.
struct Span {
  std::size_t begin = 0;
  std::size_t bytes = 0;
};

struct Step {
  Stage stage;
  std::uint64_t chunk;  // of the collective, from 0
};

// One cycle of the pipeline: at most one step of each stage.
struct Cycle {
  Step steps[3];
  int count = 0;
};

// Which counter of which ranks must have reached which value.
struct Need {
  enum class Of : std::uint8_t { None, Root, Peers };
  Of of = Of::None;
  Counter counter = Counter::Posted;
  std::uint64_t value = 0;
};

class Plan {
 public:
  // Of a collective in which each rank gives `bytes`, and whose first chunk has the number `first`.
  // `root` is that of a Broadcast.
  Plan(Algorithm algorithm, std::size_t bytes, std::uint64_t first, const Layout& layout,
       int root = 0);

  Algorithm algorithm() const { return algorithm_; }
  std::size_t bytes() const { return bytes_; }
  int root() const { return root_; }
  std::uint64_t chunks() const { return chunks_; }  // never 0: without bytes it is a barrier
  std::uint64_t number(std::uint64_t chunk) const { return first_ + chunk; }
  std::uint64_t end() const { return first_ + chunks_; }

  // The part of the tensor that is the chunk `index`, and the part of it that `rank` adds up.
  Span chunk(std::uint64_t index) const;
  Span piece(std::uint64_t index, int rank) const;

  // The steps, in the order in which every rank runs them, one cycle at a time.  Chunks overlap: a
  // rank posts the next chunk before it waits for its peers' part of this one.
  std::uint64_t cycles() const { return chunks_ + collect_lag(); }
  Cycle cycle(std::uint64_t number) const;

  // What `rank` waits for before a step, and which counter it increments after it.
  Need before(const Step& step, int rank) const;
  static Counter after(Stage stage);

  // All that `rank` needs from its peers in this collective; a peer that has come that far may
  // leave.
  Need wanted(int rank) const;

 private:
  std::uint64_t collect_lag() const { return algorithm_ == Algorithm::Reduce ? 2 : 1; }

  Algorithm algorithm_;
  std::size_t bytes_;
  std::uint64_t first_;
  Layout layout_;
  int root_;
  std::size_t chunk_bytes_;
  std::uint64_t chunks_;
};

}  // namespace ddprun::ddp::shm
