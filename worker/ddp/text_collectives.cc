// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/text_collectives.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "worker/ddp/collectives.h"

namespace ddprun::ddp {
namespace {

at::Tensor bytes_of(const std::string& text, std::int64_t size) {
  at::Tensor bytes = at::zeros({size}, at::kByte);
  text.copy(reinterpret_cast<char*>(bytes.data_ptr()), text.size());
  return bytes;
}

std::int64_t size_of(const std::string& text) {
  return static_cast<std::int64_t>(text.size());
}

std::string text_in(const at::Tensor& bytes, std::int64_t size) {
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(size)};
}

// The texts in what each rank has given, each filled up to the same length.
std::vector<std::string> texts_in(const std::vector<at::Tensor>& gathered,
                                  const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < gathered.size(); ++i) texts.push_back(text_in(gathered[i], sizes[i]));
  return texts;
}

std::vector<std::int64_t> sizes_of_all(c10d::ProcessGroup& group, const std::string& text) {
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& size : all_gather(group, at::tensor(size_of(text), at::kLong))) {
    sizes.push_back(size.item<std::int64_t>());
  }
  return sizes;
}

}  // namespace

std::vector<at::Tensor> all_gather(c10d::ProcessGroup& group, const at::Tensor& tensor) {
  return complete(start_all_gather(group, tensor, Caller::Waits));
}

std::vector<std::string> all_gather_text(c10d::ProcessGroup& group, const std::string& text) {
  const std::vector<std::int64_t> sizes = sizes_of_all(group, text);
  const std::int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  if (longest == 0) return std::vector<std::string>(sizes.size());
  return texts_in(all_gather(group, bytes_of(text, longest)), sizes);
}

std::vector<std::string> gather_text(c10d::ProcessGroup& group, const std::string& text, int root) {
  const std::vector<std::int64_t> sizes = sizes_of_all(group, text);
  const std::int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  if (longest == 0) return std::vector<std::string>(group.getRank() == root ? sizes.size() : 0);
  return texts_in(complete(start_gather(group, bytes_of(text, longest), root, Caller::Waits)),
                  sizes);
}

std::string scatter_text(c10d::ProcessGroup& group, const std::vector<std::string>& texts,
                         int root) {
  std::int64_t longest = 0;
  for (const std::string& text : texts) longest = std::max(longest, size_of(text));
  std::vector<at::Tensor> sizes;
  for (const std::string& text : texts) {
    sizes.push_back(at::tensor({size_of(text), longest}, at::kLong));
  }
  const at::Tensor size = at::empty({2}, at::kLong);
  complete(start_scatter(group, size, sizes, root, Caller::Waits));
  longest = size[1].item<std::int64_t>();
  if (longest == 0) return "";
  std::vector<at::Tensor> given;
  if (group.getRank() == root) {
    for (const std::string& text : texts) given.push_back(bytes_of(text, longest));
  }
  const at::Tensor bytes = at::empty({longest}, at::kByte);
  complete(start_scatter(group, bytes, given, root, Caller::Waits));
  return text_in(bytes, size[0].item<std::int64_t>());
}

void send_text(c10d::ProcessGroup& group, const std::string& text, int to, int tag) {
  complete(start_send(group, at::tensor(size_of(text), at::kLong), to, tag));
  if (text.empty()) return;
  complete(start_send(group, bytes_of(text, size_of(text)), to, tag));
}

std::string recv_text(c10d::ProcessGroup& group, int from, int tag) {
  const at::Tensor size = at::empty({}, at::kLong);
  complete(start_recv(group, size, from, tag));
  const at::Tensor bytes = at::empty({size.item<std::int64_t>()}, at::kByte);
  if (bytes.numel() == 0) return "";
  complete(start_recv(group, bytes, from, tag));
  return text_in(bytes, bytes.numel());
}

std::string broadcast_text(c10d::ProcessGroup& group, const std::string& text, int root) {
  auto options = waited_for<c10d::BroadcastOptions>();
  options.rootRank = root;
  std::vector<at::Tensor> size{at::tensor(static_cast<std::int64_t>(text.size()), at::kLong)};
  group.broadcast(size, options)->wait();
  std::vector<at::Tensor> bytes{at::empty({size[0].item<std::int64_t>()}, at::kByte)};
  if (bytes[0].numel() == 0) return "";
  char* data = reinterpret_cast<char*>(bytes[0].data_ptr<std::uint8_t>());
  if (group.getRank() == root) text.copy(data, text.size());
  group.broadcast(bytes, options)->wait();
  return std::string(data, static_cast<std::size_t>(bytes[0].numel()));
}

std::string first_problem(c10d::ProcessGroup& group, const std::string& problem) {
  const at::Tensor flag = at::tensor(std::int64_t{problem.empty() ? 0 : 1}, at::kLong);
  std::vector<at::Tensor> flags = all_gather(group, flag);
  for (int rank = 0; rank < group.getSize(); ++rank) {
    if (flags[static_cast<std::size_t>(rank)].item<std::int64_t>() == 0) continue;
    return broadcast_text(group, problem, rank);
  }
  return "";
}

}  // namespace ddprun::ddp
