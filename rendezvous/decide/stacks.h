// SPDX-License-Identifier: BSD-3-Clause
//
// What the workers of a node do, by their stacks, because a person asks for it.  No decision
// depends on it.  A node's text lies under keys::stacks() in the store, where the next one replaces
// it; who shows the page reads it.  rendezvous/PROTOCOL.md has the form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::rendezvous {

struct WorkerStack {
  int rank = 0;
  int pid = 0;
  std::string in{};     // the function of torch.distributed that it has called; empty: none
  std::string place{};  // the innermost frame of the program: "load (data.py:40)"; empty: not known
  std::string doing{};  // by the kernel: "sleeping in hrtimer_nanosleep"
  std::optional<bool> waits{};        // for its peers; nullopt: it cannot be told
  std::vector<std::string> frames{};  // of the main thread, the innermost first
  std::string problem{};              // why there are none: what the tool has said

  friend bool operator==(const WorkerStack&, const WorkerStack&) = default;
};

struct NodeStacks {
  std::uint64_t number = 0;          // of the request that this answers
  std::vector<std::string> tools{};  // that the node has for stacks
  std::vector<WorkerStack> workers{};

  friend bool operator==(const NodeStacks&, const NodeStacks&) = default;
};

// A longer text is not read.  Of a worker so many frames are said, and of each so many bytes.
inline constexpr std::size_t kMaxStacksBytes = 64 * 1024;
inline constexpr std::size_t kMaxFrames = 24;
inline constexpr std::size_t kMaxFrameBytes = 160;

// With as many frames of each worker as kMaxStacksBytes has room for; of too many workers the first
// ones.
std::string encode(const NodeStacks& stacks);

// What strangers may have written: nullopt for what is no such text; of workers beyond `most`
// nothing is read; texts are quoted and cut.
std::optional<NodeStacks> decode_stacks(std::string_view text, std::size_t most);

}  // namespace ddprun::rendezvous
