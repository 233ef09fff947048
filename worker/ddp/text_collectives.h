// SPDX-License-Identifier: BSD-3-Clause
//
// Small collectives over a bare c10d group, for ProcessGroup and for Ranks (rank_agreement.h),
// which have their own error sentences.  All ranks call the same functions in the same order;
// c10d's exceptions pass through.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace ddprun::ddp {

// How many bytes of tensors are sent together, as Python's DDP sends its state.
constexpr std::size_t kCoalesceBytes = std::size_t{250} << 20;

// `options` of a collective that is waited for at once: the backend may leave it to the waiter.
// Older LibTorch has no such option.
template <class Options>
Options waited_for(Options options = {}) {
  if constexpr (requires { options.asyncOp; }) options.asyncOp = false;
  return options;
}

// The `tensor` of every rank, by rank; shape and dtype are the same on all.
std::vector<at::Tensor> all_gather(c10d::ProcessGroup& group, const at::Tensor& tensor);

// The `text` of rank `root`, on every rank.
std::string broadcast_text(c10d::ProcessGroup& group, const std::string& text, int root);

// The texts of all ranks, by rank; of gather_text() on the root alone, nothing on the others.
std::vector<std::string> all_gather_text(c10d::ProcessGroup& group, const std::string& text);
std::vector<std::string> gather_text(c10d::ProcessGroup& group, const std::string& text, int root);

// The text of this rank's number among the root's.  Throws DdpError on the root when there is not
// one for each rank.
std::string scatter_text(c10d::ProcessGroup& group, const std::vector<std::string>& texts,
                         int root);

// Two messages, the size and the text.
void send_text(c10d::ProcessGroup& group, const std::string& text, int to, int tag);
std::string recv_text(c10d::ProcessGroup& group, int from, int tag);

// The `problem` of the lowest rank that gives one, on every rank; "" when none does.
std::string first_problem(c10d::ProcessGroup& group, const std::string& problem);

}  // namespace ddprun::ddp
