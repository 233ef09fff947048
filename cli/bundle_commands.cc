// SPDX-License-Identifier: BSD-3-Clause
#include "cli/bundle_commands.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "agent/bundle/contents.h"
#include "agent/bundle/log_folder.h"
#include "cli/bundle_file.h"
#include "cli/bundle_nodes.h"
#include "cli/explain_text.h"
#include "cli/json_fields.h"
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
                       ". Not in it: core files, and the files of nodes that were not asked or "
                       "have not answered.\nPasswords and tokens are masked in environment.txt "
                       "only: logs are as they were written.\n";
    for (const std::string& note : notes) text += printable(note) + '\n';
    if (text.size() > kManifestBytes) text = cut(text, kManifestBytes) + "\n";
    auto has_room = file_.add("MANIFEST.txt", text, now_, 0);
    if (!has_room) return has_room.error();
    return file_.finish();
  }

  // Of what is missing: also on the console.
  void complain(const std::string& what) {
    notes.push_back(what);
    std::cerr << "ddpctl: " << printable(what) << std::endl;
  }

  agent::AddEntry adder() {
    return [this](const std::string& name, std::string_view text, std::int64_t mtime,
                  const std::string& remark) { return add(name, text, mtime, remark); };
  }

  std::uint64_t room() const { return file_.room(kManifestRoom); }
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

std::vector<std::string> own_environment() {
  std::vector<std::string> assignments;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each)
    assignments.emplace_back(*each);
  return assignments;
}

// Refuses a folder that is no run's: a user who meant a run would hand on what else is in it.
Result<void> check_is_of_a_run(const std::string& target) {
  auto folder = agent::LogFolder::open(target);
  if (!folder) return folder.error();
  std::vector<std::string> unread;
  bool is_of_run = std::ranges::any_of(folder->files(unread), [](const agent::LogFile& file) {
    return file.path == "report.json" || file.path.starts_with("attempt_");
  });
  if (is_of_run) return {};
  return Error{Errc::InvalidInput,
               folder->path() +
                   " has no logs of a run (attempt_0 or report.json): name the folder "
                   "that the run's output names, or its --log-dir"};
}

Result<void> add_logs(const std::string& target, const std::string& prefix, Bundle& bundle) {
  auto is_of_run = check_is_of_a_run(target);
  if (!is_of_run) return is_of_run;
  return agent::add_log_folder(target, prefix, bundle.adder(), bundle.notes, [] { return true; });
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

// A run whose nodes can be asked for their files.
struct KnownRun {
  StatusQuestion question;
  std::string run;
};

// The run that is meant, if it is over: its host still has what happened to it.
std::optional<std::string> run_that_is_over(const Json& page, const std::string& run) {
  if (run.empty() && !field(page, "runs").empty()) return std::nullopt;
  std::optional<std::string> found;
  for (const Json& each : field(page, "ended")) {
    const Json& name = field(each, "run");
    if (name.is_string() && is_named(each, run)) found = name.get<std::string>();
  }
  return found;
}

// Adds it to `known` if its nodes can be asked for their files.
Result<void> add_run(const std::string& target, const std::string& prefix, StatusQuestion question,
                     Bundle& bundle, std::vector<KnownRun>& known) {
  question.endpoint = target;
  Result<Json> page = page_of(question);
  if (!page) {
    bool is_path = target.find('/') != std::string::npos;
    if (!is_path) return page.error();
    return Error{Errc::InvalidInput, target + " is no folder, and no place where nodes meet: " +
                                         to_string(page.error())};
  }
  Result<std::string> run = run_of(*page, question);
  auto over = run ? std::nullopt : run_that_is_over(*page, question.run);
  if (!run && !over) return run.error();
  bundle.notes.push_back(prefix + " is what " + target + " says");
  note_log_folders(*page, question.run, bundle.notes);
  auto added = bundle.add(prefix + "/status.json", dump(*page, 1) + '\n');
  if (!added) return added;
  if (std::vector<Json> runs = explained_runs(*page, question.run); !runs.empty())
    added = bundle.add(prefix + "/explain.txt", text_of(explain_lines(runs.front())));
  if (added) added = add_timeline(question, run ? *run : *over, prefix, bundle);
  if (!added) return added;
  if (over) {
    bundle.complain("no files of the nodes: run '" + *over +
                    "' is over; add their log folders, as in 'ddpctl bundle LOGDIR'");
    return {};
  }
  known.push_back({.question = question, .run = *run});
  Result<Json> stacks = stacks_of(question, *page, *run);
  if (stacks) return bundle.add(prefix + "/stacks.json", dump(*stacks, 1) + '\n');
  bundle.notes.push_back(prefix + ": no stacks: " + to_string(stacks.error()));
  return {};
}

// The `number`th one of this second.
std::string default_name(std::time_t now, int number) {
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[64];
  std::strftime(text, sizeof text, "ddprun-bundle-%Y%m%d-%H%M%S", &local);
  return text + (number > 1 ? "-" + std::to_string(number) : "") + ".tar.gz";
}

// Where the user has named none, one that is not there yet; `path`: its name.
Result<BundleFile> create_file(const BundleQuestion& question, std::time_t now, std::string& path) {
  constexpr int kMostOfASecond = 100;
  for (int number = 1;; ++number) {
    path = question.output.empty() ? default_name(now, number) : question.output;
    Result<BundleFile> file = BundleFile::create(path, question.max_bytes);
    if (file || !question.output.empty() || number >= kMostOfASecond) return file;
    std::error_code ignored;
    if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) return file;
  }
}

// What the first ones leave is for the others.
Result<void> add_files_of_nodes(std::vector<KnownRun> runs, Bundle& bundle) {
  auto complain = [&bundle](const std::string& what) { bundle.complain(what); };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Result<PageAccess> access = access_of(runs[i].question);
    if (!access) return access.error();
    std::uint64_t share = bundle.room() / (runs.size() - i);
    // Here the names are longer, which takes some bytes more.
    NodesQuestion question{.access = std::move(*access),
                           .run = runs[i].run,
                           .prefix = "nodes" + (i > 0 ? std::to_string(i + 1) : ""),
                           .most_bytes = share - share / 32};
    auto added = add_nodes(question, bundle.adder(), complain);
    if (!added) return added;
  }
  return {};
}

Result<void> fill(const BundleQuestion& question, const StatusQuestion& run, Bundle& bundle) {
  auto added = bundle.add("versions.txt", agent::versions_text("ddpctl " DDPRUN_VERSION));
  if (added) {
    added = bundle.add(
        "environment.txt",
        agent::environment_text("# Of ddpctl, where the bundle was made.", own_environment()));
  }
  std::size_t folders = 0;
  std::size_t places = 0;
  std::vector<KnownRun> runs;
  for (const std::string& target : question.targets) {
    if (!added) return added;
    added = is_folder(target)
                ? add_logs(target, "logs" + (folders++ > 0 ? std::to_string(folders) : ""), bundle)
                : add_run(target, "run" + (places++ > 0 ? std::to_string(places) : ""), run, bundle,
                          runs);
  }
  return added ? add_files_of_nodes(std::move(runs), bundle) : added;
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
  std::string path;
  Result<BundleFile> file = create_file(bundle, now, path);
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
