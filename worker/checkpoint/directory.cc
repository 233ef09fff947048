// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/directory.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>

#include "store/base/folder.h"
#include "store/base/number.h"
#include "worker/checkpoint/durable_file.h"
#include "worker/checkpoint/formats/crc32c.h"

namespace ddprun::ddp {
namespace {

namespace fs = std::filesystem;

constexpr char kStepPrefix[] = "step-";
constexpr char kHiddenPrefix[] = ".unfinished-";
constexpr char kReplacedPrefix[] = ".replaced-";
constexpr char kDamagedPrefix[] = ".damaged-";
constexpr auto kAbandoned = std::chrono::hours(1);
constexpr std::uint64_t kMaxManifestBytes = 64 << 20;  // of hundreds of thousands of files

std::string step_name(std::int64_t step) {
  std::string digits = std::to_string(step);
  constexpr std::size_t kDigits = 12;  // so that a sorted listing is in order
  return kStepPrefix + std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

std::optional<std::int64_t> parse_number(std::string_view text) {
  auto number = number_in<std::int64_t>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

Error damaged(const fs::path& path, const std::string& what) {
  return Error{Errc::Protocol, path.string() + ": " + what};
}

Error about(const fs::path& path, const Error& error) {
  return Error{error.code, path.string() + ": " + error.context};
}

// Not there, or no such file; another failure to read says nothing of the file.
bool says_it_is_none(const Error& error) {
  return error.code == std::errc::no_such_file_or_directory ||
         error.code == std::errc::not_a_directory || error.code == std::errc::is_a_directory ||
         error.code == make_error_code(Errc::LimitExceeded);
}

Error failed(const std::error_code& code, const std::string& what) {
  return system_error(code.value(), what);
}

// Names of folders below `directory`; none when it cannot be read.
std::vector<std::string> folder_names(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : entries_of(directory, error)) {
    std::error_code ignored;
    if (entry.is_directory(ignored)) names.push_back(entry.path().filename().string());
  }
  return names;
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  std::string text = name;
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

// How a hidden folder's name ends: "-<pid>-<host>" of the process that writes it.
std::string writer(int pid = ::getpid()) {
  return "-" + std::to_string(pid) + "-" + host_name();
}

// Puts `from` in the place of `to`, which may exist.
Result<void> move_into_place(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  if (!fs::exists(to, failure)) {
    if (failure) return failed(failure, "look for " + to.string());
    if (::rename(from.c_str(), to.c_str()) == 0) return {};
    return system_error(errno, "rename " + from.string());
  }
  std::error_code ignored;  // what is left is hidden, and swept at the next start
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(from, ignored);
    return {};
  }
  // NFS, Lustre and others cannot exchange two names.
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
    return system_error(errno, "replace " + to.string());
  }
  const fs::path aside = to.parent_path() / (kReplacedPrefix + to.filename().string() + writer());
  fs::remove_all(aside, ignored);
  if (::rename(to.c_str(), aside.c_str()) != 0)
    return system_error(errno, "replace " + to.string());
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const Error error = system_error(errno, "replace " + to.string());
    ::rename(aside.c_str(), to.c_str());
    return error;
  }
  fs::remove_all(aside, ignored);
  return {};
}

// Whether the writer of the hidden folder `name`, "...-<pid>-<host>", may still be at work.
bool may_be_written(const fs::path& folder) {
  std::error_code error;
  auto changed = fs::last_write_time(folder, error);
  for (const fs::directory_entry& entry : entries_of(folder, error)) {
    std::error_code ignored;
    changed = std::max(changed, entry.last_write_time(ignored));
  }
  if (fs::file_time_type::clock::now() - changed > kAbandoned) return false;
  const std::string name = folder.filename().string();
  const std::string host = "-" + host_name();
  if (!name.ends_with(host)) return true;
  const std::string_view rest = std::string_view(name).substr(0, name.size() - host.size());
  const auto pid = number_in<int>(rest.substr(rest.rfind('-') + 1));
  return pid && (::kill(*pid, 0) == 0 || errno == EPERM);
}

// Makes the directories of `path` that are missing, and makes their names durable.
Result<void> make_directories(const fs::path& path) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path at = fs::absolute(path, error); !at.empty() && !fs::exists(at, error);
       at = at.parent_path()) {
    missing.push_back(at);
  }
  fs::create_directories(path, error);
  if (error) return failed(error, "create " + path.string());
  for (const fs::path& made : missing) {
    if (Result<void> synced = sync_folder(made.parent_path()); !synced) return synced;
  }
  return {};
}

// Adds `files` and the manifest of all that is in `folder`, and syncs it.
Result<void> write_all(const fs::path& folder, Manifest& manifest,
                       const std::vector<FileContent>& files) {
  for (const FileContent& file : files) {
    const fs::path path = folder / file.name;
    Result<FileEntry> entry = file.is_staged ? write_past_cache(path, file.pieces.at(0))
                                             : write_durably(path, file.pieces);
    if (!entry) return entry.error();
    manifest.files.push_back(*entry);
  }
  std::string json = to_json(manifest);
  if (json.size() > kMaxManifestBytes) {
    return Error{Errc::LimitExceeded, folder.string() + ": a manifest of " +
                                          std::to_string(manifest.files.size()) +
                                          " files could not be read again"};
  }
  Result<FileEntry> entry = write_durably(folder / kManifestName, {json});
  if (!entry) return entry.error();
  return sync_folder(folder);
}

Result<Manifest> read_manifest(const fs::path& checkpoint) {
  Result<std::string> json = read_file(checkpoint / kManifestName, kMaxManifestBytes);
  if (!json && says_it_is_none(json.error())) {
    return damaged(checkpoint, "it has no readable " + std::string(kManifestName));
  }
  if (!json) return json.error();
  Result<Manifest> manifest = parse_manifest(*json);
  if (!manifest) return about(checkpoint, manifest.error());
  return manifest;
}

Result<void> refuse_if_outdated(const fs::path& directory, const Generation& own) {
  if (own.run_uuid.empty()) return {};
  for (const FoundCheckpoint& found : list_checkpoints(directory)) {
    Result<Manifest> manifest = read_manifest(found.path);
    if (!manifest || manifest->generation.run_uuid != own.run_uuid) continue;
    if (manifest->generation.round <= own.round) continue;
    return Error{Errc::Refused, found.path.string() + " was written in round " +
                                    std::to_string(manifest->generation.round) +
                                    " of this run, and this process is left over from round " +
                                    std::to_string(own.round) + ": it writes nothing more"};
  }
  return {};
}

}  // namespace

Result<fs::path> begin_checkpoint(const fs::path& directory, std::int64_t step,
                                  const Generation& generation) {
  if (Result<void> made = make_directories(directory); !made) return made.error();
  if (Result<void> fine = refuse_if_outdated(directory, generation); !fine) return fine.error();
  fs::path hidden = directory / unfinished_name(step, ::getpid());
  std::error_code error;
  fs::remove_all(hidden, error);
  if (!fs::create_directory(hidden, error)) return failed(error, "create " + hidden.string());
  return hidden;
}

Result<fs::path> finish_checkpoint(const fs::path& directory, const fs::path& hidden,
                                   Manifest manifest, const std::vector<FileContent>& files) {
  fs::path place = directory / step_name(manifest.step);
  Result<void> done = write_all(hidden, manifest, files);
  if (done) done = refuse_if_outdated(directory, manifest.generation);  // to write takes a while
  if (done) done = move_into_place(hidden, place);
  if (done) done = sync_folder(directory);
  if (!done) {
    std::error_code error;
    fs::remove_all(hidden, error);
    return done.error();
  }
  return place;
}

Result<fs::path> publish_checkpoint(const fs::path& directory, Manifest manifest,
                                    const std::vector<FileContent>& files) {
  Result<fs::path> hidden = begin_checkpoint(directory, manifest.step, manifest.generation);
  if (!hidden) return hidden;
  manifest.files.clear();
  return finish_checkpoint(directory, *hidden, std::move(manifest), files);
}

std::vector<FoundCheckpoint> list_checkpoints(const fs::path& directory) {
  std::vector<FoundCheckpoint> found;
  for (const std::string& name : folder_names(directory)) {
    if (!name.starts_with(kStepPrefix)) continue;
    std::optional<std::int64_t> step = parse_number(name.substr(sizeof kStepPrefix - 1));
    // Others write "step-5".
    if (step && name == step_name(*step)) found.push_back({*step, directory / name});
  }
  std::sort(found.begin(), found.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return std::pair(a.step, a.path) > std::pair(b.step, b.path);
  });
  return found;
}

Result<Manifest> inspect_checkpoint(const fs::path& path) {
  Result<Manifest> manifest = read_manifest(path);
  if (!manifest) return manifest;
  for (const FileEntry& file : manifest->files) {
    std::error_code error;
    std::uint64_t size = fs::file_size(path / file.name, error);
    if (error && !says_it_is_none({error, ""})) {
      return failed(error, "look at " + (path / file.name).string());
    }
    if (error) return damaged(path, file.name + " is missing");
    if (size != file.size_bytes) {
      return damaged(path, file.name + " has " + std::to_string(size) + " bytes instead of " +
                               std::to_string(file.size_bytes));
    }
  }
  return manifest;
}

Result<Manifest> verify_checkpoint(const fs::path& path) {
  Result<Manifest> manifest = inspect_checkpoint(path);
  if (!manifest) return manifest;
  for (const FileEntry& file : manifest->files) {
    Result<std::uint32_t> sum = checksum_of(path / file.name);
    if (!sum) return sum.error();
    if (*sum != file.crc32c) return damaged(path, file.name + " does not match its checksum");
  }
  return manifest;
}

Result<MappedFile> map_checkpoint_file(const fs::path& path, const FileEntry& entry) {
  Result<MappedFile> file = MappedFile::open(path / entry.name);
  if (!file) return file;
  Result<void> read = file->read_ahead();
  if (!read) return about(path / entry.name, read.error());
  const std::string_view bytes = file->bytes();
  if (bytes.size() != entry.size_bytes ||
      parallel_crc32c(bytes.data(), bytes.size()) != entry.crc32c) {
    return damaged(path, entry.name + " does not match its checksum");
  }
  return file;
}

std::vector<FoundCheckpoint> list_by_metric(const fs::path& directory, Best best) {
  std::vector<std::pair<double, FoundCheckpoint>> measured;  // lower is better
  for (FoundCheckpoint& found : list_checkpoints(directory)) {
    Result<Manifest> manifest = inspect_checkpoint(found.path);
    if (!manifest || !manifest->metric) continue;
    const double metric = best == Best::Lowest ? *manifest->metric : -*manifest->metric;
    measured.emplace_back(metric, std::move(found));
  }
  std::stable_sort(measured.begin(), measured.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<FoundCheckpoint> sorted;
  for (auto& [metric, found] : measured) sorted.push_back(std::move(found));
  return sorted;
}

Result<void> prune_checkpoints(const fs::path& directory, const Retention& retention,
                               const std::vector<fs::path>& written,
                               const std::vector<fs::path>& spared) {
  std::vector<FoundCheckpoint> found = list_checkpoints(directory);
  auto is_spared = [&](const FoundCheckpoint& checkpoint) {
    return std::find(spared.begin(), spared.end(), checkpoint.path) != spared.end();
  };
  std::erase_if(found, is_spared);
  // The later this process wrote a checkpoint, the higher; 0 for those of others.
  auto recency = [&](const FoundCheckpoint& checkpoint) {
    return written.rend() - std::find(written.rbegin(), written.rend(), checkpoint.path);
  };
  if (!written.empty()) {
    auto last = std::find_if(found.begin(), found.end(), [&](const FoundCheckpoint& checkpoint) {
      return checkpoint.path == written.back();
    });
    if (last == found.end()) return {};  // another program has removed it
    std::erase_if(found, [&, step = last->step](const FoundCheckpoint& checkpoint) {
      return recency(checkpoint) == 0 && checkpoint.step > step;
    });
    std::stable_sort(found.begin(), found.end(),
                     [&](const auto& a, const auto& b) { return recency(a) > recency(b); });
  }
  fs::path best;
  if (retention.keep_best) {
    std::vector<FoundCheckpoint> measured = list_by_metric(directory, *retention.keep_best);
    std::erase_if(measured, is_spared);
    if (!measured.empty()) best = measured.front().path;
  }
  int complete = 0;
  for (const FoundCheckpoint& checkpoint : found) {
    auto inspected = inspect_checkpoint(checkpoint.path);
    bool is_newer = !inspected && inspected.error().code == make_error_code(Errc::NotSupported);
    if (is_newer) continue;  // another version's affair
    if (complete < std::max(retention.keep_last, 1)) {
      if (inspected) ++complete;
      continue;
    }
    if (checkpoint.path == best) continue;
    if (retention.keep_every > 0 && checkpoint.step % retention.keep_every == 0) continue;
    // Out of sight first, so that a crash in the middle leaves no half of a checkpoint.
    fs::path hidden = directory / unfinished_name(checkpoint.step, ::getpid());
    std::error_code ignored;
    fs::remove_all(hidden, ignored);
    if (::rename(checkpoint.path.c_str(), hidden.c_str()) != 0) {
      return system_error(errno, "remove " + checkpoint.path.string());
    }
    std::error_code error;
    fs::remove_all(hidden, error);
    if (error) return failed(error, "remove " + hidden.string());
  }
  return {};
}

Result<fs::path> set_aside(const fs::path& checkpoint) {
  const fs::path directory = checkpoint.parent_path();
  const std::string name = kDamagedPrefix + checkpoint.filename().string();
  fs::path place = directory / name;
  std::error_code unknown;  // then rename() says why
  for (int number = 2; fs::exists(fs::symlink_status(place, unknown)); ++number) {
    place = directory / (name + "-" + std::to_string(number));
  }
  if (::rename(checkpoint.c_str(), place.c_str()) != 0) {
    return system_error(errno, "rename " + checkpoint.string());
  }
  return place;
}

std::string unfinished_name(std::int64_t step, int pid) {
  static std::atomic<int> made = 0;
  return kHiddenPrefix + step_name(step) + "-" + std::to_string(++made) + writer(pid);
}

void sweep_unfinished(const fs::path& directory) {
  for (const std::string& name : folder_names(directory)) {
    std::error_code ignored;
    const fs::path folder = directory / name;
    if (name.starts_with(kHiddenPrefix) && !may_be_written(folder)) fs::remove_all(folder, ignored);
  }
  put_back_replaced(directory);
}

void put_back_replaced(const fs::path& directory) {
  for (const std::string& name : folder_names(directory)) {
    const fs::path folder = directory / name;
    if (!name.starts_with(kReplacedPrefix) || may_be_written(folder)) continue;
    const std::string rest = name.substr(sizeof kReplacedPrefix - 1);
    const fs::path place = directory / rest.substr(0, rest.find('-', sizeof kStepPrefix - 1));
    std::error_code ignored;
    std::error_code unknown;
    const bool is_replaced = fs::exists(place, unknown);
    if (unknown) continue;
    if (is_replaced) {
      fs::remove_all(folder, ignored);
    } else {
      fs::rename(folder, place, ignored);
    }
  }
}

Result<fs::path> run_directory(const fs::path& base, const std::string& run_id, bool is_restart) {
  std::string prefix = run_id;
  std::replace(prefix.begin(), prefix.end(), '/', '_');
  if (prefix.empty() || prefix.front() == '.') prefix.insert(prefix.begin(), '_');
  prefix += '-';

  std::int64_t newest = 0;
  for (const std::string& name : folder_names(base)) {
    if (!name.starts_with(prefix)) continue;
    newest =
        std::max(newest, parse_number(std::string_view(name).substr(prefix.size())).value_or(0));
  }
  if (is_restart && newest > 0) return base / (prefix + std::to_string(newest));

  if (Result<void> made = make_directories(base); !made) return made.error();
  std::error_code error;
  fs::path folder = base / (prefix + std::to_string(newest + 1));
  if (!fs::create_directory(folder, error)) return failed(error, "create " + folder.string());
  if (Result<void> synced = sync_folder(base); !synced) return synced.error();
  return folder;
}

}  // namespace ddprun::ddp
