// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <sstream>

#include "cli/config/completion.h"
#include "cli/config/option_table.h"

namespace ddprun::cli {
namespace {

constexpr const char* kEpilogue =
    "Options come before SCRIPT; what follows it is the script's own. Each is also spelled with\n"
    "underscores (--nproc_per_node) and read from PET_<NAME> (PET_NPROC_PER_NODE).\n"
    "Exit codes: 0 all workers succeeded; 2 bad usage, or no such script, program, GPU or log\n"
    "folder; 80 the rendezvous failed; 81 no processes, memory or descriptors to start a worker\n"
    "with; 82 all of --max-restarts are spent; 126 the program cannot be executed; 127 there is "
    "no\n"
    "such program; 128+n stopped by signal n; else the code of the worker that failed first "
    "(128+n\n"
    "when signal n killed it).";

Error invalid(std::string text) {
  return {Errc::InvalidInput, std::move(text)};
}

// Whether `word` stands where a value was expected, and is none: as for torchrun, which takes a
// negative number or words in quotes for a value.
bool looks_like_option(const std::string& word) {
  if (word.size() < 2 || word[0] != '-' || word.find(' ') != std::string::npos) return false;
  return word.find_first_not_of("0123456789.", 1) != std::string::npos;
}

// The full name, without dashes in front, of the option that `name` is or is an unambiguous
// beginning of; `name` itself for an unknown one.  Our own options make no abbreviation of one of
// torchrun's ambiguous.
Result<std::string> full_name(const std::string& name) {
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  std::vector<std::string> torchruns;
  std::vector<std::string> ours;
  auto consider = [&](const std::string& option, std::vector<std::string>& candidates) {
    if (!dashed.empty() && option.starts_with(dashed)) candidates.push_back(option);
  };
  consider("help", torchruns);
  consider("version", ours);
  for (const OptionSpec& spec : option_specs()) {
    if (spec.name == dashed) return dashed;
    consider(spec.name, is_ours(spec) ? ours : torchruns);
  }
  const std::vector<std::string>& candidates = torchruns.empty() ? ours : torchruns;
  if (candidates.empty()) return name;
  if (candidates.size() == 1) return candidates.front();
  std::string matches;
  for (const std::string& each : candidates) matches += (matches.empty() ? "--" : ", --") + each;
  return invalid("option --" + name + " is ambiguous: it could be " + matches);
}

// One option as it was written.
struct Spelled {
  std::string name;  // in full, or whatever an unknown one says
  const OptionSpec* spec = nullptr;
  std::optional<std::string> value;  // that is part of the word
  std::string rest;                  // of "-mr3" the "-r3"
};

const OptionSpec* find_spec(const std::string& name, char short_name) {
  for (const OptionSpec& spec : option_specs()) {
    if (spec.name == name || (short_name != 0 && spec.short_name == short_name)) return &spec;
  }
  return nullptr;
}

Result<Spelled> read_long(const std::string& word) {
  Spelled spelled;
  auto equals = word.find('=');
  if (equals != std::string::npos) spelled.value = word.substr(equals + 1);
  auto name = full_name(word.substr(2, equals == std::string::npos ? equals : equals - 2));
  if (!name) return name.error();
  spelled.name = std::move(*name);
  spelled.spec = find_spec(spelled.name, 0);
  return spelled;
}

Spelled read_short(const std::string& word) {
  Spelled spelled;
  spelled.spec = find_spec("", word[1]);
  if (spelled.spec != nullptr) spelled.name = spelled.spec->name;
  if (word[1] == 'h') spelled.name = "help";
  if (word.size() == 2) return spelled;
  bool has_equals = word[2] == '=';
  bool takes_value = spelled.spec != nullptr && spelled.spec->value_name != nullptr;
  if (takes_value || has_equals) {
    spelled.value = word.substr(has_equals ? 3 : 2);
  } else if (!spelled.name.empty()) {
    spelled.rest = "-" + word.substr(2);
  }
  return spelled;
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
    for (std::string word = *argument; !word.empty();) {
      Result<Spelled> spelled = word.starts_with("--") ? read_long(word) : read_short(word);
      if (!spelled) return spelled.error();
      bool is_answer = spelled->name == "help" || spelled->name == "version";
      if (spelled->spec == nullptr && !is_answer)
        return invalid("unknown option '" + word + "'; see ddprun --help");
      word = std::move(spelled->rest);
      std::string option = "--" + spelled->name;
      if (is_answer || spelled->spec->value_name == nullptr) {
        if (spelled->value)
          return invalid(option + " takes no value, and was given '" + *spelled->value + "'");
        result.options.push_back(option);
        continue;
      }
      if (!spelled->value) {
        if (argument + 1 == arguments.end() || looks_like_option(argument[1]))
          return invalid(option + " needs a value: " + spelled->spec->value_name);
        spelled->value = *++argument;
      }
      if (spelled->value->empty()) {  // CLI11 takes "--option=" for a missing value
        result.options.insert(result.options.end(), {option, ""});
      } else {
        result.options.push_back(option + "=" + *spelled->value);
      }
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
