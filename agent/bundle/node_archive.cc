// SPDX-License-Identifier: BSD-3-Clause
#include "agent/bundle/node_archive.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "agent/bundle/archive.h"
#include "agent/bundle/contents.h"
#include "store/base/text.h"

namespace ddprun::agent {
namespace {

constexpr std::size_t kManifestBytes = 6 * 1024;
constexpr std::size_t kEndRoom =
    kManifestBytes + 2 * 1024;  // with its header and the archive's end
static_assert(kLeastNodeArchive > kEndRoom);

class NodeArchive {
 public:
  explicit NodeArchive(std::size_t most_bytes)
      : most_bytes_(std::max(most_bytes, kLeastNodeArchive)), now_(std::time(nullptr)) {}

  Result<void> add(const std::string& name, std::string_view text, std::int64_t mtime,
                   const std::string& remark) {
    auto entry = packed_entry(name, text, mtime == 0 ? now_ : mtime);
    if (!entry || packed_.size() + entry->size() + kEndRoom > most_bytes_) {
      notes.push_back("left out, for --max-size or its long name: " + name);
      return {};
    }
    packed_ += *entry;
    if (!remark.empty()) notes.push_back(name + ": " + remark);
    return {};
  }

  std::string finish() && {
    std::string text =
        "Packed by the agent of this node.  Secrets are masked in environment.txt only: logs are "
        "as they were written.\n";
    for (const std::string& note : notes) text += printable(note) + '\n';
    if (text.size() > kManifestBytes) text = cut(text, kManifestBytes - 8) + "\n";
    if (auto entry = packed_entry("MANIFEST.txt", text, now_)) packed_ += *entry;
    packed_ += packed_end();
    return std::move(packed_);
  }

  std::vector<std::string> notes;

 private:
  std::size_t most_bytes_;
  std::int64_t now_;
  std::string packed_;
};

}  // namespace

std::string packed_node(const NodeFiles& files, std::size_t most_bytes,
                        const std::function<bool()>& is_wanted) {
  NodeArchive archive(most_bytes);
  AddEntry add = [&](const std::string& name, std::string_view text, std::int64_t mtime,
                     const std::string& remark) { return archive.add(name, text, mtime, remark); };
  // Neither of these two fails: what has no room is noted.
  (void)add("versions.txt", versions_text(files.program), 0, "");
  (void)add("environment.txt", environment_text(files.environment_line, files.environment), 0, "");
  if (files.log_folder.empty()) {
    archive.notes.emplace_back("this node keeps no logs (--log-dir)");
  } else if (auto added = add_log_folder(files.log_folder, "logs", add, archive.notes, is_wanted);
             !added) {
    archive.notes.push_back("no logs: " + to_string(added.error()));
  }
  return std::move(archive).finish();
}

}  // namespace ddprun::agent
