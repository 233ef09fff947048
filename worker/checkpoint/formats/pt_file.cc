// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/pt_file.h"

#include <charconv>
#include <set>
#include <unordered_map>

#include "worker/checkpoint/formats/pickle.h"

namespace ddprun::ddp::pt {
namespace {

using pickle::Node;
using Kind = Node::Kind;

constexpr std::size_t kMostPickleBytes = 64 << 20;
// A pickle may refer to one list many times, and each time is a value with a name of its own.  A
// file of torch.save() has fewer values than bytes, and its names are a few dozen bytes each.
constexpr std::size_t kValuesPerByte = 1;
constexpr std::size_t kTextPerByte = 64;
constexpr std::size_t kAlwaysAllowed = 64 << 10;  // bytes of text, whatever the size
constexpr int kMostLevels = 8;

Error damaged(std::string sentence) {
  return Error{Errc::Protocol, std::move(sentence)};
}

// The records of an archive by name, without the folder that all of them are in.
class Archive {
 public:
  Archive(std::string_view file, const std::vector<zip::Record>& records) : file_(file) {
    const std::size_t folder = records.empty() ? 0 : records.front().name.find('/') + 1;
    for (const zip::Record& record : records) {
      if (record.name.size() > folder) places_.emplace(record.name.substr(folder), record);
    }
  }
  const zip::Record* find(const std::string& name) const {
    auto found = places_.find(name);
    return found == places_.end() ? nullptr : &found->second;
  }
  std::string_view bytes(const zip::Record& record) const {
    return file_.substr(record.begin, record.end - record.begin);
  }

 private:
  std::string_view file_;
  std::unordered_map<std::string, zip::Record> places_;
};

// The elements from a tensor's first to its last, in memory; nullopt on overflow.
std::optional<std::uint64_t> extent_of(const Node& tensor) {
  std::uint64_t extent = 1;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) return 0;
  }
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    std::uint64_t step = 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(tensor.shape[i] - 1),
                               static_cast<std::uint64_t>(tensor.strides[i]), &step) ||
        __builtin_add_overflow(extent, step, &extent)) {
      return std::nullopt;
    }
  }
  return extent;
}

Result<StoredTensor> place(const std::string& name, const Node& node, const Archive& archive) {
  auto wrong = [&](const std::string& what) { return damaged("tensor '" + name + "' " + what); };
  const zip::Record* record = archive.find("data/" + node.storage->text);
  if (!record) return wrong("has its bytes in a record that is not there");
  const std::uint64_t element = element_bytes(node.dtype);
  std::optional<std::uint64_t> bytes = byte_count(node.dtype, node.shape);
  std::optional<std::uint64_t> extent = extent_of(node);
  const std::uint64_t stored = (record->end - record->begin) / element;
  const auto offset = static_cast<std::uint64_t>(node.offset);
  if (!bytes || !extent || offset > stored || *extent > stored - offset) {
    return wrong("reaches beyond its storage");
  }
  // One that repeats elements could ask for any amount of memory.
  if (*bytes / element > stored) return wrong("has more elements than its storage");
  StoredTensor tensor{.name = name,
                      .dtype = node.dtype,
                      .shape = node.shape,
                      .begin = record->begin + offset * element,
                      .end = record->begin + (offset + *extent) * element};
  if (*bytes != 0 && node.strides != row_major_strides(node.shape)) {
    tensor.strides = node.strides;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      if (tensor.shape[i] == 1) tensor.strides[i] = 0;  // never taken, and may be anything
    }
  }
  return tensor;
}

std::string text_of(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// Walks through a value, and notes what it finds below `name`.
class Collector {
 public:
  // `bytes` are those of the pickle.
  Collector(const Archive& archive, std::size_t bytes)
      : archive_(archive),
        most_values_(bytes * kValuesPerByte),
        most_text_(kAlwaysAllowed + bytes * kTextPerByte) {}
  StoredTensors found;

  Result<void> walk(const std::string& name, const Node& node, int level) {
    text_bytes_ += 1 + name.size() + node.text.size();
    if (level > kMostLevels) return damaged("its dicts are nested too deeply, or in themselves");
    if (++values_ > most_values_ || text_bytes_ > most_text_) {
      return damaged("its values repeat each other until they are far more than its bytes");
    }
    switch (node.kind) {
      case Kind::Tensor:
        return tensor(name, node);
      case Kind::Dict:
        return dict(name, node, level);
      case Kind::List:
      case Kind::Tuple:
        for (std::size_t i = 0; i < node.items.size(); ++i) {
          Result<void> done = walk(below(name, std::to_string(i)), *node.items[i], level + 1);
          if (!done) return done;
        }
        return {};
      case Kind::Bool:
        return value(name, node.integer != 0 ? "true" : "false");
      case Kind::Int:
        return value(name, std::to_string(node.integer));
      case Kind::Float:
        return value(name, text_of(node.real));
      case Kind::Text:
        return value(name, node.text);
      case Kind::Global:
        return value(name, node.text);
      case Kind::None:
        return value(name, "none");
      case Kind::Storage:
        break;
    }
    return damaged("'" + name + "' is a storage without a tensor");
  }

 private:
  static std::string below(const std::string& name, const std::string& key) {
    return name.empty() ? key : name + "/" + key;
  }

  Result<void> tensor(const std::string& name, const Node& node) {
    if (!names_.insert(name).second) return damaged("tensor '" + name + "' is there twice");
    Result<StoredTensor> placed = place(name, node, archive_);
    if (!placed) return placed.error();
    found.tensors.push_back(std::move(*placed));
    return {};
  }

  Result<void> dict(const std::string& name, const Node& node, int level) {
    for (std::size_t i = 0; i < node.items.size(); i += 2) {
      const Node& key = *node.items[i];
      if (key.kind != Kind::Text && key.kind != Kind::Int) {
        return damaged("a dict has a key that is neither text nor a number");
      }
      std::string part = key.kind == Kind::Text ? key.text : std::to_string(key.integer);
      Result<void> done = walk(below(name, part), *node.items[i + 1], level + 1);
      if (!done) return done;
    }
    return {};
  }

  Result<void> value(const std::string& name, std::string text) {
    found.values.emplace(name, std::move(text));
    return {};
  }

  const Archive& archive_;
  std::set<std::string> names_;
  std::size_t values_ = 0;
  std::size_t text_bytes_ = 0;
  const std::size_t most_values_;
  const std::size_t most_text_;
};

}  // namespace

Result<FileLayout> lay_out(std::vector<StoredTensor> tensors) {
  std::set<std::string> names;
  for (const StoredTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return Error{Errc::InvalidInput,
                   "tensor '" + tensor.name + "' is there twice and cannot be written as .pt"};
    }
  }
  Result<std::string> program = pickle::write(tensors);
  if (!program) return program.error();

  // The folder, the order and the small records are torch's own.
  std::vector<zip::NewRecord> records;
  std::vector<std::string> contents;
  auto add = [&](const std::string& name, std::string content) {
    records.push_back({"archive/" + name, content.size()});
    contents.push_back(std::move(content));
  };
  add("data.pkl", std::move(*program));
  add(".format_version", "1");
  add(".storage_alignment", "64");
  add("byteorder", "little");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    records.push_back(
        {"archive/data/" + std::to_string(i), *byte_count(tensors[i].dtype, tensors[i].shape)});
    contents.emplace_back();
  }
  add("version", "3\n");

  FileLayout layout;
  layout.archive = zip::lay_out(records);
  layout.file_bytes = layout.archive.file_bytes;
  constexpr std::size_t kFirstTensor = 4;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const zip::Record& record = layout.archive.records[i];
    if (!contents[i].empty()) layout.fragments.push_back({record.begin, std::move(contents[i])});
    if (i < kFirstTensor || i >= kFirstTensor + tensors.size()) continue;
    tensors[i - kFirstTensor].begin = record.begin;
    tensors[i - kFirstTensor].end = record.end;
  }
  layout.tensors = std::move(tensors);
  return layout;
}

Result<StoredTensors> read(std::string_view file) {
  Result<std::vector<zip::Record>> records = zip::read(file);
  if (!records) return records.error();
  Archive archive(file, *records);
  if (archive.find("constants.pkl")) {
    return damaged("it is a TorchScript archive: save the state_dict() of the module instead");
  }
  const zip::Record* order = archive.find("byteorder");
  if (order && archive.bytes(*order) != "little") return damaged("its bytes are big-endian");
  const zip::Record* program = archive.find("data.pkl");
  if (!program) return damaged("it is a zip archive and not one of torch.save()");
  if (program->end - program->begin > kMostPickleBytes) return damaged("its pickle is too long");
  Result<pickle::Program> ran = pickle::read(archive.bytes(*program));
  if (!ran) return ran.error();
  if (ran->result->kind != Kind::Dict) return damaged("it is no dict of tensors");
  Collector collector(archive, program->end - program->begin);
  Result<void> done = collector.walk("", *ran->result, 0);
  if (!done) return done.error();
  return std::move(collector.found);
}

}  // namespace ddprun::ddp::pt
