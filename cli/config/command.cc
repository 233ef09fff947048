// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/command.h"

namespace ddprun::cli {
namespace {

// What torchrun does in a process of its own for --run-path, with sys.argv as the script expects
// it.  The error file is written as torchrun's @record would, where torch is there.  No '$' in it:
// the worker's arguments have their macros replaced.
constexpr const char* kRunPath = R"(import runpy, sys
del sys.argv[0]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except Exception as error:
    try:
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler
        get_error_handler().record_exception(error)
    except ImportError:
        pass
    raise)";

struct Python {
  std::string name;
  std::string origin{};  // the variable that says so, if one does
};

Python python_of(const ConfigBuilder& builder) {
  if (std::string python = builder.inherited("PYTHON_EXEC"); !python.empty())
    return {.name = python, .origin = "PYTHON_EXEC"};
  if (std::string venv = builder.inherited("VIRTUAL_ENV"); !venv.empty())
    return {.name = venv + "/bin/python3", .origin = "VIRTUAL_ENV"};
  if (std::string own = builder.machine.own_python(); !own.empty()) return {.name = own};
  return {.name = "python3"};
}

// The program itself.  A script is a path, also without a slash; a program is looked up.
Result<std::vector<std::string>> program(ConfigBuilder& builder, bool is_path) {
  const std::string& name = builder.options.command.front();
  bool is_bare_file = is_path && name.find('/') == std::string::npos;
  Result<std::string> found = builder.machine.find_program(is_bare_file ? "./" + name : name);
  if (!found) return builder.preflight_failure(to_string(found.error()));
  return std::vector{*found};
}

// Python, with its own options in front of the script or module.
Result<std::vector<std::string>> python(ConfigBuilder& builder,
                                        const std::vector<std::string>& options) {
  const std::string& script = builder.options.command.front();
  const Python python = python_of(builder);
  Result<std::string> found = builder.machine.find_program(python.name);
  if (!found) {
    std::string origin = python.origin.empty() ? "" : " (" + python.origin + " names it)";
    return builder.preflight_failure("no Python to run '" + script +
                                     "' with: " + to_string(found.error()) + origin);
  }
  std::vector<std::string> argv = {*found, "-u"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.push_back(script);
  return argv;
}

Result<void> can_be_run(ConfigBuilder& builder, const std::string& script, FileKind kind) {
  if (kind == FileKind::Missing)
    return builder.preflight_failure("script '" + script + "' does not exist");
  if (kind == FileKind::Folder)
    return builder.preflight_failure("script '" + script + "' is a folder, and has no __main__.py");
  return {};
}

Result<std::vector<std::string>> run_path(ConfigBuilder& builder) {
  const std::string& script = builder.options.command.front();
  for (const char* name : {"module", "no-python"}) {
    if (const OptionValue* value = builder.given(name))
      builder.note(value->origin + " has no effect with --run-path");
  }
  Result<void> there = can_be_run(builder, script, builder.machine.file_kind(script));
  if (!there) return there.error();
  return python(builder, {"-c", kRunPath});
}

Result<std::vector<std::string>> start_of_command(ConfigBuilder& builder) {
  builder.why_cold = "with --run-path";
  if (builder.given("run-path") != nullptr) return run_path(builder);
  builder.why_cold = "for a program that is no Python script";
  const std::string& script = builder.options.command.front();
  bool is_program = builder.given("no-python") != nullptr;
  if (builder.given("module") != nullptr) {
    if (is_program) return invalid("--module and --no-python exclude each other");
    bool is_file =
        script.ends_with(".py") && builder.machine.file_kind(script) != FileKind::Missing;
    if (is_file)
      return invalid("-m '" + script + "' is a file: a module's name has no .py and dots for " +
                     "slashes; or leave out -m");
    builder.why_cold.clear();
    return python(builder, {"-m"});
  }
  if (is_program) return program(builder, false);
  if (script == "-") {  // Python reads the script from its stdin
    if (builder.workers().local_world_size > 1)
      return invalid("the script '-' is read from stdin, which only one worker can read: give " +
                     std::to_string(builder.workers().local_world_size) +
                     " workers a file, or /dev/stdin where it is one");
    builder.why_cold = "for a script from stdin";
    return python(builder, {});
  }
  FileKind kind = builder.machine.file_kind(script);
  Result<void> there = can_be_run(builder, script, kind);
  if (!there) return there.error();
  if (kind == FileKind::Native) {
    builder.note(script + " is a native program, so it is run directly, as with --no-python");
    return program(builder, true);
  }
  builder.why_cold.clear();
  return python(builder, {});
}

}  // namespace

Result<void> add_command(ConfigBuilder& builder) {
  const std::vector<std::string>& given = builder.options.command;
  if (given.empty() || given.front().empty())
    return invalid("no script or program to run; see ddprun --help");
  Result<std::vector<std::string>> argv = start_of_command(builder);
  if (!argv) return argv.error();
  argv->insert(argv->end(), given.begin() + 1, given.end());
  builder.workers().command = std::move(*argv);
  return {};
}

}  // namespace ddprun::cli
