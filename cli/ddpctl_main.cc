// SPDX-License-Identifier: BSD-3-Clause
//
// ddpctl: looks at runs, and at what they leave behind.
//
//   ddpctl status|nodes|ranks|waits|report|watch [--run ID] [--json] [ENDPOINT]
//   ddpctl explain [--run ID] [--json] [ENDPOINT|LOGDIR]
//   ddpctl stacks [--run ID] [--rank N] [--json] [ENDPOINT]
//   ddpctl timeline [--run ID] [--output FILE] [ENDPOINT|LOGDIR]
//   ddpctl bundle [--run ID] [-o FILE] [--max-size SIZE] [ENDPOINT|LOGDIR...]
//   ddpctl bundle --show FILE
//   ddpctl ckpt ls|verify|show DIR
//   ddpctl ckpt convert [--format safetensors|pt] FROM TO
//   ddpctl page-token FILE
//
// Exit code: 0; 1 when a checkpoint is damaged or something failed; 2 for a bad command line, and
// for a page that is refused.
#include <CLI/CLI.hpp>
#include <iostream>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/bundle_commands.h"
#include "cli/checkpoint_commands.h"
#include "cli/explain_commands.h"
#include "cli/options/parse.h"
#include "cli/own_runs.h"
#include "cli/print.h"
#include "cli/stack_commands.h"
#include "cli/status_commands.h"
#include "cli/timeline_command.h"
#include "store/auth/secret.h"
#include "store/base/text.h"

namespace {

using ddprun::ddp::TensorFormat;

struct Arguments {
  std::string path;
  std::string to;
  std::optional<TensorFormat> format;
  ddprun::cli::StatusQuestion question;
  ddprun::cli::BundleQuestion bundle;
  std::string output;  // of `timeline`
};

using ShowStatus = ddprun::Result<void> (*)(const ddprun::cli::StatusQuestion&, std::ostream&);

struct Commands {
  CLI::App* list;
  CLI::App* verify;
  CLI::App* show;
  CLI::App* convert;
  CLI::App* page_token;
  CLI::App* bundle;
  CLI::App* timeline;
  std::vector<std::pair<CLI::App*, ShowStatus>> about_runs;
};

// The value of an option, by one of the parsers in cli/options/parse.h; CLI11 shows the sentence.
template <typename Parse>
auto value_of(const char* option, const std::string& text, const Parse& parse) {
  auto value = parse(ddprun::cli::OptionValue{ddprun::printable(text), option});
  if (!value) throw CLI::ValidationError(to_string(value.error()), CLI::ExitCodes::ValidationError);
  return *value;
}

int rank_in(const std::string& text) {
  return value_of("--rank", text, [](const ddprun::cli::OptionValue& value) {
    return ddprun::cli::parse_whole(value, 0, std::numeric_limits<int>::max());
  });
}

std::uint64_t bytes_in(const std::string& text) {
  return value_of("--max-size", text, ddprun::cli::parse_size);
}

void add_secret_file(CLI::App& command, Arguments& arguments) {
  command
      .add_option("--secret-file", arguments.question.secret_file,
                  "The file of the run's secret (default: $DDPRUN_SECRET, or none)")
      ->type_name("FILE");
}

void add_status_commands(CLI::App& app, Arguments& arguments, Commands& commands) {
  auto add = [&](const char* name, ShowStatus show, const char* help,
                 const char* run = "One run only (default: all that meet there)") {
    CLI::App* command = app.add_subcommand(name, help);
    ddprun::cli::StatusQuestion& question = arguments.question;
    command
        ->add_option("ENDPOINT", question.endpoint,
                     "Where the nodes meet, or the page of one node is: HOST[:PORT] (default: "
                     "that of this user's only run on this machine)")
        ->type_name("");
    command->add_option("--run", question.run, run)->type_name("ID");
    add_secret_file(*command, arguments);
    command->add_flag("--json", question.as_json, "As JSON");
    commands.about_runs.emplace_back(command, show);
    return command;
  };
  add("status", ddprun::cli::show_status, "What each run does, and where its time went");
  add("nodes", ddprun::cli::show_nodes, "The nodes of each run");
  add("ranks", ddprun::cli::show_ranks, "Each worker, as its node saw it last");
  add("waits", ddprun::cli::show_waits, "For whom is waited: nodes, workers, keys");
  add("report", ddprun::cli::show_report, "The failures of workers so far");
  add("explain", ddprun::cli::show_explanation,
      "Why a run was stopped last, or has ended; instead of ENDPOINT also a log folder");
  add("stacks", ddprun::cli::show_stacks, "Where the workers are now, by their stacks",
      "Which run, where several meet")
      ->add_option_function<std::string>(
          "--rank", [&](const std::string& text) { arguments.question.rank = rank_in(text); },
          "One rank only, with its frames")
      ->type_name("N");
  add("watch", ddprun::cli::watch_status, "Status and ranks, every 2 s, on one screen");
}

void add_bundle(CLI::App& app, Arguments& arguments, Commands& commands) {
  ddprun::cli::BundleQuestion& bundle = arguments.bundle;
  CLI::App* command = app.add_subcommand("bundle", "One .tar.gz with what is known of a run");
  command
      ->add_option("TARGET", bundle.targets,
                   "A log folder, or where the nodes meet (HOST[:PORT]), which are then asked for "
                   "theirs; or several of them (default: where this user's only run on this "
                   "machine shows itself)")
      ->type_name("");
  command->add_option("--run", arguments.question.run, "Which run, where several meet")
      ->type_name("ID");
  add_secret_file(*command, arguments);
  command
      ->add_option("-o,--output", bundle.output,
                   "The new file (default: ddprun-bundle-TIME.tar.gz in this folder)")
      ->type_name("FILE");
  command
      ->add_option_function<std::string>(
          "--max-size", [&bundle](const std::string& text) { bundle.max_bytes = bytes_in(text); },
          "Never more bytes than this, such as 8M (default: 32M)")
      ->type_name("SIZE");
  command->add_option("--show", bundle.show, "List the contents of this bundle instead")
      ->type_name("FILE");
  commands.bundle = command;
}

void add_timeline(CLI::App& app, Arguments& arguments, Commands& commands) {
  CLI::App* command = app.add_subcommand(
      "timeline", "What has happened to a run, for ui.perfetto.dev or chrome://tracing");
  command
      ->add_option("ENDPOINT", arguments.question.endpoint,
                   "Where the nodes meet, HOST[:PORT], or the log folder of the node that hosts "
                   "(default: where this user's only run on this machine shows itself)")
      ->type_name("");
  command->add_option("--run", arguments.question.run, "Of this run (default: the only one)")
      ->type_name("ID");
  command->add_option("-o,--output", arguments.output, "Into this file (default: stdout)")
      ->type_name("FILE");
  add_secret_file(*command, arguments);
  commands.timeline = command;
}

Commands add_commands(CLI::App& app, Arguments& arguments) {
  app.set_version_flag("--version", "ddpctl " DDPRUN_VERSION);
  app.require_subcommand(1);
  CLI::App* ckpt = app.add_subcommand("ckpt", "Checkpoints that ddprun's C++ runtime has saved");
  ckpt->require_subcommand(1);
  Commands commands{};
  auto add = [&](const char* name, const char* help, const char* path_help) {
    CLI::App* command = ckpt->add_subcommand(name, help);
    command->add_option("PATH", arguments.path, path_help)->required()->type_name("");
    return command;
  };
  const char* directory = "A directory of checkpoints, or one of them";
  const char* anything =
      "A directory of checkpoints (its newest), one of them, or a file of tensors";
  commands.list = add("ls", "List checkpoints, newest first", directory);
  commands.verify = add("verify", "Read every byte and compare; exit code 1 for damage", directory);
  commands.show = add("show", "Tensors, progress and data position", anything);
  commands.convert = add("convert", "Write as the other format", anything);
  commands.convert
      ->add_option("TO", arguments.to, "The new file, or the directory for the checkpoint")
      ->required()
      ->type_name("");
  commands.convert
      ->add_option_function<std::string>(
          "--format",
          [&](const std::string& name) {
            arguments.format = name == "pt" ? TensorFormat::Pt : TensorFormat::Safetensors;
          },
          "Of a converted checkpoint")
      ->check(CLI::IsMember({"safetensors", "pt"}))
      ->type_name("");
  commands.page_token = app.add_subcommand(
      "page-token", "What opens the pages of a run or a ddpd that has this secret");
  commands.page_token->add_option("FILE", arguments.path, "The file of the secret")
      ->required()
      ->type_name("");
  add_status_commands(app, arguments, commands);
  add_bundle(app, arguments, commands);
  add_timeline(app, arguments, commands);
  return commands;
}

// What is wrong with the command line.
std::string describe(const CLI::ParseError& error, const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  std::string names;
  for (const CLI::App* command : at->get_subcommands([](const CLI::App*) { return true; }))
    names += (names.empty() ? "" : ", ") + command->get_name();
  const std::string help = " (--help lists the commands)";
  if (names.empty()) return error.what() + help;
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  if (unknown.empty()) return "no command; there are " + names;
  const std::string first = "'" + ddprun::printable(unknown.front()) + "' is not ";
  return first +
         (unknown.front().starts_with('-') ? "an option" + help : "a command; there are " + names);
}

ddprun::Result<void> print_page_token(const std::string& path) {
  auto secret = ddprun::store::Secret::from_file(path, "page-token");
  if (!secret) return secret.error();
  std::cout << secret->page_token() << '\n';
  return {};
}

// Says `text`; the exit code, unless stdout did not take all that was said.
int written(int exit_code, const std::string& text = "") {
  ddprun::Result<void> printed = ddprun::cli::print(text);
  if (printed) return exit_code;
  std::cerr << "ddpctl: " << to_string(printed.error()) << std::endl;
  return 1;
}

// The same, where it names no place, with that of the only run here.
ddprun::Result<ddprun::cli::StatusQuestion> with_endpoint(ddprun::cli::StatusQuestion question) {
  if (!question.endpoint.empty()) return question;
  ddprun::Result<std::string> found = ddprun::cli::own_endpoint(question);
  if (!found) return found.error();
  question.endpoint = std::move(*found);
  return question;
}

// Likewise, where it names no target.
ddprun::Result<void> make_bundle(ddprun::cli::BundleQuestion bundle,
                                 const ddprun::cli::StatusQuestion& question) {
  if (bundle.targets.empty() && bundle.show.empty()) {
    ddprun::Result<std::string> found = ddprun::cli::own_endpoint(question);
    if (!found) return found.error();
    bundle.targets.push_back(std::move(*found));
  }
  return ddprun::cli::make_bundle(bundle, question, std::cout);
}

// Does what was asked; returns the exit code.
int run(const Commands& commands, const Arguments& arguments) {
  using namespace ddprun;
  Result<bool> done = true;
  auto of = [](Result<void> result) {
    return result ? Result<bool>(true) : Result<bool>(result.error());
  };
  if (*commands.list) done = of(cli::list_checkpoints(arguments.path, std::cout));
  if (*commands.verify) done = cli::verify_checkpoints(arguments.path, std::cout);
  if (*commands.show) done = of(cli::show_checkpoint(arguments.path, std::cout));
  if (*commands.timeline) {
    Result<cli::StatusQuestion> question = with_endpoint(arguments.question);
    done = question ? of(cli::show_timeline(*question, arguments.output, std::cout))
                    : question.error();
  }
  if (*commands.page_token) done = of(print_page_token(arguments.path));
  if (*commands.convert) {
    done = of(cli::convert_checkpoint(arguments.path, arguments.to, arguments.format, std::cout));
  }
  if (*commands.bundle) done = of(make_bundle(arguments.bundle, arguments.question));
  for (const auto& [command, show] : commands.about_runs) {
    if (!*command) continue;
    Result<cli::StatusQuestion> question = with_endpoint(arguments.question);
    done = question ? of(show(*question, std::cout)) : question.error();
  }
  if (done) return written(*done ? 0 : 1);
  std::cerr << "ddpctl: " << ddprun::printable(to_string(done.error())) << std::endl;
  return done.error().code == Errc::InvalidInput ? 2 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Looks at runs, and at what they leave behind.", "ddpctl");
  Arguments arguments;
  Commands commands = add_commands(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    std::ostringstream text;
    int exit_code = app.exit(asked, text);
    return written(exit_code, text.str());
  } catch (const CLI::ParseError& error) {
    std::cerr << "ddpctl: " << ddprun::printable(describe(error, app)) << std::endl;
    return 2;
  }
  try {
    return run(commands, arguments);
  } catch (const std::exception& error) {  // of std::filesystem, or no memory
    std::cerr << "ddpctl: " << error.what() << std::endl;
    return 1;
  }
}
