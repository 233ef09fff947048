// SPDX-License-Identifier: BSD-3-Clause
//
// A small transformer learns to write like the GNU licences, character by character, on text that
// every Debian machine has.  The ranks share each batch; gradients are clipped; rank 0 writes a
// sample at the end.  With DDPRUN_BACKEND=nccl each rank trains on its GPU.
//
//   ddprun --standalone --nproc-per-node 2 build/release/bin/char_lm
//
// Rank 0 prints the mean loss of every 20th step over all ranks, in nats per character: 4.85 is
// pure chance, about 3 is knowing the frequencies of the letters.  The argument is the number of
// steps (300).
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "worker/data/sampler.h"
#include "worker/ddp/data_parallel.h"

namespace {

namespace ddp = ddprun::ddp;
namespace nn = torch::nn;

constexpr std::int64_t kCharacters = 128;  // ASCII
constexpr std::int64_t kContext = 64;      // characters that the model sees
constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kBatch = 16;  // windows of text per step, over all ranks

torch::Tensor read_text() {
  std::vector<std::int64_t> text;
  for (const char* name : {"GPL-1", "GPL-2", "GPL-3", "LGPL-2", "LGPL-2.1", "LGPL-3"}) {
    std::ifstream file(std::string("/usr/share/common-licenses/") + name);
    if (!file) throw ddp::DdpError(std::string("there is no /usr/share/common-licenses/") + name);
    for (char letter; file.get(letter);) {
      if (letter >= 0) text.push_back(letter);
    }
  }
  return torch::tensor(text);
}

struct BlockImpl : nn::Module {
  BlockImpl() {
    register_module("norm1", norm1);
    register_module("qkv", qkv);
    register_module("mix", mix);
    register_module("norm2", norm2);
    register_module("mlp", mlp);
  }
  torch::Tensor forward(torch::Tensor x) {  // [batch, time, width]
    auto by_head = [&](const torch::Tensor& part) {
      return part.view({x.size(0), x.size(1), kHeads, -1}).transpose(1, 2);
    };
    auto parts = qkv(norm1(x)).chunk(3, -1);
    torch::Tensor seen = at::scaled_dot_product_attention(
        by_head(parts[0]), by_head(parts[1]), by_head(parts[2]), {}, 0.0, /*is_causal=*/true);
    x = x + mix(seen.transpose(1, 2).reshape(x.sizes()));
    return x + mlp->forward(norm2(x));
  }
  nn::LayerNorm norm1{nn::LayerNormOptions({kWidth})}, norm2{nn::LayerNormOptions({kWidth})};
  nn::Linear qkv{kWidth, 3 * kWidth}, mix{kWidth, kWidth};
  nn::Sequential mlp{nn::Linear(kWidth, 4 * kWidth), nn::GELU(), nn::Linear(4 * kWidth, kWidth)};
};
TORCH_MODULE(Block);

struct WriterImpl : nn::Module {
  WriterImpl() {
    register_module("letters", letters);
    register_module("places", places);
    register_module("blocks", blocks);
    register_module("next", next);
  }
  torch::Tensor forward(const torch::Tensor& text) {  // [batch, time] to [batch, time, characters]
    return next(
        blocks->forward(letters(text) + places(torch::arange(text.size(1), text.device()))));
  }
  nn::Embedding letters{kCharacters, kWidth}, places{kContext, kWidth};
  nn::Sequential blocks{Block(), Block(), nn::LayerNorm(nn::LayerNormOptions({kWidth}))};
  nn::Linear next{kWidth, kCharacters};
};
TORCH_MODULE(Writer);

std::string write(Writer& writer, at::Device device, const std::string& beginning, int count) {
  torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  std::string text = beginning;
  for (int i = 0; i < count; ++i) {
    std::string seen = text.substr(text.size() - std::min<std::size_t>(text.size(), kContext));
    torch::Tensor letters = torch::tensor(std::vector<std::int64_t>(seen.begin(), seen.end()));
    torch::Tensor odds = torch::softmax(writer(letters.unsqueeze(0).to(device))[0][-1] / 0.7, 0);
    text += static_cast<char>(odds.multinomial(1).item<std::int64_t>());
  }
  return text;
}

void train(int steps) {
  ddp::ProcessGroup group = ddp::init_process_group();
  torch::Tensor text = read_text().to(group.device());
  torch::Tensor windows = text.unfold(0, kContext + 1, kContext);  // each overlaps the next by one
  ddp::ElasticSampler sampler = ddp::value_or_throw(ddp::ElasticSampler::make(
      {.sample_count = windows.size(0), .step_size = kBatch, .drop_partial = true}));

  torch::manual_seed(0);
  Writer writer;
  writer->to(group.device());
  ddp::DistributedDataParallel<Writer> model(writer, group, {.gradient_as_bucket_view = true});
  torch::optim::AdamW optimizer(writer->parameters(), torch::optim::AdamWOptions(3e-3));
  for (int step = 1; step <= steps; ++step) {
    if (sampler.is_epoch_done()) sampler.next_epoch();
    ddp::Share share = sampler.next(group.rank(), group.world_size());
    torch::Tensor batch = windows.index_select(0, torch::tensor(share.indices).to(group.device()));
    model.zero_grad();
    torch::Tensor odds = model.forward(batch.slice(1, 0, kContext));
    torch::Tensor loss = torch::cross_entropy_loss(odds.flatten(0, 1), batch.slice(1, 1).flatten());
    loss = model.weighted(loss, share.weight);
    loss.backward();
    model.clip_grad_norm(1);
    optimizer.step();
    sampler.commit();
    if (step % 20 != 0 && step != 1) continue;
    torch::Tensor mean_loss = loss.detach().clone();
    group.all_reduce(mean_loss);
    if (group.rank() == 0) {
      std::printf("step %d: loss %.6f\n", step, mean_loss.item<double>() / group.world_size());
      std::fflush(stdout);
    }
  }
  if (group.rank() == 0) std::cout << write(writer, text.device(), "This License ", 200) << "\n";
  group.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 300;
  try {
    train(steps);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "char_lm: " << error.what() << std::endl;
    return 1;
  }
}
