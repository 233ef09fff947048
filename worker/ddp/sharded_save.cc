// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/sharded_save.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <set>

#include "worker/checkpoint/durable_file.h"
#include "worker/ddp/ignored_names.h"
#include "worker/ddp/optimizer_state.h"
#include "worker/ddp/post_local_sgd.h"
#include "worker/ddp/rank_tensors.h"
#include "worker/ddp/snapshot.h"
#include "worker/ddp/zero_optimizer.h"

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// Whether the ranks have other parameters, and an optimizer's state of other gradients, between two
// averages.
bool do_ranks_step_alone(const TrainingState& state) {
  for (const auto& [name, object] : state.stateful) {
    if (dynamic_cast<const PostLocalSgdState*>(object)) return true;
    if (dynamic_cast<const PeriodicModelAverager*>(object)) return true;
  }
  return false;
}

}  // namespace

std::string to_text(const WrittenShards& written) {
  Json files = Json::array();
  for (const FileEntry& file : written.files) {
    files.push_back({file.name, file.size_bytes, file.crc32c});
  }
  return Json{{"files", files}, {"shards", to_json(written.shards)}}.dump();
}

Result<WrittenShards> written_from(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Error{Errc::Protocol, "what a rank says of its files is no JSON"};
  WrittenShards written;
  for (const Json& file : json.at("files")) {
    written.files.push_back({.name = file[0].get<std::string>(),
                             .size_bytes = file[1].get<std::uint64_t>(),
                             .crc32c = file[2].get<std::uint32_t>()});
  }
  Result<Shards> shards = parse_pieces(json.at("shards").get<std::string>());
  if (!shards) return shards.error();
  written.shards = std::move(*shards);
  return written;
}

Result<WrittenShards> merge(const std::vector<std::string>& texts) {
  WrittenShards all;
  std::vector<Shards> of_ranks;
  for (const std::string& text : texts) {
    Result<WrittenShards> own = written_from(text);
    if (!own) return own;
    all.files.insert(all.files.end(), own->files.begin(), own->files.end());
    of_ranks.push_back(std::move(own->shards));
  }
  Result<Shards> merged = merge_shards(of_ranks);
  if (!merged) return merged.error();
  all.shards = std::move(*merged);
  return all;
}

Result<WrittenShards> ShardWriter::write(const TrainingState& state, const fs::path& folder,
                                         const std::vector<NamedTensor>& stateful,
                                         const std::vector<NamedTensor>& of_rank) {
  WrittenShards written;
  Result<void> done = write_share(kModelPart, model_content(state), folder, written);
  if (done && state.tensors) {
    done = write_share(kOwnPart, {.equal = {}, .of_first = named(*state.tensors)}, folder, written);
  }
  if (done && state.optimizer) done = write_optimizer(state, folder, written);
  if (done) done = write_pieces(kStatefulPart, stateful, folder, written);
  if (done) done = write_pieces(kRanksPart, of_rank, folder, written);
  if (done) done = sync_folder(folder);
  if (!done) return done.error();
  return written;
}

ShardWriter::Content ShardWriter::model_content(const TrainingState& state) const {
  const std::set<std::string> ignored = ignored_names(state.model);
  const std::size_t parameters = named_parameters(state.model, true).size();
  const bool step_alone = do_ranks_step_alone(state);
  Content content;
  for (NamedTensor& item : model_tensors(state.model)) {  // the parameters first
    const std::size_t place = content.equal.size() + content.of_first.size();
    const bool is_equal = place < parameters && !step_alone && !ignored.contains(item.name);
    (is_equal ? content.equal : content.of_first).push_back(std::move(item));
  }
  return content;
}

Result<void> ShardWriter::write_optimizer(const TrainingState& state, const fs::path& folder,
                                          WrittenShards& written) {
  if (const auto* sharded = dynamic_cast<const ShardedOptimizer*>(state.optimizer)) {
    Result<std::vector<NamedTensor>> tensors =
        own_optimizer_tensors(*sharded, state.model, /*with_rates=*/rank_ == 0);
    if (!tensors) return tensors.error();
    return write_pieces(kOptimizerPart, *tensors, folder, written);
  }
  Result<std::vector<NamedTensor>> tensors = optimizer_tensors(*state.optimizer, state.model);
  if (!tensors) return tensors.error();
  const OwnState own(*state.optimizer, state.model);
  const bool step_alone = do_ranks_step_alone(state);
  Content content;
  for (NamedTensor& item : *tensors) {
    if (own.has(item.name)) continue;  // is among those of the ranks
    const bool is_rate = item.name.find('/') == std::string::npos;
    const bool is_equal = !is_rate && !step_alone;
    (is_equal ? content.equal : content.of_first).push_back(std::move(item));
  }
  return write_share(kOptimizerPart, content, folder, written);
}

Result<void> ShardWriter::write_share(const std::string& part, const Content& content,
                                      const fs::path& folder, WrittenShards& written) {
  std::vector<StoredTensor> all;
  for (const NamedTensor& item : content.equal) all.push_back(stored_form(item));
  std::vector<NamedTensor> pieces;
  if (rank_ == 0) pieces = content.of_first;
  for (const RowShare& share : share_of(all, rank_, world_size_)) {
    const NamedTensor& item = content.equal[share.tensor];
    const bool is_whole = share.begin == 0 && share.end == rows_of(all[share.tensor].shape);
    const at::Tensor rows =
        is_whole ? item.tensor : item.tensor.narrow(0, share.begin, share.end - share.begin);
    pieces.push_back({item.name, rows});
    written.shards[part][item.name] = {
        .dtype = all[share.tensor].dtype,
        .shape = all[share.tensor].shape,
        .pieces = {{.file = {}, .begin = share.begin, .end = share.end}}};
  }
  return write_pieces(part, pieces, folder, written);
}

// Those whose place is not known yet are whole.
Result<void> ShardWriter::write_pieces(const std::string& part,
                                       const std::vector<NamedTensor>& pieces,
                                       const fs::path& folder, WrittenShards& written) {
  if (pieces.empty()) return {};
  const std::string file = shard_name(part, rank_, world_size_) + "." + extension_of(format_);
  for (const NamedTensor& item : pieces) {
    const StoredTensor stored = stored_form(item);
    auto [found, is_new] = written.shards[part].try_emplace(item.name);
    if (is_new) {
      found->second = {.dtype = stored.dtype,
                       .shape = stored.shape,
                       .pieces = {{.file = {}, .begin = 0, .end = rows_of(stored.shape)}}};
    }
    found->second.pieces[0].file = file;
  }
  Result<void> taken = image_.take(format_, pieces, {{"format", "pt"}});
  if (!taken) return taken;
  image_.complete();
  Result<FileEntry> entry = write_past_cache(folder / file, image_.bytes());
  if (!entry) return entry.error();
  written.files.push_back(std::move(*entry));
  return {};
}

Result<std::map<std::string, TensorMap>> assemble(const Shards& shards,
                                                  const std::map<std::string, TensorMap>& files) {
  std::map<std::string, TensorMap> parts;
  for (const auto& [part, tensors] : shards) {
    for (const auto& [name, tensor] : tensors) {
      std::vector<at::Tensor> rows;
      for (const Piece& piece : tensor.pieces) {
        std::vector<std::int64_t> shape = tensor.shape;
        if (!shape.empty()) shape[0] = piece.end - piece.begin;
        const auto file = files.find(piece.file);
        if (file == files.end() || !file->second.contains(name) ||
            stored_form({name, file->second.at(name)}).dtype != tensor.dtype ||
            file->second.at(name).sizes() != at::IntArrayRef(shape)) {
          return Error{Errc::Protocol, std::string(kShardsName) + ": " + piece.file + " has not '" +
                                           name + "' as it says"};
        }
        rows.push_back(file->second.at(name));
      }
      parts[part][name] = rows.size() == 1 ? rows[0] : at::cat(rows);
    }
  }
  return parts;
}

}  // namespace ddprun::ddp
