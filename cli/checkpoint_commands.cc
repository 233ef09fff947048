// SPDX-License-Identifier: BSD-3-Clause
#include "cli/checkpoint_commands.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <set>
#include <vector>

#include "store/base/text.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/durable_file.h"
#include "worker/checkpoint/formats/shards.h"
#include "worker/checkpoint/mapped_file.h"
#include "worker/checkpoint/staging.h"

namespace ddprun::cli {
namespace {

namespace fs = std::filesystem;
using ddp::FileEntry;
using ddp::FoundCheckpoint;
using ddp::Manifest;
using ddp::MappedFile;
using ddp::StoredTensor;
using ddp::StoredTensors;
using ddp::TensorFormat;

Error invalid(std::string sentence) {
  return Error{Errc::InvalidInput, std::move(sentence)};
}

Error about(const fs::path& path, const Error& error) {
  return Error{Errc::Protocol, path.string() + ": " + to_string(error)};
}

bool is_checkpoint(const fs::path& path) {
  return fs::exists(path / ddp::kManifestName);
}

// The checkpoints that `path` stands for, newest first; of one that lacks its manifest too.
Result<std::vector<FoundCheckpoint>> checkpoints_at(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return invalid(path.string() + " is no directory");
  if (is_checkpoint(path)) return std::vector<FoundCheckpoint>{{0, path}};
  std::vector<FoundCheckpoint> found = ddp::list_checkpoints(path);
  if (found.empty()) {
    return invalid(path.string() + " has no checkpoint in it: no folder is called step-<number>");
  }
  return found;
}

// The newest of them that is whole.
Result<fs::path> newest_at(const fs::path& path) {
  Result<std::vector<FoundCheckpoint>> found = checkpoints_at(path);
  if (!found) return found.error();
  Result<Manifest> manifest = Manifest{};
  for (const FoundCheckpoint& checkpoint : *found) {
    manifest = ddp::inspect_checkpoint(checkpoint.path);
    if (manifest) return checkpoint.path;
  }
  return manifest.error();
}

std::optional<TensorFormat> format_of(const fs::path& file) {
  for (TensorFormat format : {TensorFormat::Safetensors, TensorFormat::Pt}) {
    if (file.extension() == std::string(".") + ddp::extension_of(format)) return format;
  }
  return std::nullopt;
}

std::uint64_t size_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const FileEntry& file : manifest.files) bytes += file.size_bytes;
  return bytes;
}

std::string words_of(const StoredTensor& tensor) {
  std::string text = tensor.dtype + " [";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.shape[i]);
  }
  return text + "]";
}

Result<void> show_file(const fs::path& path, std::ostream& out) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  Result<StoredTensors> read = ddp::read_tensors(file->bytes());
  if (!read) return about(path, read.error());
  out << printable(path.filename().string()) << ": " << read->tensors.size() << " tensors, "
      << file->bytes().size() << " bytes\n";
  for (const StoredTensor& tensor : read->tensors) {
    out << "  " << printable(tensor.name) << "  " << words_of(tensor) << "\n";
  }
  for (const auto& [name, value] : read->values) {
    out << "  " << printable(name) << " = " << printable(value) << "\n";
  }
  return {};
}

// Whether a file of tensors can be read as one.
Result<void> check_format(const fs::path& path) {
  if (!format_of(path)) return {};
  Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  Result<StoredTensors> read = ddp::read_tensors(file->bytes());
  if (!read) return about(path, read.error());
  return {};
}

bool is_sharded(const Manifest& manifest) {
  return std::any_of(manifest.files.begin(), manifest.files.end(),
                     [](const FileEntry& file) { return file.name == ddp::kShardsName; });
}

Result<ddp::Shards> read_shards(const fs::path& checkpoint) {
  Result<MappedFile> file = MappedFile::open(checkpoint / ddp::kShardsName);
  if (!file) return file.error();
  Result<ddp::Shards> shards = ddp::parse_shards(file->bytes());
  if (!shards) return about(checkpoint, shards.error());
  return shards;
}

// Whether each file of a sharded checkpoint has the rows that it should have.
Result<void> check_shards(const fs::path& checkpoint, const Manifest& manifest) {
  Result<ddp::Shards> shards = read_shards(checkpoint);
  if (!shards) return shards.error();
  std::set<std::string> summed;
  for (const FileEntry& file : manifest.files) summed.insert(file.name);
  std::map<std::string, std::map<std::string, StoredTensor>> files;
  for (const auto& [part, tensors] : *shards) {
    for (const auto& [name, tensor] : tensors) {
      for (const ddp::Piece& piece : tensor.pieces) {
        if (!summed.contains(piece.file)) {
          return Error{Errc::Protocol, checkpoint.string() + ": " + ddp::kShardsName + " names " +
                                           piece.file + ", which the manifest does not have"};
        }
        if (!files.contains(piece.file)) {
          Result<MappedFile> file = MappedFile::open(checkpoint / piece.file);
          if (!file) return file.error();
          Result<StoredTensors> read = ddp::read_tensors(file->bytes());
          if (!read) return about(checkpoint / piece.file, read.error());
          for (StoredTensor& stored : read->tensors) {
            files[piece.file][stored.name] = std::move(stored);
          }
        }
        const StoredTensor& stored = files[piece.file][name];
        std::vector<std::int64_t> shape = tensor.shape;
        if (!shape.empty()) shape[0] = piece.end - piece.begin;
        if (stored.dtype == tensor.dtype && stored.shape == shape) continue;
        return Error{Errc::Protocol, checkpoint.string() + ": " + piece.file + " has not '" + name +
                                         "' as " + ddp::kShardsName + " says"};
      }
    }
  }
  return {};
}

Result<void> show_shards(const fs::path& checkpoint, std::ostream& out) {
  Result<ddp::Shards> shards = read_shards(checkpoint);
  if (!shards) return shards.error();
  for (const auto& [part, tensors] : *shards) {
    out << printable(part) << ": " << tensors.size()
        << " tensors, of which the ranks have written parts\n";
    for (const auto& [name, tensor] : tensors) {
      out << "  " << printable(name) << "  "
          << words_of({.name = name, .dtype = tensor.dtype, .shape = tensor.shape});
      for (const ddp::Piece& piece : tensor.pieces) {
        out << (&piece == &tensor.pieces.front() ? "  in " : ", ") << printable(piece.file);
        if (tensor.pieces.size() > 1) {
          out << " rows " << piece.begin << " to " << piece.end - 1;
        }
      }
      out << "\n";
    }
  }
  return {};
}

// A file of tensors in another format, in memory.
struct Converted {
  ddp::Staging memory;
  std::string_view bytes;
};

Result<Converted> convert(const fs::path& path, TensorFormat format) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  Result<StoredTensors> read = ddp::read_tensors(file->bytes());
  if (!read) return about(path, read.error());
  Result<ddp::FileLayout> layout = ddp::lay_out(format, read->tensors, {{"format", "pt"}});
  if (!layout) return about(path, layout.error());

  Converted converted;
  Result<void> room = converted.memory.reserve(layout->file_bytes);
  if (!room) return room.error();
  std::map<std::string, const StoredTensor*> sources;
  for (const StoredTensor& tensor : read->tensors) sources[tensor.name] = &tensor;
  for (const StoredTensor& tensor : layout->tensors) {
    copy_row_major(*sources[tensor.name], file->bytes(), converted.memory.data() + tensor.begin);
  }
  complete(*layout, converted.memory.data());
  converted.bytes = {converted.memory.data(), layout->file_bytes};
  return converted;
}

Result<void> convert_file(const fs::path& from, const fs::path& to, std::ostream& out) {
  std::optional<TensorFormat> format = format_of(to);
  if (!format) return invalid(to.string() + " must end in .safetensors or .pt");
  Result<Converted> converted = convert(from, *format);
  if (!converted) return converted.error();
  Result<void> done = ddp::replace_durably(to, converted->bytes);
  if (done) out << to.string() << ": " << converted->bytes.size() << " bytes\n";
  return done;
}

// The files of a checkpoint, those of tensors converted; and what they refer to.
struct ConvertedFiles {
  std::vector<Converted> tensors;
  std::vector<MappedFile> others;
  std::vector<ddp::FileContent> contents;
};

Result<ConvertedFiles> convert_files(const fs::path& from, const Manifest& manifest,
                                     TensorFormat format) {
  ConvertedFiles files;
  for (const FileEntry& entry : manifest.files) {
    fs::path name = entry.name;
    if (format_of(name)) {
      Result<Converted> converted = convert(from / name, format);
      if (!converted) return converted.error();
      name.replace_extension(ddp::extension_of(format));
      files.contents.push_back({name, {converted->bytes}, /*is_staged=*/true});
      files.tensors.push_back(std::move(*converted));
    } else {
      Result<MappedFile> file = MappedFile::open(from / name);
      if (!file) return file.error();
      files.contents.push_back({name, {file->bytes()}});
      files.others.push_back(std::move(*file));
    }
  }
  return files;
}

}  // namespace

Result<void> list_checkpoints(const fs::path& path, std::ostream& out) {
  Result<std::vector<FoundCheckpoint>> found = checkpoints_at(path);
  if (!found) return found.error();
  for (const FoundCheckpoint& checkpoint : *found) {
    Result<Manifest> manifest = ddp::inspect_checkpoint(checkpoint.path);
    if (manifest) {
      out << "step " << manifest->step << "  " << size_of(*manifest) << " bytes  "
          << manifest->world_size << " ranks  torch " << printable(manifest->torch_version)
          << "  whole  ";
      if (is_sharded(*manifest)) out << "sharded  ";
      if (manifest->metric) out << "metric " << *manifest->metric << "  ";
      out << checkpoint.path.string() << "\n";
    } else {
      out << "damaged: " << printable(to_string(manifest.error())) << "\n";
    }
  }
  return {};
}

Result<bool> verify_checkpoints(const fs::path& path, std::ostream& out) {
  Result<std::vector<FoundCheckpoint>> found = checkpoints_at(path);
  if (!found) return found.error();
  bool are_good = true;
  for (const FoundCheckpoint& checkpoint : *found) {
    Result<Manifest> manifest = ddp::verify_checkpoint(checkpoint.path);
    Result<void> readable;
    for (const FileEntry& file : manifest ? manifest->files : std::vector<FileEntry>()) {
      if (readable) readable = check_format(checkpoint.path / file.name);
    }
    if (manifest && readable && is_sharded(*manifest))
      readable = check_shards(checkpoint.path, *manifest);
    if (manifest && readable) {
      out << "good: " << checkpoint.path.string() << "\n";
      continue;
    }
    are_good = false;
    out << "damaged: " << printable(to_string(manifest ? readable.error() : manifest.error()))
        << "\n";
  }
  return are_good;
}

Result<void> show_checkpoint(const fs::path& path, std::ostream& out) {
  if (fs::is_regular_file(path)) return show_file(path, out);
  Result<fs::path> place = newest_at(path);
  if (!place) return place.error();
  Result<Manifest> manifest = ddp::inspect_checkpoint(*place);
  if (!manifest) return manifest.error();
  out << place->string() << ": step " << manifest->step << ", saved by " << manifest->world_size
      << " ranks with torch " << printable(manifest->torch_version);
  if (!manifest->generation.run_uuid.empty()) {
    out << ", in round " << manifest->generation.round << " of run "
        << printable(manifest->generation.run_uuid);
  }
  out << "\n";
  if (is_sharded(*manifest)) {
    Result<void> shown = show_shards(*place, out);
    if (!shown) return shown;
  }
  for (const FileEntry& entry : manifest->files) {
    // Of a sharded one, each file of the ranks has been said.
    if (entry.name == ddp::kShardsName || entry.name.find("-of-") != std::string::npos) continue;
    if (format_of(entry.name)) {
      Result<void> shown = show_file(*place / entry.name, out);
      if (!shown) return shown;
    } else {
      Result<MappedFile> file = MappedFile::open(*place / entry.name);
      if (!file) return file.error();
      out << printable(entry.name) << ":\n" << printable(file->bytes(), /*keeps_lines=*/true);
    }
  }
  return {};
}

Result<void> convert_checkpoint(const fs::path& from, const fs::path& to,
                                std::optional<TensorFormat> format, std::ostream& out) {
  if (fs::is_regular_file(from)) return convert_file(from, to, out);
  Result<fs::path> place = newest_at(from);
  if (!place) return place.error();
  if (!format) return invalid("--format is needed to convert a checkpoint: safetensors or pt");
  std::error_code error;
  if (fs::equivalent(place->parent_path(), to, error)) {
    return invalid(to.string() + " has the checkpoint already: name another directory");
  }
  Result<Manifest> manifest = ddp::verify_checkpoint(*place);
  if (!manifest) return manifest.error();
  if (is_sharded(*manifest)) {
    return invalid(place->string() +
                   " is sharded, and only its files can be converted, one by one: resume it, and "
                   "save it unsharded");
  }
  Result<ConvertedFiles> files = convert_files(*place, *manifest, *format);
  if (!files) return files.error();
  Result<fs::path> written = ddp::publish_checkpoint(to, *manifest, files->contents);
  if (!written) return written.error();
  out << written->string() << "\n";
  return {};
}

}  // namespace ddprun::cli
