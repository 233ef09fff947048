// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/run_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "rendezvous/own_folder.h"
#include "store/base/fd.h"
#include "store/base/file.h"
#include "store/base/folder.h"
#include "store/clock.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr Duration kPatience = std::chrono::seconds(2);  // with a disk that stands still
constexpr std::size_t kMaxFiles = 4096;
constexpr off_t kMaxBytes = 64 * 1024 * 1024;
constexpr const char* kPartial = ".partial";

// A folder that only this user can change.  `why` says why it cannot be taken.
Fd open_folder(const std::string& path, std::string& why) {
  if (!make_own_folder(path)) {
    why = std::strerror(errno);
    return {};
  }
  auto folder = open_own_folder(path);
  bool is_writable = folder && ::faccessat(folder->get(), ".", W_OK | X_OK, AT_EACCESS) == 0;
  if (is_writable) return std::move(*folder);
  why = folder ? "it cannot be written to" : folder.error().context;
  return {};
}

std::optional<std::string> read_file(const Fd& folder, const std::string& name) {
  Fd file(::openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  bool is_there = file && ::fstat(file.get(), &status) == 0;
  if (!is_there || !S_ISREG(status.st_mode) || status.st_size > kMaxBytes) return std::nullopt;
  Result<std::string> text = read_from(file.get(), kMaxBytes, name);
  return text ? std::optional(std::move(*text)) : std::nullopt;
}

// The first of `folders` that can be taken; `problem` says why none can.
Fd open_first(const std::vector<std::string>& folders, std::string& problem) {
  std::string reasons;
  for (const std::string& path : folders) {
    std::string why;
    Fd folder = open_folder(path, why);
    if (folder) return folder;
    reasons += (reasons.empty() ? "" : "; ") + path + ": " + why;
  }
  problem = "no run files are kept (" + reasons +
            "; XDG_RUNTIME_DIR, or ddpd's --state-dir, may name a folder that only this user can "
            "change): if this host is killed and begins anew, a round may begin beside workers "
            "that are cut off";
  return {};
}

// Those whose names begin so.  `problem` names one that is none.
std::vector<RunFile> read_files(const Fd& folder, const std::string& beginning,
                                std::string& problem) {
  std::vector<RunFile> files;
  std::error_code ignored;  // what can be read is read
  auto names = names_in(folder.get(), kMaxFiles, ignored, [&](std::string_view name) {
    return name.starts_with(beginning) && !name.ends_with(kPartial);
  });
  for (const std::string& name : names) {
    auto file = decode_run_file(read_file(folder, name).value_or(""));
    if (file) {
      files.push_back(std::move(*file));
    } else {
      problem = "ignored the run file " + name + ": " + to_string(file.error());
    }
  }
  return files;
}

// A reader sees all of the text, or what was there before.
Result<void> write_file(const Fd& folder, const std::string& name, const std::string& text) {
  const std::string partial = name + kPartial;
  ::unlinkat(folder.get(), partial.c_str(), 0);  // left by a process that was killed
  return replace_file(folder.get(), name, partial, text, 0600);
}

}  // namespace

// The calls use `folder`; `found` is that of the first one, until it has ended.
struct RunFiles::Shared {
  Shared(asio::any_io_executor executor, std::function<void(const std::string&)> log_)
      : log(std::move(log_)), has_ended(executor) {}

  Fd folder;
  std::vector<RunFile> found;

  std::function<void(const std::string&)> log;  // empty: RunFiles has gone
  store::Event has_ended;
  std::size_t pending = 0;
  bool is_told = false;
};

RunFiles::RunFiles(asio::any_io_executor executor, RunFilePlace place, const Endpoint& endpoint,
                   std::function<void(const std::string&)> log)
    : place_(std::move(place)),
      endpoint_(to_string(endpoint)),
      shared_(std::make_shared<Shared>(executor, std::move(log))) {
  std::ranges::replace(endpoint_, '/', '_');
  call("read the run files", [shared = shared_, folders = place_.folders, beginning = name_of("")] {
    std::string problem;
    shared->folder = open_first(folders, problem);
    if (shared->folder) shared->found = read_files(shared->folder, beginning, problem);
    return problem;
  });
}

RunFiles::~RunFiles() {
  shared_->log = nullptr;
}

// Without a run, what the names of all runs begin with.
std::string RunFiles::name_of(const std::string& run) const {
  return place_.prefix + endpoint_ + "-" + (run.empty() ? "" : run_file_name(run));
}

void RunFiles::call(const std::string& what, std::function<std::string()> work) {
  if (place_.folders.empty() || !place_.run) return;
  ++shared_->pending;
  auto problem = std::make_shared<std::string>("cannot " + what);  // where that throws
  place_.run(
      what, [problem, work = std::move(work)] { *problem = work(); },
      [problem, shared = shared_] {
        --shared->pending;
        if (shared->log && !problem->empty() && !std::exchange(shared->is_told, true))
          shared->log(*problem);
        shared->has_ended.notify();
      });
}

void RunFiles::keep(RunFile file) {
  std::string name = name_of(file.run);
  call("write a run file", [shared = shared_, name, file = std::move(file)]() -> std::string {
    auto written = shared->folder ? write_file(shared->folder, name, encode(file)) : Result<void>();
    if (written) return "";
    return "cannot write the run file of '" + file.run + "': " + written.error().code.message();
  });
}

void RunFiles::drop(const std::string& run) {
  call("remove a run file", [shared = shared_, name = name_of(run)]() -> std::string {
    if (shared->folder) ::unlinkat(shared->folder.get(), name.c_str(), 0);
    return "";
  });
}

asio::awaitable<std::vector<RunFile>> RunFiles::read() {
  co_await settle();
  if (shared_->pending > 0) {
    shared_->log("the disk with the run files stands still; going on without them");
    co_return std::vector<RunFile>{};
  }
  co_return std::move(shared_->found);
}

asio::awaitable<void> RunFiles::settle() {
  std::shared_ptr<Shared> shared = shared_;
  for (MonoTime end = mono_now() + kPatience; shared->pending > 0 && mono_now() < end;)
    co_await shared->has_ended.wait_until(end);
}

}  // namespace ddprun::rendezvous
