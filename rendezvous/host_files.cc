// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/host_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "store/base/fd.h"
#include "store/base/file.h"
#include "store/base/folder.h"
#include "store/base/number.h"
#include "store/clock.h"
#include "store/event.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr off_t kMaxBytes = 64 * 1024 * 1024;
constexpr const char* kPartial = ".partial";

// So many generations stay, so that a node which sees the folder as it was a while ago, as on NFS,
// cannot claim one that has been.
constexpr std::uint64_t kKept = 16;

// An entry that was listed may have been removed since.
constexpr int kReadAttempts = 5;

Error disk_error(const std::string& what) {
  return system_error(errno, what);
}

// A folder that is not there, where its parent is, may be on a file system that is not mounted yet.
Error missing(const std::string& path) {
  std::string parent = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
  struct stat status {};
  bool is_parent_missing = ::stat(parent.c_str(), &status) != 0 && errno == ENOENT;
  if (is_parent_missing)
    return {Errc::InvalidInput,
            "the folder " + path + " does not exist, and neither does " + parent};
  return {Errc::Closed, "the folder " + path + " does not exist"};
}

Result<Fd> open_folder(const std::string& path) {
  auto bad = [&path](const std::string& why, Errc code = Errc::InvalidInput) {
    return Error{code, "the folder " + path + " " + why};
  };
  Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder && errno == ENOENT) return missing(path);
  if (!folder && errno == ENOTDIR) return bad("is no folder");
  if (!folder && errno == EACCES) return bad("cannot be read by this user", Errc::Closed);
  struct stat status {};
  if (!folder || ::fstat(folder.get(), &status) != 0) return disk_error("open " + path);
  bool is_open_to_others = (status.st_mode & 0022) != 0;
  if (is_open_to_others && (status.st_mode & S_ISVTX) != 0) {  // as /tmp, and meant to be
    return bad("is shared with other users, who could move the run; mkdir -m 700 " + path +
               "/NAME makes one that is yours alone");
  }
  if (status.st_uid != ::geteuid()) return bad("belongs to another user, who could move the run");
  if (is_open_to_others)
    return bad("can be changed by other users, who could move the run; chmod go-w helps");
  if (::faccessat(folder.get(), ".", W_OK | X_OK, AT_EACCESS) == 0) return folder;
  if (errno == EROFS) return bad("is on a read-only file system", Errc::Closed);
  if (errno == EACCES) return bad("cannot be written to by this user", Errc::Closed);
  return disk_error("look at " + path);
}

}  // namespace

// One run's entries.  Used on the disk's thread.
class HostFiles::Folder {
 public:
  static Result<Folder> open(const std::string& path, const std::string& run) {
    auto folder = open_folder(path);
    if (!folder) return folder.error();
    return Folder(std::move(*folder), path, "ddprun-" + run_file_name(run) + ".");
  }

  Result<HostEntry> newest() const {
    for (int attempt = 1;; ++attempt) {
      auto generations = list();
      if (!generations) return generations.error();
      if (generations->empty()) return HostEntry{};
      auto entry = read_down(*generations);
      bool is_removed = !entry && entry.error().code == std::errc::no_such_file_or_directory;
      if (!is_removed || attempt == kReadAttempts) return entry;
    }
  }

  Result<bool> claim(const HostEntry& entry, const std::string& writer) const {
    // Writing comes first: a client of NFS then sees the folder as it is.
    auto partial = write(entry, writer);
    if (!partial) return partial.error();
    auto claimed = link(*partial, entry.generation);
    ::unlinkat(folder_.get(), partial->c_str(), 0);
    if (!claimed || !*claimed) return claimed;
    auto last = last_generation();
    if (!last) return last.error();
    // It had been claimed before, and the entry was pruned meanwhile: the list was an old one.
    if (*last >= entry.generation + kKept) {
      ::unlinkat(folder_.get(), name_of(entry.generation).c_str(), 0);
      return false;
    }
    ::fsync(folder_.get());
    prune(entry.generation);
    return true;
  }

  Result<bool> note(const HostEntry& entry, const std::string& writer) const {
    auto partial = write(entry, writer);
    if (!partial) return partial.error();
    auto last = last_generation();
    if (!last || *last > entry.generation) {
      ::unlinkat(folder_.get(), partial->c_str(), 0);
      if (!last) return last.error();
      return false;
    }
    const std::string name = name_of(entry.generation);
    if (::renameat(folder_.get(), partial->c_str(), folder_.get(), name.c_str()) != 0) {
      Error error = disk_error("write " + path_ + "/" + name);
      ::unlinkat(folder_.get(), partial->c_str(), 0);
      return error;
    }
    last = last_generation();
    if (!last) return last.error();
    return *last <= entry.generation;
  }

 private:
  Folder(Fd folder, std::string path, std::string beginning)
      : folder_(std::move(folder)), path_(std::move(path)), beginning_(std::move(beginning)) {}

  std::string name_of(std::uint64_t generation) const {
    return beginning_ + std::to_string(generation);
  }

  // The names of this run's files, and of what generation each is.
  Result<std::vector<std::pair<std::string, std::uint64_t>>> files() const {
    constexpr std::size_t kAll = SIZE_MAX;
    std::error_code error;
    auto names = names_in(folder_.get(), kAll, error,
                          [this](std::string_view name) { return name.starts_with(beginning_); });
    if (error) return Error{error, "list " + path_};
    std::vector<std::pair<std::string, std::uint64_t>> found;
    for (std::string& name : names) {
      std::string rest = name.substr(beginning_.size());
      auto generation = number_in<std::uint64_t>(rest.substr(0, rest.find('.')));
      if (generation && *generation > 0) found.emplace_back(std::move(name), *generation);
    }
    return found;
  }

  static bool is_partial(const std::string& name) { return name.ends_with(kPartial); }

  Result<std::vector<std::uint64_t>> list() const {
    auto found = files();
    if (!found) return found.error();
    std::vector<std::uint64_t> generations;
    for (const auto& [name, generation] : *found) {
      if (!is_partial(name)) generations.push_back(generation);
    }
    std::ranges::sort(generations, std::greater<>());
    return generations;
  }

  Result<std::uint64_t> last_generation() const {
    auto generations = list();
    if (!generations) return generations.error();
    return generations->empty() ? 0 : generations->front();
  }

  // The newest, with what the last host has said that has said anything.
  Result<HostEntry> read_down(const std::vector<std::uint64_t>& generations) const {
    std::optional<HostEntry> newest;
    for (std::uint64_t generation : generations) {
      auto entry = read(generation);
      if (!entry) return entry;
      bool says_file = entry->says_file;
      if (!newest) {
        newest = std::move(*entry);
      } else if (says_file) {
        newest->file = std::move(entry->file);
      }
      if (says_file) break;
    }
    newest->says_file = true;
    return *newest;
  }

  Result<HostEntry> read(std::uint64_t generation) const {
    const std::string name = name_of(generation);
    auto unreadable = [&](const std::string& why) {
      return Error{Errc::Protocol, path_ + "/" + name + " is no entry of this version: " + why};
    };
    Fd file(::openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) return disk_error("open " + path_ + "/" + name);
    if (!S_ISREG(status.st_mode) || status.st_size > kMaxBytes)
      return unreadable("it is no file, or too large");
    Result<std::string> text = read_from(file.get(), kMaxBytes, "read " + path_ + "/" + name);
    if (!text) return text.error();
    auto entry = decode_host_entry(*text);
    if (!entry) return unreadable(entry.error().context);
    if (entry->generation != generation) return unreadable("it is of another generation");
    return entry;
  }

  // To a name of this process's own.
  Result<std::string> write(const HostEntry& entry, const std::string& writer) const {
    std::string name = name_of(entry.generation) + "." + writer + kPartial;
    ::unlinkat(folder_.get(), name.c_str(), 0);
    Fd file(::openat(folder_.get(), name.c_str(),
                     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!file) return disk_error("write " + path_ + "/" + name);
    int error_number = write_all(file.get(), encode(entry));
    if (error_number == 0 && ::fsync(file.get()) != 0) error_number = errno;
    if (error_number == 0) return name;
    Error error = system_error(error_number, "write " + path_ + "/" + name);
    ::unlinkat(folder_.get(), name.c_str(), 0);
    return error;
  }

  Result<bool> link(const std::string& partial, std::uint64_t generation) const {
    auto last = last_generation();
    if (!last) return last.error();
    if (generation != *last + 1) return false;
    const std::string name = name_of(generation);
    int failed = ::linkat(folder_.get(), partial.c_str(), folder_.get(), name.c_str(), 0);
    int error_number = errno;
    // Over NFS the answer to the first try may be lost, and the second one finds the name taken.
    struct stat status {};
    bool has_both = ::fstatat(folder_.get(), partial.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                    status.st_nlink == 2;
    if (failed == 0 || has_both) return true;
    if (error_number == EEXIST) return false;
    return system_error(error_number, "link " + path_ + "/" + name);
  }

  // Keeps what may still be needed: the last entries, and the last one that says a run file.
  void prune(std::uint64_t last) const {
    auto found = files();
    if (!found || last <= kKept) return;
    std::optional<std::uint64_t> says_file;
    auto generations = list();
    if (!generations) return;
    for (std::uint64_t generation : *generations) {
      auto entry = read(generation);
      if (!entry) return;
      if (entry->says_file) says_file = generation;
      if (says_file) break;
    }
    for (const auto& [name, generation] : *found) {
      bool is_old = generation + kKept <= last;
      bool is_needed = !is_partial(name) && says_file == generation;
      if (is_old && !is_needed) ::unlinkat(folder_.get(), name.c_str(), 0);
    }
  }

  Fd folder_;
  std::string path_;
  std::string beginning_;
};

Result<void> check_host_folder(const std::string& path) {
  auto folder = open_folder(path);
  if (!folder) return folder.error();
  return {};
}

struct HostFiles::Shared {
  explicit Shared(asio::any_io_executor executor) : has_ended(executor) {}

  bool is_open = true;
  bool is_busy = false;  // a call is on the disk's thread
  store::Event has_ended;
};

HostFiles::HostFiles(asio::any_io_executor executor, HostFilesConfig config)
    : config_(std::move(config)), shared_(std::make_shared<Shared>(executor)) {
  std::ranges::replace(config_.node, '/', '_');
}

HostFiles::~HostFiles() = default;

std::string HostFiles::name() const {
  return "file:" + config_.folder;
}

void HostFiles::close() {
  shared_->is_open = false;
  shared_->has_ended.notify();
}

// One call at a time is on the disk's thread, so that a folder which stands still gathers none.
template <class T>
store::Async<T> HostFiles::call(std::function<Result<T>(const Folder&)> work) {
  struct Outcome {
    bool is_there = false;  // set on the event loop
    Result<T> result = Error{Errc::Closed, ""};
  };
  std::shared_ptr<Shared> shared = shared_;
  auto outcome = std::make_shared<Outcome>();
  const std::string place = name();
  const MonoTime end = mono_now() + kRegistryPatience;
  while (shared->is_open && shared->is_busy && mono_now() < end)
    co_await shared->has_ended.wait_until(end);
  if (shared->is_open && !shared->is_busy) {
    shared->is_busy = true;
    config_.on_disk(
        "look into " + config_.folder,
        [outcome, config = config_, work = std::move(work)] {
          auto folder = Folder::open(config.folder, config.run);
          outcome->result = folder ? work(*folder) : folder.error();
        },
        [shared, outcome] {
          shared->is_busy = false;
          outcome->is_there = true;
          shared->has_ended.notify();
        });
  }
  while (shared->is_open && !outcome->is_there && mono_now() < end)
    co_await shared->has_ended.wait_until(end);
  if (!shared->is_open) co_return Error{Errc::Closed, place + " is not asked any more"};
  if (!outcome->is_there) co_return Error{Errc::TimedOut, place + ": the disk stands still"};
  // A folder that is gone may come back.
  if (!outcome->result && outcome->result.error().code == Errc::InvalidInput)
    co_return Error{Errc::Closed, outcome->result.error().context};
  co_return std::move(outcome->result);
}

store::Async<HostEntry> HostFiles::newest() {
  std::function<Result<HostEntry>(const Folder&)> work = [](const Folder& folder) {
    return folder.newest();
  };
  co_return co_await call<HostEntry>(std::move(work));
}

store::Async<bool> HostFiles::claim(HostEntry entry) {
  std::function<Result<bool>(const Folder&)> work =
      [writer = config_.node, entry = std::move(entry)](const Folder& folder) {
        return folder.claim(entry, writer);
      };
  co_return co_await call<bool>(std::move(work));
}

store::Async<bool> HostFiles::note(HostEntry entry) {
  std::function<Result<bool>(const Folder&)> work =
      [writer = config_.node, entry = std::move(entry)](const Folder& folder) {
        return folder.note(entry, writer);
      };
  co_return co_await call<bool>(std::move(work));
}

}  // namespace ddprun::rendezvous
