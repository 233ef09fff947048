// SPDX-License-Identifier: BSD-3-Clause
#include "cli/options/options.h"

#include <algorithm>
#include <optional>

#include "cli/options/completion.h"
#include "cli/options/help.h"
#include "cli/options/option_table.h"

namespace ddprun::cli {
namespace {

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
    consider(spec.name, spec.is_ours ? ours : torchruns);
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

// The command line as it was read.
struct CommandLine {
  Options options;
  bool wants_help = false;
  bool wants_version = false;
};

// Only the options in front of the script are ours; the rest is not even looked at, or else a
// script's own `--log=1` could be taken for an abbreviation.
Result<CommandLine> read_arguments(const std::vector<std::string>& arguments) {
  CommandLine line;
  for (auto argument = arguments.begin(); argument != arguments.end(); ++argument) {
    if (*argument == "--") {
      line.options.command.assign(argument + 1, arguments.end());
      break;
    }
    if (!argument->starts_with('-') || argument->size() == 1) {
      line.options.command.assign(argument, arguments.end());
      // argparse, and so torchrun, takes the first "--" away, where it stands at the script.
      auto behind_script = line.options.command.begin() + 1;
      if (behind_script != line.options.command.end() && *behind_script == "--")
        line.options.command.erase(behind_script);
      break;
    }
    for (std::string word = *argument; !word.empty();) {
      Result<Spelled> spelled = word.starts_with("--") ? read_long(word) : read_short(word);
      if (!spelled) return spelled.error();
      bool is_help = spelled->name == "help";
      bool is_version = spelled->name == "version";
      if (spelled->spec == nullptr && !is_help && !is_version)
        return invalid("unknown option '" + word + "'; see ddprun --help");
      word = std::move(spelled->rest);
      std::string option = "--" + spelled->name;
      bool takes_value = spelled->spec != nullptr && spelled->spec->value_name != nullptr;
      if (!takes_value && spelled->value)
        return invalid(option + " takes no value, and was given '" + *spelled->value + "'");
      if (takes_value && !spelled->value) {
        if (argument + 1 == arguments.end() || looks_like_option(argument[1]))
          return invalid(option + " needs a value: " + spelled->spec->value_name);
        spelled->value = *++argument;
      }
      line.wants_help |= is_help;
      line.wants_version |= is_version;
      if (spelled->spec != nullptr)  // the last of several wins
        line.options.values[spelled->name] = {spelled->value.value_or("1"), option};
    }
  }
  return line;
}

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
  Result<CommandLine> line = read_arguments(arguments);
  if (!line) return line.error();
  if (line->wants_version) return Answer{.text = "ddprun " DDPRUN_VERSION "\n"};
  if (line->wants_help) return Answer{.text = help_text()};
  Options options = std::move(line->options);
  if (auto shell = options.values.find("print-completion"); shell != options.values.end()) {
    Result<std::string> script = completion(shell->second.text);
    if (!script) return script.error();
    return Answer{.text = *script};
  }
  if (options.values.contains("new-secret")) return Answer{.text = "", .is_new_secret = true};
  Result<void> variables = read_variables(options, environment);
  if (!variables) return variables.error();
  return options;
}

}  // namespace ddprun::cli
