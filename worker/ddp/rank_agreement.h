// SPDX-License-Identifier: BSD-3-Clause
//
// What a checkpoint needs of the other ranks, over any process group of LibTorch, or over none in a
// program of one process.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <map>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace ddprun::ddp {

// A handle: copies share the group.  All ranks call the same functions in the same order; each
// throws DdpError when a peer is lost or the group's timeout passes.
class Ranks {
 public:
  // A null `group`: one process alone.
  explicit Ranks(c10::intrusive_ptr<c10d::ProcessGroup> group);
  ~Ranks();
  Ranks(const Ranks&);
  Ranks& operator=(const Ranks&);

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  // Rank 0's `text`, on every rank.
  std::string broadcast_text(const std::string& text) const;

  // Every rank's `text`, by rank, on rank 0; nothing on the others.
  std::vector<std::string> gather_text(const std::string& text) const;

  // Makes every rank's `tensors` rank 0's, with its names.
  void broadcast(std::map<std::string, at::Tensor>& tensors) const;

  // The `tensor` of every rank, by rank; shape and dtype are the same on all.
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) const;

  // Begins to find the largest of the ranks' `number`, in place; null when alone.
  c10::intrusive_ptr<c10d::Work> begin_maximum(at::Tensor number) const;

  // The `problem` of the lowest rank that gives one, on every rank; "" when none does.
  std::string first_problem(const std::string& problem) const;

  // Lets no rank go on alone: returns when every rank gives an empty `problem`; else every rank
  // throws the same DdpError, the sentence of the lowest rank that gives one.
  void throw_first_problem(const std::string& problem) const;

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int rank_ = 0;
  int world_size_ = 1;
};

}  // namespace ddprun::ddp
