// SPDX-License-Identifier: BSD-3-Clause
//
// Named tensors as files that Python reads too, and Python's files as named tensors.
//
//   save_tensors("weights.pt", tensors_of(*net), TensorFormat::Pt);
//   load_model(*net, "from_python.safetensors");
//
// No group is needed: a program of one process uses these alone.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"
#include "worker/checkpoint/formats/file_layout.h"
#include "worker/checkpoint/staging.h"
#include "worker/ddp/named_tensor.h"

namespace ddprun::ddp {

using TensorMap = std::map<std::string, at::Tensor>;

// Parameters and buffers of `module`, under all of their names, which are those of Python's
// state_dict() for a module of equal structure.  With mixed_precision the parameters' own values,
// also between a forward and its backward.
std::vector<NamedTensor> model_tensors(const torch::nn::Module& module);

// Name, dtype and shape, as a file of tensors has them.
StoredTensor stored_form(const NamedTensor& item);

// Writes a new file, or replaces one: whole or not at all, and on the disk when this returns.
// Tensors on a GPU are copied over.  Throws DdpError when it cannot be written, for a dtype that
// the format lacks and for a name that is there twice.
void save_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                  TensorFormat format = TensorFormat::Safetensors);

// The tensors of a file of either format, told apart by its content.  Of .pt files those that are a
// dict of tensors, also nested: the names are then joined with '/'.  Nothing in a file is executed;
// what is not understood is refused.  On the CPU the tensors live in the file, mapped into memory:
// what is never used is never read, and writing to them does not change the file.  Throws DdpError.
TensorMap load_tensors(const std::filesystem::path& path, at::Device device = at::kCPU);

struct LoadOptions {
  // The name in the file of the tensor that the module calls `name`.  Default: the same.
  std::function<std::string(const std::string& name)> name_in_file{};

  // Leaves alone what the file lacks, and passes over what the module has not.
  bool allow_partial = false;
};

// Gives `module` the values in a file, wherever the module's tensors live and of whatever dtype
// they are, as load_state_dict() of Python does.  Throws DdpError for what load_tensors() refuses,
// and names the first tensor that is missing, left over, of another shape, or complex where the
// module's is not; the module is then unchanged.
void load_model(torch::nn::Module& module, const std::filesystem::path& path,
                const LoadOptions& options = {});

// The same from tensors already read.  Fails with Errc::InvalidInput.
Result<void> restore_model(torch::nn::Module& module, const TensorMap& saved,
                           const LoadOptions& options = {});

// A file put together in memory that is used again for the next one (staging.h).
class TensorImage {
 public:
  // Makes room for a file of about `bytes`, and has the system give it, until `stop`, so that the
  // first take() need not.
  Result<void> prepare(std::uint64_t bytes, const std::atomic<bool>& stop);

  // Copies `tensors` as they are now.  Fails as lay_out() does, with no memory, and with
  // Errc::InvalidInput for a name that is no UTF-8.
  Result<void> take(TensorFormat format, const std::vector<NamedTensor>& tensors,
                    const std::map<std::string, std::string>& metadata);

  // Finishes the file: sums of a .pt.  Touches no tensor, so it may run in another thread.
  void complete() { ddp::complete(layout_, staging_.data()); }

  // After complete(): the whole file, until the next take().
  std::string_view bytes() const { return {staging_.data(), layout_.file_bytes}; }

 private:
  FileLayout layout_;
  Staging staging_;
};

// The tensors of a whole file in the memory `owner`, which they go on living in.  Fails with
// Errc::Protocol for what read_tensors() refuses.
Result<TensorMap> tensors_in(const std::shared_ptr<void>& owner, char* data, std::size_t size);

}  // namespace ddprun::ddp
