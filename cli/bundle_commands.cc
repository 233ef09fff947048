// SPDX-License-Identifier: BSD-3-Clause
#include "cli/bundle_commands.h"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/bundle_file.h"
#include "cli/bundle_plan.h"
#include "cli/explain_text.h"
#include "cli/json_fields.h"
#include "cli/log_folder.h"
#include "cli/stack_commands.h"
#include "store/base/percent.h"
#include "store/base/text.h"

namespace ddprun::cli {
namespace {

constexpr std::size_t kManifestBytes = 48 * 1024;
constexpr std::size_t kManifestRoom = 64 * 1024;
static_assert(kLeastBundle > kManifestRoom);

// Collects what goes in, and what does not.
class Bundle {
 public:
  Bundle(BundleFile file, std::int64_t now) : file_(std::move(file)), now_(now) {}

  Result<void> add(const std::string& name, std::string_view text, std::int64_t mtime = 0,
                   const std::string& remark = "") {
    auto has_room = file_.add(name, text, mtime == 0 ? now_ : mtime, kManifestRoom);
    if (!has_room) return has_room.error();
    if (!*has_room) {
      ++left_out_;
      notes.push_back("left out, for --max-size or its long name: " + name);
    } else {
      ++added_;
      if (!remark.empty()) notes.push_back(name + ": " + remark);
    }
    return {};
  }

  Result<void> finish() {
    std::string text = "Made by ddpctl " DDPRUN_VERSION
                       ". Not in it: logs of nodes whose folders were not given, core files, the "
                       "environments of workers.\nPasswords and tokens are masked in "
                       "environment.txt only: logs are as they were written.\n";
    for (const std::string& note : notes) text += printable(note) + '\n';
    if (text.size() > kManifestBytes) text = cut(text, kManifestBytes) + "\n";
    auto has_room = file_.add("MANIFEST.txt", text, now_, 0);
    if (!has_room) return has_room.error();
    return file_.finish();
  }

  std::size_t added() const { return added_; }
  std::size_t left_out() const { return left_out_; }
  std::uint64_t size() const { return file_.size(); }
  std::vector<std::string> notes;

 private:
  BundleFile file_;
  std::int64_t now_;
  std::size_t added_ = 0;
  std::size_t left_out_ = 0;
};

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string versions() {
  utsname system{};
  ::uname(&system);
  std::array<char, 64> library{};  // "glibc 2.36"
  ::confstr(_CS_GNU_LIBC_VERSION, library.data(), library.size());
  return "ddpctl " DDPRUN_VERSION "\nkernel " + std::string(system.release) + " " + system.machine +
         "\n" + library.data() + "\nhost " + system.nodename + "\n";
}

std::string own_environment() {
  std::vector<std::string> lines;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each)
    lines.push_back(printable(masked(*each)));
  std::ranges::sort(lines);
  std::string text = "# Of ddpctl, where the bundle was made.\n";
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

Result<void> add_logs(const std::string& target, const std::string& prefix, Bundle& bundle) {
  Result<LogFolder> folder = LogFolder::open(target);
  if (!folder) return folder.error();
  bundle.notes.push_back(prefix + " is " + folder->path());
  std::vector<LogFile> files = folder->files(bundle.notes);
  sort_by_use(files);
  for (const LogFile& file : files) {
    Result<std::string> text = folder->end_of(file.path, kMaxEntryBytes);
    if (!text) {
      bundle.notes.push_back("not read: " + file.path + ": " + to_string(text.error()));
      continue;
    }
    bool is_end = file.size > kMaxEntryBytes;
    auto added = bundle.add(
        prefix + '/' + file.path, *text, file.mtime,
        is_end ? "the last MB of " + std::to_string(file.size) + " bytes" : std::string());
    if (!added) return added;
  }
  return {};
}

// So that who misses a node's logs knows where they are.
void note_log_folders(const Json& page, const std::string& run, std::vector<std::string>& notes) {
  for (const Json& each : field(page, "runs")) {
    if (!is_named(each, run)) continue;
    for (const Json& node : field(each, "nodes")) {
      std::string folder = text(node, "log_folder");
      if (!folder.empty())
        notes.push_back("the logs of " + text(node, "host") + " are in " + folder);
    }
  }
}

Result<void> add_timeline(const StatusQuestion& question, const std::string& run,
                          const std::string& prefix, Bundle& bundle) {
  Result<PageAccess> access = access_of(question);
  if (!access) return access.error();
  auto trace = text_of_page(*access, "/timeline/" + percent_encoded(run));
  if (trace) return bundle.add(prefix + "/timeline.json", *trace);
  bundle.notes.push_back(prefix + ": no timeline: " + to_string(trace.error()));
  return {};
}

Result<void> add_run(const std::string& target, const std::string& prefix, StatusQuestion question,
                     Bundle& bundle) {
  question.endpoint = target;
  Result<Json> page = page_of(question);
  if (!page) {
    bool is_path = target.find('/') != std::string::npos;
    if (!is_path) return page.error();
    return Error{Errc::InvalidInput, target + " is no folder, and no place where nodes meet: " +
                                         to_string(page.error())};
  }
  bundle.notes.push_back(prefix + " is what " + target + " says");
  note_log_folders(*page, question.run, bundle.notes);
  auto added = bundle.add(prefix + "/status.json", dump(*page, 1) + '\n');
  if (!added) return added;
  if (std::vector<Json> runs = explained_runs(*page, question.run); !runs.empty())
    added = bundle.add(prefix + "/explain.txt", text_of(explain_lines(runs.front())));
  if (!added) return added;
  Result<std::string> run = run_of(*page, question);
  if (run) added = add_timeline(question, *run, prefix, bundle);
  if (!added) return added;
  Result<Json> stacks = run ? stacks_of(question, *page, *run) : Result<Json>(run.error());
  if (stacks) return bundle.add(prefix + "/stacks.json", dump(*stacks, 1) + '\n');
  bundle.notes.push_back(prefix + ": no stacks: " + to_string(stacks.error()));
  return {};
}

std::string default_name(std::time_t now) {
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[64];
  std::strftime(text, sizeof text, "ddprun-bundle-%Y%m%d-%H%M%S.tar.gz", &local);
  return text;
}

Result<void> fill(const BundleQuestion& question, const StatusQuestion& run, Bundle& bundle) {
  auto added = bundle.add("versions.txt", versions());
  if (added) added = bundle.add("environment.txt", own_environment());
  std::size_t folders = 0;
  std::size_t places = 0;
  for (const std::string& target : question.targets) {
    if (!added) return added;
    added =
        is_folder(target)
            ? add_logs(target, "logs" + (folders++ > 0 ? std::to_string(folders) : ""), bundle)
            : add_run(target, "run" + (places++ > 0 ? std::to_string(places) : ""), run, bundle);
  }
  return added;
}

}  // namespace

Result<void> make_bundle(const BundleQuestion& bundle, const StatusQuestion& question,
                         std::ostream& out) {
  if (!bundle.show.empty()) return list_bundle(bundle.show, out);
  if (bundle.targets.empty())
    return Error{Errc::InvalidInput,
                 "bundle: name a log folder, or where the nodes meet (or --show)"};
  if (bundle.max_bytes < kLeastBundle) {
    return Error{Errc::InvalidInput,
                 "--max-size=" + std::to_string(bundle.max_bytes) + " is too small: at least 128K"};
  }
  const std::time_t now = std::time(nullptr);
  const std::string path = bundle.output.empty() ? default_name(now) : bundle.output;
  Result<BundleFile> file = BundleFile::create(path, bundle.max_bytes);
  if (!file) return file.error();
  Bundle made(std::move(*file), now);
  auto filled = fill(bundle, question, made);
  if (filled) filled = made.finish();
  if (!filled) return filled;
  out << path << ": " << made.added() << " files, " << made.size() << " bytes";
  if (made.left_out() > 0)
    out << "; " << made.left_out() << " left out, which its MANIFEST.txt names";
  out << '\n';
  return {};
}

}  // namespace ddprun::cli
