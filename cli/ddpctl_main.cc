// SPDX-License-Identifier: BSD-3-Clause
//
// ddpctl: looks at runs, and at what they leave behind.
//
//   ddpctl status|nodes|ranks|waits|report|watch [--run ID] [--json] [--secret-file FILE] ENDPOINT
//   ddpctl timeline [--run ID] [--output FILE] [--secret-file FILE] ENDPOINT|LOGDIR
//   ddpctl ckpt ls|verify|show DIR
//   ddpctl ckpt convert [--format safetensors|pt] FROM TO
//   ddpctl page-token FILE
//
// Exit code: 0; 1 when a checkpoint is damaged or something failed; 2 for a bad command line, and
// for a page that is refused.
#include <CLI/CLI.hpp>
#include <iostream>
#include <utility>
#include <vector>

#include "cli/checkpoint_commands.h"
#include "cli/print.h"
#include "cli/status_commands.h"
#include "cli/timeline_command.h"
#include "store/auth/secret.h"

namespace {

using ddprun::ddp::TensorFormat;

struct Arguments {
  std::string path;
  std::string to;
  std::optional<TensorFormat> format;
  ddprun::cli::StatusQuestion question;
  std::string output;  // of `timeline`
};

using ShowStatus = ddprun::Result<void> (*)(const ddprun::cli::StatusQuestion&, std::ostream&);

struct Commands {
  CLI::App* list;
  CLI::App* verify;
  CLI::App* show;
  CLI::App* convert;
  CLI::App* page_token;
  CLI::App* timeline;
  std::vector<std::pair<CLI::App*, ShowStatus>> about_runs;
};

void add_status_commands(CLI::App& app, Arguments& arguments, Commands& commands) {
  auto add = [&](const char* name, ShowStatus show, const char* help) {
    CLI::App* command = app.add_subcommand(name, help);
    ddprun::cli::StatusQuestion& question = arguments.question;
    command->add_option("ENDPOINT", question.endpoint, "Where the nodes meet: HOST[:PORT]")
        ->required()
        ->type_name("");
    command->add_option("--run", question.run, "One run only (default: all that meet there)")
        ->type_name("ID");
    command
        ->add_option("--secret-file", question.secret_file,
                     "The file of the run's secret (default: $DDPRUN_SECRET, or none)")
        ->type_name("FILE");
    command->add_flag("--json", question.as_json, "As JSON");
    commands.about_runs.emplace_back(command, show);
  };
  add("status", ddprun::cli::show_status, "What each run does, and where its time went");
  add("nodes", ddprun::cli::show_nodes, "The nodes of each run");
  add("ranks", ddprun::cli::show_ranks, "Each worker, as its node saw it last");
  add("waits", ddprun::cli::show_waits, "For whom is waited: nodes, workers, keys");
  add("report", ddprun::cli::show_report, "The failures of workers so far");
  add("watch", ddprun::cli::watch_status, "Status and ranks, every 2 s, on one screen");
}

void add_timeline_command(CLI::App& app, Arguments& arguments, Commands& commands) {
  CLI::App* command = app.add_subcommand(
      "timeline", "What has happened to a run, for ui.perfetto.dev or chrome://tracing");
  command
      ->add_option("ENDPOINT", arguments.question.endpoint,
                   "Where the nodes meet, HOST[:PORT], or the log folder of the node that hosts")
      ->required()
      ->type_name("");
  command->add_option("--run", arguments.question.run, "Of this run (default: the only one)")
      ->type_name("ID");
  command->add_option("--output", arguments.output, "Into this file (default: stdout)")
      ->type_name("FILE");
  command
      ->add_option("--secret-file", arguments.question.secret_file,
                   "The file of the run's secret (default: $DDPRUN_SECRET, or none)")
      ->type_name("FILE");
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
  add_timeline_command(app, arguments, commands);
  return commands;
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
  if (*commands.timeline)
    done = of(cli::show_timeline(arguments.question, arguments.output, std::cout));
  if (*commands.page_token) done = of(print_page_token(arguments.path));
  if (*commands.convert) {
    done = of(cli::convert_checkpoint(arguments.path, arguments.to, arguments.format, std::cout));
  }
  for (const auto& [command, show] : commands.about_runs) {
    if (*command) done = of(show(arguments.question, std::cout));
  }
  if (done) return written(*done ? 0 : 1);
  std::cerr << "ddpctl: " << to_string(done.error()) << std::endl;
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
    std::cerr << "ddpctl: " << error.what() << " (--help lists the commands)" << std::endl;
    return 2;
  }
  try {
    return run(commands, arguments);
  } catch (const std::exception& error) {  // of std::filesystem, or no memory
    std::cerr << "ddpctl: " << error.what() << std::endl;
    return 1;
  }
}
