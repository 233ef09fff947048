// SPDX-License-Identifier: BSD-3-Clause
#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <sstream>

#include "cli/completion.h"
#include "cli/option_table.h"

namespace ddprun::cli {
namespace {

constexpr const char* kEpilogue =
    "Options come before SCRIPT; what follows it is the script's own. Each is also spelled with\n"
    "underscores (--nproc_per_node) and read from PET_<NAME> (PET_NPROC_PER_NODE).\n"
    "Exit codes: 0 all workers succeeded; 2 bad usage or log folder; 1 the rendezvous failed; 127 "
    "a\n"
    "worker cannot be started; 128+n stopped by signal n; else the code of the worker that failed\n"
    "first (128+n when signal n killed it).";

Error invalid(std::string text) {
  return {Errc::InvalidInput, std::move(text)};
}

const OptionSpec* find_short(char name) {
  for (const OptionSpec& spec : option_specs()) {
    if (spec.short_name == name) return &spec;
  }
  return nullptr;
}

// The option that `name` (without dashes in front) is, or is an unambiguous beginning of.  nullptr
// for an unknown one.
Result<const OptionSpec*> find_long(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  std::vector<const OptionSpec*> candidates;
  for (const OptionSpec& spec : option_specs()) {
    if (spec.name == name) return &spec;
    if (std::string_view(spec.name).starts_with(name)) candidates.push_back(&spec);
  }
  if (candidates.empty()) return nullptr;
  if (candidates.size() == 1) return candidates.front();
  std::string matches;
  for (const OptionSpec* spec : candidates)
    matches += (matches.empty() ? "--" : ", --") + std::string(spec->name);
  return invalid("option --" + name + " is ambiguous: it could be " + matches);
}

// The command line, cut in two.
struct SplitArguments {
  std::vector<std::string> options;  // long names in full, each value joined to its option by '='
  std::vector<std::string> command;
};

// Only the options in front of the script are ours; the rest is not even looked at, or else a
// script's own `--log=1` could be taken for an abbreviation.
Result<SplitArguments> split(const std::vector<std::string>& arguments) {
  SplitArguments result;
  for (auto argument = arguments.begin(); argument != arguments.end(); ++argument) {
    if (*argument == "--" || !argument->starts_with('-') || argument->size() == 1) {
      result.command.assign(*argument == "--" ? argument + 1 : argument, arguments.end());
      break;
    }
    bool is_long = argument->starts_with("--");
    auto equals = argument->find('=');
    std::optional<std::string> value;
    if (equals != std::string::npos) value = argument->substr(equals + 1);
    const OptionSpec* spec = nullptr;
    if (is_long) {
      std::string name = argument->substr(2, equals == std::string::npos ? equals : equals - 2);
      if (name != "help" && name != "version") {
        Result<const OptionSpec*> found = find_long(name);
        if (!found) return found.error();
        spec = *found;
      }
    } else {
      spec = find_short((*argument)[1]);
      if (spec != nullptr && argument->size() > 2 && equals != 2)
        value = argument->substr(2);  // -r3
    }
    if (spec == nullptr) {
      result.options.push_back(*argument);  // --help, --version, or unknown: CLI11 will tell
      continue;
    }
    std::string option = "--" + std::string(spec->name);
    if (spec->value_name == nullptr) {
      if (value) return invalid(option + " takes no value, and was given '" + *value + "'");
      result.options.push_back(option);
      continue;
    }
    if (!value) {
      if (argument + 1 == arguments.end())
        return invalid(option + " needs a value: " + spec->value_name);
      value = *++argument;
    }
    if (value->empty()) {  // CLI11 takes "--option=" for a missing value
      result.options.insert(result.options.end(), {option, ""});
    } else {
      result.options.push_back(option + "=" + *value);
    }
  }
  return result;
}

void add_to(CLI::App& app, const OptionSpec& spec, Options& options) {
  std::string dashed = spec.name;
  std::string names = "--" + dashed;
  if (spec.short_name != 0) names = "-" + std::string(1, spec.short_name) + "," + names;
  auto store = [&options, dashed](const std::string& text) {
    options.values[dashed] = {text, "--" + dashed};
    return true;
  };
  CLI::Option* option = nullptr;
  if (spec.value_name == nullptr) {
    option = app.add_flag_function(
        names, [store](std::int64_t) { store("1"); }, spec.help);
  } else {
    option = app.add_option_function<std::string>(
        names, [store](const std::string& text) { store(text); }, spec.help);
    option->type_name(spec.value_name)->take_last();
  }
  option->group(spec.group);
}

constexpr std::size_t kNameColumns = 36;
constexpr std::size_t kHelpColumns = 100;

// Breaks `text` at blanks so that it fits beside the names.
std::string wrapped(const std::string& text) {
  std::string result;
  std::size_t column = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > 0 && column + 1 + word.size() > kHelpColumns - kNameColumns) {
      result += '\n';
      column = 0;
    }
    if (column > 0) result += ' ';
    result += word;
    column += word.size() + 1;
  }
  return result;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kNameColumns); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: ddprun [OPTIONS] SCRIPT [ARGUMENTS...]\n";
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description());
  }
};

// torchrun reads a flag's variable as an integer.
Result<void> read_variables(Options& options, const worker::Lookup& environment) {
  for (const OptionSpec& spec : option_specs()) {
    if (!spec.has_variable || options.values.contains(spec.name)) continue;
    std::string variable = variable_of(spec);
    std::optional<std::string> text = environment(variable);
    if (!text) continue;
    if (spec.value_name == nullptr && *text != "0" && *text != "1") {
      return invalid(variable + "='" + *text + "' is neither 0 nor 1");
    }
    if (spec.value_name == nullptr && *text == "0") continue;
    options.values[spec.name] = {*text, variable};
  }
  return {};
}

}  // namespace

Result<std::variant<Options, Answer>> parse_options(const std::vector<std::string>& arguments,
                                                    const worker::Lookup& environment) {
  Result<SplitArguments> split_arguments = split(arguments);
  if (!split_arguments) return split_arguments.error();

  Options options;
  options.command = std::move(split_arguments->command);
  CLI::App app(
      "Starts, watches and restarts distributed PyTorch training: a drop-in for torchrun.");
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(kEpilogue);
  app.set_help_flag("-h,--help", "Print this and exit");
  app.set_version_flag("--version", "ddprun " DDPRUN_VERSION, "Print the version and exit");
  for (const OptionSpec& spec : option_specs()) add_to(app, spec, options);

  std::vector<std::string> reversed(split_arguments->options.rbegin(),
                                    split_arguments->options.rend());
  try {
    app.parse(std::move(reversed));  // CLI11 takes a vector from its back
  } catch (const CLI::CallForVersion&) {
    return Answer{"ddprun " DDPRUN_VERSION "\n"};
  } catch (const CLI::CallForHelp&) {
    return Answer{app.help() + "\n"};
  } catch (const CLI::ExtrasError&) {
    return invalid("unknown option '" + app.remaining().front() + "'; see ddprun --help");
  } catch (const CLI::ParseError& error) {
    return invalid(error.what());
  }
  if (auto shell = options.values.find("print-completion"); shell != options.values.end()) {
    Result<std::string> script = completion(shell->second.text);
    if (!script) return script.error();
    return Answer{*script};
  }
  Result<void> variables = read_variables(options, environment);
  if (!variables) return variables.error();
  return options;
}

}  // namespace ddprun::cli
