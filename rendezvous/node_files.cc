// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/node_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <optional>
#include <utility>

#include "rendezvous/decide/run_file.h"
#include "rendezvous/own_folder.h"
#include "store/base/file.h"
#include "store/base/folder.h"
#include "store/clock.h"

namespace ddprun::rendezvous {
namespace {

constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
constexpr const char* kPartial = ".partial";
constexpr const char* kLastWord = ".left";
constexpr off_t kMaxLastWord = 200;
constexpr std::size_t kMaxFiles = 4096;
constexpr std::size_t kMaxEntries = 4 * kMaxFiles;
constexpr off_t kMaxBytes = 64 * 1024;
constexpr std::time_t kMaxAge = 24 * 60 * 60;  // seconds
constexpr Duration kRefresh = std::chrono::hours(1);
// There may be thousands, and each agent that starts would look at all of them.
constexpr const char* kLooked = ".looked";
constexpr std::time_t kBetweenLooks = 60 * 60;  // seconds
constexpr std::time_t kSettled = 1;             // seconds

// At most `limit` bytes; empty where they cannot be read.
std::string text_of(const Fd& file, std::size_t limit) {
  Result<std::string> text = read_from(file.get(), limit, "read a node's file");
  return text ? std::move(*text) : "";
}

// The name of this start of the machine; empty where it has none.
std::string boot_of_machine() {
  Fd file(::open(kBootId, O_RDONLY | O_CLOEXEC));
  if (!file) return "";
  std::string text = text_of(file, 4096);
  return text.substr(0, text.find('\n'));
}

// A folder that only this user can change.
Fd open_folder(const std::string& path, std::string& problem) {
  if (path.empty() || !make_own_folder(path)) return {};
  auto folder = open_own_folder(path);
  if (folder) return std::move(*folder);
  problem =
      path +
      " is no folder of this user's alone; another user may have made it, and root can remove "
      "it: until then, what the agents here know is lost with them, and a run whose agents "
      "are all killed may not begin again before join_timeout";
  return {};
}

// When it was written last; nothing where it has gone.
std::optional<std::timespec> written(const Fd& folder, const std::string& name) {
  struct stat status {};
  bool is_there = ::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  return is_there ? std::optional(status.st_mtim) : std::nullopt;
}

// Whether nobody has looked for an hour: the caller does it now.
bool is_time_to_look(const Fd& folder) {
  auto looked = written(folder, kLooked);
  std::time_t now = std::time(nullptr);
  if (looked && looked->tv_sec <= now && now - looked->tv_sec < kBetweenLooks) return false;
  Fd file(::openat(folder.get(), kLooked, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                   0600));
  if (file) ::futimens(file.get(), nullptr);
  return true;
}

// Of an agent that lives it is locked.
std::optional<std::string> read_if_dead(const Fd& folder, const std::string& name) {
  Fd file(::openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  bool is_file = file && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                 status.st_size <= kMaxBytes;
  // Others may look at the same time.
  if (!is_file || ::flock(file.get(), LOCK_SH | LOCK_NB) != 0) return std::nullopt;
  return text_of(file, kMaxBytes);
}

// What the agent whose node file this is, or its guardian, has said at the end; empty: nothing.
std::string last_word(const Fd& folder, const std::string& name) {
  Fd file(::openat(folder.get(), (name + kLastWord).c_str(),
                   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  bool is_file = file && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  return is_file ? text_of(file, kMaxLastWord) : "";
}

void remove(const Fd& folder, const std::string& name) {
  ::unlinkat(folder.get(), name.c_str(), 0);
  ::unlinkat(folder.get(), (name + kLastWord).c_str(), 0);
}

bool is_node_file(const std::string& name) {
  return !name.ends_with(kPartial) && !name.ends_with(kLastWord);
}

}  // namespace

void write_last_word(const std::string& path, std::string_view text) {
  const std::string partial = path + kPartial;
  Fd file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return;
  text = text.substr(0, kMaxLastWord);
  bool is_written =
      ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  // A name that is taken is not replaced.
  bool is_named = is_written && ::link(partial.c_str(), path.c_str()) == 0;
  static_cast<void>(is_named);  // nobody is left whom this could be told
  ::unlink(partial.c_str());
}

NodeFiles::NodeFiles(const std::string& folder, std::string run, std::string name)
    : path_(folder),
      folder_(open_folder(folder, problem_)),
      boot_(boot_of_machine()),
      run_(std::move(run)),
      beginning_(run_file_name(run_) + "-"),
      own_(beginning_ + run_file_name(name)) {
  if (boot_.empty()) folder_ = Fd();
  remove_old();
}

// Those of the own run are about to be asked, whatever the clock of the machine says.
void NodeFiles::remove_old() const {
  if (!folder_ || !is_time_to_look(folder_)) return;
  const std::time_t oldest = std::time(nullptr) - kMaxAge;
  for (const std::string& name : entries()) {
    auto at = written(folder_, name);
    bool is_old = at && at->tv_sec < oldest && !name.starts_with(beginning_);
    if (!is_old) continue;
    if (name.ends_with(kPartial)) ::unlinkat(folder_.get(), name.c_str(), 0);
    if (is_node_file(name) && read_if_dead(folder_, name)) remove(folder_, name);
  }
}

std::vector<std::string> NodeFiles::entries() const {
  if (!folder_) return {};
  std::error_code ignored;  // what can be read is read
  return names_in(folder_.get(), kMaxEntries, ignored,
                  [](std::string_view name) { return !name.starts_with('.'); });
}

// The folder may hold thousands of other runs' files, and is looked at once a second.  What changed
// just now may change again without a later time.
const std::vector<std::string>& NodeFiles::names_of_run() const {
  auto changed = folder_ ? written(folder_, ".") : std::nullopt;
  bool is_known = changed && changed_ && changed->tv_sec == changed_->tv_sec &&
                  changed->tv_nsec == changed_->tv_nsec;
  if (is_known) return names_of_run_;
  names_of_run_ = entries();
  std::erase_if(names_of_run_, [this](const std::string& name) {
    return !name.starts_with(beginning_) || !is_node_file(name) || name == own_;
  });
  if (names_of_run_.size() > kMaxFiles) names_of_run_.resize(kMaxFiles);
  bool is_settled = changed && changed->tv_sec + kSettled < std::time(nullptr);
  changed_ = is_settled ? changed : std::nullopt;
  return names_of_run_;
}

// It is locked before it has its name.
Result<void> NodeFiles::keep(const Died& self, const RunPlaces& places) {
  if (!folder_) return {};
  if (kept_ && kept_->node == self && kept_->places == places) {
    refresh();
    return {};
  }
  // Of a standby that was in no round only the places count.
  if (self.knows.by.empty() && places.at.empty()) {
    if (kept_) forget();
    return {};
  }
  const std::string partial = own_ + kPartial;
  if (!file_) {
    file_ = Fd(::openat(folder_.get(), partial.c_str(),
                        O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    bool is_kept = file_ && ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0 &&
                   ::renameat(folder_.get(), partial.c_str(), folder_.get(), own_.c_str()) == 0;
    if (!is_kept) return cannot_keep();
  }
  // Until all of it is there it cannot be read.
  NodeFile file{.boot = boot_, .run = run_, .node = self, .places = places};
  const std::string text = encode(file);
  errno = ENOSPC;  // where a write is cut short
  bool is_written =
      ::ftruncate(file_.get(), 0) == 0 &&
      ::pwrite(file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!is_written) return cannot_keep();
  kept_ = std::move(file);
  refreshed_ = mono_now();
  return {};
}

// Its age is to be that of the agent's death, also where a round lasts for weeks.
void NodeFiles::refresh() {
  if (mono_now() < refreshed_ + kRefresh) return;
  refreshed_ = mono_now();
  ::futimens(file_.get(), nullptr);
}

// For the reason in errno.
Error NodeFiles::cannot_keep() {
  Error why = system_error(errno, "keep it in " + path_);
  forget();
  return why;
}

// What it says would not be true any more.
void NodeFiles::forget() {
  remove(folder_, own_);
  ::unlinkat(folder_.get(), (own_ + kPartial).c_str(), 0);
  kept_.reset();
  file_ = Fd();
}

// There may be many, of a run that was killed often: only the last ones are read, and of those that
// were in no round the last one.
std::vector<NodeFile> NodeFiles::dead() const {
  std::vector<std::pair<std::timespec, std::string>> files;
  for (const std::string& name : names_of_run()) {
    if (auto at = written(folder_, name)) files.emplace_back(*at, name);
  }
  std::ranges::sort(files, [](const auto& one, const auto& other) {
    const std::timespec& first = one.first;
    const std::timespec& second = other.first;
    return std::pair(first.tv_sec, first.tv_nsec) > std::pair(second.tv_sec, second.tv_nsec);
  });
  std::vector<NodeFile> nodes;
  bool has_places = false;
  std::size_t in_rounds = 0;
  for (const auto& [at, name] : files) {
    if (in_rounds == kMaxDied) break;
    auto text = read_if_dead(folder_, name);
    if (!text) continue;
    auto file = decode_node_file(*text);
    bool is_ours = file && file->boot == boot_ && file->run == run_;
    if (!is_ours || (has_places && !file->knows_round())) continue;
    has_places = has_places || !file->places.at.empty();
    if (file->knows_round()) ++in_rounds;
    file->node.left = last_word(folder_, name);
    nodes.push_back(std::move(*file));
  }
  return nodes;
}

std::vector<Died> NodeFiles::died() const {
  std::vector<Died> nodes;
  for (NodeFile& file : dead()) {
    if (file.knows_round()) nodes.push_back(std::move(file.node));
  }
  return nodes;
}

RunPlaces NodeFiles::places() const {
  for (NodeFile& file : dead()) {
    if (!file.places.at.empty()) return std::move(file.places);
  }
  return {};
}

void NodeFiles::drop() {
  for (const std::string& name : names_of_run()) {
    if (read_if_dead(folder_, name)) remove(folder_, name);
  }
  if (folder_) forget();
  folder_ = Fd();
}

std::string NodeFiles::last_word_path() const {
  return kept_ ? path_ + "/" + own_ + kLastWord : "";
}

void NodeFiles::leave(const std::string& why) const {
  if (kept_) write_last_word(last_word_path(), why);
}

}  // namespace ddprun::rendezvous
